"""Executes a candidate's file as a module."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from types import ModuleType

from kernel_harness.compile import cu_file


def run(file: str, source: str) -> ModuleType:
    """Executes a candidate as the module `candidate`, and returns the module. Raises what the candidate raises.

    `source` is the text of the candidate's `file`, which `inspect` and tracebacks show. The code that is executed is
    generated if the file is a `.cu` file.
    """
    text = cu_file.as_module(file, source)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    spec = importlib.util.spec_from_loader("candidate", loader=None, origin=file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = file
    sys.modules["candidate"] = module
    # The lines of code that was generated for a .cu file are not lines of that file.
    exec(compile(text, file if text == source else f"<module for {file}>", "exec", dont_inherit=True), module.__dict__)
    return module
