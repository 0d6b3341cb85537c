"""The GPU state that is read through NVML, with a fake NVML in place of a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernel_harness.device import nvml


def library(bits: int) -> SimpleNamespace:
    """A fake NVML for a device with these throttle bits."""
    return SimpleNamespace(
        NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1980, 2: 3201}[kind],
        nvmlDeviceGetTemperature=lambda handle, kind: 41,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: bits,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [1, 2],
        nvmlSystemGetDriverVersion=lambda: "580.0",
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 12_500,
    )  # fmt: skip


def state_with(monkeypatch: pytest.MonkeyPatch, bits: int) -> dict[str, object]:
    nvml._handle.cache_clear()
    monkeypatch.setattr(nvml, "_library", lambda: library(bits))
    return nvml.state("GPU-1")


def test_clocks_temperature_and_processes_are_reported(monkeypatch):
    assert state_with(monkeypatch, bits=0) == {
        "sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "temperature_c": 41, "throttle_reasons": 0, "slowed": "",
        "computing_processes": 2,
    }  # fmt: skip


@pytest.mark.parametrize(("bits", "words"), [(0x1, ""), (0x20, "too hot"), (0x88, "hardware slowdown, power brake")])
def test_throttle_reasons_are_reported_in_words(monkeypatch, bits, words):
    assert state_with(monkeypatch, bits)["slowed"] == words


def test_the_energy_is_in_joules(monkeypatch):
    state_with(monkeypatch, bits=0)
    assert nvml.energy_j("GPU-1") == 12.5
    monkeypatch.setattr(nvml, "_library", lambda: SimpleNamespace())  # a driver without the counter
    assert nvml.energy_j("GPU-1") is None


def test_without_nvml_the_state_is_empty_and_the_driver_has_the_reason(monkeypatch):
    def unavailable() -> None:
        raise nvml.Unavailable("no driver")

    monkeypatch.setattr(nvml, "_library", unavailable)
    assert nvml.state("GPU-1") == {}
    assert nvml.driver() == {"nvml": "no driver"}
