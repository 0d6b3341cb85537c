"""Keeps inputs, answers, and the reference's models as long as no call changes them, while they take little memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from types import FunctionType
from typing import Any, Generic, TypeVar

import torch
from torch.utils import _pytree as pytree

from kernel_harness.ipc.tensors import checksum
from kernel_harness.problem.model_values import FIXED, values

T = TypeVar("T")
V = TypeVar("V")


class Kept(Generic[V]):
    """A cache with one value for each key. `trim` removes the oldest values if their tensors take too much memory."""

    def __init__(self) -> None:
        self._values: dict[Hashable, tuple[V, int]] = {}  # values and their bytes, the oldest first

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def __getitem__(self, key: Hashable) -> V:
        return self._values[key][0]

    def keep(self, key: Hashable, value: V, held: Iterable[torch.Tensor]) -> None:
        """Stores `value` for `key`; its memory is that of the tensors `held`. A later `trim` may remove it."""
        self._values[key] = value, sum(tensor.nbytes for tensor in held)

    def pop(self, key: Hashable) -> V:
        """Removes and returns the value for `key`."""
        return self._values.pop(key)[0]

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors of all values."""
        return sum(nbytes for _, nbytes in self._values.values())

    def trim(self, most_bytes: float) -> None:
        """Removes the oldest values until the remaining ones take at most `most_bytes` together."""
        while self._values and self.nbytes > most_bytes:
            del self._values[next(iter(self._values))]

    def clear(self) -> None:
        """Removes all values."""
        self._values.clear()


class UnchangedModels(Kept[tuple[Any, list[Any] | None]]):
    """Models that were left as they were by their last call, for further calls.

    A constructor draws each weight anew, which takes 0.5 s for 100 million weights, and a check needs several calls.
    The models that were called last are kept with their states, as many as take at most `most_bytes()` together; none
    is kept that holds a value that cannot be compared. `was_changed` says whether the last call changed the model; it
    is None if such a model, or a larger one, cannot be compared with its earlier state.
    """

    def __init__(self, most_bytes: Callable[[], float]) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self.was_changed: bool | None = None

    def call(self, key: Hashable, make: Callable[[], Any], call: Callable[[Any], T]) -> T:
        """Returns `call(model)`. The model is a kept one if it was made for an equal `key`, else a new `make()`."""
        most_bytes = self._most_bytes()
        if key in self:
            model, state = self.pop(key)  # the call may raise an exception
        else:
            self.trim(most_bytes / 2)  # another model may need as much
            model = make()
            state = _state(model, most_bytes)
        result = call(model)
        self.was_changed = None if state is None else state != _state(model, most_bytes)
        if self.was_changed is False:
            self.keep(key, (model, state), (value for value in values(model) if isinstance(value, torch.Tensor)))
            self.trim(most_bytes)
        return result


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
