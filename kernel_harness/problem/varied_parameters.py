"""Makes constructors of models give different numbers to parameters that are one number everywhere, such as a bias."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

# A larger parameter keeps its number: it would take long, and torch.empty often returns zeros.
_MOST_ELEMENTS = 1 << 22
_SETTERS = ("ones_", "zeros_", "constant_")  # of torch.nn.init


@contextmanager
def varied(seed: int) -> Iterator[None]:
    """Returns a context in which a parameter that a constructor sets to one number has different numbers near it.

    They lie between 3/4 and 5/4 of the number, or between -1/4 and 1/4 for zero. A parameter is changed when a module
    registers it, and when ones_, zeros_ or constant_ of `torch.nn.init` sets it. What the constructor computes from it
    later, such as a packed copy, agrees with it. A parameter of more than _MOST_ELEMENTS elements keeps its number. The
    numbers depend on `seed`, the number of elements, how many parameters of this size came before, and the original
    number. So they are the same in two models that have the same parameters in the same order. Random numbers that the
    constructor draws are not affected.
    """
    places: dict[int, int] = {}
    seen: list[torch.nn.Parameter] = []  # keeps the parameters alive, so that each has an id of its own
    counts: Counter[int] = Counter()

    def vary(parameter: torch.nn.Parameter) -> None:
        if id(parameter) not in places:
            places[id(parameter)] = counts[parameter.numel()]
            counts[parameter.numel()] += 1
            seen.append(parameter)
        _vary(parameter, seed, places[id(parameter)])

    def registered(module: Any, name: str, parameter: Any) -> None:
        if isinstance(parameter, torch.nn.Parameter) and id(parameter) not in places:
            vary(parameter)

    with ExitStack() as changes:
        for name in _SETTERS:
            original = getattr(torch.nn.init, name)
            setattr(torch.nn.init, name, _followed_by(vary, original))
            changes.callback(setattr, torch.nn.init, name, original)
        changes.callback(register_module_parameter_registration_hook(registered).remove)
        yield


def _followed_by(vary: Any, original: Any) -> Any:
    @functools.wraps(original)
    def setter(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(tensor, *args, **kwargs)
        if isinstance(tensor, torch.nn.Parameter):
            vary(tensor)
        return result

    return setter


def _vary(parameter: torch.nn.Parameter, seed: int, place: int) -> None:
    if not parameter.is_floating_point() or not 0 < parameter.numel() <= _MOST_ELEMENTS or parameter.is_meta:
        return
    start = parameter.detach().flatten()[0].item()
    if not bool((parameter == start).all()):
        return
    # Python's hash of numbers is the same in each process.
    generator = torch.Generator().manual_seed(hash((seed, parameter.numel(), place, start)) % (1 << 63))
    change = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) / 2 - 1 / 4
    with torch.no_grad():
        parameter.copy_(start * (1 + change) if start else change)


def trained_parameters(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """Returns the names and the floating-point parameters of a model; none if it is no torch module."""
    named = model.named_parameters() if isinstance(model, torch.nn.Module) else []
    return [(name, each) for name, each in named if each.is_floating_point()]


def is_constant(value: torch.Tensor) -> bool:
    """Returns whether the tensor has elements, and all are one number."""
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())
