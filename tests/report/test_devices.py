"""`report --devices`: the results of two GPUs or two machines on one page."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import ROOT
from support.pages import EMULATION, GPU, HOSTILE, SHAPE, keep, timed, wrong

from kernel_harness import cli
from kernel_harness.problem import lookup
from kernel_harness.report import devices
from kernel_harness.results.record import Result
from kernel_harness.timing.intervals import Comparison

H100 = {**GPU, "device": "NVIDIA H100 80GB HBM3"}


def stored(folder: Path, *results: Result, label: str) -> Path:
    return keep(folder / "matmul_tt" / label, *results)


def written(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[Path]:
    assert cli.main(["report", "matmul_tt", "--devices", "--results", str(folder)]) == 0
    return [Path(line) for line in capsys.readouterr().out.splitlines()]


def two(folder: Path) -> Path:
    stored(folder, timed("a", 2.0, environment=H100), wrong("b", environment=H100), label="nvidia-h100")
    return stored(folder, timed("a", 1.0), timed("b", 2.0), timed(HOSTILE, 3.0), label="nvidia-h200").parent


def test_each_kernel_has_its_time_on_each_device_and_their_ratio(tmp_path, capsys):
    (path,) = written(two(tmp_path).parent, capsys)
    assert path == tmp_path / "matmul_tt" / "devices.html"
    text = path.read_text()
    assert "NVIDIA H100 80GB HBM3" in text and "NVIDIA H200" in text and "WRONG_VALUES" in text
    (columns,) = devices.columns(tmp_path / "matmul_tt").values()
    found = devices.cell("a", columns[1], columns[0])
    assert found is not None and found.ratio is not None and found.ratio.low and found.ratio.high
    assert found.versus is Comparison.FASTER and found.ratio.low < found.ratio.estimate < found.ratio.high
    assert found.ratio.estimate == pytest.approx(2, rel=0.02)
    assert f"{found.ratio.estimate:.3g}×" in text


def test_a_kernel_without_two_times_has_no_ratio(tmp_path):
    (columns,) = devices.columns(two(tmp_path)).values()
    for kernel in ("b", HOSTILE):
        cell = devices.cell(kernel, columns[1], columns[0])
        assert cell is not None and cell.ratio is None
    assert devices.cell(HOSTILE, columns[0], columns[0]) is None


def test_texts_from_a_kernel_are_never_markup(tmp_path, capsys):
    (path,) = written(two(tmp_path).parent, capsys)
    text = path.read_text()
    assert "<img" not in text and text.count("<script") == 1 and len(text.encode()) < 400_000


def test_two_machines_with_the_same_gpu_are_told_apart(tmp_path):
    """By their processors if their results are in one folder, and by the names of two folders."""
    machines = [{**GPU, "processor": f"Machine {name} 01234567"} for name in "ab"]
    folder = stored(tmp_path, *(timed("a", 1.0, environment=each) for each in machines), label="nvidia-h200")
    keep(folder.parent / "copied", timed("a", 1.5, environment=machines[0]))
    (columns,) = devices.columns(folder.parent).values()
    assert [one.name for one in columns] == [
        "NVIDIA H200 (copied, Machine a)", "NVIDIA H200 (nvidia-h200, Machine a)",
        "NVIDIA H200 (nvidia-h200, Machine b)",
    ]  # fmt: skip


def test_there_is_a_page_for_each_shape_with_two_devices(tmp_path, capsys):
    other = {**SHAPE, "M": 64}
    stored(tmp_path, timed("a", 2.0, environment=H100), timed("a", 2.0, shape=other), label="nvidia-h100")
    shapes = (SHAPE, other, {"M": 1})
    stored(tmp_path, *(timed("a", 1.0, shape=shape) for shape in shapes), label="nvidia-h200")
    names = [path.name for path in written(tmp_path, capsys)]
    assert names == ["devices.html", "devices-M64-K8192-N4096.html"]


def test_emulated_results_are_no_device(tmp_path, capsys):
    stored(tmp_path, timed("a", 1.0), label="nvidia-h200")
    stored(tmp_path, timed("a", 1.0, environment=EMULATION, emulated=True), label="cpu-emulated")
    assert cli.main(["report", "matmul_tt", "--devices", "--results", str(tmp_path)]) == 2
    assert "no results of two devices at one shape" in capsys.readouterr().err


def test_without_a_problem_s_name_the_problems_with_two_devices_have_pages(tmp_path, capsys):
    two(tmp_path)
    keep(tmp_path / "matmul_tt_relu" / "nvidia-h200", timed("a", 1.0))
    assert cli.main(["report", "--devices", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "matmul_tt" / "devices.html")]
    assert lookup.problem("matmul_tt", ROOT).shape == SHAPE
