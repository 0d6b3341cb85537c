"""Forms of Hopper's instructions that public kernels use mean under emulation what CUDA's documentation says."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture

from cuda_on_cpu.api import reached_lack


def ops() -> ModuleType:
    return extension("hopper_forms", extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"])


@emulated
def test_asynchronous_stores_and_reductions_count_bytes_at_the_other_blocks_barrier():
    x, y = torch.randn(2, 128), torch.zeros(2, 128, device="cuda")
    counts = torch.zeros(2, dtype=torch.int32, device="cuda")
    ops().sent(x.cuda(), y, counts, 0)
    assert torch.equal(y.cpu(), x.flip(0)) and counts.tolist() == [32, 32]


@emulated
def test_where_clusters_are_placed_is_a_hint():
    assert ops().hints() == 0


@emulated
def test_a_barrier_that_expects_more_bytes_than_are_sent_hangs():
    x, y = torch.randn(2, 128), torch.zeros(2, 128, device="cuda")
    ops().sent(x.cuda(), y, torch.zeros(2, dtype=torch.int32, device="cuda"), 4)
    with pytest.raises(RuntimeError, match="0 of 1 arrivals and 4 bytes are missing"):
        torch.cuda.synchronize()


@emulated
def test_functions_of_cuda_ptx_store_and_reduce():
    x, y = torch.randperm(64).view(2, 32), torch.zeros(2, 32, dtype=torch.int64, device="cuda")
    greatest, sums = (torch.zeros(n, dtype=torch.int32, device="cuda") for n in (2, 32))
    ops().sent_by_library(x.cuda(), y, greatest, sums)
    assert torch.equal(y.cpu(), x.flip(0))
    assert torch.equal(greatest.cpu().long(), x.amax(1).flip(0)) and torch.equal(sums.cpu().long(), x.sum(0))


@emulated
def test_a_member_needs_its_own_alignment_only():
    x, y = torch.randn(32), torch.zeros(16, device="cuda")
    ops().second_half(x.cuda(), y)
    assert torch.equal(y.cpu(), x[16:])


@emulated
def test_a_matrix_needs_the_addresses_of_its_rows_only():
    x, y = torch.arange(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32, device="cuda")
    ops().one_matrix(x.cuda(), y)
    assert torch.equal(y.cpu(), 2 * x)


@emulated
def test_memory_that_processes_share_is_refused_when_it_is_asked_for():
    assert ops().shares_memory(False) == 64
    assert ops().shares_memory(True) == 801
    assert "cuMemCreate" in reached_lack()
