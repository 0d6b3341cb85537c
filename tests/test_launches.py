"""Which kernels are a candidate's own, by the names that a profiler gives. What it sees on a GPU, test_cheats asks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kernel_harness import launches
from kernel_harness import problem as problems
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Case, Reference
from kernel_harness.device.cpu import Emulated
from kernel_harness.examine import Finding, Subject
from kernel_harness.inputs import buffer_of
from kernel_harness.judge import Nobody, Session
from kernel_harness.launches import base_name, own
from kernel_harness.settings import Settings

LINEAR = """
import torch

K = 32
CHECK_SHAPES = [{"K": 8}]

class Model(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.linear = torch.nn.Linear(k, 4)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.rand(16, K)]

def get_init_inputs():
    return [K]
"""


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


def test_own_kernels_are_those_the_text_or_a_library_of_it_names(tmp_path: Path) -> None:
    library = tmp_path / "made_by_a_macro.so"
    library.write_bytes(b"\0_Z14scale_by_macroPf\0")
    source = "__global__ void tiled(float* x) {}  // no_tiled_gemm"
    seen = ["void tiled<8>(float*)", "scale_by_macro(float*)", "cutlass_80_simt_sgemm_128x64", "gemm(float*)"]

    assert own(seen, source, [library]) == ["tiled", "scale_by_macro"]


def test_after_the_look_a_candidate_is_called_at_its_own_shape_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights may depend on the shape."""

    def called(subject: Subject, reference: Reference, case: Case) -> list[str]:
        packed = reference.inputs(case)
        with closing(buffer_of(packed)) as buffer:
            subject.call(packed, buffer)
        return []

    monkeypatch.setattr(launches, "_kernels", called)  # what a GPU's profiler does beside is not there
    path = tmp_path / "linear.py"
    path.write_text(LINEAR)
    problem = problems.load("linear", path)
    source = LINEAR.replace("class Model", "class ModelNew")
    with Session(problem, Emulated(), Settings(), Nobody()) as session, closing(session.new_subject()) as subject:
        subject.load("linear.py", source, "ModelNew")
        subject.make(problem)
        timed, other = session.cases[0], session.cases[-1]
        assert other.shape != timed.shape
        finding = Finding(refused=[other.shape_name])
        launches.look(subject, Candidate("linear", path, source), finding, session.reference, session.cases)

        assert called(subject, session.reference, timed) == []


def test_of_what_a_worker_says_was_launched_so_much_is_heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "linear.py"
    path.write_text(LINEAR)
    problem = problems.load("linear", path)
    with Session(problem, Emulated(), Settings(), Nobody()) as session, closing(session.new_subject()) as subject:
        monkeypatch.setattr(subject, "_ask", lambda *_: {"kernels": [1, *["k" * 5000] * 5000]})
        packed = session.reference.inputs(session.cases[0])
        with closing(buffer_of(packed)) as buffer:
            names = subject.kernels(packed, buffer)

    assert {len(name) for name in names} == {1000}
    assert len(names) == 999
