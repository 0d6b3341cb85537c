"""Reads the clocks, temperature, throttling and processes of a GPU from NVML, without any work on the GPU."""

from __future__ import annotations

import functools
from typing import Any

# Bits of NVML's throttle reasons that mean a clock below the device's settings: too hot, or too little power.
_SLOWED = {0x8: "hardware slowdown", 0x20: "too hot", 0x40: "much too hot", 0x80: "power brake"}


class Unavailable(Exception):
    """The error raised if NVML, the library that reports the state of GPUs, cannot be used. The message says why."""


def driver() -> dict[str, Any]:
    """Returns the driver's version under the key `driver`. Without NVML, returns the reason under the key `nvml`."""
    try:
        return {"driver": _library().nvmlSystemGetDriverVersion()}
    except Unavailable as error:
        return {"nvml": str(error)}


def state(uuid: str) -> dict[str, Any]:
    """Returns the present state of the GPU with this UUID, or an empty dict if NVML cannot report it.

    The state holds clocks in MHz, the temperature in degrees Celsius, the reasons for throttling, and the number of
    processes that compute on the GPU.
    """
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
    except Exception:  # the state is only for information, and some drivers lack a function
        return {}


def energy_j(uuid: str) -> float | None:
    """Returns the energy in joules that the GPU with this UUID has used so far; None if NVML cannot tell."""
    try:
        return float(_library().nvmlDeviceGetTotalEnergyConsumption(_handle(uuid)) / 1e3)
    except Exception:  # no NVML, or a GPU without this counter
        return None


def minor_number(address: str) -> int | None:
    """Returns the number in the name of the device file of the GPU at a PCI address; None if NVML cannot tell."""
    try:
        nvml = _library()
        return int(nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByPciBusId(address.encode())))
    except Exception:  # no NVML, or a driver without such files
        return None


@functools.cache
def _library() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # no pynvml, or no driver; each cause has its own exception class
        raise Unavailable(f"{type(error).__name__}: {error}") from None
    return pynvml


@functools.cache
def _handle(uuid: str) -> Any:
    return _library().nvmlDeviceGetHandleByUUID(uuid)
