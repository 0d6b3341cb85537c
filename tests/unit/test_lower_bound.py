"""The bytes that every correct kernel moves: derived from the reference, and never more than an honest kernel needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kernel_harness.checking import inputs_read, lower_bound, places, probe
from kernel_harness.checking.cases import Reference
from kernel_harness.checking.lower_bound import LowerBound, derive
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.precision import Precision
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.peaks import Peaks, of
from kernel_harness.problem.problem import Problem, load
from kernel_harness.results.record import Result
from kernel_harness.session.settings import Settings
from kernel_harness.session.summary import RunFacts, timed
from kernel_harness.timing.measurements import ArmMeasurements, Measurements
from kernel_harness.timing.statistics import Round

torch.set_num_threads(1)

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x, y=None):
        {forward}

def get_inputs():
    {inputs}
"""
B, N = 64, 1000
X = f"return [torch.rand({B}, {N})]"
NORMAL = f"return [torch.randn({B}, {N})]"
ALL = B * N * 4


def problem(folder: Path, forward: str, inputs: str = X, init: str = "pass") -> Problem:
    forward = forward if "return" in forward else f"return {forward}"
    (folder / "p.py").write_text(SOURCE.format(init=init, forward=forward, inputs=inputs))
    return load("p", folder / "p.py")


def bound(folder: Path, *texts: str, allowed: Precision | None = None) -> LowerBound:
    return derive(Reference(problem(folder, *texts), "cpu", allowed), allowed)


# Of a part that counts as a whole, a sample shows at least this share.
SHOWN = 0.79


@pytest.mark.parametrize(("forward", "inputs", "most"), [
    ("x * 2", X, ALL),
    ("torch.relu(x)", NORMAL, ALL),  # half of its numbers are zeros, in other runs others
    ("torch.relu(x)", X, ALL),  # the problem's own inputs are returned as they are, others are not
    ("x.softmax(1)", X, ALL),
    ("x.T @ x", X, N * N * 4),
    ("x @ y", "return [torch.rand(64, 32), torch.rand(32, 80)]", 64 * 80 * 4),
    ("x.half()", X, ALL / 2),
    ("x.flip(1)", X, ALL),
    ("torch.cat([x, x], 1)", X, 2 * ALL),
    ("[x + 1, {'a': x - 1}]", X, 2 * ALL),
    ("x.argsort(1)", X, 2 * ALL),
    ("F.one_hot(x, 10)[:, :5] + torch.rand(64, 5)", "return [torch.randint(10, (64,))]", 64 * 5 * 4),
])  # fmt: skip
def test_outputs_that_a_kernel_has_to_write_count(forward: str, inputs: str, most: float, tmp_path: Path) -> None:
    assert 0 <= bound(tmp_path, forward, inputs).written <= most


@pytest.mark.parametrize("forward", [
    "x * 2", "x.softmax(1)", "torch.relu(x - 0.5)", "torch.relu(x)", "x.argsort(1)", "x.cumsum(1)",
])  # fmt: skip
def test_outputs_count_nearly_in_full(forward: str, tmp_path: Path) -> None:
    """Of the zeros of a ReLU, those that are zeros in all runs do not count."""
    assert bound(tmp_path, forward).written >= 0.8 * ALL


@pytest.mark.parametrize(("forward", "inputs"), [
    ("x", X),
    ("x.add_(1)", X),
    ("x.clone()", X),
    ("x.T.contiguous()", X),
    ("x[:, ::2].contiguous()", X),
    ("x[:, 3:5].clone()", X),
    ("x.unsqueeze(1).expand(64, 10, 1000).contiguous()", X),
    ("x.unfold(1, 5, 1).contiguous()", X),
    ("F.dropout(x, 0.5, False)", X),
    ("torch.ones_like(x)", X),
    ("x * 0", X),
    ("torch.arange(10.0).expand(64, 10).clone()", X),
    ("self.w", X),
    ("self.w.expand(64, 7).contiguous()", X),
    ("F.one_hot(x, 100) * 0", "return [torch.randint(10, (64,))]"),
    ("x.to(torch.bfloat16)", "return [torch.rand(64, 1000).bfloat16()]"),
    ("x.clone()", "return [torch.rand(64, 1000) < 0.5]"),
])  # fmt: skip
def test_outputs_that_a_kernel_need_not_write_do_not_count(forward: str, inputs: str, tmp_path: Path) -> None:
    init = "self.w = nn.Parameter(torch.rand(7))"
    assert bound(tmp_path, forward, inputs, init).written == 0


@pytest.mark.parametrize(("forward", "inputs", "most"), [
    ("(x * 2).unsqueeze(1).expand(64, 100, 1000)", X, ALL),
    ("(x * 2).unsqueeze(1).expand(64, 100, 1000).contiguous()", X, ALL),
    ("(x.sum(1, keepdim=True) + torch.zeros(64, 1000))", X, 64 * 4),
    ("x.mean() * torch.ones(64, 1000)", X, 4),
    ("torch.tril(x @ x)", "return [torch.rand(256, 256)]", 256 * 257 / 2 * 4),
    ("(x * 2).unfold(1, 5, 1)", X, ALL),
    ("(x * 2).unfold(1, 5, 1).contiguous()", X, ALL),
    ("(x * 2).chunk(2, 1)", X, ALL),
    ("(x * 2).unfold(1, 5, 4).contiguous()", X, ALL),
    ("(lambda y: (y[:9], y, y.view(-1), y.T, y.clone()))(x * 2)", X, ALL),
])  # fmt: skip
def test_of_outputs_only_distinct_memory_counts(forward: str, inputs: str, most: float, tmp_path: Path) -> None:
    assert bound(tmp_path, forward, inputs).written <= most


@pytest.mark.parametrize(("forward", "inputs"), [
    ("x * 2", X),
    ("torch.relu(x)", NORMAL),
    ("F.max_pool1d(x, 4)", X),
    ("x.argmax(1)", X),
    ("x.mean()", X),
    ("F.layer_norm(x, (1000,))", X),
    ("F.batch_norm(x, None, None, training=True)", X),
    ("x / x.norm()", X),
    ("x @ y", "return [torch.rand(64, 500), torch.rand(500, 64)]"),
    ("x.T @ y", "return [torch.rand(500, 64), torch.rand(500, 64)]"),
    ("F.mse_loss(x, y)", "return [torch.rand(64, 500), torch.rand(64, 500)]"),
    ("x.sign()", NORMAL),
    ("x.round()", "return [10 * torch.rand(64, 1000)]"),
    ("x.sort(1).values", X),
])  # fmt: skip
def test_inputs_on_which_the_answer_depends_count(forward: str, inputs: str, tmp_path: Path) -> None:
    """Also where a change of one number is a billionth of the answer, or where the answer cannot be differentiated."""
    total = 2 * 64 * 500 * 4 if "y" in forward else ALL
    assert SHOWN * total <= bound(tmp_path, forward, inputs).inputs <= total


@pytest.mark.parametrize(("forward", "inputs", "needed"), [
    ("x * 0", X, 0),
    ("torch.ones(3)", X, 0),
    ("x[:, :100] * 2", X, ALL / 10),
    ("x[:8] * 2", X, ALL / 8),
    ("x[:, ::4].sum(1)", X, ALL / 4),
    ("x.tril() @ torch.ones(256, 3)", "return [torch.rand(256, 256)]", 256 * 257 / 2 * 4),
    ("x @ y", "return [torch.rand(256, 256).tril(), torch.ones(256, 8)]", 256 * 257 / 2 * 4),
    ("x * 2", "return [torch.rand(64, 1).expand(64, 1000)]", 64 * 4),
    ("x * 2", "return [torch.rand(64, 1).repeat(1, 1000)]", 64 * 4),
    ("x * 2", "return [torch.rand(64, 500).repeat(1, 2)]", ALL / 2),
    ("x @ x", "a = torch.rand(64, 64); return [a + a.T]", 64 * 65 / 2 * 4),
    ("x + y", "a = torch.rand(64, 1000); return [a, a.clone()]", ALL),
    ("x * y", "return [torch.rand(64, 1000), torch.ones(64, 1000)]", ALL),
    ("F.embedding(x, y)", "return [torch.randint(5000, (64,)), torch.rand(5000, 16)]", 64 * 8 + 64 * 16 * 4),
    ("torch.where(y, x, 0.0)", "return [torch.rand(64, 1000), torch.rand(64, 1000) < 0.1]", ALL / 10 + ALL / 4),
    ("x.any(1)", "return [torch.rand(64, 1000) < 0.5]", 64 * 1000 / 8),
    ("x.float() @ torch.rand(10, 5)", "return [F.one_hot(torch.randint(10, (64,)), 10).float()]", 64 * 10 * 4 * 0.55),
    ("x * (torch.rand(64, 1000) < 0.3)", X, ALL * 0.35),
    ("F.dropout(x, 0.5)", X, ALL * 0.55),
    ("x.to_dense() * 2 if x.is_sparse else x * 2", "return [(torch.rand(64, 1000) < 0.02).float()]", ALL),
])  # fmt: skip
def test_inputs_count_at_most_as_far_as_they_are_needed(
    forward: str, inputs: str, needed: float, tmp_path: Path
) -> None:
    assert bound(tmp_path, forward, inputs).inputs <= needed


@pytest.mark.parametrize("forward", ["x[:, :100] * 2", "x[:, ::4] * 2", "F.dropout(x, 0.7)"])
def test_a_part_of_an_input_counts_as_a_part(forward: str, tmp_path: Path) -> None:
    assert 0.02 * ALL < bound(tmp_path, forward).inputs < 0.35 * ALL


def test_a_bool_mask_counts_in_its_own_format(tmp_path: Path) -> None:
    inputs = "return [torch.rand(64, 1000), torch.rand(64, 1000) < 0.5]"
    found = bound(tmp_path, "torch.where(y, x, -x)", inputs)
    assert ALL * SHOWN < found.inputs <= ALL + ALL / 4


def test_an_index_is_never_changed(tmp_path: Path) -> None:
    """On a GPU, one that is out of range would end the context of the judge."""
    found = bound(tmp_path, "x.float() * 2", "return [torch.randint(1 << 30, (64, 1000))]")
    assert found.inputs == 0 < found.written


@pytest.mark.parametrize("forward", [
    "self.h = self.h + x.sum(); return x + self.h",
    "self.n += 1; return x * self.n",
    "self.n += 1; return x * (self.n > 9) * self.n",
])  # fmt: skip
def test_the_inputs_of_a_model_that_keeps_state_do_not_count(forward: str, tmp_path: Path) -> None:
    """What changes from one call to the next would pass for an effect of a changed input."""
    assert bound(tmp_path, forward, X, "self.h, self.n = 0, 0").inputs == 0


def test_a_reference_that_cannot_run_in_float64_has_no_needed_inputs(tmp_path: Path) -> None:
    forward = "assert x.dtype is torch.float32; return x * 2"
    found = bound(tmp_path, forward)
    assert found.inputs == 0 < found.written


LINEAR = "self.l = nn.Linear(400, 300, bias=False)"
WEIGHT = 400 * 300
ROWS = "return [torch.rand(64, 400)]"


@pytest.mark.parametrize(("forward", "inputs", "bits"), [
    ("self.l(x)", ROWS, 15), ("F.gelu(self.l(x))", ROWS, 15), ("self.l(x)", "return [torch.rand(1, 400)]", 6.6),
])  # fmt: skip
def test_random_weights_of_a_product_count_at_the_bits_that_they_need(
    forward: str, inputs: str, bits: float, tmp_path: Path
) -> None:
    """Fifteen bits for each pass the precision check of float32, and seven bits where there are few outputs to check.

    The rank alone shows about 3/4 of the weights, and the sample 9/10 of these.
    """
    assert 0.6 * bits / 8 * WEIGHT < bound(tmp_path, forward, inputs, LINEAR).weights < bits / 8 * WEIGHT


def test_an_allowed_precision_reduces_the_bits_of_weights(tmp_path: Path) -> None:
    coarse = bound(tmp_path, "self.l(x)", ROWS, LINEAR, allowed=Precision.BFLOAT16).weights
    assert 0 < coarse < 0.9 * WEIGHT


@pytest.mark.parametrize(("forward", "init", "needed"), [
    ("self.l(x).sum(1)", LINEAR, 400 * 4),
    ("F.avg_pool1d(self.l(x), 4)", LINEAR, WEIGHT),
    ("self.l(x[:, :200].repeat(1, 2))", LINEAR, WEIGHT),
    ("self.l(x[:, ::2].repeat_interleave(2, 1))", LINEAR, WEIGHT),
    ("self.l(x * 0)", LINEAR, 0),
    ("F.linear(x, self.l.weight.sign())", LINEAR, WEIGHT / 8),
    ("F.linear(x, (self.l.weight * 100).round())", LINEAR, WEIGHT / 2),
    ("self.l(x)", f"{LINEAR}; self.l.weight.data = torch.ones(300, 400)", 0),
    ("self.l(x)", f"{LINEAR}; self.l.weight.data = torch.randn(300, 4) @ torch.randn(4, 400)", 4 * 700 * 4),
    ("self.l(x)", f"{LINEAR}; self.l.weight.data = torch.randint(-1, 2, (300, 400)).float()", WEIGHT / 4),
    ("self.l(x)", f"{LINEAR}; self.l.weight.data = torch.eye(400)[:300]", 0),
    ("self.l(x)", f"{LINEAR}; self.l.weight.data = torch.sin(torch.arange(120000.).view(300, 400) ** 2)", 0),
    ("self.l(x)", f"{LINEAR}; self.l.weight.data = torch.randn(150, 400).repeat(2, 1)", WEIGHT / 2 * 4),
    ("self.k(self.l(x))", f"{LINEAR}; self.k = nn.Linear(300, 20)", 20 * 400 * 4),
    ("self.k(self.l(x))", "self.l = nn.Linear(400, 2000); self.k = nn.Linear(2000, 50)", 50 * 400 * 4),
    ("F.embedding((x[:, 0] * 300).long(), self.l.weight)", LINEAR, 64 * 400 * 4),
    ("x", LINEAR, 0),
])  # fmt: skip
def test_weights_count_at_most_as_far_as_no_preparation_avoids_them(
    forward: str, init: str, needed: float, tmp_path: Path
) -> None:
    assert bound(tmp_path, forward, ROWS, init).weights <= needed


def test_a_large_batch_is_examined_by_some_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The float64 runs are of 100 kB of inputs and outputs, in place of 2 MB, and show as much."""
    seen = list[Sequence[int]]()
    original = lower_bound.Probe.sums

    def sums(self: lower_bound.Probe, *arguments: object) -> object:
        seen.append(self.inputs[0].shape)
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lower_bound, "_MOST_BYTES", 100_000)
    monkeypatch.setattr(lower_bound.Probe, "sums", sums)
    found = bound(tmp_path, "x.softmax(1)", "return [torch.rand(4096, 64)]")
    assert {shape[0] for shape in seen} == {195}
    assert SHOWN * 4096 * 64 * 4 <= found.inputs <= 4096 * 64 * 4


@pytest.mark.parametrize(("forward", "rows"), [
    ("x[:512] * 2", 512), ("x * (torch.arange(len(x)) < 8)[:, None]", 8), ("x - x.mean(0)", 4096),
])  # fmt: skip
def test_rows_stand_for_a_batch_only_if_the_reference_computes_each_alone(
    forward: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 195 rows alone, the first 8 would be a larger share."""
    monkeypatch.setattr(lower_bound, "_MOST_BYTES", 100_000)
    assert bound(tmp_path, forward, "return [torch.rand(4096, 64)]").inputs <= rows * 64 * 4


def test_runs_end_in_time_and_what_was_not_tried_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_read, "_LONGEST_S", 0.0)
    assert bound(tmp_path, "x * 2").inputs == 0


def test_a_reference_that_is_slow_in_float64_does_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_LONGEST_S", 0.0)
    found = bound(tmp_path, "x * 2")
    assert found.inputs == 0 < found.written


def test_a_device_without_memory_leaves_the_work_to_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that fills the device's memory must not switch off the bound."""

    def derived(reference: Reference, allowed: Precision | None, device: str) -> LowerBound:
        if device == "cpu":
            return LowerBound(1.0)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(lower_bound, "_derive", derived)
    assert derive(Reference(problem(tmp_path, "x"), "cuda", None)) == LowerBound(1.0)


def test_the_share_of_a_sample_is_a_lower_bound_with_a_small_risk() -> None:
    assert places.share(0, 64) == 0
    assert places.share(64, 64) == pytest.approx(1e-3 ** (1 / 64), rel=1e-6)
    assert places.share(32, 64) < 0.5 < places.share(48, 64)


# The verdict.

SHEET = of("NVIDIA H200")


class H200(Emulated):
    """A device with the data sheet of an H200, whose times count. It runs nothing."""

    emulated = False

    def peaks(self) -> Peaks | None:
        return SHEET


def judged(facts: RunFacts, ms: float) -> Result:
    """The result of a candidate with these times, beside a torch that takes 6.6 ms."""
    arms = (BASELINE, "a")
    rounds = tuple(Round({BASELINE: 6.6, "a": ms * (1 + i % 3 / 1000)}, arms) for i in range(33))
    cohort = Measurements({name: ArmMeasurements(name) for name in arms}, rounds=rounds)
    passed = facts.result("a", Status.PASSED, "", "")
    return timed(facts, passed, cohort, None, 1.0)


L2 = {"l2_bytes": 60 << 20}
# KernelBench 1/94: two matrices of 32768 x 32768 float32 numbers, and their mean squared difference.
MATRICES = 2 * 32768 * 32768 * 4


@pytest.mark.parametrize(("ms", "status"), [(0.329, Status.CHEATED), (2.0, Status.PASSED)])
def test_a_loss_that_reads_an_eighth_of_its_inputs_is_faster_than_any_right_kernel(
    ms: float, status: Status, tmp_path: Path
) -> None:
    inputs = "s = torch.rand(()); return [torch.rand(256, 256) * s, torch.rand(256, 256)]"
    found = bound(tmp_path, "torch.mean((x - y) ** 2)", inputs)
    whole = LowerBound(found.written, found.inputs / (2 * 256 * 256 * 4) * MATRICES)
    facts = RunFacts(problem(tmp_path, "x"), H200(), Settings(), (), L2, "", lower_bound=whole)
    result = judged(facts, ms)
    assert result.status is status
    assert status is Status.PASSED or ("bytes" in result.reason and "0.3293 ms" in result.reason)


def test_the_end_of_the_outputs_may_stay_in_the_l2() -> None:
    found = LowerBound(written=100.0, inputs=10.0, weights=1.0)
    assert found.beyond(60.0) == 51.0
    assert found.beyond(1000.0) == 11.0


def test_the_larger_of_the_derived_and_the_stated_bound_counts(tmp_path: Path) -> None:
    stated = problem(tmp_path, "x", f"{X}\n\ndef min_bytes():\n    return int(4.8e9)")
    for derived, ms in ((4.8e8, 1.0), (9.6e9, 2.0)):
        facts = RunFacts(stated, H200(), Settings(), (), {}, "", lower_bound=LowerBound(inputs=derived))
        assert max(facts.bounds_ms.values()) == pytest.approx(ms)
        assert judged(facts, 1.5).passed == (ms < 1.5)
