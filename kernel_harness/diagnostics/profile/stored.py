"""Makes the profile by line, which is stored for the verb `report`, from the estimates of a profiled call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_harness.diagnostics.profile.causes import largest
from kernel_harness.diagnostics.profile.estimate import Estimate
from kernel_harness.diagnostics.profile.targets import Target
from kernel_harness.results.line_profile import LineCosts, StoredProfile


def of(
    kernel: str, source_sha256: str, shape: Mapping[str, int], estimates: Sequence[Estimate], target: Target
) -> StoredProfile:
    """Returns the profile to store. `estimates` are those of the recorded launches for `target`.

    `kernel` is the candidate's name, `source_sha256` the hash of its file, and `shape` the problem's size constants.
    """
    causes = tuple(f"{each.sentence[:-1]} ({100 * each.share:.0f}%)." for each in largest(estimates, target))
    sampled = not all(each.recorded.complete for each in estimates)
    return StoredProfile(kernel, source_sha256, dict(shape), target.name, sampled, causes, _lines(estimates))


def _lines(estimates: Sequence[Estimate]) -> tuple[LineCosts, ...]:
    sums: dict[int, list[float]] = {}
    texts: dict[int, str] = {}

    def add(line: int, text: str, *costs: float) -> None:
        texts[line] = text
        sums[line] = [a + b for a, b in zip(sums.get(line, [0.0] * 4), costs, strict=True)]

    for estimate in estimates:
        recorded = estimate.recorded
        for access in recorded.accesses:
            traffic, times = access.traffic, recorded.weight * access.traffic.unrecorded
            costs = (traffic.sectors, traffic.extra_sectors, traffic.extra_wavefronts)
            add(access.line, access.text, *(times * each for each in costs), 0)
        for work in recorded.work:
            idle = recorded.weight * (1 - work.executed.efficiency) * work.executed.instructions
            if work.line:
                add(work.line, work.text, 0, 0, 0, idle)
    return tuple(LineCosts(line, texts[line], *sums[line]) for line in sorted(sums) if any(sums[line]))
