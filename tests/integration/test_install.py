"""The project as a package: what its files declare, and the installed command in a folder without a checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.command import ROOT

import kernel_harness
from kernel_harness.core import paths
from kernel_harness.problem import lookup

NAIVE = (ROOT / "kernels" / "matmul_tt" / "naive.py").read_text()
QUICK = ("--device", "cpu", "--shape", "M=5,K=7,N=3", "--quick", "--rounds", "8", "--json")


# --------------------------------------------------------------------------------------- declarations


def requirements(path: str) -> list[str]:
    lines = (ROOT / path).read_text().splitlines()
    return sorted(line for line in lines if line and not line.startswith(("#", "-r")))


def project() -> dict[str, Any]:
    declared: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return declared


def test_requirements_txt_and_the_package_have_the_same_dependencies() -> None:
    assert requirements("requirements.txt") == sorted(project()["dependencies"])


def test_the_tests_requirements_and_the_extra_have_the_same_dependencies() -> None:
    assert requirements("tests/requirements.txt") == sorted(project()["optional-dependencies"]["test"])


def test_the_citation_and_the_changelog_name_the_current_version() -> None:
    version = re.escape(kernel_harness.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert re.search(rf"^## {version}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


# -------------------------------------------------------------------------------- lookup of both places


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_kernel_of_the_current_folder_comes_before_the_shipped_one_of_its_name(tmp_path: Path) -> None:
    own = [written(tmp_path / "kernels" / "matmul_tt" / name, NAIVE) for name in ("mine.cu", "naive.py")]
    found = lookup.kernel_files("matmul_tt", tmp_path)
    assert found[:2] == own
    assert [path.stem for path in found].count("naive") == 1
    assert ROOT / "kernels" / "matmul_tt" / "tiled.py" in found


def test_a_problem_of_the_current_folder_comes_before_the_shipped_one_of_its_name(tmp_path: Path) -> None:
    shipped = lookup.problem_path("matmul_tt", tmp_path)
    own = written(tmp_path / "problems" / "matmul_tt.py", "")
    written(tmp_path / "problems" / "other.py", "")
    assert shipped == ROOT / "problems" / "matmul_tt.py"
    assert lookup.problem_path("matmul_tt", tmp_path) == own
    assert lookup.problem_names(tmp_path) == ["matmul_tt", "matmul_tt_relu", "other"]


def test_workers_may_read_no_problem_and_no_result_of_either_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("problems", "results"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    hidden = paths.hidden_from_workers()

    assert hidden[:3] == [tmp_path / "problems", ROOT / "problems", tmp_path / "results"]
    assert hidden[3:] == paths.git_folders([ROOT])


def test_the_history_of_a_repository_is_found_from_its_worktrees_and_submodules_too(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "main"
    history = folder / ".git"
    written(history / "worktrees" / "other" / "commondir", "../..\n")
    written(history / "modules" / "sub" / "HEAD", "")
    written(tmp_path / "other" / ".git", f"gitdir: {history}/worktrees/other\n")
    written(folder / "sub" / ".git", "gitdir: ../.git/modules/sub\n")
    (folder / "problems").mkdir()

    assert history in paths.git_folders([folder / "problems"])
    assert history in paths.git_folders([tmp_path / "other"])
    assert history / "modules" / "sub" in paths.git_folders([folder / "sub"])


def test_a_path_of_a_checkout_is_part_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert paths.command() == ["python", "harness.py"]
    monkeypatch.chdir(tmp_path)
    assert paths.command() == ["python", str(ROOT / "harness.py")]


# ---------------------------------------------------------------------------------- the installed command


class Installed:
    """The project installed into a folder of its own, run in another that is empty at first."""

    def __init__(self, folder: Path) -> None:
        self.site, self.here = folder / "site", folder / "here"
        self.here.mkdir()
        # A copy: setuptools leaves its files beside the sources.
        source = folder / "source"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("kernel_harness", "cuda_on_cpu", "problems", "kernels"):
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
        subprocess.run([*pip, "--target", self.site, source], check=True, capture_output=True)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """`kernel-harness` in the folder."""
        environment = {**os.environ, "PYTHONPATH": str(self.site)}
        return subprocess.run(
            [self.site / "bin" / "kernel-harness", *words], cwd=self.here, env=environment, capture_output=True,
            text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def files_of(folder: Path, below: str = "") -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {below + str(path.relative_to(folder)) for path in found}


@pytest.mark.slow
def test_every_file_of_the_package_and_every_shipped_file_is_installed(installed: Installed) -> None:
    expected = files_of(ROOT / "kernel_harness")
    for name in ("problems", "kernels"):
        expected |= files_of(ROOT / name, f"shipped/{name}/")
    assert files_of(installed.site / "kernel_harness") == expected
    assert files_of(installed.site / "cuda_on_cpu") == files_of(ROOT / "cuda_on_cpu")


@pytest.mark.slow
def test_the_installed_command_lists_what_a_checkout_lists(installed: Installed) -> None:
    checkout = subprocess.run(
        [sys.executable, ROOT / "harness.py", "list"], cwd=installed.here, capture_output=True, text=True
    )
    found = installed.run("list", "--results", "none")
    assert (found.stdout, found.returncode) == (checkout.stdout, 0), found.stderr
    assert "tiled_relu" in found.stdout


@pytest.mark.slow
def test_the_installed_command_names_itself_in_its_help(installed: Installed) -> None:
    assert "kernel-harness --problem matmul_tt" in installed.run("--help").stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on the PATH")
def test_a_shipped_kernel_is_judged_in_an_empty_folder_and_its_results_are_kept_there(installed: Installed) -> None:
    finished = installed.run("--problem", "matmul_tt", "--kernel", "naive", *QUICK)
    assert finished.returncode == 0, finished.stderr
    stored = (installed.here / "results" / "matmul_tt" / "cpu-emulated" / "runs.jsonl").read_text().splitlines()
    assert {(r["kernel"], r["status"]) for r in map(json.loads, stored)} == {("naive", "PASSED"), ("torch", "PASSED")}


SPY = """
import torch
from pathlib import Path

from custom_cuda_ops import create_cuda_op

def read(path):
    try:
        return len(Path(path).read_bytes())
    except OSError:
        return 0

raise ValueError("READ" + repr([read(path) for path in {paths!r}]))
"""


@pytest.mark.slow
def test_a_worker_of_the_installed_command_reads_no_problem_and_no_result(installed: Installed) -> None:
    """Those of the current folder and those that are shipped; the shipped helper for kernels can be imported."""
    hidden = [
        written(installed.here / "problems" / "own.py", "secret = 1"),
        written(installed.here / "results" / "own" / "runs.jsonl", "{}"),
        installed.site / "kernel_harness" / "shipped" / "problems" / "matmul_tt.py",
    ]
    visible = installed.site / "kernel_harness" / "shipped" / "kernels" / "matmul_tt" / "naive.py"
    spy = written(installed.here / "spy.py", SPY.format(paths=[str(path) for path in [*hidden, visible]]))
    assert all(path.stat().st_size for path in hidden)

    finished = installed.run("--problem", "matmul_tt", "--kernel", spy, *QUICK)

    (result,) = map(json.loads, finished.stdout.splitlines())
    if result["isolation"].startswith("process"):
        pytest.skip("this machine has no wall for workers")
    assert f"READ[0, 0, 0, {len(NAIVE.encode())}]" in result["reason"], result["reason"]
