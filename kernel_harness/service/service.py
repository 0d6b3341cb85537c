"""The service without HTTP: it takes submissions, gives them to the evaluators in turn, and stores the verdicts.

All methods run in the thread of one event loop. Only `_ended` is called by threads of the pool.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kernel_harness.core import atomic_file
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.published import published
from kernel_harness.results.record import Result, to_line
from kernel_harness.results.reward import reward
from kernel_harness.service.errors import Refused, code_of
from kernel_harness.service.messages import Status, Submission
from kernel_harness.service.queue import FairQueue
from kernel_harness.service.store import Job, Store
from kernel_harness.service.work import Work, maker

# No work that the evaluators have is overtaken by more than _MOST_OVERTAKING times as many others as they can have at
# once. They prefer the problem that they judged last, so another problem could wait for ever otherwise.
_MOST_OVERTAKING = 4
_MOST_RESULTS = 100
_LONGEST_RETRY_S = 60
_SHARE_OF_NEW = 0.1
_LONGEST_ID = 32


class Judge(Protocol):
    """What judges: an `EvaluatorPool`."""

    capacity: int

    def settings(self, **options: Any) -> object:
        """Raises UserError for options that cannot be used."""

    def submit(self, problem: Path, source: Candidate, **options: Any) -> Future[Result]:
        """Returns the future of a result; it raises ProblemError if the problem cannot be used."""


@dataclass(frozen=True)
class Limits:
    """How much a service takes: `queue` waiting works in all, `quota` waiting works of each token."""

    queue: int = 20_000
    quota: int = 5000
    problem_texts: bool = False
    """Whether texts of problem files are accepted, which the judge executes with the rights of the server."""


class Service:
    """Submissions and their verdicts. `label` names the device, and `folder` is for the files of problems.

    `failure` is set when the judge cannot go on. Work that has no verdict then waits for the next start.
    """

    def __init__(self, store: Store, judge: Judge, label: str, folder: Path, limits: Limits) -> None:
        self._store, self._judge, self._folder, self._limits = store, judge, folder, limits
        self._maker = maker(label)
        self._queue = FairQueue()
        self._running: dict[str, tuple[int, float]] = {}  # key -> (its number, when it began)
        self._begun = 0
        # Work that was judged when a server before this one could not go on. It is judged first, each work alone.
        self._suspected: dict[str, None] = {}
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._mean_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self.counts: Counter[tuple[str, str]] = Counter()
        """How often something happened, by (what, which kind)."""
        self.ending = asyncio.Event()
        """Is set when the service takes and begins no more work."""
        self.idle = asyncio.Event()
        """Is set when a draining service has stored the last verdict that was being judged."""
        self.failure: BaseException | None = None
        folder.mkdir(exist_ok=True)
        with store.together():
            for owner, key, strikes in store.recover(self._maker):
                if strikes:
                    self._suspected[key] = None
                else:
                    self._queue.add(owner, key)
        self._fill()

    @property
    def draining(self) -> bool:
        """Whether the service takes and begins no more work."""
        return self.ending.is_set()

    @property
    def waiting(self) -> int:
        """The number of works that wait, where one that several tokens wait for counts several times."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """The number of works that the evaluators judge or build."""
        return len(self._running)

    def submit(self, owner: str, submission: Submission) -> Status:
        """Takes one submission, and returns its job, which is the same whenever an owner sends the same again.

        Raises Refused if it is not taken, and another UserError if it names what does not exist.
        """
        try:
            work = Work.of(submission, self._maker, problem_texts=self._limits.problem_texts)
            self._judge.settings(**work.options)
            job_id = hashlib.sha256(f"{owner}\n{work.key}".encode()).hexdigest()[:_LONGEST_ID]
            known = self._store.job(job_id)
            if known is None or known.state in ("cancelled", "failed"):
                self._check_room(owner)
        except UserError as error:
            self.counts["refused", str(code_of(error))] += 1
            raise
        job = self._store.add(job_id, owner, work)
        self.counts["submitted", "stored" if job.state == "done" else "new"] += 1
        if job.state == "queued" and job.key not in self._suspected:
            self._queue.add(owner, job.key)
            self._loop.call_soon(self._fill)
        return self._status(job)

    def together(self) -> AbstractContextManager[object]:
        """Returns a context whose submissions are stored together, which is faster."""
        return self._store.together()

    def status(self, owner: str, job_id: str) -> Status:
        """Returns a job of an owner. Raises Refused if there is none."""
        return self._status(self._job(owner, job_id))

    def cancel(self, owner: str, job_id: str) -> Status:
        """Takes a job that waits out of the queue. A verdict that is being judged is still stored."""
        job = self._job(owner, job_id)
        if job.state in ("queued", "running"):
            self._store.cancel(job_id)
            self._queue.remove(owner, job.key)
            self._tell(job.key)
        return self.status(owner, job_id)

    async def finished(self, owner: str, ids: Sequence[str], wait_s: float) -> list[Status]:
        """Waits until one of an owner's jobs is finished, or `wait_s` seconds. Returns those that are, 100 at most."""
        end = self._loop.time() + wait_s
        keys = {self._job(owner, each).key for each in ids}
        with self._watching(keys) as changed:
            while True:
                changed.clear()
                found = (self.status(owner, each) for each in ids)
                finished = list(itertools.islice((one for one in found if one.finished), _MOST_RESULTS))
                if finished or self.idle.is_set() or self._loop.time() >= end:
                    return finished
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), max(0.0, end - self._loop.time()))

    async def states(self, owner: str, job_id: str, pause_s: float) -> AsyncIterator[Status]:
        """Yields a job whenever its state has changed, and every `pause_s` seconds, until it is finished."""
        with self._watching({self._job(owner, job_id).key}) as changed:
            while True:
                changed.clear()
                status = self.status(owner, job_id)
                yield status
                if status.finished or self.idle.is_set():
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), pause_s)

    def drain(self) -> None:
        """Takes and begins no more work. Sets `idle` when nothing is being judged any more."""
        self.ending.set()
        self._check_idle()

    def _check_room(self, owner: str) -> None:
        retry_s = max(1, min(_LONGEST_RETRY_S, round(self._mean_s or 1)))
        if self.draining:
            raise Refused(503, "the server is about to end and takes no more work; try again", retry_s)
        if len(self._queue) >= self._limits.queue:
            raise Refused(429, f"{self._limits.queue} jobs wait, which is the limit; try again later", retry_s)
        if self._queue.count(owner) >= self._limits.quota:
            raise Refused(429, f"{self._limits.quota} jobs of this token wait, its limit; try again later", retry_s)

    def _job(self, owner: str, job_id: str) -> Job:
        job = self._store.job(job_id)
        if job is None or job.owner != owner:
            raise Refused(404, f"there is no job {job_id[:_LONGEST_ID]!r} of this token")
        return job

    def _status(self, job: Job) -> Status:
        ahead = self._queue.ahead(job.owner, job.key) if job.state == "queued" else None
        result = json.loads(job.result) if job.result else None
        return Status(
            id=job.id, state=job.state, ahead=ahead, estimate_s=self._estimate_s(job, ahead), reward=job.reward,
            result=result, error=job.error if job.state == "failed" else None,
        )  # fmt: skip

    def _estimate_s(self, job: Job, ahead: int | None) -> float | None:
        """Returns the mean time of the works before this one and its own, less the time that it has been judged."""
        if self._mean_s is None or job.state not in ("queued", "running"):
            return None
        if ahead is None:
            _, began = self._running.get(job.key, (0, time.monotonic()))
            return round(max(0.0, self._mean_s - (time.monotonic() - began)), 2)
        return round(self._mean_s * (1 + ahead / self._judge.capacity), 2)

    def _fill(self) -> None:
        """Gives waiting work to the evaluators, as much as they can judge or build at once."""
        if self._suspected:
            if not (self._running or self.draining):
                self._begin(next(reversed(self._suspected)))
            return
        while len(self._queue) and len(self._running) < self._judge.capacity and not self.draining:
            oldest, _ = next(iter(self._running.values()), (self._begun, 0.0))
            if self._begun - oldest >= _MOST_OVERTAKING * self._judge.capacity:
                return
            self._begin(self._queue.take())

    def _begin(self, key: str) -> None:
        self._running[key] = self._begun, time.monotonic()
        self._begun += 1
        try:
            work = self._store.begin(key)
            self._tell(key)
            path = atomic_file.of_text(self._folder, work.problem.text, f"{work.problem.name}.py")
            future = self._judge.submit(path, work.candidate, **work.options)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(partial(self._ended, key))

    def _ended(self, key: str, future: Future[Result]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the work waits for the next start
            self._loop.call_soon_threadsafe(self._finish, key, future)

    def _finish(self, key: str, future: Future[Result]) -> None:
        """Stores the verdict on a work, and gives the evaluators other work."""
        _, began = self._running.pop(key)
        self._suspected.pop(key, None)
        try:
            self._record(key, future, time.monotonic() - began)
        except sqlite3.Error as error:
            self._fail(EnvironmentLacking(f"the server's jobs cannot be stored: {error}"))
        self._tell(key)
        self._fill()
        self._check_idle()

    def _record(self, key: str, future: Future[Result], took_s: float) -> None:
        """Stores the verdict on a work, or why it has none, after `took_s` seconds."""
        error = future.exception()
        if error is None:
            result = future.result()
            self._store.finish(key, result=to_line(published(result)), reward=reward(result), error=None)
            self.counts["judged", str(result.status)] += 1
            before_s = took_s if self._mean_s is None else self._mean_s
            self._mean_s = before_s + _SHARE_OF_NEW * (took_s - before_s)
        elif isinstance(error, UserError) and not isinstance(error, EnvironmentLacking):
            text = str(error).replace(f"{self._folder}/", "")
            self._store.finish(key, result=None, reward=None, error=text)
            self.counts["judged", "no verdict"] += 1
        else:
            self._fail(error)
            self._store.strike(key, str(error))

    def _fail(self, error: BaseException) -> None:
        """Ends the service, which cannot go on for the reason `error`. The first reason counts."""
        self.failure = self.failure or error
        self.drain()

    def _check_idle(self) -> None:
        if self.draining and (not self._running or self.failure):
            self.idle.set()
            for key in [*self._watchers]:
                self._tell(key)

    def _tell(self, key: str) -> None:
        for changed in self._watchers.get(key, ()):
            changed.set()

    @contextmanager
    def _watching(self, keys: set[str]) -> Iterator[asyncio.Event]:
        """Returns a context with an event that is set whenever the state of one of these works changes."""
        changed = asyncio.Event()
        for key in keys:
            self._watchers[key].add(changed)
        try:
            yield changed
        finally:
            for key in keys:
                self._watchers[key].discard(changed)
                if not self._watchers[key]:
                    del self._watchers[key]
