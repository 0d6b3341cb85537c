"""What a suite writes for people and programs: the HTML page, the tables, and the Parquet file."""

from __future__ import annotations

import csv
import importlib.util
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from support.pages import HOSTILE
from support.suites import entry

from kernel_harness.core.errors import UserError
from kernel_harness.core.status import Status
from kernel_harness.suite import collection, page, summary
from kernel_harness.suite.store import Entry, Facts
from kernel_harness.suite.summary import Summary

SETTINGS = {"baseline": "torch", "quick": True, "precision": None, "budget_s": 10.0}
FACTS = Facts("nvidia-h200", "NVIDIA H200", 12345, "2026-11-23T10:00:00+00:00", SETTINGS)
ENTRIES = [
    entry("p", "sample_0", 0.4), entry("p", "sample_2", 2.5), entry("p", "sample_10", status=Status.WRONG_VALUES),
    entry("q", "sample_0", status=Status.BUILD_ERROR), entry("q", "sample_2", status=Status.CHEATED),
]  # fmt: skip


def summarized(entries: list[Entry] = ENTRIES) -> Summary:
    return summary.summarize(FACTS, entries, ())


class Outline(HTMLParser):
    """The start tags of a page, whether they are closed in order, and its texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def outline(folder: Path, entries: list[Entry] = ENTRIES) -> Outline:
    return Outline(page.html(folder, summarized(entries)))


def test_each_candidate_has_a_cell_with_the_class_of_its_verdict(tmp_path: Path) -> None:
    cells = [attrs.get("class") for tag, attrs in outline(tmp_path).tags if tag == "i"]

    assert cells == ["speed-0", "speed-5", "wrong", "unbuilt", "cheated", None]


def test_the_cell_of_a_timed_candidate_tells_its_share_of_the_bound(tmp_path: Path) -> None:
    entries = [entry("p", "sample_0", 2.5, share_of_bound=0.834), entry("p", "sample_1", 0.4)]
    titles = [attrs["title"] for tag, attrs in outline(tmp_path, entries).tags if tag == "i"]

    assert titles == ["sample_0: PASSED, 2.5x, 83% of the bound", "sample_1: PASSED, 0.4x"]
    assert summary.candidate_rows(summarized(entries))[0]["share_of_bound"] == 0.834


def test_problems_are_in_natural_order_with_their_level(tmp_path: Path) -> None:
    names = ((1, "2_b"), (1, "10_a"), (2, "1_c"), (10, "3_d"))
    files = [tmp_path / f"level{level}" / f"{name}.py" for level, name in names]
    kernels = [tmp_path / "kernels" / path.stem / "k.py" for path in files]
    for path in [*files, *kernels]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    problems = collection.collect([str(tmp_path)], tmp_path / "kernels", tmp_path).problems
    found = summary.summarize(FACTS, [entry(name, "k", 1.2) for _, name in reversed(names)], problems)

    rows = page.rows(tmp_path, found, ["k"])
    assert [(row.level, row.problem) for row in rows] == list(names)
    text = Outline(page.html(tmp_path, found)).text
    assert "10_a level 1" in " ".join(text.split())
    summary.save(tmp_path, found)
    with (tmp_path / "summary.csv").open() as table:
        assert [(int(row["level"]), row["problem"]) for row in csv.DictReader(table)] == list(names)
    assert re.search(r"\| 3_d +\| 10 +\|", (tmp_path / "summary.md").read_text())


def test_a_speedup_close_to_1_has_the_digits_that_tell(tmp_path: Path) -> None:
    found = outline(tmp_path, [entry("p", "a", 1.004)])

    assert "1.004x" in found.text and ("i", {"class": "speed-3", "title": "a: PASSED, 1.004x"}) in found.tags
    assert "1.004x" in summary.text(summarized([entry("p", "a", 1.004)]))


def test_lines_of_code_in_a_reason_keep_their_form(tmp_path: Path) -> None:
    failed = replace(entry("p", "a", status=Status.BUILD_ERROR), reason="no x\n  5 |  c =   x;\n    |       ^")
    assert '<span class="code">  5 |  c =   x;</span>' in page.html(tmp_path, summarized([failed]))


def test_every_tag_is_closed(tmp_path: Path) -> None:
    assert outline(tmp_path).open == []


def test_columns_are_in_natural_order() -> None:
    assert page.column_names(ENTRIES) == ["sample_0", "sample_2", "sample_10"]


def test_columns_are_numbers_if_problems_share_no_names(tmp_path: Path) -> None:
    entries = [entry(problem, f"{problem}_{number}", 1.2) for problem in "pqr" for number in range(3)]

    assert page.column_names(entries) == ["1", "2", "3"]
    assert [attrs.get("class") for tag, attrs in outline(tmp_path, entries).tags if tag == "i"] == ["speed-3"] * 9


def test_the_shares_count_each_class() -> None:
    assert page.shares(ENTRIES) == {"speed-5": 1, "speed-0": 1, "wrong": 1, "unbuilt": 1, "cheated": 1}


@pytest.mark.parametrize(
    ("speedup", "kind"), [(0.49, "speed-0"), (0.5, "speed-1"), (1.0, "speed-3"), (1.99, "speed-4"), (2.0, "speed-5")]
)
def test_the_class_of_a_speedup_begins_at_its_bound(speedup: float, kind: str) -> None:
    assert page.kind(entry("p", "a", speedup)) == kind


def test_every_status_has_a_class_with_a_meaning() -> None:
    found = [entry("p", str(status), status=status) for status in Status]

    assert page.shares(found) == {
        "passed": 1, "wrong": 6, "dead": 3, "unbuilt": 2, "unsupported": 1, "cheated": 1
    }  # fmt: skip


def test_the_seed_is_not_on_the_page(tmp_path: Path) -> None:
    assert "12345" not in page.html(tmp_path, summarized())


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    hostile = replace(entry("p", HOSTILE, status=Status.CRASHED), reason=HOSTILE)
    found = outline(tmp_path, [hostile])

    assert not [attrs for tag, attrs in found.tags if tag == "img" or "onerror" in attrs]
    assert sum(tag == "script" for tag, _ in found.tags) == 1


def test_a_problem_s_page_is_linked_if_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "p" / "nvidia-h200" / "report.html"
    path.parent.mkdir(parents=True)
    path.touch()
    links = [attrs["href"] for tag, attrs in outline(tmp_path).tags if tag == "a"]

    assert "p/nvidia-h200/report.html" in links and "q/nvidia-h200/report.html" not in links


def test_the_verdicts_of_a_huge_suite_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_LISTED", 4)

    assert "lists the verdicts of at most 4 candidates" in outline(tmp_path).text


def test_emulated_times_are_not_shown_as_speedups(tmp_path: Path) -> None:
    found = outline(tmp_path, [entry("p", "a", emulated=True)])

    assert "Emulated." in found.text and "fast_1" not in found.text
    assert ("i", {"class": "passed", "title": "a: PASSED"}) in found.tags


# ------------------------------------------------------------------------------------------------- the tables


def test_the_tables_have_the_figures_the_problems_and_the_candidates(tmp_path: Path) -> None:
    summary.save(tmp_path, summarized())
    read = {name: list(csv.DictReader((tmp_path / name).open())) for name in ("summary.csv", "candidates.csv")}

    assert [(row["problem"], row["passed"], row["best"]) for row in read["summary.csv"]] == [
        ("p", "2", "sample_2"), ("q", "0", "")
    ]  # fmt: skip
    assert [row["speedup"] for row in read["candidates.csv"]] == ["0.4", "2.5", "", "", ""]
    text = (tmp_path / "summary.md").read_text()
    assert re.search(r"\| correct rate +\| 0.333 ", text) and "| p " in text and "12345" not in text


def test_a_text_that_is_a_formula_is_made_harmless(tmp_path: Path) -> None:
    summary.save(tmp_path, summarized([replace(ENTRIES[2], reason="=1+1")]))

    assert "'=1+1" in (tmp_path / "candidates.csv").read_text()


def test_the_parquet_file_has_the_candidates_with_device_and_settings(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pd.read_parquet(summary.save_parquet(tmp_path, summarized()))

    assert list(table["candidate"]) == [one.candidate for one in ENTRIES]
    assert table["speedup"].dtype == "float64" and table["speedup"].isna().sum() == 3
    assert set(table["device"]) == {"NVIDIA H200"} and set(table["setting_baseline"]) == {"torch"}
    assert "seed" not in " ".join(table.columns)
    assert [path.name for path in tmp_path.iterdir()] == ["candidates.parquet"]


def test_without_pyarrow_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(UserError, match="pip install pyarrow"):
        summary.require_parquet()
