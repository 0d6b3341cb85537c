"""The scheduler of a suite or a pool, with workers that only keep what they are given."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest

from kernel_harness.core.errors import UserError
from kernel_harness.problem.candidate import Candidate
from kernel_harness.suite.device_worker import Ready, SuiteProblem, Task, Verdict, Worker, send
from kernel_harness.suite.scheduler import Scheduler

AHEAD = 3


class Keeper(Worker):
    """A worker that is ready at once."""

    def __init__(self, number: int) -> None:
        ours, self.theirs = Pipe()
        super().__init__(ours)
        self.given: list[Task] = []
        send(self.theirs, Ready(f"device-{number}", "A device"))

    def _send(self, task: Task) -> None:
        self.given.append(task)

    def judge_next(self) -> None:
        send(self.theirs, Verdict(self.given.pop(0).id))

    def interrupt(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> str:
        return "ended"


@pytest.fixture
def workers() -> list[Keeper]:
    return [Keeper(number) for number in range(2)]


@pytest.fixture
def scheduler(workers: list[Keeper]) -> Iterator[Scheduler]:
    with Scheduler([lambda each=each: each for each in workers], AHEAD) as made:  # type: ignore[misc]
        while len(made.devices) < len(workers):
            time.sleep(0.001)
        yield made


def tasks(problem: str, count: int) -> list[Task]:
    path = Path(f"{problem}.py")
    return [Task(SuiteProblem(problem, path), Candidate(f"c{n}", path, f"{n}")) for n in range(count)]


def test_a_worker_gets_at_most_one_candidate_to_judge_and_those_ahead(
    scheduler: Scheduler, workers: list[Keeper]
) -> None:
    scheduler.submit([*tasks("p", 20), *tasks("q", 20)])

    assert [[task.problem.name for task in each.given] for each in workers] == [["p"] * 4, ["q"] * 4]


def test_the_last_candidates_of_a_problem_are_shared(scheduler: Scheduler, workers: list[Keeper]) -> None:
    """One worker would have room for all of them, and the other GPU would idle."""
    scheduler.submit(tasks("p", AHEAD + 1))

    assert [len(each.given) for each in workers] == [2, 2]


def test_an_idle_worker_helps_with_the_problem_that_has_the_most_left(
    scheduler: Scheduler, workers: list[Keeper]
) -> None:
    futures = scheduler.submit([*tasks("p", 12), *tasks("q", 1)])
    assert [each.given[0].problem.name for each in workers] == ["p", "q"]
    workers[1].judge_next()
    futures[-1].result(10)
    while not workers[1].given:
        time.sleep(0.001)

    assert workers[1].given[0].problem.name == "p"


def test_a_future_without_a_verdict_raises_when_the_scheduler_is_closed(scheduler: Scheduler) -> None:
    (future,) = scheduler.submit(tasks("p", 1))
    scheduler.close()

    with pytest.raises(UserError, match="was closed"):
        future.result()
    with pytest.raises(UserError, match="was closed"):
        scheduler.submit(tasks("q", 1))
