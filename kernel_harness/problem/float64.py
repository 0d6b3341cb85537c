"""Runs a model in float64, even if its code makes float32 tensors itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernel_harness.problem.torch_modes import FunctionMode


class Float32ToFloat64(FunctionMode):
    """A context within which torch's functions take and return float64 tensors in place of float32 ones.

    The numbers are the same: `torch.randn` draws in float32, and the result is converted.
    """

    def result_of(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls `func`, a torch function called within the context, with float64 tensors."""
        arguments, keywords = pytree.tree_map(_wide, (args, dict(kwargs)))
        return pytree.tree_map(_wide, func(*arguments, **keywords))


def widened(model: Any) -> Any:
    """Converts a model to float64 in place, and returns the model.

    The function converts all floating-point parameters and buffers. It also converts the float32 tensors that the
    model's modules hold as plain attributes, alone or in lists and tuples.
    """
    for module in model.double().modules():
        for name, value in vars(module).items():
            if isinstance(value, (torch.Tensor, list, tuple)):
                vars(module)[name] = pytree.tree_map(_wide, value)
    return model


def _wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value
