"""Shows the progress of a suite on stderr: a line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.text import Text

from kernel_harness.cli.progress import Shown
from kernel_harness.suite.entry import Entry
from kernel_harness.suite.tally import Tally

# Without a terminal, a line is printed at most so often.
_QUIET_S = 10.0


class SuiteProgress(Shown):
    """The Observer of a suite's driver that shows a bar and the counts of `tally`. A context manager."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._printed_s = float("-inf")
        super().__init__(refresh_per_second=4)

    def began(self, done: Sequence[Entry]) -> None:
        """Counts the verdicts of earlier runs, and shows how many there are."""
        self.tally.began(done, time.monotonic())
        self._print(force=True)

    def finished(self, entries: Sequence[Entry]) -> None:
        """Counts new verdicts. Without a terminal, prints a line if none was printed for 10 s, or if all are done."""
        self.tally.finished(entries)
        self._print()

    def unusable(self, problem: str, reason: str) -> None:
        """Shows that a problem cannot be used, and why."""
        self.tally.unusable(problem)
        self._console.print(Text(f"{problem} cannot be used: {reason}", style="red"), soft_wrap=True)

    def tick(self) -> None:
        """Does nothing: a terminal's line is drawn by its own thread."""

    def _print(self, *, force: bool = False) -> None:
        now_s = time.monotonic()
        if self._live is None and (force or now_s >= self._printed_s + _QUIET_S or self.tally.done == self.tally.total):
            print(self.tally.text(now_s), file=sys.stderr, flush=True)
            self._printed_s = now_s

    def _shown(self) -> Group:
        bar = ProgressBar(total=max(1, self.tally.total), completed=self.tally.done)
        return Group(bar, Text(self.tally.text(time.monotonic())))
