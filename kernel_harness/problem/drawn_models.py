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
_SHARE_OF_GPU = 1 / 16  # of its free memory, for each model that is kept there, too


class DrawnModels:
    """The models of one problem file at one shape, on the CPU, as their constructors have left them.

    Kept are models with at least _LEAST_BYTES of weights that a copy cannot share anything with, the last ones first,
    while they take at most _SHARE of the host's available memory. A model that was copied to a GPU is kept there, too,
    until `leave_gpu`, if it takes at most _SHARE_OF_GPU of the GPU's free memory.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}  # the oldest first
        self._on_gpu: dict[torch.nn.Module, Any] = {}  # the copies of kept models

    def get(self, key: Hashable, draw: Callable[[], Any]) -> tuple[Any, bool]:
        """Returns the model that was kept for an equal `key`, else a new one, `draw()`, and whether it is kept.

        A kept model must not be changed: `copy` makes another.
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
            self._on_gpu.pop(self._kept.pop(next(iter(self._kept))), None)
        return model, True

    def copy(self, model: Any, device: str) -> Any:
        """Returns a copy of a kept model on `device`."""
        if device == "cpu":
            return _copied(model, device)
        if model not in self._on_gpu:
            there = _copied(model, device)
            if _nbytes(model) > _SHARE_OF_GPU * torch.cuda.mem_get_info(device)[0]:
                return there
            self._on_gpu[model] = there
        return _copied(self._on_gpu[model], device)

    def leave_gpu(self) -> None:
        """Frees the memory of GPUs that kept models take."""
        self._on_gpu.clear()


def _copied(model: Any, device: str) -> Any:
    twin = copy.deepcopy(model, {id(each): _another(each, device) for each in _tensors(model)})
    return twin if device == "cpu" else twin.to(device)  # where recurrent layers put their weights together


def _another(tensor: torch.Tensor, device: str) -> torch.Tensor:
    data = tensor.detach().to(device, copy=True)
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
