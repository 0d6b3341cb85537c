"""Rounds that were measured when a run was killed are results of it, whoever reads them next; nobody else's are."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Harness, rounds_in, until

from kernel_harness import problem as problems
from kernel_harness import underway
from kernel_harness.candidate import Candidate
from kernel_harness.cohort import Arm, Cohort
from kernel_harness.device.cpu import Emulated
from kernel_harness.evidence import Evidence
from kernel_harness.examine import Fault
from kernel_harness.judge import Nobody, Session
from kernel_harness.results import Journal, Result, now, to_json
from kernel_harness.settings import Settings
from kernel_harness.status import Status
from kernel_harness.summary import Terms
from kernel_harness.timing import Round, as_rounds, summarize
from kernel_harness.underway import UnderWay

HERE = ROOT / "tests" / "candidates"
PROBLEM = HERE / "problem" / "product.py"
GOOD = (HERE / "bad" / "good.py").read_text()
# A cohort of the slow takes long enough to be met in the middle.
SLOW = GOOD.replace("return ", "__import__('time').sleep(0.02); return ")

Record = dict[str, Any]


def kernels(folder: Path, **sources: str) -> list[str | Path]:
    """Kernel files, as arguments of the command."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return [word for name in sources for word in ("--kernel", folder / f"{name}.py")]


def timed(records: list[Record], run: str) -> dict[str, list[Record]]:
    """Those of a run's results that have a time, by kernel."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record["run"] == run and record["timing"]:
            found.setdefault(record["kernel"], []).append(record)
    return found


@contextmanager
def running(harness: Harness, *arguments: str | Path, rounds: int, cohort: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A run, met when so many rounds of a cohort are on the disk; killed at the end, if not before."""
    process = harness.start("--problem", PROBLEM, "--device", "cpu", *arguments)
    seen: set[Path] = set()

    def reached() -> bool:
        assert process.poll() is None, process.communicate()[1]
        seen.update(harness.under_way())
        return len(seen) == cohort and any(len(rounds_in(path)) >= rounds for path in harness.under_way())

    try:
        until(reached, f"{rounds} rounds of cohort {cohort} were on the disk", 240)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run that was killed after ten rounds or more, as it left them."""
    folder = tmp_path_factory.mktemp("killed")
    harness = Harness(folder)
    with running(harness, *kernels(folder, good=GOOD, slow=SLOW), "--rounds", "100000", rounds=10) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    return harness.results


@pytest.fixture
def left(killed: Path, tmp_path: Path) -> Harness:
    """The command, where that run was."""
    return Harness(tmp_path, Path(shutil.copytree(killed, tmp_path / "results")))


def listed(harness: Harness) -> str:
    """What `list` says on stderr."""
    finished = harness.run("list", "--problem", PROBLEM)
    assert finished.code == 0, finished.stderr
    assert "Traceback" not in finished.stderr
    return finished.stderr


# --------------------------------------------------------------------------------------- what was killed


def test_whoever_reads_next_has_every_round_that_was_finished(left: Harness) -> None:
    rounds = rounds_in(*left.under_way())
    run = left.journal("product")[-1]["run"]
    assert not timed(left.journal("product"), run)

    said = listed(left)

    assert said == f"Kept {len(rounds)} rounds of run {run}, which was cut short while it timed good, slow.\n" or (
        said == f"Kept {len(rounds)} rounds of run {run}, which was cut short while it timed slow, good.\n"
    )
    found = timed(left.journal("product"), run)
    assert set(found) == {"good", "slow", "torch"}
    for name, (record,) in found.items():
        assert record["settings"]["own_clock_ms"] == [r["samples_ms"][name] for r in rounds]
        assert record["settings"]["orders"] == [r["order"] for r in rounds]
        assert len(record["settings"]["warmup_ms"]) >= 2
        samples = [*record["timing"]["samples_ms"], *(r["sample_ms"] for r in record["timing"]["rejected"])]
        assert sorted(samples) == sorted(r["samples_ms"][name] for r in rounds)
        assert record["timing"]["time_ms_low"] <= record["timing"]["time_ms"] <= record["timing"]["time_ms_high"]
    assert found["slow"][0]["timing"]["speedup"]["estimate"] < 1
    assert f"cut short when it had timed {len(rounds)} rounds" in found["good"][0]["reason"]
    assert len(found["good"][0]["checks"]) > 1


def test_it_is_taken_in_once(left: Harness) -> None:
    assert "Kept" in listed(left)
    records = left.journal("product")
    assert left.under_way() == []
    assert listed(left) == ""
    assert left.journal("product") == records


def test_the_next_run_has_it_on_its_leaderboard(left: Harness, tmp_path: Path) -> None:
    another = kernels(tmp_path, another=GOOD)
    finished = left.run("--problem", PROBLEM, "--device", "cpu", "--rounds", "1", *another)

    assert "cut short while it timed" in finished.stderr
    assert re.search(r"slow +PASSED +\d", finished.stdout)
    with left.leaderboard("product").open() as file:
        rows = {row["kernel"]: row for row in csv.DictReader(file)}
    assert float(rows["slow"]["time_ms"]) > 0
    assert ["cut short" in rows[name]["reason"] for name in ("slow", "another")] == [True, False]


def test_a_report_shows_it(left: Harness) -> None:
    finished = left.run("report", str(PROBLEM))

    assert finished.code == 0 and "cut short while it timed" in finished.stderr
    assert "cut short when it had timed" in Path(finished.stdout.strip()).read_text()


def test_a_line_cut_short_costs_itself_only(left: Harness) -> None:
    (path,) = left.under_way()
    count = len(rounds_in(path))
    path.write_bytes(path.read_bytes()[:-20])
    assert f"Kept {count - 1} rounds" in listed(left)


def test_a_file_of_another_version_stays_and_the_results_can_be_read(left: Harness) -> None:
    (path,) = left.under_way()
    header, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(header), "format": 0}) + "\n" + rest)
    before, records = path.read_bytes(), left.journal("product")

    said = listed(left)

    assert path.name in said and "another version" in said
    assert (path.read_bytes(), left.journal("product")) == (before, records)


@pytest.mark.parametrize("beginning", [b"\x00" * 50, b'{"format": 1, "ar', b'{"format": 1}\n', b"[]\n"])
def test_a_file_whose_beginning_is_lost_stays_and_is_named(beginning: bytes, left: Harness) -> None:
    (path,) = left.under_way()
    path.write_bytes(beginning)
    assert path.name in listed(left)
    assert path.read_bytes() == beginning


def test_results_that_cannot_be_written_show_it_all_the_same(left: Harness) -> None:
    (path,) = left.under_way()
    journal = Journal(path.parent)
    before = journal.path.read_bytes()
    with longest_file(len(before) + 100):
        run = underway.read(journal)[-1]["run"]
        assert set(timed(underway.read(journal), run)) == {"good", "slow", "torch"}
    assert path.exists() and journal.path.read_bytes() == before
    assert set(timed(underway.read(journal), run)) == {"good", "slow", "torch"}
    assert not path.exists()


@contextmanager
def longest_file(size: int) -> Iterator[None]:
    """The kernel ends a write at the limit as it does at a full disk; Python ignores the signal that goes with it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# -------------------------------------------------------------------------------------- what still lives


def test_nobody_takes_in_what_a_living_run_is_timing(harness: Harness, tmp_path: Path) -> None:
    with running(harness, *kernels(tmp_path, good=GOOD), "--rounds", "100000", rounds=3) as process:
        (path,) = harness.under_way()
        assert listed(harness) == ""
        other = harness.run("--problem", PROBLEM, "--device", "cpu", "--rounds", "1", *kernels(tmp_path, another=GOOD))
        assert (other.code, other.stderr) == (0, "")
        assert harness.under_way() == [path]
        process.kill()
        process.wait()
        assert "while it timed good." in listed(harness)


def test_a_run_that_is_interrupted_leaves_no_file(harness: Harness, tmp_path: Path) -> None:
    with running(harness, *kernels(tmp_path, good=GOOD), "--rounds", "100000", rounds=3) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert harness.under_way() == []
    (record,) = timed(harness.journal("product"), harness.journal("product")[-1]["run"])["good"]
    assert len(record["timing"]["samples_ms"]) >= 3 and "cut short" not in record["reason"]


def test_a_watch_that_is_killed_loses_no_round_of_what_it_was_timing(harness: Harness, tmp_path: Path) -> None:
    good = kernels(tmp_path, good=GOOD)
    process = harness.start("--problem", PROBLEM, "--device", "cpu", *good, "--rounds", "40", "--watch")
    try:
        assert process.stdout
        assert any("watching" in line for line in process.stdout)
        assert harness.under_way() == []
        kernels(tmp_path, good=SLOW.replace("0.02", "0.2"))
        until(lambda: any(len(rounds_in(path)) >= 3 for path in harness.under_way()), "what was saved was being timed")
    finally:
        process.kill()
        process.communicate()
    count = len(rounds_in(*harness.under_way()))
    assert f"Kept {count} rounds" in listed(harness)
    runs = dict.fromkeys(record["run"] for record in harness.journal("product"))
    whole, cut = (timed(harness.journal("product"), run)["good"][0] for run in runs)
    assert [len(record["settings"]["orders"]) for record in (whole, cut)] == [40, count]


# ---------------------------------------------------------------------------------------- several cohorts


def test_of_several_cohorts_the_last_is_on_the_scale_of_the_first(harness: Harness, tmp_path: Path) -> None:
    """With a kernel as the baseline, which runs with each and is reported with the first."""
    sources = {"base": SLOW, **{f"k{i}": GOOD for i in range(8)}}
    arguments = (*kernels(tmp_path, **sources), "--rounds", "32", "--baseline", "base", "--quick")
    with running(harness, *arguments, rounds=8, cohort=2) as process:
        process.kill()
        process.wait()
        whole = timed(harness.journal("product"), harness.journal("product")[-1]["run"])
        count = len(rounds_in(*harness.under_way()))
        said = listed(harness)
    records = timed(harness.journal("product"), harness.journal("product")[-1]["run"])

    assert len(whole) == 6 and {"base", "torch"} < set(whole)
    assert said.count("Kept") == 1 and f"Kept {count} rounds" in said and "base" not in said
    assert {name: len(found) for name, found in records.items()} == dict.fromkeys(sources, 1) | {"torch": 2}
    first, second = (record["timing"] for record in records["torch"])
    scale_ms = summarize(as_rounds({"torch": first["samples_ms"]}), "torch", None).time_ms
    assert second["time_ms"] == pytest.approx(scale_ms)
    for name in set(records) - set(whole):
        (record,) = records[name]
        assert record["settings"]["baseline"] == "base" and record["timing"]["speedup"]
        assert len(record["settings"]["orders"]) == count


# --------------------------------------------------------------------------- what a run would have written

FAILS = """
import torch

class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, A, B):
        ModelNew.calls += A.shape == (256, 32)
        if ModelNew.calls == 16:
            raise RuntimeError("tired")
        return torch.matmul(A.T, B.T)
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    problem, settings = problems.load("product", PROBLEM), Settings(rounds=24, quick=True)
    with Session(problem, Emulated(), settings, Nobody(), journal=Journal(tmp_path)) as made:
        yield made


CANDIDATES = [Candidate(name, Path(f"{name}.py"), text) for name, text in (("good", GOOD), ("fails", FAILS))]


def test_it_is_what_the_run_would_have_written(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnderWay, "done", lambda self: None)
    assert session.journal
    begun = now()
    written = {r.kernel: json.loads(json.dumps(to_json(r, ""))) for r in session.judge(CANDIDATES, lambda result: None)}
    found = {record["kernel"]: record for record in underway.read(session.journal)}

    assert (found["fails"]["status"], found["good"]["status"]) == ("RUNTIME_ERROR", "PASSED")
    assert "tired" in found["fails"]["reason"] and len(found["fails"]["settings"]["orders"]) == 24
    assert set(found) == set(written) == {"good", "fails", "torch"}
    for name, record in found.items():
        theirs = written[name]
        assert record.pop("measured_at") >= begun
        assert record["phases_s"].pop("timing", 1) > 0
        theirs.pop("measured_at"), theirs["phases_s"].pop("timing", None)
        cut = record["reason"].removeprefix(theirs.pop("reason")).strip()
        beginning, _, unknown = cut.partition("; ")
        assert beginning == "The run was cut short when it had timed 24 rounds" * (name == "good")
        assert unknown == "who may have disturbed the others had not been looked for." * (name == "good")
        del record["reason"]
        assert record == theirs


def test_once_all_is_written_there_is_no_file(session: Session) -> None:
    assert session.journal
    session.judge(CANDIDATES, session.journal.append)
    assert list(session.journal.path.parent.iterdir()) == [session.journal.path]


def test_what_the_run_had_come_to_write_itself_is_not_written_again(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be killed between writing its results and removing the file."""
    monkeypatch.setattr(UnderWay, "done", lambda self: None)
    assert session.journal
    session.judge(CANDIDATES, lambda result: None if result.kernel == "torch" else session.journal.append(result))
    written = session.journal.read()
    read = underway.read(session.journal)

    assert [record["kernel"] for record in read[len(written) :]] == ["torch"]
    assert underway.read(session.journal) == read == session.journal.read()
    assert caplog.text.count("Kept") == 1


def test_what_a_gpu_tells_beside_the_rounds_is_kept_too(tmp_path: Path) -> None:
    """Values as they come of one: the emulation has no such clocks."""
    journal = Journal(tmp_path)
    cohort = Cohort([Arm("k", None), Arm("torch", None, trusted=True)], Emulated())  # type: ignore[arg-type]
    results = [Result(name, Status.PASSED, "", {}, "", kind, settings={"baseline": "torch"}, run="r")
               for name, kind in (("k", "candidate"), ("torch", "baseline"))]  # fmt: skip
    noted = UnderWay(journal, cohort, results, Terms(None, {"3 bytes": 0.5}))
    for i in range(10):
        order = ("k", "torch") if i % 2 else ("torch", "k")
        times = {"k": 0.25 if i > 3 else 1.0, "torch": 2.0}
        reason = "the launch gap of k was not hidden" if i == 2 else None
        cohort.rounds.append(Round(times, order, reason, {name: ms + 0.1 for name, ms in times.items()}))
        cohort.states.append({"clock": i})
        if i % 4 == 0:
            cohort.warm_ms.setdefault("k", []).append(0.1 * i)
        cohort.peak_bytes["k"], cohort.hold.cycles, cohort.audits = i, 1 << i, 2 * i
        noted.note()
    cohort.hold.waiting.add("k")
    cohort.processes["k"] = 5
    cohort.trials["k"] = [Evidence((2.0,), (3.0,))]
    cohort.steady["k"] = "it cannot be captured as a graph: no"
    noted.note()
    del noted
    k, torch = underway.read(journal)

    assert (k["status"], torch["status"]) == ("CHEATED", "PASSED")
    assert "0.25 ms is less than the 0.5 ms that the 3 bytes" in k["reason"]
    assert k["settings"]["rejected"] == {"2": "the launch gap of k was not hidden"}
    assert [r["sample_ms"] for r in torch["timing"]["rejected"]] == [2.0]
    assert k["settings"]["brackets_ms"] == [1.1] * 4 + [0.35] * 6
    assert k["settings"]["device_states"] == [{"clock": i} for i in range(10)]
    assert (k["settings"]["hold_cycles"], k["settings"]["waits_for_the_device"]) == (512, True)
    assert (k["settings"]["audits"], k["information"]["peak_bytes"]) == (18, 9)
    assert k["information"]["warm_samples_ms"] == [0.0, 0.4, 0.8]
    assert k["information"]["graph"].startswith("it cannot be captured")
    assert (k["settings"]["processes"], torch["settings"]["processes"]) == (5, 1)
    assert k["information"]["suspected"] == [{"beside_ms": [2.0], "without_ms": [3.0], "convicted": False}]


def test_a_disk_that_is_full_for_a_while_costs_nothing_once_it_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    cohort = Cohort([Arm("k", None), Arm("torch", None, trusted=True)], Emulated())  # type: ignore[arg-type]
    result = Result("k", Status.PASSED, "", {}, "", settings={"baseline": "torch"}, run="r")
    noted = UnderWay(journal, cohort, [result], Terms(None, {}))
    (path,) = tmp_path.iterdir()
    cohort.rounds.append(Round({"k": 1.0}, ("k",)))
    noted.note()
    whole = path.read_bytes()
    with longest_file(len(whole) + 30):
        for ms in (2.0, 3.0):
            cohort.rounds.append(Round({"k": ms}, ("k",)))
            noted.note()
        assert path.read_bytes() == whole
    assert len(caplog.records) == 1 and "lost if the run is killed" in caplog.text
    cohort.arms[0].fault = Fault(Status.TIMEOUT, "too late", "a log")
    noted.note()
    del noted
    (record,) = underway.read(journal)

    assert record["settings"]["own_clock_ms"] == [1.0, 2.0, 3.0]
    assert (record["status"], record["reason"], record["log"]) == ("TIMEOUT", "too late", "a log")


def test_two_that_read_at_once_take_it_in_once(left: Harness) -> None:
    (path,) = left.under_way()
    reads = "import sys; from pathlib import Path; from kernel_harness import underway\n"
    reads += "from kernel_harness.results import Journal\n"
    reads += "import torch; print(flush=True); input(); underway.read(Journal(Path(sys.argv[1])))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", reads, path.parent], env=environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]  # fmt: skip
    for reader in readers:
        assert reader.stdout and reader.stdout.readline() == "\n"
    for reader in readers:
        assert reader.stdin
        print(file=reader.stdin, flush=True)
    said = [reader.communicate()[1] for reader in readers]

    assert "".join(said).count("Kept") == 1, said
    run = left.journal("product")[-1]["run"]
    assert {name: len(found) for name, found in timed(left.journal("product"), run).items()} == {
        "good": 1, "slow": 1, "torch": 1,
    }  # fmt: skip
