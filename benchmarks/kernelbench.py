"""Judges known answers to KernelBench's problems, to show that verdicts are right for problems of other authors.

python benchmarks/kernelbench.py FOLDER [--only 1/23 ...] [--every N] [--device cpu]
python benchmarks/kernelbench.py FOLDER --write KERNELS [--only 1/23 ...] [--every N]
python benchmarks/kernelbench.py FOLDER --read suite.jsonl

FOLDER holds level1, level2 and level3 of KernelBench. For each problem five candidates are judged: a copy of the
reference; the reference with float64 inside; zeros; the answer to other inputs; and the reference with bfloat16 inside.
The first two are right, and no other may pass without a remark that the checks cannot tell. Prints a row for each
problem, and exits with 1 if a verdict is wrong. Each problem runs in a process of its own.

--write only writes the candidates as files, for `harness.py suite FOLDER/level1 --kernels KERNELS`. That is faster on a
GPU, where the start of a process takes longer than most verdicts. --read prints the rows for the verdicts of such a
suite.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

RIGHT = ("copy", "float64")
_LONGEST_S = 600
_ON_THE_PROBLEM = re.compile(r"Remark: the (?:checks|reference) .*?(?=Remark|$)")


@dataclass(frozen=True)
class Row:
    """The verdicts on one problem. `remark` holds what the checks cannot tell, `fault` why nothing was judged."""

    problem: str
    shape: str = ""
    verdicts: dict[str, str] | None = None
    reasons: dict[str, str] | None = None
    remark: str = ""
    fault: str = ""
    seconds: float = 0.0
    gigabytes: float = 0.0

    @property
    def wrong(self) -> list[str]:
        """Returns the names of the candidates with a wrong verdict."""
        if self.fault:
            return ["problem"]
        verdicts = self.verdicts or {}
        refused = [name for name in RIGHT if verdicts.get(name) != "PASSED"]
        told = "cannot tell" in self.remark
        return refused + [n for n, v in verdicts.items() if n not in RIGHT and v == "PASSED" and not told]


def candidates(source: str) -> Iterator[tuple[str, str]]:
    """Yields names and texts of the candidates for a problem file."""
    yield "copy", f"{source}\n\nModelNew = Model\n"
    yield "float64", source + _INSIDE.format(kind="float64", wide="torch.float64")
    yield "zeros", source + _ZEROS
    yield "other inputs", source + _OTHER
    yield "bfloat16", source + _INSIDE.format(kind="bfloat16", wide="torch.bfloat16")


_INSIDE = """

import torch
from torch.utils import _pytree as _pytree


def _cast(value, dtype):
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


class _Inside(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "").endswith("_") and isinstance(args[0], torch.Tensor):  # in place
            args, kwargs = _pytree.tree_map(lambda x: _cast(x, args[0].dtype), (args, kwargs or {{}}))
            return func(*args, **kwargs)
        args, kwargs = _pytree.tree_map(lambda x: _cast(x, {wide}), (args, kwargs or {{}}))
        return _pytree.tree_map(lambda x: _cast(x, {wide}), func(*args, **kwargs))


class ModelNew(Model):
    def forward(self, *inputs):
        was = next((x.dtype for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()), torch.float32)
        self.to({wide})
        inputs = [_cast(x, {wide}) for x in inputs]
        with _Inside():
            out = super().forward(*inputs)
        return _pytree.tree_map(lambda x: _cast(x, was), out)
"""
_ZEROS = """

import torch
from torch.utils import _pytree as _pytree


class ModelNew(Model):
    def forward(self, *inputs):
        out = super().forward(*inputs)
        return _pytree.tree_map(lambda x: torch.zeros_like(x) if isinstance(x, torch.Tensor) else x, out)
"""
_OTHER = """

import torch


class ModelNew(Model):
    def forward(self, *inputs):
        def other(x):
            same = not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dim() == 0
            if same:
                return x
            if x.numel() > 1 << 28:  # a GPU draws a random order of 1.6e9 elements for longer than a minute
                return x.flatten().roll(int(torch.randint(1, x.numel(), ()))).reshape(x.shape)
            return x.flatten()[torch.randperm(x.numel(), device=x.device)].reshape(x.shape)

        return super().forward(*map(other, inputs))
"""


def judge(path: Path, device: str) -> Row:
    """Judges the candidates for one problem in this process."""
    from kernel_harness.api import Evaluator
    from kernel_harness.core.errors import UserError
    from kernel_harness.problem.problem import shape_text

    name, start = _name(path), time.monotonic()
    verdicts: dict[str, str] = {}
    reasons: dict[str, str] = {}
    shape, remark = "", ""
    try:
        with Evaluator(path, device=device, budget_s=0.5, seed=1, timeout_s=120) as evaluator:
            for kind, text in candidates(path.read_text()):
                result = evaluator.evaluate(text)
                verdicts[kind], reasons[kind] = str(result.status), _short(result.reason)
                shape = shape_text(result.shape)
                remark = remark or _remark(result.reason)
    except UserError as error:
        return Row(name, shape, verdicts, reasons, fault=f"{type(error).__name__}: {error}"[:300])
    usages = [resource.getrusage(processes) for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    peak_kib = max(usage.ru_maxrss for usage in usages)
    return Row(name, shape, verdicts, reasons, remark, "", time.monotonic() - start, peak_kib / 2**20)


def write(files: Sequence[Path], kernels: Path) -> None:
    """Writes the candidates for the problem files as a suite's folder of candidates: `<problem>/<name>.py`."""
    for path in files:
        folder = kernels / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in candidates(path.read_text()):
            (folder / f"{name}.py").write_text(text)


def read(files: Sequence[Path], journal: Path) -> list[Row]:
    """Returns the rows for the verdicts of a suite, whose file suite.jsonl is `journal`. A problem may have fewer."""
    from kernel_harness.suite.store import SuiteStore

    suite = SuiteStore(journal.parent)
    facts, entries, rows = suite.facts(), suite.read(), []
    for path in files if facts else ():
        own = [entry for entry in entries if entry.problem == path.stem]
        if own:
            # An entry has the first part of a reason only.
            whole = {result.kernel: result.reason for result in suite.details(path.stem, facts.label).read()}
            told = {entry.candidate: whole.get(entry.same_as or entry.candidate, entry.reason) for entry in own}
            verdicts = {entry.candidate: str(entry.status) for entry in own}
            reasons = {name: _short(reason) for name, reason in told.items()}
            remark = next(filter(None, map(_remark, told.values())), "")
            rows.append(Row(_name(path), "", verdicts, reasons, remark, "", sum(entry.seconds for entry in own)))
    return rows


def _short(reason: str) -> str:
    return " ".join(reason.split())[:300]


def _remark(reason: str) -> str:
    return "".join(_ON_THE_PROBLEM.findall(reason))


def _in_a_process(path: Path, device: str) -> Row:
    command = [sys.executable, __file__, str(path), "--device", device, "--one"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S)
        return Row(**json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return Row(_name(path), fault=f"no verdicts within {_LONGEST_S} s")
    except (IndexError, ValueError):
        return Row(_name(path), fault=done.stderr.strip().split("\n")[-1][:300] or f"exit code {done.returncode}")


def _name(path: Path) -> str:
    return f"{path.parent.name.removeprefix('level')}/{path.name.partition('_')[0]}"


def _text(row: Row) -> str:
    cells = [f"{kind} {verdict}" for kind, verdict in (row.verdicts or {}).items()]
    said = [row.fault, row.remark, *(f"{n}: {(row.reasons or {}).get(n)}" for n in row.wrong if not row.fault)]
    head = f"{row.problem:6} {row.seconds:6.1f} s {row.gigabytes:5.2f} GB  {row.shape}"
    return "\n".join([head, "       " + ", ".join(cells), *(f"       {text}" for text in said if text)])


def _files(folder: Path, only: Sequence[str], every: int) -> list[Path]:
    found = [path for level in (1, 2, 3) for path in (folder / f"level{level}").glob("*.py")]
    found.sort(key=lambda path: (path.parent.name, int(path.name.partition("_")[0])))
    return [path for path in found if _name(path) in only] if only else found[::every]


def main() -> int:
    """Judges all chosen problems and prints a row for each, and a summary. Returns 1 if a verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with level1, level2 and level3 of KernelBench")
    parser.add_argument("--only", nargs="*", default=[], metavar="LEVEL/NUMBER", help="judge these problems only")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="judge every Nth problem only")
    parser.add_argument("--device", default="cpu", help="the device, as in harness.py (default: cpu)")
    parser.add_argument("--write", type=Path, metavar="KERNELS", help="write the candidates for a suite to this folder")
    parser.add_argument("--read", type=Path, metavar="FILE", help="read the verdicts from this suite.jsonl")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asdict(judge(options.folder, options.device))))
        return 0
    files = _files(options.folder, options.only, options.every)
    if options.write:
        write(files, options.write)
        return 0
    rows = []
    for row in read(files, options.read) if options.read else (_in_a_process(path, options.device) for path in files):
        rows.append(row)
        print(_text(row), flush=True)
    wrong = {row.problem: row.wrong for row in rows if row.wrong}
    seconds = sorted(row.seconds for row in rows)
    print(f"\n{len(rows)} problems, wrong verdicts in {len(wrong)}: {wrong}")
    if rows:
        print(f"median {seconds[len(rows) // 2]:.1f} s for five candidates, most {seconds[-1]:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
