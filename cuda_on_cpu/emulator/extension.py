"""Builds a candidate's extension library for the emulated device: compiles it, checks its shared memory, links it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cuda_on_cpu.compile import bindings, cache, host_compiler, light_headers, read_files
from cuda_on_cpu.compile.compiler_log import errors
from cuda_on_cpu.compile.cuda_source import code_only, declared_variables, line_of, places_of, tokenize
from cuda_on_cpu.compile.errors import BuildFailed, UnsupportedConstruct
from cuda_on_cpu.compile.sources import Sources, write_shown
from cuda_on_cpu.emulator import constant_memory_limit, flags, local_headers, shared_memory_limit, shared_parts
from cuda_on_cpu.emulator.flags import Instrumentation
from cuda_on_cpu.emulator.keys import extension_key
from cuda_on_cpu.emulator.local_headers import LocalHeaders
from cuda_on_cpu.emulator.units import (
    Headers,
    Unit,
    compile_unit,
    refuse_errors,
    rewritten,
    translation_units,
)
from cuda_on_cpu.emulator.unsupported import all_in_log, find_in_log, find_in_torch_headers, without_bodies

# How often a source is compiled again without functions that have what the emulator lacks. A compiler may report some
# of these only after others are gone.
_MOST_ATTEMPTS = 8
_PERMISSIVE = "-fpermissive"  # g++'s flag for sources with errors of this kind; newer ones have a flag for each
_UNKNOWN_TO_NVCC = re.compile(r"changes meaning of|there are no arguments to .* that depend on a template parameter")
# In the output of the linker, GNU ld.
_MISSING_LIBRARY = re.compile(r"\bld(?:\.\w+)?: cannot find (-l[^\s:]\S*?)(?::? |$)", re.MULTILINE)


def get_or_build(sources: Sources, instrumentation: Instrumentation = Instrumentation.NONE) -> tuple[Path, bool]:
    """Returns the path of the candidate's library, and whether the build cache already had the library.

    If the cache does not have it, this function builds it. Raises BuildFailed; UnsupportedConstruct for CUDA that the
    emulator cannot run; NoCompiler if this machine lacks a tool for the build.
    """

    def build_into(folder: Path) -> list[str]:
        build(sources, folder, instrumentation)
        return read_files.of(sources, folder)

    folder, cached = cache.get_or_build("extensions", extension_key(sources, instrumentation), build_into)
    return folder / f"{sources.name}.so", cached


def build(
    sources: Sources,
    folder: Path,
    instrumentation: Instrumentation = Instrumentation.NONE,
) -> None:
    """Builds the candidate's library in `folder`. The file name is the name of the sources with the ending `.so`.

    Headers of the program, such as CUTLASS's, are rewritten as the CUDA source is, and listed in `folder` for
    `read_files`. A function with CUDA that the emulator cannot run gets a body that reports this when it runs. Raises
    BuildFailed; UnsupportedConstruct for such CUDA outside of functions; NoCompiler if this machine lacks a tool for
    the build.
    """
    copies = folder / "headers"
    complete, headers = local_headers.with_headers(sources, copies)
    build_rewritten(complete, folder, instrumentation, headers)
    (folder / "headers.d").write_text(read_files.rule("headers", headers.copies), errors="surrogateescape")
    shutil.rmtree(copies, ignore_errors=True)


def build_rewritten(
    sources: Sources,
    folder: Path,
    instrumentation: Instrumentation,
    headers: LocalHeaders,
    *,
    linked: bool = True,
) -> None:
    """Does what `build` does, for sources that include the rewritten copies of `headers`.

    If not `linked`, `folder` has the object files instead, one for each translation unit.
    """
    included = "\n".join(headers.texts)
    attempts = 0
    while True:
        try:
            return _build_as_it_is(sources, folder, instrumentation, linked, included)
        except BuildFailed as failure:
            attempts += 1
            if _is_accepted_by_nvcc(failure.log) and _PERMISSIVE not in sources.cuda_cflags:
                cflags, cuda_cflags = ((*each, _PERMISSIVE) for each in (sources.cflags, sources.cuda_cflags))
                sources = replace(sources, cflags=cflags, cuda_cflags=cuda_cflags)
                continue
            lacking = all_in_log(failure.log)
            reporting = _with_reports(sources, lacking) if attempts < _MOST_ATTEMPTS else None
            if reporting is None:
                raise _refusal(failure, lacking) from None
            sources = reporting


def _is_accepted_by_nvcc(log: str) -> bool:
    """Returns whether all errors are of kinds that nvcc does not know.

    They are `using Array = Array<T, N>;` in a class, and a call of an unknown function in a template without instances.
    """
    found = errors(log)
    return bool(found) and all(_UNKNOWN_TO_NVCC.search(error.text) for error in found)


def _build_as_it_is(
    sources: Sources, folder: Path, instrumentation: Instrumentation, linked: bool, headers: str
) -> None:
    write_shown(replace(sources, cuda=rewritten(sources)), folder)
    if light_headers.serve(code_only(sources.cpp) + code_only(sources.cuda) + code_only(headers)):
        light_headers.with_fallback(
            lambda: _build_with(Headers.LIGHT, sources, folder, instrumentation, linked),
            lambda: _build_with_full_headers(sources, folder, instrumentation, linked),
        )
    else:
        _build_with_full_headers(sources, folder, instrumentation, linked)


def _with_reports(sources: Sources, lacking: list[tuple[str, str]]) -> Sources | None:
    """Returns the sources with a report in place of the body of each function that has a construct of `lacking`.

    `lacking` are places and constructs. Returns None if it is empty, or if its first place is in no function.
    """
    if not lacking or lacking[0][0].rpartition(":")[0] != sources.cuda_file:
        return None
    constructs: dict[int, str] = {}
    for place, construct in lacking:
        file, _, line = place.rpartition(":")
        if file == sources.cuda_file:
            constructs.setdefault(int(line), construct)
    cuda = without_bodies(sources.cuda, constructs)
    return None if cuda is None else replace(sources, cuda=cuda)


def _refusal(failure: BuildFailed, lacking: list[tuple[str, str]]) -> BuildFailed:
    """Returns UnsupportedConstruct for the first construct that the emulator lacks, or `failure` if there is none."""
    found = lacking[0] if lacking else find_in_torch_headers(failure.log)
    return UnsupportedConstruct(f"{found[0]}: the emulation cannot run {found[1]}.", failure.log) if found else failure


def _build_with_full_headers(sources: Sources, folder: Path, instrumentation: Instrumentation, linked: bool) -> None:
    """Builds with torch's own headers. Looks for errors in the source first, because that takes a tenth of the time."""
    units = translation_units(sources, Headers.FULL, Instrumentation.NONE)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda unit: refuse_errors(unit, sources, folder), units))
    _build_with(Headers.FULL, sources, folder, instrumentation, linked)


def _build_with(
    headers: Headers, sources: Sources, folder: Path, instrumentation: Instrumentation, linked: bool
) -> None:
    units = translation_units(sources, headers, instrumentation)

    def compile_one(unit: Unit) -> None:
        try:
            compile_unit(unit, sources, folder, instrumentation)
        except BuildFailed as failure:
            # In these cases, other headers of torch cannot help.
            failure.final = not unit.includes_torch or find_in_log(failure.log) is not None
            raise

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, units))
    if instrumentation is not Instrumentation.SANITIZED:  # sanitized code has unused bytes behind each variable
        _refuse_excess(sources, [folder / f"{unit.name}.o" for unit in units])
    if linked:
        _link(units, sources, folder, flags.WRAPS_HEAP if instrumentation is Instrumentation.SANITIZED else ())


def _link(units: list[Unit], sources: Sources, folder: Path, link_flags: Sequence[str]) -> None:
    objects = [f"{unit.name}.o" for unit in units]
    runtime = shared_parts.runtime().parent
    own = [flag for flag in sources.ldflags if not flag.startswith("-lcu")]  # the runtime has CUDA's libraries
    # Symbols of torch are found through these two libraries, which need torch's. The linker would take half a second to
    # read those again.
    shared = [f"-L{runtime}", f"-Wl,-rpath,{runtime}", "-lemulator", *bindings.link_flags()]
    needed = [*link_flags, "-Wl,--push-state,--no-as-needed", *shared, "-Wl,--pop-state"]
    search = host_compiler.torch_folder_flags()
    # A variable `step` of a GPU has internal linkage on the host. Here, references to names that are not mangled end in
    # this library, else they would find the `step` of libc.
    names = folder / "interposed.list"
    names.write_text("{ _Z*; };\n")
    own_names = [f"-Wl,--dynamic-list={names.name}"]
    try:
        # As in torch's builds, the last -o counts, not one among the candidate's own flags.
        host_compiler.run(["-shared", *objects, *needed, *own_names, *search, *own, "-o", f"{sources.name}.so"], folder)
    except BuildFailed as failure:
        # The candidate's own flags name the missing library, so other headers of torch cannot help.
        failure.final = any(flag in own for flag in _MISSING_LIBRARY.findall(failure.log))
        raise
    for name in (*objects, names.name):
        (folder / name).unlink()


def _refuse_excess(sources: Sources, objects: list[Path]) -> None:
    """Raises BuildFailed if a kernel in `objects` has more static shared memory than a block of a GPU can have.

    Also raises it if there is more constant memory than a file can have. ptxas, the assembler of nvcc, rejects both.
    """
    constants = constant_memory_limit.declared(sources.cuda)
    constant_bytes = constant_memory_limit.total(objects, set(constants))
    if constant_bytes > constant_memory_limit.LIMIT_BYTES:
        raise BuildFailed(
            f"{sources.cuda_file}:{min(constants.values())}: error: the file uses too much global constant data "
            f"({constant_bytes} bytes, at most {constant_memory_limit.LIMIT_BYTES}). Put it into device memory, and "
            "pass a pointer to the kernel.",
            final=True,
        )
    found = shared_memory_limit.first_excess(objects)
    if not found:
        return
    tokens = tokenize(sources.cuda)
    names = (name for at in places_of(tokens, "__shared__") for name in declared_variables(tokens, at))
    line = next((line_of(tokens, name) for name in names if tokens[name].text == found.variable), 1)
    raise BuildFailed(
        f"{sources.cuda_file}:{line}: error: {found.function} uses too much shared memory ({found.bytes} bytes, "
        f"at most {shared_memory_limit.LIMIT_BYTES}). Declare it `extern __shared__`, request its size with "
        "cudaFuncSetAttribute, and pass the size in the launch.",
        final=True,  # the memory is the same with other headers of torch
    )
