"""The verb `sanitize`: every planted bug is found, by its kind and at its line, and correct kernels are left alone."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kernel_harness import candidate, problem
from kernel_harness import device as devices
from kernel_harness.candidate import Candidate
from kernel_harness.cases import plan
from kernel_harness.errors import EnvironmentLacking
from kernel_harness.examine import Subject
from kernel_harness.problem import Problem
from kernel_harness.process import Limits, Template
from kernel_harness.sanitizer import compute_sanitizer, findings
from kernel_harness.sanitizer.findings import Finding, Kind, Place
from kernel_harness.sanitizer.sanitize import Report, one_per_shape, sanitize, sanitize_on_gpu

ROOT = Path(__file__).resolve().parent.parent
PLANTED = ROOT / "tests" / "planted"
BUGS = sorted(p for p in PLANTED.glob("*/*.cu"))
CORRECT = sorted((ROOT / "tests" / "emulated" / "kernels").glob("*.py"))
SHIPPED = sorted((ROOT / "kernels").glob("*/*.py"))
SEED = 5

needs_binutils = pytest.mark.skipif(not shutil.which("addr2line"), reason="needs binutils beside g++")


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """Workers that sanitize."""
    device = devices.named("cpu-sanitized")
    device.prepare()
    with Template() as started:
        started.prepare(device.name)
        yield started


def look_at(template: Template, planted: Path) -> Report:
    solved = problem.load(planted.parent.name, PLANTED / "problems" / f"{planted.parent.name}.py")
    return sanitized(template, solved, candidate.read(planted))


def sanitized(template: Template, solved: Problem, one: Candidate) -> Report:
    return sanitize(template, solved, one, one_per_shape(plan(solved, SEED), only=False), SEED, lambda text: None)


# A file of tests/emulated/kernels as a candidate: it has CPP and CUDA, which defines a function of the file's name.
AS_CANDIDATE = """

from torch.utils.cpp_extension import load_inline

_functions = [{name!r}] if CPP else None
_flags = globals().get("FLAGS", [])
_extension = load_inline(
    name={name!r}, cpp_sources=CPP, cuda_sources=CUDA, functions=_functions, extra_cuda_cflags=_flags
)


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return _extension.{name}(*inputs)
"""

# The problem it solves: the inputs are one of its own cases.
ITS_PROBLEM = """
import runpy
import torch

CASE = 0
_file = runpy.run_path({path!r})


class Model(torch.nn.Module):
    def forward(self, *inputs):
        return _file["answer"](*inputs)


def get_inputs():
    return list(_file["cases"]()[CASE])
"""


@pytest.fixture(scope="module")
def reports(template) -> dict[Path, Report]:
    """All planted bugs at once: their builds are most of the time and need not wait for one another."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(BUGS, pool.map(lambda path: look_at(template, path), BUGS), strict=True))


@needs_binutils
@pytest.mark.parametrize("planted", BUGS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_planted_bug_is_found_by_its_kind_and_at_its_line(reports, planted):
    lines = planted.read_text().split("\n")
    kind = next(re.match(r"// Kind: (.*)", line)[1] for line in lines if line.startswith("// Kind:"))
    (marked,) = (i for i, line in enumerate(lines, 1) if line.endswith("// BUG"))
    first = reports[planted].findings[0]
    assert (first.kind, first.here.line) == (kind, marked), [f.sentence for f in reports[planted].findings]


@needs_binutils
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_shipped_kernel_is_not_reported(template, path):
    solved = problem.load(path.parent.name, ROOT / "problems" / f"{path.parent.name}.py")
    small = solved.at({"M": 33, "K": 65, "N": 40})
    (only,) = one_per_shape(plan(small, SEED), only=True)
    report = sanitize(template, small, candidate.read(path), [only], SEED, lambda text: None)
    assert (report.findings, report.fault, len(report.cases)) == ([], "", 1)


@needs_binutils
@pytest.mark.parametrize("path", CORRECT, ids=lambda p: p.stem)
def test_a_correct_kernel_is_not_reported(template, tmp_path, path):
    (tmp_path / "problem.py").write_text(ITS_PROBLEM.format(path=str(path)))
    solved = problem.load("problem", tmp_path / "problem.py")
    last = solved.at({"CASE": len(runpy.run_path(str(path))["cases"]()) - 1})
    one = Candidate(path.stem, path, path.read_text() + AS_CANDIDATE.format(name=path.stem))
    report = sanitized(template, last, one)
    assert ([f.sentence for f in report.findings], report.fault, len(report.cases)) == ([], "", 1)


# -------------------------------------------------------------------------------------------------- the verb


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """`python harness.py sanitize`, as a user runs it."""
    return subprocess.run(
        [sys.executable, ROOT / "harness.py", "sanitize", *words, "--device", "cpu"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


def planted(solved: str, bug: str) -> tuple[Path, Path]:
    """The problem's and the kernel's file, as the command takes them."""
    here = PLANTED.relative_to(ROOT)
    return here / "problems" / f"{solved}.py", here / solved / f"{bug}.cu"


@needs_binutils
def test_the_verb_says_what_is_wrong_in_one_sentence_and_leaves_with_1():
    done = command(*planted("elements", "off_by_one_read"), "--seed", "5")
    assert done.returncode == 1
    (sentence,) = done.stdout.splitlines()
    for part in (
        "out-of-bounds read: tests/planted/elements/off_by_one_read.cu:6: `float right = x[i + 1];  // BUG`",
        "thread (103, 0, 0) of block (7, 0, 0) of combine reads 4 bytes that begin 0 bytes past the end of input 1",
        "float32 [1000]",
    ):
        assert part in sentence


@needs_binutils
def test_an_order_that_changes_the_answer_is_shown_again_by_its_seed():
    words = (*planted("histogram", "slots_in_order_of_arrival"), "--seed", "7", "--shape", "N=300", "--json")
    one, two = (json.loads(command(*words).stdout) for _ in range(2))
    assert one == two
    assert one["kind"] == "order dependence" and "run in reverse" in one["sentence"]


def test_two_kernels_at_once_or_none_are_a_mistake_in_the_words():
    assert command("matmul_tt", "tiled*").returncode == 2
    assert "did you mean 'tiled'" in command("matmul_tt", "tilde").stderr


def test_what_does_not_compile_cannot_be_sanitized(tmp_path):
    (tmp_path / "broken.cu").write_text("torch::Tensor forward(torch::Tensor x) { return y; }\n")
    done = command(PLANTED / "problems" / "rows.py", tmp_path / "broken.cu")
    assert done.returncode == 4
    assert "BUILD_ERROR" in done.stderr and "broken.cu:1" in done.stderr


@needs_binutils
def test_a_wrong_answer_under_emulation_comes_with_the_first_finding(harness):
    kernel = PLANTED / "elements" / "grid_too_small.cu"
    words = ("--problem", PLANTED / "problems" / "elements.py", "--device", "cpu", "--json")
    done = harness.run(*words, "--kernel", kernel)
    record = done.results["grid_too_small"]
    assert record["status"] == "WRONG_VALUES"
    assert record["remark"].startswith("never written: tests/planted/elements/grid_too_small.cu:11:")
    assert record["reason"].endswith("\nSanitizer: " + record["remark"])


def test_findings_of_a_worker_that_lies_are_left_out():
    honest = {
        "kind": "race", "kernel": "k", "bytes": 4, "detail": "", "count": 1,
        "here": {"file": "k.cu", "line": 1, "thread": [0, 0, 0], "block": [0, 0, 0], "write": True},
    }  # fmt: skip
    lies = [7, {}, {**honest, "kind": "nonsense"}, {**honest, "count": "many"}, {**honest, "here": {"line": [2]}}]
    (found,) = findings.read([*lies, {**honest, "kernel": "k\x1b[2J" + "k" * 9999}], "own", ["x = y;"])
    assert found.source == "x = y;" and found.kernel.isprintable() and len(found.kernel) < 1000
    assert findings.read("not a list", "own", []) == []


# ------------------------------------------------------------------------------------------ compute-sanitizer

SOURCE = [f"line {number};" for number in range(1, 100)]

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x160 in /checkout/kernels/scale/mine.cu:34
=========     by thread (3,0,0) in block (7,1,0)
=========     Address 0x7f6d2d000fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6d2d000000 of size 4000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cudaLaunchKernel [0x7b03e] in mine.so
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0x160 in /checkout/kernels/scale/mine.cu:34
=========     by thread (4,0,0) in block (7,1,0)
=========     Address 0x7f6d2d000fa4 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f6d2d000000 of size 4000 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at at::native::somebody_elses(float *)+0x20 in /torch/Native.cu:9
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x0 is out of bounds
=========
========= ERROR SUMMARY: 3 errors
"""

INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void add<float>(const T1 *, T1 *)+0x70 in /checkout/kernels/scale/mine.cu:12
=========     by thread (65,0,0) in block (0,0,0)
=========     Access at 0x7f2a37600104
=========
========= ERROR SUMMARY: 1 error
"""

RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum(int *, int *)+0x90 in /checkout/kernels/scale/mine.cu:21
=========     and Read access at sum(int *, int *)+0x110 in /checkout/kernels/scale/mine.cu:24 [1016 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""

SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at sum(int *, int *)+0x90 in /checkout/kernels/scale/mine.cu:67
=========     by thread (64,0,0) in block (2,0,0)
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


def test_an_initcheck_report_names_a_templated_kernel():
    (found,) = read_log(INITCHECK)
    assert (found.kind, found.kernel, found.here.line) == (Kind.UNINITIALISED_READ, "void add<float>", 12)
    assert "thread (65, 0, 0)" in found.sentence


def test_a_racecheck_report_is_told_from_the_side_of_who_reads():
    (found,) = read_log(RACECHECK)
    assert (found.kind, found.here.line, found.there.line, found.count) == (Kind.RACE, 24, 21, 1016)
    assert (found.here.writes, found.there.writes) == (False, True)
    assert "writes at line 21" in found.sentence


def test_a_synccheck_report_says_who_diverged():
    (found,) = read_log(SYNCCHECK)
    assert (found.kind, found.here.line) == (Kind.DIVERGENT_BARRIER, 67)
    assert "thread (64, 0, 0) of block (2, 0, 0)" in found.sentence


def test_a_clean_log_is_no_finding():
    assert read_log("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == []
    assert read_log("") == []


def test_without_compute_sanitizer_the_user_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentLacking, match="--device cpu"):
        compute_sanitizer.executable()


@pytest.fixture
def compute_sanitizer_on_path(monkeypatch, tmp_path) -> Path:
    """A program of its name that runs what it is given, then writes a report into its log, as the real one does."""
    program = tmp_path / "compute-sanitizer"
    program.write_text(
        f"""#!{sys.executable}
import subprocess, sys
words = sys.argv[1:]
log = words[words.index("--log-file") + 1]
code = subprocess.call(words[words.index(sys.executable):], close_fds=False)
tool = words[words.index("--tool") + 1]
open(log, "w").write({MEMCHECK!r} if tool == "memcheck" and code == 0 else "")
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return program


def test_a_worker_under_compute_sanitizer_answers_and_its_log_is_read_when_it_has_left(
    template, compute_sanitizer_on_path
):
    with compute_sanitizer.Wrapped("memcheck", template) as wrapped:
        subject = Subject(wrapped, "cpu", Limits())
        subject.ping()
        log = wrapped.log()
        subject.close()
    assert [f.here.line for f in read_log(log)] == [34]


def test_every_tool_is_run_and_a_worker_that_cannot_open_the_device_is_a_fault(template, compute_sanitizer_on_path):
    solved = problem.load("elements", PLANTED / "problems" / "elements.py")
    told: list[str] = []
    one = candidate.read(PLANTED / "elements" / "off_by_one_read.cu")
    cases = one_per_shape(plan(solved, SEED), only=False)
    if torch.cuda.is_available():
        pytest.skip("there is a GPU to open")
    with pytest.raises(RuntimeError, match="could not start"):
        sanitize_on_gpu(template, "cuda:0-sanitized", solved, one, cases, told.append)
    assert told == ["off_by_one_read: memcheck"]
