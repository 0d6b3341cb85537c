"""What a user may choose about a run."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from kernel_harness.cohort import BASELINE
from kernel_harness.precision import Precision
from kernel_harness.process import Limits


@dataclass(frozen=True)
class Settings:
    """The choices of one run; a device's own defaults stand where a value is None."""

    seed: int = field(default_factory=lambda: secrets.randbits(48))
    budget_s: float | None = None
    rounds: int | None = None
    precision: Precision | None = None
    baseline: str = BASELINE
    jobs: int | None = None
    quick: bool = False
    case: str | None = None
    limits: Limits = field(default_factory=Limits)
