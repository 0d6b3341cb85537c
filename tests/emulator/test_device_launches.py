"""Launches from device code: the emulator cannot run them, and says so at once where a kernel reaches one."""

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
__global__ void row(float* x) { x[threadIdx.x] = 1; }
__global__ void parent(float* x, int how, cudaGraphExec_t graph) {
    if (how == 1) row<<<1, 1>>>(x);
    if (how == 2) row<<<1, 1, 0, cudaStreamTailLaunch>>>(x);
    if (how == 3) row<<<1, 1, 0, cudaStreamFireAndForget>>>(x);
    if (how == 4) cudaGraphLaunch(graph, cudaStreamGraphFireAndForget);
    if (how == 5) { void* arguments[] = {&x}; cudaLaunchKernel((void*)row, 1, 1, arguments, 0, 0); }
}
void launch(torch::Tensor x, int64_t how) { parent<<<2, 32>>>(x.data_ptr<float>(), how, nullptr); }
"""
ops = load_inline("launches", "void launch(torch::Tensor x, int64_t how);", CUDA, functions=["launch"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        CALL
        return torch.matmul(A.T, B.T)
'''
LINES = {how: i for i, line in enumerate(SOURCE.split("\n"), 1) for how in range(6) if f"how == {how})" in line}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PROBLEM, Emulated(), Settings(rounds=1, quick=True), SilentObserver()) as made:
        yield made


def judged(session: Session, call: str) -> Result:
    candidate = Candidate("launches", Path("launches.py"), SOURCE.replace("CALL", call))
    return next(result for result in session.judge([candidate], lambda result: None) if not result.is_baseline)


CALL = "ops.launch(torch.zeros(32, device='cuda'), {how})"
CAUGHT = "\n        ".join(["try:", f"    {CALL}", "    torch.cuda.synchronize()", "except RuntimeError: pass"])


@pytest.mark.parametrize("call", [CALL, CAUGHT], ids=["alone", "with a fallback"])
@pytest.mark.parametrize("how", [1, 2, 3, 4, 5])
def test_a_launch_that_a_kernel_reaches_is_unsupported_and_has_its_name_and_line(
    session: Session, how: int, call: str
) -> None:
    result = judged(session, call.format(how=how))
    what = "a graph" if how == 4 else "row"

    assert result.status is Status.UNSUPPORTED, result.reason
    assert result.reason.startswith(
        f"launches.py:{LINES[how]}: the emulation cannot run the launch of {what} from device code."
    )


@pytest.mark.parametrize("call", ["pass", CALL.format(how=0)], ids=["no kernel runs", "no kernel reaches it"])
def test_a_launch_that_no_kernel_reaches_refuses_nothing(session: Session, call: str) -> None:
    result = judged(session, call)
    assert result.status is Status.PASSED, result.reason
