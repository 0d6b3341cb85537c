"""The verb `sanitize`: every planted bug is found, by its kind and at its line, and correct kernels are left alone."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bugs
import pytest
from bugs import PLANTED, Bug
from conftest import ROOT

from kernel_harness import candidate, problem
from kernel_harness import device as devices
from kernel_harness.candidate import Candidate
from kernel_harness.cases import plan
from kernel_harness.problem import Problem
from kernel_harness.sanitizer import findings
from kernel_harness.sanitizer.sanitize import Report, one_per_shape, sanitize
from kernel_harness.spawn import Template

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


def look_at(template: Template, bug: Bug) -> Report:
    return sanitized(template, problem.load(bug.problem.stem, bug.problem), candidate.read(bug.path))


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
def reports(template) -> dict[Bug, Report]:
    """All planted bugs at once: their builds are most of the time and need not wait for one another."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(bugs.ALL, pool.map(lambda bug: look_at(template, bug), bugs.ALL), strict=True))


@needs_binutils
@pytest.mark.parametrize("bug", bugs.ALL, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_its_kind_and_at_its_line(reports, bug):
    first = reports[bug].findings[0]
    assert (first.kind, first.here.line) == (bug.kind, bug.line), [f.sentence for f in reports[bug].findings]


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
def test_an_order_that_changes_the_answer_is_shown_again_by_its_seed(typed):
    words = (*planted("histogram", "slots_in_order_of_arrival"), "--seed", "7", "--shape", "N=300", "--json")
    one, two = (json.loads(typed("sanitize", *words, "--device", "cpu").stdout) for _ in range(2))
    assert one == two
    assert one["kind"] == "order dependence" and "run in reverse" in one["sentence"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tiled*"], "names 2 kernels; sanitize takes one at a time"),
        (["tilde"], "did you mean 'tiled'"),
        (["tiled", "--tool", "racecheck"], "--tool names a tool of compute-sanitizer, which needs a GPU"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(words, complaint, typed):
    done = typed("sanitize", "matmul_tt", *words, "--device", "cpu")
    assert (done.code, complaint in done.stderr) == (2, True), done.stderr


def test_what_does_not_compile_cannot_be_sanitized(tmp_path, typed):
    (tmp_path / "broken.cu").write_text("torch::Tensor forward(torch::Tensor x) { return y; }\n")
    done = typed("sanitize", PLANTED / "problems" / "rows.py", tmp_path / "broken.cu", "--device", "cpu")
    assert done.code == 4
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
