"""Compares the emulated wgmma instructions with MMA-Sim, a model of the GPU's matrix units that is right in every bit.

    pip install mmasim && python tests/emulator/matrix_units.py [--draws N]

For each number format, random matrices are multiplied once by the kernels of tests/emulator/hopper.cu and once by
MMA-Sim's model of an H100, three times on top of each other. The table shows in how many elements both agree in every
bit, and the largest difference as a share of the sum of the products' magnitudes. All must agree.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.emulated_process import exported  # noqa: E402 - found by the path
from support.hopper import BFLOAT16, E4M3, E5M2, HALF, HALF_SUM, TF32  # noqa: E402

# By the number of the kind: its name for MMA-Sim, and the dtype.
KINDS = {
    HALF: ("m64n16k16.f32.f16.f16", torch.float16),
    BFLOAT16: ("m64n16k16.f32.bf16.bf16", torch.bfloat16),
    TF32: ("m64n16k8.f32.tf32.tf32", torch.float32),
    E4M3: ("m64n16k32.f32.e4m3.e4m3", torch.float8_e4m3fn),
    E5M2: ("m64n16k32.f32.e5m2.e5m2", torch.float8_e5m2),
    HALF_SUM: ("m64n16k16.f16.f16.f16", torch.float16),
}
REPEATS = 3  # how often a product is added
Row = tuple[str, float, str, float]
SPREADS = (0.0, 2.0, 6.0)  # standard deviations of the binary logarithms of the magnitudes


def main() -> None:
    """Prints the table. Ends with exit code 1 if an element differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20, help="pairs of matrices for each format and spread")
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)  # a file with inputs: writes MMA-Sim's answers
    options = parser.parse_args()
    if options.model:
        _answer(options.model)
        return
    drawn = {(kind, spread): _drawn(kind, spread, options.draws) for kind in KINDS for spread in SPREADS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "matrices.pt"
        torch.save(drawn, file)
        # A process of its own, because the emulation changes torch's builds, and MMA-Sim builds an extension.
        subprocess.run([sys.executable, __file__, "--model", str(file)], check=True)
        answers = torch.load(file)
    rows = [_row(*key, drawn[key], answers[key]) for key in drawn]
    print(tabulate(rows, ["format", "spread", "equal", "largest difference"]))
    sys.exit(any(row[3] > 0 for row in rows))


def _drawn(kind: int, spread: float, draws: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(kind)
    dtype = KINDS[kind][1]

    def one(rows: int) -> torch.Tensor:
        size = rows, 32 // dtype.itemsize
        scale = torch.exp2(spread * torch.randn(size, generator=generator)).clamp(2**-6, 2**6)
        numbers = (torch.randn(size, generator=generator) * scale).to(dtype)
        # TF32 has 10 bits behind the point; the instruction ignores the others.
        return (numbers.view(torch.int32) & ~0x1FFF).view(torch.float32) if kind == TF32 else numbers

    return [(one(64), one(16)) for _ in range(draws)]


def _answer(file: Path) -> None:
    from mmasim.nv_ptx import WGMMA

    found = {}
    for (kind, spread), pairs in torch.load(file).items():
        name, _ = KINDS[kind]
        unit, sums = WGMMA("Hopper", name), torch.float16 if kind == HALF_SUM else torch.float32
        found[kind, spread] = []
        for a, b in pairs:
            total = torch.zeros(64, 16, dtype=sums)
            for _ in range(REPEATS):
                total = unit(a, b.T, total)
            found[kind, spread].append(total)
    torch.save(found, file)


@functools.cache
def _kernels() -> ModuleType:
    """Returns the emulated products of tests/emulator/hopper.cu."""
    import cuda_on_cpu

    cuda_on_cpu.enable()
    source = (ROOT / "tests" / "emulator" / "hopper.cu").read_text()
    declared = f"{exported('hopper')['product']};"
    found: ModuleType = cuda_on_cpu.load_inline("hopper", declared, source, functions=["product"])
    return found


def _row(kind: int, spread: float, pairs: list[tuple[torch.Tensor, torch.Tensor]], answers: list[torch.Tensor]) -> Row:
    equal, worst, total = 0, 0.0, 0
    for (a, b), answer in zip(pairs, answers, strict=True):
        ours = _kernels().product(a.cuda(), b.cuda(), kind, 16, REPEATS).cpu().double()
        magnitude = REPEATS * a.double().abs() @ b.double().abs().T
        equal += int((ours == answer.double()).sum())
        total += ours.numel()
        worst = max(worst, float(((ours - answer.double()).abs() / magnitude).nan_to_num(0).max()))
    return KINDS[kind][0], spread, f"{equal / total:.2%}", worst


if __name__ == "__main__":
    main()
