"""Counts the verdicts of a suite while it runs: how many, of which status, how many per hour, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kernel_harness.suite.collection import Task
from kernel_harness.suite.entry import Entry


class Tally:
    """The counts of a suite. Times are in seconds, by a clock of the caller.

    `total` is the number of candidates, `done` the number of those that have a verdict or cannot have one.
    `by_status` counts the verdicts; candidates of a problem that cannot be used count as "problem unusable".
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.total = len(tasks)
        self.by_status: Counter[str] = Counter()
        self._left: Counter[str] = Counter(task.problem.name for task in tasks)
        self.problems = len(self._left)
        self._new = 0
        self._started_s: float | None = None

    def began(self, stored: Iterable[Entry], now_s: float) -> None:
        """Adds the verdicts of earlier runs, and starts the clock of the rate."""
        for one in stored:
            self._count(one)
        self._started_s = now_s

    def finished(self, entries: Iterable[Entry]) -> None:
        """Adds new verdicts."""
        for one in entries:
            self._count(one)
            self._new += 1

    def unusable(self, problem: str) -> None:
        """Adds a problem whose other candidates cannot have a verdict."""
        self.by_status["problem unusable"] += self._left[problem]
        self._left[problem] = 0

    @property
    def done(self) -> int:
        """The number of candidates that have a verdict or cannot have one."""
        return self.total - sum(self._left.values())

    @property
    def judged(self) -> int:
        """The number of candidates that have a verdict."""
        return self.by_status.total() - self.by_status["problem unusable"]

    @property
    def problems_done(self) -> int:
        """The number of problems that cannot be used, or of which every candidate has a verdict."""
        return sum(1 for left in self._left.values() if not left)

    def per_hour(self, now_s: float) -> float | None:
        """Returns the new verdicts per hour since `began`; None before the first."""
        if not self._new or self._started_s is None or now_s <= self._started_s:
            return None
        return self._new * 3600 / (now_s - self._started_s)

    def left_s(self, now_s: float) -> float | None:
        """Returns the seconds until every candidate is done, at the rate so far; None before the first new verdict."""
        rate = self.per_hour(now_s)
        return None if rate is None else (self.total - self.done) * 3600 / rate

    def text(self, now_s: float) -> str:
        """Returns the counts as one line of text."""
        parts = [
            f"{self.done} of {self.total} candidates",
            f"{self.problems_done} of {self.problems} problems done",
            *(f"{status} {count}" for status, count in self.by_status.most_common()),
        ]
        rate, left = self.per_hour(now_s), self.left_s(now_s)
        if rate is not None and left is not None:
            parts += [f"{rate:,.0f} per hour", f"{duration(left)} left" if left else ""]
        return ", ".join(filter(None, parts))

    def _count(self, one: Entry) -> None:
        self.by_status[str(one.status)] += 1
        self._left[one.problem] -= 1


def duration(seconds: float) -> str:
    """Returns a duration as text with one unit that suits it: `40 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
