"""The comparison of two suites, by the figures and by the candidates of both, and its exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Finished
from support.suites import entry

from kernel_harness.core.errors import UserError
from kernel_harness.core.status import Status
from kernel_harness.results.comparison import Change
from kernel_harness.suite.comparison import StoredSuite, SuiteOutcome, compare
from kernel_harness.suite.store import Entry, Facts, SuiteStore

WRONG = Status.WRONG_VALUES
FACTS = Facts("gpu", "A GPU", 1, "2026-11-23T00:00:00+00:00", {"quick": False})
NAMES = [f"p{number}" for number in range(8)]


def suite(label: str, entries: Sequence[Entry], facts: Facts = FACTS) -> StoredSuite:
    return StoredSuite(label, facts, {one.id: one for one in entries})


def compared(a: Sequence[Entry], b: Sequence[Entry]) -> SuiteOutcome:
    return compare(suite("A", a), suite("B", b))


def test_each_candidate_of_both_gets_a_change() -> None:
    a = [
        entry("p", "broken", 2.0),
        entry("p", "fixed", status=WRONG),
        entry("p", "slower", 2.0),
        entry("p", "faster", 1.0),
        entry("p", "same", 1.0),
        entry("p", "failed", status=WRONG),
        entry("p", "gone"),
    ]
    b = [
        entry("p", "broken", status=WRONG),
        entry("p", "fixed", 1.0),
        entry("p", "slower", 1.0),
        entry("p", "faster", 2.0),
        entry("p", "same", 1.0),
        entry("p", "failed", status=WRONG),
        entry("p", "new"),
    ]
    found = {one.candidate: one.change for one in compared(a, b).candidates}

    # The intervals of entry() are 1% wide on each side, too wide to call two equal speedups the same.
    assert found == {
        "broken": Change.BROKEN, "fixed": Change.FIXED, "slower": Change.SLOWER, "faster": Change.FASTER,
        "same": Change.UNDECIDED, "failed": Change.FAILED,
    }  # fmt: skip


def test_a_broken_and_a_slower_candidate_are_regressions() -> None:
    outcome = compared(
        [entry("p", "x", 2.0), entry("p", "y", 2.0), entry("p", "z", 2.0)],
        [entry("p", "x", status=WRONG), entry("p", "y", 1.8), entry("p", "z", 2.0)],
    )

    assert outcome.regressions(0.0) == ["p/x", "p/y"]
    assert outcome.regressions(50.0) == ["p/x"]


def test_generated_samples_are_matched_only_if_their_sources_are_equal() -> None:
    a = [entry("p", "sample_0", 2.0), entry("p", "sample_1", 2.0)]
    b = [replace(a[0], source_sha256="other", status=WRONG, speedup=None), replace(a[1], status=WRONG, speedup=None)]

    assert [one.candidate for one in compared(a, b).candidates] == ["sample_1"]


def test_a_figure_is_worse_if_the_whole_interval_of_its_difference_is_below_zero() -> None:
    a = [entry(name, "sample_0", 2.0) for name in NAMES]
    b = [replace(one, source_sha256="other", status=WRONG, speedup=None) for one in a[:6]] + a[6:]
    outcome = compared(a, b)
    rate = next(figure for figure in outcome.figures if figure.a.name == "correct rate")

    assert (rate.a.value, rate.b.value, rate.difference.value) == (1.0, 0.25, -0.75)
    assert rate.worse and "correct rate" in outcome.regressions(0.0)


def test_one_changed_problem_of_many_does_not_make_a_figure_worse() -> None:
    a = [entry(name, "sample_0", 2.0) for name in NAMES]
    b = [replace(a[0], source_sha256="other", status=WRONG, speedup=None), *a[1:]]

    assert compared(a, b).regressions(0.0) == []


def test_figures_are_over_the_problems_of_both_suites() -> None:
    a = [entry("p", "x", 2.0), entry("only_a", "x", status=WRONG)]
    b = [entry("p", "x", 2.0), entry("only_b", "x", status=WRONG)]

    assert {(f.a.value, f.b.value) for f in compared(a, b).figures if f.a.name == "correct rate"} == {(1.0, 1.0)}


def test_a_geometric_mean_changes_by_a_ratio() -> None:
    a, b = ([entry(name, "x", speedup) for name in NAMES] for speedup in (2.0, 1.0))
    change = next(f for f in compared(a, b).figures if f.a.name == "geometric mean speedup")

    assert change.difference.value == pytest.approx(0.5) and change.worse


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (replace(FACTS, label="other", device="Another"), "different devices: A ran on A GPU, B on Another"),
        (replace(FACTS, settings={"quick": True}), "different settings: quick"),
    ],
)
def test_suites_of_other_devices_or_settings_need_force(facts: Facts, message: str) -> None:
    a, b = suite("A", [entry("p", "x", 2.0)]), suite("B", [entry("p", "x", 1.0)], facts)
    with pytest.raises(UserError, match=message):
        compare(a, b)

    assert compare(a, b, force=True).candidates[0].change is Change.SLOWER


def test_suites_without_a_common_problem_are_refused() -> None:
    with pytest.raises(UserError, match="no problem in common"):
        compared([entry("p", "x")], [entry("q", "x")])


# ------------------------------------------------------------------------------------------------ the command


def store(results: Path, name: str, entries: Sequence[Entry]) -> None:
    journal = SuiteStore(results / "suites" / name)
    with journal.exclusive():
        journal.begin(FACTS)
        journal.append(entries)


@pytest.mark.parametrize(("second", "code"), [(2.0, 0), (1.0, 3)], ids=["the same", "slower"])
def test_the_command_compares_suites_by_name(
    second: float, code: int, typed: Callable[..., Finished], tmp_path: Path
) -> None:
    store(tmp_path, "mine", [entry(name, "x", 2.0) for name in NAMES])
    store(tmp_path, "yours", [entry(name, "x", second) for name in NAMES])
    ended = typed("compare", "mine", "yours", "--results", tmp_path)

    assert ended.code == code
    assert "8 candidates are in both" in ended.stdout
    assert ("worse: fast_1, fast_1 (best), fast_1 (certain)" in ended.stderr) == (code == 3)


def test_a_suite_is_not_compared_with_something_else(typed: Callable[..., Finished], tmp_path: Path) -> None:
    store(tmp_path, "mine", [entry("p", "x", 2.0)])
    ended = typed("compare", "mine", "latest", "--results", tmp_path)

    assert ended.code == 2
    assert "'mine' names a suite and 'latest' does not; name two suites" in ended.stderr


def test_one_suite_alone_is_not_compared(typed: Callable[..., Finished], tmp_path: Path) -> None:
    store(tmp_path, "mine", [entry("p", "x", 2.0)])
    ended = typed("compare", "mine", "--results", tmp_path)

    assert ended.code == 2
    assert "'mine' names a suite; name a second suite to compare it with" in ended.stderr


@pytest.mark.parametrize("option", ["--json", "--junit=j.xml", "--markdown=m.md"])
def test_suites_are_compared_in_text_alone(option: str, typed: Callable[..., Finished], tmp_path: Path) -> None:
    for name in ("mine", "yours"):
        store(tmp_path, name, [entry("p", "x", 2.0)])
    ended = typed("compare", "mine", "yours", "--results", tmp_path, option)

    assert ended.code == 2 and "are for runs and versions of a kernel; leave them out" in ended.stderr
