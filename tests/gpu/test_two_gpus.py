"""A machine with two GPUs: a worker has one of them, which is its device 0. Skipped where there are fewer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.product import PROBLEM, RIGHT

import kernel_harness
from kernel_harness.core.status import Status
from kernel_harness.device.cuda import Cuda

DEVICES = ["cuda:0", "cuda:1"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two NVIDIA GPUs on this machine"),
]

ON_DEVICE_0 = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
__global__ void product(const float* A, const float* B, float* C, int M, int K, int N) {
    int m = blockIdx.y * blockDim.y + threadIdx.y, n = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= M || n >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[k * M + m] * B[n * K + k];
    C[m * N + n] = sum;
}
torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    int M = A.size(1), K = A.size(0), N = B.size(0);
    auto C = torch::empty({M, N}, torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA, 0));
    product<<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(
        A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, K, N);
    return C;
}
"""
CPP = "torch::Tensor forward(torch::Tensor A, torch::Tensor B);"
ops = load_inline("on_device_0", CPP, CUDA, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.forward(A.contiguous(), B.contiguous())
'''


def judged(source: str, device: str) -> kernel_harness.Result:
    return kernel_harness.evaluate(PROBLEM.path, source, device=device, budget_s=0.5)


@pytest.mark.parametrize("device", DEVICES)
def test_a_kernel_that_allocates_on_device_0_passes_on_each_gpu(device: str) -> None:
    result = judged(ON_DEVICE_0, device)
    assert result.status is Status.PASSED and result.timing, result.reason
    assert result.environment["shares"] == "device memory"


def required(*conditions: str) -> str:
    """A right model that raises an exception unless the conditions hold in its process."""
    lines = "\n".join(f"        assert {condition}, {condition.partition(' ==')[0]}" for condition in conditions)
    return f"import ctypes, os, subprocess, sys\n{RIGHT}".replace("        return", f"{lines}\n        return")


@pytest.mark.parametrize("device", DEVICES)
def test_a_candidate_sees_one_gpu_and_it_is_the_first(device: str) -> None:
    result = judged(required("torch.cuda.device_count() == 1", "A.get_device() == 0"), device)
    assert result.status is Status.PASSED, result.reason


CHILD = (
    "import ctypes; n = ctypes.c_int(0); cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); "
    "cuda.cuDeviceGetCount(ctypes.byref(n)); print(n.value)"
)


@pytest.mark.parametrize("value", ["0,1", "1,0", None], ids=["both", "the other first", "unset"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_child_that_changes_the_variable_finds_no_second_gpu(device: str, value: str | None) -> None:
    changed = "" if value is None else f"CUDA_VISIBLE_DEVICES={value!r}"
    child = (
        "int(subprocess.run([sys.executable, '-c', " + repr(CHILD) + "], env={**{k: v for k, v in os.environ.items() "
        f"if k != 'CUDA_VISIBLE_DEVICES'}}, **dict({changed})}}, capture_output=True, text=True).stdout) <= 1"
    )
    result = judged(required(child), device)
    assert result.status is Status.PASSED, result.reason


@pytest.mark.parametrize("device", DEVICES)
def test_the_wall_leaves_out_the_device_file_of_the_other_gpu(device: str) -> None:
    hidden = Cuda(device).hidden_from_workers()
    assert hidden and all(path.name.removeprefix("nvidia").isdigit() for path in hidden)

    result = judged(required(*(f"not os.access({str(path)!r}, os.R_OK | os.W_OK)" for path in hidden)), device)
    assert result.status is Status.PASSED, result.reason


MAKES_INPUTS_ON_CUDA = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + torch.ones(x.shape, device="cuda")


def get_inputs():
    return [torch.rand(1 << 16, device="cuda")]


def get_init_inputs():
    return []
"""


def test_a_problem_that_asks_for_cuda_gets_the_gpu_of_its_run(tmp_path: Path) -> None:
    problem = tmp_path / "plus.py"
    problem.write_text(MAKES_INPUTS_ON_CUDA)
    source = MAKES_INPUTS_ON_CUDA.replace("class Model(", "class ModelNew(")
    result = kernel_harness.evaluate(problem, source, device="cuda:1", budget_s=0.5)

    assert result.status is Status.PASSED and torch.cuda.current_device() == 0, result.reason


def test_evaluators_of_all_gpus_give_one_verdict() -> None:
    with kernel_harness.EvaluatorPool(device="cuda", budget_s=0.5) as pool:
        results = pool.evaluate_many([(PROBLEM.path, ON_DEVICE_0)] * 8)
        assert {result.status for _, result in results} == {Status.PASSED}
