"""`cache`: what was built, and where it is kept."""

from __future__ import annotations

import argparse

from kernel_harness.verbs.arguments import OK

HELP = "what was built, and where it is kept"
EXAMPLES = """
python harness.py cache          how much there is
python harness.py cache --clear  drop it
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    parser.add_argument("--clear", action="store_true", help="drop everything in it")


def main(options: argparse.Namespace) -> int:
    """Says it, or drops it."""
    from kernel_harness.build import cache

    if options.clear:
        print(f"{cache.evict(0, grace_s=0) / 2**20:.0f} MiB freed")
        return OK
    kinds: dict[str, list[int]] = {}
    for entry in cache.entries():
        kinds.setdefault(entry.kind, []).append(entry.bytes)
    print(f"{cache.root()}, at most {cache.limit_bytes() / 2**30:.1f} GiB")
    for kind, sizes in kinds.items():
        print(f"  {kind:12} {len(sizes):5} entries {sum(sizes) / 2**20:9.1f} MiB")
    return OK
