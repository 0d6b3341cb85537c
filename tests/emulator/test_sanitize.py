"""The verb `sanitize`: it finds each planted bug with its kind and line, and reports nothing for correct kernels."""

from __future__ import annotations

import functools
import json
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import forked_command, kernel_modules, planted_bugs, shipped_kernels
from support.command import ROOT
from support.planted_bugs import PLANTED, Bug

from cuda_on_cpu.emulator import findings
from kernel_harness import device as devices
from kernel_harness.checking.cases import plan
from kernel_harness.diagnostics.sanitizer.advice import advice
from kernel_harness.diagnostics.sanitizer.sanitize import Job, Report, one_per_shape, remark, sanitize
from kernel_harness.problem import candidate, problem
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import Problem
from kernel_harness.workers.fork_server import ForkServer

pytestmark = pytest.mark.slow

FAMILIES = ROOT / "tests" / "emulator" / "families"
SMALL = sorted((ROOT / "tests" / "emulator" / "kernels").glob("*.py"))
# All small kernels except one that binds itself, which would need a build of its own, and one each for a graph, for a
# plain read before a compare-and-swap and for memory that kernels allocate.
CORRECT = [
    *(path for path in SMALL if path.stem != "leaky_relu_dispatch"),
    FAMILIES / "captured_graph.py",
    FAMILIES / "double_atomics.py",
    FAMILIES / "kernel_heap.py",
]
SEED = 5

needs_binutils = pytest.mark.skipif(not shutil.which("addr2line"), reason="needs binutils beside g++")


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    """A fork server of workers that sanitize."""
    device = devices.named("cpu-sanitized")
    device.prepare()
    with ForkServer() as started:
        started.prepare(device.name)
        yield started


def look_at(fork_server: ForkServer, bug: Bug) -> Report:
    return sanitized(fork_server, problem.load(bug.problem.stem, bug.problem), bug.candidate)


def sanitized(fork_server: ForkServer, solved: Problem, one: Candidate) -> Report:
    job = Job(solved, one, one_per_shape(plan(solved, SEED), only=False))
    return sanitize(fork_server, job, SEED, lambda text: None)


# The files of tests/emulator/kernels as one candidate that calls the function of one of them. They are built together,
# because most of a build's time does not depend on the source's length.
AS_CANDIDATE = """
import torch
from torch.utils.cpp_extension import load_inline

CPP = {cpp!r}
CUDA = {cuda!r}
_extension = load_inline(name="kernels", cpp_sources=CPP, cuda_sources=CUDA, functions={functions!r})


class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return _extension.{name}(*inputs)
"""


def as_candidate(path: Path) -> Candidate:
    """The candidate that calls the function of a file."""
    cpp, cuda = all_correct()
    text = AS_CANDIDATE.format(cpp=cpp, cuda=cuda, functions=[each.stem for each in CORRECT], name=path.stem)
    return Candidate(path.stem, path, text)


@functools.cache
def all_correct() -> tuple[str, str]:
    """Declarations and CUDA source of the files in CORRECT."""
    return kernel_modules.together({each.stem: kernel_modules.load(each) for each in CORRECT})


# The problem for such a file: the inputs are one of the file's cases.
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
def reports(fork_server) -> dict[Bug, Report]:
    """The reports of all planted bugs, made in parallel: most of the time is spent on builds."""
    with ThreadPoolExecutor(2) as pool:
        return dict(
            zip(planted_bugs.ALL, pool.map(lambda bug: look_at(fork_server, bug), planted_bugs.ALL), strict=True)
        )


@needs_binutils
@pytest.mark.parametrize("bug", planted_bugs.ALL, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_its_kind_and_at_its_line(reports, bug):
    first = reports[bug].findings[0]
    assert (first.kind, first.here.line) == (bug.kind, bug.line_of_candidate), [
        f.sentence for f in reports[bug].findings
    ]


# The sanitizer does not know the clusters of the kernel that is left out.
SANITIZED = [path for path in shipped_kernels.PATHS if path.stem != "fp16x3_wgmma"]


@needs_binutils
@pytest.mark.parametrize("path", SANITIZED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_shipped_kernel_is_not_reported(fork_server, path):
    solved = problem.load(path.parent.name, ROOT / "problems" / f"{path.parent.name}.py")
    small = solved.at({"M": 33, "K": 65, "N": 40})
    (only,) = one_per_shape(plan(small, SEED), only=True)
    report = sanitize(fork_server, Job(small, shipped_kernels.candidate(path), [only]), SEED, lambda text: None)
    assert (report.findings, report.fault, len(report.cases)) == ([], "", 1)


@needs_binutils
@pytest.mark.parametrize("path", CORRECT, ids=lambda p: p.stem)
def test_a_correct_kernel_is_not_reported(fork_server, tmp_path, path):
    (tmp_path / "problem.py").write_text(ITS_PROBLEM.format(path=str(path)))
    solved = problem.load("problem", tmp_path / "problem.py")
    last = solved.at({"CASE": len(runpy.run_path(str(path))["cases"]()) - 1})
    report = sanitized(fork_server, last, as_candidate(path))
    assert ([f.sentence for f in report.findings], report.fault, len(report.cases)) == ([], "", 1)


IN_PLACE = """
import torch

N = 512


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x.add_(y)


def get_inputs():
    return [torch.randn(N), torch.randn(N)]


def get_init_inputs():
    return []
"""
ADDS = """
#include <torch/extension.h>
__global__ void add(float* x, const float* y, int n) {{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) {change};
}}
torch::Tensor forward(torch::Tensor x, torch::Tensor y) {{
    add<<<2, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return x;
}}
"""


@needs_binutils
@pytest.mark.parametrize(
    ("change", "found"), [("x[i] += y[i]", []), ("x[i] += y[i], const_cast<float*>(y)[i] = 0", ["write to an input"])]
)
def test_only_a_write_to_an_input_that_the_reference_leaves_alone_is_reported(fork_server, tmp_path, change, found):
    (tmp_path / "add.py").write_text(IN_PLACE)
    (tmp_path / "adds.cu").write_text(ADDS.format(change=change))
    report = sanitized(fork_server, problem.load("add", tmp_path / "add.py"), candidate.read(tmp_path / "adds.cu"))
    assert ([str(f.kind) for f in report.findings], report.fault) == (found, "")


# -------------------------------------------------------------------------------------------------- the verb


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """`python harness.py sanitize`, as a user runs it."""
    return forked_command.run(ROOT / "harness.py", ["sanitize", *words, "--device", "cpu"], ROOT)


def planted(solved: str, bug: str) -> tuple[Path, Path]:
    """The problem's and the kernel's file, as the command takes them."""
    here = PLANTED.relative_to(ROOT)
    return here / "problems" / f"{solved}.py", here / solved / f"{bug}.cu"


@needs_binutils
def test_the_verb_reports_a_mistake_in_one_sentence_and_exits_with_1():
    done = command(*planted("elements", "off_by_one_read"), "--seed", "5")
    assert done.returncode == 1
    (sentence,) = done.stdout.splitlines()
    for part in (
        "out-of-bounds read: tests/emulator/planted/elements/off_by_one_read.cu:6: `float right = x[i + 1];  // BUG`",
        "thread (103, 0, 0) of block (7, 0, 0) of combine reads 4 bytes that begin 0 bytes past the end of input 1",
        "float32 [1000]",
    ):
        assert part in sentence


@needs_binutils
def test_a_seed_reproduces_the_order_that_changes_the_answer(typed):
    words = (*planted("histogram", "slots_in_order_of_arrival"), "--seed", "7", "--shape", "N=300", "--json")
    one, two = (json.loads(typed("sanitize", *words, "--device", "cpu").stdout) for _ in range(2))
    assert one == two
    assert one["kind"] == "order dependence" and "run in reverse" in one["sentence"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tiled*"], "selects 2 kernels; choose one of tiled, tiled_pretransposed"),
        (["tilde"], "did you mean 'tiled'"),
        (["tiled", "--tool", "racecheck"], "--tool names a tool of compute-sanitizer and needs a GPU"),
    ],
)
def test_an_ambiguous_or_unknown_name_is_a_usage_error(words, complaint, typed):
    done = typed("sanitize", "matmul_tt", *words, "--device", "cpu")
    assert (done.code, complaint in done.stderr) == (2, True), done.stderr


def test_a_kernel_that_does_not_compile_cannot_be_sanitized(tmp_path, typed):
    (tmp_path / "broken.cu").write_text("torch::Tensor forward(torch::Tensor x) { return y; }\n")
    done = typed("sanitize", PLANTED / "problems" / "rows.py", tmp_path / "broken.cu", "--device", "cpu")
    assert done.code == 4
    assert "BUILD_ERROR" in done.stderr and "broken.cu:1" in done.stderr


def test_a_kernel_that_declines_every_shape_cannot_be_sanitized(tmp_path, typed):
    (tmp_path / "picky.py").write_text(planted_bugs.DECLINES.format(condition="True"))
    done = typed("sanitize", PLANTED / "problems" / "elements.py", tmp_path / "picky.py", "--device", "cpu")
    assert (done.code, done.stdout) == (4, "")
    assert "the kernel declines every shape that was tried" in done.stderr
    assert "this length is not supported" in done.stderr


@needs_binutils
def test_a_wrong_answer_under_emulation_comes_with_the_first_finding(harness):
    kernel = PLANTED / "elements" / "grid_too_small.cu"
    words = ("--problem", PLANTED / "problems" / "elements.py", "--device", "cpu", "--json")
    done = harness.run(*words, "--kernel", kernel)
    record = done.results["grid_too_small"]
    assert record["status"] == "WRONG_VALUES"
    found = record["remarks"][-1]
    assert (found["kind"], found["line"]) == ("sanitizer", 11)
    assert found["text"].startswith("never written: tests/emulator/planted/elements/grid_too_small.cu:11:")
    assert record["reason"].endswith("\nSanitizer: " + found["text"])


@needs_binutils
def test_a_remark_whose_time_is_up_says_that_the_sanitizer_was_stopped(fork_server):
    (bug,) = (bug for bug in planted_bugs.ALL if bug.name == "elements/off_by_one_read")
    solved = problem.load(bug.problem.stem, bug.problem)
    said = remark(fork_server, Job(solved, candidate.read(bug.path), plan(solved, SEED)[:1], within_s=0.01), SEED)
    assert (
        said
        and said.text
        == "the sanitizer was stopped after 0.01 s without a finding; the verb sanitize has no such limit."
    )


@pytest.mark.parametrize(
    ("kind", "place", "offset", "fragment"),
    [
        ("race", "shared", 4, "put __syncthreads() between"),
        ("race", "device", 4, "an atomic operation"),
        ("out-of-bounds write", "device", 64, "i <= n"),
        ("out-of-bounds write", "device", 104, "the sizes"),
        ("uninitialised read", "device", 4, "write the memory in every branch"),
        ("misaligned access", "device", 2, "a multiple of its size"),
        ("failed launch", "device", 0, "against the limits"),
        ("absent lane", "device", 0, "name every lane"),
        ("access before a wait", "device", 0, "cudaStreamSynchronize"),
        ("trap", "device", 0, "the assertion fails"),
    ],
)
def test_what_the_sanitizer_found_gives_the_advice(kind, place, offset, fragment):
    buffer = findings.Buffer(place, "x", 64, offset)
    found = findings.Finding(findings.Kind(kind), "k", findings.Place("my a.cu", 7), "x", buffer=buffer, bytes=4)
    assert f"fix the {kind} at my a.cu:7 first" in advice(found) and fragment in advice(found)


def test_the_effect_of_a_mistake_gives_no_advice():
    place = findings.Place("a.cu", 7)
    assert not advice(findings.Finding(findings.Kind.NEVER_WRITTEN, "k", place, "x"))
    assert not advice(findings.Finding(findings.Kind.ORDER_DEPENDENCE, "k", place, "x"))


def test_malformed_findings_of_a_worker_are_dropped():
    honest = {
        "kind": "race", "kernel": "k", "bytes": 4, "detail": "", "count": 1,
        "here": {"file": "k.cu", "line": 1, "thread": [0, 0, 0], "block": [0, 0, 0], "write": True},
    }  # fmt: skip
    malformed = [7, {}, {**honest, "kind": "nonsense"}, {**honest, "count": "many"}, {**honest, "here": {"line": [2]}}]
    malformed += [{**honest, "buffer": nothing} for nothing in ({}, [], False, 0, "")]
    malformed += [{**honest, "count": 10**4299}]  # one digit more, and Python writes no text
    (found,) = findings.read([*malformed, {**honest, "kernel": "k\x1b[2J" + "k" * 9999}], "own", ["x = y;"])
    assert found.source == "x = y;" and found.kernel.isprintable() and len(found.kernel) < 1000
    assert findings.read("not a list", "own", []) == []


def test_a_cause_comes_before_what_may_follow_from_it():
    kinds = [findings.Kind.RACE, findings.Kind.OUT_OF_BOUNDS_READ, findings.Kind.OUT_OF_BOUNDS_WRITE]
    found = [findings.Finding(kind, "k", findings.Place("k.cu", i), "") for i, kind in enumerate(kinds)]
    assert [finding.kind for finding in findings.causes_first(found)] == [*kinds[1:], kinds[0]]
