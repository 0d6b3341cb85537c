"""The emulated CUDA device: kernels, torch's and CUDA's own calls, and errors as on a GPU."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from support import shipped_kernels
from support.command import ROOT
from support.emulated_process import SOURCES, emulated, exported, extension, inside, load_inline  # noqa: F401 - a fixture

from cuda_on_cpu.compile.errors import BuildFailed, UnsupportedConstruct
from kernel_harness.device.cpu import Emulated
from kernel_harness.ipc.packed import pack
from kernel_harness.problem import problem as problems
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import WorkerClient


def device() -> ModuleType:
    return extension("device")


def bindings() -> ModuleType:
    return extension("bindings", functions={name: f"What {name} does." for name in exported("bindings")})


def cuda(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32).cuda()


def launch_failure(call: str) -> str:
    """The error message of a function of the device extension that fails."""
    with pytest.raises(RuntimeError) as caught:
        getattr(device(), call)()
    return str(caught.value)


# ------------------------------------------------------------------------------------------- barriers


@emulated
@pytest.mark.parametrize(("blocks", "threads"), [(1, 2), (5, 64), (300, 256), (3, 1024)])
def test_a_tree_reduction_adds_up(blocks, threads):
    x = torch.randint(-100, 100, (blocks, threads), dtype=torch.int32)
    assert torch.equal(device().tree_sum(x.cuda()).cpu().long(), x.sum(1))


@emulated
@pytest.mark.parametrize("threads", [1, 31, 33, 256])
def test_every_thread_sees_what_its_neighbour_wrote_before_the_barrier(threads):
    steps = 7
    expected = (torch.arange(threads) - steps) % threads
    out = device().ping_pong(4, threads, steps).cpu()
    assert all(torch.equal(row.long(), expected) for row in out)


@emulated
@pytest.mark.parametrize("holding", [[], [0], [69], list(range(70)), list(range(0, 70, 3))])
def test_barriers_that_vote_count_every_thread_of_the_block(holding):
    holds = torch.zeros(3, 70, dtype=torch.int32)
    holds[1, holding] = 5
    out = device().votes(holds.cuda()).cpu()
    assert (out[1] == torch.tensor([len(holding), len(holding) == 70, len(holding) > 0])).all()
    assert not out[0].any() and not out[2].any()


@emulated
@pytest.mark.parametrize("staying", [1, 31, 32, 100])
def test_threads_that_returned_are_not_waited_for_at_a_barrier(staying):
    out = device().early_return(100, staying).cpu().long()
    assert torch.equal(out[:staying], (torch.arange(staying) + 2) % staying)
    assert (out[staying:] == -1).all()


@emulated
def test_a_barrier_that_part_of_a_block_never_reaches_is_a_launch_failure_that_names_the_thread():
    message = launch_failure("divergent_barrier")
    assert "CUDA error: unspecified launch failure" in message
    assert "thread (0, 1, 0) of block (0, " in message
    assert "barrier that 4 threads of its block never reach" in message


# ---------------------------------------------------------------------------------------------- warps


@emulated
@pytest.mark.parametrize("width", [2, 8, 32])
@pytest.mark.parametrize("threads", [32, 64])
def test_shuffles_move_values_within_their_width(threads, width):
    lane = torch.arange(threads)
    first = lane // width * width
    up, down = lane - 1, lane + 2
    expected = [
        first + 3 % width,
        torch.where(up >= first, up, lane),
        torch.where(down < first + width, down, lane),
        lane ^ 1,
    ]
    for got, wanted in zip(device().shuffles(threads, width).cpu().long(), expected, strict=True):
        assert torch.equal(got, wanted)


@emulated
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_a_warp_reduction_by_shuffles_adds_up_in_every_type(dtype):
    x = torch.randint(-100, 100, (50, 32)).to(getattr(torch, dtype))
    assert torch.equal(device().warp_sum(x.cuda()).cpu(), x.sum(1, dtype=x.dtype))


@emulated
def test_the_last_warp_of_a_block_may_be_partial():
    out = device().ballots(torch.ones(40, dtype=torch.int32).cuda()).cpu()
    assert (out[0, :32] == -1).all()
    assert (out[0, 32:] == 0xFF).all()
    assert (out[1:] == 1).all()


@emulated
def test_ballots_any_and_all_are_of_the_warp_and_not_of_the_block():
    holds = torch.zeros(96, dtype=torch.int32)
    holds[[3, 5]] = 1
    holds[64:] = 9
    ballot, any_, all_ = device().ballots(holds.cuda()).cpu().reshape(3, 3, 32)
    assert ballot[:, 0].tolist() == [0b101000, 0, -1]
    assert any_[:, 0].tolist() == [1, 0, 1]
    assert all_[:, 0].tolist() == [0, 0, 1]


@emulated
def test_parts_of_a_warp_may_shuffle_and_vote_on_their_own():
    value, ballot = device().half_warps().cpu()
    lane = torch.arange(16)
    assert value.tolist() == [*((lane + 1) % 16).tolist(), *(16 + (lane + 3) % 16).tolist()]
    assert ballot.tolist() == [0xAAAA] * 16 + [0xAAAA0000 - 2**32] * 16


@emulated
def test_a_lane_that_its_own_mask_leaves_out_is_a_launch_failure():
    assert "whose mask does not include its lane" in launch_failure("outside_its_mask")


@emulated
def test_the_reason_of_a_launch_failure_is_part_of_the_text_that_cuda_gives_for_the_error():
    message = launch_failure("outside_its_mask_by_its_own_check")
    assert message.startswith("unspecified launch failure (thread (1, 0, 0) of block (0, 0, 0)")
    assert message.endswith("calls a warp operation whose mask does not include its lane)")


@emulated
def test_lanes_that_wait_for_each_other_in_a_circle_are_not_said_to_be_at_a_barrier():
    message = launch_failure("circular_masks")
    assert "warp operation" in message
    assert "thread (0, 0, 0)" in message
    assert "barrier" not in message


# ------------------------------------------------------------------------------------------ alignment


VECTORS = [("float2", 4, 8), ("float4", 8, 16), ("int4", 4, 16), ("double2", 8, 16), ("half2", 2, 4), ("float", 2, 4)]


@emulated
@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize(("type_", "offset", "size"), VECTORS)
def test_a_vector_at_an_address_that_is_no_multiple_of_its_size_is_a_launch_failure_at_its_line(
    type_, offset, size, where
):
    x = torch.arange(64, dtype=torch.uint8).cuda()
    for aligned in (0, size):
        assert device().read_vectors(x, type_, aligned, where).tolist()[:size] == list(range(aligned, aligned + size))
    with pytest.raises(RuntimeError) as caught:
        device().read_vectors(x, type_, offset, where)
    source = (SOURCES / "device.cu").read_text()
    line = source[: source.index("= wanted[threadIdx.x % 2]")].count("\n") + 1
    message = str(caught.value)
    assert message.startswith("CUDA error: misaligned address (thread (0, 0, 0) of block (0, 0, 0): ")
    assert f"device.cuda_sources:{line}: an access to a " in message
    assert f"at an address that is not a multiple of {size}" in message


@emulated
def test_a_misaligned_pointer_that_is_not_read_and_a_thread_s_own_variables_are_no_failure():
    x = torch.arange(64, dtype=torch.uint8).cuda()
    assert not device().read_vectors(x, "float4", 4, 2).any()
    assert device().own_variables().tolist() == [i + 1 for i in range(32)]


# -------------------------------------------------------------------------------------------- atomics


@emulated
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_additions_from_many_blocks_all_arrive(dtype):
    total = torch.zeros(1, dtype=getattr(torch, dtype), device="cuda")
    assert device().accumulate(total, 500, 64).item() == 32_000


@emulated
def test_every_atomic_operation_does_what_its_name_says():
    blocks, threads = 40, 50
    everyone = range(blocks * threads)
    out = device().atomics(torch.tensor([0, 0, 0, 0, -1, 0, 0, 0], dtype=torch.int32).cuda(), blocks, threads).tolist()
    bits = 2**31 - 1
    exclusive = 0
    for i in everyone:
        exclusive ^= i
    assert out == [max(everyone), -max(everyone), -len(everyone), bits, ~bits, exclusive, 5, 2 * len(everyone)]


# -------------------------------------------------------------------------------------- shared memory


@emulated
def test_shared_memory_that_nobody_wrote_is_nan_in_every_block():
    # More blocks than cores: a later block runs where an earlier one left its zeros.
    assert device().unwritten_shared_memory(64).isnan().all()


@emulated
@pytest.mark.parametrize("rows", [[1], [1536], [31, 62], [31, 60, 1000, 1030, 1, 1536]])
def test_dynamic_shared_memory_is_as_large_as_each_launch_asks_for(rows):
    for count in rows:
        out = device().rotate_rows(3, count).cpu()
        expected = torch.arange(count * 8).reshape(count, 8).roll(-1, 1)
        assert all(torch.equal(block.long(), expected) for block in out)


# ------------------------------------------------------------------------------------------- launches


@emulated
@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ([1, 1, 1], [1, 1, 1]),
        ([7, 1, 1], [33, 1, 1]),
        ([2, 3, 4], [3, 4, 5]),
        ([1, 1, 5], [1, 1, 64]),
        ([1, 9, 1], [1, 1024, 1]),
    ],
)
def test_every_thread_of_every_block_runs_once_with_coordinates_of_its_own(grid, block):
    out = device().coordinates(grid, block).cpu()
    assert torch.equal(out, torch.arange(math.prod(grid + block), dtype=torch.int32))


@emulated
def test_a_host_s_variable_may_be_called_block_dim():
    assert device().hidden_names().tolist() == list(range(6))


@emulated
def test_a_kernel_reads_tensors_through_accessors():
    x = torch.randn(5, 7, dtype=torch.float64)
    assert torch.equal(device().transpose(x.cuda()).cpu(), x.T)


ONE = [1, 1, 1]


@emulated
@pytest.mark.parametrize(
    ("grid", "block", "shared", "error"),
    [
        (ONE, [1025, 1, 1], 0, "cudaErrorInvalidConfiguration"),
        (ONE, [32, 33, 1], 0, "cudaErrorInvalidConfiguration"),
        (ONE, [1, 1, 65], 0, "cudaErrorInvalidConfiguration"),
        (ONE, [0, 1, 1], 0, "cudaErrorInvalidConfiguration"),
        ([0, 1, 1], ONE, 0, "cudaErrorInvalidConfiguration"),
        ([1, 65536, 1], ONE, 0, "cudaErrorInvalidConfiguration"),
        ([1, 1, 65536], ONE, 0, "cudaErrorInvalidConfiguration"),
        ([2**31, 1, 1], ONE, 0, "cudaErrorInvalidConfiguration"),
        (ONE, ONE, 48 * 1024 + 1, "cudaErrorInvalidValue"),
    ],
)
def test_a_launch_past_a_limit_runs_nothing_and_says_so_once(grid, block, shared, error):
    untouched, first, second = device().touch(grid, block, shared)
    assert (untouched.item(), first, second) == (-1, error, "cudaSuccess")


@emulated
@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        (ONE, [1024, 1, 1], 0),
        (ONE, [1, 16, 64], 0),
        ([1, 65535, 1], ONE, 0),
        ([65536, 1, 1], ONE, 0),
        (ONE, ONE, 48 * 1024),
    ],
)
def test_a_launch_at_a_limit_runs(grid, block, shared):
    touched, first, _ = device().touch(grid, block, shared)
    assert (touched.item(), first) == (1, "cudaSuccess")


@emulated
@pytest.mark.parametrize("how", range(4))
def test_a_block_beyond_the_launch_bounds_of_its_kernel_runs_nothing_and_says_so_once(how):
    touched, *errors = device().touch_bounded(how, [300, 1, 1], [64, 1, 1])
    assert (touched.item(), errors) == (1, ["cudaSuccess", "cudaSuccess"])
    untouched, *errors = device().touch_bounded(how, [300, 1, 1], [1, 65, 1])
    assert (untouched.item(), errors) == (-1, ["cudaErrorInvalidValue", "cudaSuccess"])
    torch.cuda.synchronize()


@emulated
def test_the_device_works_on_after_a_launch_that_was_refused():
    assert device().touch(ONE, [2000, 1, 1], 0)[1] != "cudaSuccess"
    assert device().touch(ONE, ONE, 0)[0].item() == 1
    torch.cuda.synchronize()


@emulated
def test_a_kernel_that_is_given_host_memory_breaks_the_device_for_good():
    assert device().touch_host() == ("cudaErrorIllegalAddress", "cudaErrorIllegalAddress")
    with pytest.raises(RuntimeError, match="argument 1 of touch_kernel is host memory"):
        torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        device().touch(ONE, ONE, 0)


@emulated
def test_a_tensor_left_on_the_cpu_is_host_memory():
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        device().fill(torch.zeros(4), 1.0)


@emulated
def test_synchronize_raises_after_a_kernel_failed():
    launch_failure("divergent_barrier")
    with pytest.raises(RuntimeError, match="CUDA error: unspecified launch failure"):
        torch.cuda.synchronize()


# ----------------------------------------------------------------------------- the runtime's own calls


@emulated
def test_memory_is_allocated_copied_set_and_freed():
    assert device().memory_calls() == [1.0, 2.0, 0.0, 0.0]


@emulated
def test_calls_on_the_wrong_kind_of_memory_are_refused():
    wrong = ["cudaErrorInvalidValue"] * 4 + ["cudaErrorInvalidDevice"]
    assert device().mistaken_memory_calls() == [*wrong, "cudaSuccess", "cudaErrorInvalidValue", "cudaSuccess"]


# --------------------------------------------------------------------------------------------- cuBLAS


def column_major(matrix: np.ndarray, leading: int) -> torch.Tensor:
    """The matrix in cuBLAS's layout on the device. The elements between its columns are NaN."""
    rows, columns = matrix.shape
    padded = np.full((columns, leading), np.nan, matrix.dtype)
    padded[:, :rows] = matrix.T
    return torch.from_numpy(padded.reshape(-1)).cuda()


def gemm_call(ta: bool, tb: bool, m: int, n: int, k: int, dtype: type, beta: float):
    """A and B as NumPy arrays, C before the call, and the arguments of the multiplication."""
    random = np.random.default_rng(1)
    a, b, c = (random.standard_normal(s).astype(dtype) for s in ((m, k), (k, n), (m, n)))
    stored = [a.T if ta else a, b.T if tb else b, c]
    leading = [x.shape[0] + 3 for x in stored]
    if beta == 0:
        stored[2] = np.full_like(c, np.nan)
    on_device = [column_major(x, ld) for x, ld in zip(stored, leading, strict=True)]
    return a, b, c, (*on_device, ta, tb, [m, n, k], leading)


@emulated
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_gemm_is_column_major_with_every_combination_of_transposes(dtype, beta):
    m, n, k = 5, 7, 3
    for ta, tb in itertools.product([False, True], repeat=2):
        a, b, c, call = gemm_call(ta, tb, m, n, k, np.dtype(dtype).type, beta)
        assert device().gemm(*call, 2.0, beta) == "CUBLAS_STATUS_SUCCESS"
        expected = 2.0 * (a @ b) + (beta * c if beta else 0)
        got = call[2].cpu().numpy().reshape(n, m + 3)
        np.testing.assert_allclose(got[:, :m].T, expected, rtol=1e-5, atol=1e-5, err_msg=f"ta={ta}, tb={tb}")
        assert np.isnan(got[:, m:]).all(), "what lies between the columns was written to"


@emulated
def test_gemm_over_no_terms_scales_c():
    a, b, c = torch.zeros(4).cuda(), torch.zeros(4).cuda(), torch.full((4,), 3.0).cuda()
    assert device().gemm(a, b, c, False, False, [2, 2, 0], [2, 1, 2], 1.0, 2.0) == "CUBLAS_STATUS_SUCCESS"
    assert c.tolist() == [6.0] * 4


@emulated
@pytest.mark.parametrize(
    ("ta", "tb", "mnk", "leading"),
    [
        (False, False, [4, 5, 6], [3, 6, 4]),
        (True, False, [4, 5, 6], [5, 6, 4]),
        (False, False, [4, 5, 6], [4, 5, 4]),
        (False, True, [4, 5, 6], [4, 4, 4]),
        (False, False, [4, 5, 6], [4, 6, 3]),
        (False, False, [-1, 5, 6], [4, 6, 4]),
        (False, False, [4, 5, 6], [0, 6, 4]),
    ],
)
def test_gemm_refuses_a_leading_dimension_or_size_that_cannot_be(ta, tb, mnk, leading):
    a, b, c = (torch.zeros(64).cuda() for _ in range(3))
    c.fill_(7)
    assert device().gemm(a, b, c, ta, tb, mnk, leading, 1.0, 0.0) == "CUBLAS_STATUS_INVALID_VALUE"
    assert (c == 7).all()


@emulated
def test_gemm_on_host_memory_fails_as_an_illegal_access():
    x, c = torch.zeros(4).cuda(), torch.zeros(4)
    status = device().gemm(x, x, c, False, False, [2, 2, 2], [2, 2, 2], 1.0, 0.0)
    assert status == "CUBLAS_STATUS_EXECUTION_FAILED"
    with pytest.raises(RuntimeError, match="illegal memory access"):
        torch.cuda.synchronize()


@emulated
def test_cublas_handles_are_created_used_and_destroyed():
    assert device().handles() == ["CUBLAS_STATUS_NOT_INITIALIZED", *["CUBLAS_STATUS_SUCCESS"] * 3]


# ----------------------------------------------------------------------------------- torch, in Python


@emulated
@pytest.mark.parametrize("how", ["cuda()", "to", "device=", "new_", "like", "module"])
def test_a_tensor_can_be_put_on_the_device_in_every_usual_way(how):
    host = torch.arange(6.0).reshape(2, 3)
    placed = {
        "cuda()": lambda: host.cuda(),
        "to": lambda: host.to("cuda"),
        "device=": lambda: torch.tensor(host.tolist(), device="cuda"),
        "new_": lambda: host.cuda().new_tensor(host.tolist()),
        "like": lambda: torch.zeros_like(host, device="cuda:0") + host.to(torch.device("cuda", 0)),
        "module": lambda: torch.nn.ParameterList([torch.nn.Parameter(host)]).to("cuda")[0].detach(),
    }[how]()
    assert placed.is_cuda and placed.device == torch.device("cuda", 0)
    assert torch.equal(placed.cpu(), host)


@emulated
def test_cpp_sees_the_device_as_python_does():
    assert device().placement(torch.zeros(3, device="cuda")) == [True] * 6


@emulated
@pytest.mark.parametrize("make", ["python", "cpp", "empty_like", "new_empty"])
def test_memory_that_nobody_wrote_is_nan(make):
    fresh = {
        "python": lambda: torch.empty(3, 5, device="cuda"),
        "cpp": lambda: device().fresh([3, 5]),
        "empty_like": lambda: torch.empty_like(torch.zeros(3, 5, device="cuda")),
        "new_empty": lambda: torch.zeros(1, device="cuda").new_empty(3, 5),
    }[make]()
    assert fresh.is_cuda and fresh.isnan().all()


@emulated
@pytest.mark.parametrize("operation", ["add", "matmul", "cat", "where", "out"])
def test_tensors_of_two_devices_are_not_mixed(operation):
    host, placed = torch.ones(2, 2), torch.ones(2, 2, device="cuda")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        {
            "add": lambda: host + placed,
            "matmul": lambda: placed @ host,
            "cat": lambda: torch.cat([placed, host]),
            "where": lambda: torch.where(placed > 0, placed, host),
            "out": lambda: torch.add(placed, placed, out=host),
        }[operation]()


@emulated
def test_a_number_may_come_from_the_host():
    assert (cuda(1.0, 2.0) * torch.tensor(3.0)).tolist() == [3.0, 6.0]


@emulated
@pytest.mark.parametrize("view", ["t", "slice", "reshape", "expand", "narrow", "unsqueeze", "diagonal", "as_strided"])
def test_a_view_shares_the_memory_it_looks_at(view):
    x = torch.zeros(4, 4, device="cuda")
    seen = {
        "t": x.t,
        "slice": lambda: x[1:, ::2],
        "reshape": lambda: x.reshape(2, 8),
        "expand": lambda: x[:1].expand(3, 4),
        "narrow": lambda: x.narrow(0, 1, 2),
        "unsqueeze": lambda: x.unsqueeze(0),
        "diagonal": x.diagonal,
        "as_strided": lambda: x.as_strided((2, 2), (4, 1), 1),
    }[view]()
    x.fill_(5)
    assert seen.is_cuda and (seen == 5).all()


@emulated
def test_a_kernel_writes_through_a_view_into_its_base():
    x = torch.zeros(3, 4, device="cuda")
    device().fill(x[1], 2.0)
    assert x.sum(1).tolist() == [0.0, 8.0, 0.0]


@emulated
def test_an_output_is_resized_to_what_fits():
    out = torch.empty(0, device="cuda")
    again = torch.add(cuda(1, 2, 3), 1, out=out)
    assert again is out and out.tolist() == [2.0, 3.0, 4.0]
    out.resize_(500)
    assert out[:3].tolist() == [2.0, 3.0, 4.0] and device().fill(out, 1.0).sum() == 500


@emulated
def test_in_place_operations_return_the_tensor_they_changed():
    x = cuda(-1, 2)
    assert x.add_(1).mul_(2).relu_() is x
    x += 1
    x[0] = 10
    assert x.tolist() == [10.0, 7.0]


@emulated
def test_indices_may_lie_on_the_host_or_on_the_device():
    x, at = torch.arange(5.0, device="cuda"), torch.tensor([3, 1])
    assert x[at].tolist() == x[at.cuda()].tolist() == [3.0, 1.0]
    x[at] = torch.zeros(2, device="cuda")
    x[x > 3] = -1
    assert x.tolist() == [0.0, 0.0, 2.0, 0.0, -1.0]


@emulated
def test_copies_go_across_in_both_directions_and_change_type():
    placed = torch.zeros(3, device="cuda", dtype=torch.float64)
    placed.copy_(torch.tensor([1, 2, 3]))
    host = torch.zeros(3)
    host.copy_(placed)
    assert host.tolist() == [1.0, 2.0, 3.0]
    assert placed.to("cpu", torch.int32).tolist() == [1, 2, 3]


@emulated
def test_a_module_moves_with_its_parameters_and_buffers():
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).eval()
    x = torch.randn(2, 4)
    expected = module(x)
    module.to("cuda")
    assert all(t.is_cuda for t in [*module.parameters(), *module.buffers()])
    torch.testing.assert_close(module(x.cuda()).cpu(), expected)


@emulated
def test_what_a_network_is_made_of_runs_on_the_device():
    x = torch.randn(2, 3, 8, 8)
    layers = [
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.GroupNorm(2, 4), torch.nn.GELU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 5), torch.nn.Softmax(-1),
    ]  # fmt: skip
    with torch.no_grad():
        for layer in layers:
            expected = layer(x)
            torch.testing.assert_close(layer.to("cuda")(x.cuda()).cpu(), expected)
            x = expected


@emulated
def test_gradients_flow_through_the_device():
    x = torch.arange(3.0, device="cuda", requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.is_cuda and x.grad.tolist() == [0.0, 2.0, 4.0]


@emulated
def test_a_mask_of_torchscript_indexes_a_tensor_of_the_device():
    code = "def raised(x):\n    y = x.clone()\n    y[y < 1] = 1\n    return y\n"
    raised = torch.jit.CompilationUnit(code).raised
    for _ in range(3):  # after two calls, TorchScript knows the dtype of the mask
        assert raised(cuda(0.5, 2.0)).tolist() == [1.0, 2.0]


@emulated
def test_random_numbers_on_the_device_follow_the_seed():
    def draw() -> list[float]:
        torch.manual_seed(7)
        return torch.rand(3, device="cuda").tolist() + torch.randn(2, device="cuda").tolist()

    assert draw() == draw()


@emulated
def test_a_generator_of_the_device_can_be_made_and_seeded():
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert torch.rand(2, generator=generator, device="cuda").is_cuda


@emulated
def test_a_tensor_of_the_device_prints_as_one():
    assert repr(cuda(1.5)) == "tensor([1.5000], device='cuda:0')"


@emulated
def test_a_tensor_of_the_device_is_not_numpy_s_to_read():
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        cuda(1.0).numpy()


@emulated
def test_the_machine_says_that_it_has_one_device():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(0).warp_size == 32
    assert torch.zeros(1, device="cuda").get_device() == 0


@emulated
def test_autocast_for_the_device_rounds_a_product():
    x = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16


@emulated
def test_streams_order_work_that_is_done_when_asked_for():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x = device().fill(torch.empty(2, device="cuda"), 3.0)
    torch.cuda.current_stream().wait_stream(stream)
    stream.synchronize()
    assert stream.query() and x.tolist() == [3.0, 3.0]


@emulated
def test_events_measure_a_time_that_passed():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    (torch.ones(200, 200, device="cuda") @ torch.ones(200, 200, device="cuda")).sum()
    end.record()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) > 0


@emulated
def test_events_that_were_not_recorded_measure_nothing():
    with pytest.raises(RuntimeError, match="recorded"):
        torch.cuda.Event().elapsed_time(torch.cuda.Event())


# ------------------------------------------------------------------------------------- bindings of C++


@emulated
def test_functions_given_as_a_dict_have_its_docstrings():
    assert bindings().twice.__doc__ == "What twice does."


@emulated
def test_plain_types_are_bound_without_pybind11():
    assert "cuda_on_cpu.function" in repr(bindings().twice.__self__)


@emulated
def test_functions_given_as_a_list_are_all_there():
    ops = device()
    assert all(callable(getattr(ops, name)) for name in exported("device"))


@emulated
@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("plus_one", [2**40], 2**40 + 1),
        ("plus_one", [-5], -4),
        ("plus_one", [True], 2),
        ("narrow", [-(2**31)], -(2**31)),
        ("unsigned_narrow", [2**32 - 1], 2**32 - 1),
        ("product", [1.5, 2], 3.0),
        ("negation", [True], False),
        ("greeting", ["you"], "hello you"),
        ("greeting", ["\u00e4\u0000b"], "hello \u00e4\u0000b"),
        ("nothing", [], None),
        ("count", [None], -1),
        ("total", [[1, 2, 3]], 6),
        ("total", [[]], 0),
    ],
)
def test_plain_values_go_in_and_out(function, arguments, expected):
    assert getattr(bindings(), function)(*arguments) == expected


@emulated
def test_tensors_go_in_and_out_alone_optional_in_lists_and_in_tuples():
    ops, x = bindings(), cuda(1, 2, 3)
    assert ops.twice(x).tolist() == [2.0, 4.0, 6.0]
    assert ops.count(x) == 3
    assert [half.tolist() for half in ops.halves(x)] == [[1.0, 2.0], [3.0]]
    first, number, floats = ops.mixed([x, x])
    assert first is x and number == 2 and floats == [0.5, 1.5]


@emulated
def test_a_tuple_passes_for_a_list():
    assert bindings().total((1, 2)) == 3


@emulated
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("twice", [1]),
        ("twice", [None]),
        ("twice", []),
        ("plus_one", [1.5]),
        ("plus_one", ["1"]),
        ("plus_one", [1, 2]),
        ("product", ["1", 2]),
        ("negation", [1]),
        ("greeting", [3]),
        ("count", [3]),
        ("total", [3]),
        ("total", [[1, "2"]]),
    ],
)
def test_arguments_of_a_wrong_type_or_number_are_a_type_error(function, arguments):
    with pytest.raises(TypeError):
        getattr(bindings(), function)(*arguments)


@emulated
@pytest.mark.parametrize(
    ("function", "number"),
    [
        ("plus_one", 2**63),
        ("narrow", 2**31),
        ("narrow", -(2**31) - 1),
        ("unsigned_narrow", -1),
        ("unsigned_narrow", 2**32),
    ],
)
def test_a_number_that_does_not_fit_is_refused_and_not_cut_off(function, number):
    # pybind11, which binds the function on a GPU, raises TypeError.
    with pytest.raises((TypeError, OverflowError)):
        getattr(bindings(), function)(number)


@emulated
def test_arguments_can_be_named_by_position_only():
    # As pybind11 does for a function bound without argument names.
    with pytest.raises(TypeError):
        bindings().plus_one(n=1)


@emulated
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("check", "RuntimeError"), ("value", "ValueError"), ("index", "IndexError"),
        ("not implemented", "NotImplementedError"), ("standard", "RuntimeError"), ("torch", "RuntimeError"),
    ],
)  # fmt: skip
def test_an_exception_of_cpp_becomes_python_s(how, kind):
    with pytest.raises(getattr(builtins, kind)):
        bindings().fails(cuda(1, 2), how)


@emulated
def test_the_words_of_a_check_are_kept():
    with pytest.raises(RuntimeError, match="x has 1 dimensions"):
        bindings().fails(cuda(1, 2), "check")


# --------------------------------------------------------------------------------------------- builds


@emulated
@pytest.mark.slow
def test_a_source_may_bind_itself_with_pybind11():
    ops = extension("binds_itself", cpp_sources="", functions=None)
    assert ops.__doc__ == "its own"
    assert ops.doubled(x=cuda(1, 2), times=2).tolist() == [4.0, 8.0]
    counter = ops.Counter()
    assert [counter.next(), counter.next()] == [1, 2]


@emulated
@pytest.mark.slow
def test_a_source_that_uses_the_cpp_front_end_is_built_with_the_full_headers():
    assert extension("front_end").relu_plus_one(cuda(-1, 2)).tolist() == [1.0, 3.0]


@emulated
@pytest.mark.parametrize(
    ("construct", "named"),
    [
        ("cudnnHandle_t handle;", "cudnnHandle_t of the header cudnn.h"),
        ("__block_size__((64, 1, 1), (2, 1, 1)) __global__ void k() {}", "__block_size__"),
    ],
)
@pytest.mark.slow
def test_what_only_a_gpu_can_run_is_refused_with_its_line_if_it_is_in_no_function(construct, named):
    source = f"// asm is only mentioned here\n#include <cudnn.h>\n\n{construct}\n"
    file = Path("kernel.py")
    with pytest.raises(UnsupportedConstruct) as caught:
        build_text(file, f'SOURCE = """\n{source}"""\n', cuda_sources=f"\n{source}")
    assert str(caught.value).startswith("kernel.py:5: ")
    assert named in str(caught.value)


REMOVED = """
#include <torch/extension.h>
#if 0
#include <cudnn_frontend.h>
#endif
#define FENCE() asm volatile("tcgen05.wait::ld.sync.aligned;")  // not used
__global__ void k(int* out) {
#ifdef FAST
    asm("tcgen05.wait::st.sync.aligned;");
#else
    *out = 7;
#endif
}
torch::Tensor launch() {
    auto out = torch::zeros({1}, torch::dtype(torch::kInt).device(torch::kCUDA));
    k<<<1, 1>>>(out.data_ptr<int>());
    return out;
}
"""


@emulated
@pytest.mark.slow
def test_what_the_preprocessor_removes_does_not_have_to_run():
    assert build_text(Path("kernel.py"), REMOVED, "torch::Tensor launch();", cuda_sources=REMOVED).launch().item() == 7


FORGETS_A_HEADER = """
#include <torch/extension.h>
__global__ void k() {}
void launch() {
    k<<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>();
}
"""


@emulated
@pytest.mark.slow
def test_a_forgotten_header_stays_missing_and_the_message_names_the_author_s_line():
    # On a GPU, too, torch/extension.h does not include ATen/cuda/CUDAContext.h.
    text = f'"""A kernel."""\n\nSOURCE = """{FORGETS_A_HEADER}"""\n'
    with pytest.raises(BuildFailed) as caught:
        build_text(Path("kernel.py"), text, cuda_sources=FORGETS_A_HEADER)
    line = text[: text.index("getCurrentCUDAStream")].count("\n") + 1
    assert str(caught.value).startswith(f"kernel.py:{line}: error: ")
    assert "getCurrentCUDAStream" in str(caught.value) or "at::cuda" in str(caught.value)


def build_text(file: Path, text: str, declaration: str = "void launch();", **keywords: str) -> ModuleType:
    file.write_text(text)
    function = declaration.partition("(")[0].split()[-1]
    return load_inline(file, **{"name": "built", "cpp_sources": declaration, "functions": [function], **keywords})


SUMS = """
#include <torch/extension.h>
template <class T> __global__ void sum_kernel(const T* x, T* out) {
    __shared__ T tile[COUNT];
    for (int i = threadIdx.x; i < COUNT; i += 32) tile[i] = x[i];
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < COUNT; ++i) sum += tile[i];
    *out = sum;
}
torch::Tensor sum(torch::Tensor x) {
    auto out = torch::zeros({}, x.options());
    sum_kernel<<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>());
    return out;
}
"""


@emulated
@pytest.mark.slow
def test_two_extensions_of_a_candidate_keep_their_kernels_of_one_name_apart():
    file = Path("kernel.py")
    for count in (32, 4096):
        text = SUMS.replace("COUNT", str(count))
        ops = build_text(file, text, "torch::Tensor sum(torch::Tensor x);", name=f"sums_{count}", cuda_sources=text)
        assert ops.sum(torch.ones(count, device="cuda")).item() == count


# ------------------------------------------------------------------------- shipped kernels, torch.compile


EMULATED = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("kernels/matmul_tt*/*.py"))


# The Python of a kernel that torch.compile traces is the same in all kernels of a problem.
ONE_OF_EACH_PROBLEM = ("kernels/matmul_tt/naive.py", "kernels/matmul_tt_relu/tiled_relu.py")
SIZES = dict(M=33, K=65, N=17)


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    """One worker for all kernels, because torch.compile's imports take longer than its work here."""
    Emulated().prepare()
    with ForkServer() as fork_server:
        fork_server.prepare("cpu")
        client = WorkerClient(fork_server, "cpu", Limits())
        yield client
        client.close()


def answers(worker: WorkerClient, kernel: str, *compiled: str, text: str = "") -> list[torch.Tensor]:
    """The output of a shipped kernel as it is and with each mode of torch.compile, and last the reference's.

    `text` is what is loaded instead of the kernel's file.
    """
    file = ROOT / kernel
    name = file.parent.name
    problem = problems.load(name, ROOT / "problems" / f"{name}.py").at(SIZES)
    packed = pack(problem.inputs(1, "normal"))
    worker.load(str(file), text or file.read_text(), "ModelNew")
    found = []
    for mode in ("", *compiled):
        worker.make(problem, **({"compiled": mode} if mode else {}))
        found.append(worker.call(packed).outputs[0])
    product = packed.tensors[0].T @ packed.tensors[1].T
    return [*found, product.relu() if name == "matmul_tt_relu" else product]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", EMULATED)
def test_a_shipped_kernel_gives_the_references_answer(worker, kernel):
    answer, expected = answers(worker, kernel, text=shipped_kernels.candidate(ROOT / kernel).source)
    torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ONE_OF_EACH_PROBLEM)
def test_a_shipped_kernel_answers_alike_when_compiled(worker, kernel):
    plain, compiled, _ = answers(worker, kernel, "default")
    assert torch.equal(plain, compiled)
