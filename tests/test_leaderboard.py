"""From records to a table: who is ranked, in which order, what each column says, and how the files are replaced."""

from __future__ import annotations

import csv as csv_module
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kernel_harness import files as files_module
from kernel_harness import leaderboard
from kernel_harness.results import Result, Unwritable, to_json
from kernel_harness.status import Status
from kernel_harness.timing import Interval, Timing
from kernel_harness.verify import Check

SHAPE = {"M": 4, "K": 8}
GPU = {"device": "NVIDIA H200"}
EMULATION = {"device": "CUDA emulated on the CPU"}
# The columns everybody relies on, and those that came later.
COLUMNS = [
    "rank", "kernel", "status", "precision", "time_ms", "time_ms_low", "time_ms_high", "speedup", "speedup_low",
    "speedup_high", "tflops", "percent_of_peak", "gbytes_per_s", "max_abs_error", "relative_error", "shapes", "build_s",
    "source_sha256", "device", "measured_at", "reason", "isolation", "baseline", "bound", "percent_of_ceiling",
    "warm_ms", "graph_ms", "first_call_ms", "peak_mib",
]  # fmt: skip
NUMBERS = {
    "flops": 2e9,
    "bytes": 1e6,
    "peak_float32_flops_per_s": 1e13,
    "peak_bytes_per_s": 1e12,
    "ceiling_float32_flops_per_s": 4e12,
}

Record = dict[str, Any]


def record(kernel: str, time_ms: float | None = None, status: Status = Status.PASSED, **more: Any) -> Record:
    """As it is read back from a journal."""
    measured_at = more.pop("measured_at", "2025-01-01T00:00:00+00:00")
    timing = None
    if time_ms is not None:
        speedup = Interval(0.9 / time_ms, 1.0 / time_ms, 1.1 / time_ms)
        timing = Timing((time_ms,), (), Interval(time_ms * 0.9, time_ms, time_ms * 1.1), speedup)
    given = {
        "reason": "" if status is Status.PASSED else f"{kernel} is\nwrong",
        "shape": SHAPE,
        "source_sha256": "ab" * 32,
        "environment": GPU,
        **more,
    }
    result = Result(kernel, status, timing=timing, **given)
    loaded: Record = json.loads(json.dumps(to_json(result, measured_at), default=str))
    return loaded


def rows(records: Sequence[Record]) -> list[dict[str, str]]:
    """The table as somebody reads it from the CSV."""
    return list(csv_module.DictReader(io.StringIO(leaderboard.csv(leaderboard.rank(records, SHAPE)))))


def ranks(records: Sequence[Record]) -> dict[str, str]:
    return {row["kernel"]: row["rank"] for row in rows(records)}


# ------------------------------------------------------------------------------------------------ rank


def test_times_are_ranked_as_numbers():
    times = {"a": 10.0, "b": 9.9, "c": 100.0, "d": 1e-4}
    assert ranks([record(k, t) for k, t in times.items()]) == {"d": "1", "b": "2", "a": "3", "c": "4"}


@given(st.dictionaries(st.text("abcdef", min_size=1), st.floats(1e-6, 1e6), min_size=1, max_size=8))
def test_ranks_follow_the_times_and_the_rows_follow_the_ranks(times):
    table = leaderboard.rank([record(k, t) for k, t in times.items()], SHAPE)
    assert list(table["time_ms"]) == sorted(times.values())
    assert list(table["rank"]) == list(range(1, len(times) + 1))


def test_baselines_have_a_row_among_the_others_and_no_rank():
    records = [record("slow", 3.0), record("torch", 2.0, kind="baseline"), record("fast", 1.0)]
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


def test_a_check_without_timing_keeps_the_conviction_of_the_same_source_only():
    """Or who is killed in time would be rid of it."""
    convicted = record("a", status=Status.CHEATED)
    assert statuses([convicted, record("a")]) == {"a": "CHEATED"}
    assert statuses([convicted, record("a", 1.0)]) == {"a": "PASSED"}
    assert statuses([convicted, record("a", source_sha256="cd" * 32)]) == {"a": "PASSED"}


def statuses(records: list[Record]) -> dict[str, str]:
    return {row["kernel"]: row["status"] for row in rows(records)}


def test_a_check_without_timing_keeps_the_time_of_the_same_source_only():
    timed = record("a", 1.0)
    assert ranks([timed, record("a")]) == {"a": "1"}
    assert ranks([timed, record("a", source_sha256="cd" * 32)]) == {"a": ""}


def test_records_of_another_shape_are_another_table():
    assert rows([record("a", 1.0, shape={"M": 4, "K": 9})]) == []


# --------------------------------------------------------------------------------------------- columns


def test_the_columns_are_the_documented_ones_in_their_order():
    assert list(leaderboard.COLUMNS) == COLUMNS
    assert leaderboard.csv(leaderboard.rank([], SHAPE)).strip().split(",") == COLUMNS


def test_a_timed_row_says_what_was_measured():
    checks = (
        Check("M=4:own", Status.PASSED, 0.25, 1e-7),
        Check("M=4:normal", Status.PASSED),
        Check("M=1:own", Status.PASSED),
    )
    more = {"builds": ({"seconds": 1.5}, {"seconds": 2.0}), "settings": {"isolation": "process", "baseline": "torch"}}
    more["information"] = {"warm_ms": 1.5, "graph_interval_ms": 1.25, "first_call_ms": 80.0, "peak_bytes": 3 << 20}
    (row,) = rows([record("a", 2.0, checks=checks, numbers=NUMBERS, **more)])
    assert row == {
        "rank": "1", "kernel": "a", "status": "PASSED", "precision": "", "time_ms": "2", "time_ms_low": "1.8",
        "time_ms_high": "2.2", "speedup": "0.5", "speedup_low": "0.45", "speedup_high": "0.55", "tflops": "1",
        "percent_of_peak": "10", "gbytes_per_s": "0.5", "max_abs_error": "0.25", "relative_error": "1e-07",
        "shapes": "2 checked", "build_s": "3.5", "source_sha256": "ab" * 32, "device": "NVIDIA H200",
        "measured_at": "2025-01-01T00:00:00+00:00", "reason": "", "isolation": "process",
        "baseline": "torch", "bound": "compute", "percent_of_ceiling": "25", "warm_ms": "1.5", "graph_ms": "1.25",
        "first_call_ms": "80", "peak_mib": "3",
    }  # fmt: skip


def test_an_emulated_row_says_nothing_of_a_gpu():
    (row,) = rows([record("a", 2.0, numbers=NUMBERS, environment=EMULATION)])
    assert row["device"] == "cpu-emulated" and row["time_ms"] == "2"
    empty = ["speedup", "speedup_low", "speedup_high", "tflops", "percent_of_peak", "gbytes_per_s"]
    assert [row[name] for name in empty] == [""] * len(empty)


def test_the_nearer_roof_is_the_one_that_counts():
    by_memory = {**NUMBERS, "bytes": 1e9}
    assert rows([record("a", 2.0, numbers=by_memory)])[0]["percent_of_peak"] == "50"


def test_without_a_peak_there_is_no_share_of_it():
    assert rows([record("a", 2.0, numbers={"flops": 2e9})])[0]["percent_of_peak"] == ""


def test_a_kernel_that_handles_some_shapes_only_says_which():
    assert rows([record("a", 1.0, restricted_to=("M=4,K=8",))])[0]["shapes"] == "only M=4,K=8"


def test_a_reason_may_hold_what_csv_and_markdown_are_made_of():
    failed = record("a", status=Status.BUILD_ERROR, reason='k.py:3: error: "x" | y, z')
    assert rows([failed])[0]["reason"] == 'k.py:3: error: "x" | y, z'


@pytest.mark.parametrize("error", [float("nan"), float("inf")])
def test_an_error_that_is_no_finite_number_can_be_shown(error):
    check = Check("M=4,K=8:own", Status.WRONG_VALUES, error, error)
    table = leaderboard.rank([record("a", status=Status.WRONG_VALUES, checks=(check,))], SHAPE)
    assert "WRONG_VALUES" in leaderboard.render(table)


# ---------------------------------------------------------------------------------------------- render


def test_every_text_of_an_emulated_table_says_that_it_predicts_no_gpu(tmp_path):
    table = leaderboard.rank([record("a", 2.0, environment=EMULATION)], SHAPE)
    assert leaderboard.EMULATED_NOTE in leaderboard.render(table)
    leaderboard.save(tmp_path, "leaderboard", "title", table)
    assert leaderboard.EMULATED_NOTE in (tmp_path / "leaderboard.md").read_text()


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What Markdown, its tables and HTML are made of, beside letters.
LINES = st.text("ab1_*`|\\\\<>[]()!~&;#=-+.: \t\n\u00fc", min_size=1).filter(str.strip)


def shown_in(text: str) -> list[list[str]]:
    """The text of each cell and each list item of a Markdown file as a reader sees it, in runs of one kind each."""
    inline = [token.children or [] for token in MARKDOWN.parse(text) if token.type == "inline"]
    return [[token.content if token.type == "text" else f"({token.type})" for token in found] for found in inline]


@given(LINES, LINES)
def test_names_and_reasons_are_nothing_but_text_in_markdown(name, reason):
    failed = record(name, status=Status.CRASHED, reason=reason)
    with tempfile.TemporaryDirectory() as folder:
        leaderboard.save(Path(folder), "leaderboard", "title", leaderboard.rank([failed], SHAPE))
        text = (Path(folder) / "leaderboard.md").read_text()
    name, reason = (" ".join(said.split()) for said in (name, reason))

    *_, rank, kernel, status, row = ["".join(found) for found in shown_in(text)]
    assert (rank, kernel, status) == ("", name, "CRASHED")
    assert row == f"(strong_open){name}(strong_close): CRASHED. {reason}"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_no_text_is_a_formula_in_a_spreadsheet(text):
    (row,) = rows([record(text, status=Status.CRASHED, reason=text)])
    assert (row["kernel"], row["reason"]) == (f"'{text}", f"'{text}")


def test_numbers_stay_numbers_in_a_spreadsheet():
    check = Check("M=4,K=8:own", Status.PASSED, -0.25, -1e-7)  # no error is negative, but the sign is what matters
    (row,) = rows([record("a=b", 2.0, checks=(check,))])
    assert (row["kernel"], row["max_abs_error"], row["relative_error"]) == ("a=b", "-0.25", "-1e-07")


def test_a_table_of_a_gpu_does_not_say_so():
    assert leaderboard.EMULATED_NOTE not in leaderboard.render(leaderboard.rank([record("a", 2.0)], SHAPE))


def test_columns_that_are_empty_throughout_are_not_shown():
    text = leaderboard.render(leaderboard.rank([record("a", 2.0)], SHAPE))
    assert "TFLOPS" not in text and "time (ms)" in text


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
    assert written["leaderboard.csv"] == leaderboard.csv(table)
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
    with pytest.raises(Unwritable, match="No space left"):
        leaderboard.save(tmp_path, "leaderboard", "title", leaderboard.rank([record("new", 1.0)], SHAPE))
    assert files(tmp_path) == before


def test_a_folder_that_does_not_exist_is_said_to_be_unwritable(tmp_path):
    with pytest.raises(Unwritable, match="nowhere"):
        leaderboard.save(tmp_path / "nowhere", "leaderboard", "title", leaderboard.rank([], SHAPE))
