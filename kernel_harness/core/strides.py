"""How the elements of a tensor lie in its storage: strides, gaps, overlaps and shared storages."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def is_dense(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's elements leave no gaps and do not overlap.

    This holds if, with dimensions sorted by stride, each stride is the product of the sizes of the dimensions before.
    Dimensions of size 1 are left out, because their strides have no effect. The result for a tensor without elements
    depends on its strides, and may be False.
    """
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def is_all_of_its_storage(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's elements are all bytes of its storage, each once."""
    return is_dense(tensor) and tensor.untyped_storage().nbytes() == tensor.nbytes


def may_overlap(tensor: torch.Tensor) -> bool:
    """Returns whether two elements may have the same address for another reason than a stride of 0.

    Returns True also for some tensors of which no elements overlap.
    """
    reached = 0
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if s and n > 1):
        if stride <= reached:
            return True
        reached += (size - 1) * stride
    return False


def reach(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Returns the number of elements from a tensor's first element in memory to its last one, with the gaps between."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else 0


def storage_of(tensor: torch.Tensor) -> int:
    """Returns a number that two tensors have in common if, and only if, they share a storage."""
    return int(tensor.untyped_storage()._cdata)


def seen_in(
    flat: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int], at: int
) -> torch.Tensor:
    """Returns a tensor in the storage of `flat` that is no view of `flat`, as torch sees it.

    `stride` and `at`, its offset in the storage, are in elements of `dtype`.
    """
    empty = torch.empty(0, dtype=dtype, device=flat.device)
    return empty.set_(flat.untyped_storage(), at, tuple(shape), tuple(stride))


def copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copies the elements of `source` to `target`, of the same shape, whose elements may overlap."""
    once = tuple(slice(0, 1) if s == 0 else slice(None) for s in target.stride())
    target[once].copy_(source[once])
