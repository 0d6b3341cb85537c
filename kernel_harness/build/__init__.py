"""load_inline as a candidate sees it. What a build is made of is decided by the device's own builder."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from kernel_harness.build.digest import undefined_symbol
from kernel_harness.build.errors import BuildFailed
from kernel_harness.build.lines import mark
from kernel_harness.build.message import AuthorsFile, in_the_authors_words, symbol_message
from kernel_harness.build.sources import Sources, from_arguments, signature

# (sources, mark) -> the library, and whether it was cached
Builder = Callable[[Sources, Callable[[str], str]], tuple[Path, bool]]


@dataclass
class Log:
    """What was built on behalf of one candidate, in order."""

    entries: list[dict[str, Any]] = field(default_factory=list)


def install(builder: Builder, file: Path, text: str) -> Log:
    """From here on, this process's load_inline builds with `builder`, for the candidate in `file`."""
    from torch.utils import cpp_extension  # here, so that whoever needs no torch need not wait for it

    log = Log()
    author = AuthorsFile(str(file), text)
    signature()

    def load_inline(*args: Any, **kwargs: Any) -> Any:
        sources = from_arguments(*args, **kwargs)
        start = time.perf_counter()
        with in_the_authors_words(author):
            library, cached = builder(sources, lambda source: mark(source, text, str(file)))
        log.entries.append({"name": sources.name, "seconds": time.perf_counter() - start, "cached": cached})
        return load(library, author)

    load_inline.__doc__ = cpp_extension.load_inline.__doc__
    cpp_extension.load_inline = load_inline
    return log


def load(library: Path, author: AuthorsFile) -> Any:
    """Imports an extension, whose file has its name. Raises BuildFailed where a symbol it needs does not exist."""
    name = library.stem
    loader = ExtensionFileLoader(name, str(library))
    spec = spec_from_file_location(name, library, loader=loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        symbol = undefined_symbol(str(error))
        raise BuildFailed(symbol_message(symbol, author) if symbol else str(error), str(error)) from None
    sys.modules[name] = module
    return module


def as_module(file: str, source: str) -> str:
    """The Python that a candidate's file stands for: itself, or for a `.cu` the module around it."""
    if not file.endswith(".cu"):
        return source
    binds_itself = "PYBIND11_MODULE" in source
    declaration = "" if binds_itself else f"{_forward(source, file)};"
    name = re.sub(r"\W", "_", Path(file).stem)
    return (
        "import torch\n"
        "from torch.utils import cpp_extension\n"
        f"_extension = cpp_extension.load_inline(name={name!r}, cpp_sources={json.dumps(declaration)},\n"
        f"    cuda_sources={json.dumps(source)}, functions={None if binds_itself else ['forward']!r})\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def __init__(self, *args):\n"
        "        super().__init__()\n"
        "    def forward(self, *inputs):\n"
        "        return _extension.forward(*inputs)\n"
    )


def _forward(source: str, file: str) -> str:
    found = re.search(r"^[ \t]*((?:torch|at)::Tensor\s+forward\s*\([^)]*\))\s*\{", source, re.MULTILINE)
    if not found:
        raise BuildFailed(f"{file}: error: no 'torch::Tensor forward(...)' is defined; name the function forward.")
    return " ".join(found[1].split())
