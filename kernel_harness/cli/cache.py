"""The verb `cache`: shows the size of the cache of built kernels, or deletes its entries."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cuda_on_cpu.compile import cache as build_cache
from kernel_harness.cli.arguments import OK
from kernel_harness.core.paths import command

HELP = "show where the cache of built kernels is and how large it is, or empty it"
EXAMPLES = (("cache", "show the path and the size"), ("cache --clear", "delete every entry"))

_TOLD_BYTES = 10**9


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `cache`."""
    parser.add_argument("--clear", action="store_true", help="delete every entry and print how much space that freed")


def main(parsed: argparse.Namespace) -> int:
    """Prints the build cache's path, the number and size of its entries of each kind, and its size limit. Returns 0.

    With `--clear`, it deletes all entries instead and prints how much space that freed.
    """
    if parsed.clear:
        print(f"{build_cache.evict(0) / 2**20:.0f} MiB freed")
        return OK
    entries, limit = build_cache.entries(), build_cache.limit_bytes()
    print(f"{build_cache.root()}: {sum(entry.bytes for entry in entries) / 2**20:.0f} MiB in {len(entries)} entries")
    _print_kinds(entries)
    print(
        f"Beyond {limit / 2**30:.1f} GiB, a build deletes the entries that were used longest ago; "
        "KERNEL_HARNESS_CACHE_BYTES\nsets another limit. `cache --clear` deletes all entries that no run uses. The "
        "next run then builds the emulator again (a minute or two)."
    )
    return OK


@contextmanager
def growth_told() -> Iterator[None]:
    """Returns a context. If the build cache grows from below 1 GB to 1 GB or more in it, prints a line on stderr.

    The line gives the size, the path and the size limit of the cache. It is not printed after an exception.
    """
    before = sum(entry.bytes for entry in build_cache.entries())
    yield
    after = sum(entry.bytes for entry in build_cache.entries())
    if before < _TOLD_BYTES <= after:
        print(
            f"The build cache in {build_cache.root()} takes {after / 2**30:.1f} GiB now. It limits itself to "
            f"{build_cache.limit_bytes() / 2**30:.1f} GiB; `{shlex.join(command())} cache` explains it.",
            file=sys.stderr,
        )


def _print_kinds(entries: Iterable[build_cache.Entry]) -> None:
    kinds: dict[str, list[int]] = {}
    for entry in entries:
        kinds.setdefault(entry.kind, []).append(entry.bytes)
    for kind, sizes in kinds.items():
        print(f"  {kind:{max(map(len, kinds))}} {len(sizes):5} entries {sum(sizes) / 2**20:9.1f} MiB")
