"""How the judge reads outputs where they lie in a worker's memory. Memory of the host stands for a GPU's."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernel_harness.device.cpu import Emulated
from kernel_harness.ipc import tensors
from kernel_harness.ipc.envelope import Received
from kernel_harness.ipc.messages import Called, Clocked, Exported, Place, Purpose
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.workers import output_reader
from kernel_harness.workers.exchange import Exchange
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.output_reader import OutputReader

LIMIT_S, ENDLESS = 60.0, 9
PACKED: Packed = pack([torch.arange(4.0)], device="cpu")


class Worker:
    """A worker with one region of 64 floats, and the reader that the judge has for it."""

    def __init__(self) -> None:
        self.region = torch.arange(64.0)
        self.exchange = Exchange(Emulated(), lambda share, descriptors: None)
        for purpose in (Purpose.INPUTS, Purpose.OUTPUTS):
            self.exchange.reserve(purpose, 1 << 12)
        self.exchange.fill(PACKED)
        self.exchange.turn = object()  # type: ignore[assignment] # the memory counts as a GPU's
        self.exported: list[tuple[int, int]] = []
        self.now = 0.0
        self.reader = OutputReader(self.exchange, self.export, lambda: None, LIMIT_S)
        self.reader.kept = ()

    def export(self, region: int, first: int, timeout_s: float) -> Received[Exported]:
        self.exported.append((region, first))
        if region == ENDLESS:
            self.now += 1.0
            return Received(Exported((256,), 1), "", [])
        if region == 1:
            self.exchange._regions[1] = self.region.view(torch.uint8)
        return Received(Exported((256,) if region == 1 else (), 0), "", [])

    def add_region(self, number: int, descriptors: Sequence[int], sizes: Sequence[int]) -> None:
        """Stands for the mapping of a GPU's memory, which `export` has done."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker()
    monkeypatch.setattr(made.exchange, "add_region", made.add_region)
    return made


def called(*outputs: tuple[torch.Tensor, Place | None]) -> Called:
    """The reply of a worker whose outputs have the shapes of these tensors, at these places."""
    structure, found = tensors.flatten([tensor for tensor, _ in outputs])
    leaves = tuple(tensors.layout([tensor])[0][0] for tensor in found)
    places = tuple(place for _, place in outputs)
    return Called(structure, leaves, places, (1,), Clocked(1.0, False, None), None)


def read(worker: Worker, *outputs: tuple[torch.Tensor, Place | None]) -> tuple[torch.Tensor, ...]:
    worker.reader.read(called(*outputs), PACKED)
    return worker.reader.take()[1]


def test_an_output_is_copied_from_where_it_lies_and_then_overwritten(worker: Worker) -> None:
    (output,) = read(worker, (torch.empty(2, 3), Place(1, 16, (8, 2))))

    assert output.tolist() == [[4.0, 6.0, 8.0], [12.0, 14.0, 16.0]]
    assert worker.region[[4, 6, 8, 12, 14, 16]].isnan().all()
    assert worker.region.isnan().sum() == 6


def test_an_output_that_is_the_same_for_all_inputs_is_not_overwritten(worker: Worker) -> None:
    worker.reader.kept = (0,)
    read(worker, (torch.empty(3), Place(1, 0, (1,))), (torch.empty(2), Place(1, 32, (1,))))
    assert worker.region.isnan().nonzero().flatten().tolist() == [8, 9]


def test_no_output_is_overwritten_before_it_is_known_which_are_the_same_for_all_inputs(worker: Worker) -> None:
    worker.reader.kept = None
    read(worker, (torch.empty(3), Place(1, 0, (1,))))
    assert not worker.region.isnan().any()


def test_an_output_that_is_an_input_is_read_there_and_not_overwritten(worker: Worker) -> None:
    place = Place(0, PACKED.leaves[0].offset, (1,))
    (output,) = read(worker, (torch.empty(4), place))
    assert output.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert worker.exchange.written(PACKED).inputs == ()


def test_access_to_a_region_is_asked_for_once(worker: Worker) -> None:
    for _ in range(3):
        read(worker, (torch.empty(3), Place(1, 0, (1,))))
    assert worker.exported == [(1, 0)]


def test_pieces_without_end_take_no_longer_than_a_call(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_reader, "time", SimpleNamespace(monotonic=lambda: worker.now))

    with pytest.raises(Fault, match="takes longer than 60 s"):
        read(worker, (torch.empty(2), Place(ENDLESS, 0, (1,))))
    assert worker.now == LIMIT_S


@pytest.mark.parametrize(
    "place",
    [
        Place(1, 252, (1,)),  # the second number lies beyond the region
        Place(1, 0, (1 << 40,)),
        Place(1, -4, (1,)),
        Place(1, 2, (1,)),  # not a multiple of the size of a number
        Place(1, 0, (-1,)),
        Place(1, 0, (1, 1)),
        Place(1, 0, (1 << 64,)),
        Place(1, 1 << 64, (1,)),
        Place(2, 0, (1,)),  # there is no such region
        Place(-1, 0, (1,)),
    ],
)
def test_a_place_outside_of_the_worker_s_memory_is_a_fault_of_the_candidate(worker: Worker, place: Place) -> None:
    with pytest.raises(Fault, match="invalid output"):
        read(worker, (torch.empty(2), place))


@pytest.mark.parametrize("place", [Place(1, 0, (1, 1 << 64)), Place(1, 10**400, (1, 1))])
def test_numbers_that_torch_cannot_take_are_a_fault_of_the_candidate(worker: Worker, place: Place) -> None:
    for shape in ((0, 1), (1, 1)):
        with pytest.raises(Fault, match="invalid output"):
            read(worker, (torch.empty(shape), place))


def test_a_place_is_a_fault_of_the_candidate_if_the_judge_maps_none_of_its_memory(worker: Worker) -> None:
    worker.exchange.turn = None
    with pytest.raises(Fault, match="the judge maps none"):
        read(worker, (torch.empty(2), Place(1, 0, (1,))))


def test_a_copy_in_the_shared_memory_is_overwritten_too(worker: Worker) -> None:
    """A worker could keep an output there, and write only what has changed since the last call."""
    output = torch.empty(3)
    leaf = tensors.layout([output])[0][0]
    worker.exchange.output(leaf).copy_(torch.arange(3.0))

    assert read(worker, (output, None))[0].tolist() == [0.0, 1.0, 2.0]
    assert worker.exchange.output(leaf).isnan().all()


def test_an_output_behind_the_inputs_is_a_fault_of_the_candidate(worker: Worker) -> None:
    """The judge writes nothing there, so a worker could keep an output there, too."""
    with pytest.raises(Fault, match="reaches past its region"):
        read(worker, (torch.empty(2), Place(0, PACKED.size, (1,))))


def test_places_without_outputs_are_a_fault_of_the_candidate(worker: Worker) -> None:
    reply = called((torch.empty(2), Place(1, 0, (1,))))
    with pytest.raises(Fault, match="invalid output"):
        worker.reader.read(Called(reply.structure, reply.leaves, (), (), reply.time, None), PACKED)


def test_outputs_are_placed_only_in_memory_of_the_device_that_is_large_enough(worker: Worker) -> None:
    """New memory could make the judge wait for the GPU, on which it has blocked all work."""
    reply: Any = called((torch.empty(8), Place(1, 0, (1,))))

    class OnDevice(torch.Tensor):
        is_cuda = True

    def on_device(size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8).as_subclass(OnDevice)

    assert worker.reader.place(reply, PACKED, on_device(16)) is None
    assert worker.reader.place(reply, PACKED, torch.empty(256, dtype=torch.uint8)) is None
    assert worker.reader.place(reply, PACKED, on_device(256)) is not None


def test_an_output_far_larger_than_the_right_one_is_not_copied(worker: Worker) -> None:
    worker.reader.right_bytes = 4
    (output,) = read(worker, (torch.empty(1 << 28, device="meta"), Place(1, 0, (0,))))
    assert output.is_meta and output.numel() == 1 << 28


def test_the_next_outputs_are_expected_where_the_last_ones_were(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnDevice(torch.Tensor):
        is_cuda = True

    landing = torch.empty(256, dtype=torch.uint8).as_subclass(OnDevice)
    at, elsewhere = (called((torch.empty(8), Place(1, offset, (1,)))) for offset in (0, 64))
    assert worker.reader.expect(PACKED, landing) is None  # nothing has been named yet
    worker.reader.place(at, PACKED, landing)
    worker.reader.take()

    expected = worker.reader.expect(PACKED, landing)
    assert expected is not None and worker.reader.place(at, PACKED, landing) is expected
    assert worker.reader.place(elsewhere, PACKED, landing) is not expected
    worker.reader.take()

    worker.exchange.keep_regions(())
    assert worker.reader.expect(PACKED, landing) is None  # access would have to be asked for
