"""Builds the bindings library, which makes C++ functions of candidates callable from Python.

The library is built once for all candidates, and each candidate's own library is linked with it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from cuda_on_cpu.compile import cache, host_compiler
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.tell import Tell, silent

INCLUDE = Path(__file__).parent / "native"
HEADER = "cuda_on_cpu/bindings.h"
# The compiler's message contains this text if a function has a type that only pybind11 can bind.
UNSUPPORTED_TYPE = "binding_unsupported"
# This line comes before the generated lines that bind functions. Compilers then report the file name `bindings`.
PLACE = '#line 1 "bindings"'
_NAME = "cuda_on_cpu_bindings"
BINDS_ITSELF = re.compile(r"\bPYBIND11_\w+|\bpy(?:bind11)?::")


def serve(code: str) -> bool:
    """Returns whether the bindings library can make the functions of the C++ source `code` callable.

    It cannot if `code` uses pybind11 itself: it contains `pybind11::`, `py::` or a name that begins with `PYBIND11_`.
    Such a text counts as a use even in a comment or a string literal.
    """
    return not BINDS_ITSELF.search(code)


def definition(sources: Sources) -> str:
    """Returns the C++ code that defines the candidate's Python module with the macros of the header HEADER.

    The code must come after that header, and after the declarations of the functions that the module exports. It is
    empty if `sources.functions` is None: the candidate's source then defines the module.
    """
    if sources.functions is None:
        return ""
    entries = (f"EXTENSION_FUNCTION({name}, {json.dumps(doc)})" for name, doc in sources.functions.items())
    return f"EXTENSION_MODULE({', '.join(entries)})"


def first_build(what: str) -> str:
    """Returns the text for the progress display at the start of a build of `what`, a part that all candidates share."""
    return f"building {what}, which takes a minute or two; later runs find it in the build cache"


def library(tell: Tell = silent) -> Path:
    """Returns the path of the bindings library that all candidates share. Builds it if it is not in the build cache.

    If it is built, `tell` is called first, with a text for the progress display. Raises BuildFailed if the library
    cannot be built, and NoCompiler if this machine has no C++ compiler.
    """

    def build(folder: Path) -> None:
        tell(first_build("the library that binds C++ functions"))
        general = [*host_compiler.torch_flags(), *host_compiler.FEW_COLLECTIONS, "-O2", "-w"]
        flags = [*general, f"-I{INCLUDE}", str(INCLUDE / "bindings.cpp")]
        link = ["-shared", "-o", f"lib{_NAME}.so", f"-Wl,-soname,lib{_NAME}.so", *host_compiler.torch_link_flags()]
        host_compiler.run([*flags, *link], folder)

    name = cache.key(what=_NAME, machine=host_compiler.identity(), code=cache.digest_of(INCLUDE))
    return cache.get_or_build("shared", name, build)[0] / f"lib{_NAME}.so"


def link_flags() -> list[str]:
    """Returns the linker flags for a candidate that uses the bindings library.

    Builds the bindings library if it is not in the build cache. Raises BuildFailed if that fails, and NoCompiler if
    this machine has no C++ compiler.
    """
    folder = library().parent
    return [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-l{_NAME}"]
