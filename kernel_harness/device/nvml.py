"""What NVML says of a GPU without disturbing it: clocks, heat, why it was slowed down, and who else computes on it."""

from __future__ import annotations

import functools
from typing import Any

# Reasons that make a device slower than its own settings would: too hot, or too little power from outside.
_SLOWED = {0x8: "hardware slowdown", 0x20: "too hot", 0x40: "much too hot", 0x80: "power brake"}


class Unavailable(Exception):
    """NVML cannot say; the message tells why."""


def driver() -> dict[str, Any]:
    """The driver's version, or why it cannot be told."""
    try:
        return {"driver": _library().nvmlSystemGetDriverVersion()}
    except Unavailable as error:
        return {"nvml": str(error)}


def state(uuid: str) -> dict[str, Any]:
    """Clocks (MHz), temperature (Celsius), why it is slowed down, computing processes; empty if it cannot say."""
    try:
        nvml = _library()
        handle = _handle(uuid)
        return {
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": (bits := nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            "slowed": ", ".join(text for bit, text in _SLOWED.items() if bits & bit),
            "computing_processes": len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }
    except Exception:  # information only, and every driver lacks something else
        return {}


@functools.cache
def _library() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # not installed, or no driver: each has exceptions of its own
        raise Unavailable(f"{type(error).__name__}: {error}") from None
    return pynvml


@functools.cache
def _handle(uuid: str) -> Any:
    return _library().nvmlDeviceGetHandleByUUID(uuid)
