"""The programs of a Triton grid run at once and one after the other, with equal results."""

import ctypes
import functools
import importlib
import importlib.util

import numpy as np
import pytest
import torch
from support.emulated_process import emulated, inside  # noqa: F401 - a fixture

from cuda_on_cpu.emulator import triton_interpreter, triton_memory
from cuda_on_cpu.emulator.triton_memory import Memory

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

AT_ONCE = (
    "adds", "adds bfloat16", "softmax of several rows", "normalizes", "product in groups", "causal attention", "drops",
    "variances", "scans and branches", "changes in place", "changes shapes", "stores at one place", "halves", "tiles",
    "counts values",
)  # fmt: skip
ALONE = ("sums behind a lock", "last program sums")


def _both_ways(name):
    """Returns the tensors of a kernel that runs at once, those of one that does not, and the programs run alone."""
    grids = importlib.import_module("emulator.triton_grids")
    programs = importlib.import_module("cuda_on_cpu.emulator.triton_programs")
    alone, ran = programs._Launch._alone, []
    programs._Launch._alone = lambda self, number: (ran.append(number), alone(self, number))
    at_once, count = grids.launched(name), len(ran)
    programs.launch = functools.partial(programs.launch, at_once=False)
    return at_once, grids.launched(name), count


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", AT_ONCE)
@emulated
def test_programs_at_once_compute_the_bits_of_programs_one_by_one(name):
    at_once, one_by_one, alone = _both_ways(name)
    assert alone == 0
    assert all(torch.equal(x, y) for x, y in zip(at_once, one_by_one, strict=True))


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
@emulated
def test_programs_that_may_wait_for_each_other_run_one_by_one(name):
    at_once, one_by_one, alone = _both_ways(name)
    assert alone > 0
    assert all(torch.equal(x, y) for x, y in zip(at_once, one_by_one, strict=True))


@needs_triton
@pytest.mark.slow
@emulated
def test_chunks_of_any_size_give_the_same_values():
    grids = importlib.import_module("emulator.triton_grids")
    programs = importlib.import_module("cuda_on_cpu.emulator.triton_programs")
    expected = grids.launched("product in groups")[2]
    for programs.ELEMENTS in (1, 1000, 1 << 22):
        assert torch.equal(grids.launched("product in groups")[2], expected)


@needs_triton
@pytest.mark.slow
@emulated
def test_the_compiler_accepts_all_of_these_kernels():
    for name in AT_ONCE + ALONE:
        importlib.import_module("emulator.triton_grids").launched(name)
    assert len(triton_interpreter.compiled()) == len(AT_ONCE + ALONE)


def _addresses(numbers, *indices):
    return (numbers.ctypes.data + numbers.itemsize * np.array(indices)).astype(np.uint64)


def test_an_address_that_is_masked_out_is_not_read():
    numbers = np.arange(6, dtype=np.float32)
    at, mask = _addresses(numbers, 4, 0, 2), np.array([True, False, True])
    at[1] = 8
    assert Memory().load(at, mask, numbers.dtype, np.float32([9])).tolist() == [4, 9, 2]
    assert Memory().load(at, mask & False, numbers.dtype, None).tolist() == [0, 0, 0]
    assert Memory().load(at, mask & False, numbers.dtype, np.float32([[1], [2]])).tolist() == [[1] * 3, [2] * 3]


def test_the_last_of_two_values_for_one_address_remains_and_a_store_is_taken_back():
    numbers, memory = np.arange(6, dtype=np.int16), Memory()
    memory.begin()
    memory.store(_addresses(numbers, 1, 3, 1, 5), np.int16([7, 8, 9, 6]), np.array([True, True, True, False]))
    memory.store(_addresses(numbers, 3), np.int16([4]), None)
    assert numbers.tolist() == [0, 9, 2, 4, 4, 5]
    memory.undo()
    assert numbers.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_store_of_an_earlier_chunk_is_final():
    numbers, memory = np.zeros(2, dtype=np.float64), Memory()
    memory.store(_addresses(numbers, 0), np.float64([1]), None)
    memory.begin()
    memory.store(_addresses(numbers, 1), np.float64([1]), None)
    memory.undo()
    assert numbers.tolist() == [1, 0]


def test_memory_between_the_addresses_is_not_touched():
    pair = [ctypes.create_string_buffer(8) for _ in range(2)]  # other memory of the process lies between them
    at = np.array([ctypes.addressof(each) for each in pair], dtype=np.uint64) & ~np.uint64(7)
    assert Memory().load(at, None, np.dtype(np.uint8), None).tolist() == [ctypes.string_at(int(a), 1)[0] for a in at]


def test_misaligned_addresses_and_too_many_stores_are_refused(monkeypatch):
    numbers = np.zeros(8, dtype=np.float32)
    at = _addresses(numbers, 0, 1)
    at[1] += 2
    with pytest.raises(ValueError, match="not aligned"):
        Memory().load(at, None, numbers.dtype, None)
    monkeypatch.setattr(triton_memory, "MOST_LOGGED", 8)
    with pytest.raises(MemoryError):
        Memory().store(_addresses(numbers, 0), np.float32([1]), None)
    assert not numbers.any()
