"""Records -> a ranked table -> CSV, Markdown or a terminal's text. Computes first, renders after, measures never."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tabulate import tabulate

from kernel_harness.files import replace_text
from kernel_harness.results import writing

COLUMNS = (
    "rank", "kernel", "status", "precision", "time_ms", "time_ms_low", "time_ms_high", "speedup", "speedup_low",
    "speedup_high", "tflops", "percent_of_peak", "gbytes_per_s", "max_abs_error", "relative_error", "shapes",
    "build_s", "source_sha256", "device", "measured_at", "reason", "isolation", "baseline", "bound",
    "percent_of_ceiling", "warm_ms", "graph_ms", "first_call_ms", "peak_mib",
)  # fmt: skip
EMULATED_NOTE = "Times are the emulation's own: they do not predict a GPU."
EMULATED = "cpu-emulated"
# What Markdown, its tables or the HTML in it would read as more than text; between letters an underscore is one.
_MARKED = re.compile(r"[\\`*|<\[\]~&]|(?<![^\W_])_|_(?![^\W_])")
# What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def rank(records: Sequence[Mapping[str, Any]], shape: Mapping[str, int]) -> pd.DataFrame:
    """One row per kernel: its latest record at the shape, fastest first, failures last. See COLUMNS."""
    rows = sorted((_row(record) for record in latest(records, shape).values()), key=_order)
    place = 0
    for row in rows:
        if row["status"] == "PASSED" and row["time_ms"] is not None and not row.pop("_baseline"):
            place += 1
            row["rank"] = place
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table["rank"] = table["rank"].astype("Int64")
    return table


def latest(records: Sequence[Mapping[str, Any]], shape: Mapping[str, int]) -> dict[str, Mapping[str, Any]]:
    """The record of each kernel that counts at the shape: the last."""
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        if record["shape"] != dict(shape):
            continue
        before = found.get(record["kernel"])
        # What was checked but not yet timed hides neither the time of the same source nor its conviction.
        if before and _still_holds(before, record):
            continue
        found[record["kernel"]] = record
    return found


def _still_holds(before: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    untimed = record["status"] == "PASSED" and record["timing"] is None
    more = before["timing"] or before["status"] == "CHEATED"
    return bool(untimed and more and before["source_sha256"] == record["source_sha256"])


def _order(row: Mapping[str, Any]) -> tuple[bool, bool, float, str]:
    failed, untimed = row["status"] != "PASSED", row["time_ms"] is None
    return failed, untimed, row["time_ms"] or 0.0, row["kernel"]


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    timing = record["timing"] or {}
    speedup = timing.get("speedup") or {}
    numbers, time_ms = record["numbers"], timing.get("time_ms")
    emulated = record["environment"].get("device", "").startswith("CUDA emulated")
    per_s = 1e3 / time_ms if time_ms and not emulated else None
    information = record.get("information", {})
    bound, percent_of_peak = _nearest_roof(record, "peak", per_s)
    peak_bytes = information.get("peak_bytes")
    return {
        "rank": None,
        "_baseline": record["kind"] == "baseline",
        "kernel": record["kernel"],
        "status": record["status"],
        "precision": record["precision"] or None,
        "time_ms": time_ms,
        "time_ms_low": timing.get("time_ms_low"),
        "time_ms_high": timing.get("time_ms_high"),
        "speedup": None if emulated else speedup.get("estimate"),
        "speedup_low": None if emulated else speedup.get("low"),
        "speedup_high": None if emulated else speedup.get("high"),
        "tflops": _product(numbers.get("flops"), per_s, 1e-12),
        "percent_of_peak": percent_of_peak,
        "gbytes_per_s": _product(numbers.get("bytes"), per_s, 1e-9),
        "max_abs_error": record["max_abs_error"],
        "relative_error": record["relative_error"],
        "shapes": _shapes(record),
        "build_s": sum(b.get("seconds", 0.0) for b in record["builds"]) if record["builds"] else None,
        "source_sha256": record["source_sha256"] or None,
        "device": EMULATED if emulated else record["environment"].get("device"),
        "measured_at": record["measured_at"],
        "reason": " ".join(record["reason"].split()) or None,
        "isolation": record["settings"].get("isolation"),
        "baseline": record["settings"].get("baseline") if speedup and not emulated else None,
        "bound": bound,
        "percent_of_ceiling": _nearest_roof(record, "ceiling", per_s)[1],
        "warm_ms": information.get("warm_ms"),
        "graph_ms": information.get("graph_interval_ms"),
        "first_call_ms": information.get("first_call_ms"),
        "peak_mib": peak_bytes / 2**20 if peak_bytes is not None else None,
    }


def _product(number: float | None, per_s: float | None, unit: float) -> float | None:
    return number * per_s * unit if number and per_s else None


def _nearest_roof(record: Mapping[str, Any], roof: str, per_s: float | None) -> tuple[str | None, float | None]:
    """What bounds a kernel and the percentage of it that is reached.

    `roof` is "peak" (the data sheet) or "ceiling" (measured). Compute is that of the number format whose errors were
    seen, float32 where none could tell; of it and memory bandwidth, whichever is nearer.
    """
    numbers, format_ = record["numbers"], record["precision"] or "float32"
    shares = [
        (100 * numbers[work] * per_s / numbers[limit], name)
        for name, work, limit in (
            ("compute", "flops", f"{roof}_{format_}_flops_per_s"), ("memory", "bytes", f"{roof}_bytes_per_s"),
        )
        if per_s and work in numbers and limit in numbers
    ]  # fmt: skip
    percent, bound = max(shares, default=(None, None))
    return bound, percent


def _shapes(record: Mapping[str, Any]) -> str | None:
    if record["restricted_to"]:
        return "only " + "; ".join(record["restricted_to"])
    count = len({check["case"].split(":")[0] for check in record["checks"]})
    return f"{count} checked" if count else None


def csv(table: pd.DataFrame) -> str:
    """Numbers with six significant digits; a text that a spreadsheet would run has an apostrophe before it."""
    texts = table.select_dtypes(exclude="number").map(_inert)
    return str(table.assign(**texts).to_csv(index=False, float_format="%.6g"))


def _inert(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def markdown(text: str) -> str:
    """One line that reads as the text, in a Markdown table too."""
    return _MARKED.sub(r"\\\g<0>", " ".join(text.split()))


def _shown(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The columns a person compares, those that are empty throughout left out."""
    named: dict[str, list[str]] = {
        "rank": ["" if pd.isna(v) else str(v) for v in table["rank"]],
        "kernel": list(table["kernel"]),
        "status": list(table["status"]),
        "time (ms)": [_number(v, "{:.4g}") for v in table["time_ms"]],
        "95% interval": [
            f"{low:.4g} - {high:.4g}" if pd.notna(low) and pd.notna(high) else ""
            for low, high in zip(table["time_ms_low"], table["time_ms_high"], strict=True)
        ],
        "speedup": [_number(v, "{:.3g}x") for v in table["speedup"]],
        "TFLOPS": [_number(v, "{:.3g}") for v in table["tflops"]],
        "% of peak": [_number(v, "{:.3g}") for v in table["percent_of_peak"]],
        "max abs error": [_number(v, "{:.2g}") for v in table["max_abs_error"]],
        "shapes": [v if isinstance(v, str) else "" for v in table["shapes"]],
    }
    kept = {name: cells for name, cells in named.items() if name in ("rank", "kernel", "status") or any(cells)}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def _number(value: Any, form: str) -> str:
    if isinstance(value, str):
        return value  # "nan" or "inf", as the record has it
    return "" if pd.isna(value) else form.format(value)


def render(table: pd.DataFrame, style: str = "simple") -> str:
    """The table as text in one of tabulate's styles, and the reasons of the failures under it."""
    headers, rows = _shown(table)
    if style == "github":
        rows = [list(map(markdown, row)) for row in rows]
    right = {"rank", "time (ms)", "speedup", "TFLOPS", "% of peak", "max abs error"}
    alignment = ["right" if h in right else "left" for h in headers]
    text = tabulate(rows, headers, tablefmt=style, colalign=alignment, disable_numparse=True)
    if (table["device"] == EMULATED).any():
        text += f"\n\n{EMULATED_NOTE}"
    return text


def file_stem(shape: Mapping[str, int], default: Mapping[str, int]) -> str:
    """`leaderboard`, with the shape's numbers where it is not the one that is timed by default."""
    if dict(shape) == dict(default):
        return "leaderboard"
    return "leaderboard-" + "-".join(f"{name}{value}" for name, value in shape.items())


def save(folder: Path, stem: str, title: str, table: pd.DataFrame) -> Path:
    """Replaces the CSV and the Markdown whole: whoever reads them sees the old or the new. The CSV's path.

    Raises results.Unwritable where the folder cannot be written; the files are then as they were.
    """
    text = f"# {markdown(title)}\n\n{render(table, 'github')}\n"
    failed = table[table["reason"].notna()]
    if len(failed):
        cells = (map(markdown, row) for row in failed[["kernel", "status", "reason"]].itertuples(index=False))
        text += "\n" + "\n".join(f"- **{kernel}**: {status}. {reason}" for kernel, status, reason in cells) + "\n"
    with writing(folder / f"{stem}.csv"):
        replace_text(folder / f"{stem}.md", text)
        replace_text(folder / f"{stem}.csv", csv(table))
    return folder / f"{stem}.csv"
