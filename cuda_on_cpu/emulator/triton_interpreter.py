"""Runs the Triton kernels of a worker process in Triton's own interpreter, on the memory of the emulated device.

The interpreter computes the programs of a kernel's grid with numpy, many at once (`triton_programs`). Where its results
would differ from those of a GPU, this module corrects them: products of float32 matrices use TF32 unless the kernel
asks for another format, arithmetic on bfloat16 is done on bfloat16 numbers, and the functions of CUDA's libdevice have
their values.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

from cuda_on_cpu.compile.errors import UnsupportedConstruct
from cuda_on_cpu.emulator import torch_graphs, triton_bfloat16, triton_compiler, triton_functions
from cuda_on_cpu.emulator.shared_memory_limit import OPT_IN_BYTES

_NOT_EMULATED = ("cuda.bindings", "cuda.core", "cupy", "cutlass", "numba.cuda", "pycuda", "tilelang", "warp")
"""Modules that compile or load kernels for a real GPU by themselves."""

_TF32_MASK = np.uint32(0xFFFFE000)
_CACHE_BYTES = 2**20  # of the buffer with which a candidate's own benchmark clears the L2 cache, which is not emulated
_state = SimpleNamespace(launches=0, skip=False, compiler=None)


def install() -> None:
    """Prepares this process for candidates that import Triton. The first import of Triton then sets up its interpreter.

    An import of a module in `_NOT_EMULATED`, such as CuPy, raises NotEmulated. A second call does nothing, because each
    further import hook would double the time of an import of Triton.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        if "triton" in sys.modules:  # torch has imported it
            _set_up()


def launches() -> int:
    """Returns the number of launches of Triton kernels so far in this process, with those that were skipped."""
    return int(_state.launches)


def compiled() -> list[dict[str, Any]]:
    """Returns what Triton's compiler says of the kernels launched so far (`triton_compiler.Compiler.reports`)."""
    return _state.compiler.reports() if _state.compiler else []


def skip_kernels(skip: bool) -> None:
    """If `skip` is true, later launches of Triton kernels run nothing. If it is false, launches run their kernels."""
    _state.skip = skip


class NotEmulated(UnsupportedConstruct, ImportError):
    """The error raised by the import of a module whose kernels need a real GPU.

    It is also an ImportError, so a candidate that can do without the module catches it as on any other machine.
    """


class _Finder(MetaPathFinder):
    """An import hook: sets up the interpreter at the import of Triton, and refuses modules that need a real GPU."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname in _NOT_EMULATED:
            return ModuleSpec(fullname, _Refused())
        if fullname != "triton":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec("triton")
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), _set_up())  # type: ignore
        return spec


class _Refused(Loader):
    def exec_module(self, module: ModuleType) -> None:
        raise NotEmulated(f"{module.__name__} needs a real GPU; the emulated device runs CUDA C++ and Triton only")


def _set_up() -> None:
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    language = importlib.import_module("triton.language")
    jit, runtime = (importlib.import_module(f"triton.runtime{name}") for name in (".jit", ""))
    runtime.driver.set_active(_driver())
    importlib.import_module("triton.compiler.code_generator")  # it keeps functions of the language, as they are now
    interpreter._patch_attr = lambda scope, name, function, builder, patches: patches.set_attr(
        scope, name, triton_functions.interpreted(function, interpreter.interpreter_semantic)
    )
    # Once for the process: at each launch, and each call of a device function, it takes longer than small kernels.
    patches = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": language, "core": language.core}))
    interpreter._patch_lang = lambda function: interpreter._LangPatchScope()
    _interpret_functions(jit, interpreter, language, patches.set_attr)
    _state.compiler = triton_compiler.Compiler(patches.restore)
    interpreter.GridExecutor.__call__ = _launch
    _correct(interpreter, language, patches.set_attr)


def _interpret_functions(jit: Any, interpreter: Any, language: Any, replace: Callable[[Any, str, Any], None]) -> None:
    """Makes Triton's objects for kernels and device functions run in the interpreter, and those made from now on.

    They stay objects of Triton's compiler, so it can compile them where all that `replace` has set is set back.
    """
    rewritten = functools.cache(lambda function: interpreter.FunctionRewriter(function).rewrite_ast())

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        if warmup:
            raise UnsupportedConstruct("`warmup` compiles a Triton kernel, but the interpreter compiles nothing")
        _state.compiler.check(self, grid, arguments, keywords)
        execute = interpreter.GridExecutor(rewritten(self.fn), self.arg_names, grid, self.pre_run_hooks)
        return execute(*arguments, **keywords)

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return rewritten(self.fn)(*arguments, **keywords)

    importlib.import_module("triton").knobs.runtime.interpret = True
    replace(jit.JITFunction, "run", run)
    replace(jit.JITFunction, "__call__", call)
    for name, member in list(vars(language.tensor).items()):
        if isinstance(member, jit.JITFunction):
            replace(language.tensor, name, functools.partialmethod(_call_with, member))
    interpreter.InterpretedFunction = jit.JITFunction


def _call_with(tensor: Any, function: Any, *arguments: Any, **keywords: Any) -> Any:
    return function(tensor, *arguments, **keywords)


def _correct(interpreter: Any, language: Any, replace: Callable[[Any, str, Any], None]) -> None:
    builder = interpreter.InterpreterBuilder
    minimum = importlib.import_module("triton.backends.nvidia.compiler").min_dot_size(triton_compiler.target())
    interpreter.interpreter_builder.codegen_fns["min_dot_size"] = minimum
    importlib.import_module("cuda_on_cpu.emulator.triton_vectors").install(replace)
    triton_bfloat16.install(interpreter, language)
    builder.create_dot = _dot(builder.create_dot, interpreter, language)
    builder.create_extern_elementwise = triton_functions.extern_elementwise(interpreter.TensorHandle)
    triton_functions.install(interpreter.interpreter_semantic, replace)


def _launch(self: Any, *arguments: Any, **keywords: Any) -> None:
    """Launches a kernel; `self` is the interpreter's object for the launch.

    During a capture it only records the launch, and if kernels are skipped it runs nothing. The kernel works on the
    memory of the emulated device itself, so the judge sees each write outside of a tensor. A NotImplementedError
    becomes UnsupportedConstruct.
    """
    _state.launches += 1
    if torch_graphs.is_capturing():
        torch_graphs.record(functools.partial(_launch, self, *arguments, **keywords))
    elif not _state.skip:
        try:
            importlib.import_module("cuda_on_cpu.emulator.triton_programs").launch(self, arguments, keywords)
        except NotImplementedError as error:
            raise UnsupportedConstruct(f"Triton's interpreter cannot run this kernel: {error}") from error


def _dot(product: Callable[..., Any], interpreter: Any, language: Any) -> Callable[..., Any]:
    """Returns `product`, the interpreter's matrix product, with a GPU's number formats.

    A tensor core multiplies float32 numbers as TF32: it ignores the last 13 of their 23 fraction bits. TF32 is Triton's
    default. With `input_precision="ieee"` or `"tf32x3"`, which keep all or nearly all bits, `product` is unchanged.
    """
    handle, formats = interpreter.TensorHandle, interpreter._ir.INPUT_PRECISION

    def dot(self: Any, a: Any, b: Any, c: Any, input_precision: Any, *others: Any) -> Any:
        if input_precision == formats.TF32:
            a, b = (_as_tf32(each, handle, language) for each in (a, b))
        return product(self, a, b, c, input_precision, *others)

    return dot


def _as_tf32(value: Any, handle: Any, language: Any) -> Any:
    if value.dtype.scalar != language.float32:
        return value
    return handle((value.data.view(np.uint32) & _TF32_MASK).view(np.float32), language.float32)


def _driver() -> Any:
    """Returns a driver for Triton that describes the emulated device.

    If Triton tunes a kernel, the driver runs it once with each configuration and reports equal times, because emulated
    times do not predict the times of a GPU. So Triton takes the first configuration that runs.
    """
    base = importlib.import_module("triton.backends.driver").GPUDriver
    properties = {
        "multiprocessor_count": 4,
        "max_shared_mem": OPT_IN_BYTES,
        "warpSize": 32,
        "max_num_regs": 65536,
    }

    class Driver(base):  # type: ignore[misc,valid-type]
        utils = SimpleNamespace(get_device_properties=lambda device: {**properties})

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            raise UnsupportedConstruct("Triton's interpreter does not call C++ code")

        def get_current_target(self) -> Any:
            return triton_compiler.target()

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

        def get_device_interface(self) -> Any:
            return torch.cuda

        def get_benchmarker(self) -> Callable[..., Any]:
            return _measured_as_equal

        def get_empty_cache_for_benchmark(self) -> torch.Tensor:
            return torch.empty(_CACHE_BYTES, dtype=torch.uint8, device="cuda")

        def clear_cache(self, cache: torch.Tensor) -> None:
            cache.zero_()

    return Driver()


def _measured_as_equal(call: Callable[[], Any], *, quantiles: Sequence[float] = (0.5,), **_: Any) -> list[float]:
    call()
    return [1.0] * len(quantiles)
