"""Decides which evaluators a suite or a pool has: one for each GPU, or one for each core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import psutil
import torch

from kernel_harness.core.errors import UserError
from kernel_harness.device import selection
from kernel_harness.session.settings import QUICK_SHARE
from kernel_harness.suite.cluster import Cluster
from kernel_harness.suite.dispatcher import Staff

# The parallel builds of each evaluator without a GPU: while one takes long, candidates without CUDA are judged.
_CPU_BUILDS = 2
_CLUSTER_BUILDS = 4
# What an evaluator without a GPU takes at most in usual problems, with its fork server, workers and builds.
_CPU_BYTES = 2 << 30
# The seconds of timing for one candidate, by whether the device is emulated. Timing ends earlier if the speedup is
# known precisely enough.
_BUDGET_S = {True: 0.3, False: 10.0}


S = TypeVar("S", Staff, Cluster)


@dataclass(frozen=True)
class Staffing(Generic[S]):
    """A suite's evaluators (`staff`), the number of parallel builds of each, and whether the devices are emulated."""

    staff: S
    builds: int
    emulated: bool

    def budget_s(self, wanted: float | None, *, quick: bool) -> float:
        """Returns the seconds for timing one candidate: `wanted`; for None, a default by the device and `quick`."""
        return wanted or _BUDGET_S[self.emulated] * (QUICK_SHARE if quick else 1)


def staffing(device: str = "auto", gpus: Sequence[int] | None = None, jobs: int | None = None) -> Staffing[Staff]:
    """Returns the evaluators for a device: `cuda`, `cpu` or `auto`, which is `cuda` if there is a GPU.

    With `cuda` there is one evaluator for each number in `gpus` (None: for each GPU). `jobs` is the number of cores to
    use (None: all cores): one for each evaluator, and the others for parallel builds. Each evaluator has at least one
    build at a time. With `cpu` there are `jobs` evaluators (None: one for each core, as far as free memory suffices).
    Raises UserError for a device or a GPU that does not exist, and for `gpus` with `cpu`.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"no device {device!r}; there are auto, cpu and cuda. `gpus` selects GPUs by their numbers")
    names = _gpus(device, gpus)
    cores = len(os.sched_getaffinity(0))
    if names:
        builds = max(1, ((jobs or cores) - len(names)) // len(names))
        return Staffing(Staff(names, builds + 1), builds, emulated=False)
    by_memory = int(psutil.virtual_memory().available // _CPU_BYTES)
    count = jobs or max(1, min(cores, by_memory))
    return Staffing(Staff(("cpu",) * count, _CPU_BUILDS + 1, max(1, cores // count)), _CPU_BUILDS, emulated=True)


def on_cluster(
    address: str, device: str = "auto", gpu_type: str | None = None, jobs: int | None = None
) -> Staffing[Cluster]:
    """Returns the evaluators for the Ray cluster at `address`. The device `auto` is `cuda`.

    With `cuda` there is one evaluator for each GPU of the type `gpu_type`, which is Ray's name of the type, such as
    `H200` (None: any type). `jobs` is then the number of parallel builds of each evaluator (None: 4). With `cpu` there
    are `jobs` evaluators (None: one). Raises UserError for another device.
    """
    if device == "cpu":
        return Staffing(Cluster(address, "cpu", jobs or 1, _CPU_BUILDS + 1, threads=1), _CPU_BUILDS, emulated=True)
    if device not in ("auto", "cuda"):
        raise UserError(f"no device {device!r}; there are auto, cpu and cuda")
    builds = jobs or _CLUSTER_BUILDS
    return Staffing(Cluster(address, "cuda:0", None, builds + 1, gpu_type), builds, emulated=False)


def _gpus(device: str, gpus: Sequence[int] | None) -> tuple[str, ...]:
    if device == "cpu":
        if gpus:
            raise UserError("GPUs are chosen with the device cuda only")
        return ()
    numbers = tuple(range(torch.cuda.device_count())) if gpus is None else tuple(gpus)
    if not numbers and device == "cuda":
        raise UserError("torch finds no CUDA device; the device cpu emulates one")
    return tuple(selection.selected(f"cuda:{number}").name for number in numbers)
