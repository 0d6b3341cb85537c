"""Shows the progress of a suite on stderr: a line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.text import Text

from kernel_harness.cli.progress import Shown
from kernel_harness.suite import collection
from kernel_harness.suite.device_worker import Task
from kernel_harness.suite.store import Entry

# Without a terminal, a line is printed at most so often.
_QUIET_S = 10.0
# The rate is that of the verdicts of the last minutes.
_RATE_S = 600.0


class SuiteProgress(Shown):
    """The Observer of a suite that shows a bar and the counts of its verdicts. A context manager."""

    def __init__(self, tasks: Sequence[Task], clock: Callable[[], float] = time.monotonic) -> None:
        self.total = len(tasks)
        """The number of candidates."""
        self.by_status: Counter[str] = Counter()
        """Counts the verdicts; candidates of a problem that cannot be used count as "problem unusable"."""
        self._left: Counter[str] = Counter(task.problem.name for task in tasks)
        self._level = {task.problem.name: collection.level(task.problem.path) for task in tasks}
        self._clock, self._began_s = clock, clock()
        self._recent_s: deque[float] = deque()
        self._printed_s = float("-inf")
        super().__init__(refresh_per_second=4)

    def began(self, done: Sequence[Entry]) -> None:
        """Counts the verdicts of earlier runs, shows how many there are, and starts the clock of the rate."""
        self._count(done)
        self._began_s = self._clock()
        self._print(force=True)

    def finished(self, entries: Sequence[Entry]) -> None:
        """Counts new verdicts. Without a terminal, prints a line if none was printed for 10 s, or if all are done."""
        self._count(entries)
        self._recent_s.extend([self._clock()] * len(entries))
        self._print()

    def unusable(self, problem: str, reason: str) -> None:
        """Shows that a problem cannot be used, and why. Its other candidates cannot have a verdict."""
        self.by_status["problem unusable"] += self._left[problem]
        self._left[problem] = 0
        text = f"{problem} cannot be used: {reason}"
        if self._live:
            self._live.console.print(Text(text, style="red"), soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    @property
    def done(self) -> int:
        """The number of candidates that have a verdict or cannot have one."""
        return self.total - self._left.total()

    @property
    def judged(self) -> int:
        """The number of candidates that have a verdict."""
        return self.by_status.total() - self.by_status["problem unusable"]

    def per_hour(self) -> float | None:
        """Returns the new verdicts per hour over the last 10 minutes; None without any."""
        now_s = self._clock()
        while self._recent_s and self._recent_s[0] < now_s - _RATE_S:
            self._recent_s.popleft()
        seconds = min(_RATE_S, now_s - self._began_s)
        return len(self._recent_s) * 3600 / seconds if self._recent_s and seconds > 0 else None

    def text(self) -> str:
        """Returns the counts as one line of text: also of the finished problems of each level, if there are levels."""
        counts = [f"{self.done} of {self.total} candidates", f"{_problems(self._left.values())} problems done"]
        for each in sorted({level for level in self._level.values() if level is not None}):
            of_level = (left for name, left in self._left.items() if self._level[name] == each)
            counts.append(f"level {each}: {_problems(of_level)}")
        counts += [f"{status} {count}" for status, count in self.by_status.most_common()]
        rate = self.per_hour()
        if rate is not None:
            counts.append(f"{rate:,.0f} per hour")
            if self.done < self.total:
                counts.append(f"{duration((self.total - self.done) * 3600 / rate)} left")
        return ", ".join(counts)

    def _count(self, entries: Iterable[Entry]) -> None:
        for one in entries:
            self.by_status[str(one.status)] += 1
            self._left[one.problem] -= 1

    def _print(self, *, force: bool = False) -> None:
        now_s = self._clock()
        if self._live is None and (force or now_s >= self._printed_s + _QUIET_S or self.done == self.total):
            print(self.text(), file=sys.stderr, flush=True)
            self._printed_s = now_s

    def _shown(self) -> Group:
        return Group(ProgressBar(total=max(1, self.total), completed=self.done), Text(self.text()))


def duration(seconds: float) -> str:
    """Returns a duration as text with one unit that suits it: `40 s`, `12 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _problems(left: Iterable[int]) -> str:
    """Returns how many of some problems are finished, where `left` has the unfinished candidates of each."""
    counts = [*left]
    return f"{counts.count(0)} of {len(counts)}"
