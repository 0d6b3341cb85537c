"""A CUDA toolkit for the builds of torch.utils.cpp_extension, whose nvcc compiles for the host's processor.

torch's `load`, `CUDAExtension` and `BuildExtension` find it as `CUDA_HOME`. They start its `nvcc` and its `c++` for
each file (compiler.py), and link with its `libcudart.so` and others, which stand for the emulator's runtime library.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from torch.utils import cpp_extension

from cuda_on_cpu.compile import cache, host_compiler
from cuda_on_cpu.emulator import flags, shared_parts
from cuda_on_cpu.emulator.flags import Instrumentation

INSTRUMENTATION = "CUDA_ON_CPU_INSTRUMENTATION"
"""The variable in which the compilers of the toolkit find the name of an Instrumentation."""
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
_NVCC = """#!/bin/sh
case " $* " in *" --version "*) echo "Cuda compilation tools, release 13.0, V13.0.0"; exit ;; esac
export PYTHONPATH={package}"${{PYTHONPATH:+:$PYTHONPATH}}"
exec {python} -m cuda_on_cpu.toolkit.compiler "$@"
"""


def install(instrumentation: Instrumentation) -> None:
    """Makes the builds of torch.utils.cpp_extension in this process and in its children use the toolkit.

    Raises BuildFailed if the emulator's runtime library cannot be built, and NoCompiler if there is no C++ compiler.
    """
    home = _folder()
    compiler, include_paths = str(home / "bin" / "c++"), cpp_extension.include_paths
    # torch names the folder after the versions of CUDA and Python, so a build for a GPU could be in the same one.
    os.environ["TORCH_EXTENSIONS_DIR"] = str(cache.root() / "torch_extensions" / f"{home.name}-{instrumentation.name}")
    os.environ["TORCH_DONT_CHECK_COMPILER_ABI"] = "1"  # nvcc's limits for the version of g++ do not apply
    os.environ["CUDA_HOME"] = cpp_extension.CUDA_HOME = str(home)
    os.environ[INSTRUMENTATION] = instrumentation.name
    cpp_extension.get_cxx_compiler = lambda: compiler
    cpp_extension.include_paths = lambda *args, **kwargs: [str(flags.CUDA_HEADERS), *include_paths(*args, **kwargs)]


def _folder() -> Path:
    runtime = shared_parts.runtime()

    def build(folder: Path) -> None:
        package = Path(__file__).parents[2]
        words = {"real": host_compiler.path(), "python": sys.executable, "package": str(package)}
        quoted = {name: shlex.quote(word) for name, word in words.items()}
        for name in ("bin", "lib64"):
            (folder / name).mkdir()
        for name, text in (("nvcc", _NVCC), ("c++", _COMPILER)):
            (folder / "bin" / name).write_text(text.format(**quoted))
            (folder / "bin" / name).chmod(0o755)
        for name in _LIBRARIES:
            (folder / "lib64" / f"lib{name}.so").write_text(f'INPUT ("{runtime}")\n')

    key = cache.key(
        what="toolkit", runtime=str(runtime), compiler=host_compiler.path(), python=sys.executable,
        code=cache.digest_of(Path(__file__)), place=__file__,
    )  # fmt: skip
    return cache.get_or_build("emulator", key, build)[0]
