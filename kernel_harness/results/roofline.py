"""Operations and bytes per second of a timed result, and their share of the device's limits (the roofline model)."""

from __future__ import annotations

from typing import Literal

from kernel_harness.core.precision import Precision
from kernel_harness.results.record import Result

Roof = Literal["peak", "ceiling"]
"""Where the limits of a device come from: "peak" from its data sheet, "ceiling" from a measurement on the device."""


def tflops(result: Result) -> float | None:
    """Returns how many arithmetic operations of the problem the kernel does, in 10^12 per second.

    Returns None if the number of operations is unknown, the result has no time, or it is from the emulated device.
    """
    return _rate(result, "flops", 1e-12)


def gbytes_per_s(result: Result) -> float | None:
    """Returns the bytes of a call (the problem's `bytes_moved`) divided by the call's time, in 10^9 per second.

    Returns None if the number of bytes is unknown, the result has no time, or it is from the emulated device.
    """
    return _rate(result, "bytes", 1e-9)


def nearest_roof(result: Result, roof: Roof) -> tuple[str | None, float | None]:
    """Returns the limit that the kernel comes closer to, "compute" or "memory", and the percentage that it reaches.

    `roof` says where the limits come from: "peak" is the data sheet, "ceiling" is a measurement. The compute limit is
    that of the number format `result.precision`, or of float32 if `precision` is None. A limit is ignored if it is
    unknown, or if the problem's operations (for compute) or bytes (for memory) are unknown. Returns (None, None) if
    both limits are ignored, if the result has no time, or if it is from the emulated device.
    """
    per_s, numbers = _calls_per_s(result), result.numbers
    number_format = result.precision or Precision.FLOAT32
    shares = [
        (100 * numbers[work] * per_s / numbers[limit], name)
        for name, work, limit in (
            ("compute", "flops", f"{roof}_{number_format}_flops_per_s"), ("memory", "bytes", f"{roof}_bytes_per_s"),
        )
        if per_s and work in numbers and limit in numbers
    ]  # fmt: skip
    percent, bound = max(shares, default=(None, None))
    return bound, percent


def fastest_peak(result: Result) -> tuple[float, str, float] | None:
    """Returns the percentage that is reached of the device's fastest number format, its name, and its FLOP/s.

    The result is None unless the kernel exceeds the peak of its own format (`nearest_roof`). It exceeds this peak if it
    computes in another format, mostly in tensor cores, or does fewer operations than the problem states.
    """
    _, percent = nearest_roof(result, "peak")
    rate, peaks = tflops(result), {
        name.removeprefix("peak_").removesuffix("_flops_per_s"): speed
        for name, speed in result.numbers.items()
        if name.startswith("peak_") and name.endswith("_flops_per_s")
    }  # fmt: skip
    if percent is None or percent <= 100 or rate is None or not peaks:
        return None
    fastest = max(peaks, key=peaks.__getitem__)
    return 100 * rate * 1e12 / peaks[fastest], fastest, peaks[fastest]


def share_of_bound(result: Result) -> float | None:
    """Returns the least time that any correct kernel needs on the device, divided by the kernel's time.

    The least time is that of the bytes and operations that no correct kernel can do without, at the rates of the data
    sheet (`least_ms` in `numbers`). Returns None if it is unknown, if the result has no time, or if it is emulated.
    """
    per_s, least_ms = _calls_per_s(result), result.numbers.get("least_ms")
    return least_ms * per_s / 1e3 if least_ms and per_s else None


def _rate(result: Result, work: str, unit: float) -> float | None:
    per_s, number = _calls_per_s(result), result.numbers.get(work)
    return number * per_s * unit if number and per_s else None


def _calls_per_s(result: Result) -> float | None:
    """Returns how many calls per second the timed kernel does, one after the other.

    Returns None if the result has no time, or is from the emulated device: its times say nothing about a GPU.
    """
    return 1e3 / result.timing.time_ms if result.timing and not result.emulated else None
