"""Where the checkout's parts are, and how a path is shown to whoever typed the command."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = ROOT / "problems"
# Where a kernel file's helpers are importable from, as `custom_cuda_ops` is.
KERNELS = ROOT / "kernels"


def shown(path: Path) -> str:
    """The path as the user would type it from where they stand."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
