"""The record of runs: appended whole or not at all, by many at once, and readable whatever was cut short."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from kernel_harness import problem as problems
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Reference, plan
from kernel_harness.device.cpu import Emulated
from kernel_harness.examine import Finding
from kernel_harness.precision import Precision
from kernel_harness.results import SCHEMA_VERSION, Journal, Result, Unwritable, to_json
from kernel_harness.settings import Settings
from kernel_harness.status import Status
from kernel_harness.summary import Context, of_candidate
from kernel_harness.timing import Interval, RejectedSample, Timing
from kernel_harness.verify import Check, verify

ROOT = Path(__file__).resolve().parent.parent
TIMING = Timing((1.0, 3.0), (RejectedSample(9.0, "busy"),), Interval(1.5, 2.0, 2.5), Interval(0.9, 1.0, 1.1))


def result(kernel: str = "k", status: Status = Status.PASSED, **more: object) -> Result:
    reason = "" if status is Status.PASSED else "why"
    return Result(kernel, status, reason, {"M": 4}, "ab" * 32, **more)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- a result


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASSED])
def test_only_what_passed_can_have_a_time(status):
    with pytest.raises(ValueError):
        result(status=status, timing=TIMING)


def test_its_absolute_error_is_that_of_the_problem_s_own_inputs():
    checks = (Check("M=4:normal", Status.PASSED, 2.0), Check("M=4:own", Status.PASSED, 0.5))
    assert result(checks=checks).max_abs_error == 0.5


def test_its_relative_error_is_the_worst_of_all_cases():
    checks = tuple(Check("M=4:own", Status.PASSED, relative_error=error) for error in (1e-7, 3e-6, None))
    assert result(checks=checks).relative_error == 3e-6


def test_its_precision_is_the_coarsest_that_any_check_showed():
    precisions = (None, Precision.FLOAT32, Precision.TF32, Precision.FLOAT32)
    checks = tuple(Check(str(i), Status.PASSED, precision=p) for i, p in enumerate(precisions))
    assert result(checks=checks).precision == "tf32"
    assert result(checks=checks[:1]).precision == ""


def test_a_wrong_answer_adds_few_kilobytes_to_a_run_that_keeps_them_all():
    problem = problems.load("product", ROOT / "tests" / "candidates" / "problem" / "product.py")
    cases = plan(problem, 0)
    expectation = Reference(problem, "cpu", None).expectation(cases[0])[1]
    context = Context(problem, Emulated(), Settings(), cases, {"device": "a machine"}, "process")

    def judged(number: int) -> Result:
        outputs = [e.clone() for e in expectation.expected]
        outputs[0][:, -16:] = number
        check = verify(outputs, expectation)
        finding = Finding(Status.WRONG_VALUES, check.detail, checks=[check], failed_case=cases[0])
        return of_candidate(context, Candidate(f"c{number}", Path(f"c{number}.py"), str(number)), finding)

    kept = [judged(0)]
    tracemalloc.start()
    kept += [judged(1 + i) for i in range(50)]
    added, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert added / 50 < 4500


def test_a_line_holds_every_sample_and_its_interval():
    line = to_json(result(timing=TIMING), "now")
    assert line["timing"]["samples_ms"] == [1.0, 3.0]
    assert line["timing"]["rejected"] == [{"sample_ms": 9.0, "reason": "busy"}]
    assert (line["timing"]["time_ms_low"], line["timing"]["time_ms"], line["timing"]["time_ms_high"]) == (1.5, 2.0, 2.5)
    assert line["timing"]["speedup"] == {"low": 0.9, "estimate": 1.0, "high": 1.1}
    assert (line["schema_version"], line["measured_at"]) == (SCHEMA_VERSION, "now")


def test_a_line_is_json_even_where_a_number_is_not_finite():
    check = Check("a", Status.WRONG_VALUES, float("nan"), float("inf"))
    text = json.dumps(to_json(result(status=Status.WRONG_VALUES, checks=(check,)), "now"), default=str, allow_nan=False)
    assert json.loads(text)["kernel"] == "k"


# ------------------------------------------------------------------------------------------ the journal


def test_what_was_appended_is_read_in_its_order(tmp_path):
    journal = Journal(tmp_path)
    for name in ("a", "b", "a"):
        journal.append(result(name))
    assert [record["kernel"] for record in journal.read()] == ["a", "b", "a"]


def test_a_record_of_before_some_names_were_given_is_read_under_them(tmp_path):
    old = to_json(result(settings={"seed": 7}, numbers={"peak_flops_per_s": 1e12}), "now")
    del old["run"]
    journal = Journal(tmp_path)
    journal.path.write_text(json.dumps(old) + "\n")
    (read,) = journal.read()
    assert (read["run"], read["settings"]["baseline"]) == ("seed-7", "torch")
    assert read["numbers"] == {"peak_float32_flops_per_s": 1e12}


def test_a_journal_that_does_not_exist_is_empty(tmp_path):
    assert Journal(tmp_path / "nowhere").read() == []


def test_a_line_cut_short_costs_itself_only(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result("whole"))
    with journal.path.open("a") as file:
        file.write('{"schema_version": 1, "kernel": "cut')
    journal.append(result("after"))
    assert [record["kernel"] for record in journal.read()] == ["whole", "after"]


@pytest.mark.parametrize("at", ["start", "middle", "end"])
@pytest.mark.parametrize(
    "rubbish", ["", "no json", "[1, 2]", "3", "\x00\x00", '{"kernel": "k"}', '{"schema_version": 99}']
)
def test_a_line_that_is_no_record_is_passed_over(tmp_path, at, rubbish):
    journal = Journal(tmp_path)
    journal.append(result("a"))
    journal.append(result("b"))
    lines = journal.path.read_text().split("\n")
    lines.insert({"start": 0, "middle": 1, "end": 2}[at], rubbish)
    journal.path.write_text("\n".join(lines))
    assert [record["kernel"] for record in journal.read()] == ["a", "b"]


def test_bytes_that_are_no_text_are_passed_over(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result("a"))
    journal.path.write_bytes(b"\xff\xfe\n" + journal.path.read_bytes())
    assert [record["kernel"] for record in journal.read()] == ["a"]


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result("a\u2028b\nc"))
    assert [record["kernel"] for record in journal.read()] == ["a\u2028b\nc"]


APPENDS = """
import sys
from pathlib import Path
from kernel_harness.results import Journal, Result
from kernel_harness.status import Status

print("ready", flush=True)
sys.stdin.readline()
for i in range(20):
    # Longer than any buffer that would make a single write of it.
    Journal(Path(sys.argv[1])).append(Result(f"{sys.argv[2]}-{i}", Status.PASSED, "x" * 100_000, {}, ""))
"""


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
    kernels = [record["kernel"] for record in Journal(tmp_path).read()]
    assert sorted(kernels) == sorted(f"{name}-{i}" for name in "ab" for i in range(20))
    assert [k for k in kernels if k.startswith("a")] == [f"a-{i}" for i in range(20)]


def test_a_folder_that_cannot_be_made_is_found_out_beforehand(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match=r"runs\.jsonl"):
        Journal(tmp_path / "file" / "folder").check_writable()


def test_looking_whether_it_can_be_written_changes_nothing(tmp_path):
    journal = Journal(tmp_path)
    journal.append(result())
    before = journal.path.read_bytes()
    journal.check_writable()
    assert journal.path.read_bytes() == before


def test_a_line_that_does_not_fit_is_taken_back_and_the_rest_stays(tmp_path):
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
    assert [record["kernel"] for record in journal.read()] == ["a", "c"]
