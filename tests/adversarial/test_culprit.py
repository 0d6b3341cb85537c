"""A candidate that leaves work behind which no stop reaches is flagged; others are not, however noisy the machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.command import standing_in
from support.product import PROBLEM, RIGHT

from kernel_harness.core import process_tree
from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.policy import EMULATED
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.session import cohorts
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.timing import interference
from kernel_harness.timing.cohort import Arm, Cohort
from kernel_harness.timing.interference import FACTOR, TRIALS, Evidence, flag_interference, to_test, tried
from kernel_harness.timing.statistics import Round, order_of_round
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.gated_call import Bracket
from kernel_harness.workers.model_process import ModelProcess, ModelSource
from kernel_harness.workers.worker_client import WorkerClient

NAMES = [f"kernel{i}" for i in range(8)]
LONGER = 2.0


def quiet(rng: random.Random) -> float:
    return rng.uniform(1.0, 1.1)


def bursts(rng: random.Random) -> float:
    """Other users of the machine come and go: one reading in three is many times too long."""
    return rng.uniform(1.0, 1.1) * rng.choice([1, 1, rng.uniform(2, 50)])


# ------------------------------------------------------------------------------------- the flag


@given(st.randoms(use_true_random=False))
def test_a_culprit_is_flagged_on_a_quiet_machine(rng: random.Random) -> None:
    evidence = tried(lambda beside: quiet(rng) * (LONGER if beside else 1), rng)

    assert evidence.is_conclusive
    assert len(evidence.beside_ms) == len(evidence.without_ms) == TRIALS


@pytest.mark.parametrize("noise", [quiet, bursts])
def test_an_innocent_is_flagged_no_more_often_than_promised(noise: Callable[[random.Random], float]) -> None:
    """Once in 3432 where all readings differ by enough. In 20,000 trials, more than 20 have a probability of 1e-6."""
    rng = random.Random(1)
    flagged = sum(tried(lambda beside: noise(rng), rng).is_conclusive for _ in range(20_000))

    assert flagged <= 20


def test_the_promise_rests_on_the_order_alone() -> None:
    """The worst possible noise: each reading is far above or below every other."""
    rng = random.Random(2)
    readings = [10.0**i for i in range(2 * TRIALS)]

    def trial() -> bool:
        left = iter(rng.sample(readings, len(readings)))
        return tried(lambda beside: next(left), rng).is_conclusive

    assert 1 <= sum(trial() for _ in range(20_000)) <= 20


def test_a_slowdown_below_the_factor_does_not_flag() -> None:
    assert not Evidence((FACTOR * 2.0,), (2.0,)).is_conclusive


def test_a_missing_reading_does_not_flag() -> None:
    assert not Evidence((9.0, float("nan")), (1.0,)).is_conclusive
    assert not Evidence((9.0,), (1.0, float("nan"))).is_conclusive


def test_the_sentence_says_what_was_measured() -> None:
    sentence = Evidence((4.0, 5.0, 6.0), (1.0, 2.0, 3.0)).sentence

    assert "5 ms beside the kernel and 2 ms without it (medians of 3 trials each)" in sentence


# ------------------------------------------------------------------------------------------ the suspicion


def test_candidates_beside_which_the_control_is_slow_are_tested() -> None:
    readings = {"slows": LONGER, "honest": 1.1, "also slows": 3 * LONGER}

    assert to_test(readings, 1.0, []) == ["slows", "also slows"]


def test_work_that_never_ends_makes_every_candidate_one_to_test() -> None:
    """It slows the control beside all of them; the trials with new processes tell them apart."""
    assert to_test(dict.fromkeys(NAMES, LONGER), 1.0, []) == NAMES


@pytest.mark.parametrize(("beside", "without"), [(float("nan"), 1.0), (2.0, float("nan"))])
def test_a_missing_reading_makes_no_candidate_one_to_test(beside: float, without: float) -> None:
    assert not to_test({"arm": beside}, without, [])


def rounds_with(rng: random.Random, guilty: set[str], count: int = 64) -> list[Round]:
    """The control takes twice as long right after the guilty arms."""
    made = []
    for _ in range(count):
        order = order_of_round([*NAMES[:3], "torch", CONTROL], rng)
        place = order.index(CONTROL)
        slowed = place > 0 and order[place - 1] in guilty
        made.append(Round({**dict.fromkeys(order, 1.0), CONTROL: quiet(rng) * (LONGER if slowed else 1)}, order))
    return made


@pytest.mark.parametrize("guilty", [set(), {"kernel0"}, {"kernel0", "kernel2"}], ids=len)
def test_candidates_right_after_whose_calls_the_control_is_slow_are_tested(guilty: set[str]) -> None:
    rounds = rounds_with(random.Random(3), guilty)

    assert set(to_test(dict.fromkeys(NAMES[:3], 1.0), 1.0, rounds)) == guilty


def test_few_rounds_make_no_candidate_one_to_test() -> None:
    rounds = rounds_with(random.Random(4), {"kernel0"}, count=8)

    assert not to_test(dict.fromkeys(NAMES[:3], 1.0), 1.0, rounds)


# --------------------------------------------------------------------------------------- real processes

SAME_EVERY_TIME = RIGHT.replace("A, B", "*_").replace("torch.matmul(A.T, B.T)", "torch.ones(1)")
LEAVES_WORK_BEHIND = """
import os
import torch

started = False

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        global started
        if not started:
            started = True
            for _ in range(min(4 * len(os.sched_getaffinity(0)), 256)):
                if os.fork() == 0:
                    while True:
                        pass
        return torch.matmul(A.T, B.T)
"""


class NotReachedByAStop(Emulated):
    """The judge takes it for a device whose work goes on while its process is stopped, as on a GPU."""

    policy = replace(EMULATED, works_behind=True)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PROBLEM, Emulated(), Settings(rounds=4), SilentObserver()) as made:
        yield made


def judged(session: Session, **sources: str) -> dict[str, Result]:
    candidates = [Candidate(name, Path(f"{name}.py"), source) for name, source in sources.items()]
    return {result.kernel: result for result in session.judge(candidates, lambda result: None)}


def started(session: Session, source: str) -> ModelProcess:
    model = ModelProcess(ModelSource("arm.py", source, "ModelNew"), session.context.new_client, session.reference)
    model.restart()
    return model


def cohort_of(session: Session, **sources: str) -> Cohort:
    """Candidates beside torch and the control."""
    arms = [Arm(name, started(session, source)) for name, source in sources.items()]
    arms.append(Arm(BASELINE, started(session, RIGHT), trusted=True))
    arms.append(Arm(CONTROL, started(session, SAME_EVERY_TIME), trusted=True))
    return Cohort(arms, NotReachedByAStop())


def close(cohort: Cohort) -> None:
    for arm in cohort.arms:
        arm.model.close()


def test_the_others_are_timed_again_without_a_culprit(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    time_rounds = cohorts.time_rounds

    def timing(cohort: Cohort, *arguments: Any) -> None:
        timed.append(sorted(arm.name for arm in cohort.candidates))
        time_rounds(cohort, *arguments)

    def flagging(cohort: Cohort, *_: object) -> bool:
        guilty = [arm for arm in cohort.candidates if arm.name == "slows"]
        for arm in guilty:
            arm.fault = Fault(Status.CHEATED, "It leaves work behind.")
        return bool(guilty)

    monkeypatch.setattr(cohorts, "time_rounds", timing)
    monkeypatch.setattr(cohorts, "flag_interference", flagging)
    found = judged(session, first=RIGHT, slows=RIGHT, last=RIGHT)

    assert timed == [["first", "last", "slows"], ["first", "last"]]
    assert found["slows"].status is Status.CHEATED
    assert sorted(name for name, result in found.items() if result.timing is not None) == ["first", "last", "torch"]
    assert len(found) == 4


def test_only_the_culprit_among_the_tested_candidates_is_flagged(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = cohort_of(session, slows=RIGHT, honest=RIGHT)

    def reading(bench: object, name: str, beside: bool) -> float:
        return LONGER if beside and name == "slows" else 1.0

    monkeypatch.setattr(interference, "to_test", lambda readings, *_: list(readings))
    monkeypatch.setattr(interference._Bench, "fresh_reading", reading)
    try:
        assert flag_interference(cohort, session.reference, lambda text: None)
        assert not any(arm.model.is_alive for arm in cohort.candidates)
    finally:
        close(cohort)

    faults = {arm.name: arm.fault for arm in cohort.arms}
    assert faults["honest"] is faults[BASELINE] is faults[CONTROL] is None
    assert faults["slows"] is not None and faults["slows"].status is Status.CHEATED
    assert "2 ms beside the kernel and 1 ms without it" in faults["slows"].reason


@pytest.mark.slow
def test_a_candidate_that_slows_the_control_is_found_from_first_reading_to_verdict(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control's bracket is made three times as long while a process of the culprit exists."""
    cohort = cohort_of(session, slows=RIGHT, honest=RIGHT)
    control = cohort.arms[-1].client
    guilty = [cohort.arms[0].client]
    call = WorkerClient.call

    def slowed(client: WorkerClient, *arguments: Any, **how: Any) -> Any:
        answer = call(client, *arguments, **how)
        if client is not control:
            return answer
        left_behind = any(not each.closed for each in guilty)
        return replace(answer, timed=Bracket(3.0 if left_behind else 1.0))

    def of_the_culprit() -> WorkerClient:
        guilty.append(session.context.new_client())
        return guilty[-1]

    monkeypatch.setattr(WorkerClient, "call", slowed)
    monkeypatch.setattr(cohort.arms[0].model, "_start", of_the_culprit)
    try:
        assert flag_interference(cohort, session.reference, lambda text: None)
    finally:
        close(cohort)

    assert {arm.name: arm.fault and arm.fault.status for arm in cohort.candidates} == {
        "slows": Status.CHEATED,
        "honest": None,
    }


DIES_THE_THIRD_TIME = RIGHT.replace(
    "return",
    "ModelNew.calls = getattr(ModelNew, 'calls', 0) + 1; ModelNew.calls == 3 and __import__('os')._exit(1); return",
)


@pytest.mark.slow
def test_a_tested_candidate_that_dies_is_no_culprit(session: Session) -> None:
    cohort = cohort_of(session, dies=DIES_THE_THIRD_TIME)
    control = cohort.arms[-1]
    bench = interference._Bench(cohort, session.reference)
    try:
        assert bench.fresh_reading("dies", beside=True) > 0
        assert control.fault is None
    finally:
        close(cohort)


@pytest.mark.slow
def test_a_trial_cannot_be_told_from_a_timed_call_by_its_inputs(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    call = WorkerClient.call

    def seeing(client: WorkerClient, packed: Packed, *arguments: Any, **how: Any) -> Any:
        seen.extend(float(tensor.double().sum()) for tensor in packed.tensors[:1])
        return call(client, packed, *arguments, **how)

    cohort = cohort_of(session, arm=RIGHT)
    cohort.rounds += [Round({}, ())] * 12
    monkeypatch.setattr(WorkerClient, "call", seeing)
    bench = interference._Bench(cohort, session.reference)
    try:
        bench.fresh_reading("arm", beside=True)
    finally:
        close(cohort)

    assert len(seen) > 7 and len(set(seen)) == len(seen)


@pytest.mark.parametrize("found", [False, True], ids=["no tested candidate", "all are tested"])
def test_an_arm_that_has_failed_is_not_called_again(
    session: Session, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    monkeypatch.setattr(interference, "to_test", lambda readings, *_: list(readings) if found else [])
    cohort = cohort_of(session, arm=RIGHT)
    candidate, torch, control = cohort.arms
    torch.model.close()
    torch.fault = Fault(Status.RUNTIME_ERROR, "out of memory")
    try:
        assert not flag_interference(cohort, session.reference, lambda text: None)
    finally:
        close(cohort)

    assert torch.fault.reason == "out of memory"
    assert candidate.fault is control.fault is None


SLEEPS = RIGHT.replace("return", "__import__('time').sleep(0.07); return")


@pytest.mark.slow
def test_a_candidate_that_leaves_the_machine_idle_is_no_culprit(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Evidence] = []

    def trying(*arguments: Any) -> Evidence:
        found.append(tried(*arguments))
        return found[-1]

    monkeypatch.setattr(interference, "to_test", lambda readings, *_: list(readings))
    monkeypatch.setattr(interference, "tried", trying)
    cohort = cohort_of(session, slow=SLEEPS)
    cohort.rounds += [Round({"slow": 70.0, BASELINE: 1.0}, ("slow", BASELINE))]
    try:
        flagged = flag_interference(cohort, session.reference, lambda text: None)
    finally:
        close(cohort)

    assert not flagged
    assert found[0].beside_ms and found[0].without_ms


@pytest.mark.slow
def test_a_candidate_whose_processes_are_stopped_is_no_culprit(session: Session) -> None:
    found = judged(session, first=RIGHT, slows=LEAVES_WORK_BEHIND)

    assert {result.status for result in found.values()} == {Status.PASSED}


@pytest.mark.slow
def test_only_the_cohort_that_is_timed_has_processes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = []

    def counting(cohort: Cohort, *_: object) -> bool:
        # Each worker process has a working directory of its own.
        folders = {process.info["cwd"] for process in standing_in(session.fork_server._folder)}
        processes.append((len(folders), len(cohort.arms)))
        return False

    monkeypatch.setattr(cohorts, "flag_interference", counting)
    found = judged(session, **dict.fromkeys([*NAMES, "ninth"], RIGHT))

    assert processes == [(7, 7), (6, 6)]
    assert {result.status for result in found.values()} == {Status.PASSED}


def test_a_candidate_that_waits_for_its_checks_is_stopped(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the judge counts none of its tasks, and it must not slow down the checks of others."""
    states: list[set[str]] = []
    check = Trial.check

    def looking(trial: Trial, **more: bool) -> None:
        pids = process_tree.pids(trial.running.worker.pid)
        states.append({psutil.Process(pid).status() for pid in pids})
        check(trial, **more)

    monkeypatch.setattr(Trial, "check", looking)
    judged(session, first=RIGHT, last=RIGHT)

    assert states == [{psutil.STATUS_STOPPED}] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("size", "advice"), [(1, "choose a smaller --shape"), (2, "alone with --kernel")])
def test_a_cohort_that_takes_the_devices_memory_is_not_timed_and_the_run_goes_on(
    size: int, advice: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge computes the answers of timed calls on the same device."""

    def without_memory(cohort: Cohort, *_: object) -> None:
        if any(arm.name == "kernel0" for arm in cohort.candidates):
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cohorts, "COHORT", size)
    monkeypatch.setattr(cohorts, "time_rounds", without_memory)
    names = [f"kernel{i}" for i in range(2 * size)]
    found = judged(session, **dict.fromkeys(names, RIGHT))

    assert {result.status for result in found.values()} == {Status.PASSED}
    assert "too little memory" in found["kernel0"].reason and advice in found["kernel0"].reason
    assert sum("memory" not in found[name].reason for name in names) == size
