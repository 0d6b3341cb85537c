"""Number formats by the errors they leave, and the tolerances that go with them. Nothing here sees an output."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch

REDUCED_TOLERANCE = 1e-2


class Precision(StrEnum):
    """Number formats a result can be computed in, by the size of the errors they leave, finest first."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TF32 = "tf32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number; TF32 and float16 keep equally many bits."""
        return _SIZES[self][0]

    @property
    def largest_error(self) -> float:
        """The relative Frobenius error up to which this format explains it."""
        return _SIZES[self][1]

    @staticmethod
    def of(dtype: torch.dtype) -> Precision:
        """What a floating or complex dtype can hold; what is coarser than bfloat16 counts as that."""
        if dtype in (torch.float16, torch.complex32):
            return Precision.FLOAT16
        epsilon = torch.finfo(dtype).eps
        return next((p for p in Precision if p.epsilon >= epsilon), Precision.BFLOAT16)


_SIZES = {
    Precision.FLOAT64: (2.0**-52, 3e-5 * 2.0**-29),
    # An honest sequential float32 sum of 8192 products errs by 1.6e-6.
    Precision.FLOAT32: (2.0**-23, 3e-5),
    # Inputs rounded to TF32 or float16 leave 2.9e-4, truncated ones 7.7e-4.
    Precision.TF32: (2.0**-10, 1.35e-3),
    Precision.FLOAT16: (2.0**-10, 1.35e-3),
    # Rounded inputs leave 2.4e-3, truncated ones 6e-3; from 1e-2 on an error is no number format's.
    Precision.BFLOAT16: (2.0**-7, 1e-2),
}


@dataclass(frozen=True)
class Tolerance:
    """|got - expected| <= atol + rtol * |expected|, as in `torch.allclose`."""

    rtol: float
    atol: float


EXACT = Tolerance(0.0, 0.0)


def default_tolerance(dtype: torch.dtype) -> Tolerance:
    """1e-4 for float32 and wider, 1e-2 for half types (their epsilon if coarser), 0 for integers."""
    if not is_inexact(dtype):
        return EXACT
    epsilon = torch.finfo(dtype).eps
    size = 1e-4 if epsilon < 1e-4 else max(REDUCED_TOLERANCE, epsilon)
    return Tolerance(size, size)


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether numbers of this dtype are rounded."""
    return bool(dtype.is_floating_point or dtype.is_complex)
