"""Measures the accuracy of the ladder's kernels, and what Nsight Compute counts in them, at full size.

    python benchmarks/ladder_figures.py --out FILE
    python benchmarks/ladder_figures.py --write FILE

The first command needs a GPU whose counters ncu may read, and the kernels in the build cache: run `harness.py --problem
matmul_tt` before it. ncu's report is written beside FILE. The second puts the tables into docs/ladder.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import pages
import profile_counts
import torch

from kernel_harness import device as devices
from kernel_harness.diagnostics.profile import ncu, one_call
from kernel_harness.problem import candidate as candidates
from kernel_harness.problem import distributions
from kernel_harness.problem import problem as problems

PROBLEM = ROOT / "problems" / "matmul_tt.py"
KERNELS = ROOT / "kernels" / "matmul_tt"
LADDER = (
    "reduction_per_element", "naive", "coalesced", "tiled_pretransposed", "tiled", "register_tile", "double_buffered",
    "warp_tiled", "cublas_direct", "float64_tensor", "tf32x3", "fp16x3_wgmma",
)  # fmt: skip
DISTRIBUTIONS = {"uniform on [0, 1)": distributions.OWN, "normal": "normal", "normal, scaled": "scaled"}
SEED = 1
# What one call of a kernel costs, by the metrics of Nsight Compute. Sums are over all launches of the call; a share is
# that of the launch that takes longest.
SUMS = {
    "time (ms)": (["gpu__time_duration.sum"], 1e-6),
    "DRAM (GB)": (["dram__bytes_read.sum", "dram__bytes_write.sum"], 1e-9),
    "L2 to L1 (GB)": (["l1tex__m_xbar2l1tex_read_bytes.sum"], 1e-9),
    "shared wavefronts (10^6)": (["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"], 1e-6),
    "bank conflicts (10^6)": (["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"], 1e-6),
}
SHARES = {
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue slots": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "FMA units": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "tensor cores": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
}


def errors() -> dict[str, dict[str, dict[str, float]]]:
    """Returns the errors of each kernel and of torch against float64, for each distribution of inputs.

    "norm" is ||C - C64|| / ||C64|| by the Frobenius norm, "element" the largest |C - C64| / (|A|ᵀ |B|ᵀ) of an element.
    """
    problem = problems.load(PROBLEM.stem, PROBLEM).sized(None, emulated=False)
    device = devices.named("cuda")
    models = {name: one_call.loaded(candidates.read(KERNELS / f"{name}.py"), device)[0].ModelNew() for name in LADDER}
    models["torch"] = problem.model("cuda")
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in models}
    for distribution in DISTRIBUTIONS.values():
        inputs = problem.inputs(SEED, distribution, "cuda")
        a, b = (each.double() for each in inputs)
        right, of_terms = a.T @ b.T, a.abs().T @ b.abs().T
        for name, model in models.items():
            difference = model(*inputs).double() - right
            found[name][distribution] = {
                "norm": float(difference.norm() / right.norm()),
                "element": float((difference.abs() / of_terms).max()),
            }
    return found


def counted(report: Path) -> dict[str, list[dict[str, Any]]]:
    """Runs ncu over all kernels, and returns the name and the metrics of each launch, by kernel."""
    metrics = [*chain(*(names for names, _ in SUMS.values())), *SHARES.values()]
    text = profile_counts.report_on(
        [ncu.Call(PROBLEM, KERNELS / f"{n}.py", "cuda:0", {}) for n in LADDER], report, metrics
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for kernel, launch, values in profile_counts.launches(text, metrics):
        found.setdefault(kernel, []).append({"launch": launch, "metrics": values})
    return found


def accuracy_table(rows: list[dict[str, Any]]) -> str:
    """Returns the Markdown table of the errors."""
    head = ["kernel", *DISTRIBUTIONS, "normal, scaled: largest of an element"]
    body = [
        [f"`{r['kernel']}`", *(f"{r['errors'][d]['norm']:.1e}" for d in DISTRIBUTIONS.values()),
         f"{r['errors']['scaled']['element']:.1e}"]
        for r in rows
    ]  # fmt: skip
    return tabulate(body, head, tablefmt="github", disable_numparse=True)


def counter_table(rows: list[dict[str, Any]]) -> str:
    """Returns the Markdown table of what ncu counted."""
    body = []
    for row in rows:
        launches = [launch["metrics"] for launch in row["launches"]]
        if not launches:
            continue
        sums = [sum(m.get(n, 0.0) for m in launches for n in names) * factor for names, factor in SUMS.values()]
        longest = max(launches, key=lambda m: m["gpu__time_duration.sum"])
        shares = [f"{longest[metric]:.0f}%" if metric in longest else "" for metric in SHARES.values()]
        body.append([f"`{row['kernel']}`", *(f"{s:.3g}" if s < 1000 else f"{s:.0f}" for s in sums), *shares])
    return tabulate(body, ["kernel", *SUMS, *SHARES], tablefmt="github", disable_numparse=True)


def main() -> None:
    """Measures, or writes the tables from measured figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--out", type=Path, metavar="FILE")
    choice.add_argument("--write", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.write:
        rows = [json.loads(line) for line in arguments.write.read_text().splitlines()]
        pages.write("ladder.md", "accuracy", accuracy_table(rows))
        pages.write("ladder.md", "counters", counter_table(rows))
        return
    one_call.assembled = lambda sources, arch: {}  # its run of nvcc takes seconds
    devices.named("cuda").prepare()
    with torch.no_grad():
        of_kernels = errors()
    launches = counted(arguments.out.with_suffix(""))
    rows = [{"kernel": name, "errors": each, "launches": launches.get(name, [])} for name, each in of_kernels.items()]
    arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{accuracy_table(rows)}\n\n{counter_table(rows)}")
    if missing := [name for name in LADDER if name not in launches]:
        sys.exit(f"ncu counted nothing in {', '.join(missing)}")


if __name__ == "__main__":
    main()
