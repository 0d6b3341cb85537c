"""Problems and kernels as lines of text: what each is about and what became of it the last time. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tabulate import tabulate

from kernel_harness import candidate, underway
from kernel_harness.problem import Problem, shape_text
from kernel_harness.results import Journal
from kernel_harness.terminal import Terminal


def text(problem: Problem, root: Path, results: Path, terminal: Terminal) -> str:
    """One problem: its first line, then a line per kernel and device with its last result, or without one."""
    first = (problem.module.__doc__ or "").strip().split("\n")[0]
    head = f"{terminal.paint(problem.name, 'bold')}  ({shape_text(problem.shape)})  {first}".rstrip()
    last = _last_results(results / problem.name)
    rows = []
    for path in candidate.files(root / "kernels" / problem.name):
        one = candidate.read(path)
        found = [_cells(record, one.sha256) for record in last.get(one.name, [])] or [("not judged yet", "", "", "")]
        rows += [(one.name if i == 0 else "", *cells, one.title if i == 0 else "") for i, cells in enumerate(found)]
    if not rows:
        return f"{head}\n  no kernels yet; python harness.py new {problem.name} NAME starts one"
    table = tabulate(rows, tablefmt="plain", colalign=("left", "left", "right"), disable_numparse=True)
    lines = [_cut(f"  {line}", terminal.width) for line in table.split("\n")]
    return "\n".join([terminal.wrapped(head), *(_coloured(line, terminal) for line in lines)])


def _last_results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The latest record of each kernel on each device, the newest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(folder.glob("*/runs.jsonl")):
        for record in underway.read(Journal(path.parent)):
            found[record["kernel"], path.parent.name] = {**record, "label": path.parent.name}
    by_kernel: dict[str, list[dict[str, Any]]] = {}
    for (kernel, _), record in sorted(found.items(), key=lambda item: item[1]["measured_at"], reverse=True):
        by_kernel.setdefault(kernel, []).append(record)
    return by_kernel


def _cells(record: Mapping[str, Any], sha256: str) -> tuple[str, str, str, str]:
    """Status, time, device, when."""
    timing = record["timing"]
    time = f"{timing['time_ms']:.4g} ms" if timing else ""
    stale = "" if record["source_sha256"] == sha256 else " (of an older version)"
    return record["status"] + stale, time, record["label"], record["measured_at"].replace("T", " ")[:16]


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 3]}..."


def _coloured(line: str, terminal: Terminal) -> str:
    name, space, rest = line.partition("  PASSED")
    return name + terminal.paint(f"{space}", "green") + rest if space else line
