"""Copies the latest result of each kernel from a folder of results to the measured results that the README shows.

    python benchmarks/keep_measured.py results
    python harness.py report --readme README.md

The measured results are in `benchmarks/measured/results/`, where no run writes. Those of a problem and device that the
given folder does not have stay as they are. The second command then updates the README.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernel_harness.core.atomic_file import replace_text
from kernel_harness.core.paths import MEASURED
from kernel_harness.results import ranking
from kernel_harness.results.journal import Journal
from kernel_harness.results.record import to_line


def portable(command: str) -> str:
    """Returns the command that checks a case again without the folders of the machine that measured it."""
    command = re.sub(r" --results \S+", "", command)
    return re.sub(r"(?<= )/\S*/(?=harness\.py|(?:kernels|problems)/)", "", command)


def keep(path: Path, kept: Path) -> None:
    """Replaces the file `kept` with the latest result of each kernel at each shape in the runs.jsonl `path`."""
    results = Journal(path.parent).read()
    latest = [result for at in ranking.timed_at(results) for result in ranking.latest(results, *at).values()]
    latest = [replace(each, reproduce=portable(each.reproduce)) for each in latest]
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace_text(kept, "".join(f"{to_line(each)}\n" for each in latest))


def main() -> None:
    """Copies the latest results of every problem and device in the folder that the command line names."""
    source = Path(sys.argv[1])
    for path in sorted(source.glob("*/*/runs.jsonl")):
        kept = MEASURED / path.relative_to(source)
        keep(path, kept)
        print(kept)


if __name__ == "__main__":
    main()
