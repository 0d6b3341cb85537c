"""Compares what `profile` counts without a GPU with what Nsight Compute counts on one, kernel by kernel.

    python benchmarks/profile_counts.py --device cpu --out cpu.jsonl [--only NAME ...]
    python benchmarks/profile_counts.py --compare cpu.jsonl [--gpu FILE] [--write]

The second command compares with `measured/profile_counts_h200.jsonl`, unless `--gpu` names another file. `--write` puts
the tables into docs/profile.md. On a machine with a GPU whose counters ncu may read, such a file is made with:

    python benchmarks/profile_counts.py --device cuda --build
    python benchmarks/profile_counts.py --device cuda --out gpu.jsonl [--only NAME ...]

The first builds all kernels side by side. For the second, one process below ncu calls each kernel twice; the second
call counts. The kernels are the ladder of `matmul_tt` at a small size, and the kernels in tests/emulator/kernels and
tests/emulator/families with their largest case. Kernels of CUDA's libraries (cuBLAS, CUB, Thrust, curand) are left out,
and so are the kernels of torch that a call launches.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import pages
import torch

from kernel_harness import device as devices
from kernel_harness.diagnostics import profile
from kernel_harness.diagnostics.profile import CannotProfile, ncu, one_call
from kernel_harness.diagnostics.profile.accesses import Recorded
from kernel_harness.diagnostics.profile.expressions import Kind
from kernel_harness.diagnostics.profile.resources import base_name
from kernel_harness.problem import candidate as candidates
from kernel_harness.problem import problem as problems
from kernel_harness.workers.fork_server import ForkServer

MEASURED = ROOT / "benchmarks" / "measured" / "profile_counts_h200.jsonl"
NEAR, FAR = 0.02, 0.1
LADDER_SHAPE = {"M": 256, "K": 160, "N": 192}
# Blocks of these wait for each other, and a replay by ncu does not end.
SPINNING = ("lookback_scan", "volatile_flags", "work_queue", "grid_barrier")
# These launch more blocks on a GPU with more multiprocessors, or read memory by instructions of a whole warp or by CUB,
# which `profile` leaves out.
NOT_COMPARED = ("histogram", "stream_compaction", "wmma_bf16_bias", "wmma_gemm", "wmma_tf32")
LIBRARIES = ("cublas", "cub_", "thrust_", "philox", "random_streams", "xorwow", "at_ops")
BUILDS_AT_ONCE = 16
GROUP, GROUP_S = 8, 60
# Each figure is the sum of these metrics of Nsight Compute over the kernels of one call. On an H200, the metrics of
# global loads include cp.async.
_L1 = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
METRICS = {
    "global requests": [_L1.format("requests", op) for op in ("ld", "st", "red", "atom")],
    "global sectors": [_L1.format("sectors", op) for op in ("ld", "st", "red", "atom")],
    "shared wavefronts": [f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")],
    "shared conflicts": [f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")],
}
# These are kept as well, to explain differences.
_MORE = [
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_integer_pred_on.sum", "smsp__inst_executed.sum",
    "smsp__inst_executed_op_ldgsts.sum", "smsp__inst_executed_op_global_ld.sum", "smsp__inst_executed_op_global_st.sum",
    "smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_shared_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
]  # fmt: skip
_RANGE = "profile-counts:"

_PROBLEM = """\
import importlib.util
import torch
spec = importlib.util.spec_from_file_location("cases_of_it", {path!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

class Model(torch.nn.Module):
    def forward(self, *inputs):
        return inputs[0]

def get_inputs():
    return list(module.cases()[{case}])

def get_init_inputs():
    return []
"""
_CANDIDATE = '''\
import torch
from torch.utils.cpp_extension import load_inline
CUDA = r"""{cuda}"""
ops = load_inline(
    name={name!r}, cpp_sources={cpp!r}, cuda_sources=CUDA, functions={functions!r}, extra_cuda_cflags={flags!r}
)

class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return ops.{name}(*inputs)
'''


def calls(folder: Path, device: str, only: Sequence[str]) -> Iterator[ncu.Call]:
    """Yields the call of each kernel. Problems and candidates that are made for it are written to `folder`."""
    product = ROOT / "problems" / "matmul_tt.py"
    for path in sorted((ROOT / "kernels" / "matmul_tt").iterdir()):
        if path.suffix in (".py", ".cu") and not path.stem.startswith(LIBRARIES) and path.stem in (only or [path.stem]):
            yield ncu.Call(product, path, device, LADDER_SHAPE)
    for path in sorted(p for name in ("kernels", "families") for p in (ROOT / "tests/emulator" / name).glob("*.py")):
        if path.stem.startswith(LIBRARIES + SPINNING) or path.stem not in (only or [path.stem]):
            continue
        module = _module(path)
        cases = module.cases()
        largest = max(range(len(cases)), key=lambda i: sum(x.numel() for x in cases[i] if hasattr(x, "numel")))
        problem, candidate = folder / f"problem_{path.stem}.py", folder / f"{path.stem}.py"
        problem.write_text(_PROBLEM.format(path=str(path), case=largest))
        functions = [path.stem] if module.CPP else None
        text = _CANDIDATE.format(
            name=path.stem, cpp=module.CPP, cuda=module.CUDA, functions=functions, flags=getattr(module, "FLAGS", [])
        )
        candidate.write_text(text)
        yield ncu.Call(problem, candidate, device, {})


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(found: Sequence[ncu.Call], folder: Path) -> None:
    """Builds all kernels side by side, so that the build cache has them when ncu watches the calls."""

    def one(call: ncu.Call) -> None:
        listed = folder / f"{call.kernel.stem}.calls"
        listed.write_text(call.to_json())
        done = subprocess.run(_calling(listed), env=_environment(), capture_output=True, text=True)
        if done.returncode or "failed" in done.stderr:
            print(done.stderr[-1500:], file=sys.stderr, flush=True)

    with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
        list(pool.map(one, found))


def counted_by_ncu(found: Sequence[ncu.Call], folder: Path) -> Iterator[dict[str, Any]]:
    """Yields for each kernel launch of the calls its kernel, name and metrics. A group of calls that hangs is left out.

    One process below ncu makes the calls of a group.
    """
    for start in range(0, len(found), GROUP):
        group = found[start : start + GROUP]
        began = time.monotonic()
        try:
            text = report_on(group, folder / f"group{start}", [*chain(*METRICS.values()), *_MORE], timeout_s=GROUP_S)
        except subprocess.TimeoutExpired:
            print(f"no report on {[call.kernel.stem for call in group]}", file=sys.stderr, flush=True)
            continue
        print(f"group {start}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        yield from parsed(text)


def report_on(found: Sequence[ncu.Call], report: Path, wanted: Sequence[str], *, timeout_s: float | None = None) -> str:
    """Makes the calls in one process below ncu. Returns ncu's CSV of raw values, for `launches`.

    ncu counts the metrics `wanted` that it knows. Beside its report `report`.ncu-rep, the calls and the CSV are stored.
    Raises subprocess.TimeoutExpired after `timeout_s` seconds.
    """
    known = _known_metrics()
    there = [name for name in wanted if name.split(".")[0] in known] or wanted
    if unknown := [name for name in wanted if name not in there]:
        print(f"not known to ncu: {unknown}", file=sys.stderr, flush=True)
    listed = report.with_suffix(".calls")
    listed.write_text("\n".join(call.to_json() for call in found))
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--nvtx", "--metrics", ",".join(there)]
    subprocess.run(
        [*command, "-f", "-o", str(report), *_calling(listed)], env=_environment(), stdout=subprocess.DEVNULL,
        timeout=timeout_s,
    )  # fmt: skip
    text = subprocess.run(
        ["ncu", "--import", f"{report}.ncu-rep", "--csv", "--page", "raw", "--print-units", "base"],
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    report.with_suffix(".csv").write_text(text)
    return text


@cache
def _known_metrics() -> set[str]:
    """Returns the metrics that ncu knows, without the endings that name a sum or a share."""
    query = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True).stdout
    return {line.split()[0] for line in query.splitlines() if line.strip()}


def _calling(listed: Path) -> list[str]:
    return [sys.executable, __file__, "--calls", str(listed)]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def parsed(text: str) -> Iterator[dict[str, Any]]:
    """Yields the metrics in ncu's CSV of raw values, summed over the launches of a kernel with one name.

    Metrics that are zero are left out.
    """
    sums: dict[tuple[str, str], Counter[str]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for kernel, launch, metrics in launches(text, [*chain(*METRICS.values()), *_MORE]):
        key = kernel, base_name(launch)
        counts[key] += 1
        sums.setdefault(key, Counter()).update(metrics)
    for (kernel, launch), total in sums.items():
        counted = {name: int(value) for name, value in total.items() if value}
        yield {"kernel": kernel, "launch": launch, "launches": counts[kernel, launch], "metrics": counted}


def launches(text: str, wanted: Sequence[str]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yields the kernel's file, the name and the `wanted` metrics of each launch in ncu's CSV of raw values.

    The first row below the head has the units. A metric that ncu did not count is left out.
    """
    for row in csv.DictReader(io.StringIO(text[text.index('"ID"') :])):
        if not row["ID"]:
            continue
        range_of = next((v for v in row.values() if v and _RANGE in v), "")
        kernel = range_of.split(_RANGE)[1].split('"')[0].split(":")[0] if range_of else ""
        yield kernel, row["Kernel Name"], {name: float(row[name].replace(",", "")) for name in wanted if row.get(name)}


def call_all(listed: Path) -> None:
    """Makes the calls in the file `listed`, a JSON text on each line. A call that fails is told on stderr."""
    one_call.assembled = lambda sources, arch: {}  # its run of nvcc takes seconds and is not cached
    for line in listed.read_text().splitlines():
        call = ncu.Call.parse(line)
        try:
            torch.cuda.nvtx.range_push(f"{_RANGE}{call.kernel.stem}:")
            one_call.main(call, listed.with_suffix(".json"))
        except Exception as error:  # one kernel must not end the run
            print(f"{call.kernel.stem} failed: {error}"[:1500], file=sys.stderr, flush=True)
        finally:
            torch.cuda.nvtx.range_pop()


def counted_by_emulation(found: Sequence[ncu.Call]) -> Iterator[dict[str, Any]]:
    """Yields for each kernel its figures without a GPU, and how many requests are of no line of its file."""
    emulated = devices.named("cpu").emulated
    with ForkServer() as fork_server:
        for call in found:
            problem = problems.load(call.problem.stem, call.problem).sized(call.shape, emulated=emulated)
            candidate = candidates.read(call.kernel)
            try:
                _, _, recorded = profile.counted(problem, candidate, fork_server, lambda text: None)
            except CannotProfile as error:
                print(f"{call.kernel.stem}: {str(error).splitlines()[0][:200]}", file=sys.stderr, flush=True)
                continue
            row = {"kernel": call.kernel.stem, "figures": figures(recorded)}
            row["elsewhere"] = sum(each.elsewhere for each in recorded)
            row["sampled"] = not all(each.complete for each in recorded)
            print(json.dumps(row), file=sys.stderr, flush=True)
            yield row


def figures(recorded: Sequence[Recorded]) -> dict[str, float]:
    """Returns the sums over the recorded launches, in proportion to all their blocks.

    What asynchronous copies write to shared memory is left out, because ncu's metrics of loads, stores and atomics in
    shared memory leave it out, too.
    """
    sums = dict.fromkeys(METRICS, 0.0)
    for each in recorded:
        for access in each.accesses:
            traffic, times = access.traffic, each.weight * access.traffic.unrecorded
            if not access.shared:
                sums["global requests"] += times * traffic.requests
                sums["global sectors"] += times * traffic.sectors
            elif access.kind is not Kind.COPY:
                sums["shared wavefronts"] += times * traffic.wavefronts
                sums["shared conflicts"] += times * traffic.conflicts
    return sums


@dataclass(frozen=True)
class Pair:
    """A figure of a kernel: as ncu counted it on the GPU, and as `profile` counts it without one.

    `of` is what a difference is compared with: the counted figure, for conflicts the counted wavefronts.
    """

    counted: float
    emulated: float
    of: float

    @property
    def error(self) -> float:
        """Returns the difference as a share; infinite if nothing was counted on the GPU alone."""
        difference = self.emulated - self.counted
        return difference / self.of if self.of else math.copysign(math.inf, difference) if difference else 0.0


def counted_on_gpu(gpu: Path) -> dict[str, Counter[str]]:
    """Returns the metrics of each kernel to compare. Launches of kernels of torch are left out."""
    counted: dict[str, Counter[str]] = {}
    for row in map(json.loads, gpu.read_text().splitlines()):
        name = row["launch"]
        if (
            row["kernel"] not in NOT_COMPARED
            and name.isidentifier()
            and re.search(rf"\b{name}\b", _source(row["kernel"]))
        ):
            counted.setdefault(row["kernel"], Counter()).update(row["metrics"])
    return counted


def compared(gpu: Path, cpu: Path) -> dict[str, dict[str, Pair]]:
    """Returns the figures of each kernel that both files have."""
    counted = counted_on_gpu(gpu)
    found = {}
    for row in map(json.loads, cpu.read_text().splitlines()):
        if metrics := counted.get(row["kernel"]):
            sums = {figure: sum(metrics[name] for name in names) for figure, names in METRICS.items()}
            of = {**sums, "shared conflicts": sums["shared wavefronts"]}
            found[row["kernel"]] = {name: Pair(sums[name], row["figures"][name], of[name]) for name in METRICS}
    return found


def _source(kernel: str) -> str:
    folders = ("kernels/matmul_tt", "tests/emulator/kernels", "tests/emulator/families")
    (path,) = [path for path in (ROOT / folder / f"{kernel}.py" for folder in folders) if path.exists()]
    return path.read_text()


def table(rows: Mapping[str, Mapping[str, Pair]]) -> str:
    """Returns the Markdown table of the counted figures with the differences above NEAR, and one with the errors."""
    lines = ["| kernel | " + " | ".join(METRICS) + " |", "|---" * (len(METRICS) + 1) + "|"]
    for kernel, pairs in rows.items():
        lines.append(f"| `{kernel}` | " + " | ".join(_cell(pairs[figure]) for figure in METRICS) + " |")
    summary = ["| figure | kernels that have it | median error | within 2% | within 10% |", "|---|---|---|---|---|"]
    for figure in METRICS:
        errors = [abs(pairs[figure].error) for pairs in rows.values() if pairs[figure].of or pairs[figure].emulated]
        shares = [f"{sum(error <= limit for error in errors) / len(errors):.0%}" for limit in (NEAR, FAR)]
        summary.append(f"| {figure} | {len(errors)} | {median(errors):.1%} | {' | '.join(shares)} |")
    whole = sum(all(abs(pair.error) <= FAR for pair in pairs.values()) for pairs in rows.values())
    sentence = f"Of {len(rows)} kernels, {whole} have all figures within {FAR:.0%}."
    return "\n".join([*summary, "", sentence, "", *lines])


def _cell(pair: Pair) -> str:
    if not pair.of and not pair.emulated:
        return ""
    if abs(pair.error) <= NEAR:
        return f"{pair.counted:,.0f}"
    far = f"{pair.error:+.0%}" if math.isfinite(pair.error) else f"{pair.emulated:,.0f} emulated"
    return f"{pair.counted:,.0f} ({f'**{far}**' if abs(pair.error) > FAR else far})"


def main() -> None:
    """Counts on one device and appends to the file, or compares two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cuda for Nsight Compute, cpu for the emulated device")
    parser.add_argument("--out", type=Path, help="append the counts to this file, a line of JSON for each")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="count only these kernels")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="compare these counts of --device cpu")
    parser.add_argument("--gpu", type=Path, default=MEASURED, metavar="FILE", help="with these of --device cuda")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/profile.md")
    parser.add_argument("--build", action="store_true", help="only build the kernels for the GPU")
    parser.add_argument("--calls", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls:
        call_all(options.calls)
    elif options.compare:
        text = table(compared(options.gpu, options.compare))
        print(text)
        if options.write:
            pages.write("profile.md", "profile counts", text)
    elif options.out or options.build:
        count(options)
    else:
        parser.error("--out is missing")


def count(options: argparse.Namespace) -> None:
    """Counts the kernels that the options name, or only builds them."""
    on_gpu = options.device == "cuda"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = list(calls(folder, "cuda:0" if on_gpu else "cpu", options.only))
        if options.build:
            build(found, folder)
            return
        with options.out.open("a") as file:
            for row in counted_by_ncu(found, folder) if on_gpu else counted_by_emulation(found):
                print(json.dumps(row), file=file, flush=True)


if __name__ == "__main__":
    main()
