"""How the judge copies outputs where they lie, beside a process that still writes to them. The host's memory stands for
a GPU's."""

from __future__ import annotations

import pytest
import torch

from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.ipc.tensors import Leaf
from kernel_harness.workers.placed_outputs import PlacedOutput, PlacedOutputs

COUNT = 1 << 16
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
]


def placed(*sources: torch.Tensor, overwritten: bool = True) -> PlacedOutputs:
    return PlacedOutputs([PlacedOutput(each, torch.empty_like(each), overwritten) for each in sources])


def numbers(count: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(count) % 7).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 100, COUNT])
def test_outputs_are_copied_as_they_are(dtype: torch.dtype, count: int) -> None:
    source = numbers(count, dtype)
    sources = source, source[::3], source[0], source[:0], source[:1].expand(5)
    outputs = placed(*sources)
    outputs.copy()
    for found, wanted in zip(outputs.copies, sources, strict=True):
        assert torch.equal(found.to(torch.complex128), wanted.to(torch.complex128))


def test_an_output_that_is_still_written_when_the_call_is_done_keeps_old_values_in_the_copy() -> None:
    """A copy engine may bring the last part of an output while the judge copies the rest."""
    source = torch.zeros(COUNT)
    outputs = placed(source)
    (output,) = outputs._outputs
    taken = output.values

    def values(tensor: torch.Tensor) -> torch.Tensor:
        found = taken(tensor)
        source[-COUNT // 100 :] = 1.0  # right after the first look
        return found

    output.values = values  # type: ignore[method-assign]
    outputs.copy()
    (copy,) = outputs.copies
    assert 0 < (copy[-COUNT // 100 :] == 0).sum() < COUNT // 100


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_write_before_the_call_is_seen(dtype: torch.dtype) -> None:
    source = numbers(COUNT, dtype)
    outputs = placed(source)
    outputs.overwrite()
    outputs.look_for_early_work()
    assert not outputs.had_early_work

    source[: COUNT // 100] = 0
    outputs.look_for_early_work()
    assert outputs.had_early_work


def test_outputs_that_a_candidate_may_keep_are_neither_overwritten_nor_looked_at() -> None:
    source = numbers(COUNT, torch.float32)
    outputs = placed(source, overwritten=False)
    outputs.overwrite()
    outputs.look_for_early_work()
    assert not outputs.had_early_work and torch.equal(source, numbers(COUNT, torch.float32))


PACKED: Packed = pack([torch.arange(8.0)], device="cpu")


def test_an_output_in_an_unchanged_input_is_the_judge_s_own_input() -> None:
    """A call that works in place, and restores its input between two looks, would else have its output for nothing."""
    there = torch.arange(8.0) + 1  # what the memory for inputs held when the output was copied
    leaf = Leaf(torch.float32, (2, 2), (4, 1), PACKED.leaves[0].offset + 4, storage=0)
    outputs = PlacedOutputs([PlacedOutput(there.view(2, 4)[:, 1:3], torch.empty(2, 2), False, leaf)])
    outputs.copy()
    assert outputs.copies[0].tolist() == [[2.0, 3.0], [6.0, 7.0]]

    outputs.settle(Written(inputs=(0,)), PACKED)  # the change is told, and compared with the reference's
    assert outputs.copies[0].tolist() == [[2.0, 3.0], [6.0, 7.0]]

    outputs.settle(Written(), PACKED)
    assert outputs.copies[0].tolist() == [[1.0, 2.0], [5.0, 6.0]]
