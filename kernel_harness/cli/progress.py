"""Shows the progress of a run on stderr.

A terminal shows one line for each candidate that is being judged, and erases the line when the candidate's result is
final. Without a terminal, a plain line is printed for the first step and for each verdict. After each 10 s in which no
line was printed, the step that has taken longest is printed.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from kernel_harness.core.terminal import terminal
from kernel_harness.results.record import Result, to_line
from kernel_harness.session.run import WAITING

# Only a terminal needs rich, whose import takes 0.1 s.
if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

_LOG = logging.getLogger(__name__)
# Without a terminal, a step is named after _QUIET_S seconds without a line.
_QUIET_S = 10.0


class Shown(ABC):
    """A context manager that shows what `_shown` returns on stderr within its block, if stderr is a terminal.

    `_live` is None if stderr is no terminal.
    """

    def __init__(self, refresh_per_second: int) -> None:
        self._live: Live | None = None
        if terminal(sys.stderr).width is not None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True), refresh_per_second=refresh_per_second, transient=True,
                get_renderable=self._shown,
            )  # fmt: skip

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    @abstractmethod
    def _shown(self) -> RenderableType:
        """Returns what is shown now. Another thread calls this method."""


class Progress(Shown):
    """Shows a line on stderr for each candidate that is being judged: its name, its current step, and the seconds.

    The session that judges calls `stage` and `settled`. `settled` erases a candidate's line. Progress is a context
    manager: the lines are shown inside its block, and the end of the block erases those that are left. If stderr is no
    terminal, a plain line is printed for the first step, each verdict, and each 10 s without a line, unless the steps
    are logged anyway (`-v`). With `as_json`, each final result is also printed to stdout as a line of JSON.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.finished: list[Result] = []
        """The final results."""
        self._as_json = as_json
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._stages: dict[str, str] = {}
        self._printed = 0.0
        self._has_begun = False
        super().__init__(refresh_per_second=8)

    def __enter__(self) -> Self:
        self._printed = time.monotonic()
        self._ended.clear()
        threading.Thread(target=self._remind, daemon=True).start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._ended.set()

    def stage(self, kernel: str, text: str) -> None:
        """Shows that the candidate named `kernel` has begun the step `text`, such as building.

        If `kernel` is empty, it is a step of the harness itself.
        """
        with self._lock:
            if kernel:
                self._stages.pop("", None)
            begins = self._stages.get(kernel, "").split(" ")[0] != text.split(" ")[0]
            if begins:
                self._began[kernel] = time.monotonic()
            self._stages[kernel] = text
            if text != WAITING and not self._has_begun:
                self._has_begun = True
                self._print(kernel, text)
        _LOG.info("%s: %s", kernel or "harness", text)

    def settled(self, result: Result) -> None:
        """Removes the line of the candidate or baseline whose final result is `result`.

        If stderr is a terminal, a line with the name and the status is printed for a failed result only. Otherwise a
        line with the status of each candidate, passed or failed, is printed, unless the steps are logged. The status is
        always logged.
        """
        with self._lock:
            self._stages.pop(result.kernel, None)
            self._began.pop(result.kernel, None)
        seconds = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in result.phases_s.items())
        _LOG.info("%s: %s %s", result.kernel, result.status, seconds)
        for check in result.checks:
            _LOG.debug("%s: %s %s %s", result.kernel, check.case, check.status, check.detail)
        for build in result.builds:
            _LOG.debug("%s: built %s", result.kernel, build)
        if self._live and not result.passed:
            self._live.console.print(f"{result.kernel}: {result.status}", style="red", markup=False, highlight=False)
        elif not result.is_baseline:
            self._print(result.kernel, result.status)
        self.finished.append(result)
        if self._as_json:
            print(to_line(result), flush=True)

    def _print(self, kernel: str, text: str) -> None:
        """Prints a plain line, if stderr is no terminal and the steps are not logged."""
        if self._live is None and not _LOG.isEnabledFor(logging.INFO):
            print(f"{kernel or 'harness'}: {text}", file=sys.stderr, flush=True)
            self._printed = time.monotonic()

    def _remind(self) -> None:
        """Prints the step that has taken longest, with its seconds, after each 10 s without a line."""
        while not self._ended.wait(max(0.0, self._printed + _QUIET_S - time.monotonic())):
            if time.monotonic() < self._printed + _QUIET_S:
                continue
            with self._lock:
                began = {kernel: self._began[kernel] for kernel, text in self._stages.items() if text != WAITING}
                if began:
                    kernel = min(began, key=lambda each: began[each])
                    self._print(kernel, f"{self._stages[kernel]}, {time.monotonic() - began[kernel]:.0f} s")
            self._printed = time.monotonic()

    def _shown(self) -> Table:
        from rich.spinner import Spinner
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        with self._lock:
            for kernel, text in self._stages.items():
                seconds = time.monotonic() - self._began[kernel]
                table.add_row(Spinner("dots"), kernel or "harness", text, f"{seconds:.0f} s")
        return table
