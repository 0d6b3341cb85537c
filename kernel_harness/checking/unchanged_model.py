"""Keeps the reference's model from one call to the next, as long as no call changes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from kernel_harness.ipc.tensors import checksum

T = TypeVar("T")

MOST_BYTES = 1 << 30
# Values that a call cannot change in place. Functions are compared by identity.
_FIXED = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.Size, type(len))
_FUNCTION = type(lambda: None)


class UnchangedModel:
    """The model of the last call, if that call left it as it was.

    A constructor draws each weight anew, which takes 0.5 s for 100 million weights, and a check needs several calls. A
    model of more than MOST_BYTES is not kept, nor one that holds a value that cannot be compared. `was_changed` says
    whether the last call changed the model; it is None if such a model cannot be compared with its earlier state.
    """

    def __init__(self) -> None:
        self._key: Hashable = None
        self._model: Any = None
        self._state: list[Any] | None = None
        self.was_changed: bool | None = None

    def call(self, key: Hashable, make: Callable[[], Any], call: Callable[[Any], T]) -> T:
        """Returns `call(model)`. The model is the kept one if it was made for an equal `key`, else a new `make()`."""
        if self._model is None or self._key != key:
            self.clear()
            model = make()
            state = _state(model)
        else:
            model, state = self._model, self._state
            self.clear()  # the call may raise an exception
        result = call(model)
        self.was_changed = None if state is None else state != _state(model)
        if self.was_changed is False:
            self._key, self._model, self._state = key, model, state
        return result

    @property
    def nbytes(self) -> int:
        """The bytes of the kept model's tensors."""
        return sum(value.nbytes for value in values(self._model) if isinstance(value, torch.Tensor))

    def clear(self) -> None:
        """Forgets the model."""
        self._key = self._model = self._state = None


def _state(model: Any) -> list[Any] | None:
    """Returns all that a call of the model may change, in a form that can be compared before and after the call.

    Returns None if the model's tensors take more than MOST_BYTES, or if the model holds a value that cannot be
    compared. A tensor is represented by its identity, shape and strides, and by a checksum of its bytes.
    """
    state, sums, nbytes = list[Any](), list[torch.Tensor](), 0
    for value in values(model):
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                return None
            nbytes += value.nbytes
            if nbytes > MOST_BYTES:
                return None
            state.append((id(value), value.shape, value.stride()))
            sums.append(checksum(value))
        elif isinstance(value, (*_FIXED, _FUNCTION, pytree.TreeSpec)):
            state.append((type(value), value))
        elif isinstance(value, set):
            state.append(frozenset(value))
        else:
            return None
    # One copy for each device, because each waits for the device.
    for device in {each.device for each in sums}:
        state += torch.stack([each for each in sums if each.device == device]).tolist()
    return state


def values(model: Any) -> Iterator[Any]:
    """Yields what the attributes of a model and of its submodules hold, in a fixed order.

    For each attribute, these are its name, the values in its containers (lists, tuples and dicts, nested at will), and
    the structure of the containers. A tensor is one value. A submodule is represented by its name and its `id`.
    """
    modules = model.modules() if isinstance(model, torch.nn.Module) else [model]
    for module in modules:
        for name, value in vars(module).items() if hasattr(module, "__dict__") else ():
            yield name
            if name == "_modules":  # modules() yields these
                yield from value
                yield from map(id, value.values())
            else:
                leaves, structure = pytree.tree_flatten(value)
                yield from leaves
                yield structure
