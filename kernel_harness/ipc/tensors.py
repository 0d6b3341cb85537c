"""Converts a value, such as a model's inputs, to a JSON structure and the raw bytes of its tensors, and back.

Nothing is pickled, so reading a value from an untrusted process cannot run code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_harness.core.codec import Malformed
from kernel_harness.core.strides import is_dense, reach, storage_of

# The guard bytes: known bytes before and after each tensor of a buffer. CUDA's allocator also aligns tensors to
# 512 bytes, so vector loads behave in a buffer as they do elsewhere.
GUARD_BYTES = 512
MAX_LEAVES = 8192  # tensors for a worker: the state of a deep network has about 1,200
MAX_OUTPUTS = 256  # tensors that a call returns
MAX_RANK = 64  # dimensions; some functions of torch refuse tensors with more
MAX_DEPTH = 64

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


_PIECE_BYTES, _MOST_PIECES = 1 << 14, 64
_MULTIPLIER = 0x5851F42D4C957F2D  # of Knuth's MMIX generator (The Art of Computer Programming, vol. 2, 3.3.4)


class Unreadable(Malformed):
    """The error raised if a received description of a value or tensor is malformed, or if a value cannot be sent."""


@dataclass(frozen=True)
class Leaf:
    """The description of one tensor in a buffer: its dtype, its shape and the place of its bytes.

    `stride` is in elements. `offset` is in bytes from the buffer's start. `storage` is the offset of the first byte of
    the tensor's storage, which other tensors may share; between the elements of such a tensor may be gaps, and they may
    overlap. It is None for a tensor that has a storage of its own, whose first byte is the tensor's, and for which
    `from_json` refuses strides with which an element would lie outside the `nbytes` bytes from `offset` on.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: int | None = None

    @property
    def count(self) -> int:
        """Returns the number of elements in the tensor."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Returns the number of bytes that the tensor takes, from its first element to its last one."""
        return (self.count if self.storage is None else reach(self.shape, self.stride)) * int(self.dtype.itemsize)

    @property
    def start(self) -> int:
        """Returns the offset of the first byte of the tensor's storage from the buffer's start."""
        return self.offset if self.storage is None else self.storage

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        """Returns the tensor as a view of the buffer `memory`. An empty tensor shares no memory with the buffer."""
        return self.of(self.bytes(memory))

    def bytes(self, memory: torch.Tensor) -> torch.Tensor:
        """Returns the tensor's bytes in the buffer `memory` as a flat uint8 tensor, without a copy."""
        return memory[self.offset : self.offset + self.nbytes]

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns the described tensor with its bytes taken from `flat`, a flat uint8 tensor, without a copy."""
        if not self.count:
            return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=flat.device)
        typed = flat.view(self.dtype)
        return typed.as_strided(self.shape, self.stride, typed.storage_offset())

    def without_values(self) -> torch.Tensor:
        """Returns the described tensor on torch's "meta" device. It takes no memory."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")

    def to_json(self) -> dict[str, Any]:
        """Returns this description of a tensor as a JSON object, for a message."""
        return {
            "dtype": _NAMES[self.dtype],
            "shape": list(self.shape),
            "stride": list(self.stride),
            "offset": self.offset,
            "storage": self.storage,
        }

    @classmethod
    def from_json(cls, described: Any) -> Leaf:
        """Returns the Leaf that `described`, a JSON value from another process, describes.

        Raises Unreadable if `described` is malformed.
        """
        try:
            dtype, storage = _DTYPES[described["dtype"]], described["storage"]
            shape, stride, offset = tuple(described["shape"]), tuple(described["stride"]), described["offset"]
        except (KeyError, TypeError):
            raise Unreadable("a tensor's dtype, shape, stride or offset is missing or unknown") from None
        if len(shape) > MAX_RANK:
            raise Unreadable(f"a tensor has {len(shape)} dimensions; at most {MAX_RANK} are possible")
        if len(shape) != len(stride):
            raise Unreadable("a tensor's shape and strides contradict each other")
        start = offset if storage is None else storage
        check_in_range((*shape, *stride, offset, start), "a tensor's shape, stride or offset")
        # torch multiplies the sizes of an empty tensor too, so their product must not overflow. torch loads the widest
        # types only from aligned addresses.
        aligned = offset % dtype.itemsize == 0 and start <= offset and (offset - start) % dtype.itemsize == 0
        if math.prod(max(1, n) for n in shape) >= 1 << 48 or not aligned:
            raise Unreadable("a tensor's shape, stride or offset is out of range")
        leaf = cls(dtype, shape, stride, offset, storage)
        if storage is None and reach(shape, stride) > leaf.count:
            raise Unreadable("a tensor's shape and strides contradict each other")
        return leaf


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the tensor's bytes in row-major order, each eight bytes read as one int64.

    The result is an int64 tensor without dimensions on the device of `tensor`. Each of the last bytes that do not fill
    eight bytes is added as a number of its own. A sum that overflows wraps.
    """
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if data.storage_offset() % 8:
        data = data.clone()
    whole = len(data) // 8 * 8
    return data[:whole].view(torch.int64).sum() + data[whole:].sum()


def fingerprint(tensor: torch.Tensor) -> int:
    """Returns a number that differs, but for a rare coincidence, for tensors of equal shape with different bytes.

    It is the sum of the bytes in row-major order, each eight read as one int64, of which the upper half is added to the
    lower one without carry, and multiplied by an odd number that depends on their position. Computed in pieces, because
    the products take as much memory as the tensor.
    """
    data = tensor.detach().reshape(-1).view(torch.uint8)
    total = 0
    size = max(_PIECE_BYTES, len(data) // _MOST_PIECES // 8 * 8)
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        if len(piece) % 8 or piece.storage_offset() % 8:
            piece = torch.cat([piece, piece.new_zeros(-len(piece) % 8)])
        words = piece.view(torch.int64)
        places = torch.arange(start // 8, start // 8 + len(words), device=data.device)
        total += int(((words ^ (words >> 32)) * (places * _MULTIPLIER | 1)).sum())
    return total % (1 << 64)


def checksums(state: Mapping[str, Any]) -> dict[str, int]:
    """Returns the checksum of each dense tensor of a state dict."""
    dense = {name: value for name, value in state.items() if getattr(value, "layout", None) is torch.strided}
    return {name: int(checksum(value)) for name, value in dense.items()}


def value_sums(state: Mapping[str, Any]) -> dict[str, int]:
    """Returns a number for each dense floating-point tensor of a state dict, for any order of its values.

    So tensors with the same values have the same number, whatever their names and shapes are.
    """
    dense = {name: value for name, value in state.items() if getattr(value, "layout", None) is torch.strided}
    return {
        name: int(checksum(value.detach().flatten().sort().values))
        for name, value in dense.items()
        if value.is_floating_point()
    }


def flatten(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """Returns `value` in two parts: a JSON structure, and a list of its tensors, which the structure names by index.

    The structure holds the nesting (lists, tuples, dicts) and the plain values: numbers, bools, texts, None and dtypes.
    Raises Unreadable if `value` contains another type, a tensor that is not strided, or a tensor of a dtype that is not
    in _DTYPES.
    """
    tensors: list[torch.Tensor] = []
    return _flatten(value, tensors), tensors


def flatten_output(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """Returns the output of a model in two parts, as `flatten` does, in a form in which two outputs are compared.

    The items of a dictionary are sorted, because equal dictionaries may differ in the order of their items. An int
    below 2**63 in magnitude or a float becomes a tensor without dimensions, of int64 or float32, and is compared as a
    tensor, because the last bits of a sum depend on the order of its terms.
    """
    return flatten(_comparable(value))


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: (type(item[0]).__name__, str(item[0])))
        return {key: _comparable(each) for key, each in items}
    if isinstance(value, (list, tuple)):
        each = [_comparable(item) for item in value]
        return tuple(each) if isinstance(value, tuple) else each
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float32)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return torch.tensor(value)
    return value


# Not a function within `flatten`: one that calls itself would keep the tensors until Python looks for cycles.
def _flatten(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype not in _NAMES or value.layout != torch.strided:
            raise Unreadable(f"a {value.dtype} tensor of layout {value.layout} cannot be sent to another process")
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [_flatten(v, tensors) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_flatten(k, tensors), _flatten(v, tensors)] for k, v in value.items()]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    raise Unreadable(
        f"a {type(value).__name__} cannot be sent to another process; use tensors, numbers, strings, lists and dicts"
    )


def unflatten(structure: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Returns the value that `flatten` split into `structure` and `tensors`.

    Raises Unreadable if `structure` is malformed, is nested more than MAX_DEPTH deep, or has an index for which
    `tensors` has no tensor.
    """
    try:
        return _unflatten(structure, tensors, MAX_DEPTH)
    except TypeError:  # a dict's key cannot be hashed
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
    raise Unreadable(f"not a structure: {str(kind)[:40]!r}")


def skeleton(structure: Any) -> Any:
    """Returns `structure`, a result of `flatten`, with the same placeholder for every tensor.

    Two values with equal results have the same nesting and the same plain values. A tuple counts as a list.
    """
    if isinstance(structure, dict) and "tensor" in structure:
        return "tensor"
    if isinstance(structure, dict):
        # A tuple and a list count as the same output if their items are the same.
        return {"list" if kind == "tuple" else kind: skeleton(content) for kind, content in structure.items()}
    return [skeleton(item) for item in structure] if isinstance(structure, list) else structure


def outline(structure: Any) -> str:
    """Returns the nesting of an output as text for messages, for example `(tensor, 2)`.

    `structure` is a result of `flatten`.
    """
    ((kind, content),) = structure.items()
    match kind:
        case "tensor":
            return "tensor"
        case "list":
            return f"[{', '.join(map(outline, content))}]"
        case "tuple":
            return f"({', '.join(map(outline, content))}{',' if len(content) == 1 else ''})"
        case "dict":
            return f"{{{', '.join(f'{outline(key)}: {outline(value)}' for key, value in content)}}}"
        case "float" | "dtype":  # infinity, NaN, or the name of a dtype
            return str(content)
    return repr(content)


def layout(tensors: Iterable[torch.Tensor]) -> tuple[list[Leaf], int]:
    """Returns a description of each tensor's own place in one buffer, and the size of that buffer in bytes.

    The places leave room for guard bytes before and after each tensor, which reveal writes outside a tensor.
    The strides are those of the tensor, or contiguous ones if its elements have gaps between them or overlap.
    """
    leaves, offset = [], GUARD_BYTES
    for tensor in tensors:
        dense = tensor.stride() if is_dense(tensor) else tensor.contiguous().stride()
        leaf = Leaf(tensor.dtype, tuple(tensor.shape), tuple(dense), offset)
        leaves.append(leaf)
        offset += _room(leaf.nbytes)
    return leaves, offset


def layout_as_it_is(tensors: Sequence[torch.Tensor]) -> tuple[list[Leaf], int]:
    """Returns a description of each tensor's place in one buffer, and the size of that buffer in bytes, as `layout`.

    Each tensor keeps its strides and its offset in its storage, with gaps and overlaps. Tensors that share a storage
    share one in the buffer, too. Only a tensor that is all of its storage gets a place as from `layout`.
    """
    together: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        together.setdefault(storage_of(tensor), []).append(tensor)
    starts, offset = {}, GUARD_BYTES
    for key, sharing in together.items():
        starts[key] = offset
        offset += _room(max((t.storage_offset() + reach(t.shape, t.stride())) * t.itemsize for t in sharing))
    leaves = []
    for tensor in tensors:
        start = starts[storage_of(tensor)]
        at = start + tensor.storage_offset() * tensor.itemsize
        alone = len(together[storage_of(tensor)]) == 1 and at == start and is_dense(tensor)
        leaves.append(Leaf(tensor.dtype, tuple(tensor.shape), tensor.stride(), at, None if alone else start))
    return leaves, offset


def _room(nbytes: int) -> int:
    """Returns the bytes from the place of `nbytes` bytes to the next one, with guard bytes between them."""
    return (nbytes + GUARD_BYTES - 1) // GUARD_BYTES * GUARD_BYTES + GUARD_BYTES


def poison_of(dtype: torch.dtype) -> float | bool | int:
    """Returns the number with which memory of a dtype is overwritten: NaN, True or the dtype's largest integer."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype is torch.bool else torch.iinfo(dtype).max


def end_of(leaves: Iterable[Leaf]) -> int:
    """Returns the offset, in bytes, directly after the last byte of all tensors that `leaves` describes.

    The offset is counted from the start of the buffer. It is 0 if `leaves` is empty.
    """
    return max((leaf.offset + leaf.nbytes for leaf in leaves), default=0)


def check_in_range(numbers: Iterable[Any], what: str) -> None:
    """Raises Unreadable, with `what` as its subject, unless all `numbers` are integers from 0 to 2**48 - 1.

    A number from another process may have any size, and torch and the driver cannot take all of them.
    """
    if not all(type(n) is int and 0 <= n < 1 << 48 for n in numbers):
        raise Unreadable(f"{what} is out of range")


def check_inside(leaves: Iterable[Leaf], size: int) -> None:
    """Raises Unreadable if a tensor that `leaves` describes ends beyond a buffer of `size` bytes."""
    if end_of(leaves) > size:
        raise Unreadable("a tensor reaches past its buffer")
