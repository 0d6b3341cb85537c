"""The functions of CUDA's libdevice for Triton's interpreter, which has none of them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

# fmt: off
_TORCH_NAMES = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "erfc",
    "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "lgamma", "log", "log10", "log1p", "log2", "nextafter",
    "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
}
# fmt: on
# libdevice's names without `__nv_` and the letter of the type, where torch has another name.
_OTHER_NAMES: dict[str, Callable[..., torch.Tensor]] = {
    "abs": torch.abs,
    "fabs": torch.abs,
    "llabs": torch.abs,
    "fmin": torch.fmin,
    "fmax": torch.fmax,
    "rint": torch.round,
    "nearbyint": torch.round,
    "round": lambda x: torch.trunc(x) + torch.copysign(((x - torch.trunc(x)).abs() >= 0.5).to(x.dtype), x),
    "exp10": lambda x: torch.pow(10.0, x),
    "cbrt": lambda x: torch.copysign(torch.abs(x) ** (1 / 3), x),
    "rcbrt": lambda x: 1 / torch.copysign(torch.abs(x) ** (1 / 3), x),
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype),
    "fdim": lambda x, y: torch.clamp(x - y, min=0),
    "saturate": lambda x: torch.nan_to_num(torch.clamp(x, 0, 1)),
    "normcdf": torch.special.ndtr,
    "sinpi": lambda x: torch.sin(torch.pi * x),
    "cospi": lambda x: torch.cos(torch.pi * x),
    "fdivide": torch.div,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "finite": torch.isfinite,
    "signbit": torch.signbit,
}
"""Each function takes tensors of equal shape, of float32, float64 or an integer type, and returns one like them."""


def host_function(symbol: str) -> Callable[..., torch.Tensor] | None:
    """Returns the function that computes libdevice's `symbol` (for example `__nv_tanhf`), elementwise on tensors.

    Returns None for a symbol that this module does not know.
    """
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for each in (name, name[:-1]):  # the last letter may stand for a type: f is float32, d is float64
        if each in _TORCH_NAMES and (each == name or name[-1] == "f"):
            function: Callable[..., torch.Tensor] = getattr(torch, each)
            return function
        if each in _OTHER_NAMES and (each == name or name[-1] in "fd"):
            return _OTHER_NAMES[each]
    return None


def extern_elementwise(handle: Any) -> Callable[..., Any]:
    """Returns a method for the interpreter's builder that computes a function of libdevice elementwise.

    `handle` is the class of the interpreter's values. The method raises NotImplementedError for a function that this
    module does not know.
    """

    def create(self: Any, lib_name: str, lib_path: str, symbol: str, values: Any, result: Any, is_pure: bool) -> Any:
        function = host_function(symbol)
        if function is None:
            raise NotImplementedError(f"libdevice's {symbol} is not emulated")
        arrays = np.broadcast_arrays(*(value.data for value in values))
        computed = function(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))
        kind = {"fp32": np.float32, "fp64": np.float64, "int32": np.int32, "int64": np.int64}[str(result.scalar)]
        return handle(computed.numpy().astype(kind).reshape(arrays[0].shape), result.scalar)

    return create


def interpreted(function: Callable[..., Any], semantic: Any) -> Callable[..., Any]:
    """Returns `function`, a function of Triton's language, that the interpreter carries out where no compiler calls it.

    Triton's compiler passes its own object for the operations of the language, also to a function that a candidate has
    imported by name.
    """

    @functools.wraps(function)
    def either(*arguments: Any, _semantic: Any = None, **keywords: Any) -> Any:
        return function(*arguments, **keywords, _semantic=semantic if _semantic is None else _semantic)

    return either


def install(semantic: Any, replace: Callable[[Any, str, Any], None]) -> None:
    """Replaces the functions in Triton's modules `libdevice`, so that interpreted kernels can call them.

    `semantic` is the interpreter's object that carries out the language's operations. `replace` sets an attribute of a
    module.
    """
    own = importlib.import_module("triton.language.extra.cuda.libdevice")
    common = importlib.import_module("triton.language.extra.libdevice")
    core = importlib.import_module("triton.language.core")
    for name, function in list(vars(own).items()):
        if core.is_builtin(function):
            bound = interpreted(function, semantic)
            replace(own, name, bound)
            replace(common, name, bound)
