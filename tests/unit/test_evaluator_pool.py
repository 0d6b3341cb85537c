"""The pool of evaluators for programs, with simulated device workers, and the reward of a result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from support.suites import SIMULATED, write

from kernel_harness import EvaluatorPool, NotFound, ProblemError, Status, UserError, reward
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.results.record import Result
from kernel_harness.session.settings import Settings
from kernel_harness.suite import device_worker
from kernel_harness.suite.device_worker import DeviceWorker, SuiteFolder
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[EvaluatorPool]:
    monkeypatch.setattr(device_worker, "PROGRAM", (str(SIMULATED),))
    with EvaluatorPool(device="cpu", jobs=2) as made:
        yield made


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    write(tmp_path, {"problems/p.py": ""})
    return tmp_path / "problems" / "p.py"


def kernel(folder: Path, name: str, text: str) -> Path:
    write(folder, {f"kernels/p/{name}.py": text})
    return folder / "kernels" / "p" / f"{name}.py"


def test_results_come_with_the_index_of_their_item(pool: EvaluatorPool, problem: Path, tmp_path: Path) -> None:
    items = [(problem, kernel(tmp_path, f"c{n}", f"pass {n + 1}" if n % 3 else "wrong")) for n in range(30)]
    found = dict(pool.evaluate_many(items))

    assert sorted(found) == list(range(30))
    assert all(found[n].kernel == f"c{n}" and found[n].passed == bool(n % 3) for n in found)


def test_items_are_read_only_as_far_as_they_are_needed(pool: EvaluatorPool, problem: Path, tmp_path: Path) -> None:
    read = []

    def endless() -> Iterator[tuple[Path, Path]]:
        path = kernel(tmp_path, "a", "pass 2")
        while True:
            read.append(path)
            yield problem, path

    results = pool.evaluate_many(endless())
    for _ in range(5):
        next(results)

    assert len(read) < 100


def test_several_threads_can_use_one_pool(pool: EvaluatorPool, problem: Path, tmp_path: Path) -> None:
    paths = [kernel(tmp_path, f"c{n}", f"pass {n + 1}") for n in range(24)]
    with ThreadPoolExecutor(8) as threads:
        rewards = list(threads.map(lambda path: pool.reward(problem, path), paths))

    assert rewards == [pytest.approx(0.9 * (n + 1)) for n in range(24)]


def test_problems_of_equal_file_names_are_told_apart(pool: EvaluatorPool, tmp_path: Path) -> None:
    write(tmp_path, {"one/p.py": "", "other/p.py": ""})
    path = kernel(tmp_path, "a", "pass 2")
    for folder in ("one", "other", "one"):
        pool.evaluate(tmp_path / folder / "p.py", path)

    assert (tmp_path / "judged").read_text().split() == ["p/a-0", "p_2/a-1", "p/a-2"]


def test_a_kernel_that_ends_evaluators_is_crashed(pool: EvaluatorPool, problem: Path, tmp_path: Path) -> None:
    result = pool.evaluate(problem, kernel(tmp_path, "a", "die"))

    assert result.status is Status.CRASHED and "ended 2 times" in result.reason
    assert pool.evaluate(problem, kernel(tmp_path, "b", "pass 2")).passed


def test_the_caller_s_mistakes_are_raised(pool: EvaluatorPool, problem: Path, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="the reference fails"):
        pool.evaluate(problem, kernel(tmp_path, "a", "unusable"))
    with pytest.raises(NotFound, match="no problem 'matmul_t'; did you mean 'matmul_tt'"):
        pool.evaluate("matmul_t", "raise ValueError")
    with pytest.raises(NotFound, match="there is no file"):
        pool.evaluate(problem, tmp_path / "gone.py")


def test_a_closed_pool_raises_in_calls_that_wait_and_in_later_ones(
    pool: EvaluatorPool, problem: Path, tmp_path: Path
) -> None:
    path = kernel(tmp_path, "a", "wait")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.evaluate, problem, path)
        while not (tmp_path / "judged").exists():
            threading.Event().wait(0.01)
        pool.close()

        with pytest.raises(UserError, match="was closed"):
            waiting.result()
    with pytest.raises(UserError, match="was closed"):
        pool.evaluate(problem, path)


def test_a_pool_whose_evaluators_cannot_start_raises(monkeypatch: pytest.MonkeyPatch, problem: Path) -> None:
    monkeypatch.setattr(device_worker, "PROGRAM", ("-c", "raise SystemExit('no such device')"))
    with EvaluatorPool(device="cpu", jobs=1) as pool, pytest.raises(EnvironmentLacking, match="no such device"):
        pool.evaluate(problem, "raise ValueError")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"device": "cpu", "gpus": [0]}, "with the device cuda only"),
        ({"device": "cpu", "baseline": "torch.compile"}, "needs a GPU"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        EvaluatorPool(**options)


# ------------------------------------------------------------------------------------------------ the reward


def result(status: Status, speedup: Interval | None = None, *, emulated: bool = False) -> Result:
    timing = None if status is not Status.PASSED else Timing((1.0,), (), Interval(0.9, 1.0, 1.1), speedup)
    return Result("a", status, "", {}, "", timing=timing, emulated=emulated)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (result(Status.WRONG_VALUES), 0.0),
        (result(Status.CHEATED), 0.0),
        (result(Status.PASSED), 0.01),
        (result(Status.PASSED, Interval(None, 3.0, None)), 0.01),
        (result(Status.PASSED, Interval(0.001, 0.002, 0.003)), 0.01),
        (result(Status.PASSED, Interval(1.5, 1.6, 1.7)), 1.5),
        (result(Status.PASSED, emulated=True), 1.0),
        (result(Status.WRONG_VALUES, emulated=True), 0.0),
    ],
)
def test_the_reward_is_zero_or_the_lower_bound_of_the_speedup(judged: Result, expected: float) -> None:
    assert reward(judged) == expected


def test_the_secret_seed_is_in_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate can read command lines where processes are visible."""
    program = (
        "import sys\nfrom multiprocessing.connection import Connection\n"
        "print(Connection(int(sys.argv[1])).recv(), 'words:', open('/proc/self/cmdline').read())"
    )
    monkeypatch.setattr(device_worker, "PROGRAM", ("-c", program))
    with closing(SuiteFolder()) as folder:
        started = DeviceWorker("cpu", Settings(seed=12345678), [], folder)
        assert started.receive() is None
        given, _, words = started.close().partition("words:")

    assert "seed=12345678" in given
    assert "-c" in words and "12345678" not in words


def test_a_worker_that_hangs_after_its_last_message_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, signal, sys; os.close(int(sys.argv[1])); signal.pause()"
    monkeypatch.setattr(device_worker, "PROGRAM", ("-c", program))
    monkeypatch.setattr(device_worker, "_ENDING_S", 0.1)
    with closing(SuiteFolder()) as folder:
        started = DeviceWorker("cpu", Settings(), [], folder)
        assert started.receive() is None
        words = started.close()

    assert "ended with signal 9" in words
