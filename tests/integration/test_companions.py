"""What candidates of a session share: the processes of the baselines and the sentinel, and the rounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command import until
from support.suites import CANDIDATE, PROBLEM, write

from kernel_harness.checking.examination import CheckOutcome, Examination
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem import problem as problems
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.sandbox.faults import Fault
from kernel_harness.sandbox.subject import Subject
from kernel_harness.session.cohorts import COHORT
from kernel_harness.session.run import RunContext, SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.timing.baselines import ModelSource

RIGHT = Candidate("c", Path("c.py"), CANDIDATE.format(number=0, factor=2))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session that keeps the processes of the baselines, as those of a suite do."""
    write(tmp_path, {"p.py": PROBLEM.format(factor=2)})
    problem = problems.load("p", tmp_path / "p.py").on(emulated=True)
    with Session(problem, Emulated(), Settings(rounds=1, jobs=1), SilentObserver()) as made:
        made.companions.kept = True
        yield made


def test_the_baselines_start_while_the_first_candidate_is_checked(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, check = RunContext.load_subject, Examination.check
    started: list[str] = []

    def noted(run: RunContext, model: ModelSource) -> Subject:
        subject = load(run, model)
        started.append(model.class_name)
        return subject

    def waiting(examination: Examination, *words: object, **more: object) -> CheckOutcome:
        until(lambda: len(started) == 2, "the processes have started")
        return check(examination, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(RunContext, "load_subject", noted)
    monkeypatch.setattr(Examination, "check", waiting)
    results = [session.judge_one(RIGHT)[0] for _ in range(2)]

    assert all(result.status is Status.PASSED and result.timing for result in results)
    assert sorted(started) == ["Model", "Sentinel"]


def test_a_baseline_that_cannot_start_beside_the_checks_is_started_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, count = RunContext.load_subject, itertools.count()

    def failing(run: RunContext, model: ModelSource) -> Subject:
        if model.class_name == "Model" and not next(count):
            raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
        return load(run, model)

    monkeypatch.setattr(RunContext, "load_subject", failing)
    result = session.judge_one(RIGHT)[0]

    assert result.status is Status.PASSED and result.timing and next(count) == 2


def test_candidates_that_are_judged_together_share_rounds_and_a_failure_is_told_at_once(session: Session) -> None:
    first = session.most_together
    named = {"a": 2, "b": 7, "c": 2}
    told: list[tuple[list[str], list[str]]] = []
    found: dict[str, Result] = {}

    def settled(own: Sequence[Result], baselines: Sequence[Result]) -> None:
        told.append(([each.kernel for each in own], [each.kernel for each in baselines]))
        found.update({each.kernel: each for each in own})

    texts = [(name, CANDIDATE.format(number=number, factor=f)) for number, (name, f) in enumerate(named.items())]
    session.judge_beside_kept([Candidate(name, Path(f"{name}.py"), text) for name, text in texts], settled)

    assert (first, session.most_together) == (1, COHORT)
    assert told[0] == (["b"], []) and sorted(told[1][0]) == ["a", "c"] and told[1][1] == ["torch"]
    a, b, c = (found[name] for name in named)
    assert a.timing and c.timing and len(a.timing.samples_ms) == len(c.timing.samples_ms) and a.run == c.run
    assert b.status is Status.WRONG_VALUES and b.timing is None


def test_a_candidate_that_lacks_memory_beside_others_is_judged_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Session.judge
    asked: list[list[str]] = []

    def lacking(self: Session, candidates: Sequence[Candidate], *words: Any, **more: Any) -> list[Result]:
        asked.append([each.name for each in candidates])
        results = judge(self, candidates, *words, **more)
        return [replace(r, timing=None) if r.kernel == "b" and len(candidates) > 1 else r for r in results]

    monkeypatch.setattr(Session, "judge", lacking)
    found: list[Result] = []
    texts = [(name, CANDIDATE.format(number=number, factor=2)) for number, name in enumerate("ab")]
    candidates = [Candidate(name, Path(f"{name}.py"), text) for name, text in texts]
    session.judge_beside_kept(candidates, lambda own, baselines: found.extend(own))

    assert asked == [["a", "b"], ["b"]]
    assert sorted((each.kernel, each.timing is not None) for each in found) == [("a", True), ("b", True)]


def test_no_baseline_starts_before_its_cohort_if_none_is_kept(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.companions.kept = False
    monkeypatch.setattr(RunContext, "load_subject", lambda *_: pytest.fail("a baseline was started"))
    wrong = Candidate("c", Path("c.py"), CANDIDATE.format(number=0, factor=7))

    assert session.judge_one(wrong)[0].status is Status.WRONG_VALUES
