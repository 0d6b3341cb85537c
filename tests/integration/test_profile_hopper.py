"""The verb `profile` of kernels with bulk copies, TMA, clusters and wgmma: counts worked out by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import shipped_kernels
from support.command import ROOT
from support.emulated_process import SOURCES, exported

from kernel_harness.core.terminal import Terminal
from kernel_harness.diagnostics import profile
from kernel_harness.diagnostics.profile import lines
from kernel_harness.diagnostics.profile.accesses import Recorded, Units
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate, read
from kernel_harness.workers.fork_server import ForkServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("addr2line"), reason="needs binutils beside g++")]
PROBLEM = ROOT / "tests" / "support" / "candidates" / "new" / "softmax.py"
CANDIDATE = """
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''{cuda}'''
ops = load_inline("mistakes", {cpp!r}, CUDA, functions={functions!r})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        halves = [torch.zeros(6, n, dtype=torch.half, device="cuda") for n in (1024, 256)]
        return ops.boxes(torch.zeros(40, 32, device="cuda"), 0), ops.ring(*halves, 0)
"""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


def of(recorded: list[Recorded], kernel: str) -> tuple[Units, ...]:
    (only,) = [each for each in recorded if each.launch.kernel.startswith(kernel)]
    assert all(paragraph in lines.paragraphs([only], Terminal()) for paragraph in lines._of_units(only.units))
    return only.units


def test_fp16x3_wgmma_in_clusters_of_two(fork_server: ForkServer) -> None:
    """M = 256, N = 128 and K = 256 are two blocks, one cluster, and four stages of 64 k.

    For each stage, a block copies its tile of A (128 x 64 pairs of halves: 32 KiB) and its half of the tile of B, which
    goes to both blocks. Each of its two warpgroups multiplies 64 x 128 x 16 three times for each 16 k.
    """
    problem = lookup.problem("matmul_tt", ROOT).sized({"M": 256, "K": 256, "N": 128}, emulated=True)
    kernel = read(shipped_kernels.KERNELS / "matmul_tt" / "fp16x3_wgmma.py")
    units = of(profile.counted(problem, kernel, fork_server, lambda text: None)[2], "multiply_kernel")
    counts = [(u.copies, u.read, u.written, u.products, u.operations) for u in units]
    products = 2 * 2 * 4 * (64 // 16) * 3
    assert counts == [
        (2 * 4, 2 * 4 * 32 * 1024, 0, 0, 0),
        (2 * 4, 2 * 4 * 16 * 1024, 0, 0, 0),
        (0, 0, 0, products, products * 2 * 64 * 128 * 16),
    ]


def test_boxes_at_the_end_of_a_tensor_and_a_ring_of_bulk_copies(fork_server: ForkServer) -> None:
    """Three boxes of 16 rows of 32 floats read and write 40 rows. The ring has six steps of 2048 + 512 bytes."""
    functions = exported("hopper_mistakes")
    cpp, cuda = "".join(f"{each};\n" for each in functions.values()), (SOURCES / "hopper_mistakes.cu").read_text()
    text = CANDIDATE.format(cuda=cuda, cpp=cpp, functions=list(functions))
    candidate = Candidate("mistakes", Path("mistakes.py"), text)
    problem = lookup.problem(str(PROBLEM), ROOT)
    recorded = profile.counted(problem, candidate, fork_server, lambda text: None)[2]
    boxes, ring = of(recorded, "boxes_kernel"), of(recorded, "ring_kernel")
    assert [(u.copies, u.read, u.written) for u in boxes] == [(3, 40 * 128, 0), (3, 0, 40 * 128)]
    assert [(u.copies, u.read, u.products, u.operations) for u in ring] == [
        (12, 6 * (2048 + 512), 0, 0),
        (0, 0, 6, 6 * 2 * 64 * 16 * 16),
    ]
    assert all("asm volatile" in each.text or "wgmma" in each.text for each in (*boxes, *ring))
