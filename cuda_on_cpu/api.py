"""The Python interface: torch's builds and `device="cuda"` on the CPU, and calls under the sanitizer."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from cuda_on_cpu import toolkit
from cuda_on_cpu.compile import load_inline as loading
from cuda_on_cpu.compile.errors import ExtensionNotBuilt
from cuda_on_cpu.compile.program_files import ProgramFiles
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.errors import UserError
from cuda_on_cpu.core.tell import Tell, silent
from cuda_on_cpu.emulator import extension, findings, shared_parts, torch_cuda, triton_interpreter
from cuda_on_cpu.emulator.findings import Finding
from cuda_on_cpu.emulator.flags import Instrumentation
from cuda_on_cpu.emulator.sanitize import Sanitizer

_files = ProgramFiles()
_torch_load = cpp_extension.load


class _Process:
    """What `enable` has set up in this process."""

    enabled = False
    sanitizer: Sanitizer | None = None
    named: frozenset[Path] = frozenset()  # the libraries whose `__shared__` arrays the sanitizer knows


def enable(*, sanitize: bool = False, tell: Tell = silent) -> None:
    """Makes `device="cuda"` and torch.utils.cpp_extension run on the CPU in this process. It cannot be undone.

    If `sanitize`, extensions that are built from now on report their memory accesses, which makes them slower, and
    `cuda_on_cpu.sanitize` checks them. The first call on a machine builds the emulator, which takes a minute or two;
    `tell` is called with a text before. A further call does nothing. Raises UserError if `sanitize` and an earlier call
    was without it, BuildFailed if the emulator cannot be built, and NoCompiler if there is no C++ compiler.
    """
    if _Process.enabled:
        if sanitize and _Process.sanitizer is None:
            raise UserError(
                "cuda_on_cpu was enabled without the sanitizer. Call cuda_on_cpu.enable(sanitize=True) before the "
                "first build, or run the program with python -m cuda_on_cpu --sanitize."
            )
        return
    shared_parts.prepare(reporting=sanitize, tell=tell)
    torch_cuda.install(shared_parts.runtime())
    triton_interpreter.install()
    if sanitize:
        _Process.sanitizer = Sanitizer(shared_parts.runtime(), _files)
    toolkit.install(_instrumentation())
    cpp_extension.load_inline, cpp_extension.load = load_inline, load
    _Process.enabled = True


def load_inline(*args: Any, **kwargs: Any) -> Any:
    """Builds sources for the CPU and loads them, with the arguments and the result of torch's load_inline.

    Raises ExtensionNotBuilt, which is a RuntimeError, if the sources cannot be built. Its message names the line of the
    file that called this function. Raises UnsupportedConstruct for CUDA that the emulator cannot run.
    """
    enable()
    return _build_and_load(*args, **kwargs)


def _built(sources: Sources) -> tuple[Path, bool]:
    return extension.get_or_build(sources, _instrumentation())


_build_and_load = loading.replacement(_built, _files.of_caller)


def load(*args: Any, **kwargs: Any) -> Any:
    """Builds files for the CPU and loads them, with the arguments and the result of torch's load.

    Raises ExtensionNotBuilt, which is a RuntimeError, if they cannot be built. Its message names the file and the line.
    """
    enable()
    try:
        return _torch_load(*args, **kwargs)
    except RuntimeError as error:
        raise ExtensionNotBuilt(toolkit.error_in(str(error)), str(error)) from None


def sanitize(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Finding]:
    """Calls `call(*args, **kwargs)` under the sanitizer, and returns what it found, causes before what follows of them.

    Each finding has a place (`here.file`, `here.line`, `here.thread`, `here.block`), the line's text (`source`) and a
    `sentence`. Findings call the tensors of `args` `input 1` and so on. An exception of the call is raised, except that
    of a kernel whose mistake was found. Raises UserError if extensions were built before without the sanitizer.
    """
    enable(sanitize=True)
    begin_sanitizing()
    for i, each in enumerate((each for each in args if isinstance(each, torch.Tensor) and each.is_cuda), 1):
        _sanitizer().name(each, f"input {i}")
    failure: Exception | None = None
    outputs: Any = ()
    try:
        outputs = call(*args, **kwargs)
    except Exception as error:
        failure = error
    found = end_sanitizing(outputs)
    if failure is not None and not found:
        raise failure
    return found


def reached_lack() -> str:
    """Returns a sentence on the first CUDA that code of this process reached and that cannot be emulated, or "".

    The sentence begins with the place in the program's file.
    """
    sentence = _files.translated(torch_cuda.lack())
    placed = re.match(r"(.*?):(\d+): ", sentence)
    if not placed:
        return sentence
    file, line = _files.place(placed[1], int(placed[2]))
    return f"{file}:{line}: {sentence[placed.end() :]}"


def begin_sanitizing() -> None:
    """Begins to check the memory accesses of kernels, in a process that is enabled with `sanitize=True`."""
    _name_arrays()
    _sanitizer().begin(0, checks=True)


def end_sanitizing(outputs: Any = ()) -> list[Finding]:
    """Ends the checks that `begin_sanitizing` began, and returns what was found, causes first.

    Elements of the tensors in `outputs`, a tensor or a sequence, that no kernel wrote are findings, too.
    """
    _name_arrays()
    several = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    _sanitizer().end([each for each in several if isinstance(each, torch.Tensor)])
    found: list[Finding] = []
    for raw in _sanitizer().findings():
        file = raw["here"]["file"] if "here" in raw else raw["launch_file"]
        found += findings.read([raw], "", _files.text_of(file).split("\n"))
    return findings.causes_first(found)


def _sanitizer() -> Sanitizer:
    assert _Process.sanitizer
    return _Process.sanitizer


def _name_arrays() -> None:
    """Tells the sanitizer the `__shared__` arrays of each extension that was loaded since the last call."""
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    loaded = {Path(file) for file in (*modules, *torch.ops.loaded_libraries) if file and file.endswith(".so")}
    for library in loaded - _Process.named:
        if b"emulator" in library.read_bytes():
            _sanitizer().name_arrays(library)
    _Process.named |= loaded


def _instrumentation() -> Instrumentation:
    return Instrumentation.SANITIZED if _Process.sanitizer else Instrumentation.NONE
