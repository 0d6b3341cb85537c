"""What published kernels use beside plain launches means under emulation what it means on an H200."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture


def ops() -> ModuleType:
    return extension(
        "published", extra_cuda_cflags=["-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_BFLOAT16_CONVERSIONS__"]
    )


@emulated
def test_a_kernel_is_launched_by_any_spelling():
    x = torch.zeros(4, device="cuda")
    errors = ops().launches(x)
    assert errors == [0, 0, 0, 0, 0, 0, 98, 9]
    assert x.tolist() == [(5 + 2 + 1 + 2 - 3) * 6.0] * 4


@emulated
@pytest.mark.parametrize("blocks", [1, 132, 1056])
def test_a_cooperative_grid_fills_an_h200_and_its_threads_keep_their_variables(blocks):
    x = torch.randn(blocks * 256)
    y = torch.empty(blocks * 256, device="cuda")
    assert ops().cooperative(x.cuda(), y, blocks, 3) == 0
    assert torch.equal(y.cpu().view(blocks, 256), x.view(blocks, 256)[:, :1].roll(-3, 0).expand(blocks, 256))


@emulated
def test_a_cooperative_grid_that_no_h200_holds_is_refused():
    x = torch.zeros(1057 * 256, device="cuda")
    assert ops().cooperative(x, x, 1057, 1) == 720


@emulated
@pytest.mark.parametrize(
    ("how", "says"),
    [
        (1, ["device-side assert triggered", "published.cuda_sources:92: Assertion `x == nullptr"]),
        (2, ["unspecified launch failure", "__trap()", "published.cuda_sources:93"]),
        (3, ["an illegal memory access was encountered", "0x0"]),
        (4, ["unspecified launch failure"]),
        (5, ["an illegal memory access was encountered"]),
    ],
)
def test_a_trap_is_an_error_that_stays_and_the_process_goes_on(how, says):
    x = torch.zeros(64, device="cuda")
    ops().trapped(x, how)
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            torch.cuda.synchronize()
        assert "thread (3, 0, 0) of block (1, 0, 0)" in str(caught.value)
        assert all(text in str(caught.value) for text in says), str(caught.value)
    assert torch.ones(3).sum() == 3


@emulated
def test_a_kernel_without_a_trap_ends_without_an_error():
    x = torch.zeros(64, device="cuda")
    ops().trapped(x, 0)
    torch.cuda.synchronize()


@emulated
def test_small_floats_are_rounded_and_saturated():
    torch.manual_seed(0)
    x = torch.cat(
        [torch.randn(2000), torch.randn(2000) * 1000, torch.randn(1000) * 1e-3, torch.tensor([0.0, -0.0, 1e9, -1e9])]
    )
    y = torch.empty(len(x), 6, dtype=torch.int32, device="cuda")
    ops().small_floats(x.cuda(), y)
    y = y.cpu()
    # Without saturation, a number that rounds to more than the largest is NaN in E4M3, and infinite in E5M2.
    e4m3 = x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).int()
    assert torch.equal(y[:, 2], torch.where(x.abs() > 464, 0x7F | (x < 0).int() << 7, e4m3))
    assert torch.equal(y[:, 3], x.to(torch.float8_e5m2).view(torch.uint8).int())
    assert torch.equal(y[:, 0], e4m3)
    assert torch.equal(y[:, 1], x.clamp(-57344, 57344).to(torch.float8_e5m2).view(torch.uint8).int())
    largest = {1e9: 0b011111, -1e9: 0b111111}
    assert all(y[i, 4] == largest[x[i].item()] for i in range(len(x)) if abs(x[i]) > 1e8)
    fp4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    low, high = y[:, 5] & 7, y[:, 5] >> 4 & 7
    distance = (x.abs().clamp(max=6)[:, None] - fp4).abs()
    assert torch.equal(low, high)
    assert torch.equal(distance[torch.arange(len(x)), low.long()], distance.min(1).values)


@emulated
def test_tensor_cores_multiply_fp8_numbers():
    torch.manual_seed(0)
    a, b = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(8, 32).to(torch.float8_e4m3fn)
    lane = torch.arange(32)
    rows, columns = lane // 4, lane % 4 * 4
    bytes_a, bytes_b = a.view(torch.uint8), b.view(torch.uint8)
    left = torch.stack(
        [
            bytes_a[rows + r % 2 * 8][lane[:, None], (columns + r // 2 * 16)[:, None] + torch.arange(4)]
            for r in range(4)
        ],
        1,
    )
    right = torch.stack(
        [bytes_b[rows][lane[:, None], (columns + r * 16)[:, None] + torch.arange(4)] for r in range(2)], 1
    )
    d = torch.empty(16, 8, device="cuda")
    ops().fp8_product(left.contiguous().cuda(), right.contiguous().cuda(), d)
    torch.testing.assert_close(d.cpu(), a.float() @ b.float().T)


@emulated
def test_stmatrix_is_the_inverse_of_ldmatrix():
    x = torch.arange(256, dtype=torch.int16)
    y = torch.empty_like(x, device="cuda")
    ops().stmatrix_transposed(x.cuda(), y)
    lanes = x.view(32, 4, 2)  # lane, matrix, the two elements of a column
    wanted = torch.empty(4, 8, 8, dtype=torch.int16)
    for lane in range(32):
        for i in range(2):
            wanted[:, lane % 4 * 2 + i, lane // 4] = lanes[lane, :, i]
    assert torch.equal(y.cpu(), wanted.flatten())


@emulated
def test_a_shuffle_from_outside_the_mask_gives_0():
    out = torch.full((4,), -1, dtype=torch.int32, device="cuda")
    ops().outside_mask(out)
    assert out.tolist() == [3, 4, 0, 0]


@emulated
def test_a_pool_counts_what_was_taken_from_it():
    assert ops().pools() == [0, 0, 0, 1, 1000, 0, 0, 1]


@emulated
@pytest.mark.parametrize("size", [64, 128])
def test_a_tile_may_have_several_warps(size):
    x = torch.randint(0, 9, (256,)).float()
    y = torch.empty(256, device="cuda")
    ops().tiles(x.cuda(), y, size)
    parts = x.view(-1, size)
    wanted = parts.sum(1) + parts[:, 1] + 1000 * torch.arange(256 // size)
    wanted[0] += 1
    assert torch.equal(y.cpu().view(-1, size), wanted[:, None].expand(-1, size))


@emulated
@pytest.mark.parametrize("of_roles", [True, False])
def test_the_copies_of_a_pipeline_arrive_at_the_wait_and_not_before(of_roles):
    x = torch.randn(256)
    y = torch.empty(256, device="cuda")
    ops().pipelines(x.cuda(), y, of_roles, True)
    assert torch.equal(y.cpu(), 2 * (x if of_roles else x.view(4, 64).flip(1).flatten()))


@emulated
def test_a_pipeline_without_a_wait_reads_what_was_there_before():
    x = torch.randn(256)
    y = torch.zeros(256, device="cuda")
    ops().pipelines(x.cuda(), y, False, False)
    assert not torch.equal(y.cpu(), 2 * x.view(4, 64).flip(1).flatten())


@emulated
def test_cublas_sums_in_half_where_the_compute_type_says_so():
    torch.manual_seed(0)
    a, b = torch.randn(32, 2048).half(), torch.randn(32, 2048).half()
    exact = (b.double() @ a.double().T).float()
    errors = []
    for in_half in (False, True):
        c = torch.empty(32, 32, dtype=torch.half, device="cuda")
        ops().half_sums(a.cuda(), b.cuda(), c, in_half)
        errors.append(((c.cpu().float() - exact).norm() / exact.norm()).item())
    assert errors[0] < 5e-4 < 1e-3 < errors[1] < 1e-2


@emulated
@pytest.mark.parametrize(("how", "always"), [(0, False), (1, True), (2, True)])
def test_streams_that_nothing_orders_run_in_another_order_in_some_calls(how, always):
    seen = set()
    for _ in range(3):
        seen.add(ops().two_streams(how))
        torch.cuda.synchronize()
    assert (seen == {7.0}) is always


@emulated
@pytest.mark.parametrize("own_stream", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_a_copy_to_pinned_memory_is_late_in_some_calls(own_stream, waits):
    seen = set()
    for _ in range(3):
        seen.add(ops().pinned_copy(own_stream, waits))
        torch.cuda.synchronize()
    assert (seen == {5.0}) is waits


@emulated
def test_a_graph_is_built_node_by_node_and_its_nodes_get_other_arguments():
    x = torch.zeros(4, device="cuda")
    values = ops().built_graph(x, True)
    assert values == [0, 50, 0, 20, 0, 50, 5, 1, 2, 3, 910, 2, 1]


@emulated
def test_a_dependency_that_a_graph_lacks_shows():
    x = torch.zeros(4, device="cuda")
    assert ops().built_graph(x, False)[1:6:2] != [50, 20, 50]


@emulated
def test_an_instantiated_graph_is_updated_unless_its_nodes_differ():
    x = torch.zeros(4, device="cuda")
    assert ops().updated_graph(x) == [0, 0, 910]
    assert x.tolist() == [11.0] * 4


@emulated
def test_hints_for_managed_memory_change_nothing():
    out = torch.zeros(1, device="cuda")
    assert ops().hinted(out) == 0
    assert out.item() == 3


@emulated
def test_cublas_has_functions_for_vectors():
    assert ops().cublas_vectors() == pytest.approx([8, 30, 4, 4, 3, 10, 4, 13])


@emulated
@pytest.mark.parametrize("counters", [32, 31, 16, 1])
def test_the_lanes_of_a_warp_meet_under_as_many_masks_as_there_are_lanes(counters):
    x = torch.zeros(counters, dtype=torch.int32, device="cuda")
    ops().aggregate(x)
    lanes = torch.arange(64) % counters
    assert torch.equal(x.cpu(), 100 * torch.bincount(lanes, minlength=counters).int())


@emulated
def test_atomic_functions_take_an_order_and_a_scope():
    x = torch.zeros(4, dtype=torch.int32, device="cuda")
    ops().atomics(x)
    assert x.tolist() == [512, 63, 768, 7]


@emulated
def test_half_and_bfloat16_are_converted_to_each_other():
    out = torch.zeros(2, device="cuda")
    ops().between_halves(out)
    assert out.tolist() == [1.5, 1.0]


@emulated
def test_sums_of_a_warp_in_volatile_memory_need_no_syncwarp():
    x = torch.arange(64).float()
    total, sums = torch.zeros(1, device="cuda"), torch.zeros(32, device="cuda")
    ops().warp_steps(x.cuda(), total, sums)
    assert total.item() == x.sum()
    assert torch.equal(sums.cpu(), x[:32].cumsum(0))


@emulated
def test_numbers_of_an_array_that_has_ended_are_still_there():
    assert ops().of_ended_numbers(3).shape == (3, 5, 4)


@emulated
def test_volatile_memory_is_updated_under_a_lock():
    x = torch.zeros(2, dtype=torch.int32, device="cuda")
    ops().locked(x)
    assert x.tolist() == [0, 192]


@emulated
def test_the_helpers_of_samples_find_the_headers_and_the_device():
    assert ops().asked_by_helpers() == [1, 1, 1, 0, 101, 101]


@emulated
def test_managed_memory_is_zero_until_it_is_written():
    assert ops().zero_managed() == 0


@emulated
def test_an_allocation_that_a_gpu_captures_is_reported_and_no_error_of_cuda():
    with pytest.raises(
        RuntimeError, match=r"published.cuda_sources:\d+: the emulation cannot run an allocation in a capture"
    ):
        ops().allocation_in_capture()


@emulated
@pytest.mark.parametrize("as_callback", [True, False])
def test_the_host_may_wait_for_a_function_that_it_puts_into_a_stream(as_callback):
    for _ in range(3):
        assert ops().sees_callback(as_callback)
        torch.cuda.synchronize()


@emulated
def test_a_variable_of_the_device_may_have_the_name_of_a_function_of_libc():
    assert ops().named_as_in_libc().item() == 4 + 10 + 100
