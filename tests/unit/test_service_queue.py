"""The queue of the service takes turns, and no work waits for ever for evaluators that prefer other problems."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the package fastapi is not installed")
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.status import Status
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.service.messages import Submission
from kernel_harness.service.queue import FairQueue
from kernel_harness.service.service import Limits, Service
from kernel_harness.service.store import Store
from kernel_harness.service.work import Work

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


class Breaking:
    """A judge that keeps what it gets, and ends as its test says. It judges two works at the same time."""

    capacity = 2

    def __init__(self) -> None:
        self.has: list[tuple[str, Future[Result]]] = []

    def settings(self, **options: Any) -> None:
        """Takes all options."""

    def submit(self, problem: Path, source: Candidate, **options: Any) -> Future[Result]:
        future: Future[Result] = Future()
        self.has.append((source.source, future))
        return future

    async def end(self, source: str, outcome: Result | Exception) -> None:
        future = next(future for given, future in self.has if given == source)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        await asyncio.sleep(0.01)

    @property
    def sources(self) -> list[str]:
        return [source for source, _ in self.has]


RESULT = Result("candidate", Status.WRONG_VALUES, "", {}, "")


def submission(source: str) -> Submission:
    return Submission(problem="matmul_tt", source=source)


def test_a_suspected_work_is_judged_once_and_alone_also_if_it_is_submitted_again(tmp_path: Path) -> None:
    async def broken() -> None:
        judge = Breaking()
        with Store(tmp_path / "state") as store:
            service = Service(store, judge, "cpu", tmp_path / "problems", Limits())
            service.submit("ann", submission("a\n"))
            await asyncio.sleep(0.01)
            await judge.end("a\n", EnvironmentLacking("no device"))
            assert isinstance(service.failure, EnvironmentLacking) and service.idle.is_set()

    async def judged() -> list[str]:
        judge = Breaking()
        with Store(tmp_path / "state") as store:
            service = Service(store, judge, "cpu", tmp_path / "problems", Limits())
            job = service.submit("ann", submission("a\n"))
            service.submit("bob", submission("b\n"))
            await asyncio.sleep(0.01)
            assert judge.sources == ["a\n"]
            await judge.end("a\n", RESULT)
            await judge.end("b\n", RESULT)
            assert service.status("ann", job.id).state == "done"
        return judge.sources

    asyncio.run(broken())
    assert asyncio.run(judged()) == ["a\n", "b\n"]


def test_a_store_that_cannot_be_written_ends_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async def failure() -> BaseException | None:
        judge = Breaking()
        with Store(tmp_path / "state") as store:
            service = Service(store, judge, "cpu", tmp_path / "problems", Limits())
            service.submit("ann", submission("a\n"))
            await asyncio.sleep(0.01)
            monkeypatch.setattr(Store, "finish", full)
            await judge.end("a\n", RESULT)
            assert service.draining and service.idle.is_set()
            return service.failure

    assert "database or disk is full" in str(asyncio.run(failure()))


def test_a_verdict_that_is_stored_needs_no_room(tmp_path: Path) -> None:
    async def again() -> str:
        judge = Breaking()
        with Store(tmp_path / "state") as store:
            service = Service(store, judge, "cpu", tmp_path / "problems", Limits())
            job = service.submit("ann", submission("a\n"))
            await asyncio.sleep(0.01)
            assert service.cancel("ann", job.id).state == "cancelled"
            await judge.end("a\n", RESULT)
            service.drain()
            return service.submit("ann", submission("a\n")).state

    assert asyncio.run(again()) == "done"


def test_a_submission_may_name_the_kind_of_its_file(tmp_path: Path) -> None:
    text = 'extern "C" int one;\n'
    kinds = [Work.of(Submission(problem="matmul_tt", source=text, suffix=suffix), "cpu", problem_texts=False)
             for suffix in (None, ".cu")]  # fmt: skip
    assert [work.candidate.path.suffix for work in kinds] == [".py", ".cu"]
    assert kinds[0].key != kinds[1].key
