"""The verb `profile`: kernels with one planted cause each, and the threads that take part."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import ROOT

from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.diagnostics import profile
from kernel_harness.diagnostics.profile.accesses import Recorded, Work, work_of
from kernel_harness.diagnostics.profile.causes import largest
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.workers.fork_server import ForkServer

pytestmark = [
    pytest.mark.skipif(not shutil.which("addr2line"), reason="needs binutils beside g++"),
    pytest.mark.slow,
]
PROBLEM = ROOT / "tests" / "support" / "candidates" / "new" / "softmax.py"
# Each kernel is slow for one reason, at the line with the comment `here`. `plain` is not slow.
PLANTED = """
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''
constexpr int BLOCKS = 512, THREADS = 256;

__global__ void plain(const float* x, float* y) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    float sum = x[i];
    for (int n = 0; n < 64; ++n) sum = sum * 1.5f + 2.0f;
    y[i] = sum;
}

__global__ void strided(const float* x, float* y) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    y[i] = x[i * 16 % (BLOCKS * THREADS)];  // here
}

__global__ void conflicting(const float* x, float* y) {
    __shared__ float tile[32][32];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    for (int n = 0; n < 4; ++n) tile[threadIdx.x % 32][threadIdx.x / 32 + 8 * n] = x[i];  // here
    __syncthreads();
    y[i] = tile[threadIdx.x / 32][threadIdx.x % 32];
}

__global__ void divergent(const float* x, float* y) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    float sum = x[i];
    if (threadIdx.x % 32 == 0)
        for (int n = 0; n < 500; ++n) sum = sum * 1.5f + 2.0f;  // here
    y[i] = sum;
}

__global__ void narrow(const float* x, float* y) {
    __shared__ float row[THREADS];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    row[threadIdx.x] = x[i];
    __syncthreads();
    float sum = 0;
    for (int n = 0; n < 128; ++n) sum += row[(threadIdx.x + 2 * n) % THREADS] * 1.5f;  // here
    y[i] = sum;
}

__global__ void tiny(const float* x, float* y) {
    const int i = blockIdx.x * 4 + threadIdx.x;
    y[i] = x[i];
}

__global__ void counting(const float* x, float* y) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    atomicAdd(y, x[i]);  // here
}

torch::Tensor run(torch::Tensor input) {
    auto from = torch::zeros({BLOCKS * THREADS}, input.options()), to = torch::zeros_like(from);
    const float* x = from.data_ptr<float>();
    float* y = to.data_ptr<float>();
    plain<<<BLOCKS, THREADS>>>(x, y);
    strided<<<BLOCKS, THREADS>>>(x, y);
    conflicting<<<BLOCKS, THREADS>>>(x, y);
    divergent<<<BLOCKS, THREADS>>>(x, y);
    narrow<<<BLOCKS, THREADS>>>(x, y);
    tiny<<<BLOCKS * THREADS / 4, 4>>>(x, y);  // small blocks
    counting<<<BLOCKS, THREADS>>>(x, y);
    return to;
}
'''
ops = load_inline("planted", "torch::Tensor run(torch::Tensor x);", CUDA, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ops.run(x)
"""


@pytest.fixture(scope="module")
def planted() -> Iterator[dict[str, Recorded]]:
    """The recorded launches of PLANTED by kernel."""
    candidate = Candidate("planted", Path("planted.py"), PLANTED)
    problem = lookup.problem(str(PROBLEM), ROOT)
    with ForkServer() as fork_server:
        found = profile.counted(problem, candidate, fork_server, lambda text: None)[2]
    yield {each.launch.kernel: each for each in found}


def line_of(kernel: str, mark: str) -> int:
    start = PLANTED.split("\n").index(next(line for line in PLANTED.split("\n") if f"void {kernel}(" in line))
    return next(i for i, line in enumerate(PLANTED.split("\n"), 1) if i > start and mark in line)


@pytest.mark.parametrize(
    ("kernel", "mark", "said"),
    [
        ("strided", "// here", "let neighbouring threads read neighbouring addresses"),
        ("conflicting", "// here", "32-way bank conflicts"),
        ("narrow", "// here", "a thread loads 4 bytes at a time; let each thread use neighbouring elements"),
        ("divergent", "// here", "only 1 of the 32 threads of a warp take part"),
        ("tiny", "// small blocks", "each block has 4 threads"),
        ("counting", "// here", "32 threads of each warp update the same address"),
    ],
)
def test_the_first_sentence_names_the_planted_cause(
    planted: dict[str, Recorded], kernel: str, mark: str, said: str
) -> None:
    first = largest([planted[kernel]])[0]
    assert first.line == line_of(kernel, mark), first.sentence
    assert said in first.sentence
    assert 0.4 < first.share <= 1


def test_a_kernel_without_a_planted_cause_gets_none(planted: dict[str, Recorded]) -> None:
    assert largest([planted["plain"]]) == []


def test_a_narrow_load_is_a_cause_only_where_shared_memory_takes_long(planted: dict[str, Recorded]) -> None:
    """With as many sectors of global memory as make two clocks of each wavefront, L2 takes longer."""
    narrow = planted["narrow"]
    sectors = 4 * sum(each.traffic.wavefronts for each in narrow.accesses)
    (load,) = [each for each in narrow.accesses if each.text.startswith("x[")]
    more = replace(load, traffic=replace(load.traffic, sectors=sectors, least_sectors=sectors))
    others = tuple(each for each in narrow.accesses if each is not load)
    assert largest([replace(narrow, accesses=(more, *others))]) == []


def test_causes_are_ranked_over_all_launches_of_a_call(planted: dict[str, Recorded]) -> None:
    conflicting, counting = planted["conflicting"], planted["counting"]
    assert [each.kernel for each in largest([conflicting, counting])] == ["counting", "conflicting"]
    often = replace(conflicting, launches=10_000)
    assert [each.kernel for each in largest([often, counting])] == ["conflicting"]


def test_threads_that_skip_a_branch_are_counted(planted: dict[str, Recorded]) -> None:
    """64 of 512 blocks are recorded, with 8 warps each. g++ makes one or two basic blocks of each of the 500 steps."""
    here = line_of("divergent", "// here")
    (line,) = [each for each in planted["divergent"].work if each.line == here]
    assert 64 * 8 * 500 <= line.steps <= 2 * 64 * 8 * 502
    assert line.efficiency == pytest.approx(1 / 32, rel=0.01)
    (loop,) = [each for each in planted["plain"].work if each.line == line_of("plain", "for (int n")]
    assert loop.efficiency == 1


@pytest.mark.parametrize("forged", [{"warps": -1}, {"warps": 0}, {"threads": "x"}, {"frames": [1]}], ids=str)
def test_a_forged_basic_block_is_malformed(forged: dict[str, object]) -> None:
    whole = {"warps": 1, "threads": 32, "frames": [["k.cu", 1, "k"]]}
    file = CandidateFile("k.cu", "first")
    assert work_of([whole, whole, {**whole, "frames": [["other.h", 1, "f"]]}], file) == (Work(1, "first", 2, 64),)
    with pytest.raises((ValueError, TypeError, KeyError)):
        work_of([{**whole, **forged}], file)
