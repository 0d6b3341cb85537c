"""Devices: a GPU, or CUDA emulated on the CPU. Each device has one interface for the judge and one for workers."""

from __future__ import annotations

from importlib import import_module

from kernel_harness.device.hold import Hold, Sleep
from kernel_harness.device.protocol import (
    MOST_USED,
    ROOM,
    CountsLaunches,
    Device,
    JudgeDevice,
    Placed,
    Profiles,
    RunsDry,
    Sanitizes,
    SharedMemory,
    SkipsKernels,
    TakesTurns,
    TimesKernels,
    WorkerDevice,
)
from kernel_harness.device.turn import Turn
from kernel_harness.ipc.messages import Clocked, Steady

__all__ = [
    "MOST_USED", "ROOM", "Clocked", "CountsLaunches", "Device", "Hold", "JudgeDevice", "Placed", "Profiles",
    "RunsDry", "Sanitizes", "SharedMemory", "SkipsKernels", "Sleep", "Steady", "TakesTurns", "TimesKernels", "Turn",
    "WorkerDevice", "named",
]  # fmt: skip

_CLASSES = {
    "cpu": "kernel_harness.device.cpu:Emulated",
    "cpu-strict": "kernel_harness.device.cpu:Strict",
    "cpu-profiled": "kernel_harness.device.profiled:Profiled",
    "cpu-sanitized": "kernel_harness.device.sanitized:Sanitized",
}


def named(name: str) -> Device:
    """Returns a new instance of the device that `name` selects.

    The judge sends this name to its fork server and workers. The names are `cpu`, `cpu-strict`, `cpu-profiled`,
    `cpu-sanitized`, `cuda`, `cuda:N`, `cuda-sanitized`, `cuda:N-sanitized`, and `package.module:Class` for a device
    class outside this package.
    """
    # Device modules are imported here and not at the top. They import torch's extension builder, which reads $CUDA_HOME
    # at its import, and the fork server receives that variable only after it has started.
    module, _, kind = _CLASSES.get(name, name).partition(":")
    if kind.isidentifier():
        device: Device = getattr(import_module(module), kind)()
        return device
    if name.endswith("-sanitized"):
        from kernel_harness.device.sanitized import SanitizedCuda

        return SanitizedCuda(name.removesuffix("-sanitized"))
    from kernel_harness.device.cuda import Cuda

    return Cuda(name)
