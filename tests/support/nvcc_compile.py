"""Compiles sources as load_inline does, with nvcc for sm_90 and with the C++ compiler, and runs nothing.

A CPU build of torch lacks one generated header of c10/cuda, and a slim toolkit lacks the math libraries' headers. Only
in these cases, declarations here replace the missing headers.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from support.command import ROOT
from torch.utils import cpp_extension

from cuda_on_cpu.compile.sources import Sources, from_arguments, signature

KERNELS = ROOT / "kernels"
# A process that a thread starts must not read os.environ meanwhile: pytest changes it before and after each test.
ENVIRONMENT = dict(os.environ)
# The declarations of each header that ATen/cuda, c10/cuda and the shipped kernels use.
STAND_INS = {
    "c10/cuda/impl/cuda_cmake_macros.h": "#define C10_CUDA_BUILD_SHARED_LIBS",
    "cublas_v2.h": """
        typedef struct cublasContext* cublasHandle_t;
        typedef enum { CUBLAS_STATUS_SUCCESS } cublasStatus_t;
        typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
        #define cublasSgemm cublasSgemm_v2
        extern "C" cublasStatus_t cublasSgemm_v2(
            cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
            const float* alpha, const float* A, int lda, const float* B, int ldb, const float* beta, float* C,
            int ldc);
    """,
    "cublasLt.h": "typedef struct cublasLtContext* cublasLtHandle_t;",
    "cusparse.h": """
        typedef struct cusparseContext* cusparseHandle_t;
        typedef enum { CUSPARSE_STATUS_SUCCESS } cusparseStatus_t;
    """,
    "cusolver_common.h": "typedef enum { CUSOLVER_STATUS_SUCCESS } cusolverStatus_t;",
    "cusolverDn.h": "typedef struct cusolverDnContext* cusolverDnHandle_t;",
}


def load_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Sources]:
    """Import a kernel file without building it: return its module and its arguments of load_inline."""
    calls = []
    signature()  # reads torch's own function before it is replaced

    def record(*positional: object, **keywords: object) -> SimpleNamespace:
        calls.append(from_arguments(*positional, **keywords))
        return SimpleNamespace()

    monkeypatch.setattr(cpp_extension, "load_inline", record)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(KERNELS))
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", name), KERNELS / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(calls) == 1
    return module, calls[0]


def common_flags() -> list[str]:
    """Return the flags load_inline passes to both compilers, without the toolkit's include folder."""
    write_build = inspect.getsource(cpp_extension._write_ninja_file_to_build_library)
    includes = [*cpp_extension.include_paths("cpu"), sysconfig.get_path("include")]
    return [
        "-DTORCH_EXTENSION_NAME=kernel",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(part for include in includes for part in ("-isystem", include)),
        re.search(r"-std=c\+\+\d+", write_build).group(),
    ]


def nvcc_command(own: Sequence[str] = ()) -> list[str | Path]:
    """Return nvcc with load_inline's flags and a kernel's own, for sm_90 unless its own name an architecture.

    It ends after device code: the device compiler's front end gives the errors and warnings of host code, too.
    """
    flags = own if any("arch" in flag for flag in own) else ["-gencode=arch=compute_90,code=sm_90", *own]
    return ["nvcc", *common_flags(), *cpp_extension.COMMON_NVCC_FLAGS, *flags, "--compiler-options=-fPIC", "-cubin"]


def cpp_command(stand_ins: Path) -> list[str | Path]:
    """Return the C++ compiler with load_inline's flags. It generates no code, which would find few more errors."""
    includes = [stand_ins, toolkit_include()]
    return [
        cpp_extension.get_cxx_compiler(),
        *common_flags(),
        *(part for include in includes for part in ("-isystem", include)),
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-fsyntax-only",
    ]


def toolkit_include() -> Path:
    """Return the folder of cuda_runtime.h as nvcc reports it. The nvcc on the PATH may be a wrapper elsewhere."""
    command = ["nvcc", "--dryrun", "-x", "cu", "-c", os.devnull]
    plan = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    return Path(re.search(r'INCLUDES="-I([^"]+)"', plan)[1])


def write_stand_ins(folder: Path) -> None:
    """Write headers that include the real header if there is one, and otherwise declare the little that is needed."""
    for name, declarations in STAND_INS.items():
        header = folder / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(
            f"#pragma once\n#if __has_include_next(<{name}>)\n#include_next <{name}>\n"
            f"#else\n{inspect.cleandoc(declarations)}\n#endif\n"
        )


def includes(source: str) -> list[str]:
    return [line for line in source.split("\n") if line.startswith("#include")]


def in_one_unit(sources: Mapping[str, str]) -> str:
    """Return all sources as one, each in its own namespace, so that torch's headers are read once."""
    headers, parts = [], []
    for name, source in sources.items():
        headers += includes(source)
        body = [line for line in source.split("\n") if not line.startswith("#include")]
        macros = {match[1] for line in body if (match := re.match(r"#define (\w+)", line))}
        parts += [
            f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {name}\nnamespace of_{name} {{",
            *body,
            "}",
        ]
        parts += [f"#undef {macro}" for macro in sorted(macros)]
    return "\n".join([*dict.fromkeys(headers), *parts])


def compile_in(folder: Path, command: list[str | Path], file: str, text: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    return subprocess.run([*command, file], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
