"""Measures the accuracy of the ladder's kernels, and what Nsight Compute counts in them, at full size.

    python benchmarks/ladder_figures.py --out FILE
    python benchmarks/ladder_figures.py --write FILE

The first command needs a GPU whose counters ncu may read, and the kernels in the build cache: run `harness.py --problem
matmul_tt` before it. ncu's reports and their texts are written beside FILE: one of all kernels, and `full`, which has
every section for a few of them. The second puts the tables into docs/ladder.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import pages
import torch

from kernel_harness import device as devices
from kernel_harness.diagnostics.profile import one_call
from kernel_harness.problem import candidate as candidates
from kernel_harness.problem import problem as problems

LADDER = (
    "reduction_per_element", "naive", "coalesced", "tiled_pretransposed", "tiled", "register_tile", "double_buffered",
    "warp_tiled", "cublas_direct", "float64_tensor", "tf32x3", "fp16x3_wgmma",
)  # fmt: skip
DETAILED = ("double_buffered", "warp_tiled", "cublas_direct", "tf32x3")
DISTRIBUTIONS = {"uniform on [0, 1)": problems.OWN, "normal": "normal", "normal, scaled": "scaled"}
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


def errors(name: str) -> dict[str, dict[str, float]]:
    """Returns the errors of a kernel's outputs against float64, for each distribution of inputs.

    "norm" is ||C - C64|| / ||C64|| by the Frobenius norm, "element" the largest |C - C64| / (|A|ᵀ |B|ᵀ) of an element.
    """
    problem = problems.load("matmul_tt", ROOT / "problems/matmul_tt.py").sized(None, emulated=False)
    model = _model(name, problem)
    found = {}
    for distribution in DISTRIBUTIONS.values():
        a, b = problem.inputs(SEED, distribution, "cuda")
        output = model(a, b).double()
        right = a.double().T @ b.double().T
        of_terms = a.double().abs().T @ b.double().abs().T
        difference = output - right
        found[distribution] = {
            "norm": float(difference.norm() / right.norm()), "element": float((difference.abs() / of_terms).max())
        }  # fmt: skip
    return found


def _model(name: str, problem: problems.Problem) -> Any:
    path = ROOT / "kernels/matmul_tt" / f"{name}.py"
    if name == "torch":
        return problem.model("cuda")
    module, _ = one_call._loaded(candidates.read(path), devices.named("cuda"))
    return module.ModelNew()


def call_all(names: Sequence[str]) -> None:
    """Calls each kernel twice. The second call is between the marks for ncu."""
    problem = problems.load("matmul_tt", ROOT / "problems/matmul_tt.py").sized(None, emulated=False)
    a, b = problem.inputs(SEED, device="cuda")
    for name in names:
        model = _model(name, problem)
        model(a, b)
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_push(f"rung:{name}:")
        torch.cuda.profiler.start()
        model(a, b)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        torch.cuda.nvtx.range_pop()


def counted(report: Path, names: Sequence[str], more: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Runs ncu over all kernels, and returns the name and the metrics of each launch, by kernel."""
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--nvtx", *more]
    query = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True).stdout
    known = {line.split()[0] for line in query.splitlines() if line.strip()}
    wanted = [*(m for names, _ in SUMS.values() for m in names), *SHARES.values()]
    command += ["--metrics", ",".join(m for m in wanted if m.split(".")[0] in known)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    subprocess.run(
        [*command, "-f", "-o", str(report), sys.executable, __file__, "--call", *names], env=environment, check=True
    )
    read = ["ncu", "--import", f"{report}.ncu-rep"]
    for page in ("details", "source"):
        text = subprocess.run(
            [*read, "--page", page, *(["--csv"] * (page == "source"))], capture_output=True, text=True
        )
        report.with_suffix(f".{page}.txt").write_text(text.stdout)
    raw = subprocess.run([*read, "--csv", "--page", "raw", "--print-units", "base"], capture_output=True, text=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in csv.DictReader(io.StringIO(raw.stdout[raw.stdout.index('"ID"') :])):
        if row["ID"]:
            rung = next(v for v in row.values() if v and "rung:" in v).split("rung:")[1].split(":")[0]
            metrics = {}
            for name in wanted:
                with suppress(ValueError):  # a metric that this GPU lacks has no number
                    metrics[name] = float((row.get(name) or "").replace(",", ""))
            found.setdefault(rung, []).append({"launch": row["Kernel Name"], "metrics": metrics})
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
    choice.add_argument("--call", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        rows = [json.loads(line) for line in arguments.write.read_text().splitlines()]
        pages.write("ladder.md", "accuracy", accuracy_table(rows))
        pages.write("ladder.md", "counters", counter_table(rows))
        return
    one_call.assembled = lambda sources, arch: {}  # its run of nvcc takes seconds
    devices.named("cuda").prepare()
    torch.set_grad_enabled(False)
    if arguments.call:
        call_all(arguments.call)
        return
    found: dict[str, dict[str, Any]] = {
        name: {"kernel": name, "errors": errors(name), "launches": []} for name in (*LADDER, "torch")
    }
    print(accuracy_table(list(found.values())), flush=True)
    arguments.out.write_text("".join(json.dumps(row) + "\n" for row in found.values()))
    for name, launches in counted(arguments.out.with_suffix(""), LADDER).items():
        found[name]["launches"] = launches
    arguments.out.write_text("".join(json.dumps(row) + "\n" for row in found.values()))
    print(counter_table(list(found.values())), flush=True)
    counted(arguments.out.with_name("full"), DETAILED, ["--set", "full"])


if __name__ == "__main__":
    main()
