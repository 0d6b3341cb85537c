"""Both halves of every shipped kernel compile: the CUDA source with nvcc for sm_90, the C++ source with g++."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from support.nvcc_compile import (
    KERNELS,
    compile_in,
    cpp_command,
    in_one_unit,
    includes,
    load_kernel,
    nvcc_command,
    write_stand_ins,
)

from kernel_harness.compile import nvcc

NAMES = sorted(path.relative_to(KERNELS).as_posix() for path in KERNELS.glob("*/*.py"))
LAUNCHER = r"^cudaError_t (?P<name>\w+)\((?P<parameters>[^)]*)\)"


def launchers(source: str, end: str) -> dict[str, str]:
    """The launchers that a source declares (`end` is ";") or defines (" {"): name -> parameters on one line."""
    found = re.finditer(LAUNCHER + re.escape(end), source, re.MULTILINE)
    return {launcher["name"]: " ".join(launcher["parameters"].split()) for launcher in found}


@pytest.fixture(scope="module")
def compilations(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[subprocess.CompletedProcess[str]]]]:
    """Start the compilations of the selected tests, by half and kernel, one for each core at a time.

    C++ halves that include the same headers share one compilation.
    """
    folder = tmp_path_factory.mktemp("halves")
    write_stand_ins(folder / "include")
    for_cpp = cpp_command(folder / "include")
    users = [item.callspec.params for item in request.session.items if "compilations" in item.fixturenames]
    units: dict[tuple[str, ...], dict[str, str]] = {}
    for_nvcc: dict[str, list[str | Path]] = {}
    futures = {}
    workers = min(4, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers) as pool, pytest.MonkeyPatch.context() as patch:
        for half, name in dict.fromkeys((params["half"], params["name"]) for params in users):
            sources = load_kernel(name, patch)[1]
            for_nvcc[name] = nvcc_command(sources.cuda_cflags)
            text = sources.cuda if half == "cuda" else f"{sources.cpp}\n{sources.bindings}\n"
            unit = (half, name) if half == "cuda" else (half, *includes(text))
            units.setdefault(unit, {})[name] = text
        for number, ((half, *_), texts) in enumerate(units.items()):
            named = {re.sub(r"\W", "_", name): text for name, text in texts.items()}
            if half == "cuda":
                ((name, text),) = texts.items()
                command, file = for_nvcc[name], "cuda.cu"
            else:
                command, file, text = for_cpp, "main.cpp", in_one_unit(named)
            compilation = pool.submit(compile_in, folder / str(number), command, file, text)
            futures |= {(half, name): compilation for name in texts}
        yield futures
        pool.shutdown(cancel_futures=True)


def test_both_problems_have_the_kernels_that_the_documentation_names():
    expected = {
        "matmul_tt": "naive reduction_per_element coalesced tiled tiled_pretransposed register_tile double_buffered "
        "warp_tiled float64_tensor tf32x3 fp16x3_wgmma cublas_transpose cublas_direct",
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
@pytest.mark.slow
def test_a_half_compiles_without_a_warning(half, name, compilations):
    result = compilations[half, name].result()
    assert result.returncode == 0, result.stderr
    assert "warning" not in result.stderr, result.stderr


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.slow
def test_registers_are_reported_of_a_kernel_for_one_architecture_only(monkeypatch):
    """Its instructions exist on sm_90a, the architecture that its flags name, and not on sm_90."""
    _, sources = load_kernel("matmul_tt/fp16x3_wgmma.py", monkeypatch)
    nvcc.use_toolkit()
    report = nvcc.assembler_report(sources, "sm_90")
    assert len(re.findall(r"Compiling entry function '\w+' for 'sm_90a'", report)) == 2
