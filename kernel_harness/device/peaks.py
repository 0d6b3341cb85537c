"""The memory bandwidth and FLOP/s of known GPUs, from their data sheets.

A kernel that would need a higher speed gets the verdict CHEATED, so no number here is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """The highest speeds of one GPU, according to its data sheet.

    `bytes_per_s` is the memory bandwidth. `flops_per_s` maps the name of each member of `Precision` to the GPU's dense
    FLOP/s in this number format. `fastest_flops_per_s` is the dense FLOP/s of the GPU's fastest number format. That
    format, for example an 8-bit one, may be missing from `flops_per_s`.
    """

    bytes_per_s: float
    flops_per_s: Mapping[str, float]
    fastest_flops_per_s: float


_HOPPER = {"float64": 34e12, "float32": 67e12, "tf32": 494.7e12, "float16": 989.4e12, "bfloat16": 989.4e12}
_AMPERE = {"float64": 9.7e12, "float32": 19.5e12, "tf32": 156e12, "float16": 312e12, "bfloat16": 312e12}
# From https://www.nvidia.com/en-us/data-center/h200/ and the data sheets of the other devices, without sparsity.
# float64 is without tensor cores.
_SHEETS = {
    "H200": Peaks(4.8e12, _HOPPER, 1979e12),
    "H100 80GB HBM3": Peaks(3.35e12, _HOPPER, 1979e12),
    "A100-SXM4-80GB": Peaks(2.039e12, _AMPERE, 624e12),
}


def of(name: str) -> Peaks | None:
    """Returns the data sheet's speeds of the GPU that its driver calls `name`, or None for a GPU that is not listed."""
    return next((peaks for key, peaks in _SHEETS.items() if key in name), None)
