"""`new` writes a kernel that builds and passes unchanged, for every kind of problem; or refuses with a reason."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import forked_command
from support.command import ROOT, Finished

from kernel_harness.core.errors import UserError
from kernel_harness.problem import lookup
from kernel_harness.scaffold import new
from kernel_harness.scaffold.signature import signature

HERE = ROOT / "tests" / "support" / "candidates" / "new"
# Several inputs, one of them a number; weights; nested outputs; a helper function in the file; integers.
KERNELBENCH = sorted(path.stem for path in HERE.glob("*.py"))
IN_CUDA = ["attention", "blend", "layer_norm", "linear", "pair", "softmax"]


def problem(name: str) -> lookup.Problem:
    return lookup.problem(str(HERE / f"{name}.py"), ROOT)


@pytest.mark.parametrize("name", KERNELBENCH)
@pytest.mark.slow
def test_a_written_file_passes_unchanged(name: str, typed: Callable[..., Finished], tmp_path: Path) -> None:
    """Its name has a space and letters that C++ and old code pages do not have."""
    kernels = [new(problem(name), "mine ëŝ", tmp_path)]
    if name in IN_CUDA:
        kernels.append(new(problem(name), "plain ëŝ", tmp_path, cu=True))
    words = [word for kernel in kernels for word in ("--kernel", kernel)]
    finished = typed("--problem", HERE / f"{name}.py", *words, *judged_briefly(tmp_path), "--json")

    assert finished.code == 0, finished.stdout
    assert {r["status"] for r in finished.results.values()} == {"PASSED"}


def judged_briefly(folder: Path) -> list[str | Path]:
    return ["--device", "cpu", "--rounds", "1", "--results", folder / "results"]


@pytest.mark.slow
def test_a_file_written_for_a_shipped_problem_passes(typed: Callable[..., Finished], tmp_path: Path) -> None:
    shipped = lookup.problem("matmul_tt_relu", ROOT)
    kernels = [new(shipped, "mine", tmp_path), new(shipped, "plain.cu", tmp_path)]
    words = [word for kernel in kernels for word in ("--kernel", kernel)]
    finished = typed("--problem", "matmul_tt_relu", *words, *judged_briefly(tmp_path))

    assert finished.code == 0, finished.stdout


def test_it_launches_a_real_kernel(tmp_path: Path) -> None:
    """Otherwise the file would pass without running a kernel of its own."""
    for cu in (False, True):
        assert "copy_kernel<<<" in new(problem("softmax"), f"mine_{cu}", tmp_path, cu=cu).read_text()


def test_the_inputs_have_the_names_that_the_problem_gives_them(tmp_path: Path) -> None:
    text = new(problem("blend"), "mine", tmp_path).read_text()

    assert "def forward(self, left: torch.Tensor, right: torch.Tensor, weight):" in text
    assert "torch::Tensor run(torch::Tensor left, torch::Tensor right, double weight, torch::Tensor result)" in text
    assert "// left: (6, 40) float32" in text


@pytest.mark.parametrize("cu", [False, True])
def test_the_sizes_with_and_without_a_gpu_are_given(cu: bool, tmp_path: Path) -> None:
    """A run without a GPU takes the reduced sizes, so the file must not suggest that only the full ones are judged."""
    text = new(lookup.problem("matmul_tt", ROOT), "mine", tmp_path, cu=cu).read_text()

    assert "// A: (8192, 2048) float32, without a GPU (256, 48)\n" in text
    assert "// B: (4096, 8192) float32, without a GPU (64, 256)\n" in text


def test_reserved_names_of_cpp_get_an_underscore(tmp_path: Path) -> None:
    assert "torch::Tensor new_, " in new(problem("nested"), "mine", tmp_path).read_text()


def test_only_what_the_model_needs_is_copied(tmp_path: Path) -> None:
    text = new(problem("linear"), "mine", tmp_path).read_text()

    assert "def activation(" in text and "SLOPE = " in text
    assert "get_inputs" not in text and "BATCH" not in text


def test_the_output_s_shape_is_found_without_computing_it() -> None:
    assert tuple(signature(lookup.problem("matmul_tt", ROOT)).output.shape) == (2048, 4096)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = new(problem("softmax"), "mine", tmp_path)
    before = first.read_text()

    for cu in (False, True):
        with pytest.raises(UserError, match=r"mine\.py already exists"):
            new(problem("softmax"), "mine", tmp_path, cu=cu)
    assert first.read_text() == before


@pytest.mark.parametrize("name", ["", "torch", "a/b", "../up", "_hidden", "torch.compile", " space", "space "])
def test_an_invalid_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a valid kernel name"):
        new(problem("softmax"), name, tmp_path)


def test_a_plain_cu_takes_the_weights_after_the_inputs(tmp_path: Path) -> None:
    text = new(problem("linear"), "mine", tmp_path, cu=True).read_text()

    assert "forward(torch::Tensor x, torch::Tensor offset, torch::Tensor linear_weight, torch::Tensor linear_b" in text
    assert "// linear_weight: (3, 7) float32" in text and "at::linear(x, linear_weight, linear_bias)" in text


def test_a_plain_cu_normalizes_over_the_sizes_of_its_input(tmp_path: Path) -> None:
    """The sizes of this problem as numbers would be wrong at the reduced sizes of an emulated run."""
    text = new(problem("layer_norm"), "mine", tmp_path, cu=True).read_text()

    assert "at::layer_norm(x, x.sizes().slice(1), norm_weight, norm_bias)" in text


def test_a_plain_cu_is_refused_if_it_cannot_solve_the_problem(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the output is neither a tensor nor a tuple of tensors.*omit --cu"):
        new(problem("nested"), "mine", tmp_path, cu=True)
    assert not (tmp_path / "kernels").exists()


def test_a_reference_that_fails_is_told_before_a_file_is_written(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text((HERE / "softmax.py").read_text().replace("softmax(", "softmaks("))
    with pytest.raises(UserError, match="the reference fails: AttributeError"):
        new(lookup.problem(str(broken), tmp_path), "mine", tmp_path)
    assert not (tmp_path / "kernels").exists()


@pytest.mark.slow
def test_the_command_prints_what_to_run_next(tmp_path: Path) -> None:
    """The printed command works: the file is in the folder where the command looks."""
    folder = tmp_path / "checkout"
    for part in ("kernel_harness", "cuda_on_cpu", "problems"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "harness.py", folder)
    finished = run_in(folder, "new", "matmul_tt", "mine")

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("Wrote kernels/matmul_tt/mine.py.")
    assert "python harness.py --problem matmul_tt --kernel mine\n" in finished.stdout
    assert "mine" in run_in(folder, "list").stdout
    assert "already exists" in run_in(folder, "new", "matmul_tt", "mine").stderr


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked_command.run(folder / "harness.py", words, folder)
