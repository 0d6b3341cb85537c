"""The cells of tables as text: for a CSV file, for Markdown, and numbers for people to read."""

from __future__ import annotations

import csv as csv_module
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from kernel_harness.timing.intervals import Interval

# Characters that Markdown, its tables or HTML would read as markup. An underscore between letters is not markup.
_MARKED = re.compile(r"[\\`*|<\[\]~&]|(?<![^\W_])_|_(?![^\W_])")
# If a cell begins with one of these characters, a spreadsheet takes the cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv(columns: Sequence[Any], rows: Iterable[Mapping[Any, Any]]) -> str:
    """Returns a leaderboard, or a table of a suite, as CSV text: a line with the names `columns`, and the rows.

    A floating-point number has at most six significant digits, an integer all of its digits. A text that a spreadsheet
    would take for a formula gets an apostrophe before it. None and NaN give an empty cell.
    """
    text = io.StringIO()
    writer = csv_module.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(row[name]) for name in columns] for row in rows)
    return text.getvalue()


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.6g}"
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def markdown(text: str) -> str:
    """Returns the text on one line with its markup characters escaped, for a cell of a Markdown table."""
    return _MARKED.sub(r"\\\g<0>", " ".join(text.split()))


def table(
    headers: Sequence[str], rows: Iterable[Sequence[Any]], style: str = "simple", align: Sequence[str] | None = None
) -> str:
    """Returns a table as text in `style`, the name of a table format of the package `tabulate`.

    `align` has "left" or "right" for each column; None stands for the left of all. A cell None is empty. In the style
    "github", the markup characters of the cells are escaped.
    """
    if style == "github":
        rows = [["" if cell is None else markdown(str(cell)) for cell in row] for row in rows]
    return str(tabulate([*rows], headers, tablefmt=style, colalign=align, disable_numparse=True))


def ratio(value: float) -> str:
    """Returns a speedup as text with three significant digits, but `1.004` rather than `1`.

    Near 1, the third decimal tells whether the speedup is different from 1.
    """
    return f"{value:.3f}" if 0.9 < value < 1.1 else f"{value:.3g}"


def bounds(found: Interval, text: Callable[[float], str], between: str = " - ") -> str:
    """Returns the bounds of an interval, such as `0.98 - 1.07`, each as `text` writes it; empty if it has none."""
    return between.join(text(end) for end in (found.low, found.high) if end is not None)


def number(value: Any, form: str) -> str:
    """Returns a number of a table in the format `form`, such as `{:.4g}`; an empty text if it is absent."""
    if isinstance(value, str):
        return value  # "nan" or "inf"
    return "" if value is None else form.format(value)


def memory_text(count: int) -> str:
    """Returns a number of bytes as text in MB or GB, such as `33.6 MB`."""
    return f"{count / 1e9:.3g} GB" if count >= 999.5e6 else f"{count / 1e6:.3g} MB"
