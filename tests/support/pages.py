"""Results for the tests of the report: of a GPU, of an emulation, and with hostile texts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_harness.checking.verify import Check
from kernel_harness.checking.wrong_elements import ErrorMap, Mismatch
from kernel_harness.core.status import Status
from kernel_harness.results.record import Kind, Result, to_line
from kernel_harness.timing.statistics import Round, summarize

SHAPE = {"M": 2048, "K": 8192, "N": 4096}
GPU = {"device": "NVIDIA H200", "torch": "2.11.0", "memory_bytes": 150109880320}
EMULATION: dict[str, Any] = {"device": "CUDA emulated on the CPU", "torch": "2.11.0"}
H200 = {"flops": 1.37e11, "bytes": 2.35e8, "peak_float32_flops_per_s": 6.7e13, "peak_bytes_per_s": 4.8e12}
HOSTILE = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'
ERROR_MAP = ErrorMap((4, 6), 4, 6, (*((0.0,) * 6,) * 3, (0.0, 0.0, 1.0, 1.0, 1.0, 0.5)))


def as_rounds(samples_ms: Mapping[str, Sequence[float]]) -> tuple[Round, ...]:
    """Rounds of the arms' times in ms. Every arm must have the same number of samples."""
    names = tuple(samples_ms)
    return tuple(Round(dict(zip(names, ms, strict=True)), names) for ms in zip(*samples_ms.values(), strict=True))


def check(status: Status = Status.PASSED, **more: Any) -> Check:
    """A check on the problem's own inputs."""
    return Check("M=2048,K=8192,N=4096:own", status, 1e-3, 2e-6, shape=SHAPE, distribution="own", **more)


def result(kernel: str, status: Status = Status.PASSED, **more: Any) -> Result:
    """Checked and not timed."""
    given = {
        "verdict": "" if status is Status.PASSED else f"{kernel} is wrong",
        "shape": SHAPE, "source_sha256": "ab" * 32, "environment": GPU, "title": f"The idea of {kernel}.",
        "numbers": H200, "phases_s": {"build": 2.0, "check": 1.0}, "run": "20260102-030405-abcd",
        "measured_at": "2026-01-02T03:04:05+00:00", "checks": (check(status),),
        **more,
    }  # fmt: skip
    return Result(kernel, status, **given)


def timed(kernel: str, ms: float, **more: Any) -> Result:
    """Timed in 40 rounds against a baseline of 3 ms."""
    rng = random.Random(kernel)
    samples = {"torch": [3 * rng.lognormvariate(0, 0.01) for _ in range(40)]}
    if kernel != "torch":
        samples[kernel] = [ms * rng.lognormvariate(0, 0.01) for _ in range(40)]
    return result(kernel, timing=summarize(as_rounds(samples), kernel, "torch"), **more)


def wrong(kernel: str, **more: Any) -> Result:
    """A wrong answer with everything that explains it."""
    mismatches = (Mismatch((3, 2), 0.0, 1.25), Mismatch((3, 3), float("nan"), 2.5))
    explained = check(Status.WRONG_VALUES, error_map=ERROR_MAP, advice="look at the tail", first_mismatches=mismatches)
    command = f"python harness.py --kernel {kernel}"
    return result(kernel, Status.WRONG_VALUES, checks=(explained,), reproduce=command, log="the log", **more)


def board(environment: dict[str, Any] = GPU, numbers: dict[str, float] = H200) -> list[Result]:
    """Kernels whose times sort differently as text, the baseline, one without a time and two failures."""
    more = {"environment": environment, "numbers": numbers, "emulated": environment is EMULATION}
    times = {"fast": 2.5, "tiled": 9.9, "naive": 10.0, "slowest": 250.0}
    return [
        *(timed(kernel, ms, **more) for kernel, ms in times.items()),
        timed("torch", 3.0, kind=Kind.BASELINE, **more),
        result("untimed", **more),
        wrong("wrong_tail", **more),
        result("no_build", Status.BUILD_ERROR, **more),
    ]


def keep(folder: Path, *results: Result, name: str = "runs.jsonl") -> Path:
    """A folder of results with these lines added to its file."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a") as file:
        file.writelines(f"{to_line(r)}\n" for r in results)
    return folder
