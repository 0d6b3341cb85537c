"""`kernel_harness.evaluate`: what a program that writes kernels calls in its loop."""

import pytest

import kernel_harness
from kernel_harness.find import NotFound
from kernel_harness.status import Status

RIGHT = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
"""


@pytest.fixture(scope="module")
def right():
    return kernel_harness.evaluate("matmul_tt", RIGHT, device="cpu", budget_s=0.2)


def test_a_right_kernel_passes(right):
    assert right.status is Status.PASSED, right.reason


def test_a_right_kernel_has_a_time(right):
    assert right.timing is not None and right.timing.time_ms > 0


def test_the_candidates_own_faults_are_a_result_and_no_exception():
    result = kernel_harness.evaluate("matmul_tt", "class ModelNew:\n    oops", device="cpu")
    assert result.status is Status.RUNTIME_ERROR or result.status is Status.LOAD_ERROR


def test_it_prints_nothing(capfd):
    kernel_harness.evaluate("matmul_tt", "print('noise')\nraise ValueError", device="cpu")
    assert capfd.readouterr() == ("", "")


def test_an_unknown_problem_is_the_callers_mistake():
    with pytest.raises(NotFound, match="did you mean 'matmul_tt'"):
        kernel_harness.evaluate("matmul_t", RIGHT, device="cpu")
