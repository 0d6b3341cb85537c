"""Candidates see the strides, offsets and shared storages of inputs that get_inputs() makes on the device."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from support import forked_command
from support.command import ROOT

from kernel_harness.api import evaluate
from kernel_harness.core.status import Status

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
N = 64

class Model(torch.nn.Module):
    def forward(self, {names}):
        {forward}

def get_inputs():
    {inputs}
"""
KERNEL = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, {names}):
        {forward}
"""
QKV = "q, k, v = torch.randn(N, 24, device='cuda').chunk(3, -1); return [q, k, v]"
STRIDED = "return [torch.randn(N, 32, device='cuda')[1:, ::2]]"
ROWS = "return [torch.randn(N, 1).cuda().expand(N, 16)]"
TWICE = "x = torch.randn(N, 8).cuda(); return [x, x.view(-1)]"
APART = "x = torch.randn(N, 8); return [x, x.view(-1)]"
# The inputs, and what the reference and the candidate do with them.
RIGHT = {
    "strides and the offset": (STRIDED, "x", "return x * 2 + 1",
        "assert x.stride() == (32, 2) and x.storage_offset() == 32 and x.data_ptr() % 256 == 128\n"
        "        return x * 2 + 1"),
    "the storage behind a view": (STRIDED, "x", "return x * 2 + 1",
        "return torch.as_strided(x, x.shape, x.stride(), x.storage_offset()) * 2 + 1"),
    "an expanded row": (ROWS, "x", "return x * 2 + 1",
        "assert x.stride() == (1, 0)\n        return x[:, :1] * 2 + torch.ones_like(x)"),
    "parts of one storage": (QKV, "q, k, v", "return q * k + v",
        "assert q.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()\n"
        "        whole = q.as_strided((q.shape[0], 24), (24, 1), 0)\n"
        "        return whole[:, :8] * whole[:, 8:16] + whole[:, 16:]"),
    "an input that is changed and seen through another one": (TWICE, "x, y", "x.add_(1); return y * 2",
        "x.add_(1); return y * 2"),
    "equal tensors of the host": (APART, "x, y", "x.add_(1); return y * 2",
        "assert x.data_ptr() != y.data_ptr()\n        x.add_(1); return y * 2"),
    "contiguous inputs first": (STRIDED, "x", "return x * 2 + 1", "return x.contiguous() * 2 + 1"),
}  # fmt: skip
WRONG = {
    "a stride is ignored": (STRIDED, "x", "return x * 2 + 1",
        "return x.as_strided(x.shape, (x.shape[1], 1)) * 2 + 1", Status.WRONG_VALUES),
    "an offset is ignored": (STRIDED, "x", "return x * 2 + 1",
        "return x.as_strided(x.shape, x.stride(), 0) * 2 + 1", Status.WRONG_VALUES),
    "a gap is written to": (STRIDED, "x", "return x * 2 + 1",
        "x.as_strided((1,), (1,), 33).zero_()\n        return x * 2 + 1", Status.MUTATED_INPUT),
    "a part of the storage that another input has is written to": (QKV, "q, k, v", "return q * k + v",
        "out = q * k + v\n        q.as_strided((1,), (1,), 9).zero_()\n        return out", Status.MUTATED_INPUT),
    "an input is read before it is changed through another one": (TWICE, "x, y", "x.add_(1); return y * 2",
        "z = y * 2; x.add_(1); return z", Status.WRONG_VALUES),
}  # fmt: skip


def files(folder: Path, inputs: str, names: str, right: str, tried: str) -> tuple[Path, str]:
    problem = folder / "p.py"
    problem.write_text(PROBLEM.format(names=names, forward=right, inputs=inputs))
    return problem, KERNEL.format(names=names, forward=tried)


@pytest.mark.parametrize("kind", list(RIGHT))
def test_a_kernel_that_relies_on_the_layout_passes(kind: str, tmp_path: Path) -> None:
    result = evaluate(*files(tmp_path, *RIGHT[kind]), device="cpu", budget_s=0.1)
    assert result.status is Status.PASSED, result.reason


@pytest.mark.parametrize("kind", list(WRONG))
def test_a_kernel_that_mistakes_the_layout_fails(kind: str, tmp_path: Path) -> None:
    *parts, status = WRONG[kind]
    result = evaluate(*files(tmp_path, *parts), device="cpu", budget_s=0.1)
    assert result.status is status, result.reason


def test_wrong_values_come_with_the_strides_of_an_input_that_is_not_contiguous(tmp_path: Path) -> None:
    *parts, _ = WRONG["a stride is ignored"]
    result = evaluate(*files(tmp_path, *parts), device="cpu", budget_s=0.1)
    assert "Input 1 (x) is not contiguous: its strides are (32, 2)." in result.reason


def test_a_tensor_in_a_list_has_a_number_and_not_the_name_of_another_argument(tmp_path: Path) -> None:
    inputs = "a, b = torch.randn(2, N, 32, device='cuda'); return [[a[:, :16].clone(), b[:, ::2]], a[:, 16:].clone()]"
    forward = "return pair[0] * pair[1] + y"
    result = evaluate(*files(tmp_path, inputs, "pair, y", forward, f"{forward} + 1"), device="cpu", budget_s=0.1)
    assert "Input 2 is not contiguous: its strides are (32, 2)." in result.reason


# Runs in a process of its own, since torch keeps the emulated CUDA device from then on.
SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, str(Path()))
from kernel_harness.checking.cases import Reference, plan
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import load
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import WorkerClient
from kernel_harness.trial.trial import Trial
from tests.support.rehearsal import Rehearsal

device = Rehearsal()
device.prepare()
with ForkServer() as fork_server:
    fork_server.prepare(device.name)
    for folder in map(Path, sys.argv[1:]):
        problem, file = load("p", folder / "p.py"), folder / "kernel.py"
        trial = Trial(
            Candidate("kernel", file, file.read_text()),
            lambda: WorkerClient(fork_server, device.name, Limits()),
            Reference(problem, device.torch_device, None),
            plan(problem, 1),
        )
        trial.build()
        trial.check()
        trial.close()
        print(json.dumps([str(trial.status), trial.fault.reason if trial.fault else ""]))
"""


def test_the_cuda_device_s_code_gives_the_same_verdicts(tmp_path: Path) -> None:
    """There get_inputs() runs with the device as torch's default one, and inputs are copied to it."""
    wanted = {kind: Status.PASSED for kind in RIGHT} | {kind: status for kind, (*_, status) in WRONG.items()}
    folders = []
    for i, kind in enumerate(wanted):
        folders.append(tmp_path / str(i))
        folders[-1].mkdir()
        _, kernel = files(folders[-1], *(RIGHT.get(kind) or WRONG[kind])[:4])
        (folders[-1] / "kernel.py").write_text(kernel)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "rehearsed.py"
        script.write_text(SCRIPT)
        done = forked_command.run(script, folders, ROOT)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]

    assert {kind: status for kind, (status, _) in zip(wanted, found, strict=True)} == wanted, found
