"""`--define`: variants of a kernel with other values of its compile-time parameters, each judged as a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import Finished, Harness

pytestmark = pytest.mark.slow
PROBLEM = """
import torch

N = 64

class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def get_inputs():
    return [torch.randn(N, 64)]
"""
# Right with a STEP of 1. The larger SLOW is, the longer a call takes.
CUDA = """// doubles
#include <torch/extension.h>
#ifndef BLOCK
#define BLOCK 32  // threads
#endif
constexpr int STEP = 1, SLOW = 1;

__global__ void twice(const float* x, float* y, int count) {
    for (volatile int i = 0; i < SLOW; i = i + 1) {}
    const int at = (blockIdx.x * BLOCK + threadIdx.x) * STEP;
    if (at < count) y[at] = 2 * x[at];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int count = x.numel();
    twice<<<(count + BLOCK - 1) / BLOCK, BLOCK>>>(x.data_ptr<float>(), y.data_ptr<float>(), count);
    return y;
}
"""
# The grid is computed in Python, so the constant of the file and the macro in its text must agree.
PYTHON = '''
import torch
from torch.utils.cpp_extension import load_inline

BLOCK = 32  # threads

SOURCE = """
#define BLOCK 32
__global__ void twice(const float* x, float* y, int count) {
    const int at = blockIdx.x * BLOCK + threadIdx.x;
    if (at < count) y[at] = 2 * x[at];
}

torch::Tensor forward(torch::Tensor x, int64_t blocks) {
    auto y = torch::empty_like(x);
    twice<<<blocks, BLOCK>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
built = load_inline(
    name="twice", cpp_sources="torch::Tensor forward(torch::Tensor x, int64_t blocks);", cuda_sources=SOURCE,
    functions=["forward"],
)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.forward(x, (x.numel() + BLOCK - 1) // BLOCK)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("define")
    (folder / "p.py").write_text(PROBLEM)
    (folder / "one.cu").write_text(CUDA)
    (folder / "two.py").write_text(PYTHON)
    return folder


@pytest.fixture(scope="module")
def harness(folder: Path) -> Harness:
    return Harness(folder)


@pytest.fixture(scope="module")
def ran(folder: Path, harness: Harness) -> Finished:
    return run(folder, harness, "one.cu", "STEP=1,2", "SLOW=1,20000")


def run(folder: Path, harness: Harness, kernel: str, *defines: str) -> Finished:
    words = [word for define in defines for word in ("--define", define)]
    return harness.run(
        "--problem", folder / "p.py", "--kernel", folder / kernel, "--device", "cpu", "--rounds", "12", *words
    )


def test_each_combination_is_a_row_and_a_wrong_one_fails(ran: Finished, harness: Harness) -> None:
    rows = dict(re.findall(r"^(\S+\]) +(\w+)", ran.stdout, re.MULTILINE))
    assert ran.code == 1 and rows == {
        "one[STEP=1,SLOW=1]": "PASSED", "one[STEP=1,SLOW=20000]": "PASSED",
        "one[STEP=2,SLOW=1]": "WRONG_VALUES", "one[STEP=2,SLOW=20000]": "WRONG_VALUES",
    }, ran.stderr  # fmt: skip
    kept = [line for line in harness.journal("p") if line["kernel"].startswith("one[")]
    assert len({line["source_sha256"] for line in kept}) == 4
    assert all("--define STEP=" in line["reproduce"] and "--define SLOW=" in line["reproduce"] for line in kept)


def test_the_fastest_is_named_with_the_interval_to_the_second(ran: Finished) -> None:
    told = " ".join(ran.stdout.split())
    found = re.search(r"one: under emulation, fastest with STEP=1,SLOW=1, ([\d.]+)x as fast as with (.+?), the", told)
    assert found and float(found[1]) > 1.5 and found[2] == "STEP=1,SLOW=20000"
    assert re.search(r"the second \(95% interval [\d.]+ - [\d.]+\)", told)


def test_the_command_that_a_failed_variant_names_fails_in_the_same_way(ran: Finished, harness: Harness) -> None:
    again = re.search(r"reproduce: python \S+harness.py (.*--define STEP=2 --define SLOW=1 .*)", ran.stdout)
    assert again
    told = harness.run(*again[1].replace("'", "").partition(" --results")[0].split())
    assert told.code == 1 and "one[STEP=2,SLOW=1]: WRONG_VALUES" in told.stdout


def test_macros_and_constants_of_a_python_file_change_together(folder: Path, harness: Harness) -> None:
    told = run(folder, harness, "two.py", "BLOCK=64", "BLOCK=128")
    assert told.code == 0, told.stdout + told.stderr
    assert set(re.findall(r"^two\S+ +PASSED", told.stdout, re.MULTILINE)) and "two[BLOCK=128]" in told.stdout


def test_a_variant_is_sanitized(folder: Path, typed: Callable[..., Finished]) -> None:
    told = typed("sanitize", folder / "p.py", folder / "one.cu", "--device", "cpu", "--define", "STEP=1")
    assert told.code == 0 and "one[STEP=1]: nothing found" in told.stdout, told.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["naive", "--define", "TILE=16,32"], "naive.py does not define TILE as one number or name. Write"),
        (["naive", "--define", "TILE"], "'TILE' is not of the form TILE=16,32"),
        (["tiled", "--define", "TILE_K=1,,2"], "'TILE_K=1,,2' is not of the form TILE=16,32"),
        (["tiled", "--define", f"TILE_K={','.join(map(str, range(101)))}"], "makes 101 variants; make at most 100"),
        (["tiled", "--define", "TILE_K=8", "--baseline", "tiled"], "choose one of torch, torch.compile"),
    ],
)
def test_what_cannot_be_defined_is_a_usage_error(
    words: list[str], complaint: str, typed: Callable[..., Finished], tmp_path: Path
) -> None:
    told = typed("run", "matmul_tt", *words, "--device", "cpu", "--results", tmp_path)
    assert told.code == 2 and complaint in told.stderr, told.stderr


@pytest.mark.parametrize("verb", ["sanitize", "profile"])
def test_other_verbs_take_one_variant(verb: str, typed: Callable[..., Finished]) -> None:
    told = typed(verb, "matmul_tt", "tiled", "--device", "cpu", "--define", "TILE_K=8,16")
    assert told.code == 2 and "--define makes 2 variants, and only the verb `run` takes several" in told.stderr
