"""An H100 or H200 computes with the instructions of Hopper what the tests of the emulator expect."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
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


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    source = (ROOT / "tests" / "emulator" / "hopper.cu").read_text()
    declared = [f"{exported('hopper')[name]};" for name in FUNCTIONS]
    folder: Path = tmp_path_factory.mktemp("hopper")
    return cpp_extension.load_inline(
        name="hopper", cpp_sources="\n".join(declared), cuda_sources=source, functions=FUNCTIONS,
        extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"], build_directory=str(folder),
    )  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_hopper(name: str, ops: ModuleType) -> None:
    CHECKS[name](ops)
    torch.cuda.synchronize()
