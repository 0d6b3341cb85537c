"""The choices that a user makes for a run."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_harness.core.arms import BASELINE, BASELINES, COMPILED
from kernel_harness.core.errors import UserError
from kernel_harness.core.precision import Precision
from kernel_harness.sandbox.process import Limits

QUICK_SHARE = 0.25
"""The share of the default time for timing that `quick` spends."""


@dataclass(frozen=True)
class Settings:
    """The user's choices for one run.

    `seed`: the secret seed of all inputs that candidates are checked on. `budget_s`: the seconds to spend on timing all
    candidates of the run; None takes the device's default. `rounds`: the exact number of timed rounds, which replaces
    `budget_s`; None lets the time budget and the precision of the speedups decide when timing ends. `precision`: the
    coarsest number format that candidates may compute in; None allows only the format of the outputs. `baseline`: the
    arm that speedups compare with. `jobs`: the number of parallel builds; None derives the number from the processors
    and the free memory. `quick`: fewer cases, and a quarter of the default budget. `case`: the name of the only case to
    check, after which nothing is timed; None checks all cases. `compiled`: on a GPU, torch.compile is timed too, even
    if it is not the baseline. `limits`: the limits of each worker process. `results`: the folder of results that the
    user named, or None; commands that reproduce a failure name it again.
    """

    seed: int = field(default_factory=lambda: secrets.randbits(48))
    budget_s: float | None = None
    rounds: int | None = None
    precision: Precision | None = None
    baseline: str = BASELINE
    jobs: int | None = None
    quick: bool = False
    case: str | None = None
    compiled: bool = True
    limits: Limits = field(default_factory=Limits)
    results: Path | None = None

    @classmethod
    def of(
        cls,
        *,
        seed: int | None = None,
        precision: str | None = None,
        call_s: float = 60.0,
        build_s: float = 300.0,
        **more: Any,
    ) -> Settings:
        """Returns the settings for a user's words.

        If `seed` is None, a secret seed is drawn. `precision` is the name of a number format, and `call_s` and
        `build_s` are limits. `more` has other settings. Raises UserError for an unknown number format.
        """
        limits = Limits(call_s=call_s, build_s=build_s)
        chosen = cls(precision=Precision.named(precision), limits=limits, **more)
        return chosen if seed is None else replace(chosen, seed=seed)


def check_baseline(name: str, *, emulated: bool, kernels: Sequence[str] = ()) -> None:
    """Raises UserError if no baseline has this name, or if it cannot run on the device, which may be `emulated`.

    `kernels` are the names of candidates that may serve as the baseline too.
    """
    names = (*BASELINES, *kernels)
    if name not in names:
        raise UserError(f"there is no baseline {name!r}; choose one of {', '.join(names)}")
    if emulated and name in COMPILED:
        raise UserError(f"the baseline {name} needs a GPU: torch.compile cannot compile for the emulated device")
