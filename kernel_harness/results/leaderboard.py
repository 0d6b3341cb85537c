"""Ranks results in a table (the leaderboard), and writes the table as CSV, Markdown or text for a terminal."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import Terminal
from kernel_harness.problem.problem import Shape, shape_text
from kernel_harness.results import cells
from kernel_harness.results.cells import csv, markdown, memory_text, number, ratio
from kernel_harness.results.journal import write
from kernel_harness.results.ranking import latest, ordered, ranks
from kernel_harness.results.record import Result
from kernel_harness.results.rows import COLUMNS, EMULATED, SHAPE_COLUMNS, Row, row

EMULATED_NOTE = "Times are the emulation's own: they do not predict a GPU."
FLAW_NOTE = "(!) The sanitizer found a mistake that changed no answer in the checks: see its remark."
NO_INTERVAL_NOTE = "A time without an interval is of too few rounds for one. A larger --budget allows more rounds."
SHARED_NOTE = "Kernels share a rank if their 95% intervals overlap."
ABOVE_PEAK_NOTE = (
    "The peak is that of the number format in which the outputs are exact, for float32 without tensor cores.\n"
    "Above 100%, a kernel computes in another format, mostly in tensor cores, or does fewer operations than stated."
)
AS_CALLED_NOTE = (
    '"as called" is the time of a call from Python on an idle device, and the speedup over torch. It contains launch\n'
    "latency, and depends on the host. The rank is by the time on the device alone."
)
# The times of calls with launch latency are shown if one of a candidate is so many times its time on the device.
_MUCH_LATENCY = 1.1
# A kernel is named below the table if a call needs so many times the memory of torch's, or torch's so many times its.
_MUCH_MEMORY = 2
# The most columns of characters of a table on a screen, and what is left out of a wider one, in this order.
_WIDEST = 100
_LEFT_OUT = (
    "of the bound", "own kernels", "TFLOPS", "shapes", "% of peak", "max abs error", "from an earlier run",
    "95% interval",
)  # fmt: skip
# The headings of the column of times.
TIME, EMULATED_TIME = "time (ms)", "emulation, ms"
GEOMETRIC_MEAN = "geometric mean"
_INTERVAL = "{time_ms_low:.4g} - {time_ms_high:.4g}"


def rank(results: Sequence[Result], shape: Shape, further: Sequence[Shape] = ()) -> list[Row]:
    """Builds the leaderboard of the results at one shape and `further` ones, with the columns COLUMNS and others.

    `flaw` is what the sanitizer has found in a kernel that passed. Such a row is marked. `at_each` has a row for each
    of several shapes, with the columns SHAPE_COLUMNS; it is empty at one shape. `worst` is the lowest speedup at these
    shapes, with its shape, or the shapes of a kernel that was not timed at all of them. The speedup of a row at several
    shapes is the geometric mean. `own_share` is the share of the work that a kernel's own CUDA kernels do, for people.

    It has one row per kernel, from the result that `latest` chooses. The fastest kernel comes first, at several shapes
    the one with the highest geometric mean. There, kernels that refuse some shapes, or were not timed at all of them,
    come after the others. Kernels that passed but have no time follow, then failed kernels, by status and name.
    Kernels without a time or without its interval, failed kernels and baselines have no rank. Emulated results have no
    ranks, because their times do not predict a GPU. Their order does not depend on times: those that passed, by name,
    then failed ones, by status and name.
    """
    chosen = ordered([*latest(results, shape, further).values()])
    places = ranks(chosen)
    return [{"rank": places.get(r.kernel), **row(r)} for r in chosen]


def sweep(results: Sequence[Result]) -> tuple[dict[str, int], list[Row]]:
    """Returns the size constants that are the same in all `results`, and one table of the leaderboards at all shapes.

    The table has the column `timed at` before those of COLUMNS: the values of the other size constants. The shapes are
    in the order in which they occur first in `results`.
    """
    shapes = list({tuple(result.shape.items()): dict(result.shape) for result in results}.values())
    fixed = {name: value for name, value in shapes[0].items() if all(shape.get(name) == value for shape in shapes)}
    own = [shape_text({name: value for name, value in shape.items() if name not in fixed}) for shape in shapes]
    rows = ({"timed at": at, **row} for at, shape in zip(own, shapes, strict=True) for row in rank(results, shape))
    return fixed, list(rows)


def heading(problem: str, results: Sequence[Result], shape: Shape, further: Sequence[Shape] = ()) -> str:
    """Returns the title of a leaderboard: the name of the problem, the shape and the number of `further` ones.

    If a speedup at this shape is relative to another baseline than `torch`, the title also names the baselines of all
    speedups.
    """
    counted = latest(results, shape, further).values()
    against = {r.settings.baseline for r in counted if r.timing and r.timing.speedup and not r.emulated}
    more = f" and {len(further)} further shape{'s' * (len(further) > 1)}" if further else ""
    parts = [problem, *([shape_text(shape) + more] if shape else [])]
    if len(against) > 1:
        parts.append(f"speedups over different baselines ({', '.join(sorted(against))})")
    elif against - {BASELINE}:
        parts.append(f"speedup over {against.pop()}")
    return ", ".join(parts)


def _shown(table: Sequence[Row], *, memory: bool) -> tuple[list[str], list[list[str]]]:
    """Returns (headings, rows) of the leaderboard `table` as text for people to read.

    The text has fewer columns than the CSV file, and no column that is empty in every row. `memory` says whether the
    peak memory of a call is shown. If any result is from the emulated device, the heading of the times says that they
    are the emulation's.
    """

    def column(name: str, form: str = "{}") -> list[str]:
        return [number(row[name], form) for row in table]

    named: dict[str, list[str]] = {
        **({"timed at": column("timed at")} if _is_sweep(table) else {}),
        "rank": column("rank"),
        "kernel": column("kernel"),
        "status": [row["status"] + (" (!)" if row["flaw"] else "") for row in table],
        EMULATED_TIME if emulated(table) else TIME: column("time_ms", "{:.4g}"),
        "95% interval": [
            "" if None in (row["time_ms_low"], row["time_ms_high"]) else _INTERVAL.format_map(row) for row in table
        ],
        **(_of_shapes(table) if _at_several(table) else {"speedup": [_speedup(row) for row in table]}),
        **({"as called": [*map(_as_called, table)]} if _has_latency(table) else {}),
        "TFLOPS": column("tflops", "{:.3g}"),
        "% of peak": column("percent_of_peak", "{:.3g}"),
        "of the bound": column("share_of_bound", "{:.1%}"),
        "own kernels": column("own_share", "{:.0%}"),
        "max abs error": column("max_abs_error", "{:.2g}"),
        "shapes": column("shapes"),
        "memory": ["" if row["peak_bytes"] is None else memory_text(row["peak_bytes"]) for row in table],
        "from an earlier run": earlier(table),
    }
    if not memory:
        del named["memory"]
    kept = {name: cells for name, cells in named.items() if name in ("kernel", "status") or any(cells)}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def _at_several(table: Sequence[Row]) -> bool:
    return any(row["at_each"] for row in table)


def _of_shapes(table: Sequence[Row]) -> dict[str, list[str]]:
    """Returns the columns that a table of several shapes has in place of the speedup."""
    means = [
        f"{_speedup(row)} ({ratio(row['speedup_low'])} - {ratio(row['speedup_high'])})"
        if row["speedup_low"] is not None and row["speedup_high"] is not None
        else _speedup(row)
        for row in table
    ]
    header = "timed" if all(row["device"] == EMULATED for row in table) else "worst shape"
    return {GEOMETRIC_MEAN: means, header: [row["worst"] or "" for row in table]}


def _speedup(row: Row) -> str:
    return "" if row["speedup"] is None else f"{ratio(row['speedup'])}x"


def _has_latency(table: Sequence[Row]) -> bool:
    """Returns whether launch latency makes a kernel's calls from Python much longer than its time on the device."""
    return any(row["as_called_ms"] and row["as_called_ms"] >= _MUCH_LATENCY * row["time_ms"] for row in table)


def _as_called(row: Row) -> str:
    speedup = row["as_called_speedup"]
    return number(row["as_called_ms"], "{:.4g}") + ("" if speedup is None else f" ({ratio(speedup)}x)")


def _is_sweep(table: Sequence[Row]) -> bool:
    return any("timed at" in row for row in table)


def earlier(table: Sequence[Row]) -> list[str]:
    """Returns for each row of the leaderboard `table` the date and time (UTC) when it was measured, as text.

    The text is empty for rows of the latest run in the table. It also says whether the row was measured on another
    machine than that run, as far as the model of the processor can tell.
    """
    runs = {row["run"] for row in table if row["run"] is not None}
    if len(runs) < 2:
        return [""] * len(table)
    latest_run = max(runs)  # a run's id begins with the time at which the run began
    machine = next(row["processor"] for row in table if row["run"] == latest_run)
    return [
        ""
        if row["run"] == latest_run
        else row["measured_at"][:16].replace("T", " ") + ("" if row["processor"] == machine else ", on another machine")
        for row in table
    ]


def emulated(table: Sequence[Row]) -> bool:
    """Returns whether any result of the leaderboard `table` is from the emulated device."""
    return any(row["device"] == EMULATED for row in table)


def of_interest(table: Sequence[Row], kernels: Collection[str]) -> list[Row]:
    """Returns the rows of the leaderboard `table` of some kernels, of `torch`, and of the best of all kernels."""
    best = [row["kernel"] for row in table if row["rank"] is not None][:1]
    return [row for row in table if row["kernel"] in {*kernels, BASELINE, *best}]


def render(
    table: Sequence[Row], style: str = "simple", terminal: Terminal | None = None, *, memory: bool = False
) -> str:
    """Returns the leaderboard `table` as text in `style`, the name of a table format of the package `tabulate`.

    If `memory` is true, the table has a column for the peak memory of a call.

    On a `terminal`, the statuses have colours, and columns are left out, the least important first, until the lines fit
    into its width and into _WIDEST columns. A note names them.

    Where they apply, notes below the table say that times of the emulated device do not predict a GPU, why a time has
    no interval, why kernels share a rank, which kernels need much more or less memory than torch, and how far the
    judge's clock verifies the times.
    """
    headers, rows = _shown(table, memory=memory)
    right = {
        "rank", TIME, EMULATED_TIME, "speedup", GEOMETRIC_MEAN, "as called", "TFLOPS", "% of peak", "of the bound",
        "own kernels", "max abs error", "memory",
    }  # fmt: skip

    all_headers = headers
    if terminal is not None:
        headers, rows = _fitting(headers, rows, min(_WIDEST, terminal.width or _WIDEST))
    alignment = ["right" if h in right else "left" for h in headers]
    text = cells.table(headers, rows, style, alignment)
    if terminal is not None:
        text = _painted(text, terminal)
    if left_out := [name for name in all_headers if name not in headers]:
        text += f"\n\nToo wide for here, and in the CSV file: {', '.join(left_out)}."
    return "\n\n".join([text, *_notes(table)])


def _notes(table: Sequence[Row]) -> list[str]:
    """Returns the notes below the table (`render`)."""
    notes = []
    if any(row["flaw"] for row in table):
        notes.append(FLAW_NOTE)
    if emulated(table):
        notes.append(EMULATED_NOTE)
    notes += _shapes_note(table)
    if any(row["time_ms"] is not None and row["time_ms_low"] is None for row in table):
        notes.append(NO_INTERVAL_NOTE)
    places = [(row.get("timed at"), row["rank"]) for row in table if row["rank"] is not None]
    if len(set(places)) < len(places):
        notes.append(SHARED_NOTE)
    if any((row["percent_of_peak"] or 0) > 100 for row in table):
        notes.append(ABOVE_PEAK_NOTE)
    if _has_latency(table):
        notes.append(AS_CALLED_NOTE)
    if not _is_sweep(table) and (memory := _memory_note(table)):
        notes.append(memory)
    if verified := [row["verified_to"] for row in table if row["verified_to"] is not None]:
        notes.append(f"The judge's own clock verifies these times to {max(verified):.1%} or better.")
    return notes


def _shapes_note(table: Sequence[Row]) -> list[str]:
    """Returns the note that names the shapes of a leaderboard at several shapes; none at one shape."""
    shapes = [each["shape"] for each in next((row["at_each"] for row in table if row["at_each"]), [])]
    mean = "" if emulated(table) else f"\nThe {GEOMETRIC_MEAN} is that of the speedups at these shapes; it ranks."
    return [f"Timed at {'; '.join(shapes)}. The times are those at the first.{mean}"] if shapes else []


def _memory_note(table: Sequence[Row]) -> str:
    """Returns a note that names the kernels of which a call needs much more or less memory than one of torch."""
    needed = {row["kernel"]: row["peak_bytes"] for row in table if row["peak_bytes"] is not None}
    of_torch = needed.get(BASELINE)
    if not of_torch:
        return ""
    texts = [
        f"{kernel} {memory_text(count)} ({count / of_torch:.3g}x)"
        for kernel, count in needed.items()
        if count >= _MUCH_MEMORY * of_torch or _MUCH_MEMORY * count <= of_torch
    ]
    return f"Peak memory of a call: {BASELINE} {memory_text(of_torch)}, {', '.join(texts)}." if texts else ""


def _fitting(headers: list[str], rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """Returns the headings and rows without as many columns of _LEFT_OUT as needed for lines of `width` characters."""
    for name in _LEFT_OUT:
        lines = cells.table(headers, rows).split("\n")
        if max(map(len, lines)) > width and name in headers:
            at = headers.index(name)
            headers, rows = [h for h in headers if h != name], [row[:at] + row[at + 1 :] for row in rows]
    return headers, rows


def _painted(text: str, terminal: Terminal) -> str:
    """Returns a table with its statuses in colour."""
    for status in Status:
        colour = "green" if status is Status.PASSED else "yellow" if status is Status.UNSUPPORTED else "red"
        text = re.sub(rf"(?<=  ){status}(?= |$)", terminal.paint(status, colour), text, flags=re.MULTILINE)
    return text


def file_stem(shape: Shape, default: Shape, further: Sequence[Shape] = (), usual: Sequence[Shape] = ()) -> str:
    """Returns the file name, without suffix, of the leaderboard at `shape` and at the `further` ones.

    It is `leaderboard` if `shape` is `default`, the problem's default shape, and the further ones are the `usual` ones.
    Otherwise it contains the shape, for example `leaderboard-M64-K128-N96`. For several shapes, which would be too long
    for a file name, it has their number and the beginning of a hash: `leaderboard-3-shapes-5e1f09`.
    """
    shapes = [dict(each) for each in (shape, *further)]
    if shapes == [dict(each) for each in (default, *usual)]:
        return "leaderboard"
    if further:
        text = ";".join(map(shape_text, shapes))
        return f"leaderboard-{len(shapes)}-shapes-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
    return "leaderboard-" + "-".join(f"{name}{value}" for name, value in shape.items())


def document(title: str, table: str, reasons: Sequence[tuple[str, str, str]]) -> str:
    """Returns a Markdown document: the heading `title`, the text `table`, and a list of the `reasons`.

    `reasons` has (kernel, status, reason), which are written as plain text.
    """
    lines = ["- **{}**: {}. {}".format(*map(markdown, row)) for row in reasons]
    return "\n".join([f"# {markdown(title)}", "", table, *(["", *lines] if lines else []), ""])


def of_each_shape(path: Path) -> Path:
    """Returns the path of the CSV file with a row for each shape that belongs to the leaderboard's file `path`."""
    return path.with_name(f"{path.stem}-shapes.csv")


def save(folder: Path, stem: str, title: str, table: Sequence[Row]) -> Path:
    """Writes the leaderboard `table` to `<stem>.csv` and to `<stem>.md` in `folder`. Returns the path of the CSV file.

    A leaderboard at several shapes is also written to `<stem>-shapes.csv`, with a row for each kernel and shape
    (SHAPE_COLUMNS). The Markdown file has the heading `title` and, below the table, the column `reason`: why kernels
    failed, and remarks.

    Each file is replaced atomically. Raises Unwritable if a file cannot be written; that file is then unchanged.
    """
    reasons = [(row["kernel"], row["status"], row["reason"]) for row in table if row["reason"] is not None]
    text = document(title, render(table, "github"), reasons)
    path = folder / f"{stem}.csv"
    files = {f"{stem}.md": text, path.name: csv(COLUMNS, table)}
    if _at_several(table):
        at_each = [each for row in table for each in row["at_each"]]
        files[of_each_shape(path).name] = csv(SHAPE_COLUMNS, at_each)
    for name, content in files.items():
        write(folder / name, content)
    return path
