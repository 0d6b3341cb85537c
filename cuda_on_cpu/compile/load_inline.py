"""Replaces torch's load_inline and load in this process, and loads the libraries that are built."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.compiler_log import undefined_symbol
from cuda_on_cpu.compile.cuda_source import includes_any
from cuda_on_cpu.compile.error_message import name_message, readable_errors, symbol_message
from cuda_on_cpu.compile.errors import BuildFailed
from cuda_on_cpu.compile.sources import Sources, from_arguments, signature

_PART_OF_A_NAME = re.compile(r"\w+", re.ASCII)

# A builder takes the sources. It returns the library's path, and whether the build cache already held the library.
Builder = Callable[[Sources], tuple[Path, bool]]


def install(builder: Builder, candidate: CandidateFile) -> None:
    """Replaces torch's load_inline and load in this process by functions that build with `builder`.

    `builder` takes a Sources. It returns the library's path, and whether the build cache already held the library. Each
    call of the new load_inline registers its sources in the object `candidate` (`CandidateFile.add`). Error messages
    then show lines of the candidate's file in place of lines of the sources. The new `load` passes the texts of its
    files to the new load_inline. If two of the files are of one language, or if a file contains `#include "..."`,
    torch's own `load` builds them instead.
    """
    from torch.utils import cpp_extension  # here, because a process that needs no torch must not wait for it

    load_inline = replacement(builder, lambda: candidate)
    original = inspect.unwrap(cpp_extension.load)

    @functools.wraps(original)
    def load_files(*args: Any, **kwargs: Any) -> Any:
        options = inspect.signature(original).bind(*args, **kwargs).arguments
        texts = _read(options.pop("sources"))
        several = max(map(len, texts.values())) > 1  # as one source, they may not compile
        if several or includes_any(re.compile('"'), *chain(*texts.values())):
            return original(*args, **kwargs)
        taken = {key: value for key, value in options.items() if key in signature().parameters}
        return load_inline(no_implicit_headers=True, **taken, **texts)

    cpp_extension.load_inline, cpp_extension.load = load_inline, load_files


def replacement(builder: Builder, calling_file: Callable[[], CandidateFile]) -> Callable[..., Any]:
    """Returns a function that takes the place of torch's load_inline, and builds with `builder`.

    `calling_file` returns the file that has called the function. Each call registers its sources in this file
    (`CandidateFile.add`), so that error messages show lines of the file in place of lines of the sources.
    """
    from torch.utils import cpp_extension

    signature()
    loading = threading.RLock()  # when a build is asked for, this process has loaded the one before

    @functools.wraps(cpp_extension.load_inline, assigned=("__doc__",), updated=())
    def load_inline(*args: Any, **kwargs: Any) -> Any:
        candidate = calling_file()
        sources = from_arguments(*args, **kwargs)
        candidate.add(sources)
        with loading:
            with readable_errors(candidate, sources.functions or ()):
                if _uses_name(sources) and not _PART_OF_A_NAME.fullmatch(sources.name):
                    raise BuildFailed(name_message(sources.name, candidate))
                library, _ = builder(sources)
            if signature().bind(*args, **kwargs).arguments.get("is_python_module", True):
                return load(library, candidate)
            return load_operators(library, candidate)

    return load_inline


def _uses_name(sources: Sources) -> bool:
    """Returns whether C++ names are made of the extension's name, as the names of a Python module's functions are."""
    return sources.functions is not None or "TORCH_EXTENSION_NAME" in sources.cpp + sources.cuda


def _read(files: str | Sequence[str]) -> dict[str, list[str]]:
    """Returns load_inline's arguments `cpp_sources` and `cuda_sources`: the texts of `files`.

    A file that ends in `.cu` or `.cuh` is a CUDA source, any other file a C++ source. Raises OSError if a file cannot
    be read.
    """
    texts: dict[str, list[str]] = {"cpp_sources": [], "cuda_sources": []}
    for file in map(Path, [files] if isinstance(files, str) else files):
        kind = "cuda_sources" if file.suffix in (".cu", ".cuh") else "cpp_sources"
        texts[kind].append(file.read_text(encoding="utf-8-sig"))
    return texts


def load(library: Path, candidate: CandidateFile) -> Any:
    """Imports the Python extension module in the file `library`, and returns the module.

    The module's name is the file's name without its suffix. Raises BuildFailed if the import fails. If a symbol is
    missing, the exception's message is that of `symbol_message`; otherwise it is that of the ImportError.
    """
    name = library.stem
    loader = ExtensionFileLoader(name, str(library))
    spec = spec_from_file_location(name, library, loader=loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise _not_loaded(error, candidate) from None
    sys.modules[name] = module
    return module


def load_operators(library: Path, candidate: CandidateFile) -> str:
    """Loads the library in the file `library`, which adds its operators to `torch.ops`. Returns the path of the file.

    torch's load_inline does the same for a call with `is_python_module=False`. Raises BuildFailed if the loader fails.
    If a symbol is missing, the exception's message is that of `symbol_message`; otherwise it is the loader's message.
    """
    import torch  # here, because a process that needs no torch must not wait for it

    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise _not_loaded(error.__cause__ or error, candidate) from None
    return str(library)


def _not_loaded(error: BaseException, candidate: CandidateFile) -> BuildFailed:
    symbol = undefined_symbol(str(error))
    return BuildFailed(symbol_message(symbol, candidate) if symbol else str(error), str(error))
