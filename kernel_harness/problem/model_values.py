"""What a model holds: the values of its attributes and of its submodules' attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

FIXED = (bool, int, float, complex, str, bytes, type(None), type, torch.dtype, torch.device, torch.Size, type(len))
"""Types of values that a call cannot change in place."""


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
            elif isinstance(value, FIXED):  # as most are: tree_flatten takes ten times as long
                yield value
            elif isinstance(value, dict) and not value:
                yield type(value)
            else:
                leaves, structure = pytree.tree_flatten(value)
                yield from leaves
                yield structure
