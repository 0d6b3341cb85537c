"""A run at several shapes: one table, the files of each shape, one run to compare, and an interrupt."""

from __future__ import annotations

import csv
import re
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.command import Finished, Harness, Process, finished, until, whole_lines

pytestmark = pytest.mark.slow
PROBLEM = """
import torch

N, K = 256, 2

class Model(torch.nn.Module):
    def forward(self, x):
        return K * x

def get_inputs():
    return [torch.randn(N, K)]
"""
SOURCE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        {line}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "p.py").write_text(PROBLEM)
    (folder / "good.py").write_text(SOURCE.format(line="return x + x"))
    (folder / "small.py").write_text(SOURCE.format(line="return x + x if len(x) < 400 else x"))
    return folder


def start(folder: Path, harness: Harness, *more: str | Path) -> Process:
    kernels = ("--kernel", folder / "good.py", "--kernel", folder / "small.py")
    return harness.start("--problem", folder / "p.py", *kernels, "--device", "cpu", "--quick", *more)


@pytest.fixture(scope="module")
def harness(folder: Path) -> Harness:
    return Harness(folder)


@pytest.fixture(scope="module")
def ran(folder: Path, harness: Harness) -> Finished:
    files = ("--junit", folder / "j.xml", "--markdown", folder / "m.md")
    return finished(start(folder, harness, "--shape", "N=256..512:x2", "--shape", "N=300", "--shape", "N=256", *files))


def test_one_table_has_every_shape_beside_the_baseline(ran: Finished) -> None:
    assert ran.code == 1, ran.stderr
    rows = re.findall(r"^(N=\d+) +(\w+) +(\w+)", ran.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == [text for text in ("N=256", "N=512", "N=300") for _ in range(3)]
    assert {row for row in rows if row[1] != "torch"} == {
        ("N=256", "good", "PASSED"), ("N=512", "good", "PASSED"), ("N=300", "good", "PASSED"),
        ("N=256", "small", "PASSED"), ("N=512", "small", "WRONG_VALUES"), ("N=300", "small", "PASSED"),
    }  # fmt: skip
    assert "p, K=2\n" in ran.stdout and ran.stdout.count("small: WRONG_VALUES.") == 1


def test_each_shape_has_its_files(folder: Path, harness: Harness, ran: Finished) -> None:
    for name, shape in (("leaderboard", 256), ("leaderboard-N512-K2", 512), ("leaderboard-N300-K2", 300)):
        path = harness.leaderboard("p").with_name(f"{name}.csv")
        assert str(path) in ran.stdout
        with path.open() as file:
            assert {row["kernel"] for row in csv.DictReader(file)} == {"good", "small", "torch"}, shape
    suites = [suite.attrib for suite in ElementTree.parse(folder / "j.xml").getroot()]
    assert [(suite["name"], suite["tests"], suite["failures"]) for suite in suites] == [
        ("p, N=256,K=2", "2", "0"), ("p, N=512,K=2", "2", "1"), ("p, N=300,K=2", "2", "0"),
    ]  # fmt: skip
    assert (folder / "m.md").read_text().count("# p, N=") == 3


def test_two_sweeps_are_compared_at_each_shape(folder: Path, harness: Harness, ran: Finished) -> None:
    assert len({line["run"] for line in harness.journal("p")}) == 1
    again = finished(start(folder, harness, "--shape", "N=256..512:+256"))
    assert again.code == 1
    told = harness.run("compare", "--problem", folder / "p.py", "previous", "latest")
    assert re.findall(r"^(\w+ at N=\d+),K=2  ", told.stdout, re.MULTILINE) == [
        "good at N=256", "small at N=256", "good at N=512", "small at N=512",
    ]  # fmt: skip
    assert told.stdout.count("compares speedups over the baseline") == 1


def test_an_interrupted_sweep_shows_what_was_judged(folder: Path, tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    process = start(folder, harness, "--shape", "N=256..4096:x2")
    until(
        lambda: {line["shape"]["N"] for line in whole_lines(harness.runs("p"))} > {256, 512},
        "the third shape is judged",
    )
    process.send_signal(signal.SIGINT)
    told = finished(process)
    assert told.code == 130 and re.search(r"Interrupted: shape [3-5] of 5: \d of 2 judged", told.stderr)
    assert re.search(r"^N=256 +good +PASSED", told.stdout, re.MULTILINE) and "N=4096" not in told.stdout
