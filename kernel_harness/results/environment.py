"""Facts about this machine and the git checkout that are stored with each result. The device gives further facts."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any


def environment() -> dict[str, Any]:
    """Returns the Python version, the platform and the state of the git checkout that holds the harness.

    The keys are `python`, `platform`, `commit` and `dirty`. `commit` is the hash of the checked-out commit. `dirty`
    says whether files outside the checkout's folder `results`, new files included, differ from that commit. `commit`
    and `dirty` are absent if git does not track the harness's files where it runs, or if git is not installed.
    """
    return {"python": sys.version.split()[0], "platform": f"{platform.system()} {platform.machine()}", **_git()}


def _git() -> dict[str, Any]:
    # The checkout around the file may be another project's, in whose virtual environment the harness is installed.
    file = Path(__file__)

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=file.parent, capture_output=True, text=True)

    try:
        if git("ls-files", "--error-unmatch", file.name).returncode:
            return {}
        commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", ":(top,exclude)results")
    except OSError:
        return {}
    return {"commit": commit.stdout.strip(), "dirty": bool(changes.stdout.strip())} if not commit.returncode else {}
