"""The number formats, the rounding error that each format causes, and the default tolerance for outputs of a dtype."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch

from kernel_harness.core.errors import UserError

Change = Callable[[torch.Tensor], torch.Tensor]
"""A function that changes the numbers of a tensor, such as a `Rounding`."""

# Names that other programs use.
_SHORT = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
REDUCED_TOLERANCE = 1e-2


class Precision(StrEnum):
    """A number format in which a kernel may compute. The members are in order, the smallest rounding error first."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TF32 = "tf32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def epsilon(self) -> float:
        """Returns the distance from 1 to the next larger number of this format."""
        return _SIZES[self][0]

    @property
    def largest_error(self) -> float:
        """Returns the limit below which this format explains an output's relative error, in the Frobenius norm.

        An output with a smaller error may have been computed in this format, or from inputs rounded to it. The limits
        are errors that were measured for such outputs, with a margin.
        """
        return _SIZES[self][1]

    @staticmethod
    def named(name: str | None) -> Precision | None:
        """Returns the format with this name, or None for None. Raises UserError if there is no such format."""
        try:
            return None if name is None else Precision(name)
        except ValueError:
            names = [precision.value for precision in Precision]
            close = [_SHORT[str(name)]] if str(name) in _SHORT else difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean {close[0]!r}? There" if close else "there"
            raise UserError(f"there is no precision {name!r}; {hint} are {', '.join(names)}") from None

    @staticmethod
    def of(dtype: torch.dtype) -> Precision:
        """Returns the format of a floating-point or complex dtype. A dtype coarser than bfloat16 counts as bfloat16."""
        if dtype in (torch.float16, torch.complex32):
            return Precision.FLOAT16
        epsilon = torch.finfo(dtype).eps
        return next((p for p in Precision if p.epsilon >= epsilon), Precision.BFLOAT16)


# The epsilon and the largest error of each format.
_SIZES = {
    Precision.FLOAT64: (2.0**-52, 3e-5 * 2.0**-29),
    # An honest sequential sum of 8192 products in float32 has an error of 1.6e-6.
    Precision.FLOAT32: (2.0**-23, 3e-5),
    # Inputs rounded to TF32 or float16 cause an error of 2.9e-4, truncated inputs 7.7e-4.
    Precision.TF32: (2.0**-10, 1.35e-3),
    Precision.FLOAT16: (2.0**-10, 1.35e-3),
    # Inputs rounded to bfloat16 cause an error of 2.4e-3, truncated inputs 6e-3. No format explains 1e-2 or more.
    Precision.BFLOAT16: (2.0**-7, 1e-2),
}


@dataclass(frozen=True)
class Rounding:
    """Rounds float32 numbers to the significand of `precision`, which must be coarser than float32.

    Rounds to the nearest number (ties to even), or toward zero if `toward_zero` is true. Both ways occur: a conversion
    rounds to nearest, and tensor cores that read float32 as TF32 ignore the last bits. If `signs_seed` is not None,
    each number changes by as much as the rounding changes it, but in a random direction, drawn from this seed.
    """

    precision: Precision
    toward_zero: bool = False
    signs_seed: int | None = None

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Returns a tensor with the changed values. A tensor that is not float32 is returned as it is."""
        if values.dtype is not torch.float32:
            return values
        rounded = self._rounded(values)
        if self.signs_seed is None:
            return rounded
        generator = torch.Generator(values.device).manual_seed(self.signs_seed)
        as_rounded = torch.rand(values.shape, generator=generator, device=values.device) < 0.5
        return torch.where(as_rounded, rounded, 2 * values - rounded)

    def _rounded(self, values: torch.Tensor) -> torch.Tensor:
        dropped_bits = round(math.log2(self.precision.epsilon / Precision.FLOAT32.epsilon))
        bits = values.view(torch.int32)
        if not self.toward_zero:
            bits = bits + ((1 << dropped_bits - 1) - 1) + ((bits >> dropped_bits) & 1)
        return (bits & -(1 << dropped_bits)).view(torch.float32)


@dataclass(frozen=True)
class Tolerance:
    """The limit of an element's error: |got - expected| <= atol + rtol * |expected|, as in `torch.allclose`.

    If `follows_scale` is true, `atol` is reduced for outputs whose numbers are small, because it would otherwise allow
    any answer there.
    """

    rtol: float
    atol: float
    follows_scale: bool = False


EXACT = Tolerance(0.0, 0.0)


def default_tolerance(dtype: torch.dtype) -> Tolerance:
    """Returns the tolerance for outputs of a dtype if the problem file has no TOLERANCE.

    `rtol` and `atol` are equal. They are 1e-4 for float32 and float64, 0 for integers and bool, and for other formats
    the larger of 1e-2 and the dtype's epsilon. Except for integers and bool, `follows_scale` is true. The tolerance of
    a complex dtype is that of its parts.
    """
    if not is_inexact(dtype):
        return EXACT
    epsilon = torch.finfo(dtype).eps
    size = 1e-4 if epsilon < 1e-4 else max(REDUCED_TOLERANCE, epsilon)
    return Tolerance(size, size, follows_scale=True)


def is_inexact(dtype: torch.dtype) -> bool:
    """Returns whether the dtype is floating-point or complex, so that its numbers are rounded."""
    return bool(dtype.is_floating_point or dtype.is_complex)
