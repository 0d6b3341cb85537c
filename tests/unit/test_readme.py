"""The leaderboards in a README: `report` rewrites them between markers, from stored results."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest
from support.command import ROOT

from kernel_harness import cli
from kernel_harness.core.errors import UserError
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


def test_only_the_text_between_the_markers_is_replaced(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    assert readme.rewrite(path, table) == ["a/gpu", "b/cpu"]
    expected = TEXT.replace("\nold\n", "\n\na on gpu\n\n").replace("b/cpu -->\n", "b/cpu -->\n\nb on cpu\n\n")
    assert path.read_text() == expected
    readme.rewrite(path, table)
    assert path.read_text() == expected


def test_a_readme_that_cannot_be_written_is_named_and_unchanged(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as at a full disk
    try:
        with pytest.raises(UserError, match=r"README\.md cannot be written: File too large"):
            readme.rewrite(path, table)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == TEXT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no marker", r"has no marker like <!-- leaderboard matmul_tt/cpu-emulated -->"),
        ("\n<!-- leaderboard a/gpu -->\nold\n", r":2: this marker has no line <!-- end -->"),
        ("<!-- leaderboard a/gpu -->\n<!-- other -->\n<!-- end -->\n", r":1: this marker has no line <!-- end -->"),
    ],
)
def test_a_wrong_marker_is_named_and_the_file_is_unchanged(tmp_path, text, message):
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        readme.rewrite(path, table)
    assert path.read_text() == text


def test_a_marker_without_results_is_named_with_its_line(tmp_path, capsys):
    path = tmp_path / "README.md"
    path.write_text("\n<!-- leaderboard matmul_tt/gpu -->\nold\n<!-- end -->\n")
    assert cli.main(["report", "--readme", str(path)]) == 2
    assert f"{path}:2: there are no results of matmul_tt on gpu" in capsys.readouterr().err
    assert "old" in path.read_text()


def test_the_readme_shows_the_measured_results(tmp_path):
    """Fails when the measured results or the form of the tables changed and the README was not rewritten."""
    copy = Path(shutil.copy(ROOT / "README.md", tmp_path))
    assert cli.main(["report", "--readme", str(copy)]) == 0
    assert copy.read_text() == (ROOT / "README.md").read_text(), "run: python harness.py report --readme README.md"


def test_the_results_folder_can_be_chosen(tmp_path, capsys):
    copy = Path(shutil.copy(ROOT / "README.md", tmp_path))
    assert cli.main(["report", "--readme", str(copy), "--results", str(tmp_path)]) == 2
    assert f"in {tmp_path}; a run on that device stores some" in capsys.readouterr().err
