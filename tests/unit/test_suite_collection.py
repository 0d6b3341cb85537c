"""Which files are the problems and candidates of a suite, and in which order device workers get them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from support.suites import entry, write

from kernel_harness.cli.suite_progress import SuiteProgress, duration
from kernel_harness.core.errors import UserError
from kernel_harness.suite import device_worker
from kernel_harness.suite.collection import Collection, collect, unmatched_note
from kernel_harness.suite.device_worker import SuiteFolder
from kernel_harness.suite.scheduler import Queue


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


# ------------------------------------------------------------------------------------------------ the queue


def waiting(folder: Path, kernels: list[str]) -> Queue:
    found, tasks = suite(folder, sorted({f"{name[0]}.py" for name in kernels}), kernels), Queue()
    for task in found.tasks:
        tasks.add(task)
    return tasks


def taken(tasks: Queue, workers: list[int]) -> list[tuple[str, str]]:
    """The ids of the tasks that the workers of these numbers take, one after the other."""
    problem_of: dict[int, str] = {}
    found = []
    for worker in workers:
        task = tasks.take(problem_of.get(worker), problem_of.values())
        assert task is not None
        problem_of[worker] = task.problem.name
        found.append(task.id)
    return found


def test_each_worker_gets_the_candidates_of_one_problem(tmp_path: Path) -> None:
    tasks = waiting(tmp_path, [f"{p}/{c}.py" for p in "pqr" for c in "abc"])

    assert taken(tasks, [0, 1, 0, 1, 0, 0]) == [
        ("p", "a"), ("q", "a"), ("p", "b"), ("q", "b"), ("p", "c"), ("r", "a")
    ]  # fmt: skip


def test_the_problem_with_the_most_candidates_begins_first(tmp_path: Path) -> None:
    tasks = waiting(tmp_path, ["p/a.py", "q/a.py", "q/b.py", "q/c.py", "r/a.py", "r/b.py"])

    assert taken(tasks, [0, 1, 2]) == [("q", "a"), ("r", "a"), ("p", "a")]


def test_a_worker_without_a_problem_of_its_own_helps_with_the_largest(tmp_path: Path) -> None:
    tasks = waiting(tmp_path, [f"{p}/{c}.py" for p in "pqr" for c in "abc"])

    assert taken(tasks, [0, 1, 2, 0, 3])[-1] == ("q", "b")


def test_tasks_of_an_ended_worker_come_first_again(tmp_path: Path) -> None:
    tasks = waiting(tmp_path, [f"p/{c}.py" for c in "abc"])
    first, second = tasks.take(None, ()), tasks.take("p", ["p"])
    assert first is not None and second is not None
    for task in (second, first):
        tasks.add(task, first=True)

    assert [tasks.take(None, ()), tasks.take("p", ["p"])] == [first, second]
    assert len(tasks) == 1


# --------------------------------------------------------------------------- the progress, the temporary folder


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_rate_counts_the_verdicts_of_this_run_only(tmp_path: Path) -> None:
    found = suite(tmp_path, ["p.py", "q.py"], [f"{p}/{c}.py" for p in "pq" for c in "ab"])
    clock = Clock()
    progress = SuiteProgress(found.tasks, clock)
    progress.began([entry("p", "a"), entry("p", "b")])
    clock.now_s = 110.0
    assert progress.per_hour() is None
    progress.finished([entry("q", "a")])

    assert progress.done == 3 and progress.per_hour() == 360
    assert progress.text() == "3 of 4 candidates, 1 of 2 problems done, PASSED 3, 360 per hour, 10 s left"
    progress.unusable("q", "no such layer")
    assert (progress.done, progress.judged, progress.by_status["problem unusable"]) == (4, 3, 1)


def test_the_rate_is_that_of_the_last_minutes(tmp_path: Path) -> None:
    found = suite(tmp_path, ["p.py"], [f"p/{number}.py" for number in range(100)])
    clock = Clock()
    progress = SuiteProgress(found.tasks, clock)
    progress.finished([entry("p", str(number)) for number in range(50)])
    clock.now_s += 1000
    progress.finished([entry("p", "50")])

    assert progress.per_hour() == 6


def test_the_progress_counts_the_problems_of_each_level(tmp_path: Path) -> None:
    found = suite(tmp_path, ["level1/1_a.py", "level1/2_b.py", "level10/1_c.py"], ["1_a/x.py", "2_b/x.py", "1_c/x.py"])
    progress = SuiteProgress(found.tasks)
    progress.finished([entry("1_a", "x")])

    assert "1 of 3 problems done, level 1: 1 of 2, level 10: 0 of 1, PASSED 1" in progress.text()


def test_levels_and_problems_are_in_natural_order(tmp_path: Path) -> None:
    found = suite(
        tmp_path, ["level10/2_a.py", "level2/10_b.py", "level2/9_c.py"], ["2_a/x.py", "10_b/x.py", "9_c/x.py"]
    )

    assert [problem.name for problem in found.problems] == ["9_c", "10_b", "2_a"]


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (89, "89 s"), (120, "2 min"), (9000, "2.5 h")])
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_folder_of_a_killed_suite_is_removed_and_that_of_a_running_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = tmp_path / "kernel-harness-suite-killed"
    with closing(SuiteFolder()) as running:
        write(killed, {"lock": "", "worker-1/file": ""})
        with closing(SuiteFolder()):
            assert not killed.exists() and running.path.exists()
    assert not list(tmp_path.iterdir())


def test_the_last_worker_of_a_killed_driver_removes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = SuiteFolder().path
    own, other = folder / "worker-1", folder / "worker-2"
    write(own, {"file": ""})
    write(other, {"file": ""})
    device_worker.leave(own)
    assert other.exists() and not own.exists()
    device_worker.leave(other)

    assert not folder.exists()
