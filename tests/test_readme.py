"""The leaderboards in a README: rewritten from stored results, between markers, and never by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import ROOT

from kernel_harness import cli
from kernel_harness.report import readme

TEXT = """# Title
<!-- leaderboard a/gpu -->
old
<!-- end -->
between
<!-- other -->
kept
<!-- end -->
<!-- leaderboard b/cpu -->
<!-- end -->
after
"""


def table(problem: str, device: str) -> str:
    return f"{problem} on {device}"


def test_what_is_between_the_markers_is_replaced_and_nothing_else(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    assert readme.rewrite(path, table) == ["a/gpu", "b/cpu"]
    expected = TEXT.replace("\nold\n", "\n\na on gpu\n\n").replace("b/cpu -->\n", "b/cpu -->\n\nb on cpu\n\n")
    assert path.read_text() == expected
    readme.rewrite(path, table)
    assert path.read_text() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no marker", r"has no marker like <!-- leaderboard matmul_tt/cpu-emulated -->"),
        ("\n<!-- leaderboard a/gpu -->\nold\n", r":2: no line <!-- end --> follows"),
        ("<!-- leaderboard a/gpu -->\n<!-- other -->\n<!-- end -->\n", r":1: no line <!-- end --> follows"),
    ],
)
def test_markers_that_cannot_be_followed_are_named_and_the_file_is_left_alone(tmp_path, text, message):
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(readme.MarkerError, match=message):
        readme.rewrite(path, table)
    assert path.read_text() == text


def test_a_marker_of_something_without_results_is_named_with_its_line(tmp_path, capsys):
    path = tmp_path / "README.md"
    path.write_text("\n<!-- leaderboard matmul_tt/gpu -->\nold\n<!-- end -->\n")
    assert cli.main(["report", "--readme", str(path)]) == 2
    assert f"{path}:2: no results of matmul_tt on gpu" in capsys.readouterr().err
    assert "old" in path.read_text()


def test_the_readme_shows_the_stored_results(tmp_path):
    """Fails where results were measured, or the table's look was changed, and the README was not rewritten."""
    copy = Path(shutil.copy(ROOT / "README.md", tmp_path))
    assert cli.main(["report", "--readme", str(copy)]) == 0
    assert copy.read_text() == (ROOT / "README.md").read_text(), "run: python harness.py report --readme README.md"
