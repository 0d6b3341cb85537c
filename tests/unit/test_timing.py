"""What the timing statistics promise, shown on simulated noise whose truth is known. No clock is read."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.product import PROBLEM

from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.policy import EMULATED
from kernel_harness.explain.passed import on_times
from kernel_harness.results import leaderboard
from kernel_harness.session.settings import Settings
from kernel_harness.session.summary import RunFacts, timed
from kernel_harness.timing import stopping
from kernel_harness.timing.clock import TAIL_MS
from kernel_harness.timing.inputs import LOOKALIKES_EVERY, OTHERS_EVERY, distributions
from kernel_harness.timing.intervals import HALF_WIDTH, Comparison, Floats, Interval, compare, median_interval
from kernel_harness.timing.measurements import ArmMeasurements, Measurements
from kernel_harness.timing.statistics import Round, Timing, order_of_round, ratio_interval, reject_rounds, summarize
from kernel_harness.timing.stopping import ANALYSES, Stop, warmed_up


def rounds_of(rejected: str | None = None, **samples_ms: list[float]) -> list[Round]:
    """Rounds from one list of samples per arm."""
    arms = tuple(samples_ms)
    columns = zip(*samples_ms.values(), strict=True)
    return [Round(dict(zip(arms, row, strict=True)), arms, rejected) for row in columns]


def noisy(ms: float, sd: float, count: int, seed: int) -> list[float]:
    samples: Floats = ms * np.exp(np.random.default_rng(seed).normal(0, sd, count))
    return samples.tolist()


# The inputs of rounds.


@given(st.integers(0, 99))
def test_one_round_of_each_eight_has_other_inputs(seed: int) -> None:
    drawn = list(itertools.islice(distributions(["normal"], random.Random(seed)), 10 * OTHERS_EVERY))
    blocks = [drawn[i : i + OTHERS_EVERY] for i in range(0, len(drawn), OTHERS_EVERY)]
    assert all(sorted(block) == ["normal"] + ["own"] * (OTHERS_EVERY - 1) for block in blocks)


@pytest.mark.parametrize("others", [["normal"], []])
def test_three_rounds_of_each_eight_have_inputs_that_look_like_the_own(others: list[str]) -> None:
    drawn = distributions([*others, "spikes", "stretch"], random.Random(0))
    for _ in range(50):
        block = list(itertools.islice(drawn, OTHERS_EVERY))
        assert sum(each in ("spikes", "stretch") for each in block) == LOOKALIKES_EVERY
        assert block.count("own") == OTHERS_EVERY - LOOKALIKES_EVERY - len(others)


def test_the_round_with_other_inputs_cannot_be_predicted() -> None:
    drawn = distributions(["normal"], random.Random(0))
    places = {list(itertools.islice(drawn, OTHERS_EVERY)).index("normal") for _ in range(200)}
    assert places == set(range(OTHERS_EVERY))


def test_an_emulated_time_is_the_median_of_its_own_samples() -> None:
    """Here it is 3 ms. The time that follows from the ratios to torch would be 2 ms."""
    arms = (BASELINE, "a")
    samples = zip([1.0, 2.0, 9.0] * 11, [1.0, 3.0, 9.0] * 11, strict=True)
    rounds = tuple(Round(dict(zip(arms, ms, strict=True)), arms) for ms in samples)
    cohort = Measurements({name: ArmMeasurements(name) for name in arms}, rounds=rounds)
    facts = RunFacts(PROBLEM, Emulated(), Settings(), (), {}, "")
    result = timed(facts, facts.result("a", Status.PASSED, "", ""), cohort, None, 1.0)
    assert result.timing and result.timing.time_ms == pytest.approx(3.0)


class Ranked(Emulated):
    """A device whose times count. It runs nothing."""

    emulated = False


@pytest.mark.parametrize(("device_ms", "verified"), [(0.05, True), (0.04, False)])
def test_a_time_that_the_judge_s_clock_contradicts_is_at_its_upper_end(device_ms: float, verified: bool) -> None:
    """The brackets of a call of 50 us are 0.29 ms longer. The device's clock may tell too little."""
    rng = random.Random(1)
    arms = (BASELINE, CONTROL, "a", "b")
    rounds = []
    for _ in range(64):
        calls = {name: 0.05 * rng.uniform(0.999, 1.001) for name in arms}
        brackets = {name: ms + 0.29 + rng.uniform(0, 0.001) for name, ms in calls.items()}
        rounds.append(Round({**calls, "a": device_ms * calls["a"] / 0.05}, arms, brackets_ms=brackets))
    known = {name: ArmMeasurements(name, trusted=name in (BASELINE, CONTROL)) for name in arms}
    cohort = Measurements(known, rounds=tuple(rounds))
    facts = RunFacts(PROBLEM, Ranked(), Settings(), (), {}, "")
    results = [timed(facts, facts.result(n, Status.PASSED, "", ""), cohort, None, 1.0) for n in ("a", "b")]

    assert [each.timing.verified for each in results if each.timing] == [verified, True]
    assert ("the longest that the judge's clock leaves possible" in results[0].reason) is not verified
    ranked = leaderboard.rank(results, results[0].shape)
    assert [row["rank"] for row in ranked] == ([1, 1] if verified else [1, 2])
    assert verified or (ranked[1]["kernel"] == "a" and ranked[1]["time_ms"] > 0.05 + TAIL_MS)
    assert verified or ranked[1]["verified_to"] is None


@pytest.mark.parametrize(
    ("launched_ms", "told_ms", "expected"),
    [(4.0, 4.0, 4.0), (4.0, 0.4, 4.0), (0.02, 0.02, None)],
    ids=["honest", "a device time that is too short", "too short to be verified"],
)
def test_launch_latency_is_told_where_the_judge_s_clock_verifies_it(
    launched_ms: float, told_ms: float, expected: float | None
) -> None:
    rng = random.Random(1)
    arms, rounds = (BASELINE, CONTROL, "a"), []
    for _ in range(8):
        calls = {name: launched_ms * rng.uniform(0.99, 1.01) for name in arms}
        brackets = {name: ms + 0.3 + rng.uniform(0, 0.02) for name, ms in calls.items()}
        around = brackets[BASELINE] - calls[BASELINE]
        calls["a"] *= told_ms / launched_ms
        rounds.append(Round(calls, arms, brackets_ms=brackets, around_on_host_ms=around))
    known = {name: ArmMeasurements(name, trusted=name in (BASELINE, CONTROL)) for name in arms}
    cohort = Measurements(known, rounds=tuple(rounds), as_called=tuple(rounds))
    facts = RunFacts(PROBLEM, Ranked(), Settings(), (), {}, "")
    as_called = timed(facts, facts.result("a", Status.PASSED, "", ""), cohort, None, 1.0).as_called

    assert (as_called and as_called.time_ms) == (expected and pytest.approx(expected, rel=0.05))


def test_a_candidate_that_is_known_precisely_is_settled_and_the_others_go_on() -> None:
    rng = random.Random(3)
    arms = ("quiet", "loud", BASELINE, CONTROL)
    rounds = tuple(
        Round({"quiet": 50.0 * rng.gauss(1, 1e-5), "loud": rng.gauss(2, 0.2), BASELINE: 1.0, CONTROL: 1.0}, arms)
        for _ in range(40)
    )
    stop, measured = Stop(1e9, 0.005), Measurements({name: ArmMeasurements(name) for name in arms[:2]})
    trusted = {name: ArmMeasurements(name, trusted=True) for name in arms[2:]}

    def after(count: int, **more: object) -> Measurements:
        known = {name: replace(arm, **more) for name, arm in measured.arms.items()} | trusted
        return replace(measured, arms=known, rounds=rounds[:count])

    assert stopping.settled(after(32), stop) == {"quiet"}
    assert stopping.settled(after(31), stop) == stopping.settled(after(32), replace(stop, rounds=40)) == set()
    assert not stopping.done(after(32), stop, 1.0)
    assert stopping.done(after(32, settled=True), stop, 1.0)
    assert not stopping.done(after(31, settled=True), stop, 1.0)


@pytest.mark.parametrize(("rejected", "rounds"), [(0, 8), (1, 9), (15, 23), (16, 24), (24, 24)])
def test_the_budget_ends_timing_only_when_enough_rounds_count(rejected: int, rounds: int) -> None:
    arms = ("a", BASELINE, CONTROL)
    known = {name: ArmMeasurements(name, trusted=name != "a") for name in arms}
    all_rounds = [Round(dict.fromkeys(arms, 1.0), arms, "a gap" if i < rejected else None) for i in range(24)]
    ends = [
        count
        for count in range(1, 25)
        if stopping.done(Measurements(known, rounds=tuple(all_rounds[:count])), Stop(1.0, 1e-9), 2.0)
    ]
    assert ends[0] == rounds


def in_places(*speedups: float, resolution_ms: float = 2e-4) -> Measurements:
    """Measurements of a candidate of 10 ms that has one speedup over torch while its memory is in one place."""
    arms = ("a", BASELINE, CONTROL)
    known = {name: ArmMeasurements(name, trusted=name != "a") for name in arms}
    rounds = [Round({"a": 10.0, BASELINE: 10.0 * s, CONTROL: 1.0}, arms) for s in speedups for _ in range(4)]
    return Measurements(known, rounds=tuple(rounds), resolution_ms=resolution_ms)


def timing_in(measured: Measurements) -> Timing:
    return summarize(measured.accepted, "a", BASELINE, resolution_ms=measured.resolution_between("a", BASELINE))


def test_a_speedup_that_depends_on_the_place_of_memory_is_not_told_as_a_difference() -> None:
    measured = in_places(1.063, 1.0, 1.063, 1.0631)
    found = timing_in(measured)

    assert found.speedup and compare(found.speedup) is Comparison.UNDECIDED
    assert found.time.low and found.time.low < 9.5
    assert not stopping.settled(measured, Stop(1e9, 0.005))
    assert any("place of outputs" in remark.text for remark in on_times(found, measured, "a"))


@pytest.mark.parametrize("speedups", [(1.063, 1.0632, 1.063, 1.0629), (1.0, 1.003, 0.998, 1.002)])
def test_a_speedup_that_does_not_depend_on_the_place_is_told(speedups: tuple[float, ...]) -> None:
    measured = in_places(*speedups)
    assert measured.spread_of_places("a", BASELINE) == 0.0
    assert stopping.settled(measured, Stop(1e9, 0.005)) == {"a"}
    assert not on_times(timing_in(measured), measured, "a")


def test_the_spread_of_many_places_shrinks_as_the_error_of_their_average() -> None:
    few, many = in_places(1.0, 1.0, 1.0, 1.1), in_places(*[1.0] * 15, 1.1)
    ratio = few.spread_of_places("a", BASELINE) / many.spread_of_places("a", BASELINE)
    assert ratio == pytest.approx(2.0)


def test_an_emulated_device_and_arms_with_several_processes_have_no_places() -> None:
    assert in_places(1.0, 1.1, resolution_ms=0.0).spread_of_places("a", BASELINE) == 0.0
    measured = in_places(1.0, 1.1)
    several = {name: replace(arm, processes=2) for name, arm in measured.arms.items()}
    assert replace(measured, arms=several).spread_of_places("a", BASELINE) == 0.0


@pytest.mark.parametrize(
    ("rounds", "spent", "over"), [(0, 9.0, False), (1, 0.2, False), (1, 0.25, True), (2, 0.0, True)]
)
def test_an_emulated_warm_up_has_two_rounds_or_one_that_is_long(rounds: int, spent: float, over: bool) -> None:
    known = {name: ArmMeasurements(name, trusted=name != "a") for name in ("a", BASELINE)}
    warmup = tuple(Round(dict.fromkeys(known, 1.0), tuple(known)) for _ in range(rounds))
    assert warmed_up(Measurements(known, warmup=warmup), spent, EMULATED) is over


def test_a_candidate_that_is_the_baseline_is_never_settled() -> None:
    arms = ("base", "a", BASELINE, CONTROL)
    known = {name: ArmMeasurements(name, trusted=name in (BASELINE, CONTROL)) for name in arms}
    measured = Measurements(known, rounds=tuple(Round(dict.fromkeys(arms, 1.0), arms) for _ in range(32)))
    stop = Stop(1e9, 0.005, baseline="base")

    assert stopping.settled(measured, stop) == {"a"}
    assert stopping.done(measured, stop, 1.0)


def on_other_inputs(own_ms: list[float], others_ms: list[float]) -> float | None:
    """What the measurements of an arm say about other inputs. A call of torch takes 1 ms, of the control 2 ms."""
    samples = [(ms, "own") for ms in own_ms] + [(ms, "normal") for ms in others_ms]
    arms = ("a", BASELINE, CONTROL)
    measured = [
        Round(dict(zip(arms, (ms, 1.0, 2.0), strict=True)), arms, distribution=drawn_from) for ms, drawn_from in samples
    ]
    return Measurements({name: ArmMeasurements(name) for name in arms}, rounds=tuple(measured)).slower_on_other_inputs(
        "a"
    )


@pytest.mark.parametrize(
    ("own_ms", "others_ms", "told"),
    [
        ([1.0] * 28, [1.9] * 4, 1.9),
        ([1.0] * 28, [1.9] * 3, None),  # too few
        ([1.0] * 28, [1.2] * 4, None),  # a small difference
        ([1.0] * 28, [1.9, 1.9, 1.9, 0.9], None),  # not always
        ([1.0] * 28, [0.5] * 4, None),  # faster
        ([], [1.9] * 4, None),
    ],
)
def test_a_call_that_takes_longer_on_other_inputs(
    own_ms: list[float], others_ms: list[float], told: float | None
) -> None:
    assert on_other_inputs(own_ms, others_ms) == (told and pytest.approx(told))


# Rounds.


@pytest.mark.parametrize("ms", [0.0, -1.0, math.nan, math.inf])
def test_a_sample_that_cannot_be_a_time_is_refused(ms: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        Round({"a": ms}, ("a",))


@pytest.mark.parametrize("order", [("a",), ("a", "b", "b"), ("a", "c")])
def test_an_order_must_name_every_arm_once(order: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="once each"):
        Round({"a": 1.0, "b": 1.0}, order)


@given(st.sets(st.text(max_size=3), max_size=8), st.integers(0, 99))
def test_an_order_holds_every_arm_once(arms: set[str], seed: int) -> None:
    assert sorted(order_of_round(arms, random.Random(seed))) == sorted(arms)


def test_every_arm_comes_first_equally_often() -> None:
    rng = random.Random(0)
    firsts = [order_of_round("abcd", rng)[0] for _ in range(4000)]
    assert all(900 < firsts.count(arm) < 1100 for arm in "abcd")


def test_an_order_depends_on_the_generator_alone() -> None:
    orders = [order_of_round(arms, random.Random(3)) for arms in ("abcd", "dcba")]
    assert orders[0] == orders[1]


# Rejecting rounds.


def test_a_round_with_a_disturbed_control_is_rejected_with_the_reason() -> None:
    control = noisy(1.0, 0.001, 64, seed=0)
    control[10] = 1.5
    rounds = reject_rounds(rounds_of(control=control, arm=[1.0] * 64), "control")
    assert [(i, r.rejected) for i, r in enumerate(rounds) if r.rejected] == [(10, "control off by +50.0%")]


def test_no_round_is_rejected_for_an_arm_s_own_sample() -> None:
    arm = noisy(1.0, 0.001, 64, seed=0)
    arm[10] = 50.0
    rounds = reject_rounds(rounds_of(control=noisy(1.0, 0.001, 64, seed=1), arm=arm), "control")
    assert not any(r.rejected for r in rounds)


def test_ordinary_noise_rejects_no_round() -> None:
    rounds = rounds_of(control=noisy(1.0, 0.05, 256, seed=0))
    assert not any(r.rejected for r in reject_rounds(rounds, "control"))


def test_slow_drift_rejects_no_round() -> None:
    drift = [1 + 0.0005 * max(0, i - 200) for i in range(256)]  # flat at first, 3% in the end
    assert not any(r.rejected for r in reject_rounds(rounds_of(control=drift), "control"))


def test_a_deviation_under_one_percent_rejects_no_round() -> None:
    control = [1.0] * 64
    control[10] = 1.009
    assert not any(r.rejected for r in reject_rounds(rounds_of(control=control), "control"))


def test_at_most_five_percent_are_rejected_the_worst_first() -> None:
    control = noisy(1.0, 0.001, 100, seed=0)
    for i in range(10):
        control[10 * i] = 2.0 + i
    rounds = reject_rounds(rounds_of(control=control), "control")
    assert [i for i, r in enumerate(rounds) if r.rejected] == [50, 60, 70, 80, 90]


def test_rounds_that_arrive_rejected_use_up_the_allowance() -> None:
    throttled = rounds_of("throttled", control=[1.0] * 5)
    control = noisy(1.0, 0.001, 95, seed=0)
    control[50] = 2.0
    rounds = reject_rounds(throttled + rounds_of(control=control), "control")
    assert [r.rejected for r in rounds if r.rejected] == ["throttled"] * 5


def test_a_rejected_round_keeps_its_first_reason() -> None:
    throttled = Round({"control": 9.0}, ("control",), "throttled")
    rounds = [*rounds_of(control=noisy(1.0, 0.001, 50, seed=0)), throttled]
    assert reject_rounds(rounds, "control")[-1].rejected == "throttled"


def test_too_few_rounds_to_spare_one_are_all_kept() -> None:
    control = [1.0] * 19
    control[3] = 9.0
    assert not any(r.rejected for r in reject_rounds(rounds_of(control=control), "control"))


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 200))
def test_rejecting_twice_rejects_no_more(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    control: list[float] = np.exp(rng.standard_t(1.5, count) * 0.01).tolist()
    once = reject_rounds(rounds_of(control=control), "control")
    assert reject_rounds(once, "control") == once


# One arm's figures.


def test_the_speedup_is_the_median_of_the_ratios_within_rounds() -> None:
    rounds = rounds_of(base=[2.0, 4.0, 8.0], arm=[1.0, 2.0, 2.0])
    assert ratio_interval(rounds, "arm", "base").estimate == pytest.approx(2.0)


def test_what_slows_whole_rounds_cancels() -> None:
    slowdown = noisy(1.0, 0.5, 64, seed=0)
    rounds = rounds_of(base=[3 * s for s in slowdown], arm=[2 * s for s in slowdown])
    interval = ratio_interval(rounds, "arm", "base")
    assert (interval.low, interval.high) == (pytest.approx(1.5), pytest.approx(1.5))


def test_an_arm_against_itself_is_one() -> None:
    rounds = rounds_of(base=noisy(1.0, 0.1, 64, seed=0))
    assert ratio_interval(rounds, "base", "base") == Interval(1.0, 1.0, 1.0)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(8, 200))
def test_swapping_arm_and_baseline_inverts_the_interval(seed: int, count: int) -> None:
    rounds = rounds_of(a=noisy(1.0, 0.1, count, seed), b=noisy(2.0, 0.1, count, seed + 1))
    forth, back = ratio_interval(rounds, "a", "b"), ratio_interval(rounds, "b", "a")
    assert (back.low, back.estimate, back.high) == (
        pytest.approx(1 / (forth.high or 0)),
        pytest.approx(1 / forth.estimate),
        pytest.approx(1 / (forth.low or 0)),
    )


@pytest.mark.parametrize(("count", "bounded"), [(1, False), (2, False), (7, False), (8, True)])
def test_under_eight_rounds_nothing_is_bounded(count: int, bounded: bool) -> None:
    interval = ratio_interval(rounds_of(base=[2.0] * count, arm=[1.0] * count), "arm", "base")
    assert (interval.estimate, interval.half_width is not None) == (pytest.approx(2.0), bounded)


def test_no_round_is_an_error() -> None:
    with pytest.raises(ValueError, match="no round"):
        ratio_interval([], "arm", "base")


def test_rejected_rounds_do_not_count() -> None:
    rounds = rounds_of(base=[2.0], arm=[1.0]) + rounds_of("throttled", base=[9.0] * 5, arm=[1.0] * 5)
    assert ratio_interval(rounds, "arm", "base").estimate == pytest.approx(2.0)


def test_time_and_speedup_agree() -> None:
    rounds = rounds_of(base=noisy(3.0, 0.2, 64, seed=0), arm=noisy(2.0, 0.2, 64, seed=1))
    base, arm = (summarize(rounds, name, "base") for name in ("base", "arm"))
    assert arm.speedup is not None
    assert base.time_ms / arm.time_ms == pytest.approx(arm.speedup.estimate)


def test_the_baseline_s_time_is_its_median() -> None:
    assert summarize(rounds_of(base=[1.0, 5.0, 3.0]), "base", "base").time_ms == pytest.approx(3.0)


def test_ratios_link_cohorts() -> None:
    timing = summarize(rounds_of(base=[4.0] * 8, arm=[2.0] * 8), "arm", "base", scale_ms=3.0)
    assert timing.time_ms == pytest.approx(1.5)


def test_without_a_baseline_the_time_is_the_arm_s_median() -> None:
    timing = summarize(rounds_of(arm=[1.0, 5.0, 3.0]), "arm", None)
    assert (timing.time_ms, timing.speedup) == (pytest.approx(3.0), None)


def test_the_time_lies_within_its_bounds() -> None:
    timing = summarize(rounds_of(arm=noisy(1.0, 0.1, 64, seed=0)), "arm", None)
    assert (timing.time.low or 9) < timing.time_ms < (timing.time.high or 0)


def test_every_sample_is_kept_rejected_ones_with_their_reason() -> None:
    rounds = rounds_of(base=[1.0], arm=[2.0]) + rounds_of("throttled", base=[1.0], arm=[7.0])
    timing = summarize(rounds, "arm", "base")
    assert (timing.samples_ms, [(r.sample_ms, r.reason) for r in timing.rejected], timing.rounds) == (
        (2.0,),
        [(7.0, "throttled")],
        2,
    )


def test_constant_samples_have_an_interval_without_width() -> None:
    assert ratio_interval(rounds_of(base=[2.0] * 40, arm=[1.0] * 40), "arm", "base").half_width == 0


def test_rounds_that_resemble_their_predecessor_widen_the_interval() -> None:
    values = np.random.default_rng(0).normal(size=256)
    low, _, high = median_interval(values)
    sorted_low, _, sorted_high = median_interval(np.sort(values))
    assert sorted_high - sorted_low > 2 * (high - low)


# Stopping and comparing.


def settled(rounds: Sequence[Round]) -> set[str]:
    """The arms beside the baseline that need no round after these."""
    names = {BASELINE: None} | {name: None for r in rounds for name in r.samples_ms}
    arms = {name: ArmMeasurements(name, trusted=name == BASELINE) for name in names}
    return stopping.settled(Measurements(arms, rounds=tuple(rounds)), Stop(1e9, HALF_WIDTH))


@pytest.mark.parametrize(
    ("count", "sd", "stop"),
    [(31, 0.0, False), (32, 0.0, True), (33, 0.0, False), (64, 0.5, False), (1024, 0.5, True)],
)
def test_stopping_at_a_look_once_every_arm_is_known(count: int, sd: float, stop: bool) -> None:
    rounds = rounds_of(torch=[1.0] * count, quiet=[1.0] * count, loud=noisy(1.0, sd, count, seed=0))
    assert (settled(rounds) == {"quiet", "loud"}) is stop


def test_nothing_is_decided_by_rounds_that_do_not_count() -> None:
    rounds = [Round({"arm": 1.0, BASELINE: 1.0}, ("arm", BASELINE), "not quiet")] * 32
    assert not settled(rounds)
    assert not settled([*rounds[1:], Round({BASELINE: 1.0}, (BASELINE,))])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.01, 1.02, Comparison.FASTER),
        (0.97, 0.99, Comparison.SLOWER),
        (0.998, 1.002, Comparison.SAME),
        (1.001, 1.004, Comparison.SAME),
        (1.001, 1.02, Comparison.FASTER),
        (0.98, 1.02, Comparison.UNDECIDED),
        (0.998, 1.02, Comparison.UNDECIDED),
        (None, None, Comparison.UNDECIDED),
    ],
)
def test_what_an_interval_says(low: float | None, high: float | None, expected: Comparison) -> None:
    assert compare(Interval(low, 1.0, high), margin=0.005) is expected


# Simulations. Each row of `noise` is one run of 1024 rounds of log-ratios with the true value 0.

RUNS = 4000


@functools.lru_cache(maxsize=1)  # tests with the same numbers follow each other
def autocorrelated(correlation: float, seed: int, innovations: str = "normal") -> Floats:
    rng = np.random.default_rng(seed)
    steps = (
        rng.normal(size=(RUNS, ANALYSES[-1])) if innovations == "normal" else rng.standard_t(2, (RUNS, ANALYSES[-1]))
    )
    values: Floats = np.empty_like(steps, order="F")  # filled column by column
    values[:, 0] = steps[:, 0]
    for i in range(1, ANALYSES[-1]):
        values[:, i] = correlation * values[:, i - 1] + math.sqrt(1 - correlation**2) * steps[:, i]
    return values


def at_the_stop(log_ratios: Floats, half_width: float = 0.005) -> tuple[Floats, Floats]:
    """Bounds of the interval at which each run stops: the first look that is precise enough, or the last."""
    low, high = np.zeros(len(log_ratios)), np.zeros(len(log_ratios))
    going = np.ones(len(log_ratios), dtype=bool)
    for look in ANALYSES:
        bounds = median_interval(log_ratios[going, :look])
        low[going], high[going] = bounds[0], bounds[2]
        going &= (high - low) / 2 >= half_width
    return low, high


def coverage(log_ratios: Floats) -> float:
    low, high = at_the_stop(log_ratios)
    return float(np.mean((low <= 0) & (high >= 0)))


def called_different(log_ratios: Floats) -> float:
    intervals = [Interval(math.exp(a), 1.0, math.exp(b)) for a, b in zip(*at_the_stop(log_ratios), strict=True)]
    return float(np.mean([compare(i) in (Comparison.FASTER, Comparison.SLOWER) for i in intervals]))


@pytest.mark.parametrize("noise", [0.02, 0.03, 0.05])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_the_95_percent_interval_covers_94_to_99_percent(correlation: float, noise: float) -> None:
    assert 0.94 <= coverage(noise * autocorrelated(correlation, seed=1)) <= 0.99


@pytest.mark.parametrize("noise", [0.003, 0.01])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_quiet_runs_that_stop_early_are_covered_as_well(correlation: float, noise: float) -> None:
    """Little noise stops at 32 rounds, where bounding the correlation costs width: up to 99.5%."""
    assert coverage(noise * autocorrelated(correlation, seed=1)) >= 0.94


def test_a_correlation_estimated_from_few_rounds_is_corrected_for_its_bias() -> None:
    low, _, high = median_interval(autocorrelated(0.6, seed=11)[:, :32])
    assert np.mean((low <= 0) & (high >= 0)) >= 0.972  # 96.8% without


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_heavy_tails_are_covered_as_well(correlation: float) -> None:
    assert coverage(0.01 * autocorrelated(correlation, seed=2, innovations="t2")) >= 0.94


def test_even_the_least_favourable_look_keeps_the_promise() -> None:
    values = autocorrelated(0.0, seed=3)
    covered = np.ones(RUNS, dtype=bool)
    for look in ANALYSES:
        low, _, high = median_interval(values[:, :look])
        covered &= (low <= 0) & (high >= 0)
    assert covered.mean() >= 0.94


def times(drift: Floats, order: str, seed: int) -> Floats:
    """Log-ratios of two identical arms under a slow drift: one sample each per round, 1% of noise.

    `drift` gives the log of the machine's slowness at each of the 2048 samples of a run.
    """
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.01, (2, RUNS, ANALYSES[-1]))
    if order == "sequential":
        first, second = drift[..., : ANALYSES[-1]], drift[..., ANALYSES[-1] :]
    else:
        first, second = drift[..., 0::2], drift[..., 1::2]
        swap = rng.random((RUNS, ANALYSES[-1])) < 0.5
        first, second = np.where(swap, second, first), np.where(swap, first, second)
    ratios: Floats = first + noise[0] - second - noise[1]
    return ratios


def two_percent_drift(shape: str) -> Floats:
    """One drift over a run of 2048 samples, of 2% in all; random walks differ from run to run."""
    time = np.linspace(0, 1, 2 * ANALYSES[-1])
    if shape == "walk":
        steps = np.random.default_rng(5).normal(size=(RUNS, len(time))).cumsum(axis=1)
        walk: Floats = 0.02 * steps / np.ptp(steps, axis=1, keepdims=True)
        return walk
    forms = {"ramp": time, "wave": np.sin(20 * time) / 2, "throttling": time > 0.4}
    return np.asarray(0.02 * forms[shape])


@pytest.mark.parametrize("shape", ["ramp", "wave", "throttling", "walk"])
def test_identical_arms_are_rarely_called_different_under_drift(shape: str) -> None:
    assert called_different(times(two_percent_drift(shape), "interleaved", seed=6)) <= 0.05


def test_timing_one_arm_after_the_other_would_call_them_different() -> None:
    assert called_different(times(two_percent_drift("ramp"), "sequential", seed=6)) > 0.9


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_a_true_difference_of_one_percent_is_found(noise: float) -> None:
    """Noise is the standard deviation of a round's log-ratio, 1.4 times that of a sample."""
    low, _ = at_the_stop(math.log(1.01) + noise * autocorrelated(0.0, seed=7))
    assert np.mean(low > 0) >= 0.95


def test_preempted_calls_do_not_hide_a_difference_of_ten_percent() -> None:
    """In 64 rounds with 2% of noise, every tenth call of either arm takes three times as long."""
    rng = np.random.default_rng(8)
    logs = rng.normal(0, 0.02, (2, RUNS, 64)) + math.log(3) * (rng.random((2, RUNS, 64)) < 0.1)
    low, _, _ = median_interval(math.log(1.1) + logs[0] - logs[1])
    assert np.mean(low > 0) >= 0.99


def test_the_stop_is_reached_as_soon_as_the_noise_permits() -> None:
    low, high = at_the_stop(0.01 * autocorrelated(0.0, seed=9))
    assert np.all((high - low) / 2 < 0.005)


def test_what_no_rounds_remove_widens_the_interval_and_moves_nothing() -> None:
    rounds = rounds_of(torch=noisy(4.0, 0.01, 64, seed=1), arm=noisy(2.0, 0.01, 64, seed=2))
    plain, wide = (summarize(rounds, "arm", "torch", resolution_ms=ms) for ms in (0.0, 0.02))
    assert plain.time.low and plain.speedup and plain.speedup.high
    assert wide.time.estimate == plain.time.estimate
    assert wide.time.low == pytest.approx(plain.time.low / 1.01, rel=1e-3)
    assert wide.speedup
    assert wide.speedup.high == pytest.approx(plain.speedup.high * 1.01, rel=1e-3)
