"""What a device can do at most, from its data sheet. Only known devices are here: a guess must convict nobody."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """Bytes per second of memory, FLOP/s in plain float32, and FLOP/s of the fastest unit of all (dense)."""

    bytes_per_s: float
    float32_flops_per_s: float
    fastest_flops_per_s: float


# https://www.nvidia.com/en-us/data-center/h200/ and the data sheets of the others, without sparsity.
_SHEETS = {
    "H200": Peaks(4.8e12, 67e12, 1979e12),
    "H100 80GB HBM3": Peaks(3.35e12, 67e12, 1979e12),
    "A100-SXM4-80GB": Peaks(2.039e12, 19.5e12, 624e12),
}


def of(name: str) -> Peaks | None:
    """The data sheet of a device by the name its driver gives; None for one not listed."""
    return next((peaks for key, peaks in _SHEETS.items() if key in name), None)
