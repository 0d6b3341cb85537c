"""The verb `suite`, run as a user runs it: without a GPU, with kills."""

from __future__ import annotations

import csv
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.command import Finished, Harness, finished, until, whole_lines
from support.suites import CANDIDATE, PROBLEM, write

from kernel_harness import EvaluatorPool, Status

pytestmark = pytest.mark.slow
COUNT = 6


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The arguments of a suite of two problems with six candidates each: four pass, one is wrong, one repeats."""
    write(tmp_path, {f"problems/{name}.py": PROBLEM.format(factor=factor) for name, factor in (("p", 2), ("q", 3))})
    for name, factor in (("p", 2), ("q", 3)):
        sources = [CANDIDATE.format(number=number, factor=factor) for number in range(COUNT - 2)]
        sources += [CANDIDATE.format(number=9, factor=7), sources[0]]
        write(tmp_path, {f"kernels/{name}/c{number}.py": text for number, text in enumerate(sources)})
    folders = (str(tmp_path / "problems"), "--kernels", str(tmp_path / "kernels"))
    return ["suite", *folders, "--device", "cpu", "--jobs", "1", "--quick"]


def folder(harness: Harness) -> Path:
    return harness.results / "suites" / "kernels"


def entries(harness: Harness) -> list[dict[str, Any]]:
    return whole_lines(folder(harness) / "suite.jsonl")


def started_by(harness: Harness) -> list[psutil.Process]:
    """Every process with the temporary folder of the command or of a device worker."""
    found = []
    for process in psutil.process_iter():
        try:
            inside = process.environ().get("TMPDIR", "").startswith(str(harness.temporary))
            if inside and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):  # it has ended
            continue
    return found


def check_complete(harness: Harness, ended: Finished) -> None:
    """Each candidate has one verdict, each different source was judged once, and nothing is left behind."""
    found = {(one["problem"], one["candidate"]): one for one in entries(harness)}
    assert len(found) == len(entries(harness)) == 2 * COUNT, ended.stderr
    judged = [
        (path.parent.parent.name, line["source_sha256"])
        for path in folder(harness).glob("*/*/runs.jsonl")
        for line in whole_lines(path)
        if line["kind"] == "candidate"
    ]
    assert set(Counter(judged).values()) == {1} and len(judged) == 2 * (COUNT - 1)
    assert Counter(one["status"] for one in found.values()) == {"PASSED": 2 * (COUNT - 1), "WRONG_VALUES": 2}
    assert ended.code == 1
    assert not started_by(harness) and not list(harness.temporary.iterdir())


def kill_and_wait(harness: Harness, kill: Callable[[], None], verdicts: int) -> None:
    until(lambda: len(entries(harness)) >= verdicts, f"{verdicts} verdicts", 300)
    kill()
    until(lambda: not started_by(harness), "every process has ended")


def test_a_suite_that_is_killed_goes_on_and_leaves_nothing(harness: Harness, words: list[str]) -> None:
    first = harness.start(*words)
    kill_and_wait(harness, lambda: first.send_signal(signal.SIGKILL), 2)
    assert not list(harness.temporary.iterdir())

    second = harness.start(*words, "--resume")
    before = len(entries(harness))

    def kill_all() -> None:
        for process in started_by(harness):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    kill_and_wait(harness, kill_all, before + 1)
    second.communicate()
    third = harness.run(*words, "--resume")

    check_complete(harness, third)
    assert "| correct rate | 0.833" in third.stdout
    assert "fast_1" not in third.stdout and "do not predict a GPU" in third.stdout
    with (folder(harness) / "candidates.csv").open() as file:
        rows = {(row["problem"], row["candidate"]): row for row in csv.DictReader(file)}
    assert rows["p", "c5"]["same_as"] == "c0" and not rows["p", "c0"]["speedup"] and rows["p", "c0"]["time_ms"]
    fourth = harness.run(*words, "--resume")
    assert fourth.code == 1 and len(entries(harness)) == 2 * COUNT
    assert harness.run(*words).code == 2  # the suite is there, and --resume is not given


def test_a_device_worker_that_is_killed_is_replaced(harness: Harness, words: list[str]) -> None:
    suite = harness.start(*words)
    until(lambda: len(entries(harness)) >= 2, "two verdicts", 300)
    for process in started_by(harness):
        if "kernel_harness.suite.judging_process" in process.cmdline():
            process.kill()
    ended = finished(suite)

    check_complete(harness, ended)


def test_an_interrupted_suite_says_how_to_go_on(harness: Harness, words: list[str]) -> None:
    suite = harness.start(*words)
    until(lambda: len(entries(harness)) >= 1, "a verdict", 300)
    suite.send_signal(signal.SIGINT)
    ended = finished(suite)

    assert ended.code == 130
    assert "of 12 candidates have a verdict, which is stored; --resume goes on" in ended.stderr
    assert "correct rate" in ended.stdout
    assert not started_by(harness) and not list(harness.temporary.iterdir())


def test_a_pool_judges_kernels_of_several_problems(tmp_path: Path) -> None:
    write(tmp_path, {f"{name}.py": PROBLEM.format(factor=factor) for name, factor in (("p", 2), ("q", 3))})
    items = [
        (tmp_path / f"{name}.py", CANDIDATE.format(number=number, factor=2)) for number in range(2) for name in "pq"
    ]
    before = set(psutil.Process().children(recursive=True))
    with EvaluatorPool(device="cpu", jobs=1) as pool:
        found = dict(pool.evaluate_many(items))
        rewards = [pool.reward(*item) for item in items[:2]]

    statuses = [found[index].status for index in range(4)]
    assert statuses == [Status.PASSED, Status.WRONG_VALUES, Status.PASSED, Status.WRONG_VALUES]
    assert rewards == [1.0, 0.0]
    assert found[0].timing is not None and found[0].timing.speedup is None
    assert set(psutil.Process().children(recursive=True)) <= before
