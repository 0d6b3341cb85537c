"""Ranks results in a table (the leaderboard), and writes the table as CSV, Markdown or text for a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import Terminal
from kernel_harness.problem.problem import shape_text
from kernel_harness.results import cells, roofline
from kernel_harness.results.cells import csv, markdown, memory_text, number, ratio
from kernel_harness.results.journal import write
from kernel_harness.results.record import Result

Row = Mapping[str, Any]
"""A row of a leaderboard: its value in each column, by name. An absent value is None."""
COLUMNS = (
    "rank", "kernel", "status", "precision", "time_ms", "time_ms_low", "time_ms_high", "speedup", "speedup_low",
    "speedup_high", "tflops", "percent_of_peak", "gbytes_per_s", "max_abs_error", "relative_error", "shapes",
    "build_s", "source_sha256", "device", "measured_at", "reason", "isolation", "run", "processor", "verified_to",
    "share_of_bound", "peak_bytes", "as_called_ms", "as_called_speedup", "energy_j",
)  # fmt: skip
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
EMULATED = "cpu-emulated"
# The times of calls with launch latency are shown if one of a candidate is so many times its time on the device.
_MUCH_LATENCY = 1.1
# A kernel is named below the table if a call needs so many times the memory of torch's, or torch's so many times its.
_MUCH_MEMORY = 2
# The most columns of characters of a table on a screen, and what is left out of a wider one, in this order.
_WIDEST = 100
_LEFT_OUT = ("of the bound", "TFLOPS", "shapes", "% of peak", "max abs error", "from an earlier run", "95% interval")
# The headings of the column of times.
TIME, EMULATED_TIME = "time (ms)", "emulation, ms"
_INTERVAL = "{time_ms_low:.4g} - {time_ms_high:.4g}"


def rank(results: Sequence[Result], shape: Mapping[str, int]) -> list[Row]:
    """Builds the leaderboard of the results at one shape, with the columns COLUMNS, and `flaw`.

    `flaw` is what the sanitizer has found in a kernel that passed. Such a row is marked.

    It has one row per kernel, from the result that `latest` chooses. The fastest kernel comes first. Kernels that
    passed but have no time follow, then failed kernels, by status and name. Kernels without a time or without its
    interval, failed kernels and baselines have no rank. Emulated results have no ranks, because their times do not
    predict a GPU. Their order does not depend on times: those that passed, by name, then failed ones, by status and
    name.
    """
    chosen = sorted(latest(results, shape).values(), key=_order)
    places = _places(chosen)
    return [{"rank": places.get(r.kernel), **_row(r)} for r in chosen]


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


def latest(results: Sequence[Result], shape: Mapping[str, int]) -> dict[str, Result]:
    """Returns, by kernel name, the one result at a shape that counts for each kernel.

    `results` is ordered from old to new. A kernel's last result counts. Exception: an earlier result that has a time or
    the status CHEATED still counts if the later result has the same source and passed its checks but was not timed.
    """
    found: dict[str, Result] = {}
    for result in results:
        if dict(result.shape) != dict(shape):
            continue
        before = found.get(result.kernel)
        if before is None or not _still_holds(before, result):
            found[result.kernel] = result
    return found


def _still_holds(before: Result, result: Result) -> bool:
    """Returns whether the earlier result `before` of a kernel still counts although `result` is later.

    It does if `before` has a time or the status CHEATED, and `result` is of the same source, passed its checks and was
    not timed. Without this rule, a CHEATED candidate would lose that status by a run that is killed before timing.
    """
    untimed = result.passed and result.timing is None
    more = before.timing is not None or before.status is Status.CHEATED
    return untimed and more and before.source_sha256 == result.source_sha256


def _order(result: Result) -> tuple[bool, bool, float, str, str]:
    time_ms = result.timing.time_ms if result.timing else math.inf
    unverified = result.timing is not None and not result.timing.verified
    return not result.passed, unverified, 0.0 if result.emulated else time_ms, result.status, result.kernel


def _places(results: Sequence[Result]) -> dict[str, int]:
    """Returns the ranks of the kernels, by name.

    Two kernels have different ranks only if the 95% intervals of their times do not overlap: kernels whose intervals
    overlap, directly or through the intervals of others, share a rank. The rank after two kernels on rank 1 is 3. A
    baseline, a kernel without an interval and an emulated result have no rank. A kernel whose time is hardly verified
    ranks after all whose times are verified.
    """
    timed = {r.kernel: r.timing for r in results if r.timing and not r.is_baseline and not r.emulated}
    bounds = sorted(
        (not t.verified, t.time.low, t.time.high, name)
        for name, t in timed.items()
        if t.time.low is not None and t.time.high is not None
    )
    places: dict[str, int] = {}
    place, end, before = 0, 0.0, False
    for count, (unverified, low, high, name) in enumerate(bounds, 1):
        place = count if low > end or unverified is not before else place
        end = high if unverified is not before else max(end, high)
        before = unverified
        places[name] = place
    return places


def _row(result: Result) -> dict[str, Any]:
    time = result.timing.time if result.timing else None
    speedup = result.timing.speedup if result.timing and not result.emulated else None
    as_called = result.as_called
    return {
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


def _error(value: float | None) -> float | str | None:
    """Returns the numerical error `value`, as text if it is NaN or infinite."""
    return value if value is None or math.isfinite(value) else str(value)


def _shapes(result: Result) -> str | None:
    if result.restricted_to:
        return "only " + "; ".join(result.restricted_to)
    return f"{result.shapes_checked} checked" if result.checks else None


def heading(problem: str, results: Sequence[Result], shape: Mapping[str, int]) -> str:
    """Returns the title of a leaderboard: the name of the problem and the shape.

    If a speedup at this shape is relative to another baseline than `torch`, the title also names the baselines of all
    speedups.
    """
    counted = latest(results, shape).values()
    against = {r.settings.baseline for r in counted if r.timing and r.timing.speedup and not r.emulated}
    parts = [problem, *([shape_text(shape)] if shape else [])]
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
        "speedup": ["" if row["speedup"] is None else f"{ratio(row['speedup'])}x" for row in table],
        **({"as called": [*map(_as_called, table)]} if _has_latency(table) else {}),
        "TFLOPS": column("tflops", "{:.3g}"),
        "% of peak": column("percent_of_peak", "{:.3g}"),
        "of the bound": column("share_of_bound", "{:.1%}"),
        "max abs error": column("max_abs_error", "{:.2g}"),
        "shapes": column("shapes"),
        "memory": ["" if row["peak_bytes"] is None else memory_text(row["peak_bytes"]) for row in table],
        "from an earlier run": earlier(table),
    }
    if not memory:
        del named["memory"]
    kept = {name: cells for name, cells in named.items() if name in ("kernel", "status") or any(cells)}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


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
        "rank", TIME, EMULATED_TIME, "speedup", "as called", "TFLOPS", "% of peak", "of the bound", "max abs error",
        "memory",
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


def file_stem(shape: Mapping[str, int], default: Mapping[str, int]) -> str:
    """Returns the file name, without suffix, of the leaderboard at `shape`.

    It is `leaderboard` if `shape` is `default`, the problem's default shape. Otherwise it contains the shape, for
    example `leaderboard-M64-K128-N96`.
    """
    if dict(shape) == dict(default):
        return "leaderboard"
    return "leaderboard-" + "-".join(f"{name}{value}" for name, value in shape.items())


def document(title: str, table: str, reasons: Sequence[tuple[str, str, str]]) -> str:
    """Returns a Markdown document: the heading `title`, the text `table`, and a list of the `reasons`.

    `reasons` has (kernel, status, reason), which are written as plain text.
    """
    lines = ["- **{}**: {}. {}".format(*map(markdown, row)) for row in reasons]
    return "\n".join([f"# {markdown(title)}", "", table, *(["", *lines] if lines else []), ""])


def save(folder: Path, stem: str, title: str, table: Sequence[Row]) -> Path:
    """Writes the leaderboard `table` to `<stem>.csv` and to `<stem>.md` in `folder`. Returns the path of the CSV file.

    The Markdown file has the heading `title` and, below the table, the column `reason`: why kernels failed, and
    remarks.

    Each file is replaced atomically. Raises Unwritable if a file cannot be written; that file is then unchanged.
    """
    reasons = [(row["kernel"], row["status"], row["reason"]) for row in table if row["reason"] is not None]
    text = document(title, render(table, "github"), reasons)
    for name, content in ((f"{stem}.md", text), (f"{stem}.csv", csv(COLUMNS, table))):
        write(folder / name, content)
    return folder / f"{stem}.csv"
