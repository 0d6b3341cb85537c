"""The judge of a device worker: what its tasks become if it is closed or a problem becomes unusable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.suites import CANDIDATE, PROBLEM, write

from kernel_harness.core.errors import UserError
from kernel_harness.problem.candidate import Candidate
from kernel_harness.session.settings import Settings
from kernel_harness.suite.device_worker import SuiteProblem, Task
from kernel_harness.suite.judging import DeviceJudge
from kernel_harness.workers.fork_server_process import ForkServerProcess
from kernel_harness.workers.process import Limits


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[DeviceJudge]:
    settings = Settings(seed=1, budget_s=0.1, quick=True, compiled=False, limits=Limits())
    folder = tmp_path / "workers"
    folder.mkdir()
    with ForkServerProcess(parent=folder) as process, DeviceJudge("cpu", settings, [], folder, process) as made:
        yield made


def task(folder: Path, number: int, problem: str, text: str) -> Task:
    write(folder, {f"{problem}.py": text})
    candidate = Candidate(f"c{number}", folder / f"c{number}.py", CANDIDATE.format(number=number, factor=2))
    return Task(SuiteProblem(problem, folder / f"{problem}.py"), candidate)


def test_a_closed_judge_judges_the_tasks_that_wait(judge: DeviceJudge, tmp_path: Path) -> None:
    for number in range(2):
        judge.add(task(tmp_path, number, "p", PROBLEM.format(factor=2)))
    judge.close()

    judged = []
    while judge.waiting:
        if (chosen := judge.next(60.0)) is not None:
            judged += [judge.judge(chosen)[0].passed]
    assert judged == [True, True]


def test_each_of_two_problems_that_become_unusable_is_told_with_its_own_reason(
    judge: DeviceJudge, tmp_path: Path
) -> None:
    broken = PROBLEM.format(factor=2).replace("return torch.relu(x) * 2", "raise RuntimeError('no such layer')")
    judge.add(task(tmp_path, 0, "p", broken))
    assert judge.next(60.0) is not None
    judge.add(task(tmp_path, 1, "q", PROBLEM.format(factor=2)))
    write(tmp_path, {"q.py": "not python"})
    with pytest.raises(UserError, match="no such layer"):
        judge.judge(task(tmp_path, 0, "p", broken))
    waiting = judge.next(60.0)

    assert waiting is not None and waiting.problem.name == "q"
    with pytest.raises(UserError, match=r"q\.py"):
        judge.judge(waiting)
