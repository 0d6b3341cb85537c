"""Keeps the reference's models from one call to the next, as long as no call changes them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from kernel_harness.ipc.tensors import checksum
from kernel_harness.problem.model_values import FIXED, values

T = TypeVar("T")


class UnchangedModels:
    """Models that were left as they were by their last call, for further calls.

    A constructor draws each weight anew, which takes 0.5 s for 100 million weights, and a check needs several calls.
    The models that were called last are kept, as many as take at most `most_bytes()` together; none is kept that holds
    a value that cannot be compared. `was_changed` says whether the last call changed the model; it is None if such a
    model, or a larger one, cannot be compared with its earlier state.
    """

    def __init__(self, most_bytes: Callable[[], float]) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[Hashable, tuple[Any, list[Any] | None]] = {}  # models and their states, the oldest first
        self.was_changed: bool | None = None

    def call(self, key: Hashable, make: Callable[[], Any], call: Callable[[Any], T]) -> T:
        """Returns `call(model)`. The model is a kept one if it was made for an equal `key`, else a new `make()`."""
        most_bytes = self._most_bytes()
        if key in self._kept:
            model, state = self._kept.pop(key)  # the call may raise an exception
        else:
            self.trim(most_bytes / 2)  # another model may need as much
            model = make()
            state = _state(model, most_bytes)
        result = call(model)
        self.was_changed = None if state is None else state != _state(model, most_bytes)
        if self.was_changed is False:
            self._kept[key] = model, state
            self.trim(most_bytes)
        return result

    @property
    def nbytes(self) -> int:
        """The bytes of the kept models' tensors."""
        held = (value for model, _ in self._kept.values() for value in values(model))
        return sum(value.nbytes for value in held if isinstance(value, torch.Tensor))

    def trim(self, most_bytes: float) -> None:
        """Forgets the models that were not called for longest, until the others take at most `most_bytes`."""
        while self._kept and self.nbytes > most_bytes:
            del self._kept[next(iter(self._kept))]

    def clear(self) -> None:
        """Forgets all models."""
        self._kept.clear()


def _state(model: Any, most_bytes: float) -> list[Any] | None:
    """Returns all that a call of the model may change, in a form that can be compared before and after the call.

    Returns None if the model's tensors take more than `most_bytes`, or if the model holds a value that cannot be
    compared. A tensor is represented by its identity, shape and strides, and by a checksum of its bytes.
    """
    state, sums, nbytes = list[Any](), list[torch.Tensor](), 0
    for value in values(model):
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                return None
            nbytes += value.nbytes
            if nbytes > most_bytes:
                return None
            state.append((id(value), value.shape, value.stride()))
            sums.append(checksum(value))
        elif isinstance(value, (*FIXED, FunctionType, pytree.TreeSpec)):
            state.append((type(value), value))
        elif isinstance(value, set):
            state.append(frozenset(value))
        else:
            return None
    # One copy for each device, because each waits for the device.
    for device in {each.device for each in sums}:
        state += torch.stack([each for each in sums if each.device == device]).tolist()
    return state
