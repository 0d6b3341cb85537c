"""Judges every cheat and every honest lookalike of the tests, and writes what became of them into the README.

    python benchmarks/cheats.py

The docstring of each candidate says the verdict that it must get; a run in which one gets another changes nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
PROBLEM = ROOT / "tests" / "candidates" / "problem" / "product.py"
START, END = "<!-- cheats -->", "<!-- end -->"


@dataclass(frozen=True)
class Wanted:
    """What a candidate's docstring says of it."""

    name: str
    verdicts: tuple[str, ...]
    trick: str
    kind: str
    layer: str
    says: str
    takes_ms: float
    needs: str  # the wall without which it is not caught, or does not run

    def wrong(self, result: Mapping[str, Any]) -> str:
        """What of a result is not as it must be; empty where all is."""
        if result["status"] not in self.verdicts:
            return f"{result['status']}: {result['reason']}"
        if self.says not in result["reason"]:
            return f"its reason does not say {self.says!r}: {result['reason']}"
        samples = result["timing"]["samples_ms"] if result["timing"] else [0.0]
        if median(samples) < self.takes_ms:
            return f"calls of {median(samples)} ms, and they take {self.takes_ms}"
        return ""


def wanted(path: Path) -> Wanted:
    """Read from the candidate in a file."""
    doc = path.read_text().split('"""')[1]
    fields = dict(line.split(": ", 1) for line in doc.split("\n") if ": " in line)
    verdicts, trick = doc.strip().split("\n", 1)[0].split(": ", 1)
    return Wanted(
        path.stem, tuple(verdicts.split(" or ")), trick.rstrip("."), fields.get("Class", "honest"),
        fields.get("Layer", ""), fields.get("Says", ""), float(fields.get("Takes", "0 ms").split()[0]),
        fields.get("Needs", ""),
    )  # fmt: skip


def candidates(folder: str) -> list[Path]:
    """The files of `tests/cheats` or `tests/honest`."""
    return sorted((ROOT / "tests" / folder).glob("*.py"))


def judged(files: Iterable[Path], device: str = "cpu", rounds: int = 12) -> dict[str, dict[str, Any]]:
    """Every candidate's result, all of one run, by name."""
    kernels = [word for file in files for word in ("--kernel", str(file))]
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [sys.executable, str(ROOT / "harness.py"), "--problem", str(PROBLEM), "--device", device, "--json",
             "--rounds", str(rounds), "--results", results, *kernels],
            capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return {record["kernel"]: record for record in map(json.loads, done.stdout.splitlines())}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Each candidate with what became of it, as Markdown."""
    rows = []
    for path in [*candidates("cheats"), *candidates("honest")]:
        w, r = wanted(path), results[path.stem]
        rows.append((w.kind, f"`{w.name}`", w.trick, r["status"], w.layer))
    rows.sort(key=lambda row: (row[0] == "honest", row[0] == "control", row))
    return tabulate(rows, ("class", "candidate", "what it does", "verdict", "layer"), tablefmt="github")


def main() -> None:
    files = [*candidates("cheats"), *candidates("honest")]
    results = judged(files)
    mistakes = {f.stem: m for f in files if (m := wanted(f).wrong(results[f.stem]))}
    if mistakes:
        sys.exit("\n".join(f"{name}: {mistake}" for name, mistake in mistakes.items()))
    readme = ROOT / "README.md"
    pattern = re.compile(f"({START}\n).*?(\n{END})", re.DOTALL)
    readme.write_text(pattern.sub(lambda m: f"{m[1]}\n{table(results)}\n{m[2]}", readme.read_text(), count=1))


if __name__ == "__main__":
    main()
