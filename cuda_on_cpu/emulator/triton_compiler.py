"""Compiles the Triton kernels that a process interprets for an H200, with Triton's own compiler.

Each compilation runs in a forked child, before the interpreter: a kernel that does not compile must not crash the
interpreter or keep it busy. The child undoes there what makes the interpreter, and a crash of the compiler ends the
child alone.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda_on_cpu.emulator.shared_memory_limit import OPT_IN_BYTES

# The compiler may take so long. Then the kernel counts as one that compiles.
_LONGEST_S = 30.0
_REFUSALS = ("CompilationError", "OutOfResources", "PTXASError")
_DIAGNOSTIC = re.compile(r'^(?:loc\(")?[^\n"]+"?:\d+:\d+\)?: error: .*$', re.MULTILINE)


def target() -> Any:
    """Returns Triton's name for the GPU that is emulated, an H200."""
    return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)


def is_refusal(error: BaseException) -> bool:
    """Returns whether `error` is one with which Triton refuses a kernel, at compile time or for lack of resources."""
    return any(kind.__name__ in _REFUSALS and kind.__module__.startswith("triton.") for kind in type(error).__mro__)


class Compiler:
    """Compiles each kernel once for each specialization: types, constants and options of a launch.

    `uninstall` undoes in a child all changes that the interpreter has made to Triton's modules.
    """

    def __init__(self, uninstall: Callable[[], None]) -> None:
        self._uninstall = uninstall
        self._known: dict[tuple[str, ...], BaseException | dict[str, Any] | None] = {}
        self._binders: dict[Any, Callable[..., Any]] = {}

    def reports(self) -> list[dict[str, Any]]:
        """Returns a dict for each specialization that has compiled, in the order of the first launches.

        Its keys are `ptxas` (what the assembler printed), `shared` (bytes a block), `warps`, `stages` and
        `specialization` (the values of its constants, as text).
        """
        return [known for known in self._known.values() if isinstance(known, dict)]

    def check(self, kernel: Any, grid: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Raises the compiler's error if it refuses a launch of `kernel`, as the launch on a GPU does."""
        key = self._key(kernel, arguments, keywords)
        if key not in self._known:
            self._known[key] = None
            with contextlib.suppress(OSError):  # where no process can be started, nothing is compiled
                self._known[key] = _in_a_child(self, kernel, grid, arguments, keywords)
        refusal = self._known[key]
        if isinstance(refusal, BaseException):
            raise refusal.with_traceback(None) from refusal.__cause__

    def _key(self, kernel: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns what the compiled code of this launch depends on. Raises what Triton does for unfit arguments."""
        _, specialization, options = self._binder(kernel)(*arguments, **keywords)
        try:
            code = kernel.cache_key  # of the kernel and all that it calls
        except Exception:  # the compilation raises it again
            kernel.hash, code = None, kernel.fn.__qualname__
        return code, str(specialization), str(sorted(options.items()))

    def _binder(self, kernel: Any) -> Callable[..., Any]:
        if kernel.fn not in self._binders:
            jit = importlib.import_module("triton.runtime.jit")
            backend = importlib.import_module("triton.compiler").make_backend(target())
            self._binders[kernel.fn] = jit.create_function_from_signature(kernel.signature, kernel.params, backend)
        return self._binders[kernel.fn]

    def compile(self, kernel: Any, grid: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Compiles a launch in this process, which can interpret nothing afterwards. Returns a dict as in `reports`.

        Raises the errors of Triton's compiler.
        """
        knobs = importlib.import_module("triton").knobs
        compiler: Any = importlib.import_module("triton.compiler.compiler")
        self._uninstall()
        knobs.runtime.interpret, knobs.nvidia.dump_ptxas_log = False, True
        # A file of an earlier compilation would come without what ptxas prints. The key that names the files would
        # be made from all files of Triton, which takes longer than most compilations.
        knobs.compilation.always_compile = True
        compiler.get_cache_key = lambda source, backend, options, **_: f"{source.hash()}-{options}"
        constants = {name: value for name, value in keywords.items() if not hasattr(value, "data_ptr")}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            compiled = kernel.run(*arguments, grid=grid, warmup=True, **keywords)
        found = compiled.metadata
        if found.shared > OPT_IN_BYTES:
            lacking = importlib.import_module("triton.runtime.errors").OutOfResources
            raise lacking(found.shared, OPT_IN_BYTES, "shared memory")
        return {
            "ptxas": printed.getvalue(), "shared": found.shared, "warps": found.num_warps, "stages": found.num_stages,
            "specialization": ", ".join(f"{name}={value}" for name, value in constants.items()),
        }  # fmt: skip


def _in_a_child(compiler: Compiler, *launch: Any) -> BaseException | dict[str, Any] | None:
    """Compiles a launch in a forked process. Returns the error with which the compiler refuses it, or a report.

    Returns None if the compiler failed for a reason of its own, for example without ptxas, or takes too long.
    """
    start, end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child needs no thread of this process
        process = os.fork()
    if not process:
        try:
            with os.fdopen(end, "wb") as out:
                out.write(pickle.dumps(_with_causes(_attempt(compiler, *launch))))
        finally:
            os._exit(0)
    os.close(end)
    with os.fdopen(start, "rb") as results:
        ready, _, _ = select.select([results], [], [], _LONGEST_S)
        sent = results.read() if ready else b""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    try:
        outcome, *causes = pickle.loads(sent)  # this process forked the sender
    except Exception:
        return None
    for error, cause in itertools.pairwise([outcome, *causes]):
        error.__cause__ = cause  # which a pickled exception loses
    return outcome  # type: ignore[no-any-return]


def _with_causes(outcome: Any) -> list[Any]:
    """Returns `outcome` and, if it is an exception, those of its causes with which the compiler refuses a kernel."""
    found = [outcome]
    while isinstance(found[-1], BaseException) and found[-1].__cause__ and is_refusal(found[-1].__cause__):
        found.append(found[-1].__cause__)
    return found


def _attempt(compiler: Compiler, *launch: Any) -> BaseException | dict[str, Any] | None:
    """Returns what `Compiler.compile` returns or raises, or None if it failed for a reason of its own."""
    with tempfile.TemporaryFile() as said:
        for descriptor in (1, 2):
            os.dup2(said.fileno(), descriptor)
        sys.stderr = io.StringIO()
        try:
            return compiler.compile(*launch)
        except BaseException as error:
            said.seek(0)
            return _refused(error, said.read().decode(errors="replace"))


def _refused(error: BaseException, said: str) -> BaseException | None:
    """Returns the error with which Triton refuses a launch, or None if `error` says nothing about the kernel.

    `said` is what the compiler printed.
    """
    if type(error).__name__ == "PTXASError" and "error code -" in str(error):  # a signal has ended ptxas
        return None
    frames = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    # Triton checks the options of a launch, and what the kernel names, before it compiles.
    if is_refusal(error) or frames & {"_pack_args", "record_reference"}:
        return error
    found = _DIAGNOSTIC.search(said)
    if isinstance(error, RuntimeError) and "PassManager" in str(error) and found:
        return RuntimeError(f"{error}\n{found[0]}")
    return None
