"""Loads the reference's parameters into a candidate's model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from kernel_harness.ipc.tensors import checksums

# What torch keeps of a module in attributes that hold its parameters, its buffers and the modules below it.
_OF_TORCH = frozenset(("_parameters", "_buffers", "_modules"))


def load(model: Any, state: Mapping[str, torch.Tensor], initial: Mapping[str, int]) -> bool:
    """Loads the state dict `state` into `model`, in place. Returns whether the model has these values afterwards.

    It has not if `state` is empty, or has other names or shapes than the model's own state dict. `initial` has the
    checksum of each tensor of the reference's state dict as its constructor sets it. If the model has other values, its
    constructor may have multiplied a weight by a constant, to save that work in each call. Nor is the state dict loaded
    if the model holds a tensor that is not in its own: its constructor may have computed it from a parameter, for
    example as a packed copy. A right kernel would then use old values.
    """
    if not state or not isinstance(model, torch.nn.Module):
        return False
    own = model.state_dict()
    if _shapes(own) != _shapes(state) or checksums(own) != initial:
        return False
    known = {_place(value) for value in own.values()}
    if any(_place(tensor) not in known for tensor in _tensors(model)):
        return False
    model.load_state_dict(state)
    return True


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in state.items()}


def _place(tensor: torch.Tensor) -> int | None:
    """Returns the address of the tensor's memory, which its views share. It is None for a sparse tensor."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return None


def _tensors(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yields the tensors with elements that the modules of `model` hold: all buffers, and those in other attributes."""
    yield from (buffer for buffer in model.buffers() if buffer.numel())
    for module in model.modules():
        yield from _in(value for name, value in vars(module).items() if name not in _OF_TORCH)


def _in(values: Iterable[Any], depth: int = 4) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.numel():
                yield value
        elif depth and isinstance(value, (Mapping, list, tuple)):
            yield from _in(value.values() if isinstance(value, Mapping) else value, depth - 1)
