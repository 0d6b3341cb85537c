"""Compares the samples that timing_quality.py has stored with goals, and prints a table. It times nothing itself.

    python benchmarks/timing_goals.py [--write] FILE ...

A FILE holds the samples of one device, for example benchmarks/measured/timing_quality-nvidia-h200.json.gz. With --write
the table of that device in docs/timing.md is replaced.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

BENCHMARKS = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCHMARKS.parent), str(BENCHMARKS)]

import pages

from kernel_harness.timing.intervals import Comparison, Interval, compare
from kernel_harness.timing.statistics import Round, ratio_interval, remaining_ms

# Parts of the keys under which the samples are stored.
SAME, DOSE, ITSELF = "the same twice", "slowed by a known dose", "times itself"
EMPTY = "0 us"
IN_A_ROW, BY_ITSELF = ", one after the other", ", by itself"

Samples = Mapping[str, Any]


def main() -> None:
    """Prints the table of each file, or with --write puts it into docs/timing.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true", help="replace the tables in docs/timing.md")
    options = parser.parse_args()
    for path in options.files:
        found = json.loads(gzip.decompress(path.read_bytes()))
        if options.write:
            device = path.name.removeprefix("timing_quality-").removesuffix(".json.gz")
            pages.write(
                "timing.md", f"timing quality {device}", table(found["samples"], found["environment"], "github")
            )
        else:
            print(table(found["samples"], found["environment"]))


def table(samples: Samples, environment: Mapping[str, Any], style: str = "simple") -> str:
    """Returns the table of goals and measured values. `style` is one of tabulate's table formats."""
    rows = []
    for what in samples:
        if what.startswith(SAME) and not what.endswith(IN_A_ROW):
            rows += _same(what, samples, environment.get("resolution_ms", 0.0))
    for part, make in ((DOSE, _slower), (ITSELF, _clock)):
        if part in samples:
            rows += make(samples, environment)
    return tabulate(rows, ("what", "goal", "measured"), tablefmt=style, disable_numparse=True)


def rounds_of(run: Mapping[str, Any]) -> tuple[Round, ...]:
    """Returns the rounds of one stored run. A rejected round has the reason why."""
    return tuple(
        Round(samples, tuple(samples), run["rejected"].get(str(i), run["rejected"].get(i)))
        for i, samples in enumerate(run["rounds_ms"])
    )


def _ratio(run: Mapping[str, Any], arm: str, baseline: str, resolution_ms: float) -> Interval:
    """Returns how many times faster `arm` is than `baseline`, with the interval that the harness would report.

    The interval is widened for the difference between two processes that run the same kernel.
    """
    rounds = rounds_of(run)
    typical_ms = statistics.median(r.samples_ms[arm] for r in rounds)
    processes = run.get("processes", {})
    left_ms = remaining_ms(resolution_ms, processes.get(arm, 1), processes.get(baseline, 1))
    return ratio_interval(rounds, arm, baseline).widened(left_ms / typical_ms)


def _same(what: str, samples: Samples, resolution_ms: float) -> list[tuple[str, str, str]]:
    runs, in_a_row = samples[what], samples.get(what + IN_A_ROW, [])
    found = [_ratio(run, a, b, resolution_ms) for run in runs for a, b in _copies(run["rounds_ms"][0])]
    different = sum(compare(i) in (Comparison.FASTER, Comparison.SLOWER) for i in found)
    percentile = 100 * float(np.percentile([abs(i.estimate - 1) for i in found], 95))
    goal = 1.0 if what == f"{SAME}, 5 us" else 0.3
    naively = [_differ(run[a], run[b]) for run in in_a_row for a, b in _copies(run)]
    text = what.replace(SAME, "same kernel twice")
    rows = [
        (f"{text}: called different", "at most 5%", _share(different, len(found), "pairs")),
        (f"{text}: 95% of the ratios are within", f"{goal}%", f"{percentile:.3f}%"),
        (f"{text}, not interleaved: called different", "", _share(sum(naively), len(naively), "pairs")),
    ]
    slower = [name for name in runs[0]["rounds_ms"][0] if name.endswith("% slower")]
    for name in slower:
        right = sum(compare(_ratio(run, name, "copy_1", resolution_ms)) is Comparison.SLOWER for run in runs)
        naively = [_differ(run[name], run["copy_1"]) for run in in_a_row]
        rows += [
            (f"kernel {name}: called slower", "always", _share(right, len(runs), "runs")),
            (f"kernel {name}, not interleaved: called slower", "", _share(sum(naively), len(naively), "runs")),
        ]
    return rows


def _copies(arms: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields every pair of the arms that are copies of the same kernel."""
    return itertools.combinations(sorted(arm for arm in arms if arm.startswith("copy")), 2)


def _share(part: int, whole: int, of: str) -> str:
    return f"{100 * part / whole:.1f}% of {whole} {of}" if whole else "not measured"


def _differ(a: Sequence[float], b: Sequence[float]) -> bool:
    """Returns whether the means of two samples differ by more than twice the standard error of their difference."""
    error = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
    return abs(statistics.mean(a) - statistics.mean(b)) > 2 * error


def _slower(samples: Samples, environment: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    rows = []
    for name in samples[DOSE][0]["rounds_ms"][0]:
        if not re.fullmatch(r"[\d.]+%", name):
            continue
        dose = float(name.rstrip("%"))
        found = [_percent_slower(rounds_of(run), name) for run in samples[DOSE]]
        worst = max(abs(f - dose) for f in found)
        text = f"{statistics.mean(found):.3f}% (largest error of {len(found)} runs: {worst:.3f})"
        rows.append((f"kernel slowed by {name}: measured", "within 0.2 points", text))
        each = [_percent_slower(part, name) for run in samples[DOSE] for part in _by_process(run)]
        text = f"within {max(each) - min(each):.3f}%, {len(each)} processes"
        rows.append((f"kernel slowed by {name}: fresh processes agree", "within 0.5%", text))
    return rows


def _percent_slower(rounds: Sequence[Round], name: str) -> float:
    return 100 * (1 / ratio_interval(rounds, name, "plain").estimate - 1)


def _by_process(run: Mapping[str, Any]) -> Iterator[tuple[Round, ...]]:
    """Yields the rounds of a run in groups: those of each kernel's first process, of its second, and so on.

    Every process ran the same number of rounds.
    """
    rounds = rounds_of(run)
    size = len(rounds) // run.get("processes", {}).get("plain", 1)
    for start in range(0, len(rounds), size):
        yield rounds[start : start + size]


def _clock(samples: Samples, environment: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns the rows that compare the harness's times with the times that the kernels measured themselves.

    A row has the difference of the two, and that difference minus the one of a kernel that does not spin.
    """
    rows = []
    rounds = [r for run in samples[ITSELF] for r in rounds_of(run) if r.rejected is None]
    reported_us = {name: 1e3 * statistics.median(r.samples_ms[name] for r in rounds) for name in rounds[0].samples_ms}
    itself_us = {name: statistics.median(own) for name, own in samples[ITSELF + BY_ITSELF].items()}
    off_us = {name: reported_us[name] - itself for name, itself in itself_us.items()}
    for name, itself in itself_us.items():
        text = f"{reported_us[name]:.2f} us, own timer {itself:.2f}: {off_us[name]:+.2f}"
        if name == EMPTY:
            rows.append(("kernel with a timer, no spin", "", text))
        else:
            beyond = f"less the empty kernel {off_us[name] - off_us[EMPTY]:+.2f}"
            rows.append(
                (f"kernel with a timer, {name}", f"within {max(0.3, itself / 100):.2f} us", f"{text}; {beyond}")
            )
    return rows


if __name__ == "__main__":
    main()
