"""`--watch`: a saved file is judged again, alone, in the session that is already running."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import ROOT, Harness, Process

from kernel_harness.problem import lookup

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")]

KERNELS = ROOT / "kernels" / "matmul_tt"
SHAPE = "M=8,K=16,N=8"
QUICK = ("--device", "cpu", "--shape", SHAPE, "--quick", "--rounds", "8", "--watch")


@pytest.fixture(scope="module")
def watch_harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """The command that watches, with a results folder of its own."""
    return Harness(tmp_path_factory.mktemp("watch"))


@pytest.fixture(scope="module")
def watched(watch_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, list[Path]]]:
    """A watch over copies of two kernels that has judged both. Each test changes its own copy."""
    folder = tmp_path_factory.mktemp("kernels")
    files = [Path(shutil.copy(KERNELS / f"{name}.py", folder)) for name in ("naive", "tiled")]
    kernels = [word for file in files for word in ("--kernel", str(file))]
    process = watch_harness.start("--problem", "matmul_tt", *kernels, *QUICK)
    until(process, "watching")
    yield process, files
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


def until(process: Process, word: str) -> str:
    """The printed lines up to the first one that contains a word."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return "".join(lines)
    raise AssertionError("".join(lines) + process.communicate()[1])


def test_a_saved_kernel_is_judged_again_and_only_that_one(watched, watch_harness):
    process, (naive, _) = watched
    before = len(watch_harness.journal("matmul_tt"))
    naive.write_text(naive.read_text().replace("sum += ", "sum -= ", 1))
    text = until(process, "watching")
    assert "WRONG_VALUES" in text
    assert {record["kernel"] for record in watch_harness.journal("matmul_tt")[before:]} == {"naive"}


def test_a_build_error_and_its_fix_are_seen_in_one_watch(watched):
    process, (_, tiled) = watched
    right = tiled.read_text()
    tiled.write_text(right.replace("__syncthreads();", "__syncthreads()", 1))
    assert "BUILD_ERROR" in until(process, "watching")
    tiled.write_text(right)
    table = until(process, "watching")
    assert "BUILD_ERROR" not in table and "tiled" in table


def test_a_save_right_after_the_file_was_read_is_judged_too(typed, harness, tmp_path, monkeypatch):
    kernel = Path(shutil.copy(KERNELS / "naive.py", tmp_path))
    text = kernel.read_text()
    read, saves = lookup.kernels, iter([f"{text}# saved\n", *[f"{text}# saved again\n"] * 2])

    def read_then_save(*arguments):
        found = read(*arguments)
        kernel.write_text(next(saves, None) or interrupt())
        return found

    monkeypatch.setattr(lookup, "kernels", read_then_save)
    typed("--problem", "matmul_tt", "--kernel", kernel, *QUICK, "--results", harness.results)

    assert len({record["source_sha256"] for record in harness.journal("matmul_tt") if record["kernel"] == "naive"}) == 3


def interrupt():
    raise KeyboardInterrupt
