"""Decides which device workers a suite or a pool has: one for each GPU, or one for each core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import torch

from kernel_harness.core.errors import UserError
from kernel_harness.device import policy, selection
from kernel_harness.session.settings import QUICK_SHARE

# The parallel builds of each device worker without a GPU: while one takes long, candidates without CUDA are judged.
_CPU_BUILDS = 2
_CLUSTER_BUILDS = 4
# What a device worker without a GPU takes at most in usual problems, with its fork server, workers and builds.
_CPU_BYTES = 2 << 30


@dataclass(frozen=True)
class Allocation:
    """The device workers of a suite or a pool."""

    devices: tuple[str, ...]
    """The device of each worker, such as `cuda:0` or `cpu`; empty for one worker for each GPU of a Ray cluster."""
    builds: int
    """The number of parallel builds of each worker."""
    threads: int | None = None
    """The number of OpenMP threads of each worker; None leaves it to OpenMP."""

    @property
    def ahead(self) -> int:
        """The most candidates that a worker has beside the one that it judges."""
        return self.builds + 1

    @property
    def emulated(self) -> bool:
        """Whether the devices are emulated."""
        return "cpu" in self.devices

    def budget_s(self, wanted: float | None, *, quick: bool) -> float:
        """Returns the seconds for timing one candidate: `wanted`; for None, a default by the device and `quick`."""
        return wanted or policy.of(emulated=self.emulated).suite_budget_s * (QUICK_SHARE if quick else 1)


def of_this_machine(device: str = "auto", gpus: Sequence[int] | None = None, jobs: int | None = None) -> Allocation:
    """Returns the workers for a device: `cuda`, `cpu` or `auto`, which is `cuda` if there is a GPU.

    With `cuda` there is one worker for each number in `gpus` (None: for each GPU). `jobs` is the number of cores to use
    (None: all cores): one for each worker, and the others for parallel builds. Each worker has at least one build at a
    time. With `cpu` there are `jobs` workers (None: one for each core, as far as free memory suffices).
    Raises UserError for a device or a GPU that does not exist, and for `gpus` with `cpu`.
    """
    _check(device)
    if device == "cpu" and gpus:
        raise UserError("GPUs are chosen with the device cuda only")
    numbers = [] if device == "cpu" else range(torch.cuda.device_count()) if gpus is None else gpus
    if not numbers and device == "cuda":
        raise UserError("torch finds no CUDA device; the device cpu emulates one")
    names = tuple(selection.selected(f"cuda:{number}").name for number in numbers)
    cores = len(os.sched_getaffinity(0))
    if names:
        return Allocation(names, max(1, ((jobs or cores) - len(names)) // len(names)))
    by_memory = int(psutil.virtual_memory().available // _CPU_BYTES)
    count = jobs or max(1, min(cores, by_memory))
    return Allocation(("cpu",) * count, _CPU_BUILDS, max(1, cores // count))


def of_cluster(device: str = "auto", jobs: int | None = None) -> Allocation:
    """Returns the workers for a Ray cluster. The device `auto` is `cuda`.

    With `cuda` there is one worker for each GPU, and `jobs` is the number of parallel builds of each (None: 4). With
    `cpu` there are `jobs` workers (None: one). Raises UserError for another device.
    """
    _check(device)
    if device == "cpu":
        return Allocation(("cpu",) * (jobs or 1), _CPU_BUILDS, 1)
    return Allocation((), jobs or _CLUSTER_BUILDS)


def _check(device: str) -> None:
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"no device {device!r}; there are auto, cpu and cuda. `gpus` selects GPUs by their numbers")
