"""The distributions of a problem's inputs: their names, and the tensors that they make of those of get_inputs()."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernel_harness.problem.lookalikes import MOST_CHOICES, is_in_no_order, is_measured, places_in

OWN = "own"
"""The name of the distribution from which the problem's own get_inputs() draws."""
PARAMETERS = "parameters"
"""The name of the case in which the parameters of the model are random. Its inputs are the problem's own."""
SMALL = "small"
"""The name of the distribution of small numbers. It shows the constants that are added to them, as in a norm."""
SPARSE = "sparse"
"""The name of the distribution in which most numbers are zero. It shows which numbers a sum of very many leaves out."""

NEGATIVE, POSITIVE = "negative", "positive"
"""The names of distributions of one sign. They show the number at which a search for a maximum or a minimum starts."""

CROWDED = "crowded"
"""The name of the distribution in which whole numbers lie in the upper eighth of their range: many of them repeat."""

# Returns the random generator of a device, which is the same at each call.
GeneratorOf = Callable[[torch.device], torch.Generator]

# The distributions for a problem file without STRESS. They change the values that get_inputs() draws, and keep whatever
# structure these have (`shifted`).
VARIATIONS: Mapping[str, Mapping[str, Any]] = {
    "normal": {}, "scaled": {"log2": 4}, SMALL: {"log2": -4}, SPARSE: {}, NEGATIVE: {"sign": -1}, POSITIVE: {"sign": 1},
    CROWDED: {},
}  # fmt: skip
# Of a sparse tensor, the first and the last _ENDS numbers are kept, and _WITHIN between them.
_ENDS, _WITHIN = 4, 56
# The elements of a tensor that are converted to float64 at a time.
_PART = 1 << 26
# Not zero: the mean of all inputs, which a model may compute, would then be rounding error.
_MEAN = 1 / 16
_WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
# The least magnitude of numbers of one sign: a search that starts at 0 or 1 must be far from the right answer.
_LEAST = 2.0


def redrawn(value: Any, distribution: str, parameters: Mapping[str, Any], generator: GeneratorOf) -> Any:
    """Returns a tensor of the shape and dtype of `value` from a distribution of STRESS with these parameters.

    A value that is no floating-point tensor is returned as it is.
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    shape, dtype = tuple(value.shape), value.dtype
    drawn = {"generator": generator(value.device), "device": value.device}
    if distribution == "integers":
        limit = int(parameters["limit"])
        return torch.randint(-limit, limit + 1, shape, **drawn).to(dtype)
    normal = torch.randn(shape, **drawn)
    if distribution == "scaled":
        reach = int(parameters["log2_range"])
        for dim, size in enumerate(shape):
            powers = torch.randint(-reach, reach + 1, (size,), **drawn)
            extents = [size if d == dim else 1 for d in range(len(shape))]
            normal = normal * torch.exp2(powers / math.sqrt(len(shape))).reshape(extents)
    return normal.to(dtype)


def shifted(value: Any, distribution: str, parameters: Mapping[str, Any], generator: GeneratorOf) -> Any:
    """Returns a tensor with the numbers of `value`, changed as `distribution` says.

    "normal": the numbers are shifted to mean _MEAN and scaled to standard deviation one, both computed without zeros.
    "scaled" and "small": these numbers are then multiplied by 2^n, where n is `parameters["log2"]` (4 or -4).
    "negative" and "positive": these numbers then become s * (_LEAST + |x|), where s is `parameters["sign"]`. Zeros stay
    zeros and equal numbers stay equal, so a triangular or symmetric matrix remains one: a kernel may rely on that.
    These five return a tensor without a finite variance above zero as it is. "sparse": most numbers of `value` are
    replaced by zero (`_sparse`). "crowded": whole numbers are replaced by others (`_crowded`); an index stays in range.
    For each other distribution, a tensor of choices (signs, classes, whole numbers) or of few
    different numbers is returned as it is, and so is any other value.
    """
    if isinstance(value, torch.Tensor) and distribution == CROWDED:
        return _crowded(value) if _may_repeat(value) else value
    if not isinstance(value, torch.Tensor) or not is_measured(value):
        return value
    if distribution == SPARSE:
        return _sparse(value, generator(torch.device("cpu")).initial_seed())
    count, total, squares = 0, 0.0, 0.0
    for part in value.reshape(-1).split(_PART):  # torch converts all that it counts or sums before it adds
        count += int(part.count_nonzero())
        total += float(part.sum(dtype=torch.float64))
        squares += float(part.double().square().sum())
    mean = total / count
    variance = squares / count - mean**2
    if not 0 < variance < math.inf:
        return value
    factor = 1 / math.sqrt(variance)
    mean -= _MEAN / factor
    factor *= 2.0 ** parameters.get("log2", 0)
    changed = value.sub(mean).mul_(factor)
    if sign := parameters.get("sign"):
        changed.abs_().add_(_LEAST).mul_(sign)
    return changed.masked_fill_(value == 0, 0)


def _may_repeat(value: torch.Tensor) -> bool:
    """Returns whether a tensor holds many different whole numbers, in no order, of which some repeat already."""
    if value.dtype not in _WHOLE or value.numel() > _PART:
        return False
    different = value.unique().numel()
    return MOST_CHOICES < different < value.numel() and is_in_no_order(value)


def _crowded(value: torch.Tensor) -> torch.Tensor:
    """Returns `value` with each number moved to the upper eighth of the range. No two numbers change places."""
    most = value.max().long()
    return (most - (most - value.long()) // 8).to(value.dtype)


def _sparse(value: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns `value` with zeros everywhere except at the first and the last _ENDS places and _WITHIN random ones.

    For one `seed`, tensors with the same number of elements keep the same places.
    """
    random = torch.rand(_WITHIN, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ends = torch.arange(min(_ENDS, value.numel()))
    places = torch.cat([ends, value.numel() - 1 - ends, (random * value.numel()).long()])
    out, kept = torch.zeros_like(value), places_in(value, places)
    out[kept] = value[kept]
    return out
