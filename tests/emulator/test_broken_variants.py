"""Kernels with one mistake each get the verdict under emulation that a GPU gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import broken_variants
from support.broken_variants import MISTAKES
from support.command import ROOT
from support.emulated_process import emulated, inside, load_inline  # noqa: F401 - a fixture
from torch.utils import cpp_extension

pytestmark = pytest.mark.slow


# All variants are one extension, because most of a build's time does not depend on the source's length. Its first test
# builds it, and the others find it in the build cache.
@emulated
@pytest.mark.parametrize("name", MISTAKES)
def test_the_emulator_gives_the_verdict_of_a_gpu(name: str) -> None:
    cpp, cuda = broken_variants.sources()
    ops = load_inline(
        Path(broken_variants.__file__), name="broken_variants", cpp_sources=cpp, cuda_sources=cuda,
        functions=list(MISTAKES),
    )  # fmt: skip
    expected(name, *broken_variants.verdict(name, ops))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension with all variants, built for the GPU."""
    cpp, cuda = broken_variants.sources()
    folder = tmp_path_factory.mktemp("variants")
    cpp_extension.load_inline(
        name="broken_variants",
        cpp_sources=cpp,
        cuda_sources=cuda,
        functions=list(MISTAKES),
        build_directory=str(folder),
    )
    return folder / "broken_variants.so"


# An error of a kernel ends the use of the GPU by its process, so each variant has a process of its own.
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_gpu_gives_this_verdict(name: str, library: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "support.broken_variants", str(library), name],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    verdict, _, text = done.stdout.partition("\n")
    expected(name, verdict, text or done.stderr)


def expected(name: str, verdict: str, text: str) -> None:
    mistake = MISTAKES[name]
    assert verdict == mistake.verdict, f"{mistake.what}: {verdict}: {text}"
    assert mistake.says in text, text
