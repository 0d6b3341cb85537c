"""The judge reads outputs where a worker says that they lie. A worker may say anything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_harness.ipc import messages
from kernel_harness.ipc.channel import Malformed
from kernel_harness.ipc.messages import Called, DeviceTime, Exported, Place
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.ipc.tensors import Leaf, end_of
from kernel_harness.sandbox.faults import Fault
from kernel_harness.sandbox.output_reader import OutputReader

PACKED = pack([torch.zeros(4)], device="cpu")
NUMBER = st.integers(0, 40) | st.sampled_from([-1, 1 << 31, (1 << 48) - 1, 1 << 48, 1 << 64, 10**400])


class Memory:
    """Memory of the host in place of the device's: a region of 256 bytes, with the number 1.

    `turn` says whether the judge maps regions of the worker at all.
    """

    def __init__(self, turn: object) -> None:
        self.turn, self.bytes = turn, torch.arange(256).to(torch.uint8)

    def needed(self, leaves: Sequence[Leaf]) -> int:
        return end_of(leaves)

    def holds(self, purpose: messages.Purpose, size: int) -> bool:
        return True

    def memory_for_copy(self, size: int, packed: Packed) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8)

    def copy_outputs(self, copy: torch.Tensor) -> None:
        copy.zero_()

    def keep_regions(self, numbers: Collection[int]) -> None:
        pass

    def region(self, number: int) -> torch.Tensor | None:
        return self.bytes if number == 1 else None

    def add_region(self, number: int, descriptors: Sequence[int], sizes: Sequence[int]) -> None:
        raise AssertionError("there is no other region")

    def wait(self) -> None:
        pass


def reader(turn: object) -> OutputReader:
    def export(region: int, first: int) -> messages.Received[Exported]:
        return messages.Received(Exported((), 0), "", [])

    return OutputReader(Memory(turn), export, lambda: None)  # type: ignore[arg-type]


def reply(leaf: Leaf, place: Any) -> Called:
    return Called({"tensor": 0}, (leaf,), (place,), (1,), DeviceTime(None, False, None), None)


@given(
    st.sampled_from([torch.uint8, torch.float32, torch.complex128]),
    st.lists(st.tuples(st.integers(0, 3), NUMBER), max_size=3),
    st.sampled_from([1, 1, 2, -1, 10**400]),
    NUMBER,
)
def test_an_output_at_any_place_is_read_or_the_process_is_at_fault(dtype, dimensions, region, offset):
    shape = [size for size, _ in dimensions]
    leaf = Leaf(dtype, tuple(shape), torch.empty(shape, device="meta").stride(), 0)
    place = {"region": region, "offset": offset, "stride": [stride for _, stride in dimensions]}

    with suppress(Malformed, Fault):
        found = reader("a GPU's")
        found.read(reply(leaf, Place.from_json(place)), PACKED)

        assert [tuple(o.shape) for o in found.take()[1]] == [tuple(shape)]


def test_an_output_is_read_where_it_lies() -> None:
    found = reader("a GPU's")
    found.read(reply(Leaf(torch.uint8, (2, 3), (3, 1), 0), Place(1, 10, (20, 2))), PACKED)

    assert found.take()[1][0].tolist() == [[10, 12, 14], [30, 32, 34]]


def test_an_output_in_memory_of_which_the_judge_maps_none_is_a_fault() -> None:
    with pytest.raises(Fault, match="the judge maps none"):
        reader(None).read(reply(Leaf(torch.uint8, (4,), (1,), 512), Place(1, 0, (1,))), PACKED)
