"""The record of a result and the file that keeps it: one writer, one parser, appends that are whole or absent."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import resource
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import ROOT
from support.models import never
from support.product import PROBLEM

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.verify import Check, verify
from kernel_harness.checking.wrong_elements import ErrorMap, Mismatch
from kernel_harness.core.precision import Precision, Tolerance
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results import environment
from kernel_harness.results.journal import Journal, Unwritable
from kernel_harness.results.measurement import FurtherShape, Measurement
from kernel_harness.results.record import (
    Build,
    Kind,
    NotARecord,
    Result,
    RunSettings,
    from_line,
    interrupted,
    to_line,
)
from kernel_harness.session.settings import Settings
from kernel_harness.session.summary import RunFacts, of_trial
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import RejectedSample, Timing
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.faults import Fault

TIMING = Timing((1.0, 3.0), (RejectedSample(9.0, "busy"),), Interval(1.5, 2.0, 2.5), Interval(0.9, 1.0, 1.1))


def result(kernel: str = "k", status: Status = Status.PASSED, **more: object) -> Result:
    reason = "" if status is Status.PASSED else "why"
    return Result(kernel, status, reason, {"M": 4}, "ab" * 32, **more)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- a result


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASSED])
def test_only_a_passed_result_can_have_a_time(status):
    with pytest.raises(ValueError):
        result(status=status, timing=TIMING)


def test_its_absolute_error_is_that_of_the_problem_s_own_inputs():
    own = {"distribution": "own", "shape": {"M": 4}}
    checks = (
        Check("M=4:normal", Status.PASSED, 2.0, shape={"M": 4}, distribution="normal"),
        Check("M=1:own", Status.PASSED, 3.0, shape={"M": 1}, distribution="own"),
        Check("M=4:own", Status.PASSED, 0.5, **own),
        Check("M=4:own repeated", Status.PASSED, 4.0, **own),
    )
    assert result(checks=checks).max_abs_error == 0.5


def test_the_error_of_a_failed_result_is_that_of_the_failed_check() -> None:
    passed = Check("M=4:own", Status.PASSED, 0.5, shape={"M": 4}, distribution="own")
    failed = Check("M=5:own", Status.WRONG_VALUES, 7.0, shape={"M": 5}, distribution="own")
    wrong = replace(result(checks=(passed, failed)), status=Status.WRONG_VALUES, timing=None)
    assert wrong.max_abs_error == 7.0
    assert replace(wrong, checks=(passed,), status=Status.TIMEOUT).max_abs_error is None


def test_its_relative_error_is_the_worst_of_all_cases():
    checks = tuple(Check("M=4:own", Status.PASSED, relative_error=error) for error in (1e-7, 3e-6, None))
    assert result(checks=checks).relative_error == 3e-6


def test_its_precision_is_the_coarsest_that_any_check_showed():
    precisions = (None, Precision.FLOAT32, Precision.TF32, Precision.FLOAT32)
    checks = tuple(Check(str(i), Status.PASSED, precision=p) for i, p in enumerate(precisions))
    assert result(checks=checks).precision == "tf32"
    assert result(checks=checks[:1]).precision is None


def test_a_run_keeps_each_wrong_answer_in_a_few_kilobytes():
    cases = plan(PROBLEM, 0)
    reference = Reference(PROBLEM, "cpu", None)
    expectation = reference.expectation(cases[0])[1]
    facts = RunFacts(PROBLEM, Emulated(), Settings(), cases, {"device": "a machine"}, "process")

    def judged(number: int) -> Result:
        outputs = [e.clone() for e in expectation.expected]
        outputs[0][:, -16:] = number
        check = verify(outputs, expectation)
        trial = Trial(Candidate(f"c{number}", Path(f"c{number}.py"), str(number)), never, reference, cases)
        trial.checks.append(check)
        trial.failed_case = cases[0]
        trial.fail(Fault(Status.WRONG_VALUES, check.detail))
        return of_trial(facts, trial)

    kept = [judged(0)]
    tracemalloc.start()
    kept += [judged(1 + i) for i in range(50)]
    gc.collect()  # otherwise garbage in cycles counts, at times
    added, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Between 4190 and 4570: objects that reuse memory from Python's free lists are not counted.
    assert added / 50 < 6000


# --------------------------------------------------------------------------------------------- a line


def full() -> Result:
    """A result with a value in every field."""
    mismatch = Mismatch((3, 2), math.inf, 1.25)
    explained = Check(
        "M=4:own", Status.WRONG_VALUES, 1.0, 1e-3, (mismatch,), "why", Precision.TF32, "try this",
        ErrorMap((4, 6), 4, 6, ((0.0, 1.0),)), {"M": 4}, "own",
    )  # fmt: skip
    measured = Measurement(
        (None, 1.0), (2.0, None), (3.0, None), (None, "busy"), (("a", "torch"), ("torch",)),
        ({"load": 1.5},), 2, True, True, 7, Interval(None, 1.0, None), 0.01, (1.0,), 0.5, 0.25, "no graph", 4096,
        ("own", "normal"), (70.5, 71.0), 0.5,
    )  # fmt: skip
    further = FurtherShape({"M": 8}, TIMING, "", measured, TIMING, {"flops": 2e9})
    remark = Remark(RemarkKind.SANITIZER, "a remark", 7, "try it")
    chosen = RunSettings(
        7, "torch.compile", 2.0, 8, True, Precision.TF32, Tolerance(1e-4, 1e-3), {"call_s": 60.0}, ("M=4:own",), 3, 90.0
    )
    return result(
        kind=Kind.BASELINE, title="an idea", run="a run", measured_at="now", emulated=True, isolation="process",
        checks=(explained,), timing=TIMING, as_called=TIMING, measurement=measured,
        further=(further, FurtherShape({"M": 9}, untimed="why")), restricted_to=("M=4",),
        phases_s={"build": 2.0}, builds=(Build("a", 1.5, True),), first_call_ms=80.0, log="a log", printed="n is 5\n",
        remarks=(remark,), reproduce="a command",
        lacked_memory=True, numbers={"flops": 1e9},
        environment={"device": "a GPU", "capability": [9, 0]}, settings=chosen,
    )  # fmt: skip


def test_a_line_is_read_as_the_result_that_was_written():
    assert from_line(to_line(full())) == full()
    assert from_line(to_line(result())) == replace(result(), measured_at=from_line(to_line(result())).measured_at)


def test_an_interim_result_is_told_by_its_flag_and_by_no_text():
    final = replace(result(), verdict="The kernel passed its checks; the run ended before the kernel was timed.")
    interim = from_line(to_line(replace(final, interim=True, verdict="")))
    assert interim.interim and interrupted([interim])
    assert not interrupted([final]) and not interrupted([interim, final])


def test_an_interim_result_has_no_time():
    with pytest.raises(ValueError, match="interim result of k cannot have a time"):
        result("k", timing=TIMING, interim=True)


def test_no_field_of_the_full_result_has_its_default():
    """Otherwise the test above would not notice a field that is not written or not read."""
    values = [*vars(full()).items(), *vars(full().measurement).items(), *vars(full().settings).items()]
    assert [
        name for name, value in values if value in (None, "", 0, (), {}) and name not in ("verdict", "interim")
    ] == []


def test_a_line_holds_no_derived_figure_and_the_schema_s_version():
    line = json.loads(to_line(full()))
    assert line["schema_version"] == Result.schema_version == 5
    assert {"precision", "max_abs_error", "relative_error"}.isdisjoint(line)
    assert set(line["timing"]) == {"samples_ms", "rejected", "time", "speedup", "verified"}


def test_a_line_is_json_even_where_a_number_is_not_finite():
    check = Check("a", Status.WRONG_VALUES, float("nan"), float("inf"))
    written = to_line(result(status=Status.WRONG_VALUES, checks=(check,)))
    assert "NaN" not in written and "Infinity" not in written
    (read,) = from_line(written).checks
    assert math.isnan(read.max_abs_error) and read.relative_error == math.inf


def test_a_line_keeps_the_beginning_of_a_long_log():
    assert len(from_line(to_line(result(log="x" * 100_000))).log) == 20_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema_version": 3}, "schema version 5"),
        ({"kernel": 3}, "kernel: not of type str"),
        ({"status": "FINE"}, "status: 'FINE' is not a valid Status"),
        ({"unknown": 1}, "missing or unknown fields: unknown"),
        ({"shape": {"M": "4"}}, "shape: not of type int"),
        ({"checks": [{"case": "a"}]}, "checks: Check has missing or unknown fields: status"),
        ({"measurement": {"orders": [[1]]}}, "measurement: Measurement.orders: not of type str"),
        ({"status": "CRASHED"}, "CRASHED and cannot have a time"),
        ({"phases_s": [1.0]}, "phases_s: not of type dict"),
        ({"first_call_ms": "fast"}, "first_call_ms: not a number"),
        ({"timing": [1.0]}, "timing: not of type dict"),
        ({"builds": {}}, "builds: not of type list"),
    ],
)
def test_a_line_of_another_schema_is_refused_with_the_reason(change, reason):
    line = json.loads(to_line(full()))
    with pytest.raises(NotARecord, match=re.escape(reason)):
        from_line(json.dumps({**line, **change}))


def test_a_field_with_a_default_may_be_missing():
    line = json.loads(to_line(full()))
    del line["remarks"]
    assert from_line(json.dumps(line)) == replace(full(), remarks=())


# ------------------------------------------------------------------------------------------ the journal


def test_what_was_appended_is_read_in_its_order(tmp_path):
    journal = Journal(tmp_path)
    for name in ("a", "b", "a"):
        journal.append(result(name))
    assert [record.kernel for record in journal.read()] == ["a", "b", "a"]


def test_a_journal_that_does_not_exist_is_empty(tmp_path):
    assert Journal(tmp_path / "nowhere").read() == []


def test_a_line_cut_short_loses_no_other_line(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result("whole"))
    with journal.path.open("a") as file:
        file.write('{"schema_version": 1, "kernel": "cut')
    journal.append(result("after"))
    assert [record.kernel for record in journal.read()] == ["whole", "after"]


@pytest.mark.parametrize("at", ["start", "middle", "end"])
@pytest.mark.parametrize(
    "rubbish",
    ["no json", "[1, 2]", "3", "\x00\x00", '{"kernel": "k"}', '{"schema_version": 99}', '{"schema_version": 5}'],
)
def test_a_line_that_is_no_record_is_skipped_and_counted(tmp_path, caplog, at, rubbish):
    journal = Journal(tmp_path)
    journal.append(result("a"))
    journal.append(result("b"))
    lines = journal.path.read_text().split("\n")
    lines.insert({"start": 0, "middle": 1, "end": 2}[at], rubbish)
    journal.path.write_text("\n".join(lines))
    assert [record.kernel for record in journal.read()] == ["a", "b"]
    (warning,) = caplog.messages
    assert f"{journal.path}: skipped 1 of 3 lines: 1 " in warning


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status.PASSED, "Remark: a library does the work. Sanitizer: a race. Not timed."),
        (Status.CRASHED, "Not timed.\nRemark: a library does the work.\nSanitizer: a race."),
    ],
)
def test_the_reason_has_the_verdict_and_the_remarks(status, reason):
    said = (Remark(RemarkKind.LIBRARY, "a library does the work."), Remark(RemarkKind.SANITIZER, "a race."))
    judged = replace(result(status=status), verdict="Not timed.", remarks=said)
    assert judged.reason == json.loads(to_line(judged))["reason"] == reason


def test_one_warning_says_how_many_lines_are_skipped_and_why(tmp_path, caplog):
    journal = Journal(tmp_path)
    journal.append(result("a"))
    old = to_line(result("old")).replace('"schema_version": 5', '"schema_version": 3')
    with journal.path.open("a") as file:
        file.write(f"{old}\n{old}\nno json\n\n")
    journal.read()
    Journal(tmp_path).read()
    reasons = "2 not of schema version 5; 1 cut short, or not JSON"
    assert caplog.messages == [f"{journal.path}: skipped 3 of 4 lines: {reasons}"]


def test_bytes_that_are_no_text_are_skipped(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result("a"))
    journal.path.write_bytes(b"\xff\xfe\n" + journal.path.read_bytes())
    assert [record.kernel for record in journal.read()] == ["a"]


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result("a\u2028b\nc"))
    assert [record.kernel for record in journal.read()] == ["a\u2028b\nc"]


APPENDS = """
import sys
from pathlib import Path
from kernel_harness.results.journal import Journal
from kernel_harness.results.record import Result
from kernel_harness.core.status import Status

print("ready", flush=True)
sys.stdin.readline()
for i in range(20):
    # Longer than any buffer that would make a single write of it.
    Journal(Path(sys.argv[1])).append(Result(f"{sys.argv[2]}-{i}", Status.PASSED, "x" * 100_000, {}, ""))
"""


@pytest.mark.slow
def test_processes_that_append_at_once_lose_and_mix_nothing(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
    writers = [
        subprocess.Popen([sys.executable, "-c", APPENDS, str(tmp_path), name], text=True, **pipes) for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin
        print(file=writer.stdin, flush=True)
    assert [writer.wait() for writer in writers] == [0, 0]
    for writer in writers:
        writer.communicate()
    kernels = [record.kernel for record in Journal(tmp_path).read()]
    assert sorted(kernels) == sorted(f"{name}-{i}" for name in "ab" for i in range(20))
    assert [k for k in kernels if k.startswith("a")] == [f"a-{i}" for i in range(20)]


def test_a_folder_that_cannot_be_made_is_an_error_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match=r"runs\.jsonl"):
        Journal(tmp_path / "file" / "folder").check_writable()


def test_a_log_that_does_not_fit_on_the_disk_leaves_the_old_one(tmp_path):
    journal = Journal(tmp_path)
    path = journal.keep_log(result(log="old"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(Unwritable, match=r"k\.log cannot be written"):
            journal.keep_log(result(log="new" * 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path is not None and path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_check_writable_changes_nothing(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result())
    before = journal.path.read_bytes()
    journal.check_writable()
    assert journal.path.read_bytes() == before


def test_a_line_that_does_not_fit_on_the_disk_is_removed_and_the_rest_stays(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result("a"))
    before = journal.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel ends a write at the limit as it does at a full disk; Python ignores the signal that goes with it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(Unwritable, match=r"runs\.jsonl"):
            journal.append(result("b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal.path.read_bytes() == before
    journal.append(result("c"))
    assert [record.kernel for record in journal.read()] == ["a", "c"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git checkout of a harness whose one module is the module under test, which runs from there."""
    file = tmp_path / "kernel_harness" / "results" / "environment.py"
    monkeypatch.setattr(environment, "__file__", str(file))
    for each in (file, tmp_path / "results" / "tracked"):
        each.parent.mkdir(parents=True)
        each.touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


def test_a_checkout_with_new_results_is_not_dirty(checkout: Path) -> None:
    (checkout / "results" / "tracked").write_text("changed")
    (checkout / "results" / "new").touch()
    assert environment.environment()["dirty"] is False
    (checkout / "kernel_harness" / "new").touch()
    assert environment.environment()["dirty"] is True


def test_the_checkout_of_another_project_is_not_stored(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = checkout / ".venv" / "environment.py"
    installed.parent.mkdir()
    installed.touch()
    monkeypatch.setattr(environment, "__file__", str(installed))
    assert {"commit", "dirty"}.isdisjoint(environment.environment())
