"""Facts about this machine and the git checkout that are stored with each result. The device gives further facts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


def environment() -> dict[str, Any]:
    """Returns the Python version, the platform and the state of the git checkout that holds the harness.

    The keys are `python`, `platform`, `commit` and `dirty`. `commit` is the hash of the checked-out commit. `dirty`
    says whether files outside the checkout's folder `results`, new files included, differ from that commit. `commit`
    and `dirty` are absent if the harness does not run from a git checkout or git is not installed.
    """
    import platform

    return {"python": sys.version.split()[0], "platform": f"{platform.system()} {platform.machine()}", **_git()}


def _git() -> dict[str, Any]:
    folder = Path(__file__).parent
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
        if commit.returncode:
            return {}
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--", ":(top,exclude)results"], cwd=folder, capture_output=True, text=True
        )
    except OSError:
        return {}
    return {"commit": commit.stdout.strip(), "dirty": bool(changes.stdout.strip())}
