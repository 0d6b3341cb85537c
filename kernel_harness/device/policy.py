"""How the judge spends its time on a device: what a GPU's real times and the emulation's need differently."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Audits:
    """Which timed calls have their outputs compared with the right answer. One such comparison is an audit.

    Of the calls of an arm in a round at most one is audited. It is so in each of the first `rounds` rounds, and until
    audits have taken `seconds`. Later every arm is audited while audits take at most `time_share` of the time of the
    calls; otherwise each with probability `share`. No process of a candidate can know which call it will be.
    """

    rounds: int
    seconds: float
    time_share: float
    share: float


@dataclass(frozen=True)
class Policy:
    """How a device's candidates are built, timed and audited. Times are in the unit that a field's name ends with."""

    build_bytes: int
    """The memory of the host that one build takes."""
    checked_side_by_side: bool
    """Whether the sanitizer may look at several candidates at a time."""
    compiles_baseline: bool
    """Whether torch.compile can compile the reference for this device."""
    budget_s: float
    """The default time for timing in a run."""
    suite_budget_s: float
    """The default time for timing one candidate of a suite or a pool, which has many."""
    half_width: float
    """Timing may stop at this relative half width of a speedup's confidence interval."""
    resolution_ms: float
    """The times of one kernel in two processes differ by this, after any number of samples."""
    least_rounds: int
    """The least number of timed rounds that count, whatever the budget is."""
    least_warmup: int
    most_warmup: int
    """The least and the largest number of warm-up rounds."""
    warm_every: int | None
    """One timed round in so many also times every arm on a warm cache, which costs one call; None for no round. These
    times are only displayed."""
    many_calls_below_ms: float
    """An arm whose calls are shorter is called several times in a round."""
    replayed_below_ms: float
    """An arm whose calls are shorter is also timed as a CUDA graph, which shows its time without the launch."""
    least_device_ms: float
    """A time by the device's own clock that is shorter than this cannot be real, and the judge's time takes its place.
    Infinite for a device without a clock."""
    works_behind: bool
    """Whether the device works on when a call has returned to the host, and when its process is stopped."""
    audits: Audits


# A candidate must cheat in half of the calls to change a median. After the first 32 rounds that is so many calls that
# at least one of them is almost certainly audited.
# On an H200, the times of one kernel in two processes differed by 0.1 to 0.2 us, for kernels of 5, 20 and 200 us. The
# samples are in benchmarks/measured.
# nvcc with torch's headers takes 3 GB.
# Events around an empty kernel measure 2 to 3 us. A shorter time in a worker's report is treated as missing.
ON_GPU = Policy(
    build_bytes=3 << 30, checked_side_by_side=False, compiles_baseline=True,
    budget_s=60.0, suite_budget_s=10.0, half_width=0.005, resolution_ms=2e-4,
    least_rounds=8, least_warmup=2, most_warmup=24, warm_every=4, many_calls_below_ms=0.2, replayed_below_ms=0.02,
    least_device_ms=5e-4, works_behind=True,
    audits=Audits(rounds=32, seconds=0.0, time_share=0.3, share=0.1),
)  # fmt: skip
# Emulated times do not predict the times of a GPU, so a rough measurement is enough: they have no rank and need no
# interval. The float64 answer of a large network takes longer than its calls.
EMULATED = Policy(
    build_bytes=1 << 30, checked_side_by_side=True, compiles_baseline=False,
    budget_s=2.0, suite_budget_s=0.3, half_width=0.05, resolution_ms=0.0,
    least_rounds=2, least_warmup=1, most_warmup=2, warm_every=None, many_calls_below_ms=0.0, replayed_below_ms=0.0,
    least_device_ms=float("inf"), works_behind=False,
    audits=Audits(rounds=0, seconds=2.0, time_share=0.3, share=0.25),
)  # fmt: skip


def of(*, emulated: bool) -> Policy:
    """Returns the policy of a device by whether it is emulated."""
    return EMULATED if emulated else ON_GPU
