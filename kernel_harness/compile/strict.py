"""Checks, if the user passes `--strict`, that nvcc compiles a candidate's source, before the emulator runs it.

The machine code from nvcc is thrown away.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch.utils import cpp_extension

from cuda_on_cpu.compile import bindings, cache, cuda_source, host_compiler, light_headers
from cuda_on_cpu.compile.compiler_log import first_error
from cuda_on_cpu.compile.errors import BuildFailed, NoCompiler
from cuda_on_cpu.compile.sources import Sources, named
from kernel_harness.compile import nvcc

# Stand-ins for missing headers that torch's own headers include. The CPU build of torch lacks the first one, and a
# minimal CUDA toolkit lacks the others.
_STAND_INS = {
    "c10/cuda/impl/cuda_cmake_macros.h": "#define C10_CUDA_BUILD_SHARED_LIBS",
    "cublas_v2.h": "typedef struct cublasContext* cublasHandle_t;\n"
    "typedef enum { CUBLAS_STATUS_SUCCESS } cublasStatus_t;\n"
    "typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;",
    "cublasLt.h": "typedef struct cublasLtContext* cublasLtHandle_t;",
    "cusparse.h": "typedef struct cusparseContext* cusparseHandle_t;\n"
    "typedef enum { CUSPARSE_STATUS_SUCCESS } cusparseStatus_t;",
    "cusolver_common.h": "typedef enum { CUSOLVER_STATUS_SUCCESS } cusolverStatus_t;",
    "cusolverDn.h": "typedef struct cusolverDnContext* cusolverDnHandle_t;",
}
# Names that only the real header declares: a source that uses one of them needs that header.
_NEEDS = {
    "cublas_v2.h": re.compile(r"\bcublas(?!Lt|Handle_t|Status_t|Operation_t)\w+"),
    "cublasLt.h": re.compile(r"\bcublasLt(?!Handle_t)\w+"),
    "cusparse.h": re.compile(r"\bcusparse(?!Handle_t|Status_t)\w+"),
    "cusolverDn.h": re.compile(r"\bcusolver(?!DnHandle_t|Status_t)\w+"),
}
_IMPLICIT = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


def require() -> None:
    """Raises NoCompiler if this machine has no nvcc."""
    if nvcc.toolkit() is None:
        raise NoCompiler(
            "--strict needs nvcc, and no nvcc was found. Install a CUDA toolkit and put nvcc on the PATH (or set "
            "$CUDA_HOME to the toolkit's folder), or run without --strict."
        )


def key(base: str) -> str:
    """Returns the cache key of a candidate's library that is built with `--strict`: nvcc must accept its source.

    `base` is the cache key of the same library without `--strict`.
    """
    code = (Path(module) for module in (__file__, light_headers.__file__, cuda_source.__file__))
    return cache.key(base=base, nvcc=nvcc.identity(), code=cache.digest_of(*code))


def check(sources: Sources, folder: Path) -> None:
    """Checks that nvcc compiles the CUDA source in `sources`, if there is one, with flags like those of load_inline.

    The target is sm_90 unless the candidate's own flags name another one. The file strict.d in `folder` lists the files
    that nvcc has read; other files are temporary. Raises BuildFailed if nvcc rejects the source. Raises NoCompiler if
    this machine lacks nvcc, or if the toolkit lacks a header that the source needs, which is no mistake of the source.
    """
    require()
    if sources.cuda.strip():
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            _compile(sources, Path(inside))


def _compile(sources: Sources, folder: Path) -> None:
    text = (_IMPLICIT if sources.implicit_headers else "") + named(sources.cuda, sources.cuda_file)
    (folder / "cuda.cu").write_text(text, encoding="utf-8")
    stand_ins = _write_stand_ins(folder)
    code = sources.cpp + sources.cuda
    attempts: list[list[Path]] = [[stand_ins]]
    if light_headers.serve(code) and light_headers.replace_headers_of(sources):
        binds_itself = not bindings.serve(code)
        attempts.insert(
            0, [light_headers.write_headers(folder / "headers", code, binds_itself=binds_itself), stand_ins]
        )
    for headers in attempts:  # a source that fails with the light headers may compile with torch's own
        log = _nvcc(sources, folder, headers)
        if not log:
            return
    if lacking := _lacking(sources.cuda, log):
        raise lacking
    message = f"{first_error(log)}\n(nvcc rejects this source. Without --strict, the emulator would run it.)"
    raise BuildFailed(message, log)


def _lacking(code: str, log: str) -> NoCompiler | None:
    """Returns the error for a header of the CUDA toolkit whose absence may be why nvcc rejects the source `code`.

    `log` is nvcc's output. Returns None if the toolkit lacks nothing that the source needs.
    """
    include = Path(f"{nvcc.toolkit()}") / "include"
    named_in = cuda_source.code_only(code)
    used = (name for name, pattern in _NEEDS.items() if not (include / name).exists() and pattern.search(named_in))
    return nvcc.library_missing(log) or next(map(nvcc.lacks, used), None)


def _write_stand_ins(folder: Path) -> Path:
    home = nvcc.toolkit()
    assert home
    missing = {name: text for name, text in _STAND_INS.items() if not (home / "include" / name).exists()}
    for name, text in missing.items():
        path = folder / "stand_ins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#pragma once\n#if __has_include_next(<{name}>)\n#include_next <{name}>\n#else\n{text}\n#endif\n"
        )
    return folder / "stand_ins"


def _nvcc(sources: Sources, folder: Path, headers: Sequence[Path]) -> str:
    """Runs nvcc on the file cuda.cu in `folder`. Returns nvcc's output if nvcc fails, else an empty text.

    `headers` are folders in which nvcc searches for headers first. nvcc writes strict.d into the parent of `folder`.
    """
    own = list(sources.cuda_cflags)
    target = [] if any("arch" in flag or "gencode" in flag for flag in own) else ["-arch=sm_90"]
    includes = [word for path in headers for word in ("-isystem", str(path))]
    includes += [word for path in sources.include_paths for word in ("-I", path)]
    done = subprocess.run(
        [f"{nvcc.toolkit()}/bin/nvcc", *includes, *(flag for flag in host_compiler.torch_flags() if flag != "-fPIC"),
         f"-DTORCH_EXTENSION_NAME={sources.name}", *cpp_extension.COMMON_NVCC_FLAGS, *target, *own,
         "-Xptxas", "-O0", "-MD", "-MF", "../strict.d", "-c", "cuda.cu", "-o", "/dev/null"],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    return done.stdout + done.stderr if done.returncode else ""
