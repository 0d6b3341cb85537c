"""The figures of a suite: correct rate, fast_p, pass@k and geometric mean speedups, each with a bootstrap interval.

Every figure is a mean over problems, so a problem with many candidates counts as much as one with few. The interval
says how much the figure would change with other problems of the same kind: problems are drawn with replacement. It
covers 95%, by the percentile method (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from kernel_harness.suite.store import Entry

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
    """One figure of a suite: the mean of its values for the problems."""

    name: str
    values: Mapping[str, float]
    """The value for each problem that has one."""
    of_problems: int
    """The number of all problems, also of those without a value."""
    meaning: str
    """The definition in one sentence."""
    geometric: bool = False
    """Whether the values are logarithms, and the figure is the exponential of their mean."""

    @property
    def problems(self) -> int:
        """The number of problems that the figure comes from."""
        return len(self.values)

    @property
    def value(self) -> float:
        """The figure itself. The mean of no values is 0."""
        return self.of_mean(math.fsum(self.values.values()) / max(1, len(self.values)))

    @cached_property
    def bounds(self) -> tuple[float, float] | None:
        """The bounds of the 95% interval; None if the figure comes from fewer than two problems."""
        found = interval([*self.values.values()], self.of_problems)
        return found and (self.of_mean(found[0]), self.of_mean(found[1]))

    @property
    def low(self) -> float | None:
        """The lower bound of the 95% interval, or None."""
        return self.bounds[0] if self.bounds else None

    @property
    def high(self) -> float | None:
        """The upper bound of the 95% interval, or None."""
        return self.bounds[1] if self.bounds else None

    def of_mean(self, mean: float) -> float:
        """Returns the figure for a mean of values: its exponential if `geometric`."""
        return math.exp(mean) if self.geometric else mean


def by_problem(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Returns a dict from each problem's name to its entries. Problems and entries keep their order."""
    found: dict[str, list[Entry]] = {}
    for one in entries:
        found.setdefault(one.problem, []).append(one)
    return found


def figures(entries: Sequence[Entry]) -> list[Figure]:
    """Returns the figures of a suite's verdicts; an empty list if there are no verdicts.

    Figures of speed are absent if any entry is of the emulated device, whose times say nothing about a GPU.
    """
    problems = by_problem(entries)
    if not problems:
        return []

    def add(name: str, value: Callable[[Sequence[Entry]], float], meaning: str) -> None:
        found.append(Figure(name, {each: value(of) for each, of in problems.items()}, len(problems), meaning))

    def add_fast(name: str, of_best: str, counts: Callable[[Entry], bool], how: str) -> None:
        add(name, partial(_share, counts), f"the share of a problem's candidates that pass{how}, averaged")
        some = f"the share of problems of which some candidate passes{how}"
        add(of_best, lambda of: float(any(map(counts, of))), some)

    found: list[Figure] = []
    add("correct rate", partial(_share, _passed), "the share of a problem's candidates that pass, averaged")
    for k in (k for k in SAMPLES if k <= min(map(len, problems.values()))):
        drawn = "a candidate passes" if k == 1 else f"at least one of {k} candidates passes"
        add(f"pass@{k}", partial(_pass_at, k), f"the probability that {drawn}, averaged over problems")
    if any(one.emulated for one in entries):
        return found
    for p in THRESHOLDS:
        above = "" if p == 0 else f" with a speedup above {p:g}"
        add_fast(f"fast_{p:g}", f"fast_{p:g} (best)", partial(_faster, p), above)
        if p >= 1:
            certain = f" with a speedup whose whole interval is above {p:g}"
            add_fast(f"fast_{p:g} (certain)", f"fast_{p:g} (best, certain)", partial(_certainly_faster, p), certain)
            as_called = f" with a speedup above {p:g}, launch latency included where it is verified"
            add_fast(
                f"fast_{p:g} (as called)", f"fast_{p:g} (best, as called)", partial(_faster_as_called, p), as_called
            )
    return found + _geometric_means(problems)


def pass_at_k(candidates: int, passed: int, k: int) -> float:
    """Returns the probability that of `k` candidates, drawn without replacement, at least one passes.

    This is the unbiased estimator 1 - C(n - c, k) / C(n, k) of Chen et al., Evaluating Large Language Models Trained on
    Code (2021), section 2.1, with n `candidates` of which c have `passed`. Raises ValueError if k is not in 1..n, or
    c not in 0..n.
    """
    if not 1 <= k <= candidates or not 0 <= passed <= candidates:
        raise ValueError(f"pass@{k} of {candidates} candidates, of which {passed} passed, is not defined")
    return 1 - math.comb(candidates - passed, k) / math.comb(candidates, k)


def best(entries: Iterable[Entry]) -> Entry | None:
    """Returns the entry with the largest speedup, or None if no entry has one."""
    timed = [(one.speedup.estimate, one) for one in entries if one.passed and one.speedup]
    return max(timed, key=lambda pair: pair[0], default=(None, None))[1]


def interval(values: Sequence[float], problems: int) -> tuple[float, float] | None:
    """Returns the bounds of the 95% bootstrap interval of the mean of `values`; None for fewer than two values.

    `problems` is the number of all problems, and `values` has the value of each problem that has one. Each resample
    draws as many problems with replacement. Its mean is over the drawn problems that have a value; if none has one, the
    resample does not count.
    """
    if len(values) < 2:
        return None
    numbers = np.full(problems, np.nan)
    numbers[: len(values)] = values
    rng = np.random.default_rng(_SEED)
    rows = max(1, _CHUNK_NUMBERS // problems)
    means: list[Floats] = []
    for start in range(0, _RESAMPLES, rows):
        drawn = numbers[rng.integers(problems, size=(min(rows, _RESAMPLES - start), problems))]
        counts = np.count_nonzero(~np.isnan(drawn), axis=1)
        means.append(np.nansum(drawn, axis=1)[counts > 0] / counts[counts > 0])
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail])
    return float(low), float(high)


def _share(counts: Callable[[Entry], bool], entries: Sequence[Entry]) -> float:
    return sum(map(counts, entries)) / len(entries)


def _passed(one: Entry) -> bool:
    return one.passed


def _pass_at(k: int, entries: Sequence[Entry]) -> float:
    return pass_at_k(len(entries), sum(map(_passed, entries)), k)


def _faster(p: float, one: Entry) -> bool:
    """Returns whether a candidate counts for fast_p: it passed, and `p` is 0 or its speedup is above `p`."""
    return one.passed and (p == 0 or (one.speedup is not None and one.speedup.estimate > p))


def _faster_as_called(p: float, one: Entry) -> bool:
    """Returns whether a candidate is faster with launch latency or, where that is not verified, on the device alone."""
    return _faster(p, replace(one, speedup=one.as_called or one.speedup))


def _certainly_faster(p: float, one: Entry) -> bool:
    return one.passed and one.speedup is not None and one.speedup.low is not None and one.speedup.low > p


def _geometric_means(problems: Mapping[str, Sequence[Entry]]) -> list[Figure]:
    speedups = {
        name: [one.speedup.estimate for one in each if one.passed and one.speedup] for name, each in problems.items()
    }
    logs = {name: [*map(math.log, each)] for name, each in speedups.items() if each}
    if not logs:
        return []
    mean = {name: math.fsum(each) / len(each) for name, each in logs.items()}
    most = {name: max(each) for name, each in logs.items()}
    of_all = "of the candidates that pass, first within each problem and then over the problems that have one"
    of_best = "of the fastest candidate that passes of each problem that has one"
    return [
        Figure("geometric mean speedup", mean, len(problems), of_all, geometric=True),
        Figure("geometric mean speedup (best)", most, len(problems), of_best, geometric=True),
    ]
