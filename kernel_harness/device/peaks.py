"""What a device can do at most, from its data sheet. Only known devices are here: a guess must convict nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """Bytes per second of memory, dense FLOP/s by number format, and FLOP/s of the fastest unit of all."""

    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    fastest_flops_per_s: float


_HOPPER = {"float64": 34e12, "float32": 67e12, "tf32": 494.7e12, "float16": 989.4e12, "bfloat16": 989.4e12}
_AMPERE = {"float64": 9.7e12, "float32": 19.5e12, "tf32": 156e12, "float16": 312e12, "bfloat16": 312e12}
# https://www.nvidia.com/en-us/data-center/h200/ and the data sheets of the others, without sparsity; float64
# without tensor cores.
_SHEETS = {
    "H200": Peaks(4.8e12, _HOPPER, 1979e12),
    "H100 80GB HBM3": Peaks(3.35e12, _HOPPER, 1979e12),
    "A100-SXM4-80GB": Peaks(2.039e12, _AMPERE, 624e12),
}


def of(name: str) -> Peaks | None:
    """The data sheet of a device by the name its driver gives; None for one not listed."""
    return next((peaks for key, peaks in _SHEETS.items() if key in name), None)
