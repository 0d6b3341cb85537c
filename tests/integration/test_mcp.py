"""The verb `mcp`: a real client of the Model Context Protocol uses the tools, over pipes and over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from support import suites
from support.command import ROOT, refusal_without

mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")
anyio = pytest.importorskip("anyio")

PROBLEM = suites.PROBLEM.format(factor=1)
RIGHT = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
"""
WRONG = RIGHT.replace("min=0", "min=-1")
PAST_THE_END = """
#include <torch/extension.h>

__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = fmaxf(x[i], 0.0f);
}

torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  relu<<<(x.numel() + 256) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
SERVER = [sys.executable, "-m", "kernel_harness", "mcp", "--device", "cpu", "--budget", "0.3"]

Talk = Callable[[Callable[[Any], Awaitable[None]]], None]


def talk_to(server: object, said: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        async with mcp.Client(server) as client:
            await said(client)

    anyio.run(main)


@pytest.fixture
def over_pipes() -> Talk:
    server = mcp.StdioServerParameters(command=SERVER[0], args=SERVER[1:], cwd=str(ROOT))
    return lambda said: talk_to(server, said)


@pytest.fixture
def in_a_hurry() -> Talk:
    server = mcp.StdioServerParameters(command=SERVER[0], args=[*SERVER[1:-1], "0.001"], cwd=str(ROOT))
    return lambda said: talk_to(server, said)


@pytest.fixture
def over_http() -> Iterator[Talk]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([*SERVER, "--http", str(port)], cwd=ROOT) as process:
        while True:  # until the server listens
            assert process.poll() is None
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield lambda said: talk_to(f"http://127.0.0.1:{port}/mcp", said)
        process.terminate()


async def answer(client: Any, tool: str, **arguments: str) -> str:
    found = await client.call_tool(tool, arguments)
    assert not found.is_error
    return str(found.content[0].text)


def test_an_agent_finds_the_tools_and_gets_verdicts(over_pipes: Talk) -> None:
    async def said(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["judge", "sanitize", "profile", "compare", "list"]
        assert all(tool.description for tool in tools)
        right = await answer(client, "judge", problem=PROBLEM, source=RIGHT)
        assert right.startswith("PASSED: right at ") and "does not predict a GPU's" in right
        wrong = await answer(client, "judge", problem=PROBLEM, source=WRONG)
        assert wrong.startswith("candidate: WRONG_VALUES") and "expected 0" in wrong
        assert "seed" not in right + wrong
        changed = await answer(client, "compare", problem=PROBLEM, before=RIGHT, after=WRONG)
        assert "before -> after" in changed and "WRONG_VALUES" in changed

    over_pipes(said)


def test_a_time_of_few_rounds_is_told_without_an_interval(in_a_hurry: Talk) -> None:
    async def said(client: Any) -> None:
        told = await answer(client, "judge", problem=PROBLEM, source=RIGHT)
        assert told.startswith("PASSED") and "ms." in told and "no interval: too few rounds" in told

    in_a_hurry(said)


def test_a_mistake_of_the_agent_is_answered_by_a_sentence(over_pipes: Talk) -> None:
    async def said(client: Any) -> None:
        assert "no problem 'matmul_t'" in await answer(client, "judge", problem="matmul_t", source=RIGHT)
        assert "get_inputs" in await answer(client, "judge", problem="import torch\n", source=RIGHT)
        assert "LOAD_ERROR" in await answer(client, "judge", problem=PROBLEM, source="raise ValueError\n")
        assert "no file" in await answer(client, "judge", problem=PROBLEM, source="nowhere.py")
        assert "tiled" in await answer(client, "list", problem="matmul_tt")

    over_pipes(said)


def test_a_read_past_the_end_has_its_line_over_http(over_http: Talk) -> None:
    async def said(client: Any) -> None:
        found = await answer(client, "sanitize", problem=PROBLEM, source=PAST_THE_END)
        assert "kernel.cu:6" in found and "/tmp" not in found, found
        counted = await answer(client, "profile", problem=PROBLEM, source=PAST_THE_END)
        assert "relu" in counted and len(counted) < 8100, counted

    over_http(said)


def test_without_the_package_the_command_says_what_to_install() -> None:
    assert "pip install 'mcp>=2'" in refusal_without("mcp", "mcp")
