"""Compares the estimated times of small kernels with the durations that Nsight Compute measured on an H200.

profile_counts.py makes both files and calls `table`. The kernels run at small sizes, so for many the time is hardly
more than that of a launch. No estimate of a launch can tell these apart. So the summary has a row without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

FACTOR = 2.0
# A launch is long if it was measured to take longer than the upper end of what the estimate adds for each launch.
LONG_LAUNCH_US = 5.0


@dataclass(frozen=True)
class Timed:
    """A kernel: the range of its estimated time and its measured time, of all its launches, in microseconds."""

    kernel: str
    launches: int
    low_us: float
    high_us: float
    measured_us: float

    @property
    def middle_us(self) -> float:
        """Returns the geometric mean of the ends."""
        return sqrt(self.low_us * self.high_us)

    @property
    def ratio(self) -> float:
        """Returns the middle of the estimate divided by the measured time."""
        return self.middle_us / self.measured_us

    @property
    def inside(self) -> bool:
        """Returns whether the measured time is within the range."""
        return self.low_us <= self.measured_us <= self.high_us

    @property
    def near(self) -> bool:
        """Returns whether the middle is within FACTOR of the measured time."""
        return 1 / FACTOR <= self.ratio <= FACTOR

    @property
    def long(self) -> bool:
        """Returns whether the work, not the launch, has the larger part of the measured time."""
        return self.measured_us > LONG_LAUNCH_US * self.launches


def table(found: Sequence[Timed]) -> str:
    """Returns the Markdown table of the shares and correlations, and that of the kernels, the shortest time first."""
    summary = [
        "| kernels | number | within the range | middle within a factor of 2 | rank correlation (Spearman) |",
        "|---|---|---|---|---|",
    ]
    long, short = [each for each in found if each.long], [each for each in found if not each.long]
    groups = {
        "all": found,
        f"more than {LONG_LAUNCH_US:g} µs for each launch": long,
        f"at most {LONG_LAUNCH_US:g} µs for each launch": short,
    }
    for name, group in groups.items():
        inside, near = (sum(each) / len(group) for each in ((t.inside for t in group), (t.near for t in group)))
        spearman = rank_correlation([t.middle_us for t in group], [t.measured_us for t in group])
        summary.append(f"| {name} | {len(group)} | {inside:.0%} | {near:.0%} | {spearman:.2f} |")
    lines = ["| kernel | launches | estimate (µs) | middle (µs) | measured (µs) | middle / measured |"]
    lines.append("|---" * 6 + "|")
    for each in sorted(found, key=lambda timed: timed.measured_us):
        ratio = f"{each.ratio:.2f}" if each.near else f"**{each.ratio:.2f}**"
        lines.append(
            f"| `{each.kernel}` | {each.launches} | {each.low_us:.1f} to {each.high_us:.1f} | {each.middle_us:.1f} | "
            f"{each.measured_us:.1f} | {ratio} |"
        )
    return "\n".join([*summary, "", *lines])


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns Spearman's rank correlation: Pearson's correlation of the ranks, where equal values have equal ranks."""
    a, b = _ranks(x), _ranks(y)
    mean = (len(x) - 1) / 2
    products = sum((p - mean) * (q - mean) for p, q in zip(a, b, strict=True))
    return products / sqrt(sum((p - mean) ** 2 for p in a) * sum((q - mean) ** 2 for q in b))


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < v for other in values) + (sum(other == v for other in values) - 1) / 2 for v in values]
