"""Compares the emulated matrix units with MMA-Sim, a model of the GPU's matrix units that is right in every bit.

    pip install mmasim && python tests/emulator/matrix_units.py [--draws N]

For each number format, random matrices are multiplied once by the kernels of tests/emulator/hopper.cu (wgmma) and
matrix_units.cu (mma.sync and wmma), and once by MMA-Sim's model of an H100, three times on top of each other. MMA-Sim
has no mma.sync with FP8 for this GPU, because nvcc makes two products of halves of it. The table shows in how many
elements both agree in every bit, and the largest difference as a share of the sum of the products' magnitudes. All must
agree.
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

from support import matrix_units as warp  # noqa: E402
from support.emulated_process import exported  # noqa: E402 - found by the path
from support.hopper import BFLOAT16, E4M3, E5M2, HALF, HALF_SUM, TF32  # noqa: E402

# By the number of the kind in hopper.cu: its name for MMA-Sim, and the dtype.
KINDS = {
    HALF: ("m64n16k16.f32.f16.f16", torch.float16),
    BFLOAT16: ("m64n16k16.f32.bf16.bf16", torch.bfloat16),
    TF32: ("m64n16k8.f32.tf32.tf32", torch.float32),
    E4M3: ("m64n16k32.f32.e4m3.e4m3", torch.float8_e4m3fn),
    E5M2: ("m64n16k32.f32.e5m2.e5m2", torch.float8_e5m2),
    HALF_SUM: ("m64n16k16.f16.f16.f16", torch.float16),
}
# By the number of the kind in matrix_units.cu.
OF_WARP = {
    warp.HALF: "m16n8k16.f32.f16.f16.f32", warp.BFLOAT16: "m16n8k16.f32.bf16.bf16.f32",
    warp.TF32: "m16n8k8.f32.tf32.tf32.f32", warp.HALF_SUM: "m16n8k16.f16.f16.f16.f16",
    warp.HALF_8: "m16n8k8.f32.f16.f16.f32", warp.TF32_4: "m16n8k4.f32.tf32.tf32.f32",
    warp.E4M3: "m16n8k32.f32.e4m3.e4m3.f32", warp.E5M2: "m16n8k32.f32.e5m2.e5m2.f32",
    warp.E4M3_HALF_SUM: "m16n8k32.f16.e4m3.e4m3.f16",
}  # fmt: skip
CALLS = [
    *(("product", kind) for kind in KINDS),
    *(("mma", kind) for kind in OF_WARP),
    *(("wmma_product", kind) for kind in (warp.HALF, warp.BFLOAT16, warp.TF32)),
]
REPEATS = 3  # how often a product is added
Pairs = list[tuple[torch.Tensor, torch.Tensor]]
Row = tuple[str, str, float, str, float]
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
    drawn = {(*call, spread): _drawn(*call, spread, options.draws) for call in CALLS for spread in SPREADS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "matrices.pt"
        torch.save(drawn, file)
        # A process of its own, because the emulation changes torch's builds, and MMA-Sim builds an extension.
        subprocess.run([sys.executable, __file__, "--model", str(file)], check=True)
        answers = torch.load(file)
    rows = [_row(*key, drawn[key], answers[key]) for key in drawn]
    print(tabulate(rows, ["function", "format", "spread", "equal", "largest difference"]))
    sys.exit(any(row[4] > 0 for row in rows))


def _drawn(function: str, kind: int, spread: float, draws: int) -> Pairs:
    generator = torch.Generator().manual_seed(kind)
    of_warp = function != "product"
    dtype = warp.DTYPES.get(kind, torch.float16) if of_warp else KINDS[kind][1]
    depth = warp.depth(kind) if of_warp else 32 // dtype.itemsize

    def one(rows: int) -> torch.Tensor:
        scale = torch.exp2(spread * torch.randn((rows, depth), generator=generator)).clamp(2**-6, 2**6)
        numbers = (torch.randn((rows, depth), generator=generator) * scale).to(dtype)
        # TF32 has 10 bits behind the point; the instruction ignores the others.
        return (numbers.view(torch.int32) & ~0x1FFF).view(torch.float32) if dtype == torch.float32 else numbers

    rows, columns = {"product": (64, 16), "mma": (16, 8), "wmma_product": (16, 16)}[function]
    return [(one(rows), one(columns)) for _ in range(draws)]


def _answer(file: Path) -> None:
    found = {}
    for (function, kind, spread), pairs in torch.load(file).items():
        found[function, kind, spread] = []
        for a, b in pairs:
            total = torch.zeros(len(a), len(b))
            for _ in range(REPEATS):
                total = _added(function, kind, a, b, total)
            found[function, kind, spread].append(total)
    torch.save(found, file)


def _added(function: str, kind: int, a: torch.Tensor, b: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Returns the sums after one instruction of the source, by MMA-Sim, as float32."""
    from mmasim.nv_ptx import MMA, WGMMA

    if function == "product":
        return WGMMA("Hopper", KINDS[kind][0])(a, b.T, total.half() if kind == HALF_SUM else total).float()
    if function == "wmma_product":  # instructions of eight columns, and for TF32 of four k (SASS of nvcc 13.0)
        single, depth = (warp.TF32_4, 4) if kind == warp.TF32 else (kind, 16)
        return torch.cat([_in_steps(single, depth, a, b[n : n + 8], total[:, n : n + 8]) for n in (0, 8)], 1)
    halves = kind in (warp.HALF_SUM, warp.E4M3_HALF_SUM)
    start = total.half() if halves else total
    if a.dtype.itemsize > 1:
        return MMA("Hopper", OF_WARP[kind])(a, b.T, start).float()
    k, sums = torch.arange(32), torch.zeros_like(start)
    unit = MMA("Hopper", OF_WARP[warp.HALF_SUM if halves else warp.HALF])
    for part in (k % 4 < 2, k % 4 >= 2):
        sums = unit(a.half()[:, part], b.half()[:, part].T, sums)
    return (start + sums).float()


def _in_steps(kind: int, depth: int, a: torch.Tensor, b: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    for k in range(0, a.shape[1], depth):
        total = _added("mma", kind, a[:, k : k + depth].contiguous(), b[:, k : k + depth].contiguous(), total)
    return total


@functools.cache
def _kernels(stem: str, functions: tuple[str, ...]) -> ModuleType:
    """Returns emulated products of tests/emulator."""
    import cuda_on_cpu

    cuda_on_cpu.enable()
    source = (ROOT / "tests" / "emulator" / f"{stem}.cu").read_text()
    declared = "".join(f"{exported(stem)[name]};" for name in functions)
    found: ModuleType = cuda_on_cpu.load_inline(stem, declared, source, functions=list(functions))
    return found


def _ours(function: str, kind: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if function == "product":
        return _kernels("hopper", ("product",)).product(a.cuda(), b.cuda(), kind, 16, REPEATS).cpu()
    sums = torch.zeros(len(a), len(b), device="cuda")
    getattr(_kernels("matrix_units", tuple(warp.FUNCTIONS)), function)(a.cuda(), b.cuda(), sums, kind, REPEATS)
    return sums.cpu()


def _row(function: str, kind: int, spread: float, pairs: Pairs, answers: list[torch.Tensor]) -> Row:
    equal, worst, total = 0, 0.0, 0
    for (a, b), answer in zip(pairs, answers, strict=True):
        ours = _ours(function, kind, a, b).double()
        magnitude = REPEATS * a.double().abs() @ b.double().abs().T
        equal += int((ours == answer.double()).sum())
        total += ours.numel()
        worst = max(worst, float(((ours - answer.double()).abs() / magnitude).nan_to_num(0).max()))
    name = KINDS[kind][0] if function == "product" else OF_WARP[kind]
    return function, name, spread, f"{equal / total:.2%}", worst


if __name__ == "__main__":
    main()
