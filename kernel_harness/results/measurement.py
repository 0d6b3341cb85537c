"""What was measured of one arm in the rounds of its cohort, at the problem's own size and at further shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing


@dataclass(frozen=True)
class Measurement:
    """What was measured of one arm in the rounds of its cohort, in addition to the samples in `Timing`.

    `own_clock_ms`, `brackets_ms`, `rejected`, `orders`, `device_states` and `distributions` have one entry
    per timed round, in the order of the rounds. `own_clock_ms` has the time of the arm's call by the device's clock, or
    by the judge's clock if the device has none; for short calls it is the median of several. `brackets_ms` has the time
    of the same calls by the judge's clock. An entry of these two is None if the arm was not called in that round. One
    of `brackets_ms` is also None if the device has no clock. An entry of `rejected` is the reason why the round does
    not count, or None if it counts. An entry of `orders` has the names of the arms in the order in which they were
    called. An entry of
    `device_states` has the device's clock rates, temperature and throttling after the round. An entry of
    `distributions` names the distribution of the round's inputs. `warmup_ms` has the times of the arm's calls in the
    warm-up rounds, None for a round without a call. `processes` counts the worker processes that ran this arm, one
    after the other. `waits_for_the_device` says that the called function itself waits for the device; its time then
    includes launch latency. `unordered` says that the kernels do not wait for the stream of their inputs, or the stream
    of the outputs not for the kernels; then the judge's clock alone times the calls. `audits` counts the timed calls in
    the cohort, of any arm, whose outputs were compared with the right values. `beyond_device_ms` is how much longer a
    call takes by the judge's clock than by the device's clock, minus the same difference for the baseline `torch`. The
    judge's clock would have shown device times that are too short by more than `verified_to_ms`. Both are None if they
    could not be computed.
    No rank depends on the fields that follow. `warm_samples_ms` has times of calls whose inputs are in the device's
    cache. `graph_interval_ms` is the time from one call to the next in a CUDA graph that repeats the call, and
    `graph_overhead_ms` the time that one replay of the graph takes in addition to its calls. Both are None if there was
    no replay; `graph_failure` then says why, and is empty if none was tried. `peak_bytes` is the most device memory
    that a call takes, or None if it is unknown. `energy_samples_j` has the joules that the device used, by its own
    counter, from before a long call until after it. `own_share` is the share, from 0 to 1, of a call's time on the
    device that the candidate's own kernels take, or on an emulated device the share of the output's elements that they
    make; None if it is unknown. The worker process reports it, and it decides only where the settings require a share.
    """

    warmup_ms: tuple[float | None, ...] = ()
    own_clock_ms: tuple[float | None, ...] = ()
    brackets_ms: tuple[float | None, ...] = ()
    rejected: tuple[str | None, ...] = ()
    orders: tuple[tuple[str, ...], ...] = ()
    device_states: tuple[Mapping[str, Any], ...] = ()
    processes: int = 1
    waits_for_the_device: bool = False
    unordered: bool = False
    audits: int = 0
    beyond_device_ms: Interval | None = None
    verified_to_ms: float | None = None
    warm_samples_ms: tuple[float, ...] = ()
    graph_interval_ms: float | None = None
    graph_overhead_ms: float | None = None
    graph_failure: str = ""
    peak_bytes: int | None = None
    distributions: tuple[str, ...] = ()
    energy_samples_j: tuple[float, ...] = ()
    own_share: float | None = None

    @property
    def warm_ms(self) -> float | None:
        """The median time of a call whose inputs are in the device's cache, or None if it was not measured."""
        return median(self.warm_samples_ms) if self.warm_samples_ms else None

    @property
    def energy_j(self) -> float | None:
        """The median energy of a call in joules, or None if it was not measured."""
        return median(self.energy_samples_j) if self.energy_samples_j else None


@dataclass(frozen=True)
class FurtherShape:
    """What was measured of one arm at a further shape than the problem's own.

    `shape` has the size constants by name. `timing` is None if the arm was not timed there; `untimed` then says why.
    `measurement`, `as_called` and `numbers` are those of `Result`, at this shape.
    """

    shape: Mapping[str, int]
    timing: Timing | None = None
    untimed: str = ""
    measurement: Measurement | None = None
    as_called: Timing | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def speedup(self) -> Interval | None:
        """The baseline's time divided by the arm's at this shape, or None without these two times."""
        return self.timing.speedup if self.timing else None
