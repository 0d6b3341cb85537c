"""The part of a result that its judge may show to the author of the kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernel_harness.checking.verify import Check
from kernel_harness.results.measurement import FurtherShape, Measurement
from kernel_harness.results.record import Result
from kernel_harness.timing.statistics import Timing

# What a reader of a time needs. The rest describes the judge's machine.
_ENVIRONMENT = ("device", "torch", "cuda", "driver", "compiler", "python", "platform", "commit", "dirty")


def published(result: Result) -> Result:
    """Returns the result without the seed, the samples and the sizes that were drawn: they would help a forger.

    A check that failed is kept as it is, because its size and values explain the failure. Other checks at sizes that
    are not the timed one keep their errors and lose their sizes and distributions.
    """
    numbers = {
        size: number for number, size in enumerate({tuple(check.shape.items()): None for check in result.checks})
    }

    def shown(check: Check) -> Check:
        if not check.passed or dict(check.shape) == dict(result.shape):
            return check
        return replace(check, case="", shape={"size": numbers[tuple(check.shape.items())]}, distribution="")

    further = (replace(each, **_measured(each)) for each in result.further)
    return replace(
        result, run="", reproduce="", checks=tuple(map(shown, result.checks)), further=tuple(further),
        environment={name: fact for name, fact in result.environment.items() if name in _ENVIRONMENT},
        settings=replace(result.settings, seed=0, cases=()), **_measured(result),
    )  # fmt: skip


def _measured(at: Result | FurtherShape) -> dict[str, Any]:
    """Returns what was measured at one shape, without the samples."""
    found = at.measurement
    return {
        "timing": _without_samples(at.timing), "as_called": _without_samples(at.as_called),
        "measurement": found and Measurement(
            verified_to_ms=found.verified_to_ms, peak_bytes=found.peak_bytes, own_share=found.own_share
        ),
    }  # fmt: skip


def _without_samples(timing: Timing | None) -> Timing | None:
    return timing and replace(timing, samples_ms=(), rejected=())
