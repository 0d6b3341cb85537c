"""Both halves of every shipped kernel compile: nvcc takes the CUDA source, for sm_90, and g++ the C++ source.

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
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from torch.utils import cpp_extension

from kernel_harness.build.sources import Sources, from_arguments, signature

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
NAMES = sorted(path.relative_to(KERNELS).as_posix() for path in KERNELS.glob("*/*.py"))
LAUNCHER = r"^cudaError_t (?P<name>\w+)\((?P<parameters>[^)]*)\)"

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


def load_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Sources]:
    """Import a kernel file without building it: return its module and what it gave to load_inline."""
    calls = []
    signature()  # torch's own, before it is replaced

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


def launchers(source: str, end: str) -> dict[str, str]:
    """The launchers that a source declares (`end` is ";") or defines (" {"): name -> parameters on one line."""
    found = re.finditer(LAUNCHER + re.escape(end), source, re.MULTILINE)
    return {launcher["name"]: " ".join(launcher["parameters"].split()) for launcher in found}


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


def nvcc_command() -> list[str | Path]:
    """Return nvcc with load_inline's flags, for sm_90."""
    architecture = "-gencode=arch=compute_90,code=sm_90"
    return ["nvcc", *common_flags(), *cpp_extension.COMMON_NVCC_FLAGS, architecture, "--compiler-options=-fPIC", "-c"]


def cpp_command(stand_ins: Path) -> list[str | Path]:
    """Return the C++ compiler with load_inline's flags; what generating code adds to its checks is not worth it."""
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
    """Return the folder of cuda_runtime.h. nvcc is asked, since what the PATH finds may be a wrapper elsewhere."""
    command = ["nvcc", "--dryrun", "-x", "cu", "-c", os.devnull]
    plan = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    return Path(re.search(r'INCLUDES="-I([^"]+)"', plan)[1])


def write_stand_ins(folder: Path) -> None:
    """Write headers that pass on to the real one where there is one, and else declare the little needed."""
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
    """Return sources by name as one, each in a namespace of its own: torch's headers are read once for all."""
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
    return subprocess.run([*command, file], cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def compilations(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[subprocess.CompletedProcess[str]]]]:
    """Start the compilations that this run asks for, by half and kernel, as many at a time as there are cores.

    C++ halves that include the same headers are one compilation.
    """
    folder = tmp_path_factory.mktemp("halves")
    write_stand_ins(folder / "include")
    commands = {"cuda": nvcc_command(), "cpp": cpp_command(folder / "include")}
    users = [item.callspec.params for item in request.session.items if "compilations" in item.fixturenames]
    units: dict[tuple[str, ...], dict[str, str]] = {}
    futures = {}
    workers = min(4, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers) as pool, pytest.MonkeyPatch.context() as patch:
        for half, name in dict.fromkeys((params["half"], params["name"]) for params in users):
            sources = load_kernel(name, patch)[1]
            text = sources.cuda if half == "cuda" else f"{sources.cpp}\n{sources.bindings}\n"
            unit = (half, name) if half == "cuda" else (half, *includes(text))
            units.setdefault(unit, {})[name] = text
        for number, ((half, *_), texts) in enumerate(units.items()):
            named = {re.sub(r"\W", "_", name): text for name, text in texts.items()}
            file, text = ("cuda.cu", *texts.values()) if half == "cuda" else ("main.cpp", in_one_unit(named))
            compilation = pool.submit(compile_in, folder / str(number), commands[half], file, text)
            futures |= {(half, name): compilation for name in texts}
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
def test_nvcc_reads_no_header_of_torch(name, monkeypatch):
    _, sources = load_kernel(name, monkeypatch)
    assert not sources.implicit_headers
    assert set(re.findall(r"#\s*include\s*(\S+)", sources.cuda)) <= {"<cstdint>", "<cuda_runtime.h>"}


@pytest.mark.parametrize("name", NAMES)
def test_a_launcher_is_declared_for_cpp_as_cuda_defines_it(name, monkeypatch):
    _, sources = load_kernel(name, monkeypatch)
    assert launchers(sources.cpp, ";") == launchers(sources.cuda, " {")


@pytest.mark.parametrize("name", NAMES)
def test_every_launch_is_checked(name, monkeypatch):
    _, sources = load_kernel(name, monkeypatch)
    assert sources.cuda.count("<<<") == sources.cuda.count("return cudaGetLastError();")
    for launcher in launchers(sources.cuda, " {"):
        assert f"C10_CUDA_CHECK({launcher}(" in sources.cpp


def test_extension_names_differ_between_kernels(monkeypatch):
    names = [load_kernel(name, monkeypatch)[1].name for name in NAMES]
    assert len(set(names)) == len(names)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("half", ["cuda", "cpp"])
def test_a_half_compiles_without_a_warning(half, name, compilations):
    result = compilations[half, name].result()
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr, result.stderr
