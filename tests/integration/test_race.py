"""How rounds are run: their inputs, their worker processes, and failures. test_timing tests the statistics."""

from __future__ import annotations

import csv
import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from support.command import CANDIDATES, Harness
from support.models import Held
from support.product import PROBLEM, RIGHT

from kernel_harness.checking.cases import Reference
from kernel_harness.core import process_tree
from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.policy import EMULATED, ON_GPU, Audits
from kernel_harness.ipc.input_memory import write
from kernel_harness.ipc.messages import Purpose, Share
from kernel_harness.ipc.packed import pack
from kernel_harness.ipc.tensors import flatten, layout
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results import leaderboard
from kernel_harness.results.record import Result
from kernel_harness.session import cohorts
from kernel_harness.session import run as run_module
from kernel_harness.session import session as session_module
from kernel_harness.session.cohorts import COHORT
from kernel_harness.session.run import RunContext, SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.timing import rounds, stopping
from kernel_harness.timing.clock import Patience
from kernel_harness.timing.cohort import Arm, Cohort
from kernel_harness.timing.inputs import DrawnInputs, draw
from kernel_harness.timing.one_round import OneRound
from kernel_harness.timing.statistics import Round
from kernel_harness.timing.stopping import Stop
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.exchange import Exchange
from kernel_harness.workers.faults import CannotStart, Fault
from kernel_harness.workers.model_process import ModelProcess
from kernel_harness.workers.worker_client import Answer, WorkerClient

# -------------------------------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PROBLEM, Emulated(), Settings(rounds=4 * stopping.ROUNDS_OF_A_PROCESS), SilentObserver()) as made:
        yield made


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes of a kernel differ by a second on this device."""
    monkeypatch.setattr(Emulated, "policy", replace(EMULATED, resolution_ms=1e3))


def judged(session: Session, *names: str) -> dict[str, Result]:
    candidates = [Candidate(name, Path(f"{name}.py"), RIGHT) for name in names]
    return {result.kernel: result for result in session.judge(candidates, lambda result: None)}


def processes(found: dict[str, Result]) -> dict[str, int]:
    return {name: result.measurement.processes for name, result in found.items()}


def test_calls_shorter_than_the_resolution_are_timed_in_several_processes(session: Session, coarse: None) -> None:
    found = judged(session, "first", "last")

    assert processes(found) == {"first": 4, "last": 4, BASELINE: 4}
    assert all(result.timing and result.timing.rounds == session.settings.rounds for result in found.values())


@pytest.mark.slow
def test_processes_are_replaced_at_the_same_pace_beyond_the_limit(
    session: Session, coarse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "MOST_PROCESSES", 2)

    assert processes(judged(session, "only")) == {"only": 4, BASELINE: 4}


def test_calls_longer_than_the_resolution_are_timed_in_one_process(session: Session) -> None:
    assert processes(judged(session, "only")) == {"only": 1, BASELINE: 1}


def test_a_candidate_that_does_not_start_again_fails_and_the_others_go_on(
    session: Session, coarse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart = ModelProcess.restart

    def failing(model: ModelProcess, *first: Any) -> None:
        if isinstance(model, Trial) and model.name == "fails":
            raise Fault(Status.LOAD_ERROR, "no second time")
        restart(model, *first)

    monkeypatch.setattr(ModelProcess, "restart", failing)
    found = judged(session, "fails", "goes_on")

    assert found["fails"].status is Status.LOAD_ERROR
    assert "no second time" in found["fails"].reason
    assert found["goes_on"].timing and found["goes_on"].timing.rounds == session.settings.rounds


def test_audits_that_take_long_are_of_fewer_calls(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    every = judged(session, "only")["only"]
    few = Audits(rounds=0, seconds=1e-6, time_share=1e-6, share=1e-6)
    monkeypatch.setattr(Emulated, "policy", replace(session.device.policy, audits=few))
    some = judged(session, "only")["only"]

    assert every.timing and every.measurement.audits >= every.timing.rounds
    assert some.timing and some.timing.rounds == every.timing.rounds and some.measurement.audits == 1


class Started:
    """Stands in for a worker process and does nothing."""

    def __init__(self) -> None:
        self.worker = SimpleNamespace(pause=lambda: None)
        self.closed, self.patience, self.was_called = False, 0, False

    def call(self, *_: object, patience: int, **how: object) -> None:
        self.patience = patience

    def release_large(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class WorksBehind(Emulated):
    """A device that is judged as a GPU is."""

    policy = ON_GPU


def replaced(session: Session, start: Callable[[str], Started]) -> list[Arm]:
    names = "a", BASELINE, CONTROL, "b"
    held = {name: Held(Started(), partial(start, name)) for name in names}
    held[CONTROL].running.was_called = True
    arms = [Arm(name, held[name], trusted=name in (BASELINE, CONTROL)) for name in names]
    rounds._replace_processes(Cohort(arms, WorksBehind()), session.reference)
    return arms


def test_processes_that_start_side_by_side_get_more_time_for_their_first_call(session: Session) -> None:
    arms = replaced(session, lambda name: Started())

    assert {arm.name: arm.client.patience for arm in arms} == {"a": 3, BASELINE: 3, CONTROL: 0, "b": 3}  # type: ignore[attr-defined]


def test_only_processes_that_were_not_called_get_a_first_call(session: Session) -> None:
    names = "a", BASELINE, CONTROL
    arms = [Arm(name, Held(Started(), Started), trusted=name != "a") for name in names]
    arms[1].client.was_called = True
    rounds._start_processes(Cohort(arms, WorksBehind()), session.reference)

    assert [arm.client.patience for arm in arms] == [2, 0, 2]  # type: ignore[attr-defined]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also in a test run that a shell started in the background, with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interruption_does_not_wait_for_processes_that_are_starting(session: Session, interruptible: None) -> None:
    let_go, ended, main = threading.Event(), threading.Event(), threading.get_ident()

    def hanging(name: str) -> Started:
        if name == "a":
            signal.pthread_kill(main, signal.SIGINT)
            let_go.wait(60)
            ended.set()
        return Started()

    with pytest.raises(KeyboardInterrupt):
        replaced(session, hanging)
    assert not ended.is_set()
    let_go.set()


@pytest.mark.slow
def test_checked_candidates_hold_no_more_processes_than_one_cohort_has(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def timing(run: RunContext, trusted: object, trials: dict[str, Trial], series: object) -> None:
        held.append(sum(trial.is_alive for trial in trials.values()))

    monkeypatch.setattr(session_module, "time_cohorts", timing)
    judged(session, *(f"kernel{i}" for i in range(COHORT + 2)))

    assert held == [COHORT]


@pytest.mark.slow
def test_an_answer_that_does_not_fit_into_the_device_s_memory_ends_the_run_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **more: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Reference, "expect", full)
    with (
        Session(PROBLEM, Emulated(), Settings(rounds=1), SilentObserver()) as session,
        pytest.raises(EnvironmentLacking, match=r"too little free memory .* CUDA out of memory"),
    ):
        judged(session, "only")


def test_a_candidate_that_leaves_no_memory_for_the_answer_fails_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer can be computed once the candidate's process has ended."""
    check, expect, greedy = Trial.check, Reference.expect, list[Trial]()

    def noted(trial: Trial, **keywords: bool) -> None:
        greedy[:] = [trial] if trial.name == "greedy" else []
        session.reference._expectations.clear()
        check(trial, **keywords)

    def full(*arguments: Any, **keywords: Any) -> Any:
        if greedy:
            greedy.clear()
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return expect(*arguments, **keywords)

    monkeypatch.setattr(Trial, "check", noted)
    monkeypatch.setattr(Reference, "expect", full)
    found = judged(session, "greedy", "modest")
    failed = found["greedy"]

    assert failed.status is Status.RUNTIME_ERROR and "too little of the device's memory" in failed.reason
    assert found["modest"].timing


@pytest.mark.slow
def test_if_no_round_counts_the_reason_says_why(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience, "update", lambda *_: True)
    found = judged(session, "only")

    assert found["only"].status is Status.PASSED and found["only"].timing is None
    assert "all 32 timing rounds were rejected; the reason for the last one: the launch gap" in found["only"].reason


@pytest.mark.slow
def test_a_candidate_whose_process_cannot_start_fails_and_the_others_are_judged(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, in_this_thread = Trial.build, threading.local()

    def noted(trial: Trial, **options: Any) -> None:
        in_this_thread.name = trial.name
        build(trial, **options)

    class NoneLeftForTheFirst(WorkerClient):
        def __init__(self, *arguments: Any) -> None:
            if getattr(in_this_thread, "name", "") == "first":
                raise CannotStart("The worker could not start: CUDA out of memory")
            super().__init__(*arguments)

    monkeypatch.setattr(Trial, "build", noted)
    monkeypatch.setattr(run_module, "WorkerClient", NoneLeftForTheFirst)
    found = judged(session, "first", "last")
    failed = found["first"]

    assert failed.status is Status.RUNTIME_ERROR and "could not start: CUDA out of memory" in failed.reason
    assert found["last"].timing


@pytest.mark.slow
def test_if_torch_cannot_be_started_the_checks_stand(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    restart = ModelProcess.restart

    def failing(model: ModelProcess, *first: Any) -> None:
        if model.source.class_name == "Model":
            raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
        restart(model, *first)

    monkeypatch.setattr(ModelProcess, "restart", failing)
    session.trusted_arms.close()
    found = judged(session, "only")

    assert found["only"].status is Status.PASSED and found["only"].checks and found["only"].timing is None
    assert found["only"].reason.endswith("The kernel was not timed: torch cannot be started: CUDA out of memory")
    rows = leaderboard.rank(list(found.values()), found["only"].shape)
    row = next(row for row in rows if row["kernel"] == "torch")
    assert (row["status"], row["reason"]) == ("RUNTIME_ERROR", "CUDA out of memory")


def processes_of(session: Session) -> set[int]:
    """The worker processes that live. The fork server collects dead ones later."""
    below = process_tree.below(session.fork_server._process.pid)
    return {process.pid for process in below if process.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.slow
def test_a_flag_stands_if_the_others_cannot_be_timed_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    restart, left = ModelProcess.restart, itertools.count()
    before = processes_of(session)

    def failing(model: ModelProcess, *first: Any) -> None:
        if model.source.class_name == "Model" and next(left):
            raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
        restart(model, *first)

    def flagging(cohort: Cohort, *_: object) -> bool:
        for arm in cohort.candidates:
            arm.fault = Fault(Status.CHEATED, "It leaves work behind.") if arm.name == "slows" else None
        return True

    monkeypatch.setattr(ModelProcess, "restart", failing)
    monkeypatch.setattr(cohorts, "flag_interference", flagging)
    found = judged(session, "slows", "only")

    assert found["slows"].status is Status.CHEATED
    assert found["only"].status is Status.PASSED and "not timed" in found["only"].reason
    assert processes_of(session) <= before


@pytest.mark.parametrize(("against", "done"), [("steady", False), (BASELINE, True), ("not there", True)])
def test_timing_ends_once_the_ratio_to_the_wanted_baseline_is_known(against: str, done: bool) -> None:
    rng = random.Random(1)
    cohort = Cohort([Arm(name, Held(None), trusted=name == BASELINE) for name in ("a", "steady", BASELINE)], Emulated())
    for _ in range(32):
        with_torch = rng.uniform(1, 2)  # both arms are disturbed alike
        cohort.rounds.append(Round({"a": with_torch, BASELINE: with_torch, "steady": 1.0}, ("a", "steady", BASELINE)))
    cohort.arms[1].trusted = True  # the wanted baseline

    assert stopping.done(cohort.measured(), Stop(60, 0.05, baseline=against), 0) is done


@pytest.mark.parametrize("count", [0, 8])
@pytest.mark.slow
def test_without_torch_no_further_round_is_timed(
    session: Session, coarse: None, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The judge's clock measures the other arms against torch."""
    calls = OneRound._calls

    def failing(one: OneRound, arm: Arm, sets: Sequence[DrawnInputs]) -> list[Answer]:
        if arm.name == BASELINE and len(one.cohort.rounds) == count:
            arm.fault = Fault(Status.RUNTIME_ERROR, "out of memory")
            return []
        return calls(one, arm, sets)

    monkeypatch.setattr(OneRound, "_calls", failing)
    found = judged(session, "only")

    assert found["only"].status is Status.PASSED
    if count:
        assert found["only"].timing and len(found["only"].timing.samples_ms) == count
        assert "torch or the control failed" in found["only"].measurement.rejected
    else:
        assert found["only"].timing is None
        assert "not timed: out of memory" in found["only"].reason
        assert (
            "torch or the control failed" in str(found["only"].measurement.rejected)
            or not found["only"].measurement.orders
        )


def test_the_resolution_shrinks_with_the_number_of_processes(coarse: None) -> None:
    arms = [Arm(name, Held(None), trusted=True) for name in ("arm", BASELINE, CONTROL)]
    cohort = Cohort(arms, Emulated())
    once = cohort.measured().resolution_between("arm", BASELINE)
    for arm in arms[:2]:
        arm.processes = 4
    of_one_arm = cohort.measured().resolution_between(CONTROL, BASELINE)

    assert once == 1e3
    assert cohort.measured().resolution_between("arm", BASELINE) == pytest.approx(500)
    assert of_one_arm == pytest.approx(1e3 * ((1 + 1 / 4) / 2) ** 0.5)


# -------------------------------------------------------------------------------------- interim records


@pytest.mark.slow
def test_a_run_that_is_killed_while_timing_leaves_a_record_that_says_so(harness: Harness) -> None:
    Emulated().prepare()  # the first run builds the emulator, which takes a minute
    command = ["--problem", PROBLEM.path, "--device", "cpu", "--kernel", CANDIDATES / "bad" / "good.py"]
    process = harness.start(*command, "--rounds", "1000000", "-v")
    try:
        assert any("timing round 2" in line for line in process.stderr), "a round was timed"
    finally:
        process.kill()
        process.communicate()
    (killed,) = harness.journal("product")
    harness.run(*command, "--rounds", "2")
    with harness.leaderboard("product").open() as file:
        row = next(row for row in csv.DictReader(file) if row["kernel"] == "good")

    assert (killed["status"], killed["timing"]) == ("PASSED", None)
    assert killed["reason"] == "The kernel passed its checks; the run ended before the kernel was timed."
    assert row["time_ms"] and "before the kernel was timed" not in row["reason"]


def test_an_interim_record_is_kept_only_until_the_final_one(session: Session) -> None:
    kept: list[Result] = []
    session.judge([Candidate("only", Path("only.py"), RIGHT)], kept.append)
    interim, final = (result for result in kept if result.kernel == "only")

    assert interim.interim and "before the kernel was timed" in interim.reason and interim.timing is None
    assert final.timing and not final.interim and "before the kernel was timed" not in final.reason


# --------------------------------------------------------------------------------------------- the inputs


def test_every_set_of_inputs_is_new() -> None:
    reference = Reference(PROBLEM, "cpu", None)
    drawn = [draw(reference).packed for _ in range(3)]

    assert all(not torch.equal(a.tensors[0], b.tensors[0]) for a, b in itertools.pairwise(drawn))


# -------------------------------------------------------------------------------------- the exchange with a worker


@pytest.fixture
def shared() -> Iterator[tuple[Exchange, list[Share]]]:
    """An Exchange whose requests go to a list in place of a worker, and that list."""
    sent: list[Share] = []
    exchange = Exchange(Emulated(), lambda share, descriptors: sent.append(share))
    exchange.reserve(Purpose.OUTPUTS, 1)
    yield exchange, sent
    exchange.close()


def test_memory_is_shared_once_until_more_is_needed(shared: tuple[Exchange, list[Share]]) -> None:
    exchange, sent = shared
    for size in (1, 1000, 3 << 20, 3 << 20, 100):
        exchange.reserve(Purpose.INPUTS, size)

    sizes = [share.size for share in sent if share.purpose is Purpose.INPUTS]
    assert len(sizes) == 2 and sizes[0] >= 1000 and sizes[1] >= 3 << 20


def test_the_copy_of_an_output_does_not_change_any_more(shared: tuple[Exchange, list[Share]]) -> None:
    exchange, _ = shared
    tensors = [torch.randn(300, 70).t(), torch.empty(0, 4), torch.randn(())]
    _, found = flatten(tensors)
    leaves, size = layout(found)
    exchange.reserve(Purpose.OUTPUTS, size)
    memory = exchange._pieces[Purpose.OUTPUTS].bytes
    write(memory, leaves, tensors)
    copy = exchange.memory_for_copy(size, pack(tensors))
    exchange.copy_outputs(copy)
    copies = tuple(leaf.of(leaf.bytes(copy)) for leaf in leaves)
    memory.zero_()

    assert all(map(torch.equal, copies, tensors))
    assert [copy.stride() for copy in copies] == [tensor.stride() for tensor in tensors]


def test_only_large_memory_is_released_after_a_call(shared: tuple[Exchange, list[Share]]) -> None:
    exchange, sent = shared
    exchange.reserve(Purpose.INPUTS, 3 << 30)
    exchange.release_large()

    assert sent[-1] == Share(Purpose.INPUTS, 0, False)
    assert not exchange.reserve(Purpose.OUTPUTS, 1)  # this memory was kept


def test_a_large_piece_is_unmapped_before_a_larger_one_exists(shared: tuple[Exchange, list[Share]]) -> None:
    exchange, sent = shared
    for size in (65 << 20, 66 << 20):
        exchange.reserve(Purpose.INPUTS, size)

    assert [share.size for share in sent if share.purpose is Purpose.INPUTS] == [65 << 20, 0, 66 << 20]
