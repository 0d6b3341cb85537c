"""Inputs in the memory that a worker maps: their layouts survive, and every byte that changes there is seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_harness.core.strides import copy, reach
from kernel_harness.ipc.input_memory import copies, damaged, fill, placed, written
from kernel_harness.ipc.packed import Packed, moved, pack
from kernel_harness.ipc.tensors import GUARD_BYTES

DTYPES = [torch.float16, torch.float32, torch.float64, torch.complex128, torch.bool, torch.int8, torch.int64]


@st.composite
def views(draw: st.DrawFn) -> list[torch.Tensor]:
    """Views of one or two storages, with any strides and offsets: gaps, overlaps, windows, no elements."""
    found: list[torch.Tensor] = []
    for _ in range(draw(st.integers(1, 2))):
        base = (torch.rand(64) * 100).to(draw(st.sampled_from(DTYPES)))
        for _ in range(draw(st.integers(1, 3))):
            shape = draw(st.lists(st.integers(0, 4), max_size=3))
            stride = draw(st.lists(st.integers(0, 6), min_size=len(shape), max_size=len(shape)))
            found.append(base.as_strided(shape, stride, draw(st.integers(0, 64 - reach(shape, stride)))))
    return found


def memory_with(packed: Packed) -> torch.Tensor:
    memory = torch.zeros(packed.size, dtype=torch.uint8)
    fill(memory, packed)
    return memory


def bytes_of(packed: Packed) -> set[int]:
    """The offsets of all bytes in the buffer that belong to a tensor."""
    found = set()
    for leaf in packed.leaves:
        places = torch.arange(packed.size // leaf.dtype.itemsize + 1).as_strided(
            leaf.shape, leaf.stride, leaf.offset // leaf.dtype.itemsize
        )
        for place in places.flatten().tolist():
            found.update(range(place * leaf.dtype.itemsize, (place + 1) * leaf.dtype.itemsize))
    return found


def sharing(tensors: list[torch.Tensor]) -> list[list[bool]]:
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [[one == other for other in storages] for one in storages]


def assert_alike(found: list[torch.Tensor], given: list[torch.Tensor]) -> None:
    for one, other in zip(found, given, strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype
        assert one.stride() == other.stride() and one.storage_offset() == other.storage_offset()
    filled = [i for i, tensor in enumerate(given) if tensor.numel()]
    assert sharing([found[i] for i in filled]) == sharing([given[i] for i in filled])


@given(views(), st.integers(0, 3))
def test_tensors_arrive_with_their_strides_offsets_and_shared_storages(given, by):
    packed = moved(pack(given), by * GUARD_BYTES)
    memory = memory_with(packed)
    assert_alike(placed(packed.leaves, lambda start, end: torch.from_numpy(memory[start:end].numpy())), given)


@given(views())
def test_copies_have_the_same_strides_offsets_and_shared_storages(given):
    packed = pack(given)
    assert_alike(copies(packed.leaves, packed.tensors, "cpu"), given)


def test_copies_in_float64_share_their_storage_too():
    base = torch.rand(8, 6)
    packed = pack([base[:, :3], base[:, 3:], torch.arange(4)])
    one, other, whole = copies(packed.leaves, packed.tensors, "cpu", torch.float64)

    assert one.dtype is other.dtype is torch.float64 and whole.dtype is torch.int64
    assert sharing([one, other]) == [[True, True], [True, True]]
    assert one.stride() == (6, 1) and other.storage_offset() == 3
    assert torch.equal(other, base[:, 3:].double())


@given(views())
def test_a_tensor_is_as_far_from_an_aligned_address_as_in_its_storage(given):
    for leaf, tensor in zip(pack(given).leaves, given, strict=True):
        assert leaf.offset % GUARD_BYTES == tensor.storage_offset() * tensor.itemsize % GUARD_BYTES


@given(views(), st.data())
def test_a_changed_byte_is_that_of_an_input_or_one_beside_it(given, data):
    packed = pack(given)
    memory = memory_with(packed)
    assert written(memory, packed) == replace(written(memory, packed), inputs=(), beside=())

    own = bytes_of(packed)
    at = data.draw(st.integers(0, packed.size - 1) | st.sampled_from(sorted(own) or [0]))
    memory[at] ^= 1
    found = written(memory, packed)

    assert bool(found.inputs) is (at in own) and bool(found.beside) is (at not in own)


def test_copies_of_changed_inputs_are_what_the_call_left():
    packed = pack([torch.zeros(4), torch.zeros(8)[::2], torch.zeros(3)])
    memory = memory_with(packed)
    packed.leaves[1].view(memory)[2] = 5
    found = written(memory, packed)
    memory.zero_()

    assert found.inputs == (1,) and found.after[1].tolist() == [0, 0, 5, 0]


@pytest.mark.parametrize("value", [float("nan"), -0.0])
def test_the_payload_of_a_nan_and_the_sign_of_a_zero_count(value):
    packed = pack([torch.full((4,), value)])
    memory = memory_with(packed)
    assert written(memory, packed).inputs == ()

    packed.leaves[0].view(memory).view(torch.int32)[0] ^= -(1 << 31)
    assert written(memory, packed).inputs == (0,)


def test_large_inputs_are_compared_in_parts(monkeypatch):
    monkeypatch.setattr("kernel_harness.ipc.input_memory._COMPARED", 8)
    packed = pack([torch.zeros(5, 7), torch.zeros(5, 14)[:, ::2], torch.zeros(())])
    memory = memory_with(packed)
    assert written(memory, packed).inputs == ()

    for i in range(3):
        packed.leaves[i].view(memory)[(-1,) * len(packed.leaves[i].shape)] = 1
        assert written(memory, packed).inputs == tuple(range(i + 1))


def test_a_write_into_a_gap_counts_for_all_tensors_of_the_storage():
    base = torch.zeros(4, 6)
    packed = pack([torch.zeros(3), base[:, :2], base[:, 4:]])
    memory = memory_with(packed)
    packed.leaves[1].view(memory).as_strided((1,), (1,), packed.leaves[1].offset // 4 + 3).fill_(1)

    assert damaged(memory, packed.leaves, packed.size) == [1, 2]


def test_elements_that_share_an_address_are_copied_once():
    target = torch.zeros(3, 1).expand(3, 4)
    copy(torch.arange(3.0)[:, None].expand(3, 4), target)
    assert target[:, 3].tolist() == [0, 1, 2]
