"""Which kernels are a candidate's own, by the names that a profiler gives. test_cheats covers the profiler on a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.models import never
from support.product import PROBLEM

from kernel_harness.checking.answers import compare
from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.compared import Expectation
from kernel_harness.core.codec import Malformed
from kernel_harness.core.precision import Tolerance
from kernel_harness.core.status import Status
from kernel_harness.device import Clocked
from kernel_harness.diagnostics.profile.resources import base_name
from kernel_harness.explain.launches import (
    measure,
    own,
    share_of_output,
    share_of_time,
)
from kernel_harness.ipc.messages import KernelTimes
from kernel_harness.problem.candidate import Candidate
from kernel_harness.trial.trial import Trial
from kernel_harness.worker.failure import is_refusal
from kernel_harness.workers.worker_client import Answer


@pytest.mark.parametrize(
    "kernel, name",
    [
        ("void tiled<16>(float const*, float*, int)", "tiled"),
        ("spin(float*)", "spin"),
        ("(anonymous namespace)::scan<int, 4>(int*)", "scan"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)",
         "vectorized_elementwise_kernel"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("Memcpy HtoD (Pinned -> Device)", ""),
        ("Memset (Device)", ""),
    ],
)  # fmt: skip
def test_a_kernels_bare_name(kernel: str, name: str) -> None:
    assert base_name(kernel) == name


def test_own_kernels_are_named_in_the_source_or_in_a_library_built_from_it(tmp_path: Path) -> None:
    library = tmp_path / "made_by_a_macro.so"
    library.write_bytes(b"\0_Z14scale_by_macroPf\0")
    source = "__global__ void tiled(float* x) {}  // no_tiled_gemm"
    seen = ["void tiled<8>(float*)", "scale_by_macro(float*)", "cutlass_80_simt_sgemm_128x64", "gemm(float*)"]

    assert own(seen, source, [library]) == ["tiled", "scale_by_macro"]


@pytest.mark.parametrize(
    ("error", "declines"),
    [
        (RuntimeError("K must be a multiple of 64"), True),
        (ValueError("this kernel launches one block for each row; N must be at most 1024"), True),
        (NotImplementedError("only for float32"), True),
        (RuntimeError("launch failed"), False),
        (RuntimeError("CUDA kernel launch error: invalid configuration argument"), False),
        (ValueError("failed to launch the kernel"), False),
        (RuntimeError("an illegal memory access was encountered"), False),
        (torch.OutOfMemoryError("CUDA out of memory."), False),
        (AssertionError("K must be a multiple of 64"), True),
        (AssertionError("the launch failed: invalid argument"), False),
        (KeyError("K"), False),
    ],
    ids=str,
)
def test_only_a_message_that_names_no_failed_launch_declines_a_shape(error: Exception, declines: bool) -> None:
    assert is_refusal(error) is declines


def test_the_launches_that_a_worker_reports_are_capped_in_number_and_length() -> None:
    kernels = KernelTimes.from_json({"names": ["k" * 5000] * 5000, "times_us": [1.0] * 5000})

    assert {len(name) for name in kernels.names} == {1000}
    assert len(kernels.names) == len(kernels.times_us) == 1000


def test_a_kernels_name_that_is_no_text_is_malformed() -> None:
    with pytest.raises(Malformed):
        KernelTimes.from_json({"names": [1, "k"], "times_us": [1.0, 1.0]})


# ------------------------------------------------------------------------------------------------- their share


def test_the_share_of_the_time_is_that_of_all_launches_of_own_kernels() -> None:
    names = ("void tiled<8>(float*)", "gemm(float*)", "tiled<16>", "Memset (Device)")

    assert share_of_time(KernelTimes(names, (2.0, 10.0, 1.0, 2.0)), {"tiled"}) == 0.2


@pytest.mark.parametrize("forged", [(), (None, None), (0.0, 0.0)])
def test_without_any_time_the_share_is_unknown(forged: tuple[float | None, ...]) -> None:
    assert share_of_time(KernelTimes(("tiled", "gemm"), forged), {"tiled"}) is None


def test_the_share_of_the_output_is_what_changes_without_the_kernels() -> None:
    library = torch.tensor([1.0, 2.0, 3.0, 4.0])

    assert share_of_output([library], [torch.tensor([1.0, 2.0, 3.0, 5.0])]) == 0.25
    assert share_of_output([library], [library]) == 0
    assert share_of_output([torch.full((4,), torch.nan)], [library]) == 1


def test_what_is_zero_with_and_without_the_kernels_does_not_count() -> None:
    """As where torch zeroes the output and a kernel writes the other elements, or where a kernel is a ReLU."""
    sparse = torch.tensor([0.0, 0.0, 0.0, 7.0])

    assert share_of_output([torch.zeros(4)], [sparse]) == 1
    assert share_of_output([torch.zeros(4)], [torch.zeros(4)]) is None
    assert share_of_output([torch.tensor([-1.0, 2.0])], [torch.tensor([0.0, 2.0])]) == 0.5


def test_several_outputs_are_one_and_another_size_is_another_output() -> None:
    one, three = torch.ones(1), torch.ones(3)

    assert share_of_output([three, three], [three, -three]) == 0.5
    assert share_of_output([one], [three]) == 1
    assert share_of_output([], [three]) == 1
    assert share_of_output([torch.empty(0)], [torch.empty(0)]) is None


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.complex128], ids=str
)
def test_outputs_of_every_type_are_compared(dtype: torch.dtype) -> None:
    ones = torch.ones(2, 3).to(dtype).t()
    other = ones.clone()
    other[0, 0] = 0

    assert share_of_output([other], [ones]) == pytest.approx(1 / 6)


class Grows:
    """A client whose output has another size once its checks are over."""

    worker = SimpleNamespace(pause=lambda: None)

    def skip_kernels(self, skip: bool) -> None:
        pass

    def call(self, *_: Any, **how: Any) -> Answer:
        return Answer({"tensor": 0}, (torch.ones(7),), Clocked(None), 1.0)


def test_outputs_of_another_size_than_in_the_checks_are_not_compared() -> None:
    """They may be so large that the judge has no memory to compare them."""
    client: Any = Grows()
    candidate = Candidate("grows", Path("grows.py"), "")
    trial = Trial(candidate, never, Reference(PROBLEM, "cpu", None), plan(PROBLEM, 1))
    trial.client, trial.launches = client, 1
    measure(trial, emulated=True)

    assert trial.own_share is None


def test_the_reason_shows_the_beginning_of_a_long_structure() -> None:
    expectation = Expectation("own", "own", (torch.ones(2),), None, None, Tolerance(0, 0))
    check = compare(Answer({"list": [{"value": "x" * 60_000}]}, (), Clocked(None), 1.0), {"tensor": 0}, expectation)

    assert check.status is Status.WRONG_SHAPE
    assert len(check.detail) < 1000


class NowhereElse:
    """An output for which no device has room."""

    shape = torch.Size([1 << 40])

    def to(self, device: torch.device) -> torch.Tensor:
        raise torch.OutOfMemoryError


def test_an_output_of_another_size_is_not_moved_to_the_device() -> None:
    output: Any = NowhereElse()
    expectation = Expectation("own", "own", (torch.ones(2),), None, None, Tolerance(0, 0))
    check = compare(Answer({"tensor": 0}, (output,), Clocked(None), 1.0), {"tensor": 0}, expectation)

    assert check.status is Status.WRONG_SHAPE
