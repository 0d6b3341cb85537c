"""What a user, a candidate or a machine can get wrong, end to end: real processes, real compilers, the emulated device.

The candidates are in `candidates/bad`. The docstring of each says what is wrong with it, the status it must get,
and, after `Says:`, what the reason must contain.
"""

from __future__ import annotations

import csv
import json
import mmap
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.command import CANDIDATES, LONGEST_S, Finished, Harness, Process, standing_in, until, whole_lines
from support.product import PROBLEM, PROBLEM_FILE

from kernel_harness.device.cpu import Emulated

pytestmark = pytest.mark.slow

BAD = CANDIDATES / "bad"
# Judged in runs of their own: with a short limit on calls, with other limits, and where only each other can suffer.
SHORT_CALLS = ("endless_python", "endless_kernel", "good")
OTHER_LIMITS = ("endless_import", "endless_init", "memory_growth", "fork_bomb")
HOSTILE = (
    "no_answer", "odd_words", "unreadable_structure", "unprintable_exception",
    "did_not_start_on_import", "did_not_start_in_a_timed_call", "refuses_to_be_made",
)  # fmt: skip
ALL = sorted(path.stem for path in BAD.glob("*.py"))
TOGETHER = [name for name in ALL if name not in {*SHORT_CALLS, *OTHER_LIMITS, *HOSTILE} or name == "good"]
EMULATED = ("--problem", PROBLEM_FILE, "--device", "cpu", "--rounds", "1", "--seed", "1")


def kernels(*names: str) -> list[str | Path]:
    """Candidates, as arguments of the command."""
    return [word for name in names for word in ("--kernel", BAD / f"{name}.py")]


def wanted(name: str) -> tuple[str, list[str]]:
    """The status a candidate must get, and what its reason must contain."""
    lines = (BAD / f"{name}.py").read_text().split('"""')[1].splitlines()
    return lines[0].split(":")[0], [line.removeprefix("Says: ") for line in lines if line.startswith("Says: ")]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """Where the run of `together` was."""
    return Harness(tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="module")
def together(house: Harness) -> Finished:
    """One run with every candidate that needs no run of its own."""
    return house.run(*EMULATED, *kernels(*TOGETHER), "--json")


@pytest.fixture(scope="module")
def short_calls(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Harness(tmp_path_factory.mktemp("short")).run(*EMULATED, *kernels(*SHORT_CALLS), "--timeout", "3", "--json")


@pytest.fixture(scope="module")
def other_limits() -> dict[str, dict[str, Any]]:
    """The limits that the command has no flags for, or that its flags would make tests slow with."""
    from kernel_harness import device
    from kernel_harness.problem import candidate
    from kernel_harness.session.run import SilentObserver
    from kernel_harness.session.session import Session
    from kernel_harness.session.settings import Settings
    from kernel_harness.workers.process import Limits

    settings = Settings(seed=1, rounds=1, limits=Limits(call_s=60, build_s=3, tasks=128, memory_bytes=2 << 30))
    read = [candidate.read(BAD / f"{name}.py") for name in OTHER_LIMITS]
    with Session(PROBLEM, device.named("cpu"), settings, SilentObserver()) as session:
        results = session.judge(read, lambda result: None)
    return {r.kernel: {"status": str(r.status), "reason": r.reason} for r in results}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Candidates that try the judge's own patience, and sources that do."""
    folder = tmp_path_factory.mktemp("hostile")
    harness = Harness(folder)
    forward = (BAD / "good.py").read_text()
    sources = {
        "syntax_error": forward + "\n\ndef broken(:\n    pass\n",
        "nested_source": f"x = {'-' * 100_000}1\n",
        "long_source": f"{forward}\n# {'.' * (2 << 20)}\n",
        "null_byte": forward + "\0",
    }
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "latin.py").write_bytes(b'"""caf\xe9"""\n' + forward.encode())
    (folder / "no_forward.cu").write_text("__global__ void product() {}\n")
    more = [word for path in sorted(folder.iterdir()) if path.is_file() for word in ("--kernel", path)]
    return harness.run(*EMULATED, *kernels(*HOSTILE, "good"), *more, "--json")


@pytest.fixture
def result(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What became of the candidate that the test is about, in whichever run it was."""
    name = request.getfixturevalue("name")
    if name in OTHER_LIMITS:
        return request.getfixturevalue("other_limits")[name]
    run = "short_calls" if name in SHORT_CALLS[:2] else "hostile" if name in HOSTILE else "together"
    return request.getfixturevalue(run).results[name]


# --- candidates


@pytest.mark.parametrize("name", ALL)
def test_a_candidate_gets_the_status_its_docstring_says(name: str, result: dict[str, Any]) -> None:
    assert result["status"] == wanted(name)[0], result["reason"]


@pytest.mark.parametrize(("name", "fragment"), [(name, said) for name in ALL for said in wanted(name)[1]])
def test_the_reason_says_what_is_wrong_and_where(name: str, fragment: str, result: dict[str, Any]) -> None:
    assert fragment in result["reason"]


def test_a_run_with_bad_candidates_ends_with_1(together: Finished) -> None:
    assert together.code == 1, together.stderr


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Harness, Finished]:
    """A run with a good candidate only, and where it was."""
    house = Harness(tmp_path_factory.mktemp("passed"))
    return house, house.run(*EMULATED, *kernels("good"))


def test_a_run_whose_candidates_all_pass_ends_with_0(passed: tuple[Harness, Finished]) -> None:
    assert passed[1].code == 0, passed[1].stderr


def test_the_good_candidate_is_timed_although_its_neighbours_fail(together: Finished) -> None:
    assert together.results["good"]["timing"]["time"]["estimate"] > 0


def test_the_harness_itself_has_nothing_to_complain_about(together: Finished) -> None:
    assert "Traceback" not in together.stderr


def test_every_json_line_is_json_to_a_strict_reader(together: Finished) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    for line in together.stdout.splitlines():
        json.loads(line, parse_constant=refuse)


def test_nothing_a_candidate_started_outlives_the_run(together: Finished, house: Harness) -> None:
    assert not house.candidates_processes()


def test_a_run_leaves_no_temporary_file_behind(together: Finished, house: Harness) -> None:
    assert not list(house.temporary.iterdir())


# --- sources that are hard to read


def test_a_syntax_error_is_named_by_its_line(hostile: Finished) -> None:
    found = hostile.results["syntax_error"]

    assert found["status"] == "LOAD_ERROR"
    line = (BAD / "good.py").read_text().count("\n") + 3
    assert f"syntax_error.py:{line}: SyntaxError" in found["reason"]


@pytest.mark.parametrize("name", ["nested_source", "null_byte"])
def test_a_source_that_python_cannot_parse_is_a_load_error(name: str, hostile: Finished) -> None:
    assert hostile.results[name]["status"] == "LOAD_ERROR"


def test_a_source_too_long_to_send_is_a_load_error_that_says_so(hostile: Finished) -> None:
    found = hostile.results["long_source"]

    assert found["status"] == "LOAD_ERROR"
    assert "2.1 MB" in found["reason"]


def test_a_docstring_in_another_encoding_is_no_fault(hostile: Finished) -> None:
    assert hostile.results["latin"]["status"] == "PASSED"


def test_a_cu_file_without_forward_is_a_build_error(hostile: Finished) -> None:
    found = hostile.results["no_forward"]

    assert found["status"] == "BUILD_ERROR"
    assert "torch::Tensor forward(...)" in found["reason"]


def test_hostile_candidates_do_no_harm_to_a_good_one(hostile: Finished) -> None:
    assert hostile.results["good"]["status"] == "PASSED"


# --- what the user is told


def test_the_command_that_reproduces_a_failure_reproduces_it(together: Finished, harness: Harness) -> None:
    python, _, *arguments = shlex.split(together.results["wrong_at_one_shape"]["reproduce"])
    finished = harness.run(*arguments)

    assert python == "python"
    assert finished.code == 1, finished.stderr
    assert "wrong_at_one_shape: WRONG_VALUES" in finished.stdout


# --- what the machine lacks


def test_without_a_compiler_the_command_says_what_to_install(harness: Harness, tmp_path: Path) -> None:
    finished = harness.run(*EMULATED, *kernels("good"), environment={"PATH": str(tmp_path), "CXX": ""})

    assert finished.code == 4, finished.stderr
    assert "apt-get install g++" in finished.stderr


def test_results_that_cannot_be_kept_are_a_clear_error(harness: Harness) -> None:
    harness.results.write_text("a file, where a folder should be")
    finished = harness.run(*EMULATED, *kernels("good"))

    assert finished.code == 4, finished.stderr
    assert str(harness.results) in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_leaderboard_that_cannot_be_written_is_shown_all_the_same(harness: Harness) -> None:
    harness.leaderboard("product").mkdir(parents=True)  # a folder, where a file should be
    finished = harness.run(*EMULATED, *kernels("good", "wrong_shape"))

    assert finished.code == 4, finished.stderr
    assert f"{harness.leaderboard('product')} cannot be written" in finished.stderr
    assert re.search(r"good +PASSED", finished.stdout)
    assert "has shape (48, 32)" in finished.stdout  # why the other failed


class Disk:
    """A file system of a megabyte, in memory."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def mount(self, *options: str) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join(["size=1m", *options]), "none", self.folder],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")

    def fill(self) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"." * 4096)
            except OSError:
                pass

    def unmount(self) -> None:
        subprocess.run(["umount", self.folder], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk")
    made.mount()
    yield made
    made.unmount()


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_disk_that_takes_nothing_is_a_clear_error_and_costs_nothing_already_there(
    how: str, disk: Disk, passed: tuple[Harness, Finished], tmp_path: Path
) -> None:
    harness = Harness(tmp_path, shutil.copytree(passed[0].results, disk.folder / "results"))
    board, records = harness.leaderboard("product").read_bytes(), harness.journal("product")
    if how == "full":
        (runs,) = harness.results.rglob("runs.jsonl")
        text = runs.read_bytes()  # what is left of its last page would take a short record
        runs.write_bytes(text[:-1] + b" " * (-len(text) % mmap.PAGESIZE) + b"\n")
        disk.fill()
    else:
        disk.mount("remount", "ro")
    finished = harness.run(*EMULATED, *kernels("good", "nan"))

    assert finished.code == 4, finished.stderr
    assert "No space left" in finished.stderr if how == "full" else "Read-only file system" in finished.stderr
    assert "product" in finished.stderr  # the place that is full
    assert "Traceback" not in finished.stderr
    assert harness.leaderboard("product").read_bytes() == board
    assert harness.journal("product") == records


# --- interruptions


def below(process: Process) -> list[psutil.Process]:
    """Every process that a command has started, directly or not."""
    return psutil.Process(process.pid).children(recursive=True)


def are_gone(processes: list[psutil.Process]) -> bool:
    # Equality of psutil's processes includes when they began: another one with the same number is not it.
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def status_of_row(harness: Harness, kernel: str) -> str | None:
    with harness.leaderboard("product").open() as file:
        return next((row["status"] for row in csv.DictReader(file) if row["kernel"] == kernel), None)


@dataclass(frozen=True)
class Ended:
    """A run that was ended from outside: how, what it had said, and the processes it had."""

    code: int
    stderr: str
    started: list[psutil.Process]
    harness: Harness


def ended_with(number: signal.Signals, folder: Path) -> Ended:
    """A run that had settled two candidates and would never have been done with another."""
    Emulated().prepare()  # a first run takes a minute more
    harness = Harness(folder, warm=False)
    process = harness.start(*EMULATED, *kernels("wrong_shape", "endless_import", "leaves_daemon"), "--jobs", "3")
    try:
        until(lambda: len(whole_lines(harness.runs("product"))) == 2, "two results were kept")
        started = below(process)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    return Ended(process.returncode, stderr, started, harness)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return ended_with(signal.SIGINT, tmp_path_factory.mktemp("interrupted"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return ended_with(signal.SIGKILL, tmp_path_factory.mktemp("killed"))


def test_ctrl_c_ends_with_130_and_a_sentence(interrupted: Ended) -> None:
    assert interrupted.code == 130, interrupted.stderr
    # The journal has a result a moment before the command counts it.
    told = r"Interrupted: [01] of 3 judged(, 1 passed the checks and was not timed)?\. The results so far are stored\."
    assert re.search(told, interrupted.stderr), interrupted.stderr
    assert "Traceback" not in interrupted.stderr


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_a_run_that_is_ended_leaves_no_process_behind(how: str, request: pytest.FixtureRequest) -> None:
    ended: Ended = request.getfixturevalue(how)

    assert len(ended.started) >= 4  # the template, two workers, what one of them started
    until(lambda: are_gone(ended.started) and not ended.harness.candidates_processes(), "every process was gone", 5)


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_a_run_that_is_ended_leaves_a_readable_journal(how: str, request: pytest.FixtureRequest) -> None:
    kept = request.getfixturevalue(how).harness.journal("product")

    assert {record["kernel"] for record in kept} >= {"wrong_shape", "leaves_daemon"}


def test_ctrl_c_keeps_the_results_so_far(interrupted: Ended) -> None:
    assert status_of_row(interrupted.harness, "wrong_shape") == "WRONG_SHAPE"


def test_ctrl_c_while_timing_keeps_the_checks(harness: Harness) -> None:
    Emulated().prepare()
    process = harness.start(*EMULATED[:4], *kernels("good"), "--rounds", "1000000", "-v")
    try:
        assert any("timing round 2" in line for line in process.stderr), "a round was timed"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 130, stderr
    assert status_of_row(harness, "good") == "PASSED"


def test_ctrl_c_ends_the_first_run_s_compilers(harness: Harness, own_cache: Path) -> None:
    """Sent to the process alone, not, as a terminal does, to all that it has started."""
    process = harness.start(*EMULATED, *kernels("good"))
    try:
        until(lambda: len({p.info["cwd"] for p in standing_in(own_cache)}) == 3, "all that is shared was under way")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert not standing_in(own_cache)
    built = [path for path in own_cache.rglob("manifest.json") if "problems" not in path.parts]
    assert not built  # Ctrl-C ended each of the builds
