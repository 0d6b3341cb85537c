"""Formulas that kernel authors often use by mistake in place of the reference's formula, such as GELU by tanh.

`Replaced` is the context in which the reference computes the operation by the other formula.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import torch
from torch.nn import functional

from kernel_harness.problem.torch_modes import FunctionMode

Call = Callable[..., Any]
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Formula:
    """A formula that may take the place of the reference's.

    `how` says how the reference's answer then changes, and `advice` where to look in the kernel. `functions` are the
    functions of torch that the formula replaces. `compute` gets one of them, and its positional and named arguments.
    `compute` returns the result by the formula, or NotImplemented if the formula has no meaning for this call.
    """

    how: str
    advice: str
    functions: frozenset[Call]
    compute: Callable[[Call, tuple[Any, ...], Arguments], Any]


class Replaced(FunctionMode):
    """A context in which `formula`, if it is not None, computes the torch functions that it replaces.

    `called` holds all torch functions that were called in the context.
    """

    def __init__(self, formula: Formula | None = None) -> None:
        super().__init__()
        self._formula = formula
        self.called: set[Call] = set()

    def result_of(self, func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
        """Calls `func`, a torch function called within the context, or computes its result by the formula."""
        self.called.add(func)
        if self._formula and func in self._formula.functions:
            result = self._formula.compute(func, args, kwargs)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)


def _gelu(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    other = "none" if kwargs.get("approximate") == "tanh" else "tanh"
    return func(*args, **{**kwargs, "approximate": other})


def _running_statistics(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    given = _given(func, args, kwargs)
    if given["running_mean"] is None or given["running_var"] is None:
        return NotImplemented
    return func(**{**given, "training": not given["training"]})


def _other_divisor(func: Call, args: tuple[Any, ...], kwargs: Arguments, *, by_n: bool) -> Any:
    """Computes var() or std() with the other divisor, n - 1 or n, if the reference's is n (`by_n`) or n - 1."""
    places = [i for i, value in enumerate(args) if isinstance(value, bool)]
    if places:  # the parameters `unbiased` and `keepdim` by their places
        by_place = dict(zip(("unbiased", "keepdim"), args[places[0] :], strict=False))
        args, kwargs = args[: places[0]], {**kwargs, **by_place}
    if by_n is not (kwargs.get("unbiased") is False or kwargs.get("correction") == 0):
        return NotImplemented
    rest = {name: value for name, value in kwargs.items() if name not in ("unbiased", "correction")}
    return func(*args, **{"dim": None, **rest} if len(args) == 1 else rest, correction=1 if by_n else 0)


def _sample_variance(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    """Computes a normalization such as layer_norm with the divisor n - 1 of the variance, where torch divides by n."""
    given = _given(func, args, kwargs)
    if func is functional.batch_norm and not given["training"]:
        return NotImplemented
    count = _NORMALIZED[func](given["input"], given)
    weight, bias = given["weight"], given["bias"]
    out = func(**{**given, "weight": None, "bias": None}) * math.sqrt((count - 1) / count)
    if func is not functional.layer_norm:  # one weight for each channel
        weight, bias = (t if t is None else t.reshape(1, -1, *[1] * (out.ndim - 2)) for t in (weight, bias))
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


# How many elements one mean of each function is over.
_NORMALIZED: Mapping[Call, Callable[[torch.Tensor, Arguments], int]] = {
    functional.layer_norm: lambda x, given: math.prod(given["normalized_shape"]),
    functional.group_norm: lambda x, given: x[0].numel() // given["num_groups"],
    functional.instance_norm: lambda x, given: x[0, 0].numel(),
    functional.batch_norm: lambda x, given: x.numel() // x.shape[1],
}


def _without_eps(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    return func(**{**_given(func, args, kwargs), "eps": 0.0})


def _not_causal(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    return func(*args, **{**kwargs, "is_causal": False}) if kwargs.get("is_causal") else NotImplemented


def _other_diagonal(func: Call, args: tuple[Any, ...], kwargs: Arguments, *, by: int) -> Any:
    given = kwargs.get("diagonal", args[1] if len(args) > 1 else 0)
    return func(args[0], diagonal=given + by)


def _inverted(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    """Computes where(), masked_fill() or attention with the mask the other way round, if it is a mask of bools."""
    at = 0 if func in _WHERE else 1
    if func is functional.scaled_dot_product_attention:
        mask = kwargs.get("attn_mask")
        return func(*args, **{**kwargs, "attn_mask": ~mask}) if _is_mask(mask) else NotImplemented
    if len(args) != 3 or not _is_mask(args[at]):
        return NotImplemented
    return func(*args[:at], ~args[at], *args[at + 1 :], **kwargs)


def _is_mask(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool


def _usual_slope(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    return func(**{**_given(func, args, kwargs), "negative_slope": 0.01})


def _padding(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    names = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return func(**{**given, "count_include_pad": not given.get("count_include_pad", True)})


def _given(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> dict[str, Any]:
    """Returns all arguments of a call by name, with the defaults of those that were not given."""
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _other_dimension(func: Call, args: tuple[Any, ...], kwargs: Arguments, *, step: int) -> Any:
    """Computes a function along another dimension than the reference: by `step` dimensions further, cyclically."""
    if func is functional.normalize:
        given = _given(func, args, kwargs)
        args, kwargs = (given.pop("input"),), given
    given = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if not isinstance(given, int) or isinstance(given, bool) or step >= args[0].ndim:
        return NotImplemented
    dim = (given + step) % args[0].ndim
    return func(*args, **{**kwargs, "dim": dim}) if "dim" in kwargs else func(args[0], dim, *args[2:], **kwargs)


def _as_if_transposed(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    """Computes a function of a matrix along runs in memory that are as long as the other dimension."""
    x = args[0]
    if x.ndim != 2 or x.shape[0] == x.shape[1]:
        return NotImplemented
    return func(x.reshape(x.shape[1], x.shape[0]), *args[1:], **kwargs).reshape(x.shape)


def _divided_by_less(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    """Computes a mean of numbers that are not negative, such as squares, with the divisor n - 1."""
    if bool((args[0] < 0).any()):
        return NotImplemented
    mean = func(*args, **kwargs)
    count = args[0].numel() // max(1, mean.numel())
    return mean * (count / (count - 1)) if count > 1 else NotImplemented


def _base_two(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    return func(args[0] * math.log(2), *args[1:], **kwargs)


def _by_logistic(func: Call, args: tuple[Any, ...], kwargs: Arguments) -> Any:
    return args[0] * torch.sigmoid(1.702 * args[0])


def _called(*names: str) -> frozenset[Call]:
    """Returns the functions of these names in torch, in torch.Tensor and in torch.nn.functional."""
    found = (getattr(place, name, None) for name in names for place in (torch, torch.Tensor, functional))
    return frozenset(function for function in found if function is not None)


# Functions along one dimension, whose results have the shape of their argument.
_ALONG = _called("softmax", "softmin", "log_softmax", "cumsum", "cumprod", "normalize")
_WHERE: frozenset[Call] = frozenset({torch.where})
_TRIANGLES = _called("tril", "triu")
# Functions that reduce one dimension.
_REDUCING = _called("sum", "mean", "amax", "amin", "max", "min", "logsumexp", "prod", "var", "std", "norm")
_DIMENSION = "check along which dimension the kernel's loop runs, and the stride between its elements"
_VARIANCES = _called("var", "std", "var_mean", "std_mean")
_AS_GELU = "compute GELU as the reference does: nn.GELU() and F.gelu(x) are 0.5 * x * (1 + erf(x / sqrt(2)))"

FORMULAS = (
    Formula(
        "with the other formula of GELU (by tanh in place of erf, or by erf in place of tanh)",
        _AS_GELU,
        frozenset({functional.gelu}),
        _gelu,
    ),
    Formula(
        "with BatchNorm's running statistics in place of those of the batch, or the other way round",
        "normalize as the reference does: a model is in training mode unless it calls eval(), so the mean and the "
        "variance are those of the batch",
        frozenset({functional.batch_norm}),
        _running_statistics,
    ),
    Formula(
        "with n - 1 in place of n as the divisor of the variance",
        "divide the sum of squares by the number of elements, as torch's norms do",
        frozenset(_NORMALIZED),
        _sample_variance,
    ),
    Formula(
        "with n in place of n - 1 as the divisor in var() or std()",
        "divide the sum of squares by n - 1, as var() and std() do unless they get correction=0",
        _VARIANCES,
        partial(_other_divisor, by_n=False),
    ),
    Formula(
        "with n - 1 in place of n as the divisor in var() or std()",
        "divide the sum of squares by n, because the reference passes unbiased=False or correction=0",
        _VARIANCES,
        partial(_other_divisor, by_n=True),
    ),
    Formula(
        "with a slope of 0.01 in LeakyReLU",
        "pass the slope of the reference's LeakyReLU to the kernel",
        frozenset({functional.leaky_relu}),
        _usual_slope,
    ),
    Formula(
        "with the zeros of the padding counted in the mean of the pooling, or not counted",
        "divide as the reference does: count_include_pad is True unless it is given",
        frozenset({functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d}),
        _padding,
    ),
    Formula(
        "with n - 1 in place of n as the divisor of a mean, such as that of squares",
        "divide the sum by the number of elements, as mean() does",
        _called("mean"),
        _divided_by_less,
    ),
    Formula(
        "with powers of 2 in place of powers of e",
        "multiply the argument of exp2f by log2(e) = 1.44269504, or call expf",
        _called("exp", "softmax", "log_softmax", "sigmoid", "silu"),
        _base_two,
    ),
    Formula("with x * sigmoid(1.702 * x) in place of GELU", _AS_GELU, frozenset({functional.gelu}), _by_logistic),
    Formula(
        "with 0 in place of eps",
        "add eps to the variance before the square root, as the reference's norm does: rsqrtf(variance + eps)",
        frozenset({*_NORMALIZED, functional.rms_norm}),
        _without_eps,
    ),
    Formula(
        "without the causal mask",
        "leave out the keys behind the query: those with a larger index, where is_causal is True",
        frozenset({functional.scaled_dot_product_attention}),
        _not_causal,
    ),
    *(
        Formula(
            f"with a triangle whose diagonal is one place further {'right' if by > 0 else 'left'}",
            "check the comparison of row and column, such as column <= row for tril(): the diagonal belongs to it",
            _TRIANGLES,
            partial(_other_diagonal, by=by),
        )
        for by in (1, -1)
    ),
    *(
        Formula(
            "along another dimension than the reference's",
            _DIMENSION,
            _ALONG | _REDUCING,
            partial(_other_dimension, step=step),
        )
        for step in (1, 2, 3)
    ),
    Formula(
        "along runs in memory that are as long as the other dimension",
        f"{_DIMENSION}: the kernel takes the number of rows for the length of a row",
        _ALONG,
        _as_if_transposed,
    ),
)
"""The formulas that `hypotheses.find` tries first."""

INVERTED_MASKS = (
    Formula(
        "with its mask read the other way round",
        "check which elements the mask leaves out: masked_fill() fills where it is True, and attention leaves out "
        "where it is False",
        _WHERE | _called("masked_fill", "masked_fill_", "scaled_dot_product_attention"),
        _inverted,
    ),
)
"""Formulas that also give, in part, what a mask that is left out gives. So `hypotheses.find` tries them last."""
