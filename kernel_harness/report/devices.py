"""The page that shows a problem's results on several devices or machines side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.report import page
from kernel_harness.report.page import Page
from kernel_harness.report.templating import rendered
from kernel_harness.results.journal import Journal
from kernel_harness.results.record import Result, at_each_shape
from kernel_harness.timing import intervals
from kernel_harness.timing.intervals import Comparison, Interval

Shape = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Column:
    """The results of one device of one machine.

    `name` is the name of the device, with what distinguishes it from other columns of this name. `page` has the results
    at the shape of the table.
    """

    name: str
    page: Page


@dataclass(frozen=True)
class Cell:
    """What the table says of one kernel on one device.

    `ratio` is the time on the first device divided by the time on this one, and `versus` compares the two. Both are
    None on the first device and where one of the two times is missing.
    """

    result: Result
    ratio: Interval | None
    versus: Comparison | None


def columns(folder: Path) -> dict[Shape, list[Column]]:
    """Returns the columns of the table for each shape at which at least two devices have results.

    `folder` has a folder for each device, with its results of one problem. Results in one folder are of different
    machines if they name different processors. Results of the emulated device are left out: their times do not predict
    a device.
    """
    found: dict[tuple[str, str, str], list[Result]] = {}
    for path in sorted(folder.glob("*/runs.jsonl")):
        for result in (each for stored in Journal(path.parent).read() for each in at_each_shape(stored)):
            if not result.emulated:
                processor = page.facts_of(result).get("processor", "unknown processor")
                found.setdefault((result.device, path.parent.name, processor), []).append(result)
    shapes = dict.fromkeys(tuple(result.shape.items()) for results in found.values() for result in results)
    tables = {shape: [Column(name, Page(results, dict(shape))) for name, results in _named(found)] for shape in shapes}
    filled = {shape: [one for one in each if one.page.results] for shape, each in tables.items()}
    return {shape: each for shape, each in filled.items() if len(each) > 1}


def _named(found: Mapping[tuple[str, str, str], Sequence[Result]]) -> list[tuple[str, Sequence[Result]]]:
    devices = [device for device, _, _ in found]
    return [
        (device if devices.count(device) == 1 else f"{device} ({folder}, {processor})", results)
        for (device, folder, processor), results in found.items()
    ]


def render(problem: str, shape: Shape, columns: Sequence[Column]) -> str:
    """Returns the page as HTML text. The first column is what the others are compared with.

    Raises EnvironmentLacking if matplotlib is not installed.
    """
    from kernel_harness.report import pictures

    facts = [page.facts_of(one.page.results[-1]) for one in columns]
    names = dict.fromkeys(fact for each in facts for fact in each)
    return rendered(
        "devices", problem=problem, shape=", ".join(f"{name} = {value}" for name, value in shape), columns=columns,
        rows={kernel: [cell(kernel, one, columns[0]) for one in columns] for kernel in _kernels(columns)},
        picture=pictures.devices([(one.name, one.page) for one in columns], _kernels(columns)),
        facts={name: [each.get(name, "") for each in facts] for name in names},
    )  # fmt: skip


def cell(kernel: str, column: Column, first: Column) -> Cell | None:
    """Returns the cell of a kernel in a column, or None if the column has no result of it. `first` is the first column.

    The two times are of separate runs, so the interval of their ratio contains the errors of both.
    """
    result, before = (one.page.latest.get(kernel) for one in (column, first))
    if result is None:
        return None
    if column is first or not (result.timing and before and before.timing):
        return Cell(result, None, None)
    ratio = intervals.through_baseline(before.timing.time, result.timing.time)
    return Cell(result, ratio, intervals.compare(ratio))


def _kernels(columns: Sequence[Column]) -> list[str]:
    """Returns the names of all kernels, in the order of the first leaderboard that has them."""
    return list(dict.fromkeys(kernel for one in columns for kernel in one.page.latest))
