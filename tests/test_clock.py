"""The device's clock beside the judge's: when a launch gap is hidden, and whose time counts."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from kernel_harness.clock import Hold, beyond, bounded
from kernel_harness.timing import Round


def lengthened(hold: Hold, dispatch: Mapping[str, int], rounds: int = 40) -> list[str | None]:
    """A fake device: an arm is exposed where enqueuing it takes more cycles than the hold. Why each round was void."""
    return [
        hold.after([arm for arm, cycles in dispatch.items() if cycles > hold.cycles], {"torch"}) for _ in range(rounds)
    ]


def test_the_hold_is_lengthened_until_every_launch_is_hidden() -> None:
    hold = Hold()
    reasons = lengthened(hold, {"quick": 1000, "torch": 5 << 20})
    assert hold.cycles == 8 << 20
    assert reasons[:4] == ["the launch gap of torch was not hidden"] * 3 + [None]
    assert not hold.waiting


def test_a_candidate_is_granted_two_milliseconds_and_what_torch_needs() -> None:
    """It is free to work while the others wait."""
    hold = Hold()
    lengthened(hold, {"torch": 1000, "liar": 1 << 40, "slow": 3 << 20})
    assert hold.waiting == {"liar"}
    assert hold.cycles == 4 << 20
    beside_torch = Hold()
    lengthened(beside_torch, {"torch": 5 << 20, "liar": 1 << 40, "slow": 6 << 20})
    assert beside_torch.waiting == {"liar"}
    assert beside_torch.cycles == 8 << 20


def test_an_arm_that_waits_for_the_device_is_let_be_and_the_others_keep_their_hold() -> None:
    hold = Hold()
    reasons = lengthened(hold, {"quick": 1000, "slow": 2 << 20, "synchronous": 1 << 40})
    assert hold.waiting == {"synchronous"}
    assert hold.cycles == 2 << 20
    assert reasons[-1] is None


@given(st.lists(st.sets(st.sampled_from("abc")), max_size=100))
def test_an_arm_can_void_no_more_rounds_than_the_hold_can_be_lengthened(exposed: list[set[str]]) -> None:
    hold = Hold()
    void = [reason for arms in exposed if (reason := hold.after(arms, "a"))]
    assert len(void) <= 3 * 7
    assert hold.cycles <= hold.longest


def rounds(honest: float, hidden: float, noise: float = 0.3, count: int = 64) -> list[Round]:
    """Two arms whose device says `honest` ms; the second hides `hidden` ms from it. Brackets move 30 ms of bytes."""
    rng = random.Random(1)
    made = []
    for _ in range(count):
        samples = {"torch": honest * rng.uniform(0.999, 1.001), "arm": honest * rng.uniform(0.999, 1.001)}
        brackets = {name: 30 + ms + abs(rng.gauss(0, noise)) for name, ms in samples.items()}
        brackets["arm"] += hidden
        made.append(Round(samples, ("torch", "arm"), brackets_ms=brackets))
    return made


def test_who_works_in_the_hold_hides_no_more_than_that_and_cannot_lengthen_it() -> None:
    """Says that it was exposed while nothing counts, and later what it likes: 12 ms are done, 0.1 ms are told."""
    rng, hold, made = random.Random(2), Hold(), []
    for number in range(64):
        held_ms = hold.cycles / 2e6
        samples = {"torch": 2.8 + rng.gauss(0, 0.01), "liar": 0.1}
        brackets = {"torch": held_ms + samples["torch"], "liar": max(held_ms + samples["liar"], 12)}
        brackets = {name: 1 + ms + abs(rng.gauss(0, 0.1)) for name, ms in brackets.items()}
        reason = hold.after({"liar"} if number < 6 else (), {"torch"})
        made.append(Round(samples, ("torch", "liar"), reason, brackets_ms=brackets))
    counted = [r for r in bounded(made, ["liar"], "torch") if r.rejected is None]

    assert len(counted) > 40
    assert all(r.samples_ms["liar"] > 12 - 0.6 - 0.5 for r in counted)


def test_work_hidden_from_the_device_s_clock_is_seen_by_the_judge_s() -> None:
    interval = beyond(rounds(2.0, hidden=5.0), "arm", "torch")
    assert interval is not None and interval.low is not None and interval.high is not None
    assert interval.low < 5.0 < interval.high


def test_the_judge_s_time_counts_where_it_is_surely_longer() -> None:
    changed = bounded(rounds(2.0, hidden=5.0), ["arm"], "torch")
    middle = sorted(r.samples_ms["arm"] for r in changed)[32]
    assert 6.8 < middle < 7.2


def test_a_noisy_bracket_leaves_honest_times_alone() -> None:
    before = rounds(2.0, hidden=0.0, noise=5.0)
    assert list(bounded(before, ["arm"], "torch")) == before


def test_the_baseline_s_own_time_stands() -> None:
    before = rounds(2.0, hidden=5.0)
    after = bounded(before, ["arm"], "torch")
    assert [r.samples_ms["torch"] for r in after] == [r.samples_ms["torch"] for r in before]


def test_where_there_is_one_clock_nothing_is_bounded() -> None:
    plain = [Round({"torch": 1.0, "arm": 2.0}, ("torch", "arm"))] * 9
    assert beyond(plain, "arm", "torch") is None
    assert list(bounded(plain, ["arm"], "torch")) == plain
