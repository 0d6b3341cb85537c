"""Accesses past a block's shared memory under emulation: they fault where an H200 faults, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture

KERNELS = ["one_array", "two_arrays", "both_parts", "dynamic_part", "sized16", "sized3000", "with_helper", "in_cluster"]
# The bytes from the beginning of the part that a kernel accesses to the end of the shared memory of its block, which is
# rounded up to 128 bytes. Of `both_parts`, 132 bytes are static, and 100 bytes begin at byte 144.
ROOM = {
    "one_array": 256, "two_arrays": 512, "both_parts": 112, "dynamic_part": 512, "with_helper": 256, "in_cluster": 128,
}  # fmt: skip


def touch(kernel: str, at: int, writes: bool) -> float:
    out = extension("shared_memory").touch(KERNELS.index(kernel), at, writes)
    torch.cuda.synchronize()
    return out.item()


@emulated
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("past", [0, 1, 127, 4096, 200_000])
@pytest.mark.parametrize("kernel", ROOM)
def test_an_access_past_the_shared_memory_of_a_block_is_illegal(kernel, past, writes):
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered") as raised:
        touch(kernel, ROOM[kernel] + past, writes)
    assert f"an access {past} bytes past the shared memory of its block" in str(raised.value)


@emulated
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("kernel", ROOM)
def test_an_access_to_the_last_byte_before_the_end_is_none(kernel, writes):
    assert touch(kernel, ROOM[kernel] - 1, writes) == 1


@emulated
@pytest.mark.parametrize("writes", [False, True])
def test_an_overrun_into_another_array_of_the_block_is_none(writes):
    assert [touch("two_arrays", at, writes) for at in (79, 80, 81, 400, 479)] == [1] * 5


@emulated
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("kernel", ["one_array", "both_parts", "dynamic_part", "in_cluster"])
def test_an_access_before_the_shared_memory_of_a_block_is_illegal(kernel, writes):
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        touch(kernel, -8192, writes)


@emulated
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize(("kernel", "room"), [("sized16", 128), ("sized3000", 12032)])
def test_the_memory_of_a_template_ends_behind_its_largest_instance(kernel, room, writes):
    assert touch(kernel, room - 1, writes) == 1
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        touch(kernel, 12032 + 512, writes)


@emulated
def test_the_message_names_the_kernel_and_its_launch():
    with pytest.raises(RuntimeError, match=r"thread \(0, 0, 0\) of block .*\(one_array, launched at \S+:\d+\)"):
        touch("one_array", 256, True)
