"""Reads and writes memory for many programs of a Triton kernel at once, and can take writes back.

Addresses are arrays of uint64, each of the first byte of a number. An address whose mask is false is not accessed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST_LOGGED = 1 << 30
"""The bytes that the numbers overwritten by one chunk of programs may take, with their places."""


class Memory:
    """The memory of this process, with the numbers that stores have overwritten since `begin`."""

    def __init__(self) -> None:
        self._overwritten: list[tuple[Array, Array, Array]] = []
        self._bytes = 0

    def begin(self) -> None:
        """Makes all earlier stores final."""
        self._overwritten, self._bytes = [], 0

    def undo(self) -> None:
        """Takes the stores since `begin` back."""
        for numbers, at, old in reversed(self._overwritten):
            numbers[at] = old
        self.begin()

    def load(self, addresses: Array, mask: Array | None, kind: np.dtype[Any], other: Array | None) -> Array:
        """Returns the numbers of type `kind` at `addresses`, and `other` (0 if None) where `mask` is false.

        The arrays have one shape, or shapes that broadcast.
        """
        if mask is None or mask.all():
            numbers, at = _places(addresses, kind)
            found: Array = numbers[at]
            return found
        shape = np.broadcast_shapes(addresses.shape, mask.shape)
        addresses, mask = np.broadcast_to(addresses, shape), np.broadcast_to(mask, shape)
        if not mask.any():
            fill = np.zeros((), kind) if other is None else other.astype(kind, copy=False)
            return np.broadcast_to(fill, np.broadcast_shapes(shape, fill.shape))
        allowed = addresses[np.unravel_index(mask.argmax(), shape)]  # to read in place of an address that is masked out
        numbers, at = _places(np.where(mask, addresses, allowed), kind)
        return np.where(mask, numbers[at], kind.type(0) if other is None else other.astype(kind, copy=False))

    def store(self, addresses: Array, values: Array, mask: Array | None) -> None:
        """Stores `values` at `addresses`. Of two values for one address the last one remains, in the arrays' order.

        The arrays have one shape, or shapes that broadcast. Raises MemoryError if it could not be taken back.
        """
        if mask is not None and mask.all():
            mask = None
        shape = np.broadcast_shapes(addresses.shape, values.shape, () if mask is None else mask.shape)
        addresses, values = np.broadcast_to(addresses, shape), np.broadcast_to(values, shape)
        chosen = ... if mask is None else np.broadcast_to(mask, shape)
        addresses, values = np.ravel(addresses[chosen]), np.ravel(values[chosen])
        if addresses.size:
            numbers, at = self.keep(addresses, values.dtype)
            numbers[at] = values

    def keep(self, addresses: Array, kind: np.dtype[Any]) -> tuple[Array, Array]:
        """Keeps what is at `addresses`, so that `undo` restores it. Returns an array and its indices that are there.

        Raises MemoryError if too much was kept.
        """
        numbers, at = _places(addresses, kind)
        self._bytes += at.nbytes + at.size * kind.itemsize
        if self._bytes > MOST_LOGGED:
            raise MemoryError("the programs store too much to take it back")
        self._overwritten.append((numbers, at, numbers[at]))
        return numbers, at


class _Address:
    def __init__(self, first: int, count: int, kind: np.dtype[Any]) -> None:
        self.__array_interface__ = {"data": (first, False), "shape": (count,), "typestr": kind.str, "version": 3}


def _places(addresses: Array, kind: np.dtype[Any]) -> tuple[Array, Array]:
    """Returns an array over memory from the first to the last of `addresses`, and the indices of `addresses` in it.

    Only the numbers that are indexed are accessed. Raises ValueError if addresses are no multiple of the size apart.
    """
    first = addresses.min()
    # In C order, which makes later sums add in the order of the interpreter for one program.
    at: Array = np.subtract(addresses, first, order="C").view(np.int64)
    if kind.itemsize > 1:
        shift = kind.itemsize.bit_length() - 1
        if (at & (kind.itemsize - 1)).any():
            raise ValueError("the addresses are not aligned")
        at >>= shift
    return np.asarray(_Address(int(first), int(at.max()) + 1, kind)), at
