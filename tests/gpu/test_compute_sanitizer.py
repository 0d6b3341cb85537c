"""The verb `sanitize` on a GPU: how compute-sanitizer's log is parsed, and which planted bugs each tool finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from support import planted_bugs
from support.command import ROOT, Finished, finished
from support.planted_bugs import Bug

from cuda_on_cpu.emulator.findings import Finding, Kind, Place
from kernel_harness import device as devices
from kernel_harness.checking.cases import plan
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.diagnostics.sanitizer import compute_sanitizer
from kernel_harness.diagnostics.sanitizer.sanitize import Job, one_per_shape, sanitize_on_gpu
from kernel_harness.problem import candidate, problem
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import WorkerClient

SOURCE = [f"line {number};" for number in range(1, 100)]

# Logs in the format of compute-sanitizer 2025.3.1: printed by its own --read from records with these values.

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x160 in mine.cu:34
=========     by thread (3,0,0) in block (7,1,0)
=========     Access to 0x7f6d2d000fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6d2d000000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x160 in mine.cu:34
=========     by thread (4,0,0) in block (7,1,0)
=========     Access to 0x7f6d2d000fa4 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f6d2d000000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= Invalid __global__ read of size 4 bytes
=========     at void at::native::somebody_elses<float>(T1 *)+0x20 in Native.cu:9
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x0 is out of bounds
=========     and is 140106883137536 bytes before the nearest allocation at 0x7f6d2d000000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: THCPModule_cudaSynchronize(_object*, _object*) [0x21a] in mine.so
=========
========= ERROR SUMMARY: 4 errors
"""  # noqa: E501

MISALIGNED = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at scale(float *, int)+0x90 in mine.cu:12
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7f6d2d000004 is misaligned
=========     and is inside the nearest allocation at 0x7f6d2d000000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= ERROR SUMMARY: 1 error
"""

SHARED = """\
========= COMPUTE-SANITIZER
========= Invalid __shared__ write of size 4 bytes
=========     at scale(float *, int)+0x840 in mine.cu:9
=========     by thread (1,0,0) in block (0,0,0)
=========     Access to 0x844 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= ERROR SUMMARY: 1 error
"""

INLINED = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ atomic of size 4 bytes
=========     at atomicAdd(float *, float)+0x100 in sm_20_atomic_functions.hpp:84
=========     by thread (8,0,0) in block (0,0,0)
=========     Access to 0x7f6d2d000fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6d2d000000 of size 4000 bytes
=========         Device Frame: add_to(float *, float)+0x100 in mine.cu:5
=========         Device Frame: scale(float *, int)+0x100 in mine.cu:41
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= ERROR SUMMARY: 1 error
"""

INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void add<float>(const T1 *, T1 *)+0x70 in mine.cu:12
=========     by thread (65,0,0) in block (0,0,0)
=========     Address 0x7f2a37600104
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at atomicAdd(float *, float)+0x100 in sm_20_atomic_functions.hpp:84
=========     by thread (0,0,0) in block (4,0,0)
=========     Address 0x7f2a37600204
=========         Device Frame: void add<float>(const T1 *, T1 *)+0x100 in mine.cu:15
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= Host API memory access error at host access to 0x7f2a37600000 of size 4000 bytes
=========     Uninitialized access to 0x7f2a37600e00 on access by cudaMemcpy source
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: at::native::copy_kernel_cuda(at::TensorIterator&, bool) [0x7] in mine.so
=========
========= ERROR SUMMARY: 3 errors
"""

RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(int *, int *)+0x90 in mine.cu:21
=========     and Read access at sum(int *, int *)+0x110 in mine.cu:24 [1016 hazards]
=========     and Write access at sum(int *, int *)+0x130 in mine.cu:25 [64 hazards]
=========
========= ERROR SUMMARY: 1 error
"""

SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at sum(int *, int *)+0x90 in mine.cu:67
=========     by thread (64,0,0) in block (2,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: forward(at::Tensor) [0x95a1] in mine.so
=========
========= ERROR SUMMARY: 1 error
"""


def read_log(log: str) -> list[Finding]:
    return compute_sanitizer.read(log, "kernels/scale/mine.cu", SOURCE, "N=9:own")


def test_a_memcheck_report_is_a_finding_with_its_thread_and_address_and_the_same_line_counts_once():
    (found,) = read_log(MEMCHECK)
    assert (found.kind, found.kernel, found.bytes, found.count) == (Kind.OUT_OF_BOUNDS_WRITE, "scale", 4, 2)
    assert found.here == Place("kernels/scale/mine.cu", 34, (3, 0, 0), (7, 1, 0))
    assert "`line 34;`" in found.sentence
    assert "1 bytes after the nearest allocation" in found.sentence


def test_a_misaligned_access_is_reported_as_such():
    (found,) = read_log(MISALIGNED)
    assert (found.kind, found.bytes, found.here.line) == (Kind.MISALIGNED, 16, 12)
    assert "accesses 16 bytes at a misaligned address" in found.sentence


def test_an_access_past_shared_memory_says_so():
    (found,) = read_log(SHARED)
    assert (found.kind, found.here.line) == (Kind.OUT_OF_BOUNDS_WRITE, 9)
    assert "writes 4 bytes at an address outside the block's shared memory" in found.sentence


def test_an_access_inlined_from_a_header_counts_at_the_candidates_line():
    (found,) = read_log(INLINED)
    assert (found.kernel, found.here.line, found.source) == ("scale", 5, "line 5;")


def test_an_initcheck_report_names_a_templated_kernel():
    first, atomic = read_log(INITCHECK)
    assert (first.kind, first.kernel, first.here.line) == (Kind.UNINITIALISED_READ, "void add<float>", 12)
    assert "thread (65, 0, 0)" in first.sentence
    assert (atomic.kind, atomic.kernel, atomic.here.line) == (Kind.UNINITIALISED_READ, "void add<float>", 15)


def test_a_race_is_reported_at_the_line_that_reads():
    (found,) = read_log(RACECHECK)
    assert (found.kind, found.here.line, found.there.line, found.count) == (Kind.RACE, 24, 21, 1016)
    assert (found.here.writes, found.there.writes) == (False, True)
    assert "a thread writes the same memory at line 21" in found.sentence


def test_a_synccheck_report_names_the_diverged_thread():
    (found,) = read_log(SYNCCHECK)
    assert (found.kind, found.here.line) == (Kind.DIVERGENT_BARRIER, 67)
    assert "thread (64, 0, 0) of block (2, 0, 0)" in found.sentence


def test_an_assertion_that_fails_is_a_trap_at_its_line_by_what_the_worker_prints():
    where = "/tmp/x/mine.cu:34: void scale<float>(float *, int): block: [7,1,0], thread: [{},0,0]"
    said = f"{where} Assertion `i < n` failed."
    printed = "\n".join(["hello", said.format(3), said.format(4), said.format(5).replace("mine", "theirs")])
    (found,) = compute_sanitizer.failed_assertions(printed, "kernels/scale/mine.cu", SOURCE)
    assert (found.kind, found.kernel, found.count) == (Kind.TRAP, "scale<float>", 2)
    assert found.here == Place("kernels/scale/mine.cu", 34, (3, 0, 0), (7, 1, 0))
    assert "`line 34;`" in found.sentence and "the assertion `i < n` fails" in found.sentence


def test_a_clean_log_is_no_finding():
    assert read_log("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == []
    assert read_log("") == []


def test_without_compute_sanitizer_the_user_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentLacking, match="--device cpu"):
        compute_sanitizer.executable()


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    """A fork server of workers of the emulated device."""
    devices.named("cpu").prepare()
    with ForkServer() as started:
        started.prepare("cpu")
        yield started


EMULATED = "from kernel_harness import device; device.named('cpu').prepare_worker()"


@pytest.fixture
def stand_in(monkeypatch, tmp_path) -> Callable[[str], None]:
    """A fake compute-sanitizer: it runs its command, then writes a report to its log, as the real one does."""

    def install(first: str = "") -> None:
        """`first`: Python code that the command's process runs before anything else."""
        program = tmp_path / "compute-sanitizer"
        program.write_text(
            f"""#!{sys.executable}
import subprocess, sys
words = sys.argv[1:]
log, tool = (words[words.index(option) + 1] for option in ("--log-file", "--tool"))
python, _, module, descriptor = words[-4:]
run = f"{first or "pass"}; import runpy; runpy.run_module({{module!r}}, run_name='__main__')"
code = subprocess.call([python, "-c", run, descriptor], close_fds=False)
open(log, "w").write({MEMCHECK!r} if tool == "memcheck" and code == 0 else "")
"""
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return install


@pytest.mark.slow
def test_a_worker_under_compute_sanitizer_answers_and_its_log_is_read_after_it_exits(fork_server, stand_in):
    stand_in()
    with compute_sanitizer.WatchedWorkers("memcheck", fork_server, {}) as watched:
        client = WorkerClient(watched, "cpu", Limits())
        client.ping()
        log = watched.log()
        client.close()
    assert [f.here.line for f in read_log(log)] == [34]


@pytest.mark.slow
def test_each_requested_tool_runs_and_its_reports_become_findings(fork_server, stand_in, tmp_path):
    stand_in(EMULATED)
    solved = problem.load("elements", planted_bugs.PLANTED / "problems" / "elements.py")
    kernel = tmp_path / "mine.cu"
    kernel.write_text((planted_bugs.PLANTED / "elements" / "off_by_one_read.cu").read_text() + "// more\n" * 40)
    told: list[str] = []
    report = sanitize_on_gpu(
        fork_server,
        "cpu",
        Job(solved, candidate.read(kernel), plan(solved, 5)[:2]),
        told.append,
        ["racecheck", "memcheck"],
    )
    assert told == ["racecheck", "memcheck"]
    assert ([(f.kind, f.here.line) for f in report.findings], report.fault) == ([(Kind.OUT_OF_BOUNDS_WRITE, 34)], "")


@pytest.mark.slow
def test_a_shape_that_the_candidate_declines_is_not_counted_under_compute_sanitizer(fork_server, stand_in, tmp_path):
    stand_in(EMULATED)
    solved = problem.load("elements", planted_bugs.PLANTED / "problems" / "elements.py")
    kernel = tmp_path / "mine.py"
    kernel.write_text(planted_bugs.DECLINES.format(condition="len(x) != 1000"))
    (own,) = one_per_shape(plan(solved, 5), only=True)
    job = Job(solved, candidate.read(kernel), [own, replace(own, shape=(("N", 999),), timed_shape=False)])
    report = sanitize_on_gpu(fork_server, "cpu", job, lambda text: None, ["racecheck", "synccheck"])
    assert report.text("mine") == "mine: nothing found at 1 shape."


@pytest.mark.slow
def test_a_worker_that_cannot_open_the_device_is_not_the_candidates_fault(fork_server, stand_in):
    stand_in()
    bug = next(bug for bug in planted_bugs.ALL if bug.name == "elements/off_by_one_read")
    solved = problem.load("elements", bug.problem)
    told: list[str] = []
    job = Job(solved, candidate.read(bug.path), one_per_shape(plan(solved, 5), only=False))
    if torch.cuda.is_available():
        pytest.skip("there is a GPU to open")
    with pytest.raises(RuntimeError, match="could not start"):
        sanitize_on_gpu(fork_server, "cuda:0-sanitized", job, told.append)
    assert told == ["memcheck"]


# ------------------------------------------------------------------------------------------- the planted bugs

# The bugs that each tool finds. None: with the kind that the emulator reports; otherwise with this kind.
SEEN: dict[str, dict[str, Kind | None]] = {
    "memcheck": {
        "elements/assertion_that_fails": None,
        "elements/index_overflow": None,
        "elements/misaligned_vector": None,
        "elements/negative_index": None,
        "elements/null_pointer": None,
        "elements/off_by_one_read": None,
        "elements/off_by_one_write": None,
        "elements/vectors_past_the_end": None,
        "elements/wrong_extent": None,
        "elements/wrong_stride": None,
        "histogram/one_bin_too_many": None,
        "rows/dynamic_shared_overrun": None,
        "rows/halves_of_odd_length": None,
        "rows/kernel_heap_overrun": None,
        "rows/kernel_heap_used_after_free": Kind.OUT_OF_BOUNDS_READ,
        "rows/pointer_of_next_row": None,
        "rows/used_after_free": Kind.OUT_OF_BOUNDS_READ,
        "transpose/misaligned_row": None,
        "transpose/shared_overrun": None,
        "transpose/transposed_index": None,
    },
    "initcheck": {
        "elements/output_read_first": None,
        "elements/second_input_shifted": Kind.UNINITIALISED_READ,
        "rows/accumulator_not_cleared": None,
        "rows/kernel_heap_uninitialised": None,
        "rows/uninitialised_workspace": None,
    },
    "racecheck": {
        "histogram/shared_race": None,
        "rows/double_buffer": None,
        "rows/implicit_lockstep": None,
        "rows/missing_barrier": None,
        "rows/missing_second_barrier": None,
        "rows/shared_result_overwritten": None,
        "transpose/tile_read_too_early": None,
    },
    "synccheck": {"transpose/barrier_under_guard": None},
}

_SHARED_ONLY = "a race in device memory; the tool checks only shared memory"
_ATOMICS = "atomics do not race; the tool does not check whether their order matters"
_LAUNCH = "an error of the launch, which is at no line of the kernel"
_COPY = "only the copy to the host reads it, which is at no line"
_DEVICE_ONLY = "up to version 2025.3, the tool checks only device memory"
_PAIRED = "sm_90 lets any two barriers of a block match, and counts exited threads; the tool reports neither"
# The bugs that no tool finds: the tool that comes closest, and why it does not find them.
UNSEEN = {
    "elements/copy_read_too_early": ("racecheck", "the host reads too early; the tool checks only shared memory"),
    "elements/grid_stride_of_one_block": ("racecheck", _SHARED_ONLY),
    "elements/grid_too_small": ("initcheck", _COPY),
    "elements/ignored_launch_failure": ("memcheck", _LAUNCH),
    "elements/input_written": ("memcheck", "for the tool, an input is ordinary memory"),
    "elements/missing_tail": ("initcheck", _COPY),
    "elements/overlapping_blocks": ("racecheck", _SHARED_ONLY),
    "elements/stale_after_failed_launch": ("memcheck", _LAUNCH),
    "elements/streams_without_order": ("racecheck", _SHARED_ONLY),
    "elements/too_many_threads": ("memcheck", _LAUNCH),
    "histogram/blocks_overwrite": ("racecheck", _SHARED_ONLY),
    "histogram/counts_not_cleared": ("initcheck", _DEVICE_ONLY),
    "histogram/last_block_without_ticket": ("racecheck", _SHARED_ONLY),
    "histogram/slots_in_order_of_arrival": ("racecheck", _ATOMICS),
    "histogram/without_atomics": ("racecheck", _SHARED_ONLY),
    "rows/barrier_in_branch": ("synccheck", _PAIRED),
    "rows/barrier_in_ragged_loop": ("synccheck", _PAIRED),
    "rows/one_warp_too_few": ("initcheck", _DEVICE_ONLY),
    "rows/order_of_threads": ("racecheck", _ATOMICS),
    "rows/shuffle_from_absent_lane": ("synccheck", "all lanes of the mask take part; the value is undefined"),
    "rows/tail_not_cleared": ("initcheck", _DEVICE_ONLY),
    "rows/uninitialised_shared": ("initcheck", _DEVICE_ONLY),
    "rows/wrong_shuffle_mask": ("synccheck", "the machine code of sm_90 does not contain a constant mask"),
    "transpose/columns_of_block_for_rows": ("initcheck", _COPY),
    "transpose/grid_of_square": ("initcheck", _COPY),
}

TOOL = {name: tool for tool, names in SEEN.items() for name in names} | {n: tool for n, (tool, _) in UNSEEN.items()}
# Each run has three processes, which are rarely busy at once. compute-sanitizer has ten ports for all its runs.
AT_ONCE = min(8, max(1, (os.cpu_count() or 1) // 2))


def test_each_planted_bug_is_listed_as_found_by_a_tool_or_with_the_reason_why_not():
    assert sorted(name for names in (*SEEN.values(), UNSEEN) for name in names) == [
        bug.name for bug in planted_bugs.ALL
    ]


def lacking() -> str:
    """What this machine lacks for the tools to run; empty if it lacks nothing."""
    try:
        compute_sanitizer.executable()
    except EnvironmentLacking as error:
        return str(error)
    return "" if torch.cuda.is_available() else "torch sees no NVIDIA GPU on this machine"


needs_the_tools = pytest.mark.skipif(bool(lacking()), reason=lacking())


def sanitized(bug: Bug) -> Finished:
    """Runs the command with the bug's tool. The tool's output is on stderr."""
    words = ("sanitize", bug.problem, bug.path, "--device", "cuda", "--tool", TOOL[bug.name], "--seed", "5")
    command = [sys.executable, "harness.py", *words, "--json", "-v"]
    pipe = subprocess.PIPE
    return finished(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True))


@pytest.fixture(scope="module")
def running(request) -> Iterator[dict[Bug, Future[Finished]]]:
    """The runs of all selected bugs, several in parallel: a run mostly waits for torch and CUDA to start."""
    asked = [test.callspec.params["bug"] for test in request.session.items if "running" in test.fixturenames]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {bug: pool.submit(sanitized, bug) for bug in asked}


def findings(done: Finished) -> list[tuple[str, int]]:
    """The kinds and lines of the findings. Fails the test if the command itself failed."""
    assert done.code in (0, 1), done.stderr
    return [(f["kind"], f["here"]["line"]) for f in map(json.loads, done.stdout.splitlines())]


@pytest.mark.gpu
@needs_the_tools
@pytest.mark.parametrize(
    "bug", [bug for bug in planted_bugs.ALL if bug.name in TOOL.keys() - UNSEEN.keys()], ids=lambda bug: bug.name
)
def test_a_planted_bug_is_found_by_its_tool_with_its_kind_and_line(running, bug):
    done = running[bug].result()
    kind = SEEN[TOOL[bug.name]][bug.name] or bug.kind
    assert (kind, bug.line) in findings(done), f"{TOOL[bug.name]}:\n{done.stdout}\n{done.stderr}"


@pytest.mark.gpu
@needs_the_tools
@pytest.mark.parametrize("bug", [bug for bug in planted_bugs.ALL if bug.name in UNSEEN], ids=lambda bug: bug.name)
def test_a_bug_that_no_tool_finds_is_not_reported_as_something_else(running, bug):
    done = running[bug].result()
    assert findings(done) == [], f"{TOOL[bug.name]}:\n{done.stdout}\n{done.stderr}"
