"""The figures of a suite: correct rate, fast_p, pass@k and geometric mean speedups, each with a bootstrap interval.

Every figure is a mean over problems, so a problem with many candidates counts as much as one with few. The interval
says how much the figure would change with other problems of the same kind: problems are drawn with replacement. It
covers 95%, by the percentile method (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernel_harness.suite.entry import Entry

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The values of p for which fast_p is computed."""
SAMPLES = (1, 2, 5, 10, 20, 50, 100)
"""The values of k for which pass@k is computed, as far as every problem has k candidates."""
CONFIDENCE = 0.95
_RESAMPLES = 10_000
_SEED = 0  # the same verdicts always give the same intervals
_CHUNK_NUMBERS = 1 << 22

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One figure of a suite.

    `low` and `high` are the bounds of its 95% interval; None if it comes from fewer than two problems. `problems` is
    the number of problems that it comes from, and `meaning` its definition in one sentence.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    problems: int
    meaning: str


def by_problem(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Returns the entries by the name of their problem, in order."""
    found: dict[str, list[Entry]] = {}
    for one in entries:
        found.setdefault(one.problem, []).append(one)
    return found


def figures(entries: Sequence[Entry]) -> list[Figure]:
    """Returns the figures of a suite's verdicts; an empty list without any.

    Figures of speed are absent if the times are emulated, because those say nothing about a GPU.
    """
    problems = by_problem(entries)
    if not problems:
        return []
    rate = {name: sum(one.passed for one in each) / len(each) for name, each in problems.items()}
    found = [_mean("correct rate", rate, "the share of a problem's candidates that pass, averaged over the problems")]
    found += _pass_at(problems)
    if not any(one.emulated for one in entries):
        found += _fast(problems)
        found += _geometric_means(problems)
    return found


def pass_at_k(candidates: int, passed: int, k: int) -> float:
    """Returns the probability that of `k` candidates, drawn without replacement, at least one passes.

    This is the unbiased estimator 1 - C(n - c, k) / C(n, k) of Chen et al., Evaluating Large Language Models Trained on
    Code (2021), section 2.1, with n `candidates` of which c have `passed`. Raises ValueError if k is not in 1..n.
    """
    if not 1 <= k <= candidates or not 0 <= passed <= candidates:
        raise ValueError(f"pass@{k} of {candidates} candidates, of which {passed} passed, is not defined")
    return 1 - math.comb(candidates - passed, k) / math.comb(candidates, k)


def best(entries: Iterable[Entry]) -> Entry | None:
    """Returns the entry with the largest speedup, or None if no entry has one."""
    timed = [one for one in entries if one.passed and one.speedup is not None]
    return max(timed, key=_speedup, default=None)


def _pass_at(problems: Mapping[str, Sequence[Entry]]) -> list[Figure]:
    least = min(map(len, problems.values()))
    found = []
    for k in (k for k in SAMPLES if k <= least):
        values = {name: pass_at_k(len(each), sum(one.passed for one in each), k) for name, each in problems.items()}
        drawn = "a candidate passes" if k == 1 else f"at least one of {k} candidates passes"
        found.append(_mean(f"pass@{k}", values, f"the probability that {drawn}, averaged over the problems"))
    return found


def _fast(problems: Mapping[str, Sequence[Entry]]) -> list[Figure]:
    found = []
    for p in THRESHOLDS:
        share = {name: sum(_faster(one, p) for one in each) / len(each) for name, each in problems.items()}
        any_of = {name: float(any(_faster(one, p) for one in each)) for name, each in problems.items()}
        what = "pass" if p == 0 else f"pass with a speedup above {p:g}"
        one = "passes" if p == 0 else f"passes with a speedup above {p:g}"
        found.append(_mean(f"fast_{p:g}", share, f"the share of a problem's candidates that {what}, averaged"))
        found.append(_mean(f"fast_{p:g}, best", any_of, f"the share of problems of which some candidate {one}"))
    return found


def _geometric_means(problems: Mapping[str, Sequence[Entry]]) -> list[Figure]:
    timed = {name: [one for one in each if one.passed and one.speedup is not None] for name, each in problems.items()}
    logs = {name: [math.log(_speedup(one)) for one in each] for name, each in timed.items()}
    kinds = (
        ("geometric mean speedup", {name: math.fsum(each) / len(each) for name, each in logs.items() if each},
         "of the candidates that pass, first within each problem and then over the problems that have one"),
        ("geometric mean speedup, best", {name: max(each) for name, each in logs.items() if each},
         "of the fastest candidate that passes of each problem that has one"),
    )  # fmt: skip
    return [_geometric(name, each, len(problems), meaning) for name, each, meaning in kinds if each]


def _faster(one: Entry, p: float) -> bool:
    """Returns whether a candidate counts for fast_p. At p = 0 every candidate that passed counts, timed or not."""
    return one.passed and (p == 0 or (one.speedup is not None and _speedup(one) > p))


def _speedup(one: Entry) -> float:
    assert one.speedup is not None
    return one.speedup.estimate


def _mean(name: str, values: Mapping[str, float], meaning: str) -> Figure:
    numbers = np.array(list(values.values()), dtype=np.float64)
    low, high = _interval(numbers)
    return Figure(name, float(numbers.mean()), low, high, len(numbers), meaning)


def _geometric(name: str, logs: Mapping[str, float], problems: int, meaning: str) -> Figure:
    """Returns the exponential of the mean of `logs`. Resamples draw from all `problems`, also those without a value."""
    numbers = np.full(problems, np.nan)
    numbers[: len(logs)] = list(logs.values())
    bounds = _interval(numbers)
    low, high = (None if bound is None else math.exp(bound) for bound in bounds)
    return Figure(name, math.exp(math.fsum(logs.values()) / len(logs)), low, high, len(logs), meaning)


def _interval(values: Floats) -> tuple[float | None, float | None]:
    """Returns the bounds of the percentile interval of the mean of `values`, without those that are NaN.

    (None, None) for fewer than two values.
    """
    if np.count_nonzero(~np.isnan(values)) < 2:
        return None, None
    rng = np.random.default_rng(_SEED)
    rows = max(1, _CHUNK_NUMBERS // len(values))
    means: list[Floats] = []
    for start in range(0, _RESAMPLES, rows):
        drawn = values[rng.integers(len(values), size=(min(rows, _RESAMPLES - start), len(values)))]
        counts = np.count_nonzero(~np.isnan(drawn), axis=1)
        means.append((np.nansum(drawn, axis=1)[counts > 0]) / counts[counts > 0])
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail])
    return float(low), float(high)
