"""The verb `profile`: kernels with one planted cause each, instructions counted by hand, and estimates of the time."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import ROOT, Harness

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.emulator.basic_blocks import kinds
from kernel_harness.core.errors import UserError
from kernel_harness.diagnostics import profile
from kernel_harness.diagnostics.profile import limits, targets, work
from kernel_harness.diagnostics.profile.accesses import Recorded
from kernel_harness.diagnostics.profile.causes import largest
from kernel_harness.diagnostics.profile.estimate import Estimate, estimated
from kernel_harness.diagnostics.profile.resources import Resources, occupancy
from kernel_harness.diagnostics.profile.targets import TARGETS
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.sandbox.fork_server import ForkServer

pytestmark = [
    pytest.mark.skipif(not shutil.which("addr2line"), reason="needs binutils beside g++"),
    pytest.mark.slow,
]
PROBLEM = ROOT / "tests" / "support" / "candidates" / "new" / "softmax.py"
H200 = TARGETS["h200"]
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

__global__ void together(const float* x, float* y) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    y[i] = x[threadIdx.x % 32];
}

__global__ void swapping(const float* x, float* y) {
    int* place = reinterpret_cast<int*>(y);
    int old = *place, seen;
    do {
        seen = old;
        old = atomicCAS(place, seen, seen + 1);
    } while (old != seen);
}

__global__ void swapping_once(const float* x, float* y) {
    atomicCAS(reinterpret_cast<int*>(y), 0, 1);
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
    together<<<BLOCKS, THREADS>>>(x, y);
    swapping<<<1, 32>>>(x, y);
    swapping_once<<<1, 32>>>(x, y);
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
    """The recorded launches of PLANTED by kernel, with only a few blocks of each run."""
    candidate = Candidate("planted", Path("planted.py"), PLANTED)
    problem = lookup.problem(str(PROBLEM), ROOT)
    with ForkServer() as fork_server:
        found = profile.counted(problem, candidate, fork_server, lambda text: None, H200)[2]
    yield {each.launch.kernel: each for each in found}


def line_of(kernel: str, mark: str) -> int:
    start = PLANTED.split("\n").index(next(line for line in PLANTED.split("\n") if f"void {kernel}(" in line))
    return next(i for i, line in enumerate(PLANTED.split("\n"), 1) if i > start and mark in line)


def estimate(recorded: Recorded, target: str = "h200") -> Estimate:
    return estimated(recorded, [], TARGETS[target])


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
    first = largest([estimate(planted[kernel])], H200)[0]
    assert first.line == line_of(kernel, mark), first.sentence
    assert said in first.sentence
    assert 0.1 < first.share <= 1


def test_a_kernel_without_a_planted_cause_gets_none(planted: dict[str, Recorded]) -> None:
    assert largest([estimate(planted["plain"])], H200) == []


def test_a_narrow_load_is_a_cause_only_where_loads_take_long(planted: dict[str, Recorded]) -> None:
    narrow = estimate(planted["narrow"])
    assert narrow.limit == "L1 and shared memory"
    assert largest([replace(narrow, parts={"DRAM": 1.0})], H200) == []


def test_the_longest_part_is_named_with_its_time_and_those_that_come_near_it(planted: dict[str, Recorded]) -> None:
    parts = {"issue": 2e-3, "float32": 1.5e-3, "latency": 1e-3, "L2": 0.5e-3, "DRAM": 0.3e-3}
    narrow = estimate(planted["narrow"])
    (said,) = limits.sentences([replace(narrow, parts={**dict.fromkeys(narrow.parts, 0.0), **parts})], H200)
    assert "the issue of instructions takes longest, 2 ms. 49% of the instructions are arithmetic, 50% accesses" in said
    assert "1 FMAs for each 4 bytes that it loads from shared memory. If it computes several outputs" in said
    assert said.endswith("At the upper end, warps wait for one load after the other, 8 ms.")
    assert "Other parts: float32 1.5 ms, latency 1 ms, L2 0.5 ms." in said and "DRAM" not in said
    assert "float32 operations alone take 1.5 ms, so only fewer of them are faster than that, or tensor cores." in said


def test_every_part_has_a_sentence(planted: dict[str, Recorded]) -> None:
    plain = estimate(planted["plain"])
    for part in plain.parts:
        (said,) = limits.sentences([replace(plain, parts={**dict.fromkeys(plain.parts, 0.0), part: 1e-3})], H200)
        assert "takes longest, 1 ms. " in said and "Other parts" not in said
        if part != "latency":
            assert "At the upper end, the parts work in turn: " in said
    assert len(limits.sentences([plain] * 5, H200)) == 3


def test_fused_operations_of_the_recorded_warps_are_counted(planted: dict[str, Recorded]) -> None:
    """3 blocks of 8 warps, and 64 FMA for each thread. All 32 threads take part."""
    plain = planted["plain"]
    (line,) = [each for each in plain.work if each.executed.fma32]
    assert line.line == line_of("plain", "sum * 1.5f")
    assert line.executed.fma32 == 3 * 8 * 64
    assert line.executed.efficiency == 1
    assert line.executed.flops == 2 * 32 * 3 * 8 * 64


def test_threads_that_skip_a_branch_are_counted(planted: dict[str, Recorded]) -> None:
    (line,) = [each for each in planted["divergent"].work if each.executed.fma32]
    assert line.executed.fma32 == line.executed.thread_fma32 == 3 * 8 * 500
    assert line.executed.efficiency == 1 / 32


def test_only_a_sample_of_the_blocks_runs_and_counts_are_scaled(planted: dict[str, Recorded]) -> None:
    plain = planted["plain"]
    assert (plain.blocks, plain.weight) == (3, 512 / 3)
    assert estimate(plain).counts.executed.fma32 == pytest.approx(512 * 8 * 64)
    assert estimate(plain).counts.dram_bytes == (2 * 512 * 256 * 4,) * 2  # x and y, once each


def test_the_model_of_l1_finds_what_a_warp_reads_again(planted: dict[str, Recorded]) -> None:
    """The four loads of a thread are of one address, so three of four find it in L1."""
    (load,) = [each.traffic for each in planted["conflicting"].accesses if each.text.startswith("x[")]
    again = load.requests * 3 // 4  # unless g++ keeps the value in a register
    found = (load.l1_sectors, load.delayed)
    assert found in ((0, load.requests), (load.sectors * 3 // 4, load.requests - again))


def test_warps_that_read_the_same_at_once_all_wait_for_it(planted: dict[str, Recorded]) -> None:
    """The eight warps of a block read the same four sectors: seven find them in L1, but on their way."""
    (load,) = [each.traffic for each in planted["together"].accesses if each.text.startswith("x[")]
    assert load.l1_sectors == load.sectors * 7 // 8
    assert load.delayed == load.requests


def test_each_update_by_a_loop_around_a_compare_and_swap_waits_for_l2(planted: dict[str, Recorded]) -> None:
    swapping = estimate(planted["swapping"])
    assert swapping.counts.swaps == 32
    assert swapping.parts["atomics"] == pytest.approx(32 * targets.L2_CLOCKS / H200.clock_hz)
    assert estimate(planted["swapping_once"]).counts.swaps == 0


def test_more_of_anything_never_makes_the_estimate_shorter(planted: dict[str, Recorded]) -> None:
    for recorded in planted.values():
        once = estimate(recorded).time
        twice = estimate(replace(recorded, launches=2 * recorded.launches)).time
        assert 0 < once.low_s <= once.middle_s <= once.high_s
        assert twice.low_s > once.low_s and twice.high_s > once.high_s


def test_the_bounds_of_a_copy_are_its_bytes_at_the_published_bandwidth(planted: dict[str, Recorded]) -> None:
    strided = estimate(planted["strided"])
    assert strided.parts["DRAM"] == pytest.approx(strided.counts.dram_bytes[0] / 4.8e12)
    assert estimate(planted["strided"], "l4").time.high_s > strided.time.high_s


def test_waves_and_tail_follow_from_the_occupancy(planted: dict[str, Recorded]) -> None:
    """With 128 registers, two blocks of 256 threads fit: 264 at once on 132 multiprocessors."""
    placed = estimated(planted["plain"], [Resources("plain", 128, 0, 0, 0, 0)], H200).placed
    assert (placed.occupancy.blocks, placed.waves) == (2, 512 / 264)
    assert placed.tail == pytest.approx(1 - 512 / 528)


def test_an_ada_gpu_has_room_for_fewer_warps() -> None:
    assert occupancy(32, 0, 256, TARGETS["l4"]).blocks == 6
    assert occupancy(16, 0, 32, TARGETS["rtx4090"]).blocks == 24


def test_published_peaks_give_the_published_boost_clocks() -> None:
    """In GHz: 1.98 for the H200 and the H100, 1.41 for the A100, 2.52 for the RTX 4090 and 2.04 for the L4."""
    clocks = {name: round(target.clock_hz / 1e9, 2) for name, target in TARGETS.items()}
    assert clocks == {"h200": 1.98, "h100": 1.98, "a100": 1.41, "rtx4090": 2.52, "l4": 2.04}


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="b999 is no known target"):
        targets.named("b999")


@pytest.mark.parametrize("forged", [{"warps": -1}, {"kinds": 3}, {"kinds": {"integer": "x"}}, {"frames": [1]}], ids=str)
def test_a_forged_basic_block_is_malformed(forged: dict[str, object]) -> None:
    whole = {
        "warps": 1,
        "threads": 32,
        "kinds": {"fma32": 1, "mul32": 1, "expanded32": 0},
        "frames": [["k.cu", 1, "k"]],
    }
    (line,) = work.parse([whole], CandidateFile("k.cu", "first"))
    assert (line.line, line.text, line.executed.fma32, line.executed.add32) == (1, "first", 1, 1)
    with pytest.raises((ValueError, TypeError, KeyError)):
        work.parse([{**whole, **forged}], CandidateFile("k.cu", "first"))


def test_instructions_of_a_basic_block_are_told_apart(tmp_path: Path) -> None:
    source = tmp_path / "k.cpp"
    source.write_text(
        "#include <cmath>\n"
        "float f(float a, float b) { return a * b + 1.0f; }\n"
        "double g(double a) { return a * a; }\n"
        "float h(float a) { return expf(a) / 3.0f; }\n"
        "double c(int a) { return a; }\n"
        "double d(double a, double b) { return a / b; }\n"
    )
    flags = ["-O1", "-fsanitize-coverage=trace-pc", "-ffp-contract=off", "-fPIC", "-c"]
    subprocess.run(["g++", *flags, source, "-o", tmp_path / "k.o"], check=True)
    subprocess.run(["g++", "-shared", tmp_path / "k.o", "-o", tmp_path / "k.so"], check=True)
    found = [dict(each) for each in kinds(tmp_path / "k.so").values()]
    for wanted in (
        {"fma32": 1},
        {"mul64": 1},
        {"special": 2, "expanded32": 4 + 5},
        {"convert": 1},
        {"special": 1, "expanded32": 1},
    ):
        assert any(wanted.items() <= each.items() for each in found), (wanted, found)


@pytest.mark.parametrize(("fused", "kind"), [(True, "mul32"), (False, "fma32")])
def test_a_product_and_a_sum_are_one_fma_if_the_processor_has_none(tmp_path: Path, fused: bool, kind: str) -> None:
    """g++ would have fused them for a processor with FMA, and the file would have an FMA."""
    source = tmp_path / "k.cpp"
    source.write_text(
        "float f(float a, float b) { return a * b + 1.0f; }\n"
        "float g(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n"
    )
    flags = ["-O1", "-fsanitize-coverage=trace-pc", "-ffp-contract=off", "-fPIC", "-c", *(["-mfma"] if fused else [])]
    subprocess.run(["g++", *flags, source, "-o", tmp_path / "k.o"], check=True)
    subprocess.run(["g++", "-shared", tmp_path / "k.o", "-o", tmp_path / "k.so"], check=True)
    assert any(each[kind] for each in kinds(tmp_path / "k.so").values())


def test_the_command_estimates_and_calls_it_an_estimate(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "planted.py"
    path.write_text(PLANTED)
    finished = harness.run("profile", PROBLEM, path, "--target", "a100")
    assert finished.code == 0, finished.stderr
    ends = r"^Estimated time on a100: [\d.e-]+ to [\d.e-]+ ms, [\d.e-]+ ms in the middle\. This is an estimate"
    assert re.search(ends, finished.stdout, re.M)
    assert re.search(r"^\w+: at published rates, .* takes longest", finished.stdout, re.M)
    assert "% of the estimated time)" in finished.stdout


def test_an_unknown_target_ends_the_command(harness: Harness) -> None:
    finished = harness.run("profile", PROBLEM, PROBLEM, "--target", "b999")
    assert finished.code == 2 and "b999 is no known target" in finished.stderr
