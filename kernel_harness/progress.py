"""What a person sees while it waits: a line per candidate, on a terminal only. Everything else is silent here."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kernel_harness.results import Result

_LOG = logging.getLogger(__name__)


class Progress:
    """An Observer. As a context manager it shows itself and wipes itself away at the end."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._lock = threading.Lock()
        self._began: dict[str, float] = {}
        self._stages: dict[str, str] = {}
        self._live: Live | None = None
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True, get_renderable=self._table)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def stage(self, kernel: str, text: str) -> None:
        """A candidate (or, unnamed, the harness) has begun something."""
        with self._lock:
            if kernel:
                self._stages.pop("", None)
            if self._stages.get(kernel, "").split(" ")[0] != text.split(" ")[0]:
                self._began[kernel] = time.monotonic()
            self._stages[kernel] = text
        _LOG.info("%s: %s", kernel or "harness", text)

    def settled(self, result: Result) -> None:
        """A result is final: it needs no line any more, and a failure is said at once."""
        with self._lock:
            self._stages.pop(result.kernel, None)
            self._began.pop(result.kernel, None)
        _LOG.info("%s: %s %s", result.kernel, result.status, _seconds(result))
        for check in result.checks:
            _LOG.debug("%s: %s %s %s", result.kernel, check.case, check.status, check.detail)
        for build in result.builds:
            _LOG.debug("%s: built %s", result.kernel, dict(build))
        if self._live and not result.passed:
            self._console.print(Text(f"{result.kernel}: {result.status}", style="red"))

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        with self._lock:
            for kernel, text in self._stages.items():
                seconds = time.monotonic() - self._began[kernel]
                table.add_row(Spinner("dots"), kernel or "harness", text, f"{seconds:.0f} s")
        return table


def _seconds(result: Result) -> str:
    return ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in result.phases_s.items())
