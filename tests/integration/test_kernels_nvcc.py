"""Both halves of every shipped kernel compile: the CUDA source with nvcc for sm_90, the C++ source with g++."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

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


def in_order_of_headers(halves: dict[str, str]) -> str:
    """All halves in one source, each behind its own headers. Halves that include the same headers are together."""
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    for name, text in halves.items():
        groups.setdefault(tuple(includes(text)), {})[re.sub(r"\W", "_", name)] = text
    return "\n".join(in_one_unit(groups[headers]) for headers in sorted(groups, key=len))


@pytest.fixture(scope="module")
def compilations(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[subprocess.CompletedProcess[str]]]]:
    """Start the compilations of the selected tests, by half and kernel, one for each core at a time.

    All C++ halves share one compilation. In its source, those with fewer headers come first, so that they do not see
    the headers of the others.
    """
    folder = tmp_path_factory.mktemp("halves")
    write_stand_ins(folder / "include")
    for_cpp = cpp_command(folder / "include")
    users = [item.callspec.params for item in request.session.items if "compilations" in item.fixturenames]
    cpp_halves: dict[str, str] = {}
    futures = {}
    workers = min(4, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers) as pool, pytest.MonkeyPatch.context() as patch:
        for half, name in dict.fromkeys((params["half"], params["name"]) for params in users):
            sources = load_kernel(name, patch)[1]
            if half == "cpp":
                cpp_halves[name] = f"{sources.cpp}\n{sources.bindings}\n"
            else:
                place, command = folder / re.sub(r"\W", "_", name), nvcc_command(sources.cuda_cflags)
                futures[half, name] = pool.submit(compile_in, place, command, "cuda.cu", sources.cuda)
        if cpp_halves:
            compilation = pool.submit(compile_in, folder / "cpp", for_cpp, "main.cpp", in_order_of_headers(cpp_halves))
            futures |= {("cpp", name): compilation for name in cpp_halves}
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
