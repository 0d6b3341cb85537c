"""An H100 or H200 computes with the instructions of Hopper what the tests of the emulator expect."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from support import matrix_units
from support.command import ROOT
from support.emulated_process import exported
from support.hopper import CHECKS, FUNCTIONS
from torch.utils import cpp_extension

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine"),
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="the GPU is no Hopper GPU"
    ),
]


def built(stem: str, functions: list[str], folder: Path) -> ModuleType:
    source = (ROOT / "tests" / "emulator" / f"{stem}.cu").read_text()
    declared = [f"{exported(stem)[name]};" for name in functions]
    return cpp_extension.load_inline(
        name=stem, cpp_sources="\n".join(declared), cuda_sources=source, functions=functions,
        extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"], build_directory=str(folder),
    )  # fmt: skip


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built("hopper", FUNCTIONS, tmp_path_factory.mktemp("hopper"))


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return built("matrix_units", matrix_units.FUNCTIONS, tmp_path_factory.mktemp("matrix_units"))


@pytest.mark.parametrize("name", CHECKS)
def test_hopper(name: str, ops: ModuleType) -> None:
    CHECKS[name](ops)
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", matrix_units.CHECKS)
def test_mma_sync_and_wmma(name: str, units: ModuleType) -> None:
    matrix_units.CHECKS[name](units)
    torch.cuda.synchronize()
