"""Finds out which tensors a problem's own code has put on a CUDA device, and how the others get there.

KernelBench moves the inputs to the device after get_inputs() has made them. That keeps the strides of a dense tensor,
and copies any other tensor to a dense one. An input that get_inputs() itself has put on the device stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from kernel_harness.core.strides import copy, is_all_of_its_storage, may_overlap, seen_in, storage_of
from kernel_harness.problem.torch_modes import FunctionMode

# What torch.device("cuda") returns where the CPU replaces CUDA. Tensors made there are on "cpu".
_STANDS_FOR_CUDA = torch.device("cpu", 0)


class MadeOnCuda(FunctionMode):
    """A context that notes the tensors which the code in it puts on a CUDA device, and may be entered again.

    These are the results of functions that name a CUDA device or that get a noted tensor and name no other device.
    Which device the tensors are on makes no difference, so the context works where the CPU replaces CUDA, and where a
    GPU is the default device. The context applies to the current thread only.
    """

    def __init__(self) -> None:
        super().__init__()
        # The address of a freed storage is not used again as long as a weak reference to it exists.
        self._storages: dict[int, StorageWeakRef] = {}

    def holds(self, tensor: torch.Tensor) -> bool:
        """Returns whether the tensor, or one that shares its storage, was put on a CUDA device."""
        return tensor.layout is torch.strided and storage_of(tensor) in self._storages

    def result_of(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls `func`, a torch function called within the context, and notes its result if it is on a CUDA device."""
        given = [*pytree.tree_leaves(args), *pytree.tree_leaves(dict(kwargs))]
        named = _device_of(func, given)
        if func is torch.device:
            made = func(*args, **kwargs)
            return _STANDS_FOR_CUDA if named == "cuda" and made.type == "cpu" else made
        moves = func in (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)
        if moves and named is None and len(given) > 1 and isinstance(given[1], torch.Tensor):  # as in x.to(y)
            named = "cuda" if self.holds(given[1]) else "cpu"
        before = {storage_of(each) for each in _strided(given)}
        on_cuda = named == "cuda" if named else any(map(self.holds, _strided(given)))
        result = func(*args, **kwargs)
        if moves and on_cuda is not self.holds(args[0]) and storage_of(result) in before:
            result = result.to(result.device, copy=True)
        if on_cuda:
            for each in _strided(pytree.tree_leaves(result)):
                if storage_of(each) not in before:
                    self._storages[storage_of(each)] = StorageWeakRef(each.untyped_storage())
        return result


def _device_of(func: Callable[..., Any], given: Iterable[Any]) -> str | None:
    """Returns "cuda" or "cpu" if a call of `func` with the arguments `given` names such a device, else None."""
    if func in (torch.Tensor.cuda, torch.Tensor.cpu):
        return "cuda" if func is torch.Tensor.cuda else "cpu"
    names = [each for each in given if isinstance(each, (str, torch.device))]
    kinds = ["cuda" if each == _STANDS_FOR_CUDA else str(each).partition(":")[0] for each in names]
    return next((kind for kind in kinds if kind in ("cuda", "cpu")), None)


def _strided(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    return (each for each in values if isinstance(each, torch.Tensor) and each.layout is torch.strided)


def as_on_the_device(inputs: Any, made: MadeOnCuda) -> Any:
    """Returns the inputs with the layouts that they have on the device after KernelBench has moved them there.

    A tensor that `made` holds is returned as it is. Any other one gets the strides that a copy to the device would
    have, and a storage of its own.
    """
    taken: set[int] = set()

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or made.holds(value):
            return value
        alone = is_all_of_its_storage(value) and storage_of(value) not in taken
        taken.add(storage_of(value))
        return value if alone else value.to(value.device, copy=True)

    with torch.no_grad():
        return pytree.tree_map(moved, inputs)


def laid_out_as(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Returns the values `after` with the strides, offsets and shared storages of the tensors `before`.

    Both have the same number of values, and their tensors the same shapes and dtypes. A tensor that did not change is
    the same object in both. Tensors whose elements overlap, other than by a stride of 0, stay as they were, and so do
    those that share a storage with them.
    """
    held = [value for value in before if isinstance(value, torch.Tensor)]
    fixed = {storage_of(tensor) for tensor in held if may_overlap(tensor)}
    changed = {storage_of(a) for a, b in zip(before, after, strict=True) if isinstance(a, torch.Tensor) and a is not b}
    shared = {key for key, count in Counter(map(storage_of, held)).items() if count > 1}
    storages: dict[int, torch.Tensor] = {}

    def laid_out(old: Any, new: Any) -> Any:
        if not isinstance(old, torch.Tensor) or (key := storage_of(old)) in fixed or key not in changed:
            return old
        if key not in shared and is_all_of_its_storage(old) and old.stride() == new.stride():
            return new
        if key not in storages:
            storages[key] = torch.empty(old.untyped_storage().nbytes(), dtype=torch.uint8, device=old.device)
        there = seen_in(storages[key], old.dtype, old.shape, old.stride(), old.storage_offset())
        copy(new, there)
        return there

    return [laid_out(old, new) for old, new in zip(before, after, strict=True)]
