"""The queue of the service takes turns, and no work waits for ever for evaluators that prefer other problems."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the package fastapi is not installed")
from kernel_harness.core.status import Status
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.service.messages import Submission
from kernel_harness.service.queue import FairQueue
from kernel_harness.service.service import Limits, Service
from kernel_harness.service.store import Store

ADDED = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8).map(str)), max_size=30)


def test_owners_take_turns() -> None:
    queue = FairQueue()
    for owner, key in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("c", "5"), ("b", "6")]:
        queue.add(owner, key)

    assert [queue.take() for _ in range(6)] == ["1", "4", "5", "2", "6", "3"]
    with pytest.raises(KeyError):
        queue.take()


def test_a_key_of_two_owners_is_taken_once_in_the_first_turn() -> None:
    queue = FairQueue()
    for owner, key in [("a", "1"), ("a", "2"), ("b", "2")]:
        queue.add(owner, key)

    assert [queue.take(), queue.take()] == ["1", "2"]
    assert len(queue) == 0


@given(ADDED)
def test_each_key_is_taken_once_and_no_later_than_told(added: list[tuple[str, str]]) -> None:
    queue, places = FairQueue(), {}
    for owner, key in added:
        queue.add(owner, key)
    for owner, key in added:
        places[key] = min(queue.ahead(owner, key) or 0, places.get(key, 99))
    taken = [queue.take() for _ in places]

    assert sorted(taken) == sorted(places) and len(queue) == 0
    assert all(taken.index(key) <= ahead for key, ahead in places.items())


class Preferring:
    """A judge that ends the work of one problem only when it has no other, as evaluators prefer their last problem."""

    capacity = 4

    def __init__(self) -> None:
        self.has: defaultdict[str, list[Future[Result]]] = defaultdict(list)

    def settings(self, **options: Any) -> None:
        """Takes all options."""

    def submit(self, problem: Path, source: Candidate, **options: Any) -> Future[Result]:
        future: Future[Result] = Future()
        self.has[problem.stem].append(future)
        return future

    def end_one(self) -> str:
        name = "matmul_tt" if self.has["matmul_tt"] else "matmul_tt_relu"
        self.has[name].pop(0).set_result(Result("candidate", Status.WRONG_VALUES, "", {}, ""))
        return name


def test_work_of_a_problem_that_evaluators_do_not_prefer_is_judged_in_time(tmp_path: Path) -> None:
    async def judged() -> list[str]:
        judge = Preferring()
        with Store(tmp_path / "state") as store:
            service = Service(store, judge, "cpu", tmp_path / "problems", Limits())
            service.submit("ann", Submission(problem="matmul_tt_relu", source="seldom\n"))
            for number in range(100):
                service.submit("bob", Submission(problem="matmul_tt", source=f"often {number}\n"))
            order = []
            for _ in range(101):
                await asyncio.sleep(0.001)
                order.append(judge.end_one())
            return order

    assert asyncio.run(judged()).index("matmul_tt_relu") <= 4 * Preferring.capacity


def test_work_of_another_device_fails_at_the_next_start(tmp_path: Path) -> None:
    async def state(label: str) -> str:
        with Store(tmp_path / "state") as store:
            service = Service(store, Preferring(), label, tmp_path / "problems", Limits())
            return service.submit("ann", Submission(problem="matmul_tt", source="a\n")).id

    async def found(job_id: str) -> tuple[str, str | None]:
        with Store(tmp_path / "state") as store:
            status = Service(store, Preferring(), "gpu", tmp_path / "problems", Limits()).status("ann", job_id)
            return status.state, status.error

    job_id = asyncio.run(state("cpu"))
    failed, why = asyncio.run(found(job_id))
    assert failed == "failed" and why is not None and "device or version has changed" in why
