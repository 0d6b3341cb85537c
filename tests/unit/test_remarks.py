"""The remarks on a kernel that passed: which part of the work a library does, and where torch.compile is emulated."""

from __future__ import annotations

import pytest

from kernel_harness.core.remark import Remark, RemarkKind, sentences
from kernel_harness.core.status import Status
from kernel_harness.explain import passed
from kernel_harness.results.record import Result
from kernel_harness.session.summary import failed
from kernel_harness.workers.faults import Fault

KERNEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


def on(source: str = KERNEL, launches: int | None = 1, share: float | None = None, emulated: bool = True) -> str:
    return sentences(passed.on_source(source, launches, share, emulated=emulated))


def test_an_ordinary_kernel_gets_no_remark() -> None:
    assert on() == on(share=1.0) == on(launches=None) == ""


def test_a_candidate_without_a_launch_leaves_the_work_to_a_library() -> None:
    assert on(launches=0, share=0.0) == (
        "Remark: the candidate launched no kernel of its own; a library does the work."
    )


@pytest.mark.parametrize(("share", "same"), [(0.0, "100.00%"), (0.0625, "93.75%")])
def test_an_output_that_hardly_changes_without_the_kernels_gets_a_remark(share: float, same: str) -> None:
    assert on(share=share) == (
        f"Remark: {same} of the output is the same without the candidate's own kernels; a library may do the work."
    )


@pytest.mark.parametrize(("share", "said"), [(0.0, "less than 0.01%"), (0.0003, "0.03%")])
def test_kernels_that_take_little_of_the_time_get_a_remark(share: float, said: str) -> None:
    assert on(share=share, emulated=False) == (
        f"Remark: the candidate's own kernels take {said} of the time on the GPU; a library does the rest."
    )


def test_a_kernel_that_does_a_tenth_of_the_work_gets_no_remark() -> None:
    assert on(share=passed.LEAST_SHARE) == ""


@pytest.mark.parametrize("line", ["    @torch.compile(mode='default')", "model = torch.compile(Model())"])
def test_torch_compile_without_a_gpu_gets_the_remark_that_another_backend_ran(line: str) -> None:
    said = "Remark: line 2 uses torch.compile, which runs with the backend aot_eager, since there is no GPU."

    assert on(f"import torch\n{line}\n") == said
    assert on(f"import torch\n{line}\n", emulated=False) == ""


@pytest.mark.parametrize("line", ["x = 1  # not torch.compile(f)", "Slower than torch.compile would be."])
def test_torch_compile_that_is_only_mentioned_gets_no_remark(line: str) -> None:
    assert on(f"{line}\n") == ""


def test_a_failure_in_a_timed_call_keeps_what_the_sanitizer_found_and_no_other_remark() -> None:
    race, library = Remark(RemarkKind.SANITIZER, "Two threads write x.", 7), Remark(RemarkKind.LIBRARY, "A library.")
    right = Result("k", Status.PASSED, "", {}, "", remarks=(library, race))
    wrong = failed(right, Fault(Status.WRONG_VALUES, "The output of a timed call is wrong."))
    assert wrong.status is Status.WRONG_VALUES and wrong.remarks == (race,)
