"""What stands between a candidate and everything else. Each worker goes behind it before it reads its candidate.

Which wall a machine has is decided here; how strong it is, `probe` finds out.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from kernel_harness.wall import bubblewrap, landlock, namespaces, privileges

DISK_BYTES = 1 << 30
"""What a worker may keep in its own folder, which is memory: room for any build, and no more."""


class Kind(StrEnum):
    """The walls, strongest first."""

    NAMESPACES = "namespaces"  # what bubblewrap does, by each worker itself: it can be forked, not only executed
    BUBBLEWRAP = "bubblewrap"  # around the template, where only that program may do so; Landlock between workers
    LANDLOCK = "landlock"  # no capabilities, no new privileges, nothing written outside, no network
    NONE = "process"


def best() -> Kind:
    """The strongest wall that this user can have on this machine."""
    if namespaces.usable():
        return Kind.NAMESPACES
    if bubblewrap.usable():
        return Kind.BUBBLEWRAP
    return Kind.LANDLOCK if landlock.version() else Kind.NONE


def weaker(kind: Kind) -> Kind:
    """What to try where a wall turned out not to stand; a template's own wall cannot be changed any more."""
    return Kind.LANDLOCK if kind is Kind.NAMESPACES and landlock.version() else Kind.NONE


def enter(kind: Kind, folder: Path, hidden: Sequence[Path]) -> None:
    """Goes behind the wall for good. `folder` is what can still be written to. Raises OSError where it fails."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where memory runs out the kernel should end a worker, not the judge.
    Path("/proc/self/oom_score_adj").write_text("1000")
    folder.mkdir(exist_ok=True)
    if kind is Kind.NAMESPACES:
        namespaces.become_user()
        namespaces.furnish(folder, _hideable(hidden, folder), DISK_BYTES)
        privileges.drop()
    elif kind is not Kind.NONE:
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
        privileges.drop(own_signals_only=landlock.version() < landlock.SIGNALS_SINCE)
        if kind is Kind.LANDLOCK or landlock.version():
            landlock.restrict([folder, *_devices()], _hideable(hidden, folder))
    os.chdir(folder)


def _devices() -> list[Path]:
    return [*(Path("/dev") / name for name in ("null", "zero", "full")), *Path("/dev").glob("nvidia*")]


def _hideable(hidden: Sequence[Path], folder: Path) -> list[Path]:
    """Those under which nothing lies that a worker cannot do without."""
    places = (shutil.which("c++"), os.__file__, sys.prefix, os.environ.get("KERNEL_HARNESS_CACHE"))
    needed = [Path(__file__).parent, folder, *map(Path, filter(None, places))]
    return [h for h in hidden if not any(n.resolve().is_relative_to(h.resolve()) for n in needed)]
