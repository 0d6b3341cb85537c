"""A kernel with a wrong index or a wrong loop: the command names the mistake and says where to look."""

from __future__ import annotations

import re

import pytest
from support.command import Finished, Harness
from support.nvcc_compile import in_one_unit

pytestmark = pytest.mark.slow
# C = A' B' of A (K, M) and B (N, K), in tiles of 16.
RIGHT = """
#include <torch/extension.h>
constexpr int TILE = 16;

__global__ void product(const float* A, const float* B, float* C, int M, int K, int N) {
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    const int m = blockIdx.y * TILE + threadIdx.y, n = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        const int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        a[threadIdx.y][threadIdx.x] = ka < K && m < M ? A[ka * M + m] : 0.0f;
        b[threadIdx.y][threadIdx.x] = kb < K && n < N ? B[n * K + kb] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
        __syncthreads();
    }
    if (m < M && n < N) C[m * N + n] = sum;
}

torch::Tensor forward(torch::Tensor A, torch::Tensor B) {
    const int K = A.size(0), M = A.size(1), N = B.size(0);
    auto C = torch::empty({M, N}, A.options());
    product<<<dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE), dim3(TILE, TILE)>>>(
        A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, K, N);
    return C;
}
"""
LOOP = "int k0 = 0; k0 < K; k0 += TILE"
MISTAKES = {
    "index_of_a": ("A[ka * M + m]", "A[m * K + ka]"),
    "index_of_b": ("B[n * K + kb]", "B[kb * N + n]"),
    "step": (LOOP, "int k0 = 0; k0 < K; k0 += 2 * TILE"),
    "tail": (LOOP, "int k0 = 0; k0 < K / TILE * TILE; k0 += TILE"),
    "start": (LOOP, "int k0 = 1; k0 < K; k0 += TILE"),
    "twice": (LOOP, "int k0 = 0, last = (K - 1) / TILE, t = 0; t <= last + 1; ++t, k0 = min(t, last) * TILE"),
}
READ = "The output is the reference's answer for {} read with its last two indices swapped."
SUM = "The sum over dimension 0 of input 1 (A) and dimension 1 of input 2 (B) {} of 250."
ADDRESS = "try: check the address of the load: element [i, j] of {}"
STEPS = "try: check the start, the step and the end of the loop over this sum"
SAID = {
    "index_of_a": (READ.format("input 1 (A)"), ADDRESS.format("input 1 (A) is at i * 40 + j, not at j * 250 + i")),
    "index_of_b": (READ.format("input 2 (B)"), ADDRESS.format("input 2 (B) is at i * 250 + j, not at j * 72 + i")),
    "step": (SUM.format("leaves out 122 indices (16 to 31, 48 to 63, 80 to 95 and so on)"), STEPS),
    "tail": (SUM.format("leaves out indices 240 to 249"), STEPS),
    "start": (SUM.format("leaves out index 0"), STEPS),
    "twice": ("counts indices 240 to 249 of 250 twice.", STEPS),
}


# All kernels are built together, because most of a build's time does not depend on the source's length.
TOGETHER = """
import torch
from torch.utils.cpp_extension import load_inline

ops = load_inline("products", {cpp!r}, {cuda!r}, functions={names!r})


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return ops.{name}(A, B)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run with all kernels, at sizes that are no multiples of the tile."""
    folder = tmp_path_factory.mktemp("kernels")
    sources = {"right": RIGHT} | {name: RIGHT.replace(*mistake) for name, mistake in MISTAKES.items()}
    cuda = in_one_unit({name: source.replace("forward(", f"{name}(") for name, source in sources.items()})
    cuda += "".join(f"\nusing of_{name}::{name};" for name in sources)
    cpp = "".join(
        f"namespace of_{name} {{ torch::Tensor {name}(torch::Tensor A, torch::Tensor B); }}\n" for name in sources
    )
    cpp += "".join(f"using of_{name}::{name};\n" for name in sources)
    for name in sources:
        (folder / f"{name}.py").write_text(TOGETHER.format(cpp=cpp, cuda=cuda, names=[*sources], name=name))
    kernels = [word for path in sorted(folder.iterdir()) for word in ("--kernel", path)]
    harness = Harness(tmp_path_factory.mktemp("run"))
    words = ("--problem", "matmul_tt", "--shape", "M=40,K=250,N=72", "--device", "cpu", "--rounds", "1")
    return harness.run(*words, *kernels, environment={"COLUMNS": "500"})


def paragraph(finished: Finished, name: str) -> str:
    """What the command says of one kernel that failed."""
    found = re.search(rf"^{name}: WRONG_VALUES.*?reproduce:", finished.stdout, re.MULTILINE | re.DOTALL)
    assert found, finished.stdout + finished.stderr
    return found[0]


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_named(name: str, finished: Finished) -> None:
    assert RIGHT.count(MISTAKES[name][0]) == 1
    mistake, advice = SAID[name]
    said = paragraph(finished, name)
    assert mistake in said and advice in said


def test_the_right_kernel_passes(finished: Finished) -> None:
    assert re.search(r"^right +PASSED", finished.stdout, re.MULTILINE) and "right: WRONG" not in finished.stdout


@pytest.fixture(scope="module")
def at_small_shapes(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """One run at the usual size with kernels that are right there. The next case has one element, K=1."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "tail.cu").write_text(RIGHT.replace(*MISTAKES["tail"]))
    (folder / "raises_later.py").write_text(RAISES_LATER)
    harness = Harness(tmp_path_factory.mktemp("run"))
    # With another seed, a shape drawn in the run may fail first.
    words = ("--problem", "matmul_tt", "--device", "cpu", "--rounds", "1", "--seed", "1")
    return harness.run(*words, "--kernel", folder / "tail.cu", "--kernel", folder / "raises_later.py")


RAISES_LATER = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        if 1 < A.shape[0] < 256:
            raise RuntimeError("a later case")
        return A.T @ B.T * (A.shape[0] > 1)
"""


def test_a_case_of_one_element_is_explained_by_a_later_case(at_small_shapes: Finished) -> None:
    said = paragraph(at_small_shapes, "tail")
    assert "M=1,K=1,N=1:integers: The output: 1 of 1 elements wrong" in said
    sums = "the sum over dimension 0 of input 1 (A) and dimension 1 of input 2 (B)"
    assert f"At M=31,K=33,N=127:integers, {sums} leaves out index 32 of 33." in said and STEPS in said


def test_a_fault_in_a_later_case_does_not_change_the_verdict(at_small_shapes: Finished) -> None:
    said = paragraph(at_small_shapes, "raises_later")
    assert "M=1,K=1,N=1:integers: The output: 1 of 1 elements wrong" in said and "a later case" not in said
