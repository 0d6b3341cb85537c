"""Results as runs leave them, for the tests of the page made from them: a GPU's, an emulation's, and hostile ones."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from kernel_harness.results import Result, to_json
from kernel_harness.status import Status
from kernel_harness.timing import as_rounds, summarize
from kernel_harness.verify import Check

SHAPE = {"M": 2048, "K": 8192, "N": 4096}
CASE = "M=2048,K=8192,N=4096:own"
GPU = {"device": "NVIDIA H200", "torch": "2.11.0", "memory_bytes": 150109880320}
EMULATION = {"device": "CUDA emulated on the CPU", "torch": "2.11.0"}
H200 = {"flops": 1.37e11, "bytes": 2.35e8, "peak_float32_flops_per_s": 6.7e13, "peak_bytes_per_s": 4.8e12}
HOSTILE = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'
ERROR_MAP = {"shape": [4, 6], "rows": 4, "columns": 6, "cells": [[0.0] * 6] * 3 + [[0.0, 0.0, 1.0, 1.0, 1.0, 0.5]]}

Record = dict[str, Any]


def result(kernel: str, status: Status = Status.PASSED, **more: Any) -> Record:
    """As it is read back; untimed."""
    measured_at = more.pop("measured_at", "2026-01-02T03:04:05+00:00")
    checks = more.pop("checks", (Check(CASE, status, 1e-3, 2e-6),))
    given = {
        "reason": "" if status is Status.PASSED else f"{kernel} is wrong",
        "shape": SHAPE, "source_sha256": "ab" * 32, "environment": GPU, "title": f"The idea of {kernel}.",
        "numbers": H200, "phases_s": {"build": 2.0, "check": 1.0}, "run": "20260102-030405-abcd",
        "settings": {"baseline": "torch"},
        **more,
    }  # fmt: skip
    line: Record = json.loads(
        json.dumps(to_json(Result(kernel, status, checks=checks, **given), measured_at), default=str)
    )
    return line


def timed(kernel: str, ms: float, **more: Any) -> Record:
    """As it is read back; timed in 40 rounds against a baseline of 3 ms."""
    rng = random.Random(kernel)
    rounds = as_rounds({
        "torch": [3 * rng.lognormvariate(0, 0.01) for _ in range(40)],
        kernel: [ms * rng.lognormvariate(0, 0.01) for _ in range(40)],
    }) if kernel != "torch" else as_rounds({"torch": [3 * rng.lognormvariate(0, 0.01) for _ in range(40)]})  # fmt: skip
    timing = summarize(rounds, kernel, "torch")
    line = result(kernel, **more)
    again = Result(kernel, Status.PASSED, "", SHAPE, "", timing=timing)
    line["timing"] = json.loads(json.dumps(to_json(again, "")["timing"]))
    return line


def wrong(kernel: str, **more: Any) -> Record:
    """A wrong answer with all that explains it."""
    line = result(kernel, Status.WRONG_VALUES, reproduce=f"python harness.py --kernel {kernel}", log="the log", **more)
    mismatches = [{"index": [3, 2], "got": 0.0, "expected": 1.25}, {"index": [3, 3], "got": "nan", "expected": 2.5}]
    line["checks"][0].update(error_map=ERROR_MAP, advice="look at the tail", first_mismatches=mismatches)
    return line


def board(environment: dict[str, Any] = GPU, numbers: dict[str, float] = H200) -> list[Record]:
    """Kernels whose times sort otherwise as text, the baseline, one untimed and two that failed."""
    more = {"environment": environment, "numbers": numbers}
    times = {"fast": 2.5, "tiled": 9.9, "naive": 10.0, "slowest": 250.0}
    return [
        *(timed(kernel, ms, **more) for kernel, ms in times.items()),
        timed("torch", 3.0, kind="baseline", **more),
        result("untimed", **more),
        wrong("wrong_tail", **more),
        result("no_build", Status.BUILD_ERROR, **more),
    ]


def keep(folder: Path, *records: Record) -> Path:
    """A folder of results that holds the records."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "runs.jsonl").open("a") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)
    return folder
