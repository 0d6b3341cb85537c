"""Kernels of tests/emulator with one mistake each, and the verdict that a GPU gives.

    python -m support.broken_variants LIBRARY NAME

The command prints the verdict on one variant in an extension that was built for the GPU.

Each mistake has the same effect in every run. Races are not among them: the tests of the sanitizer have those.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from . import kernel_modules
from .command import ROOT

FOLDERS = [ROOT / "tests" / "emulator" / name for name in ("kernels", "families")]
WRONG, ERROR, RIGHT = "wrong values", "error", "right"


@dataclass(frozen=True)
class Mistake:
    """A mistake: the text `old`, which occurs once in a kernel's source, becomes `new`. An error's text has `says`."""

    what: str
    old: str
    new: str
    verdict: str = WRONG
    says: str = ""


MISTAKES = {
    "adam_step": Mistake("a correction is left out", "__fsqrt_rn(v / correction2)", "__fsqrt_rn(v)"),
    "argmax_rows": Mistake("half of a warp is left out", "offset = warpSize / 2", "offset = warpSize / 4"),
    "batched_gemm": Mistake("the last tile is left out", "t < (K + TILE - 1) / TILE", "t < K / TILE"),
    "bitonic_sort": Mistake("the last merge is left out", "size <= power", "size < power"),
    "classic_reduction": Mistake("a step is too short", "i += gridSize;", "i += blockSize;"),
    "conv2d_constant": Mistake("the tile is shifted", "x0 = blockIdx.x * TILE_W - R", "x0 = blockIdx.x * TILE_W"),
    "csr_spmv": Mistake("half of a tile is left out", "offset = tile.size() / 2", "offset = tile.size() / 4"),
    "embedding_backward": Mistake(
        # CUDA 13.0 says "invalid argument" on an H200, and the emulator "invalid configuration argument".
        "too many threads in a block",
        "block(32, 4)",
        "block(32, 64)",
        ERROR,
        "argument",
    ),
    "flash_attention": Mistake(
        "more shared memory than was asked for",
        "MaxDynamicSharedMemorySize, sram_size)",
        "MaxDynamicSharedMemorySize, 49152)",
        ERROR,
        "invalid argument",
    ),
    "gemm_cp_async": Mistake("the first tile again and again", "tile * BK + k : 0]", "k : 0]"),
    "group_norm_welford": Mistake("another channel's weight", "first_channel + i / area", "first_channel"),
    "heat_stencil": Mistake("a plane is not passed on", "        below = here;\n", ""),
    "histogram": Mistake("the tail is left out", "threadIdx.x < n % 4", "threadIdx.x < n % 4 - 1"),
    "int4_gemv": Mistake("the same four bits twice", "words[w] >> (8 * j + 4) & 15", "words[w] >> (8 * j) & 15"),
    "layer_norm_vec4": Mistake(
        "a vector access that is not aligned", "*>(row);\n", "*>(row + 1);\n", ERROR, "misaligned address"
    ),
    "max_pool2d": Mistake("the padding is forgotten", "hstart = ph * stride - pad", "hstart = ph * stride"),
    "mma_attention": Mistake("a fragment of other rows", "tile_k[half * 8 + lane % 8]", "tile_k[lane % 8]"),
    "prefix_sum": Mistake("the offset of the next block", "scanned[blockIdx.x - 1]", "scanned[blockIdx.x]"),
    "split_k_gemm": Mistake("parts of the sum are left out", "tile < end; ++tile", "tile < end - 1; ++tile"),
    "swizzled_transpose": Mistake(
        "another swizzle for the load", "tile[place(c4 * 4 + j, r / 4)]", "tile[(c4 * 4 + j) * 8 + r / 4]"
    ),
    "topk_rows": Mistake("half of the lists are left out", "half = THREADS / 2", "half = THREADS / 4"),
}


def variant(name: str) -> ModuleType:
    """The test module of the kernel `name`, whose CUDA source has the mistake."""
    (path,) = (path for folder in FOLDERS for path in folder.glob(f"{name}.py"))
    module, mistake = kernel_modules.load(path), MISTAKES[name]
    assert module.CUDA.count(mistake.old) == 1, f"{name}: {mistake.old!r} does not occur once"
    module.CUDA = module.CUDA.replace(mistake.old, mistake.new)
    return module


def sources() -> tuple[str, str]:
    """Declarations and CUDA source of all variants as one extension."""
    return kernel_modules.together({name: variant(name) for name in MISTAKES})


def verdict(name: str, ops: ModuleType) -> tuple[str, str]:
    """The verdict on the function `name` of the extension `ops`, and the text of the mismatch or of the error."""
    try:
        kernel_modules.check(variant(name), ops)
    except AssertionError as error:
        return WRONG, str(error)
    except RuntimeError as error:
        return ERROR, str(error)
    return RIGHT, ""


def main() -> None:
    """Prints the verdict, and below it the text."""
    library, name = Path(sys.argv[1]), sys.argv[2]
    spec = importlib.util.spec_from_file_location(library.stem, library)
    assert spec and spec.loader
    ops = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ops)
    print(*verdict(name, ops), sep="\n")


if __name__ == "__main__":
    main()
