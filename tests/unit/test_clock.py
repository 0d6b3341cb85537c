"""The device's clock and the judge's: when a launch gap is hidden, and which time counts."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kernel_harness.timing.clock import Hold, bounded_by_judge, unseen_by_device
from kernel_harness.timing.statistics import Round


def lengthened(hold: Hold, dispatch: Mapping[str, int], rounds: int = 40) -> list[str | None]:
    """A fake device: an arm is exposed if enqueuing it takes more cycles than the hold. The reasons of all rounds."""
    return [
        hold.update([arm for arm, cycles in dispatch.items() if cycles > hold.cycles], {"torch"}) for _ in range(rounds)
    ]


def test_the_hold_is_lengthened_until_every_launch_is_hidden() -> None:
    hold = Hold()
    reasons = lengthened(hold, {"quick": 1000, "torch": 5 << 20})
    assert hold.cycles == 8 << 20
    assert reasons[:4] == ["the launch gap of torch was not hidden"] * 3 + [None]
    assert not hold.waiting


def test_a_candidate_s_hold_is_limited_to_two_milliseconds_or_what_torch_needs() -> None:
    """A candidate could do untimed work during the hold."""
    hold = Hold()
    lengthened(hold, {"torch": 1000, "liar": 1 << 40, "slow": 3 << 20})
    assert hold.waiting == {"liar"}
    assert hold.cycles == 4 << 20
    beside_torch = Hold()
    lengthened(beside_torch, {"torch": 5 << 20, "liar": 1 << 40, "slow": 6 << 20})
    assert beside_torch.waiting == {"liar"}
    assert beside_torch.cycles == 8 << 20


def test_an_arm_that_waits_for_the_device_does_not_lengthen_the_others_hold() -> None:
    hold = Hold()
    reasons = lengthened(hold, {"quick": 1000, "slow": 2 << 20, "synchronous": 1 << 40})
    assert hold.waiting == {"synchronous"}
    assert hold.cycles == 2 << 20
    assert reasons[-1] is None


@given(st.lists(st.sets(st.sampled_from("abc")), max_size=100))
def test_an_arm_can_reject_only_a_limited_number_of_rounds(exposed: list[set[str]]) -> None:
    hold = Hold()
    rejected = [reason for arms in exposed if (reason := hold.update(arms, "a"))]
    assert len(rejected) <= 3 * 7
    assert hold.cycles <= hold.longest


def rounds(honest: float, hidden: float, noise: float = 0.3, count: int = 64) -> list[Round]:
    """Two arms with device times of `honest` ms; the second hides `hidden` ms. The brackets include 30 ms of copies."""
    rng = random.Random(1)
    made = []
    for _ in range(count):
        samples = {"torch": honest * rng.uniform(0.999, 1.001), "arm": honest * rng.uniform(0.999, 1.001)}
        brackets = {name: 30 + ms + abs(rng.gauss(0, noise)) for name, ms in samples.items()}
        brackets["arm"] += hidden
        made.append(Round(samples, ("torch", "arm"), brackets_ms=brackets))
    return made


def test_an_arm_that_works_during_the_hold_hides_no_more_than_the_hold() -> None:
    """It claims to be exposed in the first rounds. Its calls take 12 ms and it reports 0.1 ms."""
    rng, hold, made = random.Random(2), Hold(), []
    for number in range(64):
        held_ms = hold.cycles / 2e6
        samples = {"torch": 2.8 + rng.gauss(0, 0.01), "liar": 0.1}
        brackets = {"torch": held_ms + samples["torch"], "liar": max(held_ms + samples["liar"], 12)}
        brackets = {name: 1 + ms + abs(rng.gauss(0, 0.1)) for name, ms in brackets.items()}
        reason = hold.update({"liar"} if number < 6 else (), {"torch"})
        made.append(Round(samples, ("torch", "liar"), reason, brackets_ms=brackets))
    counted = [r for r in bounded_by_judge(made, ["liar"], "torch") if r.rejected is None]

    assert len(counted) > 40
    assert all(r.samples_ms["liar"] > 12 - 0.6 - 0.5 for r in counted)


def test_the_judge_s_clock_measures_work_that_the_device_s_does_not() -> None:
    interval = unseen_by_device(rounds(2.0, hidden=5.0), "arm", "torch")
    assert interval is not None and interval.low is not None and interval.high is not None
    assert interval.low < 5.0 < interval.high


def test_the_judge_s_time_counts_if_it_is_certainly_longer() -> None:
    changed = bounded_by_judge(rounds(2.0, hidden=5.0), ["arm"], "torch")
    middle = sorted(r.samples_ms["arm"] for r in changed)[32]
    assert 6.8 < middle < 7.2


def test_noisy_brackets_do_not_change_honest_times() -> None:
    before = rounds(2.0, hidden=0.0, noise=5.0)
    assert list(bounded_by_judge(before, ["arm"], "torch")) == before


def test_the_baseline_s_time_does_not_change() -> None:
    before = rounds(2.0, hidden=5.0)
    after = bounded_by_judge(before, ["arm"], "torch")
    assert [r.samples_ms["torch"] for r in after] == [r.samples_ms["torch"] for r in before]


def test_with_one_clock_nothing_is_bounded() -> None:
    plain = [Round({"torch": 1.0, "arm": 2.0}, ("torch", "arm"))] * 9
    assert unseen_by_device(plain, "arm", "torch") is None
    assert list(bounded_by_judge(plain, ["arm"], "torch")) == plain
