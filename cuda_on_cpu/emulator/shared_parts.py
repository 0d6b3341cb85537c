"""Builds what all emulated candidates share: the runtime library and the precompiled headers, once per machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import psutil

from cuda_on_cpu.compile import bindings, cache, host_compiler
from cuda_on_cpu.compile.errors import BuildFailed
from cuda_on_cpu.core.tell import Tell, silent
from cuda_on_cpu.core.waiting import until_done
from cuda_on_cpu.emulator import flags
from cuda_on_cpu.emulator.keys import part_key

_TICK_S = 0.05
_OF_TORCH, _OF_SANITIZER = "of_torch.cpp", "of_sanitizer.cpp"


def runtime(tell: Tell = silent) -> Path:
    """Returns the path of the emulator's runtime library. Builds it if it is not in the build cache.

    If it is built, `tell` is called first, with a text. Raises BuildFailed if the build fails, or NoCompiler if this
    machine lacks a tool for the build.
    """

    def build(folder: Path) -> None:
        tell(bindings.first_build("the emulator's runtime library"))
        general = [*host_compiler.torch_flags(), *host_compiler.FEW_COLLECTIONS]
        words = [*general, *flags.PLAIN, *flags.FULL_HEADERS]
        units = _runtime_units(folder)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda unit: host_compiler.run([*words, "-c", unit, "-o", f"{unit.stem}.o"], folder), units))
        objects = [f"{unit.stem}.o" for unit in units]
        link = ["-shared", *objects, "-o", "libemulator.so", *host_compiler.torch_link_flags()]
        host_compiler.run([*link, "-Wl,-soname,libemulator.so,-Bsymbolic-functions"], folder)
        for name in [*objects, _OF_TORCH, _OF_SANITIZER]:
            (folder / name).unlink()

    key = part_key("runtime", flags.EMULATOR_HEADERS, flags.RUNTIME)
    return cache.get_or_build("emulator", key, build)[0] / "libemulator.so"


def _runtime_units(folder: Path) -> list[Path]:
    """Returns the translation units of the runtime library. The unit with the longest compilation is the first.

    The sources that include torch's headers are one unit, because g++ needs 5 s to read these headers. The sources of
    the sanitizer are another unit, because they share most of their headers. This function writes both units into
    `folder`. Every other source is a unit of its own, because the scheduler must not be inlined into its callers.
    """
    sources = sorted(flags.RUNTIME.glob("*.cpp"))
    of_torch = [source for source in sources if "#include <ATen/" in source.read_text(encoding="utf-8")]
    of_sanitizer = [source for source in sources if source.stem.startswith("sanitize_")]
    units = {_OF_TORCH: of_torch, _OF_SANITIZER: of_sanitizer}
    for name, parts in units.items():
        (folder / name).write_text("".join(f'#include "{source}"\n' for source in parts), encoding="utf-8")
    alone = [source for source in sources if source not in [*of_torch, *of_sanitizer]]
    return [*(folder / name for name in units), *alone]


def prelude(reporting: bool = False, tell: Tell = silent) -> Path:
    """Returns the path of the header that a candidate's source includes first if it is compiled with light headers.

    The same folder has a precompiled form of the header, which g++ uses instead. If the build cache lacks this form, it
    is built, and `tell` is called first with a text. If `reporting`, the precompiled form is for code that reports its
    memory accesses. Raises BuildFailed, or NoCompiler if this machine lacks a tool for the build.
    """

    def build(folder: Path) -> None:
        tell(bindings.first_build(f"the emulator's precompiled header{' for checked accesses' * reporting}"))
        _precompile([*flags.for_candidates(reporting=reporting), *flags.LIGHT_HEADERS], folder)

    key = part_key("prelude" + "-reporting" * reporting, flags.INCLUDE, bindings.INCLUDE)
    return cache.get_or_build("emulator", key, build)[0] / "prelude.h"


def full_prelude() -> Path:
    """Returns the path of the header that a source includes first if it is compiled with torch's own headers.

    If the build cache lacks it, g++ also precompiles the header, into the same folder. If g++ fails at that, for
    example because memory runs out, the folder has only the header, and no exception is raised. The precompiled form
    takes 800 MB of disk and a minute to build. So this function is called only if light headers are switched
    off, or if a source has failed to compile with them. Raises OSError if the build cache cannot be written, and
    NoCompiler if this machine has no C++ compiler.
    """

    def build(folder: Path) -> None:
        # g++ needs 2 GiB of memory for this. Without the precompiled form, g++ reads the header itself.
        with suppress(BuildFailed):
            _precompile([*flags.for_candidates(reporting=False), *flags.FULL_HEADERS], folder)

    return cache.get_or_build("emulator", _full_prelude_key(), build)[0] / "prelude.h"


def _full_prelude_key() -> str:
    return part_key("full-prelude", flags.INCLUDE, bindings.INCLUDE)


def _precompile(words: Sequence[str], folder: Path) -> None:
    """Writes prelude.h and its precompiled form into `folder`. `words` are the compiler's flags.

    Raises BuildFailed if the compiler rejects the header, and NoCompiler if this machine has no C++ compiler.
    """
    header = folder / "prelude.h"
    header.write_text(flags.PRELUDE.read_text())
    torchs = host_compiler.torch_flags()
    host_compiler.run([*torchs, *words, "-x", "c++-header", header, "-o", "prelude.h.gch"], folder)


def prepare(reporting: bool = False, tell: Tell = silent) -> None:
    """Builds the parts of the emulator that all candidates share. Leaves out the parts that the build cache has.

    The parts are the precompiled header, the runtime library and the bindings library, which are built in parallel. If
    `reporting`, the header is for code that reports its memory accesses. `tell` is called with a text before each
    build, from the thread of the build.

    If the user interrupts the builds, this function first ends the compilers that it started, so that the program does
    not wait for them. Raises BuildFailed, or NoCompiler if this machine lacks a tool for the build.
    """
    cache.mark_used("emulator", _full_prelude_key())  # so that it is not evicted while workers need it
    with ThreadPoolExecutor() as pool:
        builds = [
            pool.submit(prelude, reporting, tell), pool.submit(runtime, tell), pool.submit(bindings.library, tell),
        ]  # fmt: skip
        try:
            until_done(builds)
        except BaseException:
            while wait(builds, _TICK_S).not_done:  # a build may start another compiler after one was ended
                _end_compilers()
            raise
    for build in builds:
        build.result()


def _end_compilers() -> None:
    """Kills the compilers that this process started: its descendants whose working directory is in the build cache."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(cache.root().resolve()):
                process.kill()
