"""Waits for work of other threads so that Ctrl-C takes effect soon."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, wait
from typing import Any

_TICK_S = 0.05


def until_done(work: Iterable[Future[Any]]) -> None:
    """Returns when all futures in `work` are done, whether they have a result or an exception.

    Each wait is short, because an interruption that arrives just before a wait takes effect after it.
    """
    waited_for = list(work)
    while wait(waited_for, _TICK_S).not_done:
        pass
