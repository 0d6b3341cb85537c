"""Makes the translation units of a candidate (their text and headers), and compiles each to an object file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from cuda_on_cpu.compile import bindings, host_compiler, light_headers
from cuda_on_cpu.compile.compiler_log import errors
from cuda_on_cpu.compile.cuda_source import code_only, includes_any, with_additions
from cuda_on_cpu.compile.errors import BuildFailed, CompilerFailed, FullHeadersMissing
from cuda_on_cpu.compile.sources import Sources, named, options
from cuda_on_cpu.emulator import counted_updates, declared_kernels, flags, narrow_accesses, shared_parts, unrolled_loops
from cuda_on_cpu.emulator.flags import Instrumentation
from cuda_on_cpu.emulator.launches import MalformedLaunch
from cuda_on_cpu.emulator.rewrite import rewrite

_GUARD_BYTES = 1024  # unused bytes behind each `__shared__` variable, so that an overrun does not reach the next one
_MORE_THAN_DECLARATIONS = re.compile(r"[{=]|#(?!\s*include\s*<(?:torch|ATen/core|ATen/ATen)[^>]*>)")
# Headers that the precompiled light header leaves out, because few sources need them, and the names that need them.
_EXTRA_HEADERS: dict[str | Path, re.Pattern[str]] = {
    flags.EMULATOR_HEADERS / "with_values.h": re.compile(
        r"\b(?:indexing|Slice|TensorIndex|TensorList|ITensorListRef|IValue)\b|\b(?:cat|stack)\s*\(|"
        r"\bindex(?:_put_)?\s*\(\s*\{"
    ),
    flags.EMULATOR_HEADERS / "with_pybind11.h": bindings.BINDS_ITSELF,
    "ATen/full_context.h": re.compile(
        r"\b(?:globalContext|Context|NoTF32Guard|get(?:CUDAHooks|CPUAllocator|NumGPUs|DeprecatedTypeProperties)|"
        r"manual_seed|at::(?:CPU|CUDA|init|has[A-Z]\w*))\b"
    ),
    "torch/library.h": re.compile(r"\bTORCH_LIBRARY"),
}
# A name that may be that of an operator, such as `relu` in `at::relu(x)`. A method of a tensor needs no header.
_NAME = re.compile(r"(?<![\w.])(?<!->)[A-Za-z_]\w*")
# An #include of a header that is not torch's nor CUDA's: it may name any operator.
_OWN_HEADER = re.compile(r'"(?!(?:torch|ATen|c10)/|cuda)')
# nvcc compiles torch's headers with parts of CUDA's C++ library, which include this header: a CUDA source may name
# FLT_MAX without an #include. A C++ source may not.
_NVCC_INCLUDES = ("-include", "cfloat")
# The flags of nvcc that have the same meaning for g++.
_SHARED_FLAG = re.compile(r"-(?:D|U|I|std=|include|fpermissive)")
# Many sources name C++17, which torch's headers accept. The emulator's headers are C++20, so this flag is left out.
_CPP17 = re.compile(r"-std=(?:c|gnu)\+\+(?:17|1z)")
# Casts of pointers: only a source with such a cast can access memory through a misaligned pointer.
_CASTS_POINTERS = re.compile(r"\breinterpret_cast\b|\*\s*\)")
# Appended to a source, this text stops g++ at the end of the source with a fatal error. g++ then skips the functions of
# torch's own headers, whose templates it would instantiate for 10 s after the source's last line. A source may end in
# the middle of a declaration, with which g++ skips the next one, or in up to two blocks. So the text has it again.
_END = "end-of-the-source"
_ENDLESS = "namespace emulator_end { template <int n> struct Endless : Endless<n + 1> {}; Endless<0> endless; }\n"
_STOP = f'\n#line 1 "{_END}"\n' + "}\n".join([_ENDLESS + _ENDLESS, _ENDLESS, _ENDLESS])


class Headers(Enum):
    """Which headers for torch a candidate's source is compiled with.

    LIGHT: precompiled light headers with tensors and operators, and more headers for other names in the source. FULL:
    torch's own torch/extension.h.
    """

    LIGHT = auto()
    FULL = auto()


@dataclass(frozen=True)
class Unit:
    """A translation unit of a candidate.

    `name` is the name of its file without the ending, and `text` the C++ to compile. `flags` are compiler flags in
    addition to those that all candidates get. `includes_torch` says whether the unit includes any header of torch,
    light or torch's own.
    """

    name: str
    text: str
    flags: Sequence[str | Path]
    includes_torch: bool = True


def translation_units(sources: Sources, headers: Headers, instrumentation: Instrumentation) -> list[Unit]:
    """Returns all translation units of a candidate's library.

    Raises BuildFailed if a kernel launch cannot be parsed or the precompiled header cannot be built (FullHeadersMissing
    if this process cannot store it), and NoCompiler if this machine lacks a tool for the build.
    """
    units = _source_units(sources, headers, instrumentation)
    if _CASTS_POINTERS.search(code_only(sources.cuda)):
        units = [replace(unit, flags=[*unit.flags, *flags.CHECKS_ALIGNMENT]) for unit in units]
    if instrumentation is not Instrumentation.COUNTED:
        return units
    units = [replace(unit, flags=[*unit.flags, *flags.COUNTED]) for unit in units]
    # The counting functions are hidden, so that a library calls its own and not those of another library.
    counting = [*flags.FULL_HEADERS, *flags.COUNTS]
    return [*units, Unit("counting", flags.COUNTING.read_text(), counting, includes_torch=False)]


def compile_unit(unit: Unit, sources: Sources, folder: Path, instrumentation: Instrumentation) -> None:
    """Compiles one translation unit of a candidate to the object file `<name of the unit>.o` in `folder`.

    `sources` gives the include paths. For the sanitizer, unused bytes are put behind each `__shared__` variable, so
    that an access behind its end does not reach the next variable. For a profile, accesses of 16 bytes to objects with
    an alignment of 8 are marked. Raises BuildFailed, or NoCompiler if this machine lacks a tool for the build.
    """
    (folder / f"{unit.name}.cpp").write_text(unit.text, encoding="utf-8")
    reporting = instrumentation is not Instrumentation.NONE
    words = [*_words(unit, sources, reporting=reporting), "-MD", "-MF", f"{unit.name}.d"]
    assembled = host_compiler.lists_assembled(f"{unit.name}.assembled.d")
    if instrumentation is Instrumentation.NONE:
        host_compiler.run([*words, *assembled, "-c", f"{unit.name}.cpp", "-o", f"{unit.name}.o"], folder)
        return
    edited = _with_guards if instrumentation is Instrumentation.SANITIZED else narrow_accesses.mark
    assembly = folder / f"{unit.name}.s"
    host_compiler.run([*words, "-S", f"{unit.name}.cpp", "-o", assembly], folder)
    assembly.write_text(edited(assembly.read_text(encoding="utf-8")), encoding="utf-8")
    host_compiler.run([*assembled, "-c", assembly, "-o", f"{unit.name}.o"], folder)
    assembly.unlink()


def refuse_errors(unit: Unit, sources: Sources, folder: Path) -> None:
    """Raises BuildFailed if g++ finds an error in the text of `unit`, a unit with torch's own headers.

    g++ reads the text up to its last line. It does not instantiate templates that it would instantiate after this line,
    so it may miss an error, but it reports no false one. `sources` gives the include paths.
    """
    (folder / f"{unit.name}.cpp").write_text(unit.text + _STOP, encoding="utf-8")
    words = [*_words(unit, sources, reporting=False), "-fsyntax-only", f"{unit.name}.cpp"]
    try:
        host_compiler.run(words, folder)
    except BuildFailed as failure:
        log = re.split(rf"^{_END}", failure.log, maxsplit=1, flags=re.MULTILINE)[0]
        if errors(log):
            raise CompilerFailed(log) from None


def rewritten(sources: Sources) -> str:
    """Returns the CUDA source as C++ for the emulator. Its lines keep their numbers.

    Raises BuildFailed for a malformed launch.
    """
    try:
        return rewrite(sources.cuda, sources.cuda_cflags)
    except MalformedLaunch as error:
        raise BuildFailed(f"{sources.cuda_file}:{error.line}: error: {error.problem}", final=True) from None


def _words(unit: Unit, sources: Sources, *, reporting: bool) -> list[str | Path]:
    paths = [word for path in sources.include_paths for word in ("-I", path)]
    general = [*host_compiler.torch_flags(), *host_compiler.FEW_COLLECTIONS]
    return [*general, *flags.for_candidates(reporting=reporting), *unit.flags, *paths]


def _source_units(sources: Sources, headers: Headers, instrumentation: Instrumentation) -> list[Unit]:
    """Returns the one or two translation units of a candidate.

    Without CUDA code there is one unit, with the C++ source. If the C++ source only declares functions, and the flags
    of both sources are equal, one unit has both sources, which saves a compiler call. In this unit, the C++ source and
    the code that exports its functions to Python come first, so that they do not see the CUDA source. Otherwise each
    source has a unit, and the CUDA source is compiled without torch's headers if it includes none of them.
    """
    start = _first_includes(headers, instrumentation is not Instrumentation.NONE)
    bound = headers is Headers.LIGHT and bindings.serve(code_only(sources.cpp) + code_only(sources.cuda))
    module = bindings.definition(sources) if bound else sources.bindings
    # A #define instead of a flag: torch's headers test the name, so with the flag g++ would reject the precompiled
    # header, which is built without it.
    name = f"#define TORCH_EXTENSION_NAME {sources.name}\n"
    cpp = f"{name}{named(sources.cpp, sources.cpp_file)}\n{bindings.PLACE}\n{module}\n"
    text = rewritten(sources)
    counted = instrumentation is Instrumentation.COUNTED
    added = [*unrolled_loops.marks(text), *counted_updates.marks(text)] if counted else []
    cuda = declared_kernels.declaration(sources.cuda, text) + named(with_additions(text, added), sources.cuda_file)
    cpp_flags = [flag for flag in sources.cflags if not flag.startswith("-O") and not _CPP17.fullmatch(flag)]
    cuda_options = [option for option in options(sources.cuda_cflags) if _SHARED_FLAG.match(option[0])]
    cuda_flags = [word for option in cuda_options if not _CPP17.fullmatch(option[0]) for word in option]
    host = [*start, "-include", flags.EMULATOR_HEADERS / "host_side.h", *_extra_includes(headers, sources.cpp, module)]
    if not code_only(sources.cuda).strip():
        return [Unit("main", cpp, [*host, *cpp_flags])]
    start += [*_NVCC_INCLUDES, *_extra_includes(headers, sources.cuda)]
    ptx: list[str | Path] = ["-include", flags.EMULATOR_HEADERS / "ptx.h"] if "::emulator::ptx::" in cuda else []
    if not _MORE_THAN_DECLARATIONS.search(code_only(sources.cpp)) and cuda_flags == cpp_flags:
        return [Unit("main", cpp + cuda, [*start, *_extra_includes(headers, sources.cpp, module), *ptx, *cpp_flags])]
    needs_torch = light_headers.replace_headers_of(sources)
    if not needs_torch:
        runtime_api, device_side = flags.CUDA_HEADERS / "cuda_runtime.h", flags.EMULATOR_HEADERS / "device_side.h"
        start = [*flags.FULL_HEADERS, "-include", runtime_api, "-include", device_side, *_NVCC_INCLUDES]
    return [Unit("main", cpp, [*host, *cpp_flags]), Unit("cuda", name + cuda, [*start, *ptx, *cuda_flags], needs_torch)]


def _first_includes(headers: Headers, reporting: bool) -> list[str | Path]:
    """Returns the compiler flags for the include paths, and for the header that is included before the source.

    This header replaces those that torch's load_inline puts before every source.
    """
    if headers is Headers.LIGHT:
        return [*flags.LIGHT_HEADERS, "-include", shared_parts.prelude(reporting)]
    # A precompiled header serves only sources that are compiled with the flags of this header.
    return [*flags.FULL_HEADERS, "-include", flags.PRELUDE if reporting else _full_prelude()]


def _extra_includes(headers: Headers, *code: str) -> list[str | Path]:
    """Returns the compiler flags that add to the light headers what `code` needs. Without light headers: none."""
    if headers is Headers.FULL:
        return []
    text = "".join(map(code_only, code))
    extra = [header for header, names in _EXTRA_HEADERS.items() if names.search(text)]
    if includes_any(_OWN_HEADER, *code):
        extra.append("ATen/Functions.h")
    else:
        extra += light_headers.headers_of_operators(_NAME.findall(text))
    return [word for header in extra for word in ("-include", header)]


def _full_prelude() -> Path:
    try:
        return shared_parts.full_prelude()
    except OSError as error:
        raise FullHeadersMissing(f"The build cache cannot be written: {error}.", final=True) from None


def _with_guards(assembly: str) -> str:
    """Returns the text of an assembly file with 1024 unused bytes added behind each `__shared__` variable.

    The compiled `__shared__` variables are zeroed thread-local variables: `.zero` in section `.tbss`.
    """
    out, shared = [], False
    for line in assembly.split("\n"):
        if line.startswith(("\t.section", "\t.text", "\t.data", "\t.bss")):
            shared = "\t.tbss" in line
        out.append(line)
        if shared and line.startswith("\t.zero\t"):
            out.append(f"\t.zero\t{_GUARD_BYTES}")
    return "\n".join(out)
