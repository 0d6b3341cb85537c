"""The figures of a suite: correct rate, fast_p, pass@k and geometric mean speedups, each with a bootstrap interval.

Every figure is a mean over problems, so a problem with many candidates counts as much as one with few. The interval
says how much the figure would change with other problems of the same kind: problems are drawn with replacement. It
covers 95%, by the percentile method (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import overload

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


@dataclass(frozen=True)
class Series:
    """The value of one figure for each problem that has one. The figure is the mean of the values.

    `geometric`: the values are logarithms, and the figure is the exponential of their mean. `problems` is the number of
    all problems, also those without a value.
    """

    name: str
    values: Mapping[str, float]
    problems: int
    meaning: str
    geometric: bool = False

    @property
    def figure(self) -> Figure:
        """The figure with its interval."""
        mean = math.fsum(self.values.values()) / len(self.values)
        low, high = interval([*self.values.values()], self.problems)
        value, low, high = self.told(mean), self.told(low), self.told(high)
        return Figure(self.name, value, low, high, len(self.values), self.meaning)

    @overload
    def told(self, value: float) -> float: ...
    @overload
    def told(self, value: float | None) -> float | None: ...
    def told(self, value: float | None) -> float | None:
        """Returns the figure for `value`, a mean of values: its exponential if `geometric`. None stays None."""
        return math.exp(value) if self.geometric and value is not None else value


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
    return [each.figure for each in series(entries)]


def series(entries: Sequence[Entry]) -> list[Series]:
    """Returns a Series for each figure: its value for each problem. The order is that of the function `figures`."""
    problems = by_problem(entries)
    if not problems:
        return []
    found = [_of_each("correct rate", problems, "the share of a problem's candidates that pass, averaged", _rate)]
    found += _pass_at(problems)
    if not any(one.emulated for one in entries):
        found += _fast(problems)
        found += _geometric_means(problems)
    return found


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
    timed = [one for one in entries if one.passed and one.speedup is not None]
    return max(timed, key=_speedup, default=None)


def interval(values: Sequence[float], problems: int) -> tuple[float | None, float | None]:
    """Returns the bounds of the 95% bootstrap interval of the mean of `values`: (None, None) for fewer than two values.

    `problems` is the number of all problems, and `values` has the value of each problem that has one. Each resample
    draws as many problems with replacement. Its mean is over the drawn problems that have a value; if none has one, the
    resample does not count.
    """
    if len(values) < 2:
        return None, None
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


def _of_each(
    name: str, problems: Mapping[str, Sequence[Entry]], meaning: str, value: Callable[[Sequence[Entry]], float]
) -> Series:
    return Series(name, {each: value(entries) for each, entries in problems.items()}, len(problems), meaning)


def _rate(entries: Sequence[Entry]) -> float:
    return sum(one.passed for one in entries) / len(entries)


def _pass_at(problems: Mapping[str, Sequence[Entry]]) -> list[Series]:
    least = min(map(len, problems.values()))
    found = []
    for k in (k for k in SAMPLES if k <= least):
        drawn = "a candidate passes" if k == 1 else f"at least one of {k} candidates passes"
        value = partial(_pass_at_k_of, k=k)
        found.append(_of_each(f"pass@{k}", problems, f"the probability that {drawn}, averaged over problems", value))
    return found


def _pass_at_k_of(entries: Sequence[Entry], k: int) -> float:
    return pass_at_k(len(entries), sum(one.passed for one in entries), k)


def _fast(problems: Mapping[str, Sequence[Entry]]) -> list[Series]:
    found = []
    for p in THRESHOLDS:
        above = "" if p == 0 else f" with a speedup above {p:g}"
        share = f"the share of a problem's candidates that pass{above}, averaged"
        some = f"the share of problems of which some candidate passes{above}"
        found.append(_of_each(f"fast_{p:g}", problems, share, partial(_fast_share, p=p)))
        found.append(_of_each(f"fast_{p:g} (best)", problems, some, partial(_fast_any, p=p)))
    return found


def _fast_share(entries: Sequence[Entry], p: float) -> float:
    return sum(_faster(one, p) for one in entries) / len(entries)


def _fast_any(entries: Sequence[Entry], p: float) -> float:
    return float(any(_faster(one, p) for one in entries))


def _geometric_means(problems: Mapping[str, Sequence[Entry]]) -> list[Series]:
    timed = {name: [one for one in each if one.passed and one.speedup is not None] for name, each in problems.items()}
    logs = {name: [math.log(_speedup(one)) for one in each] for name, each in timed.items() if each}
    kinds = (
        ("geometric mean speedup", {name: math.fsum(each) / len(each) for name, each in logs.items()},
         "of the candidates that pass, first within each problem and then over the problems that have one"),
        ("geometric mean speedup (best)", {name: max(each) for name, each in logs.items()},
         "of the fastest candidate that passes of each problem that has one"),
    )  # fmt: skip
    return [Series(name, each, len(problems), meaning, geometric=True) for name, each, meaning in kinds if each]


def _faster(one: Entry, p: float) -> bool:
    """Returns whether a candidate counts for fast_p: it passed, and `p` is 0 or its speedup is above `p`."""
    return one.passed and (p == 0 or (one.speedup is not None and _speedup(one) > p))


def _speedup(one: Entry) -> float:
    assert one.speedup is not None
    return one.speedup.estimate
