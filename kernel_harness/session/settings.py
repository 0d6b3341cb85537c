"""The choices that a user makes for a run."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_harness.core.arms import BASELINE, BASELINES, COMPILED
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import RESULTS
from kernel_harness.core.precision import Precision
from kernel_harness.workers.process import Limits

QUICK_SHARE = 0.25
"""The share of the default time for timing that `quick` spends."""

TimeShapes = int | Mapping[str, Any] | Sequence[int | Mapping[str, Any]] | None
"""What callers may give as `time_shapes`: `Settings.of` makes a tuple of it."""


@dataclass(frozen=True)
class Settings:
    """The user's choices for one run."""

    seed: int = field(default_factory=lambda: secrets.randbits(48))
    """The secret seed of all inputs that candidates are checked on."""
    budget_s: float | None = None
    """The seconds to spend on timing all candidates of the run; None takes the device's default."""
    rounds: int | None = None
    """The exact number of timed rounds; None lets `budget_s` and the precision of the speedups decide."""
    precision: Precision | None = None
    """The coarsest number format that candidates may compute in; None allows only the format of the outputs."""
    baseline: str = BASELINE
    """The arm that speedups compare with."""
    jobs: int | None = None
    """The number of parallel builds; None derives it from the processors and the free memory."""
    quick: bool = False
    """Fewer cases, and a quarter of the default budget."""
    case: str | None = None
    """The name of the only case to check, after which nothing is timed; None checks all cases."""
    require_own_kernels: float | None = None
    """The least percentage of the work that a candidate's own kernels must do for a rank; None for no such rule."""
    sanitize: bool = False
    """On a GPU, kernels that passed are sanitized, too. Under emulation they always are, if that takes seconds."""
    compiled: bool = True
    """On a GPU, torch.compile is timed too, even if it is not the baseline."""
    limits: Limits = field(default_factory=Limits)
    """The limits of each worker process."""
    results: Path = RESULTS
    """The folder of results. Commands that reproduce a failure name it, unless it is the default."""
    device: str = "auto"
    """The device of a run of the command. Other programs select the device themselves."""
    strict: bool = False
    """On the emulated device, nvcc too must compile each source."""
    shape: Mapping[str, Any] | None = field(default_factory=dict)
    """Values for the problem's size constants (`M`, `N`, ...) in a run of the command.

    A constant without a value keeps its usual value. None stands for the size in the problem's file.
    """
    time_shapes: Sequence[int | Mapping[str, Any]] = ()
    """The further shapes at which candidates are timed, beside those of the problem's file.

    A mapping lists one, and a number stands for so many drawn ones. A 0 leaves out those of the file.
    """
    defines: Sequence[tuple[str, Sequence[str]]] = ()
    """Names of compile-time parameters with their values, in a run of the command: variants of each kernel."""

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
        `build_s` are limits. `more` has other settings; its `time_shapes` may also be one number or mapping, or None
        for those of the problem's file. Raises UserError for an unknown number format, and for a value of another type
        or out of range. Its message calls `call_s` timeout_s, as callers know it.
        """
        for name, value in (("timeout_s", call_s), ("build_s", build_s), ("budget_s", more.get("budget_s"))):
            if value is not None or name != "budget_s":
                _check_seconds(name, value)
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise UserError(f"seed must be a whole number or None, not {seed!r}")
        for name in ("quick", "sanitize"):
            if not isinstance(more.get(name, False), bool):
                raise UserError(f"{name} must be True or False, not {more[name]!r}")
        percent = more.get("require_own_kernels")
        if percent is not None and (type(percent) not in (int, float) or not 0 < percent <= 100):
            raise UserError(f"require_own_kernels must be a percentage above 0 and up to 100, not {percent!r}")
        more["time_shapes"] = _time_shapes(more.get("time_shapes"))
        limits = Limits(call_s=call_s, build_s=build_s)
        chosen = cls(precision=Precision.named(precision), limits=limits, **more)
        return chosen if seed is None else replace(chosen, seed=seed)


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise UserError(f"{name} must be a positive number of seconds, not {value!r}")


def check_shape(name: str, shape: object) -> None:
    """Raises UserError if `shape`, which its caller calls `name`, is not a mapping of names to whole numbers."""
    if not isinstance(shape, Mapping):
        raise UserError(f'{name} must be a mapping such as {{"M": 64}}, not {shape!r}')
    for constant, size in shape.items():
        whole = size if isinstance(size, (tuple, list)) else [size]
        if not isinstance(constant, str) or not all(isinstance(n, int) and not isinstance(n, bool) for n in whole):
            raise UserError(f"{name}[{constant!r}] must be a whole number, not {size!r}")


def _time_shapes(given: Any) -> tuple[int | Mapping[str, Any], ...]:
    each = () if given is None else tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for one in each:
        if isinstance(one, bool) or not isinstance(one, int):
            check_shape("a shape of time_shapes", one)
        elif one < 0:
            raise UserError(f"time_shapes must have numbers of 0 or more, not {one}")
    return each


def check_baseline(name: str, *, emulated: bool, kernels: Sequence[str] = ()) -> None:
    """Raises UserError if no baseline has this name, or if it cannot run on the device, which may be `emulated`.

    `kernels` are the names of candidates that may serve as the baseline too.
    """
    names = (*BASELINES, *kernels)
    if name not in names:
        raise UserError(f"there is no baseline {name!r}; choose one of {', '.join(names)}")
    if emulated and name in COMPILED:
        raise UserError(f"the baseline {name} needs a GPU: torch.compile cannot compile for the emulated device")
