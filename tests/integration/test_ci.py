"""What continuous integration reads: JUnit XML, Markdown, JSON of comparisons, and the problem matcher of the docs."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.command import ROOT, Finished, Harness
from support.pages import result, wrong
from support.twice import PROBLEM

from kernel_harness import cli
from kernel_harness.cli import ci
from kernel_harness.core.status import Status
from kernel_harness.results import journal
from kernel_harness.results.journal import Unwritable

PAGE = (ROOT / "docs" / "ci.md").read_text()
GOOD = """
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    twice<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
RAISES = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no <idea> & \\x1b[1m bold")
"""
BEYOND = GOOD.replace("if (i < n) y[i]", "y[i + 100000]")
SOURCES = {
    "good.cu": GOOD, "shifted.cu": GOOD.replace("2 * x", "3 + 2 * x"), "typo.cu": GOOD.replace("x[i];", "x[i]"),
    "raises.py": RAISES, "beyond.cu": BEYOND,
    "past.cu": GOOD.replace("y[i] = ", "{ volatile float unused = x[i + 1]; } y[i] = "),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem, kernels of which one is right, and what a run of all of them writes."""
    folder = tmp_path_factory.mktemp("ci")
    (folder / "p.py").write_text(PROBLEM)
    for name, source in SOURCES.items():
        (folder / name).write_text(source)
    return folder


@pytest.fixture(scope="module")
def ran(folder: Path) -> Iterator[Finished]:
    files = ("--junit", folder / "junit.xml", "--markdown", folder / "summary.md")
    kernels = [word for name in SOURCES for word in ("--kernel", folder / name)]
    yield Harness(folder).run("--problem", folder / "p.py", *kernels, "--device", "cpu", "--quick", *files)


def cases(path: Path) -> dict[str, ElementTree.Element]:
    return {case.attrib["name"]: case for case in ElementTree.parse(path).iter("testcase")}


@pytest.mark.slow
def test_a_run_writes_a_test_case_for_each_kernel(folder: Path, ran: Finished) -> None:
    assert ran.code == 1, ran.stderr
    suite = ElementTree.parse(folder / "junit.xml").find("testsuite")
    assert suite is not None
    assert suite.attrib == {"name": "p, N=256", "tests": "6", "failures": "4", "skipped": "0"}
    found = cases(folder / "junit.xml")
    kinds = {
        name: failure.attrib["type"] for name, case in found.items() if (failure := case.find("failure")) is not None
    }
    assert kinds == {
        "shifted": "WRONG_VALUES",
        "typo": "BUILD_ERROR",
        "raises": "RUNTIME_ERROR",
        "beyond": "WRONG_VALUES",
    }
    places = {name: (Path(case.attrib["file"]).name, case.get("line")) for name, case in found.items()}
    assert places["typo"] == ("typo.cu", "6") and places["raises"] == ("raises.py", "6")
    assert places["good"] == ("good.cu", None)
    assert "Sanitizer: " in str(found["past"].findtext("system-out")) and found["past"].find("failure") is None
    assert "Sanitizer: " not in str(found["good"].findtext("system-out"))
    raised = found["raises"].find("failure")
    assert raised is not None and "no <idea> & \ufffd[1m bold" in raised.attrib["message"]
    assert "reproduce: " in str(raised.text)


@pytest.mark.slow
def test_a_run_writes_its_table_and_the_failures_first_lines(folder: Path, ran: Finished) -> None:
    lines = (folder / "summary.md").read_text().splitlines()
    assert lines[0] == "# p, N=256"
    assert any(re.match(r"\| good +\| PASSED +\|", line) for line in lines)
    (typo,) = (line for line in lines if line.startswith("- **typo**: BUILD_ERROR. "))
    assert "typo.cu:6: error: expected" in typo
    assert any(line.startswith("- **past**: PASSED. Sanitizer: ") for line in lines)


@pytest.mark.slow
def test_without_a_gpu_no_memory_is_told(folder: Path, ran: Finished) -> None:
    with (folder / "results" / "p" / "cpu-emulated" / "leaderboard.csv").open() as file:
        assert {row["peak_bytes"] for row in csv.DictReader(file)} == {""}
    assert "memory of a call" not in ran.stdout


@pytest.mark.slow
def test_the_problem_matcher_finds_the_lines_of_failures(ran: Finished) -> None:
    (pattern,) = json.loads(fenced("json"))["problemMatcher"][0]["pattern"]
    found = {}
    for line in ran.stdout.splitlines():
        if one := re.match(pattern["regexp"], line):
            found[Path(one[pattern["file"]]).name, one[pattern["line"]]] = one[pattern["message"]]
    assert found.keys() == {("typo.cu", "6"), ("raises.py", "6"), ("beyond.cu", "6"), ("past.cu", "6")}
    assert found["typo.cu", "6"].startswith("expected") and found["raises.py", "6"].startswith("ValueError: no <idea>")


@pytest.mark.slow
def test_a_comparison_writes_all_three_forms(folder: Path, harness: Harness) -> None:
    files = ("--junit", folder / "c.xml", "--markdown", folder / "c.md", "--json")
    sides = (folder / "good.cu", folder / "shifted.cu")
    told = harness.run("compare", "--problem", folder / "p.py", *sides, "--device", "cpu", *files)

    assert told.code == 3, told.stderr
    (row,) = json.loads(told.stdout)["rows"]
    assert (row["change"], row["shape"], row["ratio"], row["regression"]) == ("broken", {"N": 256}, None, True)
    failure = cases(folder / "c.xml")["good -> shifted"].find("failure")
    assert failure is not None and failure.attrib["message"] == "broken in B, PASSED -> WRONG_VALUES"
    assert "256 of 256 elements wrong" in str(failure.text)
    text = (folder / "c.md").read_text()
    assert re.search(r"\| good -> shifted +\|.*\| broken \|", text) and "256 of 256 elements wrong" in text


def written(folder: Path, *cases: ci.TestCase) -> ElementTree.Element:
    parsed = cli.parser().parse_args(["run", "p", "--junit", str(folder / "j.xml")])
    ci.write(parsed, cases, "")
    return ElementTree.parse(folder / "j.xml").getroot()


def test_a_failure_that_does_not_count_is_skipped(tmp_path: Path) -> None:
    lacking = result("wgmma", Status.UNSUPPORTED)
    root = written(tmp_path, *(ci.of_result("p", lacking, failed=failed) for failed in (False, True)))

    assert [[child.tag for child in case] for case in root.iter("testcase")] == [["skipped"], ["failure"]]


def test_each_shape_is_a_test_suite(tmp_path: Path) -> None:
    root = written(tmp_path, *(ci.of_result(name, wrong("k"), failed=True) for name in ("p, N=1", "p, N=1", "p, N=2")))

    assert [suite.attrib["failures"] for suite in root] == ["2", "1"]


def test_a_file_in_no_folder_is_refused_before_anything_runs(typed: Callable[..., Finished], tmp_path: Path) -> None:
    told = typed("matmul_tt", "--junit", tmp_path / "none" / "j.xml")
    assert told.code == 2 and "j.xml cannot be written: name a file in a folder that exists" in told.stderr


def test_a_file_that_cannot_be_written_names_its_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(journal, "replace_text", refuse)
    with pytest.raises(Unwritable, match=r"Read-only file system.*another file with --junit"):
        written(tmp_path, ci.of_result("p", result("k"), failed=False))


def fenced(language: str) -> str:
    found: Any = re.search(rf"```{language}\n(.+?)```", PAGE, re.DOTALL)
    return str(found[1])


def test_the_command_of_the_workflow_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"python harness.py (.+)", fenced("yaml")) + re.findall(r"`python harness.py (.+?)`", PAGE)

    assert len(commands) == 2
    for command in commands:
        assert cli.parser().parse_args(cli.with_verb(shlex.split(command))).markdown == Path("summary.md")
