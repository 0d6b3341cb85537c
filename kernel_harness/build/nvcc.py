"""Builds for a real GPU: torch's own load_inline, against light headers where they serve, else as it stands."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from kernel_harness.build import bindings, cache, compiler, light
from kernel_harness.build.digest import compiled_text, first_error
from kernel_harness.build.errors import BuildFailed, NoCompiler
from kernel_harness.build.sources import Sources

# The plain call must be caught here: the worker replaces the public name.
_load_inline = cpp_extension.load_inline
# Messages that the real headers could silence. Any other failure is the source's own and is shown at once.
WANTS_MORE = re.compile(
    r"has no member|is undefined(?! in device code)|incomplete type|no instance of|cannot open source file|No such file"
    r"|must be a class|not a template|is not a member|has not been declared|was not declared|does not name"
    rf"|no matching function|undefined (?:reference|symbol)|{bindings.UNSUPPORTED_TYPE}"
)

# A toolkit without an installer, from CUDA 13 on: NVIDIA's list of wheels that belong together. The compiler, and what
# torch's own headers include.
_WHEELS = "cuda-toolkit[nvcc,cccl,cublas,cusparse,cusolver]"

Mark = Callable[[str], str]


def extension(sources: Sources, mark: Mark, arch: Sequence[int]) -> tuple[Path, bool]:
    """The candidate's library, and whether it was cached, built in this process. Raises BuildFailed."""
    folder, cached = cache.get_or_build("cuda", key(sources, arch), lambda folder: build(sources, mark, folder))
    # torch appends a version to the name where one process builds the same name twice.
    return next(folder.glob("*.so")), cached


def key(sources: Sources, arch: Sequence[int]) -> str:
    """What the candidate's library for compute capability `arch` is found by."""
    return cache.key(
        what="cuda", machine=compiler.identity(), arch=list(arch), nvcc=version(), name=sources.name,
        cpp=sources.cpp, cuda=sources.cuda, bindings=sources.bindings, headers=sources.implicit_headers,
        with_cuda=sources.with_cuda, light=not light.unwanted(),
        own=[sources.cflags, sources.cuda_cflags, sources.ldflags, sources.include_paths],
        code=cache.digest_of(bindings.INCLUDE, Path(__file__), Path(light.__file__)),
    )  # fmt: skip


def build(sources: Sources, mark: Mark, folder: Path) -> None:
    """Puts the candidate's library into a folder. Raises BuildFailed."""
    try:
        _build_light(sources, mark, folder)
    except BuildFailed as failure:
        if not WANTS_MORE.search(failure.log):
            raise
        shutil.rmtree(folder)
        folder.mkdir()
        build_plain(sources, mark, folder)


def build_plain(sources: Sources, mark: Mark, folder: Path) -> None:
    """load_inline as the candidate called it, into a folder."""
    _call(
        sources, folder, f"{mark(sources.cpp)}\n{bindings.PLACE}", mark(sources.cuda),
        functions=dict(sources.functions) if sources.functions is not None else None,
        no_implicit_headers=not sources.implicit_headers,
    )  # fmt: skip


def _build_light(sources: Sources, mark: Mark, folder: Path) -> None:
    code = sources.cpp + sources.cuda
    if not light.serves(code):
        raise BuildFailed("", "is not a member")
    headers = light.write_headers(folder / "headers", code, binds_itself=not bindings.serve(code))
    cpp, cuda = [f"#include <{bindings.HEADER}>"], []
    if sources.implicit_headers:
        cpp += ["#include <torch/extension.h>"]
        cuda += ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
    cpp += [mark(sources.cpp), bindings.PLACE, bindings.definition(sources)]
    _call(
        sources, folder, "\n".join(cpp), "\n".join([*cuda, mark(sources.cuda)]) if sources.cuda else "",
        no_implicit_headers=True,
        extra_cflags=["-std=c++20", *sources.cflags],
        extra_include_paths=[str(headers), str(bindings.INCLUDE), *sources.include_paths],
        extra_ldflags=[*bindings.link_flags(), *sources.ldflags],
    )  # fmt: skip


def assembler_says(sources: Sources, mark: Mark, arch: str) -> str:
    """ptxas's own words on each kernel of the CUDA source: registers, shared memory, spills. Raises BuildFailed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = sources.cpp + sources.cuda
        headers = light.write_headers(folder / "headers", code, binds_itself=not bindings.serve(code))
        _stand_in(headers)
        first = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
        text = "\n".join([*(first if sources.implicit_headers else []), mark(sources.cuda)])
        (folder / "cuda.cu").write_text(text)
        own = [flag for flag in sources.cuda_cflags if "arch" not in flag]
        paths = [word for path in sources.include_paths for word in ("-I", path)]
        done = subprocess.run(
            [f"{toolkit()}/bin/nvcc", "-cubin", f"-arch={arch}", "-Xptxas", "-v", *cpp_extension.COMMON_NVCC_FLAGS,
             "-std=c++20", "-I", headers, *_includes(), *own, *paths, "cuda.cu", "-o", "cuda.cubin"],
            cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        log = done.stdout + done.stderr
        raise BuildFailed(first_error(log), log, text)
    return done.stderr


def _includes() -> list[str]:
    return [word for folder in cpp_extension.include_paths() for word in ("-isystem", folder)]


def _stand_in(headers: Path) -> None:
    """A CPU build of torch lacks one generated header of its CUDA half, which only linking would care about."""
    name = "c10/cuda/impl/cuda_cmake_macros.h"
    if not any((Path(folder) / name).exists() for folder in cpp_extension.include_paths()):
        (headers / name).parent.mkdir(parents=True, exist_ok=True)
        (headers / name).write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")


def _call(sources: Sources, folder: Path, cpp: str, cuda: str, **more: object) -> None:
    """One build by torch. It changes the lists it is given, so it gets its own."""
    arguments: dict[str, Any] = {
        "extra_cflags": list(sources.cflags), "extra_cuda_cflags": list(sources.cuda_cflags),
        "extra_ldflags": list(sources.ldflags), "extra_include_paths": list(sources.include_paths),
        "with_pytorch_error_handling": sources.error_handling, "with_cuda": sources.with_cuda, **more,
    }  # fmt: skip
    arguments["extra_ldflags"] += unversioned(folder / "libraries")
    try:
        _load_inline(
            name=sources.name, cpp_sources=[cpp], cuda_sources=[cuda] if cuda else None,
            build_directory=str(folder), verbose=False, is_python_module=False, **arguments,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:  # the second where the library built cannot be loaded
        raise BuildFailed(first_error(str(error)), str(error), compiled_text(folder)) from None


def unversioned(folder: Path) -> list[str]:
    """For the linker, where the toolkit is the wheels': their libraries by the names it looks for, put into a folder.

    They hold `libcudart.so.13`, and no `libcudart.so`.
    """
    home = cpp_extension.CUDA_HOME and Path(cpp_extension.CUDA_HOME)
    if not home or (home / "lib64").exists() or (home / "lib" / "libcudart.so").exists():
        return []
    folder.mkdir()
    for library in (home / "lib").glob("lib*.so.*"):
        (folder / f"{library.name.split('.')[0]}.so").write_text(f'INPUT ("{library}")\n')
    return [f"-L{folder}"]


def use_toolkit() -> None:
    """Makes torch, here and in workers, build with the toolkit that was found. Raises NoCompiler."""
    home, wanted, major = toolkit(), _wanted(), _wanted().split(".")[0]
    if home is None:
        wheels = f", or install the one that comes as wheels: pip install '{_WHEELS}=={wanted}.*'"
        raise NoCompiler(
            f"There is no CUDA toolkit: set $CUDA_HOME to one of CUDA {wanted}{wheels if int(major) >= 13 else ''}"
        )
    os.environ["CUDA_HOME"] = str(home)
    cpp_extension.CUDA_HOME = str(home)
    release = re.search(r"release (\d+)\.", version())
    if release and release[1] != major:
        raise NoCompiler(
            f"{_nvcc()} is CUDA {release[1]} and torch was built for CUDA {wanted}: set $CUDA_HOME to a toolkit "
            f"of CUDA {major}."
        )


def toolkit() -> Path | None:
    """$CUDA_HOME as torch finds it, else where the nvcc on the PATH is at home, else the wheels' own."""
    places = [Path(cpp_extension.CUDA_HOME)] if cpp_extension.CUDA_HOME else []
    if shutil.which("nvcc"):
        # A wrapper on the PATH says nothing of where the headers are; nvcc itself does, on a file that need not exist.
        said = subprocess.run(["nvcc", "--dryrun", "nothing.cu"], capture_output=True, text=True).stderr
        top = re.search(r"^#\$ TOP=(.*)$", said, re.MULTILINE)
        places += [Path(top[1]).resolve()] if top else []
    wheels = f"nvidia/cu{_wanted().split('.')[0]}"
    places += sorted(Path(folder) / wheels for folder in site.getsitepackages())
    return next((p for p in places if (p / "bin/nvcc").exists() and (p / "include/cuda_runtime.h").exists()), None)


def _wanted() -> str:
    """The CUDA that torch was built for; of a CPU build, which compiles for nobody, the latest known here."""
    return torch.version.cuda or "13.0"


def version() -> str:
    """What `nvcc --version` says; empty without one."""
    if cpp_extension.CUDA_HOME is None:
        return ""
    return subprocess.run([_nvcc(), "--version"], capture_output=True, text=True).stdout.strip()


def _nvcc() -> str:
    return str(Path(cpp_extension.CUDA_HOME) / "bin" / "nvcc")
