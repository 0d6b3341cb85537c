"""Compares the derived lower bounds of KernelBench's problems with what an ideal kernel moves: they must not exceed it.

python benchmarks/lower_bounds.py FOLDER [--only 1/23 ...] [--every N] [--write]

FOLDER holds level1, level2 and level3 of KernelBench. Each problem is reduced to a size for the CPU, where the bound is
derived. An ideal kernel reads each number of an input that differs between draws and each weight at 16 bits once, and
writes each number of an output that differs between runs once, all of them compared one by one. It writes no output
that shares memory with an input or the model. The bound at the problem's own size is the sum of the same shares there,
less the L2 of an H200, at its peak bandwidth. Prints a row for each problem, and exits with 1 if a bound is above the
ideal or a problem cannot run. --write replaces the table of docs/timing.md. Takes half an hour on one core.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
torch.set_num_threads(1)  # the models are small: a second thread waits for longer than it works

import pages

from kernel_harness.checking.cases import Reference
from kernel_harness.checking.lower_bound import LowerBound, derive
from kernel_harness.device import peaks
from kernel_harness.ipc import tensors
from kernel_harness.problem import meta
from kernel_harness.problem import problem as problems

_DRAWS = 4
_L2_BYTES = 60 << 20
_SHEET = peaks.of("NVIDIA H200")


@dataclass(frozen=True)
class Row:
    """The bytes of one problem: the bound, an ideal kernel and all tensors, at a size for the CPU.

    The three bounds are of outputs, inputs and weights. `own` are all tensors at the problem's own size; None where the
    reference does not run on the device `meta`. `fault` says why nothing was derived.
    """

    problem: str
    bound: LowerBound = field(default_factory=LowerBound)
    ideal: LowerBound = field(default_factory=LowerBound)
    whole: LowerBound = field(default_factory=LowerBound)
    own: LowerBound | None = None
    fault: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether a part of the bound is above that of the ideal kernel."""
        parts = zip(_parts(self.bound), _parts(self.ideal), strict=True)
        return any(bound > ideal for bound, ideal in parts)

    @property
    def bound_us(self) -> float | None:
        """The least time at the problem's own size on an H200, in us."""
        if self.own is None or _SHEET is None:
            return None
        ratios = [b / w if w else 0.0 for b, w in zip(_parts(self.bound), _parts(self.whole), strict=True)]
        there = LowerBound(*(ratio * own for ratio, own in zip(ratios, _parts(self.own), strict=True)))
        return 1e6 * there.beyond(_L2_BYTES) / _SHEET.bytes_per_s


def _parts(bound: LowerBound) -> tuple[float, float, float]:
    return bound.written, bound.inputs, bound.weights


def examine(path: Path) -> Row:
    """Returns the row of a problem file."""
    name = f"{path.parent.name.removeprefix('level')}/{path.stem.split('_')[0]}"
    try:
        own = problems.load(path.stem, path)
        reduced = own.on(emulated=True)
        reference = Reference(reduced, "cpu", None)
        return Row(name, derive(reference), *_ideal(reference), _at_own_size(own))
    except Exception as error:
        return Row(name, fault=f"{type(error).__name__}: {str(error)[:100]}")


def _ideal(reference: Reference) -> tuple[LowerBound, LowerBound]:
    """Returns what an ideal kernel moves, and the bytes of all tensors."""
    problem, model = reference.problem, reference.problem.model("cpu")
    weights = list(model.parameters())
    draws = ["own", "own", *(reference.other_distributions() or ["own"])][:_DRAWS]
    before: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
    for distribution in draws:
        packed = reference.new_inputs(distribution)
        placed = [each.clone() for each in packed.tensors]
        outputs = tensors.flatten_output(problem.forward(model, tensors.unflatten(packed.structure, placed)))[1]
        held = {each.untyped_storage().data_ptr() for each in (*weights, *model.buffers(), *placed)}
        fresh = [each for each in outputs if each.untyped_storage().data_ptr() not in held]
        before.append((list(packed.tensors), fresh))
    inputs, written = (_varying([draw[i] for draw in before]) for i in (0, 1))
    ideal = LowerBound(written, inputs, 2.0 * sum(each.numel() for each in weights))
    return ideal, LowerBound(*(float(sum(each.nbytes for each in all_)) for all_ in (outputs, packed.tensors, weights)))


def _varying(draws: Sequence[Sequence[torch.Tensor]]) -> float:
    """Returns the bytes of numbers that are not the same in all draws."""
    first, *others = draws
    found = 0
    for number, tensor in enumerate(first):
        same = torch.ones(tensor.shape, dtype=torch.bool)
        for other in others:
            same &= (tensor == other[number]) | ((tensor != tensor) & (other[number] != other[number]))
        found += int((~same).sum()) * tensor.dtype.itemsize
    return float(found)


def _at_own_size(problem: problems.Problem) -> LowerBound | None:
    try:
        with meta.on_meta():
            inputs = tensors.flatten(problem.inputs(0))[1]
            model = problem.model("cpu")
            outputs = tensors.flatten_output(problem.forward(model, problem.inputs(0)))[1]
    except Exception:
        return None
    all_: list[Any] = [outputs, inputs, list(model.parameters())]
    return LowerBound(*(float(sum(each.nbytes for each in part)) for part in all_))


def table(rows: Sequence[Row]) -> str:
    """Returns the figures of each level as a Markdown table."""
    found = []
    for level in sorted({row.problem[0] for row in rows}):
        own = [row for row in rows if row.problem[0] == level]
        told = [row for row in own if not row.fault]
        shares = [
            [b / i for row in told for b, i in [(_parts(row.bound)[part], _parts(row.ideal)[part])] if i]
            for part in range(3)
        ]
        times = [row.bound_us for row in told if row.bound_us is not None]
        found.append([
            level, f"{len(told)} of {len(own)}", sum(row.is_wrong for row in own),
            *(f"{statistics.median(share):.0%}" if share else "" for share in shares),
            f"{sum(time >= 10 for time in times)} of {len(times)}",
        ])  # fmt: skip
    headings = [
        "level", "problems", "above the ideal", "outputs, median", "inputs, median", "weights, median",
        "10 us or more at full size",
    ]  # fmt: skip
    return tabulate(found, headings, tablefmt="github", disable_numparse=True)


def main() -> int:
    """Prints the rows and the table. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parsed = parser.parse_args()
    files = [path for level in (1, 2, 3) for path in (parsed.folder / f"level{level}").glob("*.py")]
    files.sort(key=lambda path: (path.parent.name, int(re.split(r"\D", path.name)[0])))
    rows = []
    for path in files[:: parsed.every]:
        name = f"{path.parent.name.removeprefix('level')}/{path.stem.split('_')[0]}"
        if parsed.only and name not in parsed.only:
            continue
        rows.append(examine(path))
        _print(rows[-1])
    print(f"\n{table(rows)}")
    if parsed.write:
        pages.write("timing.md", "lower bounds", table(rows))
    return int(any(row.is_wrong or row.fault for row in rows))


def _print(row: Row) -> None:
    text = [
        f"{what} {bound:.0f} <= {ideal:.0f} of {whole:.0f}"
        for what, bound, ideal, whole in zip(
            ("out", "in", "weights"), _parts(row.bound), _parts(row.ideal), _parts(row.whole), strict=True
        )
    ]
    time = math.nan if row.bound_us is None else row.bound_us
    print(row.problem, row.fault or "; ".join(text), f"; {time:.4g} us", "WRONG" if row.is_wrong else "", flush=True)


if __name__ == "__main__":
    sys.exit(main())
