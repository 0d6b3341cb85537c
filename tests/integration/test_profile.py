"""The verb `profile`: counts checked by hand, ptxas figures, and Nsight Compute's report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.command import ROOT, Harness

from cuda_on_cpu.compile import cache
from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.core.terminal import Terminal
from kernel_harness.device.profiled import note_of
from kernel_harness.diagnostics import profile
from kernel_harness.diagnostics.profile import ncu
from kernel_harness.diagnostics.profile.resources import Assembled, Launched, Resources, base_name, occupancy, ptxas
from kernel_harness.diagnostics.profile.show import launches, resources, tables
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.fork_server import ForkServer

PROBLEM = ROOT / "tests" / "support" / "candidates" / "new" / "softmax.py"
# Counted by hand: each of 3 x 32 threads reads and writes one float of device memory and one of shared memory. The CUDA
# source includes no header of torch, with which nvcc takes ten times as long (test_profile_lines.py does that).
KERNEL = """
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <cuda_runtime.h>

__global__ void stir(const float* x, float* y) {
    __shared__ float tile[32];
    tile[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = tile[31 - threadIdx.x];
}

__global__ void sum(const float* x, float* y) {
    float mine = x[threadIdx.x];
    for (int d = 16; d; d /= 2) mine += __shfl_down_sync(~0u, mine, d);
    if (threadIdx.x == 0) atomicAdd(y, mine);
}

void launch(const float* x, float* y) {
    for (int i = 0; i < 2; ++i) stir<<<3, 32>>>(x, y);
    sum<<<1, 32>>>(x, y);
}
'''
CPP = r'''
#include <torch/extension.h>

void launch(const float* x, float* y);

torch::Tensor run(torch::Tensor x) {
    auto y = torch::zeros({96}, x.options());
    launch(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}
'''
ops = load_inline("counted", CPP, CUDA, functions=["run"], no_implicit_headers=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ops.run(x)
"""


def kernel(folder: Path) -> Path:
    path = folder / "stirs.py"
    path.write_text(KERNEL)
    return path


# ------------------------------------------------------------------------------------- the emulated device


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> list[Launched]:
    with ForkServer() as fork_server:
        candidate = Candidate("stirs", Path("stirs.py"), KERNEL)
        return profile.counted(lookup.problem(str(PROBLEM), ROOT), candidate, fork_server, lambda text: None)[0]


@pytest.mark.slow
def test_every_launch_of_the_one_call_is_there(counted: list[Launched]) -> None:
    assert [(one.kernel, one.blocks, one.threads_per_block) for one in counted] == [
        ("stir", 3, 32),
        ("stir", 3, 32),
        ("sum", 1, 32),
    ]


@pytest.mark.parametrize(
    "end",
    [b"", b"\0kernel_harness.assembled\0{", b"\0kernel_harness.assembled\0" + b"[" * 100_000],
    ids=["absent", "cut", "nested"],
)
def test_a_library_without_a_readable_report_of_ptxas_has_none(tmp_path: Path, end: bytes) -> None:
    library = tmp_path / "k.so"
    library.write_bytes(b"\x7fELF\xff" + end)
    assert note_of(library) == {"missing": "the built library has no report of ptxas"}


@pytest.mark.parametrize(
    "forged",
    [
        {"grid": [1, 1]},
        {"block": [0, 1, 1]},
        {"grid": ["x"] * 3},
        {"barriers": -1},
        {"global_read": 10**400},
        {"grid": 1},
    ],
    ids=str,
)
def test_a_forged_launch_is_malformed(forged: dict[str, Any]) -> None:
    honest = {"kernel": "k", "grid": [1, 1, 1], "block": [32, 1, 1]}
    counts = dict.fromkeys(Launched.__dataclass_fields__.keys() - honest.keys(), 0)

    assert Launched.parse({**honest, **counts, "kernel": "k\x1b[2J"}).kernel.isprintable()
    with pytest.raises((ValueError, TypeError)):
        Launched.parse({**honest, **counts, **forged})
    with pytest.raises(Fault, match="malformed"):
        profile._parsed({"launches": [{**honest, **counts, **forged}], "compiled": []}, CandidateFile("k.cu", ""))


@pytest.mark.parametrize("forged", [{}, {"ptxas": "", "specialization": ""}, 7])
def test_a_forged_triton_kernel_is_malformed(forged: Any) -> None:
    with pytest.raises(Fault, match="malformed"):
        profile._parsed({"launches": [], "compiled": [forged]}, CandidateFile("k.py", ""))


@pytest.mark.slow
def test_bytes_are_those_that_loads_and_stores_request(counted: list[Launched]) -> None:
    stir = counted[0]
    each = 3 * 32 * 4
    assert (stir.global_read, stir.global_written, stir.shared_read, stir.shared_written) == (each, each, each, each)


@pytest.mark.slow
def test_a_barrier_counts_once_for_each_block(counted: list[Launched]) -> None:
    assert [one.barriers for one in counted] == [3, 3, 0]


@pytest.mark.slow
def test_a_warp_operation_counts_once_for_each_warp(counted: list[Launched]) -> None:
    assert [one.warp_operations for one in counted] == [0, 0, 5]


@pytest.mark.slow
def test_a_kernel_without_shared_memory_touches_none(counted: list[Launched]) -> None:
    assert (counted[2].shared_read, counted[2].shared_written) == (0, 0)


@pytest.mark.slow
def test_an_atomic_reads_and_writes(counted: list[Launched]) -> None:
    assert (counted[2].global_read, counted[2].global_written) == (32 * 4 + 4, 4)


@pytest.mark.slow
def test_a_run_afterwards_is_not_slowed_by_counting(counted: list[Launched], harness: Harness, tmp_path: Path) -> None:
    """The cache has one entry for each of the two builds, and a run takes the one that does not count."""
    before = time.time()
    finished = harness.run("--problem", PROBLEM, "--kernel", kernel(tmp_path), "--device", "cpu", "--json")
    assert finished.results["stirs"]["status"] == "WRONG_SHAPE", finished.results["stirs"]["reason"]
    taken = [library for e in cache.entries() if e.used_at >= before for library in e.folder.glob("counted.so")]
    assert any(b"__tsan_" not in library.read_bytes() for library in taken)


@pytest.mark.slow
def test_the_command_prints_counts_and_what_nvcc_says(harness: Harness, tmp_path: Path) -> None:
    finished = harness.run("profile", PROBLEM, kernel(tmp_path), "--device", "cpu")

    assert finished.code == 0, finished.stderr
    assert re.search(r"^stir +2 +3 +32 +192 +6 +0 +768 B", finished.stdout, re.MULTILINE)
    if shutil.which("nvcc"):
        assert re.search(r"^stir +\d+ +128 B +0 B +0 B +32 +32 +50% +blocks", finished.stdout, re.MULTILINE)
    else:
        assert "there is no nvcc" in finished.stdout


@pytest.mark.slow
def test_a_kernel_that_does_not_build_is_reported_as_by_run(harness: Harness, tmp_path: Path) -> None:
    path = kernel(tmp_path)
    path.write_text(KERNEL.replace("mine += ", "mine += nowhere + "))
    finished = harness.run("profile", PROBLEM, path, "--device", "cpu")

    assert finished.code == 1
    assert "'nowhere' was not declared" in finished.stderr
    assert "Only a kernel that runs can be profiled" in finished.stderr


# --------------------------------------------------------------------------------------- the assembler

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4tileILi16EEvPKfPf' for 'sm_90'
ptxas info    : Function properties for _Z4tileILi16EEvPKfPf
    24 bytes stack frame, 16 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 5.3 ms
ptxas info    : Compiling entry function '_Z4copyPKfPf' for 'sm_90'
ptxas info    : Function properties for _Z4copyPKfPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_the_output_of_ptxas_is_parsed() -> None:
    tile, copy = ptxas(PTXAS)
    assert tile == Resources("void tile<16>(float const*, float*)", 255, 4096, 24, 16, 32)
    assert (copy.registers, copy.shared_bytes, copy.spill_store_bytes) == (10, 0, 0)


def test_a_forged_number_of_any_length_raises_nothing() -> None:
    digits = "9" * 5000
    assert ptxas(PTXAS.replace("255", digits))[0].kernel == "copy(float const*, float*)"
    tile, _ = ptxas(PTXAS.replace("24 bytes stack", f"{digits} bytes stack").replace("4096", digits))
    assert (tile.registers, tile.stack_bytes, tile.shared_bytes) == (255, 0, 0)


def test_a_call_without_a_kernel_of_its_own_says_so() -> None:
    """For example a call of cuBLAS only. On a GPU, where launches are not counted, nothing is said of them."""
    assert tables([], [Assembled(())], Terminal()) == [
        "The call launched no kernel of its own. A library that did the work is not profiled."
    ]
    assert tables(None, [Assembled(())], Terminal()) == []


def test_spills_come_with_advice() -> None:
    said = "\n".join(tables(None, [Assembled(tuple(ptxas(PTXAS)))], Terminal()))
    assert "tile: registers spill to memory" in said and "copy: " not in said


def test_a_call_arrives_as_it_was_sent() -> None:
    call = ncu.Call(PROBLEM, Path("/k.cu"), "cuda:0", {"M": 3})
    assert ncu.Call.parse(call.to_json()) == call


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("tile", "tile"),
        ("tile<float, 16>", "tile"),
        ("void tile<16>(float const*)", "tile"),
        ("void (anonymous namespace)::tile(int)", "tile"),
        ("detail::tile", "tile"),
        ("void a::tile<b::c<1> >(int)", "tile"),
    ],
)
def test_a_kernel_is_the_same_by_any_of_its_names(name: str, base: str) -> None:
    assert base_name(name) == base


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "blocks", "limit"),
    [
        (32, 0, 256, 8, "warps"),
        (64, 0, 256, 4, "registers"),
        (33, 0, 1024, 1, "registers"),  # rounded up to 40 registers: 48 warps
        (128, 0, 1024, 0, "registers"),
        (16, 48 << 10, 128, 4, "shared memory"),  # and 1 KiB that the system takes of each block
        (16, 227 << 10, 128, 1, "shared memory"),
        (16, 0, 32, 32, "blocks"),
    ],
)
def test_occupancy_as_the_toolkit_s_calculator_has_it(
    registers: int, shared: int, threads: int, blocks: int, limit: str
) -> None:
    found = occupancy(registers, shared, threads)
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.share == blocks * -(-threads // 32) / 64


def test_equal_launches_in_a_row_are_one_line() -> None:
    one = Launched("k", (2, 1, 1), (8, 8, 1), 0, 1, 0, 1500, 10, 0, 0)
    other = Launched("k", (4, 1, 1), (8, 8, 1), 0, 1, 0, 1500, 10, 0, 0)
    lines = launches([one, one, other]).split("\n")[2:]
    assert [line.split()[1:4] for line in lines] == [["2", "2", "8"], ["1", "4", "8"]]
    assert "3 kB" in lines[0]


def test_without_launches_usual_sizes_are_shown() -> None:
    assert len(resources(ptxas(PTXAS)[1:], []).split("\n")) == 2 + 4


# ------------------------------------------------------------------------------------- Nsight Compute

FAKE_NCU = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
if "--import" in arguments:
    print("  stir (3, 1, 1)x(32, 1, 1)\\n    Duration us 2.3")
    sys.exit()
report = arguments[arguments.index("-o") + 1]
assert arguments[arguments.index("--profile-from-start") + 1] == "off"
assert arguments[arguments.index("--clock-control") + 1] == "none"
{body}
"""
PROFILES = """
done = subprocess.run(arguments[arguments.index(report) + 1:])
if done.returncode == 0:
    open(report, "w").write("report")
sys.exit(done.returncode)
"""
REFUSES = """
print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
sys.exit(1)
"""


def fake_ncu(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a fake `ncu` first on the PATH."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "ncu").write_text(FAKE_NCU.format(python=sys.executable, body=body))
    (tools / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")


def call_of(path: Path, problem: Path = PROBLEM) -> ncu.Call:
    """On the emulated device, which every machine has."""
    return ncu.Call(problem, path, "cpu", {})


@pytest.mark.slow
def test_the_call_runs_under_ncu_and_its_text_and_report_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ncu(tmp_path, PROFILES, monkeypatch)
    text, assembled = ncu.profiled(call_of(kernel(tmp_path)), tmp_path / "profiles", "stirs", {})

    assert text.startswith("  stir (3, 1, 1)x(32, 1, 1)")
    assert (tmp_path / "profiles" / "stirs.ncu-rep").read_text() == "report"
    assert "Duration us 2.3" in (tmp_path / "profiles" / "stirs.txt").read_text()
    assert len(assembled) == 1
    if shutil.which("nvcc"):
        assert {base_name(k.kernel) for k in assembled[0].kernels} == {"stir", "sum"}


def test_forbidden_counters_come_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(tmp_path, REFUSES, monkeypatch)
    text, _ = ncu.profiled(call_of(kernel(tmp_path)), tmp_path / "profiles", "stirs", {})

    assert text == ncu.FORBIDDEN
    assert "--cap-add=SYS_ADMIN" in text and "NVreg_RestrictProfilingToAdminUsers=0" in text


@pytest.mark.slow
def test_without_ncu_the_compiler_s_figures_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "ncu" else found(name, **more))
    naive = call_of(ROOT / "kernels" / "matmul_tt" / "naive.py", ROOT / "problems" / "matmul_tt.py")
    text, assembled = ncu.profiled(naive, tmp_path / "profiles", "naive", {})

    assert text == ncu.MISSING
    assert len(assembled) == 1


@pytest.mark.slow
def test_a_kernel_that_fails_under_ncu_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ncu(tmp_path, PROFILES, monkeypatch)
    (tmp_path / "stirs.py").write_text("raise RuntimeError('not today')\n")
    text, _ = ncu.profiled(call_of(tmp_path / "stirs.py"), tmp_path / "profiles", "stirs", {})

    assert "wrote no report" in text and "not today" in text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_occupancy_is_what_the_driver_says() -> None:
    """On a GPU of compute capability 9.0, for kernels of several sizes."""
    done = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for registers, shared, threads, blocks in json.loads(done.stdout):
        assert occupancy(registers, shared, threads).blocks == blocks


DRIVER = """
import json, torch
from torch.utils.cpp_extension import load_inline
CUDA = '''
#include <torch/extension.h>
template <int N> __global__ void k(float* x) {
    float a[N];
    for (int i = 0; i < N; ++i) a[i] = x[i * 32 + threadIdx.x];
    for (int j = 0; j < 9; ++j) for (int i = 0; i < N; ++i) a[i] = a[i] * a[(i + 1) % N] + 1;
    for (int i = 0; i < N; ++i) x[i * 32 + threadIdx.x] = a[i];
}
template <int N> void ask(std::vector<std::vector<int64_t>>& out) {
    cudaFuncAttributes f;
    cudaFuncGetAttributes(&f, k<N>);
    cudaFuncSetAttribute(k<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
    for (int threads : {32, 96, 128, 256, 512, 1024})
        for (int shared : {0, 1000, 20000, 100000}) {
            int blocks = -1;
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k<N>, threads, shared);
            out.push_back({f.numRegs, shared, threads, blocks});
        }
}
std::vector<std::vector<int64_t>> ask() {
    std::vector<std::vector<int64_t>> out;
    ask<2>(out); ask<20>(out); ask<40>(out); ask<100>(out);
    return out;
}
'''
ops = load_inline("occupancy", "std::vector<std::vector<int64_t>> ask();", CUDA, functions=["ask"])
print(json.dumps(ops.ask()))
"""
