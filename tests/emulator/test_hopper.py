"""Instructions that came with Hopper mean under emulation what they mean on an H200."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from support import matrix_units
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture
from support.hopper import CHECKS, COPIED, LOADED, NO_WAIT


def ops() -> ModuleType:
    return extension("hopper", extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"])


@emulated
@pytest.mark.parametrize("name", CHECKS)
def test_hopper(name):
    CHECKS[name](ops())
    torch.cuda.synchronize()


@emulated
@pytest.mark.parametrize("name", matrix_units.CHECKS)
def test_mma_sync_and_wmma_cut_off_what_an_h200_cuts_off(name):
    matrix_units.CHECKS[name](extension("matrix_units"))


@emulated
def test_sums_that_are_read_before_a_wait_are_right_because_ptxas_adds_the_wait():
    a, b = torch.ones(64, 16, dtype=torch.half).cuda(), torch.ones(16, 16, dtype=torch.half).cuda()
    assert torch.equal(ops().product(a, b, NO_WAIT, 128, 1).cpu(), torch.full((64, 16), 16.0))


@emulated
@pytest.mark.parametrize(
    ("row", "column", "back", "says"),
    [
        (0, 45, LOADED, "whose first coordinate, in bytes, is no multiple of 16"),
        (0, -1, LOADED, "whose first coordinate, in bytes, is no multiple of 16"),
        (-3, 0, COPIED, "a tensor store with a negative coordinate"),
    ],
)
def test_boxes_at_which_an_h200_stops_are_errors(row, column, back, says):
    x = torch.zeros(50, 48).cuda()
    ops().box(x, x.clone(), row, column, 0, False, back, 32, 1)
    with pytest.raises(RuntimeError, match=says):
        torch.cuda.synchronize()


@emulated
@pytest.mark.parametrize(
    ("how", "says"),
    [
        (1, "for the end of a phase (parity 1) of the mbarrier at byte"),
        (2, "0 of 1 arrivals and 1024 bytes are missing"),
        (3, "1 of 2 arrivals and 0 bytes are missing"),
        (5, "at the barrier of its cluster, which other threads never reach"),
    ],
)
def test_a_hang_names_the_barrier_and_what_is_missing(how, says):
    ops().hang(torch.zeros(256).cuda(), how)
    with pytest.raises(RuntimeError) as caught:
        torch.cuda.synchronize()
    assert "waits at hopper.cuda_sources:" in str(caught.value) and says in str(caught.value), str(caught.value)


@emulated
@pytest.mark.parametrize("how", [0, 4])
def test_what_is_right_does_not_hang(how):
    ops().hang(torch.zeros(256).cuda(), how)
    torch.cuda.synchronize()
