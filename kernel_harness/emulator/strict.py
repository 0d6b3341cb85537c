"""What nvcc says of a source that the emulation takes: `--strict`. Nothing it compiles is kept or run."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from torch.utils import cpp_extension

from kernel_harness.build import bindings, cache, compiler, light, nvcc
from kernel_harness.build.digest import first_error
from kernel_harness.build.errors import BuildFailed, NoCompiler
from kernel_harness.build.sources import Sources

# Headers that torch's own name: one that a CPU build of torch lacks, and some that a slim toolkit leaves out.
_STAND_INS = {
    "c10/cuda/impl/cuda_cmake_macros.h": "#define C10_CUDA_BUILD_SHARED_LIBS",
    "cublasLt.h": "typedef struct cublasLtContext* cublasLtHandle_t;",
    "cusparse.h": "typedef struct cusparseContext* cusparseHandle_t;\n"
    "typedef enum { CUSPARSE_STATUS_SUCCESS } cusparseStatus_t;",
    "cusolver_common.h": "typedef enum { CUSOLVER_STATUS_SUCCESS } cusolverStatus_t;",
    "cusolverDn.h": "typedef struct cusolverDnContext* cusolverDnHandle_t;",
}
# The same for cuBLAS, whose functions a source that names them needs.
_CUBLAS = (
    "typedef struct cublasContext* cublasHandle_t;\ntypedef enum { CUBLAS_STATUS_SUCCESS } cublasStatus_t;\n"
    "typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;"
)
_USES_CUBLAS = re.compile(r"\bcublas(?!Handle_t|Status_t|Operation_t)\w+")
_IMPLICIT = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


def require() -> None:
    """Raises NoCompiler where there is no nvcc to be strict with."""
    if nvcc.toolkit() is None:
        raise NoCompiler(
            "--strict compiles with nvcc, too, and there is none: install a CUDA toolkit and put nvcc on the PATH "
            "(or name its folder in $CUDA_HOME), or leave --strict out."
        )


def key(base: str) -> str:
    """What a library is found by that nvcc has taken, too, from what it is found by otherwise."""
    return cache.key(base=base, toolkit=str(nvcc.toolkit()), code=cache.digest_of(Path(__file__), Path(light.__file__)))


def check(sources: Sources, mark: Callable[[str], str], folder: Path) -> None:
    """Compiles the CUDA half as load_inline has nvcc do it, for sm_90, and leaves nothing in the folder.

    Raises BuildFailed, NoCompiler.
    """
    require()
    if sources.cuda.strip():
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            _compile(sources, mark, Path(inside))


def _compile(sources: Sources, mark: Callable[[str], str], folder: Path) -> None:
    text = (_IMPLICIT if sources.implicit_headers else "") + mark(sources.cuda)
    (folder / "cuda.cu").write_text(text)
    stand_ins = _write_stand_ins(folder, sources.cuda)
    code = sources.cpp + sources.cuda
    attempts: list[list[Path]] = [[stand_ins]]
    if light.serves(code):
        binds_itself = not bindings.serve(code)
        attempts.insert(0, [light.write_headers(folder / "headers", code, binds_itself=binds_itself), stand_ins])
    for number, headers in enumerate(attempts, 1):
        log = _nvcc(sources, folder, headers)
        if not log:
            return
        # What the light headers leave out is looked for in torch's own, as in a real build.
        if number == len(attempts) or not nvcc.WANTS_MORE.search(log):
            raise BuildFailed(f"{first_error(log)}\n(nvcc refuses what the emulation would run)", log)


def _write_stand_ins(folder: Path, code: str) -> Path:
    home = nvcc.toolkit()
    assert home
    missing = {name: text for name, text in _STAND_INS.items() if not (home / "include" / name).exists()}
    if not (home / "include" / "cublas_v2.h").exists():
        if _USES_CUBLAS.search(code):
            raise NoCompiler(f"--strict needs cublas_v2.h for this source, and {home}/include has none.")
        missing["cublas_v2.h"] = _CUBLAS
    for name, text in missing.items():
        path = folder / "stand_ins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#pragma once\n#if __has_include_next(<{name}>)\n#include_next <{name}>\n#else\n{text}\n#endif\n"
        )
    return folder / "stand_ins"


def _nvcc(sources: Sources, folder: Path, headers: Sequence[Path]) -> str:
    """nvcc's words where it fails; empty where it does not."""
    own = list(sources.cuda_cflags)
    target = [] if any("arch" in flag or "gencode" in flag for flag in own) else ["-arch=sm_90"]
    includes = [word for path in headers for word in ("-isystem", str(path))]
    includes += [word for path in sources.include_paths for word in ("-I", path)]
    done = subprocess.run(
        [f"{nvcc.toolkit()}/bin/nvcc", *includes, *(flag for flag in compiler.torch_flags() if flag != "-fPIC"),
         f"-DTORCH_EXTENSION_NAME={sources.name}", *cpp_extension.COMMON_NVCC_FLAGS, *target, *own,
         "-Xptxas", "-O0", "-c", "cuda.cu", "-o", "/dev/null"],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    return done.stdout + done.stderr if done.returncode else ""
