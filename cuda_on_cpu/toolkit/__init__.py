"""A CUDA toolkit for the builds of torch.utils.cpp_extension, whose nvcc compiles for the host's processor.

torch's `load`, `CUDAExtension` and `BuildExtension` find it as `CUDA_HOME`. They start its `nvcc` and its `c++` for
each file (compiler.py), and link with its `libcudart.so` and others, which stand for the emulator's runtime library.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
from pathlib import Path

from torch.utils import cpp_extension

from cuda_on_cpu.compile import cache, host_compiler
from cuda_on_cpu.compile.compiler_log import first_error
from cuda_on_cpu.emulator import flags, shared_parts
from cuda_on_cpu.emulator.flags import Instrumentation

INSTRUMENTATION = "CUDA_ON_CPU_INSTRUMENTATION"
"""The variable in which the compilers of the toolkit find the name of an Instrumentation."""
MARK = "cuda_on_cpu: "
"""What the compilers of the toolkit print before the message of an error. An empty line follows the message."""
# The libraries of CUDA, and those of torch that only a build of torch for CUDA has.
_LIBRARIES = (
    "cudart", "cuda", "cublas", "cublasLt", "curand", "nvrtc", "cusparse", "cusolver", "cufft", "nvToolsExt",
    "c10_cuda", "torch_cuda",
)  # fmt: skip
# torch may call the C++ compiler to compile a file, to link, or to ask for its version. Only the first is ours.
_COMPILER = """#!/bin/sh
case " $* " in *" -c "*) ;; *) exec {real} "$@" ;; esac
export PYTHONPATH={package}"${{PYTHONPATH:+:$PYTHONPATH}}"
exec {python} -m cuda_on_cpu.toolkit.compiler "$@"
"""
# Older versions of setuptools compile C++ files with the C compiler, too, where BuildExtension does not use ninja.
_C_COMPILER = """#!/bin/sh
for word; do
  case "$word" in *.cpp | *.cc | *.cxx | *.c++ | *.C) exec "${{0%/*}}/c++" "$@" ;; esac
done
exec {real_c} "$@"
"""
_NVCC = """#!/bin/sh
case " $* " in *" --version "* | *" -V "*) echo "Cuda compilation tools, release 13.0, V13.0.0"; exit ;; esac
export PYTHONPATH={package}"${{PYTHONPATH:+:$PYTHONPATH}}"
exec {python} -m cuda_on_cpu.toolkit.compiler "$@"
"""


def error_in(output: str) -> str:
    """Returns the message of the first error in the output of a build with the toolkit."""
    message = re.search(rf"^{MARK}(.*?)\n\n", output, re.MULTILINE | re.DOTALL)
    return message[1] if message else first_error(output)


def install(instrumentation: Instrumentation) -> None:
    """Makes the builds of torch.utils.cpp_extension in this process and in its children use the toolkit.

    Raises BuildFailed if the emulator's runtime library cannot be built, and NoCompiler if there is no C++ compiler.
    """
    home = _folder()
    compiler, include_paths = str(home / "host" / "c++"), cpp_extension.include_paths
    # torch names the folder after the versions of CUDA and Python, so a build for a GPU could be in the same one.
    builds = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache.root() / "torch_extensions")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(builds / f"{home.name}-{instrumentation.name}")
    os.environ["TORCH_DONT_CHECK_COMPILER_ABI"] = "1"  # nvcc's limits for the version of g++ do not apply
    os.environ["CUDA_HOME"] = cpp_extension.CUDA_HOME = str(home)
    os.environ["PATH"] = f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"  # some programs look for nvcc there
    os.environ[INSTRUMENTATION] = instrumentation.name
    cpp_extension.get_cxx_compiler = lambda: compiler
    variables = sysconfig.get_config_vars()  # for setuptools, where BuildExtension does not use ninja
    variables["CXX"], variables["CC"] = compiler, shlex.join([str(home / "host" / "cc"), *_c_compiler()[1:]])
    cpp_extension.include_paths = lambda *args, **kwargs: [str(flags.CUDA_HEADERS), *include_paths(*args, **kwargs)]


def _c_compiler() -> list[str]:
    """Returns the command of the C compiler of this Python, such as `gcc -pthread`."""
    return shlex.split(sysconfig.get_config_var("CC") or "cc")


def _folder() -> Path:
    runtime, real_c = shared_parts.runtime(), _c_compiler()[0]

    def build(folder: Path) -> None:
        package = Path(__file__).parents[2]
        words = {"real": host_compiler.path(), "python": sys.executable, "package": str(package)}
        words["real_c"] = real_c
        quoted = {name: shlex.quote(word) for name, word in words.items()}
        for name in ("bin", "host", "lib64"):
            (folder / name).mkdir()
        for program, text in (("bin/nvcc", _NVCC), ("host/c++", _COMPILER), ("host/cc", _C_COMPILER)):
            (folder / program).write_text(text.format(**quoted))
            (folder / program).chmod(0o755)
        for name in _LIBRARIES:
            (folder / "lib64" / f"lib{name}.so").write_text(f'INPUT ("{runtime}")\n')

    key = cache.key(
        what="toolkit", runtime=str(runtime), compiler=host_compiler.path(), python=sys.executable, real_c=real_c,
        code=cache.digest_of(Path(__file__)), place=__file__,
    )  # fmt: skip
    return cache.get_or_build("emulator", key, build)[0]
