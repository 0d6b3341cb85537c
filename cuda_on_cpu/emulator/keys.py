"""Keys of the build cache for libraries of the emulator. Two builds with one key make the same library.

The files that a source includes are no part of a key: the build cache records them (`compile/read_files.py`).
"""

from __future__ import annotations

import functools
from pathlib import Path

from cuda_on_cpu.compile import bindings, cache, host_compiler, light_headers
from cuda_on_cpu.compile.sources import Sources, parts_of_key
from cuda_on_cpu.emulator import flags
from cuda_on_cpu.emulator.flags import Instrumentation

# A change of these modules can change a candidate's library, so their text is part of its key.
_BUILDERS = [
    *(
        flags.HERE / f"{name}.py"
        for name in (
            "counted_updates",
            "declared_kernels",
            "extension",
            "flags",
            "launch_bounds",
            "launches",
            "narrow_accesses",
            "nvcc_rules",
            "ptx",
            "ptx_instructions",
            "rewrite",
            "tokens",
            "units",
            "unrolled_loops",
            "unsupported",
        )
    ),
    *(
        Path(bindings.__file__).with_name(f"{name}.py")
        for name in ("bindings", "host_compiler", "light_headers", "sources")
    ),
]


@functools.cache
def part_key(name: str, *code: Path) -> str:
    """Returns the cache key of a part of the emulator that is compiled on this machine, such as the runtime library.

    `name` is the name of the part. `code` are the package's files and folders that the part is compiled from.
    """
    words = [flags.for_candidates(reporting=reporting) for reporting in (False, True)]
    return cache.key(what=name, machine=host_compiler.identity(), flags=words, code=cache.digest_of(*code))


def extension_key(sources: Sources, instrumentation: Instrumentation = Instrumentation.NONE) -> str:
    """Returns the cache key of a candidate's library.

    It is made of all that `sources` holds (the source texts, flags, include paths and options of the build), the
    instrumentation, whether light headers are used, the emulator's own code, and the machine's compiler and processor.
    """
    return cache.key(
        base=part_key("extension", flags.INCLUDE, flags.RUNTIME, bindings.INCLUDE, flags.COUNTING, *_BUILDERS),
        instrumentation=instrumentation.name,
        light=not light_headers.unwanted(),
        sources=parts_of_key(sources),
    )
