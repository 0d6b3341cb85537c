"""The whole harness on a real GPU. Everything here is skipped where there is none."""

import json
import math
import re
import subprocess
import sys

import pytest
import torch
from support.command import ROOT
from support.product import PROBLEM_FILE, RIGHT

import kernel_harness
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.core.remark import RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.device.cuda import Cuda
from kernel_harness.diagnostics.sanitizer import compute_sanitizer
from kernel_harness.session.cohorts import COHORT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine"),
]


@pytest.fixture(scope="module", params=["matmul_tt", "matmul_tt_relu"])
def rows(request, tmp_path_factory):
    """Every shipped kernel of a problem, judged at full size by the command."""
    command = ["harness.py", "--problem", request.param, "--device", "cuda", "--json"]
    where = ["--results", str(tmp_path_factory.mktemp("results"))]
    done = subprocess.run([sys.executable, *command, *where], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_shipped_kernel_passes_at_full_size(rows):
    assert {row["kernel"]: row["status"] for row in rows if row["status"] != "PASSED"} == {}


def test_every_shipped_kernel_has_a_time_and_a_speedup(rows):
    assert all(row["timing"]["time"]["estimate"] > 0 and row["timing"]["speedup"] for row in rows)


def test_the_baselines_speedup_over_itself_is_one(rows):
    """It has a row for each cohort, because it is timed with each."""
    speedups = [row["timing"]["speedup"]["estimate"] for row in rows if row["kernel"] == "torch"]
    candidates = sum(row["kind"] == "candidate" for row in rows)
    assert speedups == [1] * math.ceil(candidates / COHORT)


def test_a_kernel_that_leaves_the_work_to_a_library_has_a_remark(rows):
    """At the small size of the cheats, the kernel of `kernel_for_show` takes as long as the product."""
    reasons = {row["kernel"]: row["reason"] for row in rows}
    assert "the candidate's own kernels take" in reasons.get("cublas_transpose", "the candidate's own kernels take")


WRONG = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.empty(A.shape[1], B.shape[0], device=A.device)
"""


def test_memory_that_nobody_wrote_is_wrong():
    result = kernel_harness.evaluate("matmul_tt", WRONG, device="cuda")
    assert result.status is Status.WRONG_VALUES


TF32 = RIGHT.replace("return", "torch.backends.cuda.matmul.allow_tf32 = True; return")


def test_tensor_cores_are_reduced_precision():
    result = kernel_harness.evaluate("matmul_tt", TF32, device="cuda")
    assert result.status is Status.REDUCED_PRECISION, result.reason


# Its kernel goes on for seconds after the call, on a side stream that is not joined. Stopping its process stops
# nothing.
LEAVES_A_KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void go_on(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}

void leave() {
    static cudaStream_t aside = nullptr;
    if (!aside) cudaStreamCreateWithFlags(&aside, cudaStreamNonBlocking);
    go_on<<<1, 1, 0, aside>>>(1LL << 28);
}
"""
ops = load_inline(name="leaves_a_kernel", cpp_sources="void leave();", cuda_sources=CUDA, functions=["leave"])
torch.cuda.synchronize = lambda *_: torch.cuda.current_stream().synchronize()


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        ops.leave()
        return torch.matmul(A.T, B.T)
'''


def test_who_leaves_a_kernel_running_is_found_and_the_others_are_timed_again(tmp_path):
    command = ["harness.py", "--problem", PROBLEM_FILE, "--device", "cuda", "--json", "--rounds", "32"]
    for name, source in (("leaves", LEAVES_A_KERNEL), ("first", RIGHT), ("last", RIGHT)):
        (tmp_path / f"{name}.py").write_text(source)
        command += ["--kernel", tmp_path / f"{name}.py"]
    done = subprocess.run(
        [sys.executable, *command, "--results", tmp_path / "results"], cwd=ROOT, capture_output=True, text=True
    )
    found = {record["kernel"]: record for record in map(json.loads, done.stdout.splitlines())}

    assert found["leaves"]["status"] == "CHEATED", (found["leaves"]["reason"], done.stderr)
    assert "leaves work behind" in found["leaves"]["reason"]
    assert all(found[name]["timing"] for name in ("first", "last", "torch"))


READS_IN_TURNS = """
import importlib.util, json, statistics, sys
import torch
from kernel_harness.device import Sleep, cuda, l2_cache
from kernel_harness.ipc.tensors import layout
from kernel_harness.ipc.input_memory import write

def ops():
    spec = importlib.util.spec_from_file_location("cheat", sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ops

device = cuda.Cuda("cuda")
device.open()
x = torch.rand(1_000_000)  # 4 MB: less than what the cache can keep
leaves, size = layout([x])
memory = torch.zeros(size, dtype=torch.uint8)
write(memory, leaves, [x])
keep = ops().keep

def median_ms(kept):
    times, where = [], None
    for _ in range(40):
        (placed,) = device.place(memory, leaves).tensors
        if kept and where != placed.data_ptr():
            where = placed.data_ptr()
            keep(placed)
        times.append(device.timed(placed.sum, hold=Sleep(), cold=True)[1].device_ms)
    return statistics.median(times)

found = {"plain": median_ms(False), "kept": median_ms(True)}
l2_cache.L2Cache.release_persisting = lambda cache: None
found["kept and not given back"] = median_ms(True)
print(json.dumps(found))
"""


def test_a_cache_that_was_asked_to_keep_the_inputs_is_cold_all_the_same():
    """And is not where what is kept is not given back."""
    cheat = ROOT / "tests" / "adversarial" / "cheats" / "keeps_its_inputs_in_l2.py"
    done = subprocess.run(
        [sys.executable, "-c", READS_IN_TURNS, cheat], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ms = json.loads(done.stdout.splitlines()[-1])

    assert ms["kept"] > 0.97 * ms["plain"], ms
    assert ms["kept and not given back"] < 0.95 * ms["plain"], ms


def test_the_first_cold_call_counts_no_memory_but_its_own():
    """The buffer that empties the cache, twice as large as the cache, is allocated in that call."""
    device = Cuda("cuda")
    device.open()
    _, clocked = device.timed(lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cuda"), hold=None, cold=True)

    assert 1 << 20 <= clocked.peak_bytes < 1 << 21


SPIN = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        torch.cuda._sleep(600_000_000)  # 0.3 s at the clock of an H200
        return x + 1


def get_inputs():
    return [torch.rand(1 << 20)]


def get_init_inputs():
    return []
"""


def test_a_long_call_has_its_energy(tmp_path):
    """A GPU that waits uses more than 20 W, and none uses more than 1500."""
    pytest.importorskip("pynvml", reason="pynvml, which reads NVML, is not installed")
    path = tmp_path / "spin.py"
    path.write_text(SPIN)
    result = kernel_harness.evaluate(path, SPIN + "\n\nModelNew = Model\n", device="cuda", budget_s=1, quick=True)

    assert result.status is Status.PASSED, result.reason
    seconds = result.timing.time_ms / 1e3
    assert 20 * seconds < result.measurement.energy_j < 1500 * seconds


PEEKS = """
// y = x + 1, and a read of the number after the last one that changes nothing
#include <torch/extension.h>

__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float next = *(const volatile float*)(x + i + 1);
    y[i] = x[i] + (next != next && next == next ? 2.0f : 1.0f);
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    add<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""


def test_a_kernel_that_passed_is_sanitized_if_that_is_asked_for(tmp_path):
    try:
        compute_sanitizer.executable()
    except EnvironmentLacking as error:
        pytest.skip(str(error))
    path = tmp_path / "plus.py"
    path.write_text(re.sub(r".*_sleep.*\n", "", SPIN).replace("1 << 20", "1_000_003"))
    result = kernel_harness.evaluate(path, PEEKS, device="cuda", budget_s=1, quick=True, sanitize=True)

    assert result.status is Status.PASSED, result.reason
    assert [remark.line for remark in result.remarks if remark.kind is RemarkKind.SANITIZER] == [8]
