"""The text that lists a problem's kernels, each with its last result on each device."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from kernel_harness.core.paths import command
from kernel_harness.core.terminal import Terminal
from kernel_harness.problem import candidate, lookup, variants
from kernel_harness.problem.problem import Problem, Shape, differing, shape_text
from kernel_harness.results.cells import table
from kernel_harness.results.journal import Journal
from kernel_harness.results.record import Result


def text(problem: Problem, root: Path, results: Path, terminal: Terminal) -> str:
    """Returns a heading for the problem, then a line for each pair of a kernel and a device on which it has a result.

    The heading has the problem's name, its default shape and the first line of its file's docstring. If the results on
    a device are of several shapes, each line names the sizes that differ. A kernel without any result has one line that
    says so. Without kernels, a line names the command that writes one. `root` is the folder with `kernels/`, `results`
    the folder of stored results.
    """
    head = f"{terminal.paint(problem.name, 'bold')}  ({shape_text(problem.shape)})  {problem.title}".rstrip()
    last = _last_results(results / problem.name)
    shapes: dict[str, list[Shape]] = {}
    for label, result in chain.from_iterable(last.values()):
        shapes.setdefault(label, []).append(result.shape)
    rows = []
    for path in lookup.kernel_files(problem.name, root):
        one = candidate.read(path)
        found = [_cells(*each, one.sha256, differing(shapes[each[0]])) for each in last.get(one.name, [])]
        found = found or [(_unjudged(one.name, last), "", "", "")]
        rows += [(one.name if i == 0 else "", *cells, one.title if i == 0 else "") for i, cells in enumerate(found)]
    if not rows:
        return f"{head}\n  no kernels yet; {shlex.join(command())} new {problem.name} NAME writes one to start from"
    listed = table((), rows, "plain", ("left", "left", "right"))
    lines = [_cut(f"  {line}", terminal.width) for line in listed.split("\n")]
    return "\n".join([terminal.wrapped(head), *(_coloured(line, terminal) for line in lines)])


def _last_results(folder: Path) -> dict[str, list[tuple[str, Result]]]:
    """Returns a list for each kernel name: (name of a device's folder, the kernel's last result there), newest first.

    The last result is that of any shape. `folder` holds the stored results of one problem, in a sub-folder for each
    device.
    """
    found: dict[tuple[str, str], Result] = {}
    for path in sorted(folder.glob("*/runs.jsonl")):
        for result in Journal(path.parent).read():
            found[result.kernel, path.parent.name] = result
    by_kernel: dict[str, list[tuple[str, Result]]] = {}
    for (kernel, label), result in sorted(found.items(), key=lambda item: item[1].measured_at, reverse=True):
        by_kernel.setdefault(kernel, []).append((label, result))
    return by_kernel


def _unjudged(name: str, judged: Iterable[str]) -> str:
    """Returns what the line of a kernel without a result says. `judged` are the names of all kernels with a result."""
    count = sum(variants.parts(each)[0] == name for each in judged)
    return f"judged as {count} variant{'s' * (count > 1)} only" if count else "not judged yet"


def _cells(label: str, result: Result, sha256: str, sizes: Sequence[str]) -> tuple[str, str, str, str]:
    """Returns the cells of one line: status, time, device, date.

    `label` is the name of the device's folder. `sha256` is the hash of the kernel file as it is now; if the result is
    of another hash, the status says that it is of an older version. The size constants `sizes` are named, too.
    """
    at = shape_text({name: result.shape[name] for name in sizes if name in result.shape})
    time = f"{result.timing.time_ms:.4g} ms" if result.timing else ""
    time = f"{time} at {at}".strip() if at else time
    stale = "" if result.source_sha256 == sha256 else " (of an older version)"
    return result.status + stale, time, label, result.measured_at.replace("T", " ")[:16]


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 3]}..."


def _coloured(line: str, terminal: Terminal) -> str:
    name, space, rest = line.partition("  PASSED")
    return name + terminal.paint(f"{space}", "green") + rest if space else line
