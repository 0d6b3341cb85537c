"""The CUDA runtime's and cuBLAS's host calls under emulation, and what torch's own C++ helpers say."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from emulated.inside import emulated, extension, inside  # noqa: F401 - a fixture


def calls() -> ModuleType:
    return extension("runtime_calls")


@emulated
def test_constants_and_device_variables_are_copied_to_and_from():
    # counter: 5, then 4 threads; the second launch writes the constants themselves, which lie on the device.
    assert calls().symbols() == [2, 4, 2, 8, 9, 16, 0, 1]


@emulated
def test_pitched_memory_is_copied_and_set_row_by_row():
    assert calls().pitched() == [0, 1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11, 12, 13, 14, 12]


@emulated
def test_streams_and_events_answer_as_the_runtime_s():
    ok, wrong = "cudaSuccess", "cudaErrorInvalidResourceHandle"
    assert calls().streams_and_events() == [*[ok] * 5, wrong, *[ok] * 6, wrong, *[ok] * 3, "elapsed"]


@emulated
def test_the_device_describes_itself_alike_everywhere():
    major, warp, threads, optin, attribute, processors, torch_processors, wrong_device = calls().device_attributes()
    assert (major, warp, threads, optin) == (9, 32, 1024, 227 * 1024)
    assert attribute == optin and processors == torch_processors and wrong_device == 101
    assert torch.cuda.get_device_properties(0).multi_processor_count == processors


@emulated
def test_shared_memory_past_48_kib_has_to_be_asked_for_by_the_kernel_that_uses_it():
    out = torch.zeros(32, device="cuda")
    refused, asked, granted, by_pointer, other, too_much, last = calls().dynamic_shared_memory(out)
    assert refused == other == too_much == last == "cudaErrorInvalidValue"
    assert asked == granted == by_pointer == "cudaSuccess"
    assert out.tolist() == [96 * 256 - 1 - i for i in range(32)]


@emulated
def test_a_kernel_is_launched_through_its_address():
    x = torch.ones(10, device="cuda")
    first, second, block, grid, blocks, most = calls().launched_as_a_value(x)
    assert (first, second) == (0, 9) and x.tolist() == [3.0] * 10
    assert (block, blocks, most) == (256, 8, 1024) and grid == 8 * torch.cuda.get_device_properties(
        0
    ).multi_processor_count


@emulated
def test_a_cooperative_grid_is_as_large_as_the_device_and_no_larger():
    assert calls().too_large_a_grid(torch.ones(1, device="cuda")) == [0, 720]


@emulated
def test_torch_s_guards_events_and_workspaces_work():
    x = torch.randn(50)
    assert torch.equal(calls().guards_streams_and_workspaces(x.cuda()).cpu(), x)


@emulated
@pytest.mark.parametrize("how", ["strided", "ex", "pointers"])
def test_cublas_multiplies_batches_of_half_precision_matrices(how):
    a, b = torch.randn(3, 5, 7).half(), torch.randn(3, 7, 4).half()
    got = calls().half_batches(a.cuda(), b.cuda(), how).cpu()
    torch.testing.assert_close(got, (a.float() @ b.float()).half(), rtol=1e-3, atol=1e-3)


@emulated
@pytest.mark.parametrize("op", ["geam", "symm", "syrk", "syr2k", "trmm", "trsm"])
def test_cublas_level_3_reads_and_writes_the_triangle_it_was_given(op):
    n = 6
    a, b, c = (torch.randn(n, n, dtype=torch.float64) for _ in range(3))
    a += n * torch.eye(n, dtype=torch.float64)
    # Column-major: what torch holds is the transpose of the matrix that cuBLAS sees.
    got = calls().level_3(a.cuda(), b.cuda(), c.cuda(), op).cpu().T
    a, b, c = a.T, b.T, c.T
    low, unit = a.tril(), a.tril(-1) + torch.eye(n, dtype=torch.float64)
    expected = {
        "geam": lambda: 2 * a.T + b / 2,
        "symm": lambda: 2 * (low + a.tril(-1).T) @ b + c / 2,
        "syrk": lambda: torch.where(torch.ones(n, n).tril().bool(), 2 * a @ a.T + c / 2, c),
        "syr2k": lambda: torch.where(torch.ones(n, n).tril().bool(), 2 * (a.T @ b + b.T @ a) + c / 2, c),
        "trmm": lambda: 2 * b @ unit,
        "trsm": lambda: torch.linalg.solve(low.T, 2 * c),
    }[op]()
    torch.testing.assert_close(got, expected)


@emulated
def test_cublas_multiplies_a_vector_with_a_stride():
    a, b, c = (torch.randn(4, 4, dtype=torch.float64) for _ in range(3))
    got = calls().level_3(a.cuda(), b.cuda(), c.cuda(), "gemv").cpu().reshape(-1)
    expected = c.clone().reshape(-1)
    expected[:8:2] = 2 * a @ b.reshape(-1)[:4] + expected[:8:2] / 2
    torch.testing.assert_close(got, expected)
