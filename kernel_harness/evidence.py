"""What was tried on a suspect, and whether it convinces. How it is tried is culprit's work."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

FACTOR = 1.25
"""How much longer the sentinel must take beside somebody. A process that merely exists makes no such difference."""


@dataclass(frozen=True)
class Evidence:
    """What the sentinel took, in ms, beside a suspect and without it."""

    beside_ms: tuple[float, ...] = ()
    without_ms: tuple[float, ...] = ()

    @property
    def convinces(self) -> bool:
        """Whether every time beside it is longer by FACTOR than every time without."""
        return all(beside > FACTOR * without for beside in self.beside_ms for without in self.without_ms)

    @property
    def sentence(self) -> str:
        """For whoever wrote the candidate."""
        return (
            "It leaves work behind that goes on after its call has returned and slows down what is timed next: a "
            f"fixed piece of work took {median(self.beside_ms):.4g} ms beside it and {median(self.without_ms):.4g} ms "
            f"without it, in {len(self.beside_ms)} trials each. Wait for all work before you return."
        )
