"""Programs that use torch.utils.cpp_extension and device="cuda" run under `python -m cuda_on_cpu`, unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import ROOT

TWICE = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  twice<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
extension = load_inline("twice_of_a_program", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])
'''
SCRIPT = (
    TWICE
    + """
import sys
x = torch.randn(1000, device="cuda")
assert torch.equal(extension.run(x), 2 * x)
print(x.device, sys.argv, __name__)
"""
)
TESTS = (
    TWICE
    + """
def test_right():
    assert torch.cuda.is_available()
    x = torch.ones(300, device="cuda")
    assert torch.equal(extension.run(x), x + x)

def test_wrong():
    assert extension.run(torch.ones(1, device="cuda")).item() == 3
"""
)
# An extension of several files: a header launches a kernel with dynamic shared memory and an extended lambda.
FILES = {
    "shift.cuh": """#pragma once
template <class Change>
__global__ void shift(float* x, int n, Change change) {
  extern __shared__ float kept[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  kept[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) x[i] = change(kept[threadIdx.x]);
}
inline void launch(float* x, int n) {
  shift<<<(n + 63) / 64, 64, 64 * sizeof(float)>>>(x, n, [] __device__(float value) { return value + STEP; });
}
""",
    "shift.cu": '#include "shift.cuh"\nvoid shift_on_device(float* x, int n) { launch(x, n); }\n',
    "bound.cpp": """#include <torch/extension.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
void shift_on_device(float* x, int n);
void shift(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(x.device());
  TORCH_CHECK(c10::cuda::MaybeSetDevice(x.get_device()) == cudaSuccess && c10::cuda::ExchangeDevice(0) == 0);
  shift_on_device(x.data_ptr<float>(), x.numel());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("shift", &shift); }
""",
}
LOAD = """
import torch
from torch.utils.cpp_extension import load
extension = load("shift_of_files", ["bound.cpp", "shift.cu"], extra_cuda_cflags=["-DSTEP=3", "--extended-lambda"])
x = torch.zeros(100, device="cuda")
extension.shift(x)
print(x.unique().tolist())
"""
SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
flags = {"cxx": ["-O3"], "nvcc": ["-O3", "-DSTEP=4", "--use_fast_math", "--expt-extended-lambda"]}
extension = CUDAExtension("shift_of_setup", ["bound.cpp", "shift.cu"], extra_compile_args=flags)
setup(name="shift_of_setup", ext_modules=[extension], cmdclass={"build_ext": BuildExtension})
"""
USES_SETUP = """
import torch, shift_of_setup
x = torch.zeros(100, device="cuda")
shift_of_setup.shift(x)
print(x.unique().tolist())
"""

# Compiles a file of C++ and one of C as older versions of setuptools do: both with the C compiler.
USES_CC = """
import shlex, subprocess, sysconfig
for file in ("wrong.cpp", "right.c"):
    subprocess.run([*shlex.split(sysconfig.get_config_var("CC")), "-c", file, "-o", "built.o"])
"""
ASKS_NVCC = """
import subprocess
from torch.utils.cpp_extension import CUDA_HOME
for option in ("-V", "--version"):
    print(subprocess.check_output([CUDA_HOME + "/bin/nvcc", option], text=True).split("release ")[1][:4])
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m cuda_on_cpu` in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_EXTENSIONS_DIR": str(folder / "built")}
    return subprocess.run(
        [sys.executable, "-m", "cuda_on_cpu", *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_a_script_runs_with_its_arguments(tmp_path: Path) -> None:
    done = run(written(tmp_path, script__py=SCRIPT), "script.py", "--size", "3")

    assert done.stdout == "cuda:0 ['script.py', '--size', '3'] __main__\n", done.stderr


def test_a_file_of_pytest_runs(tmp_path: Path) -> None:
    done = run(written(tmp_path, test_twice__py=TESTS), "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout and "test_wrong" in done.stdout, done.stdout + done.stderr


def test_an_error_in_a_source_names_the_line_of_the_script(tmp_path: Path) -> None:
    done = run(written(tmp_path, script__py=SCRIPT.replace("2 * x[i]", "2 * z[i]")), "script.py")

    assert done.returncode == 1
    assert "script.py:8: error: 'z' was not declared in this scope" in done.stderr


def test_cuda_that_cannot_be_emulated_is_named_with_its_line(tmp_path: Path) -> None:
    text = SCRIPT.replace("2 * x[i];", "2 * x[i]; __vnegss2(1);")
    done = run(written(tmp_path, script__py=text), "script.py")

    assert "script.py:8: the emulation cannot run __vnegss2" in done.stderr


@pytest.mark.slow
def test_load_builds_several_files_and_their_headers(tmp_path: Path) -> None:
    folder = written(tmp_path, script__py=LOAD)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    done = run(folder, "script.py")
    assert done.stdout == "[3.0]\n", done.stderr

    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8-sig")
    assert run(folder, "script.py").stdout == "[3.0]\n"

    (folder / "shift.cuh").write_text(FILES["shift.cuh"].replace("+ STEP", "- STEP"))
    assert run(folder, "script.py").stdout == "[-3.0]\n"

    (folder / "shift.cuh").write_text(FILES["shift.cuh"].replace("+ STEP", "+ LEAP"))
    assert f"{folder}/shift.cuh:11: error: 'LEAP' was not declared in this scope" in run(folder, "script.py").stderr


@pytest.mark.slow
def test_a_setup_script_builds_an_extension_in_place(tmp_path: Path) -> None:
    folder = written(tmp_path, setup__py=SETUP, script__py=USES_SETUP)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    built = run(folder, "setup.py", "build_ext", "--inplace")
    assert built.returncode == 0, built.stdout + built.stderr

    assert run(folder, "script.py").stdout == "[4.0]\n"


def test_the_c_compiler_of_python_compiles_cpp_files_for_the_emulator(tmp_path: Path) -> None:
    (tmp_path / "wrong.cpp").write_text("int f() { return z; }")
    (tmp_path / "right.c").write_text("int f(int class) { return class; }")
    done = run(written(tmp_path, script__py=USES_CC), "script.py")

    assert "cuda_on_cpu: wrong.cpp:1: error: 'z' was not declared in this scope" in done.stderr
    assert "right.c" not in done.stderr and (tmp_path / "built.o").exists()


def test_nvcc_tells_its_version(tmp_path: Path) -> None:
    done = run(written(tmp_path, script__py=ASKS_NVCC), "script.py")

    assert done.stdout == "13.0\n13.0\n", done.stderr


@pytest.mark.slow
def test_with_sanitize_an_access_out_of_bounds_is_reported_at_the_end(tmp_path: Path) -> None:
    done = run(written(tmp_path, script__py=SCRIPT.replace("if (i < n) ", "")), "--sanitize", "script.py")

    assert done.returncode == 1
    assert "out-of-bounds read: script.py:8: `y[i] = 2 * x[i];`: thread (232, 0, 0) of block (3, 0, 0)" in done.stderr


@pytest.mark.slow
def test_with_sanitize_a_right_program_ends_with_0(tmp_path: Path) -> None:
    done = run(written(tmp_path, script__py=SCRIPT), "--sanitize", "script.py")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [[], ["--sanitize"], ["-m"], ["--unknown"]])
def test_a_wrong_command_line_prints_the_usage(words: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, *words)

    assert done.returncode == 2 and done.stderr.startswith("usage: python -m cuda_on_cpu")


def test_a_script_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "nothing.py")

    assert (done.returncode, done.stderr) == (2, "python -m cuda_on_cpu: there is no file nothing.py\n")


@pytest.mark.slow
def test_load_names_the_line_of_what_cannot_be_emulated(tmp_path: Path) -> None:
    folder = written(tmp_path, script__py=LOAD)
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("__syncthreads();", "__vnegss2(1);"))
    done = run(folder, "script.py")

    assert f"ExtensionNotBuilt: {folder}/shift.cuh:7: the emulation cannot run __vnegss2." in done.stderr
