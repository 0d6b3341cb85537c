"""Suites of simulated device workers: which candidate is judged when, what is stored, what an ended worker costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.simulated_worker import PHASES_S
from support.suites import SIMULATED, suite

from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.status import Status
from kernel_harness.results.journal import Journal
from kernel_harness.session.settings import Settings
from kernel_harness.suite import device_worker, scheduler, summary
from kernel_harness.suite.store import Facts, SuiteStore
from kernel_harness.suite.suite import recorded_settings


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_worker, "PROGRAM", (str(SIMULATED),))


def judged(folder: Path) -> list[str]:
    path = folder / "judged"
    return path.read_text().split() if path.exists() else []


def test_every_candidate_gets_its_verdict(tmp_path: Path) -> None:
    judging, heard, store = suite(tmp_path, {"p/a.py": "pass 2", "p/b.py": "wrong", "q/a.py": "pass 3"})
    judging.run()

    verdicts = {one.id: (one.status, one.speedup and one.speedup.estimate) for one in store.read()}
    assert verdicts == {
        ("p", "a"): (Status.PASSED, 2.0), ("p", "b"): (Status.WRONG_VALUES, None), ("q", "a"): (Status.PASSED, 3.0),
    }  # fmt: skip
    assert heard.entries == store.read()


def test_equal_sources_of_a_problem_are_judged_once(tmp_path: Path) -> None:
    judging, _, store = suite(tmp_path, {"p/a.py": "pass 2", "p/b.py": "pass 2", "q/a.py": "pass 2 other"})
    judging.run()

    assert judged(tmp_path) == ["p/a", "q/a"]
    assert {one.id: one.same_as for one in store.read()} == {("p", "a"): None, ("p", "b"): "a", ("q", "a"): None}


def test_the_time_of_each_phase_is_stored_once_for_equal_sources(tmp_path: Path) -> None:
    judging, _, store = suite(tmp_path, {"p/a.py": "pass 2", "p/b.py": "pass 2", "q/a.py": "pass 3"})
    judging.run()

    entries, facts = store.read(), store.facts()
    assert {one.id: dict(one.phases_s) for one in entries} == {
        ("p", "a"): PHASES_S,
        ("p", "b"): {},
        ("q", "a"): PHASES_S,
    }
    assert facts is not None
    shown = summary.text(summary.summarize(facts, entries, ()))
    assert "| start   | 1.0       | 66.7%   |" in shown and "| calls   | 0.5       | 33.3%   |" in shown


def test_a_finished_suite_judges_nothing_again(tmp_path: Path) -> None:
    candidates = {"p/a.py": "pass 2", "p/b.py": "wrong"}
    suite(tmp_path, candidates)[0].run()
    again, heard, _ = suite(tmp_path, candidates)
    again.run()

    assert judged(tmp_path) == ["p/a", "p/b"]
    assert len(heard.done) == 2 and not heard.entries


def test_a_changed_candidate_is_judged_again(tmp_path: Path) -> None:
    suite(tmp_path, {"p/a.py": "pass 2", "p/b.py": "wrong"})[0].run()
    again, _, store = suite(tmp_path, {"p/a.py": "pass 4", "p/b.py": "wrong"})
    again.run()

    assert judged(tmp_path) == ["p/a", "p/b", "p/a"]
    assert [one.speedup.estimate for one in store.read() if one.speedup] == [4.0]


def test_a_new_candidate_with_a_known_source_is_not_judged(tmp_path: Path) -> None:
    suite(tmp_path, {"p/a.py": "pass 2"})[0].run()
    again, _, store = suite(tmp_path, {"p/a.py": "pass 2", "p/b.py": "pass 2"})
    again.run()

    assert judged(tmp_path) == ["p/a"]
    assert store.read()[1].same_as == "a"


def test_other_settings_are_refused(tmp_path: Path) -> None:
    suite(tmp_path, {"p/a.py": "pass 2"})[0].run()

    with pytest.raises(UserError, match="quick was False and is True"):
        suite(tmp_path, {"p/a.py": "pass 2"}, settings=Settings(quick=True))


def test_a_second_type_of_gpu_is_refused(tmp_path: Path) -> None:
    """Also in a new suite, whose device is that of the first worker: nothing has been judged then."""
    store = SuiteStore(tmp_path / "out")
    with store.exclusive():
        store.begin(Facts("other", "Another device", 1, "now", recorded_settings(Settings(seed=1))))
    judging, _, _ = suite(tmp_path, {"p/a.py": "pass 2"})

    with pytest.raises(UserError, match="is for Another device, but a device worker has Simulated device; choose"):
        judging.run()


def test_two_drivers_cannot_judge_one_suite(tmp_path: Path) -> None:
    judging, _, store = suite(tmp_path, {"p/a.py": "pass 2"})

    with store.exclusive(), pytest.raises(UserError, match="another process judges"):
        judging.run()


def test_a_candidate_of_a_changed_problem_is_judged_again(tmp_path: Path) -> None:
    suite(tmp_path, {"p/a.py": "pass 2"})[0].run()
    again, _, _ = suite(tmp_path, {"p/a.py": "pass 2"}, problem="# changed")
    again.run()

    assert judged(tmp_path) == ["p/a", "p/a"]


def test_a_result_without_an_entry_is_judged_again(tmp_path: Path) -> None:
    """A driver that is killed between its two writes leaves this. The result does not say of which problem file."""
    candidates = {"p/a.py": "pass 2", "p/b.py": "wrong"}
    first, _, store = suite(tmp_path, candidates)
    first.run()
    lines = store.path.read_text().splitlines(keepends=True)
    store.path.write_text(lines[0])
    again, _, _ = suite(tmp_path, candidates)
    again.run()

    assert judged(tmp_path) == ["p/a", "p/b", "p/b"]
    assert [one.status for one in store.read()] == [Status.PASSED, Status.WRONG_VALUES]


def test_a_line_that_is_cut_short_is_judged_again(tmp_path: Path) -> None:
    candidates = {"p/a.py": "pass 2", "q/b.py": "wrong"}
    first, _, store = suite(tmp_path, candidates)
    first.run()
    for path in (store.path, store.folder / "q" / "simulated" / "runs.jsonl"):
        path.write_text(path.read_text()[:-20])
    again, _, _ = suite(tmp_path, candidates)
    again.run()

    assert judged(tmp_path) == ["p/a", "q/b", "q/b"]
    assert {one.id for one in store.read()} == {("p", "a"), ("q", "b")}


def test_full_results_are_stored_with_one_result_of_each_baseline(tmp_path: Path) -> None:
    judging, _, store = suite(tmp_path, {"p/a.py": "pass 2", "p/b.py": "wrong"})
    judging.run()

    stored = Journal(store.folder / "p" / "simulated").read()
    assert [result.kernel for result in stored] == ["torch", "a", "b"]
    assert len({result.run for result in stored}) == 1


def test_files_that_a_killed_driver_has_not_finished_are_removed(tmp_path: Path) -> None:
    judging, _, store = suite(tmp_path, {"p/a.py": "pass 2"})
    store.folder.mkdir()
    (store.folder / ".summary.md-x1y2z3").touch()
    judging.run()

    assert not list(store.folder.glob(".*"))


def test_the_seed_is_kept_for_the_next_run(tmp_path: Path) -> None:
    judging, _, store = suite(tmp_path, {"p/a.py": "pass 2"}, settings=Settings(seed=77))
    judging.run()

    assert json.loads((store.folder / "suite.json").read_text())["seed"] == 77


def test_the_problem_with_the_most_candidates_is_judged_first(tmp_path: Path) -> None:
    """A worker gets its first candidate when all candidates are known."""
    names = ["p/a", "q/a", "q/b", "q/c", "r/a"]
    judging, _, _ = suite(tmp_path, {f"{name}.py": f"pass 2 {name}" for name in names})
    judging.run()

    assert judged(tmp_path) == ["q/a", "q/b", "q/c", "p/a", "r/a"]


# ------------------------------------------------------------------------------------------- ended workers


def test_a_worker_that_ends_costs_no_verdict(tmp_path: Path) -> None:
    died = tmp_path / "died"
    judging, _, store = suite(tmp_path, {"p/a.py": "pass 2", "p/b.py": f"die once {died}", "p/c.py": "pass 3"})
    judging.run()

    assert {one.candidate: one.status for one in store.read()} == dict.fromkeys("abc", Status.PASSED)
    assert sorted(judged(tmp_path)) == ["p/a", "p/b", "p/b", "p/c"]


def test_a_candidate_that_ends_two_workers_is_crashed_and_the_others_are_judged(tmp_path: Path) -> None:
    judging, _, store = suite(tmp_path, {"p/a.py": "die", "p/b.py": "pass 2", "q/a.py": "pass 3"}, workers=2)
    judging.run()

    found = {one.id: one for one in store.read()}
    assert found["p", "a"].status is Status.CRASHED
    assert "the device's context is broken" in found["p", "a"].reason
    assert found["p", "b"].passed and found["q", "a"].passed
    assert judged(tmp_path).count("p/a") == 2


def test_workers_that_end_before_they_judge_end_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_worker, "PROGRAM", ("-c", "raise SystemExit('no such device')"))
    judging, _, _ = suite(tmp_path, {"p/a.py": "pass 2"})

    with pytest.raises(EnvironmentLacking, match="no such device"):
        judging.run()


def test_a_problem_that_cannot_be_used_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """The second candidate is sent ahead of the first one's verdict, the third one is not."""
    candidates = {"p/a.py": "unusable", "p/b.py": "unusable too", "p/c.py": "pass 2", "q/a.py": "pass 3"}
    judging, heard, store = suite(tmp_path, candidates, builds=0)
    judging.run()

    assert heard.unusables == {"p": "the reference fails"}
    assert [one.id for one in store.read()] == [("q", "a")]
    assert judged(tmp_path) == ["p/a", "p/b", "q/a"]


def test_a_silent_worker_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_LONGEST_SILENCE_S", 0.5)
    judging, _, store = suite(tmp_path, {"p/a.py": "wait", "p/b.py": "pass 2"})
    judging.run()

    assert {one.candidate: one.status for one in store.read()} == {"a": Status.CRASHED, "b": Status.PASSED}
