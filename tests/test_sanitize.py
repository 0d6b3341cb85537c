"""The verb `sanitize`: every planted bug is found, by its kind and at its line, and correct kernels are left alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel_harness import candidate, problem
from kernel_harness import device as devices
from kernel_harness.candidate import Candidate
from kernel_harness.cases import plan
from kernel_harness.problem import Problem
from kernel_harness.process import Template
from kernel_harness.sanitize import Report, one_per_shape, sanitize

ROOT = Path(__file__).resolve().parent.parent
PLANTED = ROOT / "tests" / "planted"
BUGS = sorted(p for p in PLANTED.glob("*/*.cu"))
# Emulated kernels that are right, each beside the problem it solves, where there are any.
CORRECT = sorted((ROOT / "tests" / "emulated" / "kernels").glob("*/*.py"))
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
