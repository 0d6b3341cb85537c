"""The rows of a leaderboard: the values of one result in its columns, at the problem's own size and at each shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernel_harness.problem.problem import shape_text
from kernel_harness.results import roofline
from kernel_harness.results.cells import ratio
from kernel_harness.results.record import Result, at_each_shape

Row = Mapping[str, Any]
"""A row of a leaderboard: its value in each column, by name. An absent value is None."""
COLUMNS = (
    "rank", "kernel", "status", "precision", "time_ms", "time_ms_low", "time_ms_high", "speedup", "speedup_low",
    "speedup_high", "tflops", "percent_of_peak", "gbytes_per_s", "max_abs_error", "relative_error", "shapes",
    "build_s", "source_sha256", "device", "measured_at", "reason", "isolation", "run", "processor", "verified_to",
    "share_of_bound", "peak_bytes", "as_called_ms", "as_called_speedup", "energy_j",
)  # fmt: skip
SHAPE_COLUMNS = (
    "kernel", "shape", "status", "time_ms", "time_ms_low", "time_ms_high", "speedup", "speedup_low", "speedup_high",
    "tflops", "percent_of_peak", "gbytes_per_s", "verified_to", "share_of_bound", "peak_bytes", "as_called_ms",
    "as_called_speedup", "energy_j", "source_sha256", "device", "measured_at", "run", "reason",
)  # fmt: skip
EMULATED = "cpu-emulated"


def row(result: Result) -> dict[str, Any]:
    """Returns the values of a result in COLUMNS, except `rank`, with those beside them (`leaderboard.rank`)."""
    at_each = at_each_shape(result) if result.further else []
    time = result.timing.time if result.timing else None
    speedup = None if result.emulated else result.speedup
    as_called = result.as_called
    return {
        "worst": _worst(result),
        "own_share": result.own_share if not result.emulated or result.settings.require_own_kernels else None,
        "at_each": [{"shape": shape_text(each.shape), **row(each)} for each in at_each],
        "kernel": result.kernel,
        "status": str(result.status),
        "flaw": result.findings[0].text if result.passed and result.findings else None,
        "precision": result.precision and str(result.precision),
        "time_ms": time and time.estimate,
        "time_ms_low": time and time.low,
        "time_ms_high": time and time.high,
        "speedup": speedup and speedup.estimate,
        "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high,
        "tflops": roofline.tflops(result),
        "percent_of_peak": roofline.nearest_roof(result, "peak")[1],
        "gbytes_per_s": roofline.gbytes_per_s(result),
        "max_abs_error": _error(result.max_abs_error),
        "relative_error": _error(result.relative_error),
        "shapes": _shapes(result),
        "build_s": result.build_s,
        "source_sha256": result.source_sha256 or None,
        "device": EMULATED if result.emulated else result.device,
        "measured_at": result.measured_at,
        "reason": " ".join(result.reason.split()) or None,
        "isolation": result.isolation or None,
        "run": result.run or None,
        "processor": result.environment.get("processor"),
        "verified_to": _verified_to(result),
        "share_of_bound": roofline.share_of_bound(result),
        "peak_bytes": result.measurement.peak_bytes if result.measurement else None,
        "as_called_ms": as_called and as_called.time_ms,
        "as_called_speedup": as_called and as_called.speedup and as_called.speedup.estimate,
        "energy_j": result.measurement.energy_j if result.measurement else None,
    }


def _verified_to(result: Result) -> float | None:
    """Returns `verified_to_ms` as a share of the result's time, or None if the time is not verified, or a baseline's.

    The judge's clock cannot show that a device time is too short by less than this share.
    """
    timing, verified_ms = result.timing, result.measurement.verified_to_ms if result.measurement else None
    if result.is_baseline or not verified_ms or not timing or not timing.verified:
        return None
    return verified_ms / timing.time_ms


def _worst(result: Result) -> str | None:
    if result.further and result.timing and not result.is_timed_everywhere:
        return "only at " + "; ".join(shape_text(each.shape) for each in at_each_shape(result) if each.timing)
    if result.worst is None or result.emulated or result.kernel == result.settings.baseline:
        return None
    shape, speedup = result.worst
    return f"{ratio(speedup.estimate)}x at {shape_text(shape)}"


def _error(value: float | None) -> float | str | None:
    """Returns the numerical error `value`, as text if it is NaN or infinite."""
    return value if value is None or math.isfinite(value) else str(value)


def _shapes(result: Result) -> str | None:
    if result.restricted_to:
        return ("only at " if result.further else "only ") + "; ".join(result.restricted_to)
    return f"{result.shapes_checked} checked" if result.checks else None
