"""What the emulation cannot run refuses a kernel only where the kernel reaches it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.product import PROBLEM

from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings

pytestmark = [
    pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH"),
]  # fmt: skip

SOURCE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cudnn.h>
#include <cute/tensor.hpp>
__global__ void branch(float* x, int how) {
    if (how == 1) asm volatile("tcgen05.wait::ld.sync.aligned;");
    x[threadIdx.x] = 1;
}
template <class T> __device__ T tile(T* x) {
    auto whole = cute::make_tensor(x, 4);
    return whole(0);
}
__global__ void tiles(float* x) { *x = tile(x); }
void graph() {
    cudaGraph_t made;
    cudaGraphDebugDotPrint(made, "", 0);
    cudaGraphAddMemFreeNode(nullptr, made, nullptr, 0, nullptr);
}
bool library() { cudnnHandle_t handle; return cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS; }
void launch(torch::Tensor x, int64_t how) {
    branch<<<1, 32>>>(x.data_ptr<float>(), how);
    if (how == 2) tiles<<<1, 32>>>(x.data_ptr<float>());
    if (how == 3) graph();
    if (how == 4) library();
}
"""
ops = load_inline("parts", "void launch(torch::Tensor x, int64_t how);", CUDA, functions=["launch"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        CALL
        return torch.matmul(A.T, B.T)
'''
CALL = "ops.launch(torch.zeros(32, device='cuda'), {how})"
CAUGHT = "\n        ".join(["try:", f"    {CALL}", "except RuntimeError: pass"])
REACHED = {
    1: ("asm", "the inline PTX tcgen05.wait::ld"),
    2: ("make_tensor", "cute of the header cute/tensor.hpp"),
    3: ("cudaGraphDebugDotPrint", "cudaGraphDebugDotPrint"),
    4: ("cudnnHandle_t", "cudnnHandle_t of the header cudnn.h"),
}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PROBLEM, Emulated(), Settings(rounds=1, quick=True), SilentObserver()) as made:
        yield made


def judged(session: Session, call: str, source: str = SOURCE) -> Result:
    candidate = Candidate("parts", Path("parts.py"), source.replace("CALL", call))
    return next(result for result in session.judge([candidate], lambda result: None) if not result.is_baseline)


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(SOURCE.split("\n"), 1) if text in line)


@pytest.mark.parametrize("call", [CALL, CAUGHT], ids=["alone", "with a fallback"])
@pytest.mark.parametrize("how", REACHED)
def test_what_a_kernel_or_a_called_function_reaches_is_unsupported_at_its_line(
    session: Session, how: int, call: str
) -> None:
    result = judged(session, call.format(how=how))
    text, construct = REACHED[how]

    assert result.status is Status.UNSUPPORTED, result.reason
    assert result.reason.startswith(f"parts.py:{line_of(text)}: the emulation cannot run {construct}")


def test_what_nothing_reaches_is_a_remark(session: Session) -> None:
    result = judged(session, CALL.format(how=0))

    assert result.status is Status.PASSED, result.reason
    for text, construct in REACHED.values():
        assert (
            f"not reached by any check: parts.py:{line_of(text)}: the emulation cannot run {construct}" in result.reason
        )


@pytest.mark.parametrize(
    "mistake",
    ["void unused() { cudaGraphCraete(nullptr, 0); }", "void unused() { cublasHandle handle; }",
     '__global__ void unused() { asm volatile("tcgen05.wait::ld.sync.aligned;" :: "r"(missing)); }',
     '__global__ void unused(double x) { asm volatile("{ .reg .f32 t; mov.f32 t, %0; }" :: "f"(x)); }',
     '__global__ void unused(int to, int* x) { asm("cp.async.cg.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x)); }',
     '__global__ void unused(int to, int* x) { asm("cp.async.ca.shared.global [%0], [%1], 12;" :: "r"(to), "l"(x)); }',
     '__global__ void unused(int left) { asm volatile("cp.async.wait_group %0;" :: "r"(left)); }'],
)  # fmt: skip
def test_a_mistake_next_to_what_the_emulation_lacks_is_an_error(session: Session, mistake: str) -> None:
    source = SOURCE.replace(
        "void launch(torch::Tensor x, int64_t how) {", f"{mistake}\nvoid launch(torch::Tensor x, int64_t how) {{"
    )
    result = judged(session, CALL.format(how=0), source)

    assert result.status is Status.BUILD_ERROR, result.reason
