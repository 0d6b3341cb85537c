"""Rounds as they are run: on whose inputs, in whose processes. What the numbers say is test_timing's."""

from __future__ import annotations

import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from conftest import ROOT

from kernel_harness import culprit, judge, race, series, tree
from kernel_harness import inputs as inputs_module
from kernel_harness import problem as problems
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Reference
from kernel_harness.channel import SharedBuffer
from kernel_harness.clock import Hold
from kernel_harness.cohort import BASELINE, COHORT, SENTINEL, Arm, Cohort
from kernel_harness.device.cpu import Emulated
from kernel_harness.errors import EnvironmentLacking
from kernel_harness.evidence import Evidence
from kernel_harness.examine import CannotStart, Fault, Subject
from kernel_harness.glimpse import POSITIONS, Glimpse
from kernel_harness.inputs import Inputs
from kernel_harness.judge import Nobody, Session
from kernel_harness.mask import mask_
from kernel_harness.race import Stop
from kernel_harness.results import Result
from kernel_harness.settings import Settings
from kernel_harness.status import Status
from kernel_harness.tensors import layout, write
from kernel_harness.timing import Round

PROBLEM = problems.load("product", ROOT / "tests" / "candidates" / "problem" / "product.py")
RIGHT = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
"""


# -------------------------------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PROBLEM, Emulated(), Settings(rounds=4 * race.ROUNDS_OF_A_PROCESS), Nobody()) as made:
        yield made


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two processes of a kernel agree by less than a second."""
    monkeypatch.setattr(Emulated, "resolution_ms", 1e3)


def judged(session: Session, *names: str) -> dict[str, Result]:
    candidates = [Candidate(name, Path(f"{name}.py"), RIGHT) for name in names]
    return {result.kernel: result for result in session.judge(candidates, lambda result: None)}


def processes(found: dict[str, Result]) -> dict[str, int]:
    return {name: result.settings["processes"] for name, result in found.items()}


def test_calls_shorter_than_processes_differ_by_are_timed_in_several(session: Session, coarse: None) -> None:
    found = judged(session, "first", "last")

    assert processes(found) == {"first": 4, "last": 4, BASELINE: 4}
    assert all(result.timing and result.timing.rounds == session.settings.rounds for result in found.values())


def test_each_process_has_as_many_rounds_also_when_there_are_enough_of_them(
    session: Session, coarse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "MOST_PROCESSES", 2)

    assert processes(judged(session, "only")) == {"only": 4, BASELINE: 4}


def test_calls_longer_than_that_are_timed_in_one(session: Session) -> None:
    assert processes(judged(session, "only")) == {"only": 1, BASELINE: 1}


def test_who_does_not_start_again_leaves_and_the_others_go_on(
    session: Session, coarse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = series._fresh

    def failing(run: Session, held: dict, name: str) -> Subject:
        if name == "fails":
            raise Fault(Status.LOAD_ERROR, "no second time")
        return start(run, held, name)

    monkeypatch.setattr(series, "_fresh", failing)
    found = judged(session, "fails", "goes_on")

    assert found["fails"].status is Status.LOAD_ERROR
    assert "no second time" in found["fails"].reason
    assert found["goes_on"].timing and found["goes_on"].timing.rounds == session.settings.rounds


class Started:
    """A process that has nothing to do."""

    def __init__(self) -> None:
        self.worker = SimpleNamespace(pause=lambda: None)
        self.closed, self.patience = False, 0

    def call(self, *_: object, patience: int, **how: object) -> None:
        self.patience = patience

    def close(self) -> None:
        self.closed = True


def renewed(session: Session, start: Callable[[str], Started]) -> list[Arm]:
    arms = [Arm(name, Started(), trusted=name in (BASELINE, SENTINEL)) for name in ("a", BASELINE, SENTINEL, "b")]  # type: ignore[arg-type]
    with closing(Inputs(session.reference, session.device)) as inputs:
        race._renew(Cohort(arms, Emulated()), inputs, start)  # type: ignore[arg-type]
    return arms


def test_who_starts_beside_others_may_take_longer_for_its_first_call(session: Session) -> None:
    arms = renewed(session, lambda name: Started())

    assert {arm.name: arm.subject.patience for arm in arms} == {"a": 3, BASELINE: 3, SENTINEL: 0, "b": 3}  # type: ignore[attr-defined]


def test_who_interrupts_does_not_wait_for_what_is_starting(session: Session) -> None:
    let_go, ended, main = threading.Event(), threading.Event(), threading.get_ident()

    def hanging(name: str) -> Started:
        if name == "a":
            signal.pthread_kill(main, signal.SIGINT)
            let_go.wait(60)
            ended.set()
        return Started()

    with pytest.raises(KeyboardInterrupt):
        renewed(session, hanging)
    assert not ended.is_set()
    let_go.set()


def test_no_more_processes_are_held_than_are_timed_together(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def timing(run: Session, passed: dict, series: object) -> list[Result]:
        held.append(sum(not subject.closed for _, subject, _ in passed.values()))
        return []

    monkeypatch.setattr(judge, "cohort_by_cohort", timing)
    judged(session, *(f"kernel{i}" for i in range(COHORT + 2)))

    assert held == [COHORT]


def test_where_the_answer_does_not_fit_in_the_device_s_memory_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Reference, "expect", full)
    with (
        Session(PROBLEM, Emulated(), Settings(rounds=1), Nobody()) as session,
        pytest.raises(EnvironmentLacking, match=r"not enough memory on the device .* CUDA out of memory"),
    ):
        judged(session, "only")


def test_who_leaves_no_memory_for_the_answer_fails_alone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    expect, greedy = Reference.expect, itertools.count()

    def full(*arguments: Any) -> Any:
        if not next(greedy):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return expect(*arguments)

    monkeypatch.setattr(Reference, "expect", full)
    monkeypatch.setattr(session.reference, "_expectations", {})
    found = judged(session, "greedy", "modest")
    failed, fine = sorted((found["greedy"], found["modest"]), key=lambda result: result.status is Status.PASSED)

    assert failed.status is Status.RUNTIME_ERROR and "too little of the device's memory" in failed.reason
    assert fine.timing


def test_where_no_round_counts_the_reason_says_why(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hold, "after", lambda *_: "the launch gap of everybody was not hidden")
    found = judged(session, "only")

    assert found["only"].status is Status.PASSED and found["only"].timing is None
    assert "not timed: none of 32 rounds counts; in the last the launch gap" in found["only"].reason


def test_a_candidate_whose_process_cannot_start_fails_and_the_others_are_judged(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = itertools.count()

    class NoneLeftForTheFirst(Subject):
        def __init__(self, *arguments: Any) -> None:
            if not next(started):
                raise CannotStart("The worker could not start: CUDA out of memory")
            super().__init__(*arguments)

    monkeypatch.setattr(judge, "Subject", NoneLeftForTheFirst)
    found = judged(session, "first", "last")
    failed, fine = sorted((found["first"], found["last"]), key=lambda result: result.status is Status.PASSED)

    assert failed.status is Status.RUNTIME_ERROR and "could not start: CUDA out of memory" in failed.reason
    assert fine.timing


def test_where_torch_cannot_be_started_what_was_checked_stands(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Session.loaded

    def failing(run: Session, file: str, source: str, name: str, compiled: str | None = None) -> Subject:
        if name == "Model":
            raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
        return load(run, file, source, name, compiled)

    monkeypatch.setattr(Session, "loaded", failing)
    found = judged(session, "only")

    assert found["only"].status is Status.PASSED and found["only"].checks and found["only"].timing is None
    assert found["only"].reason.endswith("It was not timed: torch cannot be started: CUDA out of memory")


def processes_of(session: Session) -> set[int]:
    """Those that live: who is dead the template collects in its own time."""
    below = tree.below(session.template._process.pid)
    return {process.pid for process in below if process.status() != psutil.STATUS_ZOMBIE}


def test_a_conviction_stands_where_the_others_cannot_be_timed_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, left = Session.loaded, itertools.count()
    before = processes_of(session)

    def failing(run: Session, file: str, source: str, name: str, compiled: str | None = None) -> Subject:
        if name == "Model" and next(left):
            raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
        return load(run, file, source, name, compiled)

    monkeypatch.setattr(Session, "loaded", failing)
    monkeypatch.setattr(culprit, "suspects", lambda readings, _: ["slows"])
    monkeypatch.setattr(culprit, "tried", lambda *_: Evidence((2.0,), (1.0,)))
    found = judged(session, "slows", "only")

    assert found["slows"].status is Status.CHEATED
    assert found["only"].status is Status.PASSED and "not timed" in found["only"].reason
    assert processes_of(session) <= before


@pytest.mark.parametrize(("against", "done"), [("steady", False), (BASELINE, True), ("not there", True)])
def test_timing_ends_once_the_ratio_to_what_was_asked_for_is_known(against: str, done: bool) -> None:
    rng = random.Random(1)
    cohort = Cohort([Arm(name, None, trusted=name == BASELINE) for name in ("a", "steady", BASELINE)], Emulated())  # type: ignore[arg-type]
    for _ in range(32):
        with_torch = rng.uniform(1, 2)  # what disturbs both alike
        cohort.rounds.append(Round({"a": with_torch, BASELINE: with_torch, "steady": 1.0}, ("a", "steady", BASELINE)))
    cohort.arms[1].trusted = True  # one that the others are measured against, and no candidate here

    assert race._done(cohort, Stop(60, 0.05, baseline=against), 0) is done


@pytest.mark.parametrize("suspected", [False, True], ids=["nobody is suspected", "all are suspected"])
@pytest.mark.parametrize("rounds", [0, 8])
def test_without_torch_nobody_is_timed_any_more(
    session: Session, coarse: None, monkeypatch: pytest.MonkeyPatch, rounds: int, suspected: bool
) -> None:
    """It is what the judge's clock measures others against."""
    monkeypatch.setattr(culprit, "suspects", lambda readings, _: list(readings) if suspected else [])
    call = race._call

    def failing(cohort: Cohort, arm: Arm, *arguments: object, **how: object) -> object:
        if arm.name == BASELINE and len(cohort.rounds) == rounds:
            arm.fault = Fault(Status.RUNTIME_ERROR, "out of memory")
            return None
        return call(cohort, arm, *arguments, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(race, "_call", failing)
    found = judged(session, "only")

    assert found["only"].status is Status.PASSED
    if rounds:
        assert found["only"].timing and len(found["only"].timing.samples_ms) == rounds
        assert "torch or the sentinel failed" in found["only"].settings["rejected"].values()
    else:
        assert found["only"].timing is None
        assert "not timed: out of memory" in found["only"].reason
        assert (
            "torch or the sentinel failed" in str(found["only"].settings["rejected"])
            or not found["only"].settings["orders"]
        )


def test_what_processes_differ_by_shrinks_with_their_number(coarse: None) -> None:
    arms = [Arm(name, SimpleNamespace(), trusted=True) for name in ("arm", BASELINE, SENTINEL)]  # type: ignore[arg-type]
    cohort = Cohort(arms, Emulated())
    once = cohort.resolution_ms("arm", BASELINE)
    cohort.processes.update({"arm": 3, BASELINE: 3})
    of_one_arm = cohort.resolution_ms(SENTINEL, BASELINE)

    assert once == 1e3
    assert cohort.resolution_ms("arm", BASELINE) == pytest.approx(500)
    assert of_one_arm == pytest.approx(1e3 * ((1 + 1 / 4) / 2) ** 0.5)


# --------------------------------------------------------------------------------------------- the inputs


class Apart(Emulated):
    """A device with memory of its own."""

    in_place = False


def test_a_device_with_memory_of_its_own_reads_every_round_from_the_same() -> None:
    with closing(Inputs(Reference(PROBLEM, "cpu", None), Apart())) as inputs:
        drawn = [inputs.draw(lead) for lead in (0, 4096, 0)]

        lies = torch.frombuffer(drawn[-1][1].memory, dtype=torch.uint8)
        leaf, tensor, key = drawn[-1][0].leaves[0], drawn[-1][0].tensors[0], drawn[-1][0].key
        masked = leaf.of(leaf.bytes(lies.numpy()).clone())
        unmasked = leaf.of(leaf.bytes(mask_(lies.view(torch.int64), key).numpy()).clone())

    assert len({id(buffer) for _, buffer in drawn}) == 1
    assert torch.equal(unmasked, tensor) and not torch.equal(masked, tensor)
    assert all(not torch.equal(a.tensors[0], b.tensors[0]) for (a, _), (b, _) in itertools.pairwise(drawn))


def test_what_others_can_read_is_never_unmasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that was left waiting on the device may read it at any time."""
    seen = []

    def masking(words: torch.Tensor, key: int) -> torch.Tensor:
        seen.append((words.clone(), torch.frombuffer(buffer.memory, dtype=torch.int64).clone()))
        return mask_(words, key)

    with closing(Inputs(Reference(PROBLEM, "cpu", None), Apart())) as inputs:
        _, buffer = inputs.draw()
        monkeypatch.setattr(inputs_module, "mask_", masking)
        inputs.draw()

    ((plain, shared),) = seen
    assert plain.unique().numel() > 1000
    assert not set(plain.tolist()) & set(shared.tolist())


def test_calls_that_work_on_the_inputs_themselves_get_new_memory_each_round() -> None:
    with closing(Inputs(Reference(PROBLEM, "cpu", None), Emulated())) as inputs:
        drawn = [inputs.draw() for _ in range(3)]

    assert len({id(buffer) for _, buffer in drawn}) == 3


# -------------------------------------------------------------------------------------------- the glimpse


@pytest.fixture
def output() -> Iterator[tuple]:
    """Three tensors in shared memory, the second of them empty."""
    tensors = [torch.randn(300, 70).t(), torch.empty(0, 4), torch.randn(1000)]
    leaves, size = layout(tensors)
    with closing(SharedBuffer(size)) as buffer:
        write(buffer.memory, leaves, tensors, size)
        yield leaves, buffer, tensors


def test_what_stayed_as_it_was_agrees(output: tuple) -> None:
    leaves, buffer, tensors = output
    glimpse = Glimpse(leaves, buffer.memory)
    copies = [leaf.bytes(buffer.memory).clone() for leaf in leaves]

    assert glimpse.agrees(copies)
    assert all(torch.equal(leaf.of(copy), tensor) for leaf, copy, tensor in zip(leaves, copies, tensors, strict=True))


@pytest.mark.parametrize("late", [0, 2])
def test_a_tensor_that_was_filled_in_later_does_not(output: tuple, late: int) -> None:
    leaves, buffer, _ = output
    glimpse = Glimpse(leaves, buffer.memory)
    leaves[late].view(buffer.memory).neg_()

    assert not glimpse.agrees([leaf.bytes(buffer.memory).clone() for leaf in leaves])


def test_a_hundredth_that_was_filled_in_later_is_nearly_always_seen(output: tuple) -> None:
    leaves, buffer, _ = output
    missed = 0
    for _ in range(200):
        glimpse = Glimpse(leaves, buffer.memory)
        leaves[0].view(buffer.memory).t().flatten()[1000:1220].neg_()
        missed += glimpse.agrees([leaf.bytes(buffer.memory).clone() for leaf in leaves])

    assert POSITIONS >= 1024
    assert missed < 40  # one byte in four is changed, and so one in 400: 15 in 200 are expected to be missed


def test_a_small_tensor_beside_a_large_one_is_looked_at() -> None:
    tensors = [torch.randn(1_000_000), torch.zeros(())]
    leaves, size = layout(tensors)
    with closing(SharedBuffer(size)) as buffer:
        write(buffer.memory, leaves, tensors, size)
        glimpse = Glimpse(leaves, buffer.memory)
        leaves[1].view(buffer.memory).fill_(1.5)

        assert not glimpse.agrees([leaf.bytes(buffer.memory).clone() for leaf in leaves])


def test_keys_make_masks_that_share_nothing() -> None:
    masks = [mask_(torch.zeros(5_000_000, dtype=torch.int64), key) for key in (1, 2, 1 << 61)]
    bits = torch.cat([(mask[:100_000].unsqueeze(1) >> torch.arange(64)) & 1 for mask in masks]).double().mean(0)

    assert all((a == b).sum() == 0 for a, b in itertools.combinations(masks, 2))
    assert all(mask.unique().numel() == mask.numel() for mask in masks)
    assert (bits - 0.5).abs().max() < 0.01
    assert all(mask_(mask, key).count_nonzero() == 0 for mask, key in zip(masks, (1, 2, 1 << 61), strict=True))


def test_outputs_without_a_byte_agree() -> None:
    leaves, size = layout([torch.empty(0)])
    with closing(SharedBuffer(size)) as buffer:
        assert Glimpse(leaves, buffer.memory).agrees([leaves[0].bytes(buffer.memory)])
        assert Glimpse([], buffer.memory).agrees([])
