"""The planted bugs: kernels of tests/emulator/planted with one mistake each; its kind and line stand in the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from support.command import ROOT

PLANTED = ROOT / "tests" / "emulator" / "planted"


@dataclass(frozen=True)
class Bug:
    """One of them."""

    path: Path

    @property
    def name(self) -> str:
        """`elements/off_by_one_read`."""
        return self.path.relative_to(PLANTED).with_suffix("").as_posix()

    @property
    def problem(self) -> Path:
        """The file of the problem that the kernel would solve."""
        return PLANTED / "problems" / f"{self.path.parent.name}.py"

    @cached_property
    def kind(self) -> str:
        """As the emulator's sanitizer calls it."""
        return next(re.match(r"// Kind: (.*)", line)[1] for line in self._lines if line.startswith("// Kind:"))

    @cached_property
    def line(self) -> int:
        """Where it is."""
        (marked,) = (i for i, line in enumerate(self._lines, 1) if line.endswith("// BUG"))
        return marked

    @cached_property
    def _lines(self) -> list[str]:
        return self.path.read_text().split("\n")


ALL = [Bug(path) for path in sorted(PLANTED.glob("*/*.cu"))]
