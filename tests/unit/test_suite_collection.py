"""Which files are the problems and candidates of a suite, and in which order evaluators get them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.suites import entry, write

from kernel_harness.core.errors import UserError
from kernel_harness.suite import workplace
from kernel_harness.suite.backlog import Backlog
from kernel_harness.suite.collection import Collection, collect, unmatched_note
from kernel_harness.suite.tally import Tally, duration


def ids(found: Collection) -> list[tuple[str, str]]:
    return [task.id for task in found.tasks]


def suite(folder: Path, problems: list[str], kernels: list[str], word: str = "problems") -> Collection:
    write(folder, {f"problems/{name}": name for name in problems} | {f"kernels/{name}": name for name in kernels})
    return collect([str(folder / word)], folder / "kernels", folder)


def test_candidates_are_files_in_a_folder_named_after_their_problem(tmp_path: Path) -> None:
    found = suite(tmp_path, ["p.py", "q.py"], ["p/a.py", "p/b.cu", "q/a.py", "p/notes.txt", "p/_private.py"])

    assert ids(found) == [("p", "a"), ("p", "b"), ("q", "a")]


@pytest.mark.parametrize("hidden", [".venv", "_old"])
def test_no_file_below_a_hidden_folder_is_a_candidate(hidden: str, tmp_path: Path) -> None:
    found = suite(tmp_path, ["p.py"], ["p/a.py", f"{hidden}/p/b.py", f"{hidden}/lib/q/x.py"])

    assert ids(found) == [("p", "a")] and not found.unmatched


def test_files_that_kernelbench_generates_belong_to_the_problem_of_their_number(tmp_path: Path) -> None:
    names = [f"level_{level}_problem_{n}_sample_{s}_kernel.py" for level in (1, 2) for n in (2, 10) for s in (0, 1)]
    found = suite(tmp_path, ["level1/2_Softmax.py", "level1/10_Conv.py", "level2/2_Gemm.py"], names)

    assert ids(found) == [
        ("2_Softmax", "sample_0"), ("2_Softmax", "sample_1"), ("10_Conv", "sample_0"), ("10_Conv", "sample_1"),
        ("2_Gemm", "sample_0"), ("2_Gemm", "sample_1"),
    ]  # fmt: skip
    assert [path.name for path in found.unmatched] == names[-2:]
    assert unmatched_note(found).startswith("2 kernel files belong to no problem of the suite and are left out")


def test_problems_of_equal_names_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    found = suite(tmp_path, ["level1/a.py", "level2/a.py"], ["level1/a/x.py", "level2_a/y.py"])

    assert ids(found) == [("level1_a", "x"), ("level2_a", "y")]


def test_problems_may_be_a_glob(tmp_path: Path) -> None:
    found = suite(tmp_path, ["p1.py", "p2.py", "q.py"], ["p1/a.py", "q/a.py"], "problems/p*.py")

    assert [problem.name for problem in found.problems] == ["p1", "p2"]
    assert ids(found) == [("p1", "a")]


@pytest.mark.parametrize(
    ("problems", "kernels", "word", "message"),
    [
        (["p.py"], ["p/a.py"], "elsewhere", "selects no problem file"),
        (["p.py"], ["q/a.py"], "problems", "no file in .* belongs to a problem"),
        (["p.py"], ["p/a.py", "p/a.cu"], "problems", "two candidates have the name 'a'"),
        (["p.py"], ["p/torch.py"], "problems", "is reserved"),
    ],
)
def test_a_suite_that_cannot_be_judged_is_refused(
    problems: list[str], kernels: list[str], word: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        suite(tmp_path, problems, kernels, word)


# ---------------------------------------------------------------------------------------------- the backlog


def backlog(folder: Path) -> Backlog:
    found = suite(folder, ["p.py", "q.py", "r.py"], [f"{p}/{c}.py" for p in "pqr" for c in "abc"])
    return Backlog(found.tasks, {task.id: str(task.id) for task in found.tasks})


def test_each_evaluator_gets_the_candidates_of_one_problem(tmp_path: Path) -> None:
    waiting = backlog(tmp_path)
    taken = [waiting.take(number) for number in (0, 1, 0, 1, 0, 0)]

    assert [task and task.id for task in taken] == [
        ("p", "a"), ("q", "a"), ("p", "b"), ("q", "b"), ("p", "c"), ("r", "a")
    ]  # fmt: skip


def test_an_evaluator_without_a_problem_of_its_own_helps_with_the_largest(tmp_path: Path) -> None:
    waiting = backlog(tmp_path)
    for number in range(3):
        waiting.take(number)
    waiting.take(0)
    helped = waiting.take(3)

    assert helped is not None and helped.id == ("q", "b")


def test_tasks_of_an_ended_evaluator_come_first_again(tmp_path: Path) -> None:
    waiting = backlog(tmp_path)
    first, second = waiting.take(0), waiting.take(0)
    assert first is not None and second is not None
    waiting.release(0)
    for task in (second, first):
        waiting.put_back(task)

    assert [waiting.take(0), waiting.take(0)] == [first, second]
    assert len(waiting) == 7


# ------------------------------------------------------------------------------------- the tally, the workplace


def test_the_rate_counts_the_verdicts_of_this_run_only(tmp_path: Path) -> None:
    found = suite(tmp_path, ["p.py", "q.py"], [f"{p}/{c}.py" for p in "pq" for c in "ab"])
    tally = Tally(found.tasks)
    tally.began([entry("p", "a"), entry("p", "b")], 100.0)
    assert tally.per_hour(110.0) is None
    tally.finished([entry("q", "a")])

    assert (tally.done, tally.problems_done) == (3, 1)
    assert tally.per_hour(110.0) == 360 and tally.left_s(110.0) == 10
    assert tally.text(110.0) == "3 of 4 candidates, 1 of 2 problems done, PASSED 3, 360 per hour, 10 s left"
    tally.unusable("q")
    assert (tally.done, tally.problems_done, tally.by_status["problem unusable"]) == (4, 2, 1)
    assert tally.judged == 3


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (89, "89 s"), (120, "2 min"), (9000, "2.5 h")])
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_folder_of_a_killed_suite_is_removed_and_that_of_a_running_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = tmp_path / "kernel-harness-suite-killed"
    write(killed, {"lock": "", "evaluator-1/file": ""})
    with workplace.Workplace() as running:
        workplace.remove_abandoned()

        assert not killed.exists() and running.folder.exists()
    assert not list(tmp_path.iterdir())


def test_the_last_evaluator_of_a_killed_driver_removes_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = workplace.Workplace()
    own, other = place.folder / "evaluator-1", place.folder / "evaluator-2"
    write(own, {"file": ""})
    write(other, {"file": ""})
    workplace.leave(own)
    assert other.exists() and not own.exists()
    workplace.leave(other)

    assert not place.folder.exists()
