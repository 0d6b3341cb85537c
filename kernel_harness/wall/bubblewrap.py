"""The program bwrap around the template, for machines that let it alone make namespaces (as some Ubuntus do)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def usable() -> bool:
    """Whether bwrap is installed and may do what it is for."""
    if shutil.which("bwrap") is None:
        return False
    return subprocess.run([*_walls(), "true"], capture_output=True).returncode == 0


def around(command: Sequence[str], environment: Mapping[str, str], folder: Path, hidden: Sequence[Path]) -> list[str]:
    """The command with the wall around it. Only `folder`, which starts empty, can be written to, by all inside."""
    wall = _walls()
    for path in hidden:
        wall += ["--tmpfs", str(path)] if path.is_dir() else []
    for name, value in environment.items():
        wall += ["--setenv", name, value]
    return [*wall, "--size", str(4 << 30), "--tmpfs", str(folder), "--", *command]


def outside(process: int, inner: int, below: Sequence[int]) -> int:
    """The number here of the process that is number `inner` within. Raises ProcessLookupError."""
    for pid in (process, *below):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        numbers = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        if len(numbers) > 1 and int(numbers[-1]) == inner:
            return pid
    raise ProcessLookupError(f"no process {inner} behind the wall")


def _walls() -> list[str]:
    """As root alone `--unshare-all` is no sandbox: the capabilities must go too."""
    gpus = [word for path in sorted(Path("/dev").glob("nvidia*")) for word in ("--dev-bind", str(path), str(path))]
    return [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL",
        "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *gpus,
    ]  # fmt: skip
