"""What makes C++ functions callable from Python, compiled once for all candidates instead of by each."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kernel_harness.build import cache, compiler
from kernel_harness.build.sources import Sources

INCLUDE = Path(__file__).parent / "native"
HEADER = "kernel_harness/bindings.h"
# In a compiler's message: a function of ours was asked for a type that only pybind11 binds.
UNSUPPORTED_TYPE = "harness_binding_unsupported"
# What a compiler calls the lines that bind functions, which nobody wrote.
PLACE = '#line 1 "bindings"'
_NAME = "kernel_harness_bindings"
_BINDS_ITSELF = re.compile(r"\bPYBIND11_\w+|\bpy(?:bind11)?::")


def serve(code: str) -> bool:
    """Whether code (with comments and literals blanked) leaves its bindings to load_inline."""
    return not _BINDS_ITSELF.search(code)


def definition(sources: Sources) -> str:
    """The module's definition, to stand after the functions' declarations; empty where the source has its own."""
    if sources.functions is None:
        return ""
    entries = (f"HARNESS_FUNCTION({name}, {json.dumps(doc)})" for name, doc in sources.functions.items())
    return f"HARNESS_MODULE({', '.join(entries)})"


def library() -> Path:
    """The library, built on first use. Raises BuildFailed, NoCompiler."""

    def build(folder: Path) -> None:
        flags = [*compiler.torch_flags(), "-O2", "-w", f"-I{INCLUDE}", str(INCLUDE / "bindings.cpp")]
        link = ["-shared", "-o", f"lib{_NAME}.so", f"-Wl,-soname,lib{_NAME}.so", *compiler.torch_link_flags()]
        compiler.run([*flags, *link], folder)

    name = cache.key(what=_NAME, machine=compiler.identity(), code=cache.digest_of(INCLUDE))
    return cache.get_or_build("shared", name, build)[0] / f"lib{_NAME}.so"


def link_flags() -> list[str]:
    """For a candidate that uses them."""
    folder = library().parent
    return [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-l{_NAME}"]
