"""Makes the profile by line, which is stored for the verb `report`, from what was recorded of a profiled call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_harness.diagnostics.profile.accesses import Recorded
from kernel_harness.diagnostics.profile.causes import largest
from kernel_harness.results.line_profile import LineCosts, StoredProfile


def of(kernel: str, source_sha256: str, shape: Mapping[str, int], recorded: Sequence[Recorded]) -> StoredProfile:
    """Returns the profile to store of the `recorded` launches.

    `kernel` is the candidate's name, `source_sha256` the hash of its file, and `shape` the problem's size constants.
    """
    causes = tuple(each.sentence for each in largest(recorded))
    sampled = not all(each.complete for each in recorded)
    return StoredProfile(kernel, source_sha256, dict(shape), sampled, causes, _lines(recorded))


def _lines(recorded: Sequence[Recorded]) -> tuple[LineCosts, ...]:
    sums: dict[int, list[float]] = {}
    texts: dict[int, str] = {}

    def add(line: int, text: str, *costs: float) -> None:
        texts[line] = text
        sums[line] = [a + b for a, b in zip(sums.get(line, [0.0] * 4), costs, strict=True)]

    for each in recorded:
        for access in each.accesses:
            traffic, times = access.traffic, each.weight * access.traffic.unrecorded
            costs = (traffic.sectors, traffic.extra_sectors, traffic.extra_wavefronts)
            add(access.line, access.text, *(times * cost for cost in costs), 0)
        for work in each.work:
            add(work.line, work.text, 0, 0, 0, each.weight * (1 - work.efficiency) * work.steps)
    return tuple(LineCosts(line, texts[line], *sums[line]) for line in sorted(sums) if any(sums[line]))
