"""`new` writes a kernel that builds and passes as it stands, for every kind of problem; and refuses what it cannot."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Finished

from kernel_harness import find
from kernel_harness.new import CannotWrite, new
from kernel_harness.new.signature import signature

HERE = ROOT / "tests" / "candidates" / "new"
# Several inputs, a number among them; weights; several outputs in a nest; a helper of the file's own; integers.
KERNELBENCH = sorted(path.stem for path in HERE.glob("*.py"))
IN_CUDA = ["blend", "softmax"]


def problem(name: str) -> find.Problem:
    return find.problem(str(HERE / f"{name}.py"), ROOT)


@pytest.mark.parametrize("name", KERNELBENCH)
def test_what_is_written_passes_as_it_stands(name: str, typed: Callable[..., Finished], tmp_path: Path) -> None:
    kernels = [new(problem(name), "mine", tmp_path)]
    if name in IN_CUDA:
        kernels.append(new(problem(name), "plain", tmp_path, cu=True))
    words = [word for kernel in kernels for word in ("--kernel", kernel)]
    finished = typed("--problem", HERE / f"{name}.py", *words, *judged_briefly(tmp_path), "--json")

    assert finished.code == 0, finished.stdout
    assert {r["status"] for r in finished.results.values()} == {"PASSED"}


def judged_briefly(folder: Path) -> list[str | Path]:
    return ["--device", "cpu", "--rounds", "1", "--results", folder / "results"]


def test_what_is_written_for_a_shipped_problem_passes(typed: Callable[..., Finished], tmp_path: Path) -> None:
    shipped = find.problem("matmul_tt_relu", ROOT)
    kernels = [new(shipped, "mine", tmp_path), new(shipped, "plain.cu", tmp_path)]
    words = [word for kernel in kernels for word in ("--kernel", kernel)]
    finished = typed("--problem", "matmul_tt_relu", *words, *judged_briefly(tmp_path))

    assert finished.code == 0, finished.stdout


def test_it_launches_a_real_kernel(tmp_path: Path) -> None:
    """Else it would pass with nothing of its own running."""
    for cu in (False, True):
        assert "copy_kernel<<<" in new(problem("softmax"), f"mine_{cu}", tmp_path, cu=cu).read_text()


def test_the_inputs_have_the_names_that_the_problem_gives_them(tmp_path: Path) -> None:
    text = new(problem("blend"), "mine", tmp_path).read_text()

    assert "def forward(self, left: torch.Tensor, right: torch.Tensor, weight):" in text
    assert "torch::Tensor run(torch::Tensor left, torch::Tensor right, double weight, torch::Tensor result)" in text
    assert "// left: (6, 40) float32" in text


def test_names_that_cpp_reserves_get_an_underscore(tmp_path: Path) -> None:
    assert "torch::Tensor new_, " in new(problem("nested"), "mine", tmp_path).read_text()


def test_only_what_the_model_needs_is_copied(tmp_path: Path) -> None:
    text = new(problem("linear"), "mine", tmp_path).read_text()

    assert "def activation(" in text and "SLOPE = " in text
    assert "get_inputs" not in text and "BATCH" not in text


def test_nothing_is_computed_to_find_out_what_comes_out() -> None:
    assert tuple(signature(find.problem("matmul_tt", ROOT)).output.shape) == (2048, 4096)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = new(problem("softmax"), "mine", tmp_path)
    before = first.read_text()

    for cu in (False, True):
        with pytest.raises(CannotWrite, match=r"mine\.py is there already"):
            new(problem("softmax"), "mine", tmp_path, cu=cu)
    assert first.read_text() == before


@pytest.mark.parametrize("name", ["", "torch", "a/b", "../up", "_hidden", "torch.compile", "two words"])
def test_a_name_that_no_kernel_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="is no name for a kernel"):
        new(problem("softmax"), name, tmp_path)


@pytest.mark.parametrize(
    ("name", "why"), [("linear", "the reference has weights"), ("nested", "the answer is not one tensor")]
)
def test_a_plain_cu_is_refused_where_it_cannot_answer(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match=f"{why}.*leave --cu out"):
        new(problem(name), "mine", tmp_path, cu=True)
    assert not (tmp_path / "kernels").exists()


def test_the_command_prints_what_to_run_next(tmp_path: Path) -> None:
    """And the command that it prints is one that works: the file is where it looks."""
    folder = tmp_path / "checkout"
    for part in ("kernel_harness", "problems"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "harness.py", folder)
    finished = run_in(folder, "new", "matmul_tt", "mine")

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("kernels/matmul_tt/mine.py is written.")
    assert "python harness.py --problem matmul_tt --kernel mine\n" in finished.stdout
    assert "mine" in run_in(folder, "list").stdout
    assert "is there already" in run_in(folder, "new", "matmul_tt", "mine").stderr


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "harness.py", *words], cwd=folder, capture_output=True, text=True)
