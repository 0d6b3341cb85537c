"""Values as structure and bytes: they survive the way, and a forged description never reaches beyond its buffer."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_harness.core.codec import Malformed
from kernel_harness.ipc.input_memory import damaged, surround, write
from kernel_harness.ipc.messages import InputLayout
from kernel_harness.ipc.tensors import (
    GUARD_BYTES,
    MAX_LEAVES,
    MAX_RANK,
    Leaf,
    Unreadable,
    fingerprint,
    flatten,
    layout,
    outline,
    skeleton,
    unflatten,
)

DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
]  # fmt: skip

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(DTYPES)
VALUES = st.recursive(
    PLAIN | st.just(torch.zeros(2)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Tensors of all types that can be sent, some transposed, sliced, expanded or empty."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    tensor = (torch.rand(shape) * 100).to(draw(st.sampled_from(DTYPES)))
    if shape and draw(st.booleans()):
        tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
    if shape and shape[0] and draw(st.booleans()):
        tensor = tensor[:: draw(st.integers(1, 2))]
    if draw(st.booleans()):
        tensor = tensor.unsqueeze(0).expand(draw(st.integers(1, 3)), *tensor.shape)
    return tensor


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def packed(given: list[torch.Tensor]) -> tuple[torch.Tensor, list[Leaf]]:
    leaves, size = layout(given)
    memory = torch.zeros(size, dtype=torch.uint8)
    surround(memory, leaves, size)
    write(memory, leaves, given)
    return memory, leaves


def read_leaves(described: Any, size: int) -> list[Leaf]:
    """Leaves as a message about a buffer of `size` bytes carries them. Raises Malformed."""
    layout = InputLayout.from_json({"structure": None, "leaves": described, "size": size})
    return list(layout.leaves)


# ------------------------------------------------------------------------------------------ structure


def alike(a: Any, b: Any) -> bool:
    """Equal in value and in type; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a is b
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return alike(list(a.items()), list(b.items()))
    return a == b or (a != a and b != b)


@given(VALUES)
def test_a_value_survives_being_taken_apart_sent_as_json_and_put_together(value):
    structure, found = flatten(value)
    assert alike(unflatten(json.loads(json.dumps(structure, allow_nan=False)), found), value)


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), torch.device("cpu"), 1j, lambda: 0])
def test_a_value_that_cannot_be_sent_is_refused_with_the_name_of_its_type(value):
    with pytest.raises(Unreadable, match=type(value).__name__):
        flatten([value])


@pytest.mark.parametrize("tensor", [torch.zeros(2).to_sparse(), torch.zeros(2).to(torch.float8_e4m3fn)])
def test_a_tensor_that_cannot_be_sent_is_refused(tensor):
    with pytest.raises(Unreadable):
        flatten(tensor)


def test_tensors_are_numbered_in_the_order_they_stand():
    a, b, c = (torch.zeros(i) for i in range(3))
    assert flatten({"x": [a, (b,)], "y": c})[1] == [a, b, c]


def test_a_list_and_a_tuple_of_the_same_outputs_are_the_same_answer():
    x = torch.zeros(1)
    assert skeleton(flatten([x, 1])[0]) == skeleton(flatten((x, 1))[0])
    assert skeleton(flatten([x, 1])[0]) != skeleton(flatten([x, 2])[0])
    assert skeleton(flatten([x])[0]) != skeleton(flatten(x)[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(1), "tensor"), ((torch.zeros(1), [3]), "(tensor, [3])"), ((torch.zeros(1),), "(tensor,)"),
        ({"a": torch.zeros(1), "b": ()}, "{'a': tensor, 'b': ()}"), ([math.inf, -math.inf], "[inf, -inf]"),
        (torch.float16, "float16"), (None, "None"), ("a", "'a'"),
    ],
)  # fmt: skip
def test_an_outline_reads_as_python(value, text):
    assert outline(flatten(value)[0]) == text


KINDS = ["tensor", "list", "tuple", "dict", "float", "value", "dtype", "x"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["inf", "float32", "tensor", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KINDS), inner, max_size=2),
    max_leaves=10,
)


@given(ANYTHING)
def test_any_structure_is_a_value_or_unreadable(structure):
    try:
        unflatten(structure, [torch.zeros(1)])
    except Unreadable:
        return
    assert isinstance(outline(structure), str)


@pytest.mark.parametrize(
    "structure",
    [
        {"tensor": 1},
        {"tensor": -1},
        {"tensor": "0"},
        {"dict": [[{"list": []}, {"value": 1}]]},
        {"dict": [[{"value": 1}]]},
        {"dtype": []},
        {"dtype": "float3"},
        {"float": "1.0"},
        {"value": []},
        {"list": {}},
        {},
        {"list": [], "tuple": []},
        [],
        None,
    ],
)
def test_an_unknown_structure_is_unreadable(structure):
    with pytest.raises(Unreadable):
        unflatten(structure, [torch.zeros(1)])


@pytest.mark.parametrize("depth", [20, 100, 300, 490, 10_000])
def test_a_structure_of_any_depth_is_a_value_or_unreadable(depth):
    structure: Any = {"value": 1}
    for _ in range(depth):
        structure = {"list": [structure]}
    try:
        unflatten(structure, [])
        skeleton(structure)
    except Unreadable:
        assert depth > 20


# --------------------------------------------------------------------------------------------- bytes


@given(st.lists(tensors(), max_size=4))
def test_tensors_survive_being_written_and_looked_at(given):
    memory, leaves = packed(given)
    assert all(same(leaf.view(memory), tensor) for leaf, tensor in zip(leaves, given, strict=True))


@given(st.lists(tensors(), max_size=4))
def test_leaves_survive_being_sent_as_json(given):
    leaves, size = layout(given)
    assert read_leaves(json.loads(json.dumps([leaf.to_json() for leaf in leaves])), size) == leaves


@given(st.lists(tensors(), max_size=4))
def test_leaves_are_aligned_apart_and_within_the_buffer(given):
    leaves, size = layout(given)
    end = 0
    for leaf in leaves:
        assert leaf.offset % GUARD_BYTES == 0 and leaf.offset - end >= GUARD_BYTES
        end = leaf.offset + leaf.nbytes
    assert size - end >= (GUARD_BYTES if leaves else 0)


def test_a_transposed_matrix_stays_transposed_and_a_sliced_one_becomes_dense():
    x = torch.arange(12.0).reshape(3, 4)
    (transposed, sliced, expanded), _ = layout([x.T, x[:, ::2], x[:1].expand(3, 4)])
    assert transposed.stride == (1, 4)
    assert sliced.stride == (2, 1)
    assert expanded.stride == (4, 1)


def test_what_is_written_through_a_view_is_in_the_memory():
    memory, (leaf,) = packed([torch.zeros(2, 3)])
    leaf.view(memory)[1, 2] = 5
    assert leaf.view(memory).sum() == 5


@given(st.lists(tensors(), min_size=1, max_size=3), st.data())
def test_a_byte_changed_beside_a_tensor_is_seen_and_inside_it_is_not(given, data):
    memory, leaves = packed(given)
    assert damaged(memory, leaves, len(memory)) == []
    at = data.draw(st.integers(0, len(memory) - 1))
    memory[at] ^= 0xFF
    inside = any(leaf.offset <= at < leaf.offset + leaf.nbytes for leaf in leaves)
    assert bool(damaged(memory, leaves, len(memory))) is not inside


def test_damage_is_reported_for_the_tensors_on_both_sides():
    memory, leaves = packed([torch.zeros(4) for _ in range(3)])
    memory[leaves[1].offset - 1] ^= 1
    assert damaged(memory, leaves, len(memory)) == [0, 1]


@pytest.mark.parametrize("value", [0x00, 0xFF])
def test_a_guard_filled_with_one_byte_is_damaged(value):
    memory, (leaf,) = packed([torch.zeros(4)])
    memory[: leaf.offset] = value
    assert damaged(memory, [leaf], len(memory)) == [0]


# ------------------------------------------------------------------------------- hostile descriptions


SIZE = 1024
NUMBERS = st.integers(-2, 9) | st.sampled_from([2**31, 2**47, 2**48, 2**63, 2**64, -(2**63), SIZE, SIZE - 4])
DESCRIBED = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["float32", "float64", "uint8", "bool", "complex128"]),
        "shape": st.lists(NUMBERS, max_size=4),
        "stride": st.lists(NUMBERS, max_size=4),
        "offset": NUMBERS,
        "storage": st.none() | NUMBERS,
    }
)


def reach(view: torch.Tensor) -> tuple[int, int]:
    """The first and one past the last address that a tensor's elements occupy."""
    last = sum((n - 1) * s for n, s in zip(view.shape, view.stride(), strict=True))
    return view.data_ptr(), view.data_ptr() + (last + 1) * view.element_size()


@given(DESCRIBED)
def test_no_description_lets_a_view_reach_out_of_its_memory(described):
    memory = torch.zeros(SIZE, dtype=torch.uint8)
    try:
        (leaf,) = read_leaves([described], SIZE)
    except Malformed:
        return
    view = leaf.view(memory)
    if view.numel():
        start = memory.data_ptr()
        low, high = reach(view)
        assert start <= low and high <= start + SIZE
        view.clone()


@given(
    st.lists(st.integers(0, 5), max_size=3),
    st.lists(st.integers(0, 6), max_size=3),
    st.integers(0, 17).map(lambda n: 4 * n),
    st.none() | st.integers(0, 17).map(lambda n: 4 * n),
)
def test_no_small_description_does_either(shape, stride, offset, storage):
    memory = torch.zeros(64, dtype=torch.uint8)
    described = {"dtype": "float32", "shape": shape, "stride": stride, "offset": offset, "storage": storage}
    try:
        (leaf,) = read_leaves([described], 64)
    except Malformed:
        return
    view = leaf.view(memory)
    assert tuple(view.shape) == tuple(shape)
    if view.numel():
        start = memory.data_ptr()
        low, high = reach(view)
        assert start <= low and high <= start + 64


def leaf_of(**changed: Any) -> dict[str, Any]:
    return {"dtype": "float32", "shape": [2, 3], "stride": [3, 1], "offset": 0, "storage": None, **changed}


@pytest.mark.parametrize(
    "described",
    [
        leaf_of(shape=[-1, 3]),
        leaf_of(stride=[-3, 1]),
        leaf_of(offset=-4),
        leaf_of(offset=SIZE),
        leaf_of(offset=SIZE - 20),
        leaf_of(shape=[2**40, 2**40]),
        leaf_of(shape=[2**47, 2**47, 0], stride=[1, 1, 1]),
        leaf_of(stride=[4, 1]),
        leaf_of(stride=[3]),
        leaf_of(stride=[3, 1, 1]),
        leaf_of(shape=[True, 3]),
        leaf_of(shape=[2.0, 3]),
        leaf_of(shape="23"),
        leaf_of(shape=None),
        leaf_of(shape={"2": 3}),
        leaf_of(offset="0"),
        leaf_of(offset=None),
        leaf_of(dtype="object"),
        # torch loads a complex number with an instruction that faults at an odd address.
        leaf_of(dtype="complex128", shape=[], stride=[], offset=1),
        leaf_of(dtype=["float32"]),
        leaf_of(dtype=None),
        leaf_of(shape=[1] * (MAX_RANK + 1), stride=[1] * (MAX_RANK + 1)),
        # The product of these sizes would take minutes and must not be computed.
        leaf_of(shape=[2**47] * 100_000, stride=[1] * 100_000),
        {"dtype": "float32"},
        [],
        None,
        "leaf",
        3,
    ],
    ids=lambda described: json.dumps(described)[:60],
)
def test_a_description_that_is_no_leaf_is_malformed(described):
    with pytest.raises(Malformed):
        for leaf in read_leaves([described], SIZE):
            leaf.view(bytearray(SIZE))


def test_a_leaf_has_as_many_dimensions_as_torch_supports_or_is_refused_with_their_number():
    (leaf,) = read_leaves([leaf_of(shape=[1] * 62 + [2, 3], stride=[6] * 62 + [3, 1])], SIZE)
    assert leaf.view(torch.zeros(SIZE, dtype=torch.uint8)).max(-1).values.shape == (*[1] * 62, 2)
    with pytest.raises(Malformed, match="a tensor has 65 dimensions; at most 64 are possible"):
        read_leaves([leaf_of(shape=[1] * 65, stride=[1] * 65)], SIZE)


@pytest.mark.parametrize("described", [None, {}, "x", 3, [leaf_of()] * (MAX_LEAVES + 1)])
def test_what_is_no_list_of_leaves_is_malformed(described):
    with pytest.raises(Malformed):
        read_leaves(described, SIZE)


def test_a_leaf_that_ends_with_its_buffer_is_read():
    (leaf,) = read_leaves([leaf_of(offset=SIZE - 24)], SIZE)
    assert leaf.offset + leaf.nbytes == SIZE and leaf.view(torch.zeros(SIZE, dtype=torch.uint8)).numel() == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("count", [1, 7, 64, 1001])
def test_a_fingerprint_tells_where_a_byte_is(dtype: torch.dtype, count: int) -> None:
    """One-hot rows of two draws have the same numbers, in other places."""
    found = set()
    for place in range(count):
        tensor = torch.zeros(count, dtype=dtype)
        tensor[place] = 1
        found.add(fingerprint(tensor))
    assert len(found) == count
    assert fingerprint(torch.zeros(count, dtype=dtype)) not in found


def test_a_fingerprint_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(37, 11)[1:].t()
    whole = fingerprint(tensor)
    monkeypatch.setattr("kernel_harness.ipc.tensors._PIECE_BYTES", 64)
    assert fingerprint(tensor) == whole == fingerprint(tensor.clone())
