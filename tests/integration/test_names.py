"""Odd names and titles of candidates: they take no other row of the leaderboard, and are shown as plain text."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from support.command import ROOT, Harness
from support.product import PROBLEM_FILE, RIGHT

from kernel_harness.core.arms import BASELINES, CONTROL
from kernel_harness.core.errors import NotFound
from kernel_harness.problem import candidate, lookup

ODD = ["\x1b[2J", "two\nlines", "a\tb", "a|b", "=1+1", "\u202etxt", os.fsdecode(b"\xff"), "<b>", "-x", "ünï"]


@pytest.mark.parametrize("name", [*BASELINES, CONTROL])
def test_no_candidate_takes_the_name_of_an_arm(name: str, tmp_path: Path) -> None:
    """It would be shown with the arm's times, and the control's times are those of a tiny product."""
    path = tmp_path / f"{name}.py"
    path.write_text(RIGHT)

    with pytest.raises(NotFound, match="reserved"):
        lookup.kernels([str(path)], "product", ROOT)


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_a_name_is_one_printable_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.py"
    path.write_text(RIGHT)
    read = candidate.read(path)

    assert read.name.isprintable()
    assert read.name.encode()


@pytest.mark.parametrize("title", ["\\x1b]0;mine\\x07", "\\udcff", "\\u202e", "x" * 10_000], ids=ascii)
def test_a_title_is_short_and_has_no_control_characters(title: str, tmp_path: Path) -> None:
    read = candidate.Candidate("a", tmp_path / "a.py", f'"""{title}"""\n{RIGHT}')

    assert read.title.isprintable()
    assert len(read.title) <= 300


def test_the_title_of_a_file_takes_no_memory_for_its_code(tmp_path: Path) -> None:
    read = candidate.Candidate("a", tmp_path / "a.py", '# a\n\n"""\n  The title.\n"""\n' + "a;" * 20_000)
    tracemalloc.start()
    try:
        title = read.title
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert title == "The title."
    assert taken < 2e6


@pytest.mark.parametrize("start", ["x = 1", "b'bytes'", "f'{1}'", "'text'.strip()", '"""no end', "'\\N{x}'", "\0", ""])
def test_a_file_without_a_docstring_has_no_title(start: str, tmp_path: Path) -> None:
    assert candidate.Candidate("a", tmp_path / "a.py", start).title == ""


def test_a_pipe_is_no_kernel_file(tmp_path: Path) -> None:
    """Its reader may wait without end."""
    folder = tmp_path / "kernels" / "product"
    folder.mkdir(parents=True)
    (folder / "right.py").write_text(RIGHT)
    os.mkfifo(folder / "pipe.py")
    (folder / "zeros.cu").symlink_to("/dev/zero")

    assert [each.name for each in lookup.kernels([], "product", tmp_path) if each.path.parent == folder] == ["right"]


def test_a_pattern_may_name_files_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.py", "a.cu", "_helper.py", "notes.txt"):
        (tmp_path / name).write_text(RIGHT)
    monkeypatch.setenv("HOME", str(tmp_path))

    for pattern in (f"{tmp_path}/*", "~/*"):
        assert [each.name for each in lookup.kernels([pattern], "product", ROOT)] == ["a", "b"]
    with pytest.raises(NotFound, match="no kernel"):
        lookup.kernels([f"{tmp_path}/*.cpp"], "product", ROOT)


def test_of_a_very_long_file_only_a_part_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("")
    os.truncate(path, 1 << 30)

    assert 1 << 20 < len(candidate.read(path).source) < 1 << 26


def test_a_text_with_half_a_character_is_judged_like_others() -> None:
    assert lookup.source("# \ud800\nraise ValueError").sha256


@pytest.mark.slow
def test_candidates_with_odd_names_are_judged_like_others(harness: Harness, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.py" for name in ODD]
    for path in paths:
        path.write_text(RIGHT)
    wanted = [word for path in paths for word in ("--kernel", path)]
    done = harness.run("--problem", PROBLEM_FILE, "--device", "cpu", "--rounds", "4", *wanted)

    assert done.code == 0, done.stderr
    assert harness.leaderboard("product").read_text(encoding="utf-8").count("PASSED") == len(ODD) + 1
    assert all(c == "\n" or c.isprintable() for c in done.stdout)


@pytest.mark.slow
def test_a_kernel_whose_file_is_gone_has_no_row(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    kernels = [tmp_path / "kept.py", tmp_path / "gone.py"]
    for path in kernels:
        path.write_text(RIGHT)
    words = ["--problem", PROBLEM_FILE, "--device", "cpu", "--rounds", "1"]
    first = harness.run(*words, "--kernel", kernels[0], "--kernel", kernels[1])
    assert "gone " in first.stdout and "the file is gone" not in first.stdout, first.stderr
    kernels[1].unlink()
    second = harness.run(*words, "--kernel", kernels[0])
    assert "Left out, because the file is gone: gone\n" in second.stdout, second.stderr
    assert "\ngone " not in second.stdout and "gone" not in harness.leaderboard("product").read_text()
