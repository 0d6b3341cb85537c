"""Builds for the emulated device: the runtime and the precompiled header once, then one small unit per candidate."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import psutil

from kernel_harness import tree
from kernel_harness.build import bindings, cache, compiler, light
from kernel_harness.build.errors import BuildFailed, UnsupportedConstruct
from kernel_harness.build.sources import Sources
from kernel_harness.emulator import shared_memory
from kernel_harness.emulator.lacking import lacking
from kernel_harness.emulator.rewrite import blank, rewrite, unsupported

_HERE = Path(__file__).parent
_INCLUDE, _RUNTIME = _HERE / "include", _HERE / "runtime"
# Without unique symbols, a template's shared memory is its own library's even where another has one of its name.
# -O2 is where the compiler's time stops paying for the small kernels seen here. Loops of a few constant steps are
# unrolled besides, as nvcc does it: a tiled product keeps its sum in a register. Contraction is nvcc's default too.
# Kernels read floats as integers and packs of four through pointers of other types; nvcc lets them.
# Two branches that end alike stay two, and a call that ends a function is one: which lanes run together is told by
# where they are in the code, and by which calls they came there.
_KEEP_APART = ("-fno-crossjumping", "-fno-tree-tail-merge", "-fno-code-hoisting", "-fno-optimize-sibling-calls")
_OPTIMISED = ("-O2", "-fpeel-loops")
_FLAGS = (
    *_OPTIMISED, "-march=native", "-ffp-contract=fast", "-fno-strict-aliasing", "-pthread", "-w", "-fno-gnu-unique",
    "-fmax-errors=20", "-fno-semantic-interposition", *_KEEP_APART,
)  # fmt: skip
# Sanitized code calls the runtime before every access of memory. Its line table says where, in the version that
# binutils of every age read rightly; more optimisation would move accesses away from their lines, or hide them.
_SANITIZED_FLAGS = (
    *(flag for flag in _FLAGS if flag not in _OPTIMISED), "-O1", "-g1", "-gdwarf-4", "-fsanitize=thread",
    "--param", "tsan-distinguish-volatile=1", "--param", "tsan-instrument-func-entry-exit=0",
)  # fmt: skip
# Counted code calls before every access of memory, too; the library itself counts.
_COUNTED = ("-O1", "-fno-peel-loops", "-fsanitize=thread")
_COUNTING = _HERE / "counting" / "count_accesses.cpp"
_TICK_S = 0.05
_ROOM = 1024  # bytes behind every shared variable: whoever overruns one would else meet the next
# torch gives nvcc these (its COMMON_NVCC_FLAGS), and a source that wants half's operators takes them back.
_TORCH_S_OWN = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)  # fmt: skip
_FULL = ("-I", str(_INCLUDE / "cuda"), "-I", str(_INCLUDE), "-I", str(bindings.INCLUDE))
_LIGHT = ("-I", str(_INCLUDE / "light"), *_FULL)
_EMULATOR = _INCLUDE / "emulator"
_PRELUDE = _EMULATOR / "prelude.h"
_MORE_THAN_DECLARED = re.compile(r"[{=]|#(?!\s*include\s*<(?:torch|ATen/core|ATen/ATen)[^>]*>)")
_INCLUDES_TORCH = re.compile(r"#\s*include\s*[<\"](?:torch|ATen|c10|pybind11)/")
# What the light headers leave out: the C++ front end, and bindings of types that are not theirs.
_NEEDS_FULL = re.compile(
    r"is not a member of .?torch\b|in namespace .?torch\b|.?torch::\w+. has not been declared"
    rf"|{bindings.UNSUPPORTED_TYPE}|pybind11"
)
# Of nvcc's flags, those that mean the same to g++.
_SHARED_FLAG = re.compile(r"-(?:D|U|I|std=|include)")

Mark = Callable[[str], str]


class Headers(Enum):
    """How much of torch a candidate is compiled against."""

    LIGHT = auto()  # tensors and operators, precompiled; functions bound by the runtime
    PYBIND = auto()  # the same and pybind11, for a source that binds itself
    FULL = auto()  # the real torch/extension.h


class Watch(Enum):
    """What a candidate's code tells the runtime before each of its accesses of memory."""

    NOTHING = auto()
    COUNTED = auto()  # how many bytes
    SANITIZED = auto()  # everything, so that mistakes are found


def runtime() -> Path:
    """The emulator's runtime library, built on first use. Raises BuildFailed, NoCompiler."""
    sources = sorted(_RUNTIME.glob("*.cpp"))

    def build(folder: Path) -> None:
        flags = [*compiler.torch_flags(), *_FLAGS, *_FULL]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda s: compiler.run([*flags, "-c", s, "-o", f"{s.stem}.o"], folder), sources))
        objects = [f"{s.stem}.o" for s in sources]
        link = ["-shared", *objects, "-o", "libemulator.so", *compiler.torch_link_flags()]
        compiler.run([*link, "-Wl,-soname,libemulator.so,-Bsymbolic-functions"], folder)
        for name in objects:
            (folder / name).unlink()

    name = _key("runtime", _INCLUDE / "emulator", _RUNTIME)
    return cache.get_or_build("emulator", name, build)[0] / "libemulator.so"


def prelude(sanitized: bool = False) -> Path:
    """The header every candidate starts with; its precompiled form lies beside it. Raises as `runtime`."""
    flags = _flags(sanitized)

    def build(folder: Path) -> None:
        copy = folder / "prelude.h"
        copy.write_text(_PRELUDE.read_text())
        compiler.run(
            [*compiler.torch_flags(), *flags, *_LIGHT, "-x", "c++-header", copy, "-o", "prelude.h.gch"], folder
        )

    name = _key("prelude" + "-sanitized" * sanitized, _INCLUDE, bindings.INCLUDE)
    return cache.get_or_build("emulator", name, build)[0] / "prelude.h"


def prepare(sanitized: bool = False) -> None:
    """Builds what all candidates share, side by side. Whoever interrupts it waits for no compiler of its own."""
    with ThreadPoolExecutor() as pool:
        builds = [pool.submit(prelude, sanitized), pool.submit(runtime), pool.submit(bindings.library)]
        try:
            while wait(builds, _TICK_S).not_done:
                pass  # an interruption that comes right before a wait is felt after it
        except BaseException:
            while wait(builds, _TICK_S).not_done:  # where one compiler ends another may begin
                _end_compilers()
            raise
    for build in builds:
        build.result()


def _end_compilers() -> None:
    """Those below this process, by where they stand: nothing else does in the cache."""
    for process in tree.below(os.getpid()):
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(cache.root().resolve()):
                process.kill()


def extension(sources: Sources, mark: Mark, watch: Watch = Watch.NOTHING) -> tuple[Path, bool]:
    """The candidate's library and whether it was cached, built in this process. Raises as `build`."""
    name = key(sources, watch)
    folder, cached = cache.get_or_build("extensions", name, lambda folder: build(sources, mark, folder, watch))
    return folder / f"{sources.name}.so", cached


def key(sources: Sources, watch: Watch = Watch.NOTHING) -> str:
    """What the candidate's library is found by."""
    return cache.key(
        base=_key("extension", _INCLUDE, _RUNTIME, bindings.INCLUDE, _COUNTING, _HERE / "rewrite.py", Path(__file__)),
        watch=watch.name, light=not light.unwanted(),
        name=sources.name, cpp=sources.cpp, cuda=sources.cuda, bindings=sources.bindings,
        own=[sources.cflags, sources.cuda_cflags, sources.ldflags, sources.include_paths],
    )  # fmt: skip


def build(sources: Sources, mark: Mark, folder: Path, watch: Watch = Watch.NOTHING) -> None:
    """Puts the candidate's library into a folder. `mark` points a source's lines at the author's file.

    Raises BuildFailed, UnsupportedConstruct, NoCompiler.
    """
    _refuse_unsupported(sources, mark)
    try:
        _compile(sources, mark, folder, _least(sources), watch)
    except BuildFailed as failure:
        found = lacking(failure.log)
        if found:
            raise UnsupportedConstruct(f"{found[0]}: the emulation cannot run {found[1]}.", failure.log) from None
        if not _NEEDS_FULL.search(failure.log):
            raise
        _compile(sources, mark, folder, Headers.FULL, watch)


def _least(sources: Sources) -> Headers:
    """The least that can be enough."""
    if light.unwanted():
        return Headers.FULL
    return Headers.LIGHT if bindings.serve(blank(sources.cpp + sources.cuda)) else Headers.PYBIND


@dataclass(frozen=True)
class _Unit:
    """One translation unit and how it is compiled."""

    name: str
    text: str
    flags: Sequence[str | Path]


def _compile(sources: Sources, mark: Mark, folder: Path, headers: Headers, watch: Watch) -> None:
    paths = [word for path in sources.include_paths for word in ("-I", path)]
    sanitized = watch is Watch.SANITIZED
    units = _units(sources, mark, headers, sanitized)
    if watch is Watch.COUNTED:
        units = [_Unit(unit.name, unit.text, [*unit.flags, *_COUNTED]) for unit in units]
        # Hidden, so that no other library's functions of these names come first.
        units.append(_Unit("counting", _COUNTING.read_text(), [*_FULL, "-fvisibility=hidden"]))

    def compile_one(unit: _Unit) -> None:
        (folder / f"{unit.name}.cpp").write_text(unit.text)
        flags = [*compiler.torch_flags(), *_flags(sanitized), *unit.flags, *paths]
        if sanitized:
            assembly = folder / f"{unit.name}.s"
            compiler.run([*flags, "-S", f"{unit.name}.cpp", "-o", assembly], folder)
            assembly.write_text(_with_room(assembly.read_text()))
            compiler.run(["-c", assembly, "-o", f"{unit.name}.o"], folder)
            assembly.unlink()
        else:
            compiler.run([*flags, "-c", f"{unit.name}.cpp", "-o", f"{unit.name}.o"], folder)

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, units))
    if not sanitized:  # which gives every shared variable more room than it asked for
        _refuse_excess(sources, mark, [folder / f"{unit.name}.o" for unit in units])
    library = runtime()
    libraries = [flag for flag in sources.ldflags if not flag.startswith("-lcu")]
    compiler.run(
        ["-shared", *(f"{unit.name}.o" for unit in units), "-o", f"{sources.name}.so", *compiler.torch_link_flags(),
         f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", "-lemulator", *bindings.link_flags(), *libraries],
        folder,
    )  # fmt: skip
    for unit in units:
        (folder / f"{unit.name}.o").unlink()


def _refuse_excess(sources: Sources, mark: Mark, objects: list[Path]) -> None:
    found = shared_memory.excess(objects)
    if not found:
        return
    function, variable, size = found
    declared = re.search(rf"__shared__[^;]*\b{re.escape(variable)}\b", blank(sources.cuda))
    line = sources.cuda.count("\n", 0, declared.end()) + 1 if declared else 1
    raise BuildFailed(
        f"{_location(sources.cuda, line, mark)}: error: {function} uses too much shared memory ({size} bytes, at most "
        f"{shared_memory.LIMIT_BYTES}); more must be dynamic, and asked for with cudaFuncSetAttribute."
    )


def _with_room(assembly: str) -> str:
    """The same assembly with unused bytes behind each variable of zeroed thread-local memory."""
    out, shared = [], False
    for line in assembly.split("\n"):
        if line.startswith(("\t.section", "\t.text", "\t.data", "\t.bss")):
            shared = "\t.tbss" in line
        out.append(line)
        if shared and line.startswith("\t.zero\t"):
            out.append(f"\t.zero\t{_ROOM}")
    return "\n".join(out)


def _flags(sanitized: bool) -> tuple[str, ...]:
    return (*(_SANITIZED_FLAGS if sanitized else _FLAGS), *_TORCH_S_OWN)


def _units(sources: Sources, mark: Mark, headers: Headers, sanitized: bool) -> list[_Unit]:
    """The C++ half, with its bindings, and the CUDA half.

    A C++ half of bare declarations (and headers that the prelude has anyway) shares the CUDA half's unit. It
    stands before it and its bindings with it, so that neither sees more of the other than it would with two
    compilers. Anything more gets a unit of its own, and then device code that includes nothing of torch is
    compiled without it.
    """
    start = _start(headers, sanitized)
    module = bindings.definition(sources) if headers is Headers.LIGHT else sources.bindings
    # Defined here and not by a flag: torch's headers test it, and a flag would rule out the precompiled ones.
    name = f"#define TORCH_EXTENSION_NAME {sources.name}\n"
    cpp = f"{name}{mark(sources.cpp)}\n{bindings.PLACE}\n{module}\n"
    cuda = _rewritten(mark(sources.cuda))
    cpp_flags = [flag for flag in sources.cflags if not flag.startswith("-O")]
    cuda_flags = [flag for flag in sources.cuda_cflags if _SHARED_FLAG.match(flag)]
    if not blank(sources.cuda).strip():
        return [_Unit("main", cpp, [*start, "-include", _EMULATOR / "host_side.h", *cpp_flags])]
    if not _MORE_THAN_DECLARED.search(blank(sources.cpp)) and cuda_flags == cpp_flags:
        return [_Unit("main", cpp + cuda, [*start, *cpp_flags])]
    if not sources.implicit_headers and not _INCLUDES_TORCH.search(sources.cuda):
        start = [*_FULL, "-include", _INCLUDE / "cuda" / "cuda_runtime.h", "-include", _EMULATOR / "device_side.h"]
    host = [*_start(headers, sanitized), "-include", _EMULATOR / "host_side.h"]
    return [_Unit("main", cpp, [*host, *cpp_flags]), _Unit("cuda", name + cuda, [*start, *cuda_flags])]


def _start(headers: Headers, sanitized: bool) -> list[str | Path]:
    """Include paths and the text that load_inline puts first."""
    if headers is Headers.LIGHT:
        return [*_LIGHT, "-include", prelude(sanitized)]
    if headers is Headers.PYBIND:
        return [*_LIGHT, "-DEMULATOR_WITH_PYBIND11", "-include", _PRELUDE]
    return [*_FULL, "-include", _PRELUDE]


def _rewritten(source: str) -> str:
    try:
        return rewrite(source)
    except ValueError as error:
        raise BuildFailed(f"The CUDA source cannot be read: {error}.") from None


def _refuse_unsupported(sources: Sources, mark: Mark) -> None:
    found = unsupported(sources.cuda) or unsupported(sources.cpp)
    if found:
        where = _location(sources.cuda if unsupported(sources.cuda) else sources.cpp, found.line, mark)
        raise UnsupportedConstruct(f"{where}: the emulation cannot run {found.construct}.")


def _location(source: str, line: int, mark: Mark) -> str:
    """The author's file and line for a line of the source, read back from its marks."""
    seen, at, file = 0, line, "source"
    for text in mark(source).split("\n"):
        directive = re.match(r'#line (\d+) "(.*)"$', text)
        if directive:
            at, file = int(directive[1]), directive[2]
            continue
        seen += 1
        if seen == line:
            break
        at += 1
    return f"{file}:{at}"


@functools.cache
def _key(what: str, *code: Path) -> str:
    """What a product of ours is found by: this machine, and our own code that makes it."""
    return cache.key(
        what=what, machine=compiler.identity(), flags=_SANITIZED_FLAGS + _FLAGS, code=cache.digest_of(*code)
    )
