"""The CUDA runtime's and cuBLAS's host calls under emulation, and the results of torch's own C++ helpers."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture


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
def test_a_host_function_runs_in_its_stream():
    assert calls().host_function() == 1


@emulated
def test_the_device_describes_itself_alike_everywhere():
    major, warp, threads, optin, attribute, processors, torch_processors, wrong_device = calls().device_attributes()
    assert (major, warp, threads, optin) == (9, 32, 1024, 227 * 1024)
    assert attribute == optin and processors == torch_processors and wrong_device == 101
    assert torch.cuda.get_device_properties(0).multi_processor_count == processors


@emulated
@pytest.mark.parametrize(("address", "error"), [(False, 0), (True, 98)])
def test_the_address_of_a_variable_that_holds_a_kernel_is_no_kernel(address, error):
    assert calls().kernel_in_a_variable(address) == [error] * 5


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
@pytest.mark.parametrize("how", ["strided", "ex", "ex, fast", "pointers"])
def test_cublas_multiplies_batches_of_half_precision_matrices(how):
    a, b = torch.randn(3, 5, 7).half(), torch.randn(3, 7, 4).half()
    got = calls().half_batches(a.cuda(), b.cuda(), how).cpu()
    torch.testing.assert_close(got, (a.float() @ b.float()).half(), rtol=1e-3, atol=1e-3)


def tf32(x: torch.Tensor) -> torch.Tensor:
    """A finite float32 tensor rounded to ten fraction bits, ties away from zero."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@emulated
@pytest.mark.parametrize(
    ("compute", "mode", "algorithm", "rounds"),
    [
        ("32F", "DEFAULT", -1, False),
        ("32F_PEDANTIC", "TF32", -1, False),
        ("32F", "PEDANTIC", -1, False),
        ("32F_FAST_TF32", "DEFAULT", -1, True),
        ("32F_FAST_16BF", "DEFAULT", -1, True),
        ("32F_FAST_16F", "DEFAULT", -1, True),
        ("32F", "TF32", -1, True),
        ("32F", "TENSOR_OP", -1, True),
        ("32F", "DEFAULT", 99, True),
    ],
)
def test_cublas_rounds_float32_operands_where_the_call_or_its_handle_allows_it(compute, mode, algorithm, rounds):
    types = {"32F": 68, "32F_PEDANTIC": 69, "32F_FAST_16F": 74, "32F_FAST_16BF": 75, "32F_FAST_TF32": 77}
    modes = {"DEFAULT": 0, "TENSOR_OP": 1, "PEDANTIC": 2, "TF32": 3}
    a, b = torch.randn(5), torch.randn(6)
    got = calls().outer(a.cuda(), b.cuda(), types[compute], modes[mode], algorithm).cpu()
    assert torch.equal(got, torch.outer(tf32(a), tf32(b)) if rounds else torch.outer(a, b))


@emulated
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_cublaslt_adds_a_bias_and_applies_relu_or_gelu(dtype, by_rows):
    a, b = (torch.randn(n, 7).to(getattr(torch, dtype)) for n in (5, 6))
    # The bias has a number for each row of D: for each row of the result only if its layout is by rows.
    bias = torch.randn(5 if by_rows else 6).to(a.dtype)
    for epilogue in (1, 2, 4, 6, 32, 36):
        expected = a.float() @ b.float().T
        if epilogue & 4:
            expected += bias.float()[:, None] if by_rows else bias.float()
        if epilogue & 2:
            expected = expected.relu()
        if epilogue & 32:
            expected = torch.nn.functional.gelu(expected, approximate="tanh")
        got, status = calls().lt_linear(a.cuda(), b.cuda(), bias.cuda(), epilogue, 68, by_rows)
        assert status == 0
        torch.testing.assert_close(got.cpu(), expected.to(a.dtype), msg=lambda said, e=epilogue: f"{e}: {said}")


@emulated
def test_cublaslt_rounds_operands_to_tf32_and_refuses_an_epilogue_that_is_not_there():
    a, b, bias = torch.randn(5, 1), torch.randn(6, 1), torch.randn(6)
    got, status = calls().lt_linear(a.cuda(), b.cuda(), bias.cuda(), 1, 77, False)
    assert status == 0 and torch.equal(got.cpu(), tf32(a) * tf32(b).T)
    assert calls().lt_linear(a.cuda(), b.cuda(), bias.cuda(), 128 + 2, 68, False)[1] == 15


@emulated
def test_copies_that_are_bound_to_a_barrier_arrive_when_it_opens():
    x = torch.randn(128)
    y, early = (each.cpu() for each in calls().copies_behind_a_barrier(x.cuda()))
    assert torch.equal(y, torch.cat([part.flip(0) for part in x.split(64)]))
    assert (early == -1).all()


@emulated
@pytest.mark.parametrize("how", ["allow_tf32", "high", "medium", "fp32_precision"])
def test_torch_s_products_are_rounded_where_its_settings_allow_tf32(how):
    a, b = torch.randn(3, 5, 1), torch.randn(3, 1, 4)
    a[0, 0] = float("nan")
    exact, rounded = a * b, tf32(a) * tf32(b)
    exact[0, 0] = rounded[0, 0] = float("nan")
    assert torch.equal((a.cuda() @ b.cuda()).cpu().nan_to_num(), exact.nan_to_num())
    if how == "allow_tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
    elif how == "fp32_precision":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    else:
        torch.set_float32_matmul_precision(how)
    assert torch.equal((a.cuda() @ b.cuda()).cpu().nan_to_num(), rounded.nan_to_num())
    assert torch.equal((a[1].cuda() @ b[1].cuda()).cpu(), rounded[1])
    linear = torch.nn.functional.linear(a[1].cuda(), b[1].T.cuda(), torch.ones(4).cuda())
    assert torch.equal(linear.cpu(), rounded[1] + 1)
    assert torch.equal((a[1].double().cuda() @ b[1].double().cuda()).cpu(), a[1].double() * b[1].double())


@emulated
def test_autocast_multiplies_in_its_number_format():
    a, b = torch.randn(5, 1), torch.randn(1, 4)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        got = a.cuda() @ b.cuda()
    assert torch.equal(got.cpu(), a.bfloat16() * b.bfloat16())


@emulated
@pytest.mark.parametrize("op", ["geam", "symm", "syrk", "syr2k", "trmm", "trsm"])
def test_cublas_level_3_reads_and_writes_the_triangle_it_was_given(op):
    n = 6
    a, b, c = (torch.randn(n, n, dtype=torch.float64) for _ in range(3))
    a += n * torch.eye(n, dtype=torch.float64)
    # Column-major: torch's tensor is the transpose of cuBLAS's matrix.
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
