"""Keeps models whose weights took long to draw, because each check needs a model with the same weights again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import psutil
import torch
from torch.utils import _pytree as pytree

from kernel_harness.problem.model_values import FIXED, values

# To draw 100 million weights takes half a second, and to copy them a twentieth of that.
_LEAST_BYTES = 1 << 24
_SHARE = 1 / 8  # of the available memory, for all kept models


class DrawnModels:
    """The models of one problem file at one shape, on the CPU, as their constructors have left them.

    Kept are models with at least _LEAST_BYTES of weights that a copy cannot share anything with, the last ones first,
    while they take at most _SHARE of the host's available memory.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}  # the oldest first

    def get(self, key: Hashable, draw: Callable[[], Any]) -> tuple[Any, bool]:
        """Returns the model that was kept for an equal `key`, else a new one, `draw()`, and whether it is kept.

        A kept model must not be changed: `copied` makes another.
        """
        if key in self._kept:
            self._kept[key] = self._kept.pop(key)
            return self._kept[key], True
        model = draw()
        if _nbytes(model) < _LEAST_BYTES or not _holds_only_data(model):
            return model, False
        self._kept[key] = model
        most = _SHARE * psutil.virtual_memory().available
        while sum(map(_nbytes, self._kept.values())) > most:
            del self._kept[next(iter(self._kept))]
        return model, True


def copied(model: Any, device: str) -> Any:
    """Returns a copy of a kept model, which is on the CPU, on `device`."""
    own = device == "cpu"  # a move to another device copies the tensors anyway
    memo: dict[int, Any] = {id(each): _another(each, own=own) for each in _tensors(model)}
    twin = copy.deepcopy(model, memo)
    return twin if own else twin.to(device)


def _another(tensor: torch.Tensor, *, own: bool) -> torch.Tensor:
    data = tensor.detach().clone() if own else tensor.detach()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(data, tensor.requires_grad)
    return data


def _tensors(model: Any) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _nbytes(model: Any) -> int:
    return sum(each.nbytes for each in _tensors(model)) if isinstance(model, torch.nn.Module) else 0


def _holds_only_data(model: torch.nn.Module) -> bool:
    """Returns whether nothing in a copy of the model could refer to the model, as a bound method would.

    Nor may tensors share memory, which those of a copy would not.
    """
    held = list(values(model))
    tensors = {id(each): each for each in held if isinstance(each, torch.Tensor)}
    return all(map(_is_data, held)) and len({t.untyped_storage().data_ptr() for t in tensors.values()}) == len(tensors)


def _is_data(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided and not vars(value)
    if isinstance(value, FunctionType):
        return value.__closure__ is None and not value.__defaults__ and not value.__kwdefaults__
    if isinstance(value, BuiltinFunctionType):
        return not isinstance(value.__self__, (torch.Tensor, torch.nn.Module))
    if isinstance(value, set):
        return all(isinstance(each, FIXED) for each in value)
    return isinstance(value, (*FIXED, pytree.TreeSpec))
