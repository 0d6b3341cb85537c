"""Builds a candidate's library for a real GPU with torch's own load_inline, and finds the CUDA toolkit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import site
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from cuda_on_cpu.compile import bindings, cache, host_compiler, light_headers, read_files
from cuda_on_cpu.compile.errors import CompilerFailed, NoCompiler
from cuda_on_cpu.compile.sources import Sources, named, options, parts_of_key, write_shown

# torch's own load_inline. It is kept here because a worker replaces `cpp_extension.load_inline`.
_load_inline = cpp_extension.load_inline
# From CUDA 13 on, pip can install a toolkit: the package `cuda-toolkit` selects wheels of matching versions. These
# extras of it hold the compiler and the headers that torch's own headers include.
_WHEELS = "cuda-toolkit[nvcc,cccl,cublas,cusparse,cusolver]"

# A compiler's message about a header of a library that a minimal toolkit lacks.
_LIBRARIES = "cublas|cusparse|cusolver|curand|cufft|npp|nvrtc|nvml|nvtx|cub|thrust|cuda/std"
_LACKING = re.compile(rf"fatal error: ((?:{_LIBRARIES})[\w./+-]*): No such file")

# A change of these modules can change a candidate's library, so their text is part of its key.
_BUILDERS = cache.modules(Path(__file__).parent, Path(bindings.__file__).parent)
# load_inline puts these lines before a CUDA source.
_IMPLICIT = ("#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>")


def key(sources: Sources, arch: Sequence[int]) -> str:
    """Returns the build cache's key of the library that `sources` describe.

    `arch` is the compute capability of the GPU, such as (9, 0).
    """
    return cache.key(
        what="cuda", machine=host_compiler.identity(), arch=list(arch), nvcc=version(),
        sources=parts_of_key(sources), light=not light_headers.unwanted(),
        code=cache.digest_of(bindings.INCLUDE, *_BUILDERS),
    )  # fmt: skip


def build(sources: Sources, folder: Path) -> None:
    """Compiles the candidate's library into the empty folder `folder`.

    Uses light headers if they may suffice for `sources`, and torch's own headers if that build fails. Raises
    BuildFailed if the library cannot be built, and NoCompiler if that is because the toolkit lacks a CUDA library.
    """

    def full() -> None:
        shutil.rmtree(folder)  # removes the files of a failed build with light headers
        folder.mkdir()
        build_plain(sources, folder)

    try:
        if light_headers.serve(sources.cpp + sources.cuda):
            light_headers.with_fallback(lambda: build_light(sources, folder), full)
        else:
            full()
    except CompilerFailed as failure:
        raise library_missing(failure.log) or failure from None


def build_plain(sources: Sources, folder: Path) -> None:
    """Builds the candidate's library in `folder` with torch's load_inline and torch's own headers.

    `sources` hold the arguments of the candidate's call of load_inline. Raises BuildFailed if the build fails.
    """
    _call(
        sources, folder, f"{_cpp(sources)}\n{bindings.PLACE}", _cuda(sources),
        functions=dict(sources.functions) if sources.functions is not None else None,
        no_implicit_headers=not sources.implicit_headers,
    )  # fmt: skip


def build_light(sources: Sources, folder: Path) -> None:
    """Builds the candidate's library in `folder` with torch's load_inline, and with light headers before torch's own.

    A light header is a short replacement of a header of torch, written by the module `light_headers`. Raises
    BuildFailed if the build fails. A light header may be the cause, so the caller builds again with `build_plain`.
    """
    code = sources.cpp + sources.cuda
    headers = light_headers.write_headers(folder / "headers", code, binds_itself=not bindings.serve(code))
    implicit = sources.implicit_headers
    cpp = [
        f"#include <{bindings.HEADER}>", *(["#include <torch/extension.h>"] if implicit else []), _cpp(sources),
        bindings.PLACE, bindings.definition(sources),
    ]  # fmt: skip
    cuda = [*(_IMPLICIT if implicit else ()), _cuda(sources)]
    _call(
        sources, folder, "\n".join(cpp), "\n".join(cuda) if sources.cuda else "",
        no_implicit_headers=True,
        extra_cflags=["-std=c++20", *sources.cflags],
        extra_include_paths=[str(headers), str(bindings.INCLUDE), *sources.include_paths],
        extra_ldflags=[*bindings.link_flags(), *sources.ldflags],
    )  # fmt: skip


def assembler_report(sources: Sources, arch: str) -> str:
    """Returns the text in which the assembler ptxas reports registers, shared memory and spills of each kernel.

    `arch` is the architecture that nvcc compiles for, such as `sm_90`. If the candidate's own flags name one with more
    instructions for the same device, such as `sm_90a`, nvcc compiles for that one. Raises BuildFailed if nvcc rejects
    the source, and NoCompiler if the CUDA toolkit lacks a header that the source includes.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_missing_header(folder / "missing")
        code = sources.cpp + sources.cuda
        light = light_headers.write_headers(folder / "light", code, binds_itself=not bindings.serve(code))
        text = "\n".join([*(_IMPLICIT if sources.implicit_headers else []), _cuda(sources)])
        (folder / "cuda.cu").write_text(text, encoding="utf-8")
        named = re.findall(r"sm_\d+[af]?", " ".join(sources.cuda_cflags))
        arch = next((each for each in named if each.rstrip("af") == arch), arch)
        own = [word for option in options(sources.cuda_cflags) if "arch" not in "".join(option) for word in option]

        def report(*headers: Path) -> str:
            done = subprocess.run(
                [f"{toolkit()}/bin/nvcc", "-cubin", f"-arch={arch}", "-Xptxas", "-v", "-std=c++20",
                 *cpp_extension.COMMON_NVCC_FLAGS, *(f"-I{path}" for path in headers), *_includes(), *own,
                 *(f"-I{path}" for path in sources.include_paths), "cuda.cu", "-o", "cuda.cubin"],
                cwd=folder, capture_output=True, text=True, errors="replace",
            )  # fmt: skip
            if done.returncode:
                log = done.stdout + done.stderr
                raise library_missing(log) or CompilerFailed(log)
            return done.stderr

        return light_headers.with_fallback(
            lambda: report(light, folder / "missing"), lambda: report(folder / "missing")
        )


def files_read(sources: Sources, folder: Path) -> list[str]:
    """Returns the absolute paths of the files that the finished build of `sources` in `folder` has read.

    These are the files of `read_files.of` without those of the CUDA toolkit, whose version `key` contains.
    """
    read = read_files.of(sources, folder)
    home = toolkit() if read else None  # looks for a program, so only where it matters
    return [path for path in read if not home or not Path(os.path.realpath(path)).is_relative_to(home.resolve())]


def _includes() -> list[str]:
    return [word for folder in cpp_extension.include_paths() for word in ("-isystem", folder)]


def _write_missing_header(folder: Path) -> None:
    """Creates `folder`. If the installed torch lacks the header cuda_cmake_macros.h, writes a stand-in into `folder`.

    torch's CUDA headers include this header, and a CPU build of torch lacks it. Sources that include torch's CUDA
    headers then compile, but cannot be linked.
    """
    name = "c10/cuda/impl/cuda_cmake_macros.h"
    folder.mkdir()
    if not any((Path(path) / name).exists() for path in cpp_extension.include_paths()):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")


def _call(sources: Sources, folder: Path, cpp: str, cuda: str, **more: Any) -> None:
    """Builds the candidate's library in `folder` with one call of torch's load_inline.

    `cpp` and `cuda` are the texts to compile. The other arguments come from `sources`; `more` adds arguments, or
    replaces those of the same name. Raises BuildFailed if the library cannot be built or loaded. Flags such as
    `--version` let the linker succeed and write no library; then this function writes none either.
    """
    arguments: dict[str, Any] = {
        "extra_cflags": sources.cflags, "extra_cuda_cflags": sources.cuda_cflags, "extra_ldflags": sources.ldflags,
        "extra_include_paths": list(sources.include_paths), "with_pytorch_error_handling": sources.error_handling,
        "with_cuda": sources.with_cuda, **more,
    }  # fmt: skip
    arguments["extra_cflags"] = [*arguments["extra_cflags"], *host_compiler.lists_assembled("cpp.assembled.d")]
    for word in host_compiler.lists_assembled("cuda.assembled.d"):  # nvcc splits what it passes on at commas
        arguments["extra_cuda_cflags"] = [*arguments["extra_cuda_cflags"], "-Xcompiler", word.replace(",", "\\,")]
    arguments["extra_ldflags"] = [*arguments["extra_ldflags"], *library_aliases(folder / "libraries")]
    for flags in ("extra_cflags", "extra_cuda_cflags", "extra_ldflags"):
        arguments[flags] = [_quoted(word) for word in arguments[flags]]
    write_shown(sources, folder)
    try:
        _load_inline(
            name=sources.name, cpp_sources=[cpp], cuda_sources=[cuda] if cuda else None,
            build_directory=str(folder), verbose=False, is_python_module=False, **arguments,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:  # OSError: load_inline cannot load the library that it has built
        if isinstance(error, RuntimeError) or list(folder.glob("*.so")):
            raise CompilerFailed(str(error)) from None


def _cpp(sources: Sources) -> str:
    return named(sources.cpp, sources.cpp_file)


def _cuda(sources: Sources) -> str:
    return named(sources.cuda, sources.cuda_file)


def _quoted(word: str) -> str:
    """Returns `word` quoted for a line of a ninja file: ninja expands `$`, and then a shell splits the line."""
    return shlex.quote(word).replace("$", "$$")


def library_aliases(folder: Path) -> list[str]:
    """Returns linker flags for a CUDA toolkit from pip's wheels. Without such a toolkit, the list is empty.

    The wheels hold `libcudart.so.13` but no `libcudart.so`, and the linker looks for names without a version. So this
    function creates `folder` and writes one linker script per library into it, which has the name without the version
    and refers the linker to the library.
    """
    home = cpp_extension.CUDA_HOME and Path(cpp_extension.CUDA_HOME)
    if not home or (home / "lib64").exists() or (home / "lib" / "libcudart.so").exists():
        return []
    folder.mkdir()
    for library in (home / "lib").glob("lib*.so.*"):
        (folder / f"{library.name.split('.')[0]}.so").write_text(f'INPUT ("{library}")\n')
    return [f"-L{folder}"]


def use_toolkit() -> None:
    """Sets `$CUDA_HOME`, which workers of this process inherit, and torch's `CUDA_HOME` to the folder of the toolkit.

    Raises NoCompiler if no toolkit is found, or if its major version differs from the one that torch was built for.
    """
    home, wanted = toolkit(), _wanted()
    major = wanted.split(".")[0]
    if home is None:
        wheels = f", or install it with pip: pip install '{_WHEELS}=={wanted}.*'" if int(major) >= 13 else ""
        raise NoCompiler(f"No CUDA toolkit was found. Set $CUDA_HOME to a toolkit of CUDA {wanted}{wheels}")
    os.environ["CUDA_HOME"] = str(home)
    cpp_extension.CUDA_HOME = str(home)
    release = re.search(r"release (\d+)\.", version())
    if release and release[1] != major:
        raise NoCompiler(
            f"{home}/bin/nvcc is CUDA {release[1]}, but torch was built for CUDA {wanted}. Set $CUDA_HOME to a "
            f"toolkit of CUDA {major}."
        )


def library_missing(log: str) -> NoCompiler | None:
    """Returns the error to raise if the CUDA toolkit lacks a header of one of its libraries, according to `log`.

    `log` is a compiler's output. Returns None if the output does not say so.
    """
    found = _LACKING.search(log)
    return lacks(found[1]) if found else None


def lacks(header: str) -> NoCompiler:
    """Returns the error to raise if the CUDA toolkit lacks `header`, a header of one of CUDA's libraries.

    The message of the error says how to install the library.
    """
    wanted = _wanted()
    major = wanted.split(".")[0]
    wheels = f": pip install '{_WHEELS}=={wanted}.*' installs one in the folder nvidia/cu{major} of Python's packages"
    return NoCompiler(
        f"The CUDA toolkit in {toolkit()} has no {header}, which this build needs. This is no mistake of the kernel. "
        "Install that library into the toolkit, or set $CUDA_HOME to a complete toolkit"
        f"{wheels if int(major) >= 13 else ''}."
    )


def toolkit() -> Path | None:
    """Returns the first folder that has nvcc and CUDA's headers (cuda_runtime.h), or None if no such folder is found.

    The search order is: torch's `CUDA_HOME`, the toolkit of the nvcc on the PATH, the folder of pip's wheels.
    """
    return next((p for p in _places() if (p / "bin/nvcc").exists() and (p / "include/cuda_runtime.h").exists()), None)


def _places() -> Iterator[Path]:
    """Yields folders in which a toolkit may be. To find that of the nvcc on the PATH, runs nvcc, which needs 30 ms."""
    if cpp_extension.CUDA_HOME:
        yield Path(cpp_extension.CUDA_HOME)
    if shutil.which("nvcc"):
        # The nvcc on the PATH may be a wrapper outside the toolkit. A dry run prints the toolkit's folder, and does not
        # need the source file to exist.
        said = subprocess.run(["nvcc", "--dryrun", "nothing.cu"], capture_output=True, text=True).stderr
        top = re.search(r"^#\$ TOP=(.*)$", said, re.MULTILINE)
        if top:
            yield Path(top[1]).resolve()
    wheels = f"nvidia/cu{_wanted().split('.')[0]}"
    yield from sorted(Path(folder) / wheels for folder in site.getsitepackages())


def _wanted() -> str:
    """Returns the CUDA version that torch was built for, or the newest supported version for a CPU build of torch."""
    return torch.version.cuda or "13.0"


def identity() -> str:
    """Returns the folder of the toolkit and the version of its nvcc, as a part of keys; "None" without a toolkit."""
    return f"{toolkit()} {version()}".strip()


def version() -> str:
    """Returns what nvcc of `toolkit()` prints for `--version`, or an empty string if there is no toolkit."""
    home = toolkit()
    if home is None:
        return ""
    return subprocess.run([home / "bin" / "nvcc", "--version"], capture_output=True, text=True).stdout.strip()
