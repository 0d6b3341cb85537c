"""Arguments and results as JSON structure and raw bytes. No pickle: what arrives can only be data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Around each tensor of a buffer; also what CUDA's allocator aligns to, so that vector loads behave alike.
CANARY_BYTES = 512
_CANARY = bytes((37 * i + 11) % 256 for i in range(CANARY_BYTES))
MAX_LEAVES = 256
MAX_RANK = 16
MAX_DEPTH = 64

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Unreadable(Exception):
    """A structure that is not one of ours, or a value of a type that cannot be carried."""


@dataclass(frozen=True)
class Leaf:
    """Where one tensor's bytes lie. Strides are in elements and dense: they cover the bytes without gaps."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.count * int(self.dtype.itemsize)

    def view(self, memory: Any) -> torch.Tensor:
        """The tensor in `memory`, shared with it. An empty tensor shares nothing."""
        return self.of(self.bytes(memory))

    def bytes(self, memory: Any) -> torch.Tensor:
        """Its bytes in `memory`, shared with it, as a flat uint8 tensor."""
        if not self.count:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(memory, dtype=torch.uint8, count=self.nbytes, offset=self.offset)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor that these bytes are."""
        if not self.count:
            return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)
        return flat.view(self.dtype).as_strided(self.shape, self.stride)

    def to_json(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "dtype": _NAMES[self.dtype],
            "shape": list(self.shape),
            "stride": list(self.stride),
            "offset": self.offset,
        }


def flatten(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """JSON structure and the tensors in it, in order. Raises Unreadable for a type that cannot be carried."""
    tensors: list[torch.Tensor] = []

    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype not in _NAMES or value.layout != torch.strided:
                raise Unreadable(f"a tensor of {value.dtype}, {value.layout} cannot be carried")
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, (list, tuple)):
            return {"tuple" if isinstance(value, tuple) else "list": [walk(v) for v in value]}
        if isinstance(value, dict):
            return {"dict": [[walk(k), walk(v)] for k, v in value.items()]}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"value": value}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        raise Unreadable(f"a {type(value).__name__} cannot be carried; use tensors, numbers, strings, lists and dicts")

    return walk(value), tensors


def unflatten(structure: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """The value that `flatten` took apart. Raises Unreadable."""
    try:
        return _unflatten(structure, tensors, MAX_DEPTH)
    except TypeError:  # a key that cannot be one
        raise Unreadable("not a structure") from None


def _unflatten(structure: Any, tensors: Sequence[torch.Tensor], depth: int) -> Any:
    if not depth:
        raise Unreadable(f"nested more than {MAX_DEPTH} deep")
    if not isinstance(structure, dict) or len(structure) != 1:
        raise Unreadable("not a structure")
    ((kind, content),) = structure.items()
    if kind == "tensor" and isinstance(content, int) and 0 <= content < len(tensors):
        return tensors[content]
    if kind in ("list", "tuple") and isinstance(content, list):
        items = [_unflatten(item, tensors, depth - 1) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict" and isinstance(content, list) and all(isinstance(p, list) and len(p) == 2 for p in content):
        return {_unflatten(key, tensors, depth - 1): _unflatten(value, tensors, depth - 1) for key, value in content}
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "value" and (content is None or isinstance(content, (bool, int, float, str))):
        return content
    if kind == "dtype" and content in _DTYPES:
        return _DTYPES[content]
    raise Unreadable(f"not a structure: {str(kind)[:40]}")


def skeleton(structure: Any) -> Any:
    """A structure without what its tensors hold: equal skeletons mean the same nesting and the same plain values."""
    if isinstance(structure, dict) and "tensor" in structure:
        return "tensor"
    if isinstance(structure, dict):
        # A tuple and a list of the same outputs are the same answer.
        return {"list" if kind == "tuple" else kind: skeleton(content) for kind, content in structure.items()}
    return [skeleton(item) for item in structure] if isinstance(structure, list) else structure


def outline(structure: Any) -> str:
    """A structure in Python's notation, for messages."""
    shape = structure if structure == "tensor" else skeleton(structure)
    if shape == "tensor":
        return "tensor"
    ((kind, content),) = shape.items()
    if kind in ("list", "tuple"):
        items = ", ".join("tensor" if item == "tensor" else outline(item) for item in content)
        return f"({items})"
    return repr(content)


def layout(tensors: Iterable[torch.Tensor], lead_bytes: int = 0) -> tuple[list[Leaf], int]:
    """A place for each tensor, canaries before and behind, and the bytes that takes in all.

    `lead_bytes`, a multiple of CANARY_BYTES, are more canaries before the first.
    """
    leaves, offset = [], CANARY_BYTES + lead_bytes
    for tensor in tensors:
        dense = tensor.stride() if _is_dense(tensor) else tensor.contiguous().stride()
        leaf = Leaf(tensor.dtype, tuple(tensor.shape), tuple(dense), offset)
        leaves.append(leaf)
        room = (leaf.nbytes + CANARY_BYTES - 1) // CANARY_BYTES * CANARY_BYTES
        offset += room + CANARY_BYTES
    return leaves, offset


def write(memory: Any, leaves: Sequence[Leaf], tensors: Iterable[torch.Tensor], size: int) -> None:
    """Fills a buffer of `size` bytes: canaries everywhere that no tensor is, then the tensors."""
    end = 0
    for leaf in leaves:
        _fill(memory, end, leaf.offset)
        end = leaf.offset + leaf.nbytes
    _fill(memory, end, size)
    for leaf, tensor in zip(leaves, tensors, strict=True):
        leaf.view(memory).copy_(tensor)


def damaged(memory: Any, leaves: Sequence[Leaf], size: int) -> list[int]:
    """Which leaves have a damaged canary just before or behind them."""
    ends = [0, *(leaf.offset + leaf.nbytes for leaf in leaves)]
    starts = [*(leaf.offset for leaf in leaves), size]
    gaps = [memory[end:start] == _canary(end, start) for end, start in zip(ends, starts, strict=True)]
    return [i for i in range(len(leaves)) if not gaps[i] or not gaps[i + 1]]


def read_leaves(described: Any, size: int) -> list[Leaf]:
    """Leaves as the other side describes them, each checked to lie within `size` bytes. Raises Unreadable."""
    if not isinstance(described, list) or len(described) > MAX_LEAVES:
        raise Unreadable("not a list of leaves")
    return [_read_leaf(each, size) for each in described]


def _read_leaf(described: Any, size: int) -> Leaf:
    try:
        dtype = _DTYPES[described["dtype"]]
        shape, stride, offset = tuple(described["shape"]), tuple(described["stride"]), described["offset"]
    except (KeyError, TypeError):
        raise Unreadable("not a leaf") from None
    if len(shape) != len(stride) or len(shape) > MAX_RANK:
        raise Unreadable("a leaf's shape and strides do not fit each other")
    if not all(type(n) is int and 0 <= n < 1 << 48 for n in (*shape, *stride, offset)):
        raise Unreadable("a leaf's numbers are out of range")
    # Even of an empty tensor torch multiplies the sizes; and it loads the widest types at their alignment only.
    if math.prod(max(1, n) for n in shape) >= 1 << 48 or offset % dtype.itemsize:
        raise Unreadable("a leaf's numbers are out of range")
    leaf = Leaf(dtype, shape, stride, offset)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if leaf.count else 0
    if reach > leaf.count:
        raise Unreadable("a leaf's shape and strides do not fit each other")
    if offset + leaf.nbytes > size:
        raise Unreadable("a leaf that reaches past its buffer")
    return leaf


def _is_dense(tensor: torch.Tensor) -> bool:
    """No gaps and no overlaps: sorted by stride, each stride is the product of the sizes before it."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _canary(start: int, end: int) -> bytes:
    first = start % CANARY_BYTES
    repeats = (end - start + first) // CANARY_BYTES + 1
    return (_CANARY * repeats)[first : first + end - start]


def _fill(memory: Any, start: int, end: int) -> None:
    memory[start:end] = _canary(start, end)
