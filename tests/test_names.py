"""What candidates are called and what they say of themselves, however odd: nobody else's row, and nothing but text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import ROOT, Harness

from kernel_harness import candidate, find
from kernel_harness.builtin import BASELINES
from kernel_harness.cohort import SENTINEL

RIGHT = (ROOT / "tests" / "cheats" / "control_right.py").read_text()
PROBLEM = ROOT / "tests" / "candidates" / "problem" / "product.py"
ODD = ["\x1b[2J", "two\nlines", "a\tb", "a|b", "=1+1", "\u202etxt", os.fsdecode(b"\xff"), "<b>", "-x", "ünï"]


@pytest.mark.parametrize("name", [*BASELINES, SENTINEL])
def test_no_candidate_takes_the_name_of_what_runs_beside_it(name: str, tmp_path: Path) -> None:
    """It would be shown the other's times: the sentinel's are those of a tiny product."""
    path = tmp_path / f"{name}.py"
    path.write_text(RIGHT)

    with pytest.raises(find.NotFound, match="taken"):
        find.kernels([str(path)], "product", ROOT)


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_a_name_is_one_line_that_any_file_can_hold(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(RIGHT)
    read = candidate.read(path)

    assert read.name.isprintable()
    assert read.name.encode()


@pytest.mark.parametrize("title", ["\\x1b]0;mine\\x07", "\\udcff", "\\u202e", "x" * 10_000], ids=ascii)
def test_a_title_is_short_and_moves_no_cursor(title: str, tmp_path: Path) -> None:
    read = candidate.Candidate("a", tmp_path / "a.py", f'"""{title}"""\n{RIGHT}')

    assert read.title.isprintable()
    assert len(read.title) <= 300


def test_odd_names_are_judged_like_others(harness: Harness, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.py" for name in ODD]
    for path in paths:
        path.write_text(RIGHT)
    wanted = [word for path in paths for word in ("--kernel", path)]
    done = harness.run("--problem", PROBLEM, "--device", "cpu", "--rounds", "4", *wanted)

    assert done.code == 0, done.stderr
    assert harness.leaderboard("product").read_text(encoding="utf-8").count("PASSED") == len(ODD) + 1
    assert all(c == "\n" or c.isprintable() for c in done.stdout)
