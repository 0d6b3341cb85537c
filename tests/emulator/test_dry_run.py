"""A kernel that is right at the sizes for a CPU fails where its host code would fail at the sizes in the file."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import load
from kernel_harness.results.record import Result
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings

pytestmark = [
    pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH"),
]  # fmt: skip

PROBLEM = """
import torch

rows, columns = 4096, 393216

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.rand(rows, columns)]
"""
SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
__global__ void twice(const float* x, float* y, long n) {
    const long block = blockIdx.y * static_cast<long>(gridDim.x) + blockIdx.x;
    const long step = static_cast<long>(gridDim.x) * gridDim.y * blockDim.x;
    for (long i = block * blockDim.x + threadIdx.x; i < n; i += step) y[i] = 2.0f * x[i];
}
__global__ void capped_without_loop(const float* x, float* y, long n) {
    const long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
__global__ void by_share(const float* x, float* y, long n, long share) {  // the host gives each block its elements
    const long first = blockIdx.x * share;
    for (long i = first + threadIdx.x; i < std::min(first + share, n); i += blockDim.x) y[i] = 2.0f * x[i];
}
torch::Tensor launch(torch::Tensor x) {
    torch::Tensor y = torch::empty_like(x);
    const long n = x.numel(), blocks = (n + 255) / 256;
    const dim3 tall(1, blocks), wide(std::min(blocks, 1024l));
    const auto twice_in = [&](dim3 grid) { twice<<<grid, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); };
    HOST
    return y;
}
"""
ops = load_inline("twice_by_host", "torch::Tensor launch(torch::Tensor x);", CUDA, functions=["launch"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ops.launch(x)
'''
CHECKED = "C10_CUDA_KERNEL_LAUNCH_CHECK();"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    path = tmp_path_factory.mktemp("problem") / "twice.py"
    path.write_text(PROBLEM)
    problem = load("twice", path).on(emulated=True)
    with Session(problem, Emulated(), Settings(rounds=1, quick=True), SilentObserver()) as made:
        yield made


def judged(session: Session, host: str) -> Result:
    candidate = Candidate("twice", Path("twice.py"), SOURCE.replace("HOST", host))
    return next(result for result in session.judge([candidate], lambda result: None) if not result.is_baseline)


@pytest.mark.parametrize("check", [CHECKED, "", 'TORCH_CHECK(!cudaGetLastError(), "the kernel failed");'])
def test_a_grid_that_is_too_large_for_the_file_s_sizes_is_an_error(session: Session, check: str) -> None:
    result = judged(session, f"twice_in(tall); {check}")
    assert result.status is Status.RUNTIME_ERROR, result.reason
    assert "rows=4096,columns=393216" in result.reason and "the grid is 1x6291456x1" in result.reason


@pytest.mark.parametrize(
    "host",
    [
        f"twice_in(wide); {CHECKED}",
        "twice_in(tall); if (cudaGetLastError()) twice_in(wide);",  # a fallback
        # The host reads a value, which a dry run does not have.
        "y.copy_(x).mul_(2.0f); if (y.max().item<float>() > -1e9f) twice_in(wide); else twice_in(tall);",
        "float first; cudaMemcpy(&first, x.data_ptr<float>(), 4, cudaMemcpyDeviceToHost);\n"
        'TORCH_CHECK(first != 0, "zero"); twice_in(wide);',
        "auto z = x.cpu(); twice_in(wide);",
        # torch's operators have shapes in a dry run.
        'y.copy_(x); TORCH_CHECK(x.sum(1).mul(2).unsqueeze(0).size(1) == x.size(0), "shape"); twice_in(wide);',
    ],
)  # fmt: skip
def test_host_code_that_works_at_the_file_s_sizes_passes(session: Session, host: str) -> None:
    result = judged(session, host)
    assert result.status is Status.PASSED, result.reason


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("n < (1l << 24)", Status.RUNTIME_ERROR),  # refuses the file's sizes alone
        ("n < 1000", Status.RUNTIME_ERROR),  # refuses all
        ("x.size(1) == 393216 && x.size(0) == 4096", Status.UNSUPPORTED),  # refuses all but the file's
    ],
)
def test_a_kernel_that_refuses_the_file_s_sizes_is_an_error(session: Session, condition: str, status: Status) -> None:
    result = judged(session, f'TORCH_CHECK({condition}, "these sizes are not supported"); twice_in(wide);')
    assert result.status is status, result.reason
    assert "these sizes are not supported" in result.reason


@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        ("capped_without_loop", Status.WRONG_VALUES),  # right for up to 65,535 * 256 elements
        ("twice", Status.PASSED),
        ("by_share", Status.PASSED),
    ],
)
def test_a_grid_that_is_capped_needs_a_loop(session: Session, kernel: str, status: Status) -> None:
    share = ", (n + few - 1) / few" if kernel == "by_share" else ""
    launch = f"{kernel}<<<few, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n{share});"
    result = judged(session, f"const long few = std::min(blocks, 65535l); {launch} {CHECKED}")
    assert result.status is status, result.reason
    assert ("with a 64th of its blocks the kernel is wrong" in result.reason) == (kernel == "by_share")


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y, block = torch.empty_like(x), triton.next_power_of_2(max(x.numel() // 1024, 16))
        twice[triton.cdiv(x.numel(), block),](x, y, x.numel(), BLOCK=block)
        return y
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_triton_kernel_that_does_not_compile_for_the_file_s_sizes_is_an_error(session: Session) -> None:
    candidate = Candidate("twice", Path("twice.py"), TRITON)
    result = next(result for result in session.judge([candidate], lambda result: None) if not result.is_baseline)
    assert result.status is Status.BUILD_ERROR, result.reason
    assert "rows=4096,columns=393216" in result.reason and "twice.py:9: Triton does not compile" in result.reason
