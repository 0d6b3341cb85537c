"""The choice of the CUDA toolkit, and the message if none fits. Most toolkits here are fake."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

import pytest
import torch
from support.nvcc_compile import load_kernel
from torch.utils import cpp_extension

from cuda_on_cpu.compile import host_compiler
from cuda_on_cpu.compile.compiler_log import first_error
from cuda_on_cpu.compile.errors import NoCompiler
from kernel_harness.compile import nvcc, strict


def toolkit_at(home: Path, release: str) -> Path:
    """A fake toolkit, whose nvcc only prints its version."""
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime.h").touch()
    program = home / "bin" / "nvcc"
    program.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A machine without a toolkit, with a torch that was built for CUDA 13.0."""
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("CUDA_HOME", "")
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path / "packages")])
    return tmp_path


def test_the_toolkit_that_torch_knows_comes_first(nowhere, monkeypatch):
    home = toolkit_at(nowhere / "own", "13.0")
    toolkit_at(nowhere / "packages" / "nvidia" / "cu13", "13.0")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(home))
    assert nvcc.toolkit() == home


def test_the_toolkit_in_the_wheels_is_found_without_settings(nowhere):
    home = toolkit_at(nowhere / "packages" / "nvidia" / "cu13", "13.0")
    nvcc.use_toolkit()
    assert str(home) == cpp_extension.CUDA_HOME


def test_a_missing_library_of_the_toolkit_is_no_mistake_of_the_kernel(nowhere):
    home = toolkit_at(nowhere / "packages" / "nvidia" / "cu13", "13.0")
    said = str(nvcc.library_missing("k.cuda_sources:2:10: fatal error: cusparse.h: No such file or directory"))
    assert said.startswith(f"The CUDA toolkit in {home} has no cusparse.h") and "no mistake of the kernel" in said
    assert "pip install 'cuda-toolkit[nvcc,cccl,cublas,cusparse,cusolver]==13.0.*'" in said
    assert nvcc.library_missing("k.cuda_sources:2:10: fatal error: mine.h: No such file or directory") is None


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("cublasCreate(&h);", "cublas_v2.h"),
        ("cusparseCreate(&h);", "cusparse.h"),
        ("cublasLtCreate(&h);", "cublasLt.h"),
    ],
)
def test_strict_needs_the_real_header_of_a_library_that_a_source_calls(nowhere, code, needed):
    toolkit_at(nowhere / "packages" / "nvidia" / "cu13", "13.0")
    assert needed in str(strict._lacking(code, "error: undefined"))
    assert strict._lacking("cublasHandle_t handle;", "error: undefined") is None
    assert (strict._write_stand_ins(nowhere) / needed).exists()


def test_the_version_is_that_of_the_toolkit_that_builds_use(nowhere):
    assert nvcc.version() == ""
    toolkit_at(nowhere / "packages" / "nvidia" / "cu13", "13.0")
    assert "release 13.0" in nvcc.version()


def test_a_folder_without_headers_is_no_toolkit(nowhere):
    home = toolkit_at(nowhere / "packages" / "nvidia" / "cu13", "13.0")
    (home / "include" / "cuda_runtime.h").unlink()
    assert nvcc.toolkit() is None


def test_without_a_toolkit_the_message_has_the_command_that_installs_one(nowhere):
    with pytest.raises(NoCompiler, match=r"Set \$CUDA_HOME to a toolkit of CUDA 13\.0") as caught:
        nvcc.use_toolkit()
    assert str(caught.value).endswith("pip install 'cuda-toolkit[nvcc,cccl,cublas,cusparse,cusolver]==13.0.*'")


def test_the_message_names_no_wheels_of_a_cuda_whose_wheels_lack_the_compiler(nowhere, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(NoCompiler, match=r"Set \$CUDA_HOME to a toolkit of CUDA 12\.8$"):
        nvcc.use_toolkit()


def test_the_linker_finds_the_libraries_of_wheels_whose_names_end_in_a_version(tmp_path, monkeypatch):
    home = toolkit_at(tmp_path / "cu13", "13.0")
    (home / "lib").mkdir()
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(home))
    runtime = home / "lib" / "libcudart.so.13"
    host_compiler.run(["-shared", "-x", "c++", os.devnull, "-o", runtime, "-Wl,-soname,libcudart.so.13"], tmp_path)
    flags = nvcc.library_aliases(tmp_path / "libraries")
    (tmp_path / "uses.cpp").write_text("int used() { return 0; }\n")
    linked = ["-shared", "-Wl,--no-as-needed", "uses.cpp", f"-L{home}/lib", *flags, "-lcudart", "-o", "uses.so"]
    host_compiler.run(linked, tmp_path)
    assert b"libcudart.so.13" in (tmp_path / "uses.so").read_bytes()


def test_an_installed_toolkit_needs_no_aliases(tmp_path, monkeypatch):
    home = toolkit_at(tmp_path / "cuda", "13.0")
    (home / "lib64").mkdir()
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(home))
    assert nvcc.library_aliases(tmp_path / "libraries") == []


def test_a_toolkit_of_another_cuda_than_torch_s_is_refused_and_both_versions_are_named(nowhere, monkeypatch):
    home = toolkit_at(nowhere / "old", "12.4")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(home))
    with pytest.raises(NoCompiler, match=r"nvcc is CUDA 12, but torch was built for CUDA 13\.0\. Set \$CUDA_HOME"):
        nvcc.use_toolkit()


def test_the_message_for_a_missing_compiler_says_how_to_install_one(nowhere, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoCompiler, match="apt-get install g\\+\\+"):
        host_compiler.path()


UNSUPPORTED_HOST = """In file included from /usr/local/cuda/include/cuda_runtime.h:82,
                 from <command-line>:
/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 15 \
are not supported! The nvcc flag '-allow-unsupported-compiler' can be used to override this version check.
  143 | #error -- unsupported GNU version! gcc versions later than 15 are not supported!
      |  ^~~~~
"""


def test_nvcc_s_message_about_an_unsupported_host_compiler_is_shown():
    assert "unsupported GNU version! gcc versions later than 15 are not supported!" in first_error(UNSUPPORTED_HOST)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_a_wrapper_on_the_path_leads_to_the_toolkit_s_headers(monkeypatch):
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    found = nvcc.toolkit()
    assert found is not None and (found / "include" / "cuda_runtime.h").exists()


def installed(wheel: str) -> bool:
    try:
        return bool(metadata.version(wheel))
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not installed("nvidia-cuda-nvcc"), reason="the wheel nvidia-cuda-nvcc is not installed")
def test_the_real_wheels_are_found_without_another_toolkit_and_compile_a_shipped_kernel(monkeypatch):
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(folder for folder in folders if not (Path(folder) / "nvcc").exists()))
    monkeypatch.setenv("CUDA_HOME", "")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    _, sources = load_kernel("matmul_tt/tiled.py", monkeypatch)
    nvcc.use_toolkit()
    assert "/nvidia/cu" in str(cpp_extension.CUDA_HOME)
    assert "Compiling entry function" in nvcc.assembler_report(sources, "sm_90")
