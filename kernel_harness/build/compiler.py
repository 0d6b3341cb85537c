"""Runs the host's C++ compiler: which it is, how it is called for torch, and what it said when it failed."""

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

from kernel_harness.build import cache
from kernel_harness.build.digest import compiled_text, first_error
from kernel_harness.build.errors import BuildFailed, NoCompiler


def path() -> str:
    """The C++ compiler: `$CXX`, else `c++`, else `g++`. Raises NoCompiler."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++")):
        found = shutil.which(name)
        if found:
            return found
    raise NoCompiler(
        "There is no C++ compiler: install one (Debian, Ubuntu: 'apt-get install g++'; "
        "Fedora: 'dnf install gcc-c++'), or name yours in $CXX."
    )


@functools.cache
def identity() -> dict[str, str]:
    """What a binary depends on besides its sources and flags."""
    version = subprocess.run([path(), "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "compiler": version.split("\n")[0],
        "torch": torch.__version__,
        "python": sysconfig.get_config_var("EXT_SUFFIX") or "",
        "processor": _processor(),
    }


def _processor() -> str:
    """The model, and a hash of what it can do: code for this very processor runs on its like alone."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    abilities = sorted(set(re.findall(r"^(?:flags|Features|CPU part)\s*:\s*(.*)$", text, re.MULTILINE)))
    return f"{model[1] if model else platform.machine()} {cache.key(abilities=abilities)[:8]}"


@functools.cache
def torch_flags() -> tuple[str, ...]:
    """Flags for sources that include torch's headers, much as torch builds its own extensions."""
    includes = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    return (
        "-std=c++20",  # what torch 2.13 asks for, and what every older one here accepts
        "-fPIC",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(word for folder in includes for word in ("-isystem", folder)),
    )


@functools.cache
def torch_link_flags() -> tuple[str, ...]:
    """Links against the torch that is imported, found again at run time where it is now."""
    folder = str(Path(torch.__file__).parent / "lib")
    return (f"-L{folder}", f"-Wl,-rpath,{folder}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python")


def run(arguments: Sequence[str | Path], folder: Path) -> None:
    """One call of the compiler in `folder`. Raises BuildFailed with the first error on top."""
    done = subprocess.run(
        [path(), *map(str, arguments)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},  # its messages are read by programs too
    )
    if done.returncode:
        raise BuildFailed(first_error(done.stdout), done.stdout, compiled_text(folder))
