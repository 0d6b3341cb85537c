"""The cheats and the honest lookalikes in tests/adversarial: what each must get, and what it got.

    python -m tests.support.cheats            judge all of them and compare
    python -m tests.support.cheats --write    also rewrite the table in docs/threat-model.md
    python -m tests.support.cheats --wall landlock    judge them behind another wall than the machine's strongest

The first line of a candidate's docstring is "VERDICT: the trick". The lines `Class:`, `Layer:`, `Says:`, `Takes:`,
`Needs:` and `Device:` follow where they apply.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tabulate import tabulate

from kernel_harness import sandbox

from .command import ROOT
from .product import PROBLEM_FILE

PAGE = ROOT / "docs" / "threat-model.md"
# Layers that the code of a device implements: how it copies, poisons and returns memory, how it times a call,
# how it counts launches, and which cohorts are measured again. The other layers (the wall, builds in a sandbox, parsed
# messages, the comparison itself) run before or behind that code and are the same for every device.
LAYERS_OF_A_DEVICE = (
    "answer from the judge's own inputs", "audits after the call", "bytes copied at once", "guard bytes",
    "inputs compared", "kept lines released before the flush", "other workers are stopped", "outputs overwritten",
    "poisoned memory", "remark: no kernel of its own was launched", "remark: share of its own kernels",
    "shared memory sealed first",
    "the judge's own clock", "unseen inputs",
)  # fmt: skip
START, END = "<!-- cheats -->", "<!-- end -->"
# The command behind a wall that is not the strongest of this machine.
BEHIND_WALL = """
import sys
from kernel_harness import cli, sandbox
kind = sandbox.Kind(sys.argv.pop(1))
sandbox.best = lambda: kind
sys.exit(cli.main())
"""


@dataclass(frozen=True)
class Wanted:
    """What a candidate's docstring promises.

    `takes_ms` is how long one call really takes: a candidate that passes must not be ranked below it.
    `says` must occur in the reason, `says_emulated` only in that of an emulated run. `needs` names the wall without
    which the candidate is not caught or cannot run. `device` says which part of a device's code an honest kernel
    depends on.
    """

    name: str
    verdicts: tuple[str, ...]
    trick: str
    kind: str
    layer: str
    says: str
    says_emulated: str
    takes_ms: float
    needs: str
    device: str

    @property
    def depends_on_the_device(self) -> bool:
        """Whether another device's code can change the verdict. The controls count as such."""
        return bool(self.device) or self.kind in ("timing", "control") or self.layer in LAYERS_OF_A_DEVICE

    def mistake(self, result: Mapping[str, Any]) -> str:
        """How a result differs from what is wanted; empty if it does not."""
        if result["status"] not in self.verdicts:
            return f"the status is {result['status']}, not {' or '.join(self.verdicts)}: {result['reason']}"
        for text in (self.says, self.says_emulated if result["emulated"] else ""):
            if text not in result["reason"]:
                return f"the reason does not contain {text!r}: {result['reason']}"
        samples = result["timing"]["samples_ms"] if result["timing"] else [0.0]
        if result["status"] == "PASSED" and median(samples) < self.takes_ms:
            return f"the measured time is {median(samples)} ms, but a call takes {self.takes_ms} ms"
        return ""


def wanted(path: Path) -> Wanted:
    """Reads the docstring of a candidate's file."""
    doc = path.read_text().split('"""')[1]
    fields = dict(line.split(": ", 1) for line in doc.split("\n") if ": " in line)
    verdicts, trick = doc.strip().split("\n", 1)[0].split(": ", 1)
    return Wanted(
        path.stem, tuple(verdicts.split(" or ")), trick.rstrip("."), fields.get("Class", "honest"),
        fields.get("Layer", ""), fields.get("Says", ""), fields.get("Says when emulated", ""),
        float(fields.get("Takes", "0 ms").split()[0]),
        fields.get("Needs", ""), fields.get("Device", ""),
    )  # fmt: skip


def files(folder: str) -> list[Path]:
    """The files of tests/adversarial/cheats or tests/adversarial/honest, by name."""
    return sorted((ROOT / "tests" / "adversarial" / folder).glob("*.py"))


# Without a wall some cheats would kill the judge, so a machine that has none tests none of them.
CHEATS = files("cheats") if sandbox.best() is not sandbox.Kind.NONE else []
HONEST = files("honest")


def as_parameters(paths: Iterable[Path]) -> list[Any]:
    """Pytest parameters; a candidate that needs another wall than this machine has is skipped."""
    reason = "the candidate needs another wall than this machine has"
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.skip(reason)] if _lacks_its_wall(path) else [])
        for path in paths
    ]


def _lacks_its_wall(path: Path, wall: str = "") -> bool:
    needs = wanted(path).needs
    return bool(needs) and needs != (wall or sandbox.best())


def judged(paths: Iterable[Path], device: str = "cpu", rounds: int = 12, wall: str = "") -> dict[str, dict[str, Any]]:
    """Judges the candidates in one run of the command. Each one's JSON result, by name.

    `wall` is an sandbox.Kind, or empty for the strongest that the machine has. Raises RuntimeError with the command's
    stderr if it printed no result.
    """
    kernels = [word for path in paths for word in ("--kernel", str(path))]
    start = ["-c", BEHIND_WALL, wall] if wall else [str(ROOT / "harness.py")]
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [sys.executable, *start, "--problem", str(PROBLEM_FILE), "--device", device, "--json",
             "--rounds", str(rounds), "--results", results, *kernels],
            capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return {record["kernel"]: record for record in map(json.loads, done.stdout.splitlines())}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per candidate as a Markdown table: cheats by class, then the controls, then the honest ones."""
    rows = []
    for path in [*files("cheats"), *files("honest")]:
        w, r = wanted(path), results[path.stem]
        rows.append((w.kind, f"`{w.name}`", w.trick, r["status"], w.layer))
    rows.sort(key=lambda row: (row[0] == "honest", row[0] == "control", row))
    return tabulate(rows, ("class", "candidate", "what it does", "verdict", "layer"), tablefmt="github")


def names_in_table() -> set[str]:
    """The candidates that the table in docs/threat-model.md has a row for."""
    text = PAGE.read_text()
    shown = text[text.index(START) :].split(END)[0]
    return set(re.findall(r"^\|[^|]*\| `(\w+)` *\|", shown, re.MULTILINE))


def write_table(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Replaces the table in docs/threat-model.md."""
    pattern = re.compile(f"({START}\n).*?(\n{END})", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda m: f"{m[1]}\n{table(results)}\n{m[2]}", PAGE.read_text(), count=1))


def main() -> None:
    """Exits with the mistakes if there are any; the table then stays as it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--write", action="store_true", help="rewrite the table in docs/threat-model.md")
    choice.add_argument("--wall", default="", choices=["namespaces", "bubblewrap", "landlock"])
    options = parser.parse_args()
    paths = [path for path in [*files("cheats"), *files("honest")] if not _lacks_its_wall(path, options.wall)]
    results = judged(paths, wall=options.wall)
    walls = Counter(result["isolation"] for result in results.values())
    print("\n".join(f"{number} judged behind: {wall}" for wall, number in walls.items()))
    mistakes = {path.stem: m for path in paths if (m := wanted(path).mistake(results[path.stem]))}
    if mistakes:
        sys.exit("\n".join(f"{name}: {mistake}" for name, mistake in mistakes.items()))
    if options.write:
        write_table(results)
    elif not options.wall:
        print(table(results))


if __name__ == "__main__":
    main()
