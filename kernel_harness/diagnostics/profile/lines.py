"""What each line of a candidate's file does to memory: as text for the user, and as the profile that is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernel_harness.core.terminal import Terminal
from kernel_harness.diagnostics.profile.accesses import SECTOR_BYTES, Access, Recorded, Traffic, Units, Work
from kernel_harness.diagnostics.profile.causes import NOTHING_WRONG, largest
from kernel_harness.diagnostics.profile.resources import LANES
from kernel_harness.results.cells import table
from kernel_harness.results.line_profile import LineCosts, StoredProfile

Columns = Mapping[str, Callable[[Traffic], str]]

_LONGEST_TEXT = 48
# The columns of numbers in the tables of accesses, with what they show of an access.
_BOTH: Columns = {"requests": lambda t: f"{t.requests}", "bytes/thread": lambda t: f"{t.bytes_per_thread:.3g}"}
_GLOBAL: Columns = {
    **_BOTH,
    "sectors/request": lambda t: _ratio(t.sectors, t.requests),
    "least": lambda t: _ratio(t.least_sectors, t.requests),
    "bytes asked": lambda t: f"{t.asked_bytes}",
    "bytes moved": lambda t: f"{SECTOR_BYTES * t.sectors}",
    "efficiency": lambda t: f"{100 * t.least_sectors / t.sectors:.0f}%",
}
_SHARED: Columns = {
    **_BOTH,
    "wavefronts/request": lambda t: _ratio(t.wavefronts, t.requests),
    "least": lambda t: _ratio(t.least_wavefronts, t.requests),
    "ways": lambda t: f"{t.ways}",
    "extra wavefronts": lambda t: f"{t.extra_wavefronts}",
}
_MOST_WORK = 12  # lines of the table of basic blocks


def paragraphs(recorded: Sequence[Recorded], screen: Terminal) -> list[str]:
    """Returns the paragraphs of a profile about lines: tables for each recorded launch, then the largest causes.

    The list is empty if nothing was recorded. The causes are left out if no access belongs to a line. `screen` gives
    the width to which text is wrapped.
    """
    parts = []
    for each in recorded:
        parts += [screen.wrapped(_sampling(each)), *_tables(each.accesses), *_of_units(each.units)]
        parts += _basic_blocks(each, screen)
    if not any(each.accesses for each in recorded):
        return parts
    several = len({each.launch.kernel for each in recorded}) > 1
    causes = [
        f"{i}. {f'{cause.kernel}, ' if several else ''}{cause.sentence}" for i, cause in enumerate(largest(recorded), 1)
    ]
    said = ["Largest causes:", *causes] if causes else [NOTHING_WRONG]
    parts.append(screen.wrapped("\n".join(said)))
    return parts


def _basic_blocks(recorded: Recorded, screen: Terminal) -> list[str]:
    """Returns a table of what the 12 busiest lines execute, and a text about branches. May be empty."""
    busiest = sorted(recorded.work, key=lambda each: -each.steps)
    chosen = sorted(busiest[:_MOST_WORK], key=lambda each: each.line)
    if not chosen:
        return []
    rows = [(_short(each), each.steps, f"{LANES * each.efficiency:.1f}") for each in chosen]
    executed = table(("executed", "basic blocks", "active threads"), rows, align=("left", "right", "right"))
    active = sum(each.threads for each in recorded.work) / sum(each.steps for each in recorded.work)
    text = f"On average {active:.1f} of the 32 threads of a warp take part in a basic block of g++'s code."
    return [executed, screen.wrapped(text)]


def _of_units(units: Sequence[Units]) -> list[str]:
    """Returns a table of bulk copies and one of products, which are not sampled. May be empty."""
    copies = [(_short(u), u.copies, u.read, u.written) for u in units if u.copies]
    products = [(_short(u), u.products, u.operations) for u in units if u.products]
    tables = (
        (("bulk copies, all blocks", "copies", "bytes read", "bytes written"), copies),
        (("wgmma, all blocks", "products", "operations"), products),
    )
    return [table(header, rows, align=("left", *["right"] * (len(header) - 1))) for header, rows in tables if rows]


def _short(of: Work | Access | Units) -> str:
    text = of.text if len(of.text) <= _LONGEST_TEXT else f"{of.text[: _LONGEST_TEXT - 3]}..."
    return f"line {of.line}: {text}"


def _sampling(recorded: Recorded) -> str:
    launch = recorded.launch
    several = recorded.recorded_launches
    text = f"{launch.kernel}, by line: "
    if recorded.complete:
        text += f"all accesses {f'of {several} launches ' if several > 1 else ''}were recorded."
    else:
        text += (
            f"sampled, {recorded.blocks} of {several * launch.blocks} blocks were recorded. The numbers are those of "
            "the sample."
        )
    if recorded.left_out:
        text += f" {recorded.left_out} accesses of threads are left out: more than 1024 by a thread at one place."
    if not recorded.accesses:
        text += " No access belongs to a line of the file."
    if recorded.elsewhere:
        text += f" {recorded.elsewhere} requests are not shown, such as those inside of libraries."
    return text


def _tables(accesses: Sequence[Access]) -> list[str]:
    parts = []
    for memory, columns in (("global memory", _GLOBAL), ("shared memory", _SHARED)):
        those = [each for each in accesses if each.shared is (columns is _SHARED)]
        rows = [(_short(a), str(a.kind), *(cell(a.traffic) for cell in columns.values())) for a in those]
        if rows:
            parts.append(table((memory, "", *columns), rows, align=("left", "left", *["right"] * len(columns))))
    return parts


def _ratio(amount: int, requests: int) -> str:
    return f"{amount / requests:.2f}".rstrip("0").rstrip(".")


def stored(kernel: str, source_sha256: str, shape: Mapping[str, int], recorded: Sequence[Recorded]) -> StoredProfile:
    """Returns the profile by line to store of the `recorded` launches, for the verb `report`.

    `kernel` is the candidate's name, `source_sha256` the hash of its file, and `shape` the problem's size constants.
    """
    causes = tuple(each.sentence for each in largest(recorded))
    sampled = not all(each.complete for each in recorded)
    return StoredProfile(kernel, source_sha256, dict(shape), sampled, causes, _costs(recorded))


def _costs(recorded: Sequence[Recorded]) -> tuple[LineCosts, ...]:
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
