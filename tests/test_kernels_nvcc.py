"""Every shipped kernel's CUDA source is compiled by nvcc for sm_90, with the flags that torch would pass.

Nothing runs, so no GPU is needed. A CPU build of torch lacks one generated header of c10/cuda, and a slim
toolkit lacks the math libraries' headers: then, and only then, declarations stand in for what is missing.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from torch.utils import cpp_extension

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
NAMES = sorted(path.relative_to(KERNELS).as_posix() for path in KERNELS.glob("*/*.py"))
LOAD_INLINE_SIGNATURE = inspect.signature(cpp_extension.load_inline)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")

# What each header declares, as far as ATen/cuda and c10/cuda name it and these kernels use it.
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


def load_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, dict[str, object]]:
    """Import a kernel file without building it: return its module and what it gave to load_inline."""
    calls = []

    def record(*positional: object, **keywords: object) -> SimpleNamespace:
        calls.append(LOAD_INLINE_SIGNATURE.bind(*positional, **keywords).arguments)
        return SimpleNamespace()

    monkeypatch.setattr(cpp_extension, "load_inline", record)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(KERNELS))
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", name), KERNELS / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(calls) == 1
    return module, calls[0]


def joined(sources: str | list[str]) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources)


def nvcc_flags(stand_ins: Path) -> list[str]:
    """Return the flags load_inline passes to nvcc, for sm_90."""
    write_build = inspect.getsource(cpp_extension._write_ninja_file_to_build_library)
    standard = re.search(r"-std=c\+\+\d+", write_build).group()
    includes = [*cpp_extension.include_paths("cpu"), sysconfig.get_path("include"), str(stand_ins)]
    return [
        "-DTORCH_EXTENSION_NAME=kernel",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(part for include in includes for part in ("-isystem", include)),
        *cpp_extension.COMMON_NVCC_FLAGS,
        "-gencode=arch=compute_90,code=sm_90",
        "--compiler-options=-fPIC",
        standard,
    ]


def write_stand_ins(folder: Path) -> None:
    """Write headers that pass on to the real one where there is one, and else declare the little needed."""
    for name, declarations in STAND_INS.items():
        header = folder / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(
            f"#pragma once\n#if __has_include_next(<{name}>)\n#include_next <{name}>\n"
            f"#else\n{inspect.cleandoc(declarations)}\n#endif\n"
        )


def compile_source(source: Path, flags: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["nvcc", *flags, "-c", str(source), "-o", str(source.with_suffix(".o"))]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def compilations(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """Start one compilation per kernel that this run asks for, as many at a time as there are cores."""
    folder = tmp_path_factory.mktemp("nvcc")
    write_stand_ins(folder / "include")
    flags = nvcc_flags(folder / "include")
    users = [item for item in request.session.items if "compilations" in item.fixturenames]
    futures = {}
    workers = min(4, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers) as pool, pytest.MonkeyPatch.context() as patch:
        for name in sorted({item.callspec.params["name"] for item in users}):
            source = folder / (re.sub(r"\W", "_", name) + ".cu")
            source.write_text(joined(load_kernel(name, patch)[1]["cuda_sources"]))
            futures[name] = pool.submit(compile_source, source, flags)
        yield futures
        pool.shutdown(cancel_futures=True)


def test_both_problems_have_the_kernels_the_documentation_speaks_of():
    expected = {
        "matmul_tt": "naive reduction_per_element tiled tiled_pretransposed cublas_transpose cublas_direct",
        "matmul_tt_relu": "tiled_relu tiled_then_relu cublas_then_relu",
    }
    for problem, kernels in expected.items():
        assert {f"{problem}/{kernel}.py" for kernel in kernels.split()} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_file_opens_with_its_idea_in_one_sentence(name, monkeypatch):
    first_line = load_kernel(name, monkeypatch)[0].__doc__.splitlines()[0]
    assert first_line.endswith(".")
    assert len(first_line.split()) > 5


@pytest.mark.parametrize("name", NAMES)
def test_a_bound_function_is_declared_for_cpp_and_defined_in_cuda(name, monkeypatch):
    _, arguments = load_kernel(name, monkeypatch)
    for function in arguments["functions"]:
        assert re.search(rf"\b{function}\([^)]*\);", joined(arguments["cpp_sources"]))
        assert re.search(rf"\b{function}\([^)]*\) {{", joined(arguments["cuda_sources"]))


def test_extension_names_differ_between_kernels(monkeypatch):
    names = [load_kernel(name, monkeypatch)[1]["name"] for name in NAMES]
    assert len(set(names)) == len(names)


@needs_nvcc
@pytest.mark.parametrize("name", NAMES)
def test_nvcc_compiles_the_kernel_without_a_warning(name, compilations):
    result = compilations[name].result()
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr, result.stderr
