"""Builds the command line that runs the fork server inside bwrap.

It is for machines where only bwrap may create namespaces (some Ubuntu releases).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def usable() -> bool:
    """Returns whether bwrap is installed and can create namespaces."""
    if shutil.which("bwrap") is None:
        return False
    return subprocess.run([*_bwrap(), "true"], capture_output=True).returncode == 0


def around(command: Sequence[str], environment: Mapping[str, str], folder: Path, hidden: Sequence[Path]) -> list[str]:
    """Returns the command line that runs `command` inside bwrap, with the variables in `environment` and no others.

    Inside bwrap, the files of the machine are read-only. `folder` and the folders in `hidden` start empty. They are in
    memory, and all processes inside share them. `folder` holds at most 4 GiB.
    """
    words = _bwrap()
    for path in hidden:
        words += ["--tmpfs", str(path)] if path.is_dir() else []
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return [*words, "--size", str(4 << 30), "--tmpfs", str(folder), "--", *command]


def outer_pid(inner: int, candidates: Sequence[int]) -> int:
    """Returns the number in this namespace of the process whose number inside bwrap's namespace is `inner`.

    `candidates` are the numbers, in this namespace, of the processes to search. Raises ProcessLookupError if none of
    these processes has the number `inner`.
    """
    for pid in candidates:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        if len(numbers) > 1 and int(numbers[-1]) == inner:
            return pid
    raise ProcessLookupError(f"no process has the number {inner} inside the wall")


def _bwrap() -> list[str]:
    """Returns the start of a command line: bwrap, and the options that every use of bwrap has.

    Inside, the processes have namespaces of their own, no network, no capabilities (root would otherwise keep some) and
    no environment variables. The file system is read-only. /dev is minimal, but has the machine's GPUs. The processes
    end with the process that started bwrap.
    """
    gpus = [word for path in sorted(Path("/dev").glob("nvidia*")) for word in ("--dev-bind", str(path), str(path))]
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL",
        "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *gpus,
    ]  # fmt: skip
