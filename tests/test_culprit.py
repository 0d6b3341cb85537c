"""Who leaves work behind that no stop reaches is found, and nobody else, however noisy the machine is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, standing_in
from hypothesis import given
from hypothesis import strategies as st

from kernel_harness import culprit, race
from kernel_harness import problem as problems
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Packed
from kernel_harness.cohort import BASELINE, SENTINEL, Arm, Cohort
from kernel_harness.culprit import TRIALS, suspects, tried
from kernel_harness.device.cpu import Emulated
from kernel_harness.evidence import FACTOR, Evidence
from kernel_harness.examine import Fault, Subject
from kernel_harness.inputs import Inputs
from kernel_harness.judge import Nobody, Session
from kernel_harness.results import Result, to_json
from kernel_harness.settings import Settings
from kernel_harness.status import Status
from kernel_harness.timing import Round, order_of_round

PROBLEM = problems.load("product", ROOT / "tests" / "candidates" / "problem" / "product.py")
NAMES = [f"kernel{i}" for i in range(8)]
LONGER = 2.0


def quiet(rng: random.Random) -> float:
    return rng.uniform(1.0, 1.1)


def bursts(rng: random.Random) -> float:
    """Neighbours that come and go: a reading in three is many times too long."""
    return rng.uniform(1.0, 1.1) * rng.choice([1, 1, rng.uniform(2, 50)])


# ------------------------------------------------------------------------------------- the conviction


@given(st.randoms(use_true_random=False))
def test_who_disturbs_is_convicted_where_it_is_quiet(rng: random.Random) -> None:
    evidence = tried(lambda there: quiet(rng) * (LONGER if there else 1), rng)

    assert evidence.convinces
    assert len(evidence.beside_ms) == len(evidence.without_ms) == TRIALS


@pytest.mark.parametrize("noise", [quiet, bursts])
def test_an_innocent_is_convicted_no_more_often_than_is_promised(noise: Callable[[random.Random], float]) -> None:
    """Once in 3432 where every reading differs by enough; 20,000 times tried, more than 20 have a chance of 1e-6."""
    rng = random.Random(1)
    convicted = sum(tried(lambda there: noise(rng), rng).convinces for _ in range(20_000))

    assert convicted <= 20


def test_the_promise_rests_on_the_order_alone() -> None:
    """The worst noise there is: each reading is far above or below every other."""
    rng = random.Random(2)
    readings = [10.0**i for i in range(2 * TRIALS)]

    def trial() -> bool:
        left = iter(rng.sample(readings, len(readings)))
        return tried(lambda there: next(left), rng).convinces

    assert 1 <= sum(trial() for _ in range(20_000)) <= 20


def test_what_slows_others_by_less_than_the_factor_is_not_convicted() -> None:
    assert not Evidence((FACTOR * 2.0,), (2.0,)).convinces


def test_a_reading_that_could_not_be_made_convinces_nobody() -> None:
    assert not Evidence((9.0, float("nan")), (1.0,)).convinces
    assert not Evidence((9.0,), (1.0, float("nan"))).convinces


def test_the_sentence_says_what_was_measured() -> None:
    sentence = Evidence((4.0, 5.0, 6.0), (1.0, 2.0, 3.0)).sentence

    assert "5 ms beside it and 2 ms without it, in 3 trials each" in sentence


# ------------------------------------------------------------------------------------------ the suspicion


@given(st.sets(st.sampled_from(NAMES)), st.randoms(use_true_random=False))
def test_those_at_whose_end_the_sentinel_becomes_faster_are_suspected(guilty: set[str], rng: random.Random) -> None:
    """A GPU that several share takes turns."""
    readings = [quiet(rng) / 1.1 * (1 + len(guilty & set(NAMES[ended:]))) for ended in range(len(NAMES) + 1)]
    found = suspects(dict(zip(NAMES, pairwise(readings), strict=True)), [])

    assert set(found) <= guilty
    last_few = [name for name in NAMES if name in guilty][-2:]
    assert set(last_few) <= set(found)


def rounds_with(rng: random.Random, guilty: set[str], count: int = 64) -> list[Round]:
    """The sentinel twice as slow right after some of the arms."""
    made = []
    for _ in range(count):
        order = order_of_round([*NAMES[:3], "torch", SENTINEL], rng)
        place = order.index(SENTINEL)
        slowed = place > 0 and order[place - 1] in guilty
        made.append(Round({**dict.fromkeys(order, 1.0), SENTINEL: quiet(rng) * (LONGER if slowed else 1)}, order))
    return made


@pytest.mark.parametrize("guilty", [set(), {"kernel0"}, {"kernel0", "kernel2"}], ids=len)
def test_those_right_after_whose_calls_the_sentinel_is_slow_are_suspected(guilty: set[str]) -> None:
    rounds = rounds_with(random.Random(3), guilty)

    assert set(suspects(dict.fromkeys(NAMES[:3], (1.0, 1.0)), rounds)) == guilty


def test_few_rounds_are_no_reason_for_suspicion() -> None:
    rounds = rounds_with(random.Random(4), {"kernel0"}, count=8)

    assert not suspects(dict.fromkeys(NAMES[:3], (1.0, 1.0)), rounds)


def test_those_after_whose_last_call_the_sentinel_is_slow_are_suspected() -> None:
    readings = {"short": (1.0, 2.0, 1.0), "honest": (1.0, 1.1, 1.0), "long": (2.0, 2.0, 1.0)}

    assert suspects(readings, []) == ["short", "long"]


# --------------------------------------------------------------------------------------- a real one

HONEST = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
"""
SAME_EVERY_TIME = HONEST.replace("A, B", "*_").replace("torch.matmul(A.T, B.T)", "torch.ones(1)")
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


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(PROBLEM, Emulated(), Settings(rounds=4), Nobody()) as made:
        yield made


def judged(session: Session, **sources: str) -> dict[str, Result]:
    candidates = [Candidate(name, Path(f"{name}.py"), source) for name, source in sources.items()]
    return {result.kernel: result for result in session.judge(candidates, lambda result: None)}


def test_a_culprit_leaves_and_the_others_are_timed_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    raced = []
    race_honestly = race.race

    def racing(cohort: Cohort, *arguments: Any) -> None:
        raced.append([arm.name for arm in cohort.arms])
        race_honestly(cohort, *arguments)

    monkeypatch.setattr(race, "race", racing)
    monkeypatch.setattr(culprit, "suspects", lambda names, *_: [name for name in names if name == "slows"])
    monkeypatch.setattr(culprit, "tried", lambda *_: Evidence((2.0,), (1.0,)))
    found = judged(session, first=HONEST, slows=HONEST, last=HONEST)

    assert [sorted(set(names) - {"torch", SENTINEL}) for names in raced] == [
        ["first", "last", "slows"],
        ["first", "last"],
    ]
    assert found["slows"].status is Status.CHEATED
    assert sorted(name for name, result in found.items() if result.timing is not None) == ["first", "last", "torch"]
    assert len(found) == 4


DIES_THE_THIRD_TIME = HONEST.replace(
    "return",
    "ModelNew.calls = getattr(ModelNew, 'calls', 0) + 1; ModelNew.calls == 3 and __import__('os')._exit(1); return",
)


def test_a_suspect_that_dies_is_no_culprit(session: Session) -> None:
    sentinel = Arm(SENTINEL, session_arm(session, SAME_EVERY_TIME), trusted=True)
    cohort = Cohort([sentinel, Arm("torch", sentinel.subject, trusted=True)], session.device)
    with closing(sentinel.subject), closing(Inputs(session.reference, session.device)) as inputs:
        bench = culprit._Bench(cohort, inputs, lambda name: session_arm(session, DIES_THE_THIRD_TIME))

        assert bench.beside_or_without_ms("dies", 0.0, there=True) > 0
        assert sentinel.fault is None


def test_a_trial_cannot_be_told_from_a_race_by_its_inputs(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    call = Subject.call

    def seeing(subject: Subject, packed: Packed, *arguments: Any, **how: Any) -> Any:
        seen.extend(float(tensor.double().sum()) for tensor in packed.tensors[:1])
        return call(subject, packed, *arguments, **how)

    monkeypatch.setattr(Subject, "call", seeing)
    sentinel = Arm(SENTINEL, session_arm(session, SAME_EVERY_TIME), trusted=True)
    cohort = Cohort([sentinel, Arm(BASELINE, sentinel.subject, trusted=True)], session.device)
    cohort.rounds += [Round({}, ())] * 12
    with closing(sentinel.subject), closing(Inputs(session.reference, session.device)) as inputs:
        bench = culprit._Bench(cohort, inputs, lambda name: session_arm(session, HONEST))
        bench.beside_or_without_ms("arm", 0.0, there=True)

    assert len(seen) > 7 and len(set(seen)) == len(seen)


class NotReachedByAStop(Emulated):
    """What runs on it goes on while its process stands, as on a GPU."""

    emulated = False


def test_an_arm_that_has_failed_is_not_called_once_more(session: Session) -> None:
    arms = [Arm(name, session_arm(session, HONEST)) for name in (BASELINE, "arm")]
    arms.append(Arm(SENTINEL, session_arm(session, SAME_EVERY_TIME), trusted=True))
    arms[0].subject.close()
    arms[0].trusted, arms[0].fault = True, Fault(Status.RUNTIME_ERROR, "out of memory")
    cohort = Cohort(arms, NotReachedByAStop())
    with closing(arms[2].subject), closing(Inputs(session.reference, session.device)) as inputs:
        readings = culprit._one_by_one(culprit._Bench(cohort, inputs, lambda name: arms[1].subject))

    assert all(ms > 0 for ms in readings["arm"]) and len(readings["arm"]) == 3
    assert [arm.fault and arm.fault.reason for arm in arms] == ["out of memory", None, None]


def session_arm(session: Session, source: str) -> Subject:
    subject = session.new_subject()
    subject.load("arm.py", source, "ModelNew")
    subject.make(PROBLEM)
    return subject


SLEEPS = HONEST.replace("return", "__import__('time').sleep(0.07); return")


def test_who_leaves_the_machine_idle_is_no_culprit(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(culprit, "suspects", lambda names, *_: list(names))
    found = judged(session, slow=SLEEPS)

    assert found["slow"].status is Status.PASSED
    (trial,) = found["slow"].information["suspected"]
    assert not trial["convicted"]
    assert trial["beside_ms"] and trial["without_ms"]


def test_what_came_of_a_suspicion_is_in_the_record(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one who is timed again without the culprit, and not suspected any more."""
    evidence = iter([Evidence((1.0, 2.0), (float("nan"),)), Evidence((2.0,), (1.0,))])
    monkeypatch.setattr(culprit, "suspects", lambda names, *_: ["innocent", "slows"] if "slows" in names else [])
    monkeypatch.setattr(culprit, "tried", lambda *_: next(evidence))
    found = judged(session, innocent=HONEST, slows=HONEST, never=HONEST)
    told = {name: to_json(result, "")["information"].get("suspected") for name, result in found.items()}

    assert told == {
        "innocent": [{"beside_ms": [1.0, 2.0], "without_ms": ["nan"], "convicted": False}],
        "slows": [{"beside_ms": [2.0], "without_ms": [1.0], "convicted": True}],
        "never": None,
        "torch": None,
    }
    assert [found[name].status for name in ("innocent", "slows")] == [Status.PASSED, Status.CHEATED]


def test_who_is_stopped_is_no_culprit(session: Session) -> None:
    found = judged(session, first=HONEST, slows=LEAVES_WORK_BEHIND)

    assert {result.status for result in found.values()} == {Status.PASSED}


def test_only_the_cohort_that_is_timed_has_processes(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = []

    def counting(cohort: Cohort, *_: object) -> bool:
        folders = {process.info["cwd"] for process in standing_in(session.template._folder)}  # each has one of its own
        processes.append((len(folders), len(cohort.arms)))
        return False

    monkeypatch.setattr(culprit, "convict", counting)
    found = judged(session, **dict.fromkeys([*NAMES, "ninth"], HONEST))

    assert processes == [(7, 7), (6, 6)]
    assert {result.status for result in found.values()} == {Status.PASSED}
