"""From results to a table: the ranks, their order, the columns, and how the files are replaced."""

from __future__ import annotations

import csv as csv_module
import io
import itertools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kernel_harness.checking.verify import Check
from kernel_harness.core import atomic_file as files_module
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import Terminal
from kernel_harness.results import cells, leaderboard, roofline
from kernel_harness.results.journal import Unwritable
from kernel_harness.results.measurement import Measurement
from kernel_harness.results.record import Build, Kind, Result, RunSettings
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing

SHAPE = {"M": 4, "K": 8}
GPU = {"device": "NVIDIA H200"}
EMULATION = {"device": "CUDA emulated on the CPU"}
COLUMNS = [
    "rank", "kernel", "status", "precision", "time_ms", "time_ms_low", "time_ms_high", "speedup", "speedup_low",
    "speedup_high", "tflops", "percent_of_peak", "gbytes_per_s", "max_abs_error", "relative_error", "shapes", "build_s",
    "source_sha256", "device", "measured_at", "reason", "isolation", "run", "processor", "verified_to",
    "share_of_bound", "peak_bytes", "as_called_ms", "as_called_speedup", "energy_j",
]  # fmt: skip
NUMBERS = {
    "flops": 2e9,
    "bytes": 1e6,
    "peak_float32_flops_per_s": 1e13,
    "peak_bytes_per_s": 1e12,
    "ceiling_float32_flops_per_s": 4e12,
}


def record(kernel: str, time_ms: float | None = None, status: Status = Status.PASSED, **more: Any) -> Result:
    timing = None
    if time_ms is not None:
        speedup = Interval(0.9 / time_ms, 1.0 / time_ms, 1.1 / time_ms)
        timing = Timing((time_ms,), (), Interval(time_ms * 0.9, time_ms, time_ms * 1.1), speedup)
    given = {
        "timing": timing,
        "verdict": "" if status is Status.PASSED else f"{kernel} is\nwrong",
        "shape": SHAPE,
        "source_sha256": "ab" * 32,
        "environment": GPU,
        "measured_at": "2025-01-01T00:00:00+00:00",
        **more,
    }
    return Result(kernel, status, **given)


def check(shape: dict[str, int], distribution: str, *errors: float, status: Status = Status.PASSED) -> Check:
    return Check("a case", status, *errors, shape=shape, distribution=distribution)


def rows(records: Sequence[Result]) -> list[dict[str, str]]:
    """The table as a program reads it from the CSV."""
    return list(csv_module.DictReader(io.StringIO(leaderboard.csv(COLUMNS, leaderboard.rank(records, SHAPE)))))


def test_a_kernel_that_passed_with_a_finding_of_the_sanitizer_is_marked_in_the_table_alone() -> None:
    race = (Remark(RemarkKind.SANITIZER, "race: a.cu:3: two threads write one element.", 3),)
    wrong = record("wrong", None, Status.WRONG_VALUES, remarks=race)
    records = [record("racing", 2.0, remarks=race), record("right", 3.0), wrong]
    text = leaderboard.render(leaderboard.rank(records, SHAPE))

    assert re.findall(r"PASSED \(!\)", text) == ["PASSED (!)"] and "WRONG_VALUES (!)" not in text
    assert leaderboard.FLAW_NOTE in text
    assert leaderboard.FLAW_NOTE not in leaderboard.render(leaderboard.rank(records[1:], SHAPE))
    assert {row["status"] for row in rows(records)} == {"PASSED", "WRONG_VALUES"}


def ranks(records: Sequence[Result]) -> dict[str, str]:
    return {row["kernel"]: row["rank"] for row in rows(records)}


# ------------------------------------------------------------------------------------------------ rank


def test_times_are_ranked_as_numbers():
    times = {"a": 10.0, "b": 7.9, "c": 100.0, "d": 1e-4}
    assert ranks([record(k, t) for k, t in times.items()]) == {"d": "1", "b": "2", "a": "3", "c": "4"}


@given(st.dictionaries(st.text("abcdef", min_size=1), st.floats(1e-6, 1e6), min_size=1, max_size=8))
def test_rows_follow_the_times_and_kernels_share_a_rank_if_their_intervals_overlap(times):
    table = leaderboard.rank([record(k, t) for k, t in times.items()], SHAPE)
    assert [row["time_ms"] for row in table] == sorted(times.values())
    for place, (above, below) in enumerate(itertools.pairwise(table), 2):
        apart = above["time_ms_high"] < below["time_ms_low"]
        assert below["rank"] == (place if apart else above["rank"])


def test_kernels_whose_intervals_overlap_through_a_third_share_a_rank():
    records = [record(k, t) for k, t in {"a": 1.0, "b": 1.15, "c": 1.3, "d": 2.0}.items()]
    assert ranks(records) == {"a": "1", "b": "1", "c": "1", "d": "4"}
    assert leaderboard.SHARED_NOTE in leaderboard.render(leaderboard.rank(records, SHAPE))
    assert leaderboard.SHARED_NOTE not in leaderboard.render(leaderboard.rank(records[::3], SHAPE))


def test_a_time_without_an_interval_has_no_rank():
    once = Result("a", Status.PASSED, "", SHAPE, "", timing=Timing((1.0,), (), Interval(None, 1.0, None), None))
    assert ranks([once, record("b", 2.0)]) == {"a": "", "b": "1"}


def test_emulated_results_have_no_rank_and_are_in_the_order_of_status_and_name():
    more = {"environment": EMULATION, "emulated": True}
    records = [
        record("slow", 9.0, **more), record("wrong", status=Status.WRONG_VALUES, **more), record("untimed", **more),
        record("crashed", status=Status.CRASHED, **more), record("fast", 1.0, **more),
    ]  # fmt: skip
    assert list(ranks(records).items()) == [("fast", ""), ("slow", ""), ("untimed", ""), ("crashed", ""), ("wrong", "")]
    text = leaderboard.render(leaderboard.rank(records, SHAPE))
    assert "rank" not in text and "time (ms)" not in text and "emulation, ms" in text


def test_the_table_shows_the_share_of_the_bound_where_one_is_known():
    known = leaderboard.render(leaderboard.rank([record("a", 2.0, numbers={"least_ms": 1.5})], SHAPE))
    unknown = leaderboard.render(leaderboard.rank([record("a", 2.0)], SHAPE))
    assert "of the bound" in known and "75.0%" in known and "of the bound" not in unknown


def test_baselines_have_a_row_among_the_others_and_no_rank():
    records = [record("slow", 3.0), record("torch", 2.0, kind=Kind.BASELINE), record("fast", 1.0)]
    assert list(ranks(records).items()) == [("fast", "1"), ("torch", ""), ("slow", "2")]


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASSED])
def test_a_failure_has_a_row_below_all_others_without_a_rank_and_with_its_reason_on_one_line(status):
    failed, passed = record("a", status=status), record("b", 5.0)
    last = rows([failed, passed])[-1]
    assert (last["kernel"], last["rank"], last["status"], last["reason"]) == ("a", "", status.value, "a is wrong")


def test_what_passed_and_was_not_timed_has_a_row_and_no_rank():
    records = [record("untimed"), record("failed", status=Status.TIMEOUT), record("timed", 1.0)]
    assert list(ranks(records).items()) == [("timed", "1"), ("untimed", ""), ("failed", "")]


def test_no_records_are_an_empty_table():
    assert rows([]) == []
    assert leaderboard.render(leaderboard.rank([], SHAPE))


# --------------------------------------------------------------------------------------------- re-runs


def test_a_new_run_of_a_kernel_replaces_its_row_and_keeps_the_rest():
    before = [record("a", 1.0), record("b", 2.0), record("c", status=Status.CRASHED)]
    assert ranks([*before, record("a", 3.0)]) == {"b": "1", "a": "2", "c": ""}


def test_a_kernel_that_now_fails_loses_its_rank():
    assert ranks([record("a", 1.0), record("a", status=Status.WRONG_VALUES)]) == {"a": ""}


def test_a_check_without_timing_keeps_the_flag_of_the_same_source_only():
    """Otherwise a kill of the next run, before it times anything, would remove the flag."""
    flagged = record("a", status=Status.CHEATED)
    assert statuses([flagged, record("a")]) == {"a": "CHEATED"}
    assert statuses([flagged, record("a", 1.0)]) == {"a": "PASSED"}
    assert statuses([flagged, record("a", source_sha256="cd" * 32)]) == {"a": "PASSED"}


def statuses(records: list[Result]) -> dict[str, str]:
    return {row["kernel"]: row["status"] for row in rows(records)}


def test_a_check_without_timing_keeps_the_time_of_the_same_source_only():
    timed = record("a", 1.0)
    assert ranks([timed, record("a")]) == {"a": "1"}
    assert ranks([timed, record("a", source_sha256="cd" * 32)]) == {"a": ""}


def test_records_of_another_shape_are_another_table():
    assert rows([record("a", 1.0, shape={"M": 4, "K": 9})]) == []


def test_rows_of_earlier_runs_and_other_machines_are_marked():
    first = {"run": "20250101-000000-ffff", "environment": {**GPU, "processor": "one"}}
    later = {"run": "20250102-000000-0000", "environment": {**GPU, "processor": "one"}}
    other = {"run": "20250101-000001-0000", "environment": {**GPU, "processor": "another"}}
    table = leaderboard.rank([record("a", 1.0, **first), record("b", 2.0, **other), record("c", 4.0, **later)], SHAPE)

    assert leaderboard.earlier(table) == ["2025-01-01 00:00", "2025-01-01 00:00, on another machine", ""]
    assert "from an earlier run" in leaderboard.render(table)
    alone = leaderboard.rank([record("a", 1.0, **first)], SHAPE)
    assert "from an earlier run" not in leaderboard.render(alone)


# --------------------------------------------------------------------------------------------- columns


def test_the_columns_are_the_documented_ones_in_their_order():
    assert list(leaderboard.COLUMNS) == COLUMNS
    assert leaderboard.csv(COLUMNS, leaderboard.rank([], SHAPE)).strip().split(",") == COLUMNS


def test_a_timed_row_has_every_measured_figure():
    checks = (check(SHAPE, "own", 0.25, 1e-7), check(SHAPE, "normal"), check({"M": 1, "K": 8}, "own"))
    more = {
        "builds": (Build("a", 1.5, False), Build("b", 2.0, False)), "isolation": "process", "run": "20250101-00-ab",
        "environment": {**GPU, "processor": "a CPU"},
    }  # fmt: skip
    more["measurement"] = Measurement(peak_bytes=159383552, energy_samples_j=(70.0, 90.0, 80.0))
    more["as_called"] = Timing((5.0,), (), Interval(None, 5.0, None), Interval(None, 0.8, None))
    (row,) = rows([record("a", 2.0, checks=checks, numbers={**NUMBERS, "least_ms": 0.5}, **more)])
    assert row == {
        "rank": "1", "kernel": "a", "status": "PASSED", "precision": "", "time_ms": "2", "time_ms_low": "1.8",
        "time_ms_high": "2.2", "speedup": "0.5", "speedup_low": "0.45", "speedup_high": "0.55", "tflops": "1",
        "percent_of_peak": "10", "gbytes_per_s": "0.5", "max_abs_error": "0.25", "relative_error": "1e-07",
        "shapes": "2 checked", "build_s": "3.5", "source_sha256": "ab" * 32, "device": "NVIDIA H200",
        "measured_at": "2025-01-01T00:00:00+00:00", "reason": "", "isolation": "process",
        "run": "20250101-00-ab", "processor": "a CPU", "verified_to": "",
        "share_of_bound": "0.25", "peak_bytes": "159383552", "as_called_ms": "5", "as_called_speedup": "0.8",
        "energy_j": "80",
    }  # fmt: skip


def test_an_emulated_row_has_no_speedup_or_rate():
    numbers = {**NUMBERS, "least_ms": 0.5}
    (row,) = rows([record("a", 2.0, numbers=numbers, environment=EMULATION, emulated=True)])
    assert row["device"] == "cpu-emulated" and row["time_ms"] == "2"
    empty = ["speedup", "speedup_low", "speedup_high", "tflops", "percent_of_peak", "gbytes_per_s", "share_of_bound"]
    empty += ["peak_bytes", "energy_j"]
    assert [row[name] for name in empty] == [""] * len(empty)


def test_the_nearer_roof_is_the_one_that_counts():
    by_memory = {**NUMBERS, "bytes": 1e9}
    assert rows([record("a", 2.0, numbers=by_memory)])[0]["percent_of_peak"] == "50"


def test_without_a_peak_there_is_no_share_of_it():
    assert rows([record("a", 2.0, numbers={"flops": 2e9})])[0]["percent_of_peak"] == ""


def test_a_kernel_that_handles_some_shapes_only_says_which():
    assert rows([record("a", 1.0, restricted_to=("M=4,K=8",))])[0]["shapes"] == "only M=4,K=8"


def test_a_reason_may_contain_csv_and_markdown_markup():
    failed = record("a", status=Status.BUILD_ERROR, verdict='k.py:3: error: "x" | y, z')
    assert rows([failed])[0]["reason"] == 'k.py:3: error: "x" | y, z'


def test_the_nearer_roof_bounds_a_kernel_and_an_emulation_has_no_roof():
    result = record("a", 2.0, numbers=NUMBERS)
    assert roofline.nearest_roof(result, "ceiling") == ("compute", pytest.approx(25))
    assert roofline.nearest_roof(record("a", 2.0, numbers=NUMBERS, emulated=True), "peak") == (None, None)


def test_the_time_with_a_warm_cache_is_the_median_of_its_samples():
    assert Measurement(warm_samples_ms=(1.0, 9.0, 2.0)).warm_ms == 2.0
    assert Measurement().warm_ms is None


@pytest.mark.parametrize("error", [float("nan"), float("inf")])
def test_an_error_that_is_not_finite_is_shown_by_name(error):
    wrong = check(SHAPE, "own", error, error, status=Status.WRONG_VALUES)
    records = [record("a", status=Status.WRONG_VALUES, checks=(wrong,))]
    assert f"  {error}" in leaderboard.render(leaderboard.rank(records, SHAPE))
    (row,) = rows(records)
    assert (row["max_abs_error"], row["relative_error"]) == (str(error), str(error))


# ---------------------------------------------------------------------------------------------- render


def test_every_text_of_an_emulated_table_says_that_it_predicts_no_gpu(tmp_path):
    table = leaderboard.rank([record("a", 2.0, environment=EMULATION, emulated=True)], SHAPE)
    assert leaderboard.EMULATED_NOTE in leaderboard.render(table)
    leaderboard.save(tmp_path, "leaderboard", "title", table)
    assert leaderboard.EMULATED_NOTE in (tmp_path / "leaderboard.md").read_text()


def test_a_table_says_what_a_share_above_100_percent_of_the_peak_means():
    numbers = {"flops": 1e12, "peak_float32_flops_per_s": 67e12, "peak_float16_flops_per_s": 989e12}
    texts = [leaderboard.render(leaderboard.rank([record("a", ms, numbers=numbers)], SHAPE)) for ms in (10.0, 30.0)]
    assert [leaderboard.ABOVE_PEAK_NOTE in text for text in texts] == [True, False]


@pytest.mark.parametrize(
    ("speedup", "text"),
    [(1.0, "1.000"), (1.0042, "1.004"), (0.9986, "0.999"), (1.0985, "1.099"), (0.55, "0.55"), (12.34, "12.3")],
)  # fmt: skip
def test_a_speedup_near_1_keeps_its_third_decimal(speedup, text):
    timing = Timing((1.0,), (), Interval(0.9, 1.0, 1.1), Interval(speedup, speedup, speedup))
    assert cells.ratio(speedup) == text
    assert f" {text}x" in leaderboard.render(leaderboard.rank([record("a", timing=timing)], SHAPE))


def test_a_table_says_why_a_time_has_no_interval():
    few = Timing((2.0,), (), Interval(None, 2.0, None), None)
    assert leaderboard.NO_INTERVAL_NOTE in leaderboard.render(
        leaderboard.rank([record("a", 1.0), record("b", timing=few)], SHAPE)
    )
    assert leaderboard.NO_INTERVAL_NOTE not in leaderboard.render(leaderboard.rank([record("a", 1.0)], SHAPE))


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Letters, and the characters that are markup in Markdown, its tables and HTML.
LINES = st.text("ab1_*`|\\\\<>[]()!~&;#=-+.: \t\n\u00fc", min_size=1).filter(str.strip)


def shown_in(text: str) -> list[list[str]]:
    """The text of each cell and list item of a Markdown file as shown to a reader, split by kind of markup."""
    inline = [token.children or [] for token in MARKDOWN.parse(text) if token.type == "inline"]
    return [[token.content if token.type == "text" else f"({token.type})" for token in found] for found in inline]


@given(LINES, LINES)
def test_names_and_reasons_are_plain_text_in_markdown(name, reason):
    failed = record(name, status=Status.CRASHED, verdict=reason)
    with tempfile.TemporaryDirectory() as folder:
        leaderboard.save(Path(folder), "leaderboard", "title", leaderboard.rank([failed], SHAPE))
        text = (Path(folder) / "leaderboard.md").read_text()
    name, reason = (" ".join(said.split()) for said in (name, reason))

    *_, kernel, status, row = ["".join(found) for found in shown_in(text)]
    assert (kernel, status) == (name, "CRASHED")
    assert row == f"(strong_open){name}(strong_close): CRASHED. {reason}"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_no_text_is_a_formula_in_a_spreadsheet(text):
    (row,) = rows([record(text, status=Status.CRASHED, verdict=text)])
    assert (row["kernel"], row["reason"]) == (f"'{text}", f"'{text}")


def test_numbers_stay_numbers_in_a_spreadsheet():
    negative = check(SHAPE, "own", -0.25, -1e-7)  # no error is negative, but a formula may begin with the sign
    (row,) = rows([record("a=b", 2.0, checks=(negative,))])
    assert (row["kernel"], row["max_abs_error"], row["relative_error"]) == ("a=b", "-0.25", "-1e-07")


def test_a_gpu_s_table_has_no_note_about_emulation():
    assert leaderboard.EMULATED_NOTE not in leaderboard.render(leaderboard.rank([record("a", 2.0)], SHAPE))


def test_columns_that_are_empty_throughout_are_not_shown():
    text = leaderboard.render(leaderboard.rank([record("a", 2.0)], SHAPE))
    assert "TFLOPS" not in text and "time (ms)" in text


def test_the_heading_says_what_speedups_are_against_where_that_is_not_torch():
    def heading(*baselines: str, **more: Any) -> str:
        records = [record(f"k{i}", 1.0, settings=RunSettings(baseline=b), **more) for i, b in enumerate(baselines)]
        return leaderboard.heading("p", records, SHAPE)

    assert heading("torch") == "p, M=4,K=8"
    assert heading("torch.compile", "torch.compile") == "p, M=4,K=8, speedup over torch.compile"
    assert heading("torch", "a") == "p, M=4,K=8, speedups over different baselines (a, torch)"
    assert heading("a", emulated=True) == "p, M=4,K=8"  # no speedups are shown


def test_the_heading_of_a_problem_without_constants_is_its_name():
    assert leaderboard.heading("p", [], {}) == "p"


def test_the_file_is_named_after_a_shape_that_is_not_the_default():
    assert leaderboard.file_stem(SHAPE, SHAPE) == "leaderboard"
    assert leaderboard.file_stem({"M": 5, "K": 8}, SHAPE) == "leaderboard-M5-K8"


# ----------------------------------------------------------------------------------------------- files


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_both_files_are_written_and_nothing_else(tmp_path):
    table = leaderboard.rank([record("a", 2.0), record("b", status=Status.TIMEOUT)], SHAPE)
    assert leaderboard.save(tmp_path, "leaderboard", "The title", table) == tmp_path / "leaderboard.csv"
    written = files(tmp_path)
    assert set(written) == {"leaderboard.csv", "leaderboard.md"}
    assert written["leaderboard.csv"] == leaderboard.csv(COLUMNS, table)
    assert written["leaderboard.md"].startswith("# The title\n") and "b is wrong" in written["leaderboard.md"]


def test_the_files_can_be_read_by_others(tmp_path):
    path = leaderboard.save(tmp_path, "leaderboard", "title", leaderboard.rank([], SHAPE))
    assert path.stat().st_mode & 0o444 == 0o444


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_files_and_no_other(tmp_path, monkeypatch, call):
    leaderboard.save(tmp_path, "leaderboard", "title", leaderboard.rank([record("old", 2.0)], SHAPE))
    before = files(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*{"fsync": (files_module.os, "fsync"), "replace": (Path, "replace")}[call], fail)
    with pytest.raises(Unwritable, match=r"No space left.* Free some space, or name another folder"):
        leaderboard.save(tmp_path, "leaderboard", "title", leaderboard.rank([record("new", 1.0)], SHAPE))
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", ["leaderboard.md", "leaderboard.csv"])
def test_the_file_that_cannot_be_written_is_named(name, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises(Unwritable, match=f"{re.escape(name)} cannot be written"):
        leaderboard.save(tmp_path, "leaderboard", "title", leaderboard.rank([], SHAPE))


def test_a_folder_that_does_not_exist_is_said_to_be_unwritable(tmp_path):
    with pytest.raises(Unwritable, match=r"nowhere.* unchanged\. Name another folder"):
        leaderboard.save(tmp_path / "nowhere", "leaderboard", "title", leaderboard.rank([], SHAPE))


def test_a_note_says_how_far_the_judge_s_clock_verifies_the_times():
    made = [record("a", 2.0, measurement=Measurement(verified_to_ms=0.01)), record("b", 4.0)]
    made.append(record("c", 4.0, measurement=Measurement(verified_to_ms=0.1)))
    shown = leaderboard.render(leaderboard.rank(made, SHAPE))
    assert "The judge's own clock verifies these times to 2.5% or better." in shown
    assert "verifies" not in leaderboard.render(leaderboard.rank(made[1:2], SHAPE))


@pytest.mark.parametrize(("launched_ms", "shown"), [(2.1, False), (4.07, True)])
def test_times_with_launch_latency_are_shown_where_they_differ(launched_ms: float, shown: bool) -> None:
    as_called = Timing((launched_ms,), (), Interval(None, launched_ms, None), Interval(None, 1.98, None))
    made = [record("a", 2.0, as_called=as_called), record("b", 4.0)]
    text = leaderboard.render(leaderboard.rank(made, SHAPE))
    assert ("as called" in text, f"{launched_ms} (1.98x)" in text) == (shown, shown)
    assert (leaderboard.AS_CALLED_NOTE in text) is shown


def of_memory(**peak_bytes: int | None) -> list[leaderboard.Row]:
    names = {name.replace("_", "."): count for name, count in peak_bytes.items()}
    return leaderboard.rank([record(n, 2.0, measurement=Measurement(peak_bytes=b)) for n, b in names.items()], SHAPE)


def test_a_note_names_kernels_that_need_twice_the_memory_of_torch_or_half() -> None:
    table = of_memory(
        torch=int(33.6e6), same=int(34e6), much=int(1.2e9), twice=int(67.2e6), half=int(16.8e6), none=None
    )
    note = "Peak memory of a call: torch 33.6 MB, half 16.8 MB (0.5x), much 1.2 GB (35.7x), twice 67.2 MB (2x)."
    assert note in leaderboard.render(table)
    assert "Peak memory" not in leaderboard.render(of_memory(torch=int(33.6e6), a=int(67e6), b=int(17e6)))
    assert "Peak memory" not in leaderboard.render(of_memory(a=1, b=100)) + leaderboard.render(of_memory(torch=0, b=9))


def test_the_table_has_the_memory_of_a_call_if_that_is_asked_for() -> None:
    table = of_memory(torch=int(33.6e6), mine=None)
    assert "33.6 MB" in leaderboard.render(table, memory=True) and "memory" not in leaderboard.render(table)
    assert "memory" not in leaderboard.render(of_memory(torch=None), memory=True)


@pytest.mark.parametrize(("count", "text"), [(0, "0 MB"), (999_499_999, "999 MB"), (999_500_000, "1 GB")])
def test_memory_is_told_in_mb_or_gb(count: int, text: str) -> None:
    assert cells.memory_text(count) == text


def test_a_run_of_few_kernels_shows_these_torch_and_the_best() -> None:
    names = ["best", "mine", "other", "slow", BASELINE]
    table = [{"kernel": name, "rank": rank} for name, rank in zip(names, (1, 2, 3, 4, None), strict=True)]
    assert [row["kernel"] for row in leaderboard.of_interest(table, ["mine"])] == ["best", "mine", BASELINE]


def test_a_table_for_a_terminal_fits_and_has_colours() -> None:
    checks = (check(SHAPE, "own", 0.25, 1e-7),)
    records = [record("a", 2.0, checks=checks), record("b", status=Status.WRONG_VALUES, checks=checks)]
    table = leaderboard.rank(records, SHAPE)
    whole = leaderboard.render(table).split("\n\n")[0]
    narrow = leaderboard.render(table, terminal=Terminal(width=60, colours=True)).split("\n\n")[0]
    bare = re.sub(r"\033\[\d+m", "", narrow)
    assert max(map(len, bare.split("\n"))) <= 60 < max(map(len, whole.split("\n")))
    assert "\033[32mPASSED" in narrow and "\033[31mWRONG_VALUES" in narrow
    assert "shapes" in whole and "shapes" not in bare and "time (ms)" in bare
    assert "Too wide for here, and in the CSV file: " in leaderboard.render(table, terminal=Terminal(width=60))
