"""The stored profile of a kernel on the page: its bars, its sentences, and when it is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.command import ROOT
from support.pages import SHAPE, keep, timed

from kernel_harness import report
from kernel_harness.problem import lookup
from kernel_harness.results.line_profile import LineCosts, StoredProfile, stored

KERNEL = timed("tiled", 2.0)
LINES = (
    LineCosts(7, "sum += A[k * M + m] & B[k]", 4000.0, 3500.0, 0.0, 0.0),
    LineCosts(9, "tile[x][y] = 1", 0.0, 0.0, 310.0, 12.0),
)
PROFILE = StoredProfile("tiled", KERNEL.source_sha256, {"M": 48}, True, ("line 7: too many sectors (80%).",), LINES)


def page(folder: Path, profile: StoredProfile) -> str:
    results = keep(folder / "matmul_tt" / "nvidia-h200", KERNEL)
    profile.write(folder / "matmul_tt" / "cpu-emulated" / "profiles")
    (path,) = report.write(lookup.problem("matmul_tt", ROOT), results, ROOT)
    return path.read_text()


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    PROFILE.write(tmp_path)
    assert stored(tmp_path) == {"tiled": PROFILE}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kernel": 3}'])
def test_a_broken_profile_is_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "tiled.lines.json").write_text(content)
    assert stored(tmp_path) == {}


def test_the_page_shows_each_line_with_bars_and_the_causes(tmp_path: Path) -> None:
    text = page(tmp_path, PROFILE)
    assert "<li>line 7: too many sectors (80%).</li>" in text
    assert '<meter min="0" max="4000.0" value="4000.0">' in text
    assert '<meter min="0" max="310.0" value="310.0">' in text
    assert "sum += A[k * M + m] &amp; B[k]" in text
    assert "from a sample of the warps, at M = 48" in text
    assert "Nothing here was measured on a GPU" in text


def test_a_profile_of_another_source_is_not_shown(tmp_path: Path) -> None:
    assert "<meter" not in page(tmp_path, replace(PROFILE, source_sha256="other"))


def test_a_page_at_this_shape_without_a_profile_has_no_bars(tmp_path: Path) -> None:
    results = keep(tmp_path / "matmul_tt" / "nvidia-h200", KERNEL)
    (path,) = report.write(lookup.problem("matmul_tt", ROOT), results, ROOT)
    assert "<meter" not in path.read_text() and dict(KERNEL.shape) == dict(SHAPE)
