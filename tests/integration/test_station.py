"""The station of an evaluator: what its assignments become if it is closed or a problem becomes unusable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.suites import CANDIDATE, PROBLEM, write

from kernel_harness.problem.candidate import Candidate
from kernel_harness.sandbox.fork_server_process import ForkServerProcess
from kernel_harness.sandbox.process import Limits
from kernel_harness.session.settings import Settings
from kernel_harness.suite.station import Assignment, ProblemUnusable, Station


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    settings = Settings(seed=1, budget_s=0.1, quick=True, compiled=False, limits=Limits())
    folder = tmp_path / "workers"
    folder.mkdir()
    with ForkServerProcess(parent=folder) as process, Station("cpu", settings, [], folder, process) as made:
        yield made


def assignment(folder: Path, number: int, problem: str, text: str) -> Assignment:
    write(folder, {f"{problem}.py": text})
    candidate = Candidate(f"c{number}", folder / f"c{number}.py", CANDIDATE.format(number=number, factor=2))
    return Assignment(number, folder / f"{problem}.py", problem, candidate)


def test_a_closed_station_judges_the_assignments_that_wait(station: Station, tmp_path: Path) -> None:
    for number in range(2):
        station.add(assignment(tmp_path, number, "p", PROBLEM.format(factor=2)))
    station.close()

    judged = []
    while station.waiting:
        if (chosen := station.next(60.0)) is not None:
            judged += [station.judge(chosen)[0].passed]
    assert judged == [True, True]


def test_each_of_two_problems_that_become_unusable_is_told_with_its_own_reason(
    station: Station, tmp_path: Path
) -> None:
    broken = PROBLEM.format(factor=2).replace("return torch.relu(x) * 2", "raise RuntimeError('no such layer')")
    station.add(assignment(tmp_path, 0, "p", broken))
    assert station.next(60.0) is not None
    station.add(assignment(tmp_path, 1, "q", PROBLEM.format(factor=2)))
    write(tmp_path, {"q.py": "not python"})
    with pytest.raises(ProblemUnusable, match="no such layer"):
        station.judge(assignment(tmp_path, 0, "p", broken))
    waiting = station.next(60.0)

    assert waiting is not None and waiting.name == "q"
    with pytest.raises(ProblemUnusable, match=r"q\.py"):
        station.judge(waiting)
