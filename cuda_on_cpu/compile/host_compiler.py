"""Finds and runs the C++ compiler of this machine, and gives the flags for sources that include torch's headers."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils import cpp_extension

from cuda_on_cpu.compile import cache
from cuda_on_cpu.compile.errors import CompilerFailed, NoCompiler

# g++ collects garbage when its heap has grown by this many percent, and by 100 without these flags. Then a tenth of the
# compile time of a long source is spent on collections. In exchange it needs up to 1.3 times the memory.
FEW_COLLECTIONS = ("--param", "ggc-min-expand=300")


def path() -> str:
    """Returns the path of the first installed one of `$CXX`, `c++` and `g++`. Raises NoCompiler if there is none."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++")):
        found = shutil.which(name)
        if found:
            return found
    raise NoCompiler(
        "No C++ compiler was found. Install one (Debian, Ubuntu: 'apt-get install g++'; "
        "Fedora: 'dnf install gcc-c++'), or set $CXX to its name."
    )


@functools.cache
def identity() -> dict[str, str]:
    """Returns what a compiled library depends on besides its source: compiler, torch, Python and processor.

    The keys of the build cache contain this dict. Raises NoCompiler if this machine has no C++ compiler.
    """
    version = subprocess.run([path(), "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "compiler": version.split("\n")[0],
        "torch": torch.__version__,
        "python": sysconfig.get_config_var("EXT_SUFFIX") or "",
        "processor": _processor(),
    }


def _processor() -> str:
    """Returns the processor's model and a hash of its instruction set extensions, as text for a cache key.

    A library that is compiled for this processor may not run on a processor with other extensions.
    """
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    features = sorted(set(re.findall(r"^(?:flags|Features|CPU part)\s*:\s*(.*)$", text, re.MULTILINE)))
    return f"{model[1] if model else platform.machine()} {cache.key(features=features)[:8]}"


@functools.cache
def torch_flags() -> tuple[str, ...]:
    """Returns compiler flags for sources that include torch's headers. torch's own builder uses similar ones."""
    includes = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    return (
        "-std=c++20",  # required by torch 2.13, and accepted by the older versions that are supported
        "-fPIC",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(word for folder in includes for word in ("-isystem", folder)),
    )


@functools.cache
def torch_link_flags() -> tuple[str, ...]:
    """Returns linker flags for the imported torch. Libraries linked with them find torch in its present folder."""
    return (*torch_folder_flags(), "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python")


def torch_folder_flags() -> tuple[str, ...]:
    """Returns linker flags that let the linker and the loader find torch's libraries, which `-l` flags may name."""
    folder = str(Path(torch.__file__).parent / "lib")
    return f"-L{folder}", f"-Wl,-rpath,{folder}"


def lists_assembled(name: str) -> list[str]:
    """Returns flags with which the assembler writes the files that it reads, by `.incbin` or `.include`, to `name`.

    The compiler's own list (`-MD`) lacks them. Returns no flags for clang, which has an assembler of its own.
    """
    return [] if "clang" in identity()["compiler"] else [f"-Wa,--MD,{name}"]


def run(arguments: Sequence[str | Path], folder: Path) -> None:
    """Runs the C++ compiler with `arguments` in `folder`.

    Raises NoCompiler if this machine has no C++ compiler, and CompilerFailed if its exit status is not 0.
    """
    done = subprocess.run(
        [path(), *map(str, arguments)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},  # `compiler_log` can read the messages of this locale
    )
    if done.returncode:
        raise CompilerFailed(done.stdout)
