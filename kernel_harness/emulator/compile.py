"""Builds for the emulated device: the runtime and the precompiled header once, then one small unit per candidate."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from kernel_harness.build import bindings, cache, compiler
from kernel_harness.build.errors import BuildFailed, UnsupportedConstruct
from kernel_harness.build.sources import Sources
from kernel_harness.emulator.rewrite import blank, rewrite, unsupported

_HERE = Path(__file__).parent
_INCLUDE, _RUNTIME = _HERE / "include", _HERE / "runtime"
# Without unique symbols, a template's shared memory is its own library's even where another has one of its name.
# -O2 is where the compiler's time stops paying for the small kernels seen here; contraction is nvcc's default too.
_FLAGS = ("-O2", "-march=native", "-ffp-contract=fast", "-pthread", "-w", "-fno-gnu-unique", "-fmax-errors=20")
# Counted code calls before every access of memory; more optimisation would leave accesses out.
_COUNTED = ("-O1", "-fsanitize=thread")
_COUNTING = _HERE / "counting" / "count_accesses.cpp"
_FULL = ("-I", str(_INCLUDE / "cuda"), "-I", str(_INCLUDE), "-I", str(bindings.INCLUDE))
_LIGHT = ("-I", str(_INCLUDE / "light"), *_FULL)
_PRELUDE = _INCLUDE / "emulator" / "prelude.h"
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


def runtime() -> Path:
    """The emulator's runtime library, built on first use. Raises BuildFailed, NoCompiler."""
    sources = sorted(_RUNTIME.glob("*.cpp"))

    def build(folder: Path) -> None:
        flags = [*compiler.torch_flags(), *_FLAGS, *_FULL]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda s: compiler.run([*flags, "-c", s, "-o", f"{s.stem}.o"], folder), sources))
        objects = [f"{s.stem}.o" for s in sources]
        link = ["-shared", *objects, "-o", "libemulator.so", *compiler.torch_link_flags()]
        compiler.run([*link, "-Wl,-soname,libemulator.so"], folder)
        for name in objects:
            (folder / name).unlink()

    name = _key("runtime", _INCLUDE / "emulator", _RUNTIME)
    return cache.get_or_build("emulator", name, build)[0] / "libemulator.so"


def prelude() -> Path:
    """The header every candidate starts with; its precompiled form lies beside it. Raises as `runtime`."""

    def build(folder: Path) -> None:
        copy = folder / "prelude.h"
        copy.write_text(_PRELUDE.read_text())
        compiler.run(
            [*compiler.torch_flags(), *_FLAGS, *_LIGHT, "-x", "c++-header", copy, "-o", "prelude.h.gch"], folder
        )

    name = _key("prelude", _INCLUDE, bindings.INCLUDE)
    return cache.get_or_build("emulator", name, build)[0] / "prelude.h"


def prepare() -> None:
    """Builds what all candidates share, side by side."""
    with ThreadPoolExecutor() as pool:
        for future in [pool.submit(make) for make in (prelude, runtime, bindings.library)]:
            future.result()


def extension(sources: Sources, mark: Mark, *, counted: bool = False) -> tuple[Path, bool]:
    """The candidate's library and whether it was cached, built in this process. Raises as `build`."""
    name = key(sources, counted=counted)
    folder, cached = cache.get_or_build(
        "extensions", name, lambda folder: build(sources, mark, folder, counted=counted)
    )
    return folder / f"{sources.name}.so", cached


def key(sources: Sources, *, counted: bool = False) -> str:
    """What the candidate's library is found by."""
    return cache.key(
        base=_key("extension", _INCLUDE, _RUNTIME, bindings.INCLUDE, _HERE / "rewrite.py", Path(__file__)),
        name=sources.name, cpp=sources.cpp, cuda=sources.cuda, bindings=sources.bindings,
        counted=cache.digest_of(_COUNTING) if counted else "",
        own=[sources.cflags, sources.cuda_cflags, sources.ldflags, sources.include_paths],
    )  # fmt: skip


def build(sources: Sources, mark: Mark, folder: Path, *, counted: bool = False) -> None:
    """Puts the candidate's library into a folder. `mark` points a source's lines at the author's file.

    Counted, its code tells the runtime what it reads and writes.
    Raises BuildFailed, UnsupportedConstruct, NoCompiler.
    """
    _refuse_unsupported(sources, mark)
    headers = Headers.LIGHT if bindings.serve(blank(sources.cpp + sources.cuda)) else Headers.PYBIND
    try:
        _compile(sources, mark, folder, headers, counted)
    except BuildFailed as failure:
        if not _NEEDS_FULL.search(failure.log):
            raise
        _compile(sources, mark, folder, Headers.FULL, counted)


@dataclass(frozen=True)
class _Unit:
    """One translation unit and how it is compiled."""

    name: str
    text: str
    flags: Sequence[str | Path]


def _compile(sources: Sources, mark: Mark, folder: Path, headers: Headers, counted: bool) -> None:
    paths = [word for path in sources.include_paths for word in ("-I", path)]
    units = _units(sources, mark, headers)
    if counted:
        units = [_Unit(unit.name, unit.text, [*unit.flags, *_COUNTED]) for unit in units]
        # Hidden, so that no other library's functions of these names come first.
        units.append(_Unit("counting", _COUNTING.read_text(), [*_FULL, "-fvisibility=hidden"]))

    def compile_one(unit: _Unit) -> None:
        (folder / f"{unit.name}.cpp").write_text(unit.text)
        flags = [*compiler.torch_flags(), *_FLAGS, *unit.flags, *paths]
        compiler.run([*flags, "-c", f"{unit.name}.cpp", "-o", f"{unit.name}.o"], folder)

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, units))
    library = runtime()
    libraries = [flag for flag in sources.ldflags if not flag.startswith("-lcu")]
    compiler.run(
        ["-shared", *(f"{unit.name}.o" for unit in units), "-o", f"{sources.name}.so", *compiler.torch_link_flags(),
         f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", "-lemulator", *bindings.link_flags(), *libraries],
        folder,
    )  # fmt: skip
    for unit in units:
        (folder / f"{unit.name}.o").unlink()


def _units(sources: Sources, mark: Mark, headers: Headers) -> list[_Unit]:
    """The C++ half, with its bindings, and the CUDA half.

    A C++ half of bare declarations (and headers that the prelude has anyway) shares the CUDA half's unit. It
    stands before it and its bindings with it, so that neither sees more of the other than it would with two
    compilers. Anything more gets a unit of its own, and then device code that includes nothing of torch is
    compiled without it.
    """
    start = _start(headers)
    module = bindings.definition(sources) if headers is Headers.LIGHT else sources.bindings
    # Defined here and not by a flag: torch's headers test it, and a flag would rule out the precompiled ones.
    name = f"#define TORCH_EXTENSION_NAME {sources.name}\n"
    cpp = f"{name}{mark(sources.cpp)}\n{bindings.PLACE}\n{module}\n"
    cuda = _rewritten(mark(sources.cuda))
    cpp_flags = [flag for flag in sources.cflags if not flag.startswith("-O")]
    cuda_flags = [flag for flag in sources.cuda_cflags if _SHARED_FLAG.match(flag)]
    if not blank(sources.cuda).strip():
        return [_Unit("main", cpp, [*start, *cpp_flags])]
    if not _MORE_THAN_DECLARED.search(blank(sources.cpp)) and cuda_flags == cpp_flags:
        return [_Unit("main", cpp + cuda, [*start, *cpp_flags])]
    if not sources.implicit_headers and not _INCLUDES_TORCH.search(sources.cuda):
        start = [*_FULL, "-include", _INCLUDE / "cuda" / "cuda_runtime.h"]
    return [_Unit("main", cpp, [*_start(headers), *cpp_flags]), _Unit("cuda", name + cuda, [*start, *cuda_flags])]


def _start(headers: Headers) -> list[str | Path]:
    """Include paths and the text that load_inline puts first."""
    if headers is Headers.LIGHT:
        return [*_LIGHT, "-include", prelude()]
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
    return cache.key(what=what, machine=compiler.identity(), flags=_FLAGS, code=cache.digest_of(*code))
