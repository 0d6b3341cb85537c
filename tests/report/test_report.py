"""The page: its contents, its charts, and that it loads and runs nothing from outside."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import itertools
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import ROOT
from support.pages import EMULATION, GPU, H200, HOSTILE, SHAPE, as_rounds, board, check, keep, result, timed, wrong

from kernel_harness import cli, report
from kernel_harness.core.paths import MEASURED
from kernel_harness.core.status import Status
from kernel_harness.problem import candidate, lookup, variants
from kernel_harness.report import charts, highlight, page, pictures, sheet
from kernel_harness.report.page import Page
from kernel_harness.results.journal import Journal
from kernel_harness.results.measurement import FurtherShape, Measurement
from kernel_harness.results.record import Kind, Result
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import summarize

PROBLEM = lookup.problem("matmul_tt", ROOT)


def made(records, device="nvidia-h200", shape=SHAPE) -> str:
    return report.render(Page(records, shape), PROBLEM, device, {}, [])


@functools.cache
def gpu_page() -> str:
    return made(board())


def seen(text: str) -> str:
    """The page's text without markup."""
    without = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.S)
    return html.unescape(re.sub(r"<[^>]*>", " ", without.replace("<wbr>", "")))


# -------------------------------------------------------------------------------------------- contents


def test_every_kernel_is_there_with_its_status_and_idea():
    text = seen(gpu_page())
    for name in ("fast", "tiled", "naive", "slowest", "untimed", "wrong_tail", "no_build"):
        assert name in text and f"The idea of {name}." in text
    assert "WRONG_VALUES" in text and "5 of 7" in text and "2 failed" in text


def test_a_failure_is_explained_with_the_command_that_reproduces_it():
    text = seen(made([wrong("tail")]))
    for words in (
        Status.WRONG_VALUES.sentence, "tail is wrong", "Try: look at the tail", "1.25", "nan", "[3, 2]", "the log",
        "python harness.py --kernel tail", "4 × 6 output",
    ):  # fmt: skip
        assert words in text, words


def test_a_timed_kernel_tells_its_share_of_the_bound():
    result = timed("a", 5.0, numbers={**H200, "least_ms": 2.0})
    share = 2.0 / result.timing.time_ms
    assert ("of the bound", f"{share:.1%}") in page.facts(result)
    assert f"{share:.1%}" in seen(made([result]))


def test_a_kernel_s_peak_memory_is_among_its_figures():
    results = {r.kernel: r for r in Journal(MEASURED / "matmul_tt" / "nvidia-h200").read()}
    assert ("peak memory", "361 MB") in page.facts(results["tiled_pretransposed"])


def test_a_gpu_s_page_has_every_picture():
    one = Page([*board(), timed("fast", 2.6, run="20260103-000000-abcd")], SHAPE)
    every = (pictures.speed, pictures.roofline, pictures.samples, pictures.phases, pictures.history)
    assert all(picture(one) for picture in every)
    text = made(one.results)
    for title in ("Speedup over torch", "Roofline", "Samples", "Build and check", "History"):
        assert f"<h2>{title}</h2>" in text
    assert text.count('<div class="chart wide"') == text.count('<div class="chart narrow"') == 5


def test_an_emulation_s_page_says_that_its_times_predict_no_gpu():
    text = made(board(EMULATION), "cpu-emulated")
    assert "do not predict a GPU" in seen(text)
    for word in ("Roofline", "Speedup", "speedup", "TFLOPS", "of the peak", "faster", "astest", "rank", "time (ms)"):
        assert word not in seen(text), word
    assert "Time per call in the emulation" in text and "emulation, ms" in seen(text)


def test_a_row_of_an_earlier_run_says_when_it_was_measured():
    text = seen(made([timed("a", 1.0), timed("b", 2.0, run="20260103-000000-abcd")]))
    assert text.count("measured 2026-01-02 03:04") == 2  # once in the row of a, once in the page's heading


def test_kernels_that_share_the_first_rank_are_not_one_fastest():
    first, second = (timed(name, 1.0, measured_at=f"2026-01-0{i}") for i, name in enumerate(("a", "b"), 1))
    rows = page.rows(Page([first, second], SHAPE))
    assert [row["rank"] for row in rows] == [1, 1]
    assert "rank shared with 1 other" in seen(made([first, second]))


def test_a_gpu_s_page_does_not_call_itself_emulated():
    assert "Emulated" not in seen(gpu_page())


@pytest.mark.parametrize("missing", H200)
def test_there_is_no_roofline_if_one_of_its_figures_is_missing(missing):
    numbers = {name: value for name, value in H200.items() if name != missing}
    assert pictures.roofline(Page([timed("a", 1.0, numbers=numbers)], SHAPE)) is None


def test_the_roofline_shows_what_was_measured_beside_the_data_sheet():
    measured = {"ceiling_bytes_per_s": 4.3e12, "ceiling_float32_flops_per_s": 5.1e13}
    picture = pictures.roofline(Page([timed("a", 3.0, numbers={**H200, **measured})], SHAPE))
    assert picture is not None
    for words in ("67 TFLOPS float32<", "4.8 TB/s<", "51 TFLOPS float32 measured<", "4.3 TB/s measured<"):
        assert words in picture.wide, words


TENSOR = {
    **H200, "peak_float16_flops_per_s": 9.89e14, "ceiling_float32_flops_per_s": 5.1e13,
    "ceiling_float16_flops_per_s": 7.1e14, "ceiling_bytes_per_s": 4.2e12,
}  # fmt: skip


def test_labels_of_the_roofline_do_not_overprint():
    """Kernels of nearly the same speed, kernels far below, one above the roof, and the labels of four roofs."""
    records = [timed(f"k{i}", 2.7 + i / 1000, numbers=TENSOR) for i in range(10)]
    records += [timed(f"slow{i}", 40.0 + i, numbers=TENSOR) for i in range(3)]
    picture = pictures.roofline(Page([*records, timed("wgmma", 0.7, numbers=TENSOR)], SHAPE))
    assert picture is not None
    for svg in (picture.wide, picture.narrow):
        labels = re.findall(r'x="([\d.]+)" y="([\d.]+)">(?:k\d|slow\d|wgmma|\d+ )', svg)
        heights = sorted(float(y) for _, y in labels)
        assert len(labels) >= 14 + 2 and len({x for x, _ in labels}) == 1
        assert min(b - a for a, b in itertools.pairwise(heights)) > 14


def test_a_kernel_above_the_peak_of_its_format_shows_both_peaks():
    fast, plain = timed("wgmma", 0.7, numbers=TENSOR), timed("plain", 3.0, numbers=TENSOR)
    text = seen(made([fast, plain]))
    assert "of 67 TFLOPS float32, 19.8% of 989 TFLOPS float16" in " ".join(text.split())
    assert "mostly in tensor cores, or does fewer operations" in text
    picture = pictures.roofline(Page([fast, plain], SHAPE))
    assert picture is not None and "989 TFLOPS float16<" in picture.wide
    assert "tensor cores" not in seen(made([plain]))


def test_a_speedup_close_to_1_has_the_digits_that_tell():
    text = made([timed("a", 3 / 1.004)])
    table = seen(text[text.index("<table") : text.index("</table")])
    assert re.search(r"\s1\.0\d\d×\s+\d\.\d{3} – \d\.\d{3}\s", table)


def test_a_page_of_many_kernels_stays_below_400_kb():
    """48 kernels, all with a source, and a third of them failed with a long log."""
    rounds = {f"k{i}": random.Random(i).choices([1 + i, 1.1 + i, 1.2 + i], k=100) for i in range(32)}
    arms = {k: as_rounds({"torch": [2.0] * 100, k: ms}) for k, ms in rounds.items()}
    times = [result(kernel, timing=summarize(each, kernel, "torch")) for kernel, each in arms.items()]
    records = [*times, *(replace(wrong(f"w{i}"), log="error: x\n" * 2000) for i in range(16))]
    records = [replace(one, checks=one.checks + (check(),) * 9) for one in records]
    source = (ROOT / "kernels" / "matmul_tt" / "tiled.py").read_text()
    sources = {one.kernel: candidate.Candidate(one.kernel, Path("k.py"), source) for one in records}
    text = report.render(Page(records, SHAPE), PROBLEM, "nvidia-h200", sources, [])
    assert len(text.encode()) < 400_000
    assert '<div class="source">' in text and "no room for the source" in text


def test_lines_of_code_in_a_reason_keep_their_form():
    reason = "k.cu:5: error: no x\n    5 |   c = a   + x;\n      |             ^\n  hint: declare x"
    text = made([result("k", Status.BUILD_ERROR, verdict=reason)])
    assert '<span class="code">    5 |   c = a   + x;</span><span class="code">      |             ^</span>' in text
    assert '<span class="under reason">k.cu:5: error: no x</span>' in text.replace("&#39;", "'")


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("SIGSEGV", "a thread reads or writes beyond an array"),
        ("thread (0, 0, 0) waits at wgmma.py:9 for a phase of the mbarrier at byte 0", "compare the arrivals with"),
        ("thread (0, 0, 0) waits at wgmma.py:9 for a wgmma that only 96 of the 128 threads", "all 128 threads of a"),
        ("thread (0, 0, 0) waits at wgmma.py:9 at the barrier of its cluster, which", "every thread of every block"),
        ("unspecified launch failure (wgmma.py:9)", "every thread of the block must reach each"),
    ],
)
def test_a_failure_outside_the_comparison_has_its_advice(said: str, advice: str):
    broken = result("k", Status.CRASHED, verdict=said, checks=())
    assert f"Try: {advice}" in seen(made([broken]))


def test_facts_of_the_environment_are_written_for_readers():
    raw = {
        "capability": [9, 0], "null_call_ms": 0.0027199999894946814, "l2_bytes": 62914560, "slowed": "", "dirty": True,
        "computing_processes": 1, "nvcc": "nvcc: NVIDIA\nCuda compilation tools, release 13.0, V13.0.88\nBuild 3642",
        "processor": "Intel(R) Xeon(R) 0e3fbd34", "commit": "90f62a1ab421994406e47ebfe989f567b69d5287",
    }  # fmt: skip
    facts = page.facts_of(timed("a", 1.0, environment=raw))
    assert facts == {
        "compute capability": "9.0", "an empty kernel takes": "2.7 us", "L2 cache": "60 MiB",
        "uncommitted changes": "yes", "nvcc": "V13.0.88", "processor": "Intel(R) Xeon(R)", "commit": "90f62a1ab4",
        "run": "20260102-030405-abcd",
    }  # fmt: skip


def test_results_without_a_time_still_make_a_page():
    text = seen(made([result("no_build", Status.BUILD_ERROR)]))
    assert "0 of 1" in text and "Samples" not in text


def test_only_the_shape_s_own_results_are_on_its_page():
    other = {"M": 1, "K": 1, "N": 1}
    assert "elsewhere" not in made([timed("here", 1.0), timed("elsewhere", 1.0, shape=other)])


def test_an_interval_that_holds_1_claims_nothing():
    rows = {row["kernel"]: row["versus"] for row in page.rows(Page([timed("even", 3.0), timed("slow", 9.0)], SHAPE))}
    assert rows["slow"] == "slower" and rows["even"] in ("same", "undecided")


def test_the_same_results_make_the_same_page():
    assert made(board()) == gpu_page()


def test_a_remark_on_a_kernel_that_passed_is_shown_and_is_no_failure():
    text = seen(made([timed("a", 1.0, verdict="Remark: line 3 uses torch.compile.")]))
    assert "line 3 uses torch.compile" in text and "Failures" not in text


@pytest.mark.slow
def test_charts_show_the_first_24_kernels_and_the_table_shows_all():
    text = made([timed(f"k{i}", 1.0 + i) for i in range(60)])
    table = text[text.index("<table") : text.index("</table")]
    charts = "".join(re.findall(r"<svg.*?</svg>", text, re.S))
    assert all(f">k{i}<" in table for i in (0, 59))
    assert ">k0<" in charts and ">k59<" not in charts and "first 24 kernels" in seen(text)


# ------------------------------------------------------------------------------------------------ sizes


def at_sizes(*sizes: int, **more: Any) -> list[Result]:
    found = []
    for size in sizes:
        given = {"shape": {**SHAPE, "M": size}, "numbers": {**H200, "flops": 1e6 * size}, **more}
        found += [timed("mine", size / 256, **given), timed("torch", 3.0, kind=Kind.BASELINE, **given)]
    return found


def test_time_speedup_and_throughput_are_drawn_over_the_shapes():
    results = at_sizes(512, 2048, 256, 1024)
    (time, speedup, throughput) = pictures.sizes(Page(results, SHAPE), results)
    assert [title.split()[0] for title, _ in (time, speedup, throughput)] == ["Time", "Speedup", "Throughput"]
    texts = re.findall(r">([^<>]+)</text>", time[1].wide)
    assert texts[:5] == ["256", "512", "1024", "2048", "M"]
    (mine,) = (r for r in results if r.kernel == "mine" and r.shape["M"] == 256)
    assert mine.timing and f"mine, 256: {mine.timing.time_ms:.4g} ms" in time[1].wide
    assert f"mine, 256: {1e6 * 256 / mine.timing.time_ms / 1e9:.4g}<" in throughput[1].wide
    assert "torch, 256" in time[1].wide and "torch, 256" not in speedup[1].wide
    assert "Speedup at each shape" in report.render(Page(results, SHAPE), PROBLEM, "gpu", {}, [], everything=results)


def test_a_page_shows_the_share_of_the_own_kernels_where_it_is_known():
    known, unknown = timed("a", 1.5, measurement=Measurement(own_share=0.42)), timed("b", 2.0)
    assert "own kernels" in seen(made([known, unknown])) and "42%" in seen(made([known, unknown]))
    assert "own kernels" not in seen(made([unknown]))


def test_a_page_at_several_shapes_shows_the_mean_and_the_worst_shape_and_draws_each():
    further = FurtherShape({**SHAPE, "M": 64}, timed("a", 6.0).timing, numbers=H200)
    several, alone = timed("a", 1.5, further=(further,)), timed("b", 9.0)
    shown = Page([several, alone], SHAPE, [further.shape])
    text = seen(report.render(shown, PROBLEM, "nvidia-h200", {}, [], everything=[several]))
    assert list(shown.latest) == ["a"] and "geometric mean" in text and "at M=64,K=8192,N=4096" in text
    (row,) = page.rows(shown)
    assert row["worst"].startswith("0.5") and row["worst"].endswith("at M=64,K=8192,N=4096")
    assert row["speedup"] == pytest.approx(1.0, abs=0.02)
    assert next(title for title, _ in pictures.sizes(shown, [several])) == "Time at each shape"


def test_an_emulation_s_shapes_have_times_alone():
    results = at_sizes(256, 512, environment=EMULATION, emulated=True)
    assert [title for title, _ in pictures.sizes(Page(results, results[0].shape), results)] == ["Time at each shape"]


def test_one_shape_or_another_machine_is_nothing_to_draw_over():
    one, other = at_sizes(256, environment={**GPU, "processor": "x"}), at_sizes(2048)
    assert pictures.sizes(Page(other, SHAPE), [*one, *other]) == pictures.sizes(Page([], SHAPE), []) == []


# --------------------------------------------------------------------------------------------- history


def test_one_run_is_no_history():
    assert pictures.history(Page(board(), SHAPE)) is None


def test_the_history_has_the_runs_of_one_machine():
    def of(machine: str, run: str) -> Result:
        return timed("a", 1.0, run=run, environment={**GPU, "processor": machine}, measured_at=f"2026-01-{run}T00:00")

    picture = pictures.history(Page([of("one", "01"), of("another", "02"), of("one", "03")], SHAPE))
    assert picture is not None and "01-03" in picture.wide and "01-02" not in picture.wide
    assert pictures.history(Page([of("one", "01"), of("another", "02")], SHAPE)) is None


def test_runs_are_listed_latest_first_with_what_failed():
    records = [result("a", run="20260101"), result("a", Status.CRASHED, run="20260102"), result("b", run="20260102")]
    runs = page.runs(Page(records, SHAPE))
    assert [(r["run"], len(r["kernels"]), r["failed"]) for r in runs] == [("20260102", 2, ["a"]), ("20260101", 1, [])]
    assert "compare 20260101 20260102" in seen(made(records))


def test_a_changed_source_is_marked_in_the_history():
    records = [
        timed("a", 3.0, run="1"), timed("a", 2.0, run="2", source_sha256="cd" * 32),
        timed("a", 2.0, run="3", source_sha256="cd" * 32),
    ]  # fmt: skip
    picture = pictures.history(Page(records, SHAPE))
    assert picture is not None and picture.wide.count("new source") == 1


def at_revision(commit: str, run: str, kernel: str = "a", *, dirty: bool = False) -> Result:
    return timed(kernel, float(run), run=run, environment={**GPU, "commit": commit * 40, "dirty": dirty})


def test_kernels_of_several_revisions_have_a_line_over_them():
    records = [
        at_revision("e", "1"), at_revision("e", "2", dirty=True), at_revision("d", "3"), at_revision("e", "4"),
        at_revision("d", "5", "once"), timed("a", 6.0, run="6"),
    ]  # fmt: skip
    page = Page(records, SHAPE)
    picture = pictures.revisions(page)
    assert picture is not None and "once" not in picture.wide
    tips = re.findall(r"a, (\w+\+?): ([\d.]+)×", picture.wide)
    assert [commit for commit, _ in tips] == ["eeeeeee", "eeeeeee+", "ddddddd"]
    assert float(tips[0][1]) == pytest.approx(3 / 4, rel=0.02)  # of the last run at that revision
    assert "over the git revisions" in seen(made(records))


@pytest.mark.parametrize("last", [at_revision("e", "2"), at_revision("d", "2", "b"), timed("a", 2.0, run="2")])
def test_one_revision_of_each_kernel_is_no_history_of_revisions(last: Result):
    records = [at_revision("e", "1"), last]
    assert pictures.revisions(Page(records, SHAPE)) is None
    assert "over the git revisions" not in seen(made(records))


def test_a_fact_that_differs_between_kernels_names_them():
    records = [timed("a", 1.0), timed("b", 2.0, environment={**GPU, "torch": "2.12.0"})]
    facts = dict(page.environment(Page(records, SHAPE)))
    assert facts["torch"] == [("2.11.0", "a"), ("2.12.0", "b")]
    assert facts["memory"] == [("139.8 GiB", "")]


# ----------------------------------------------------------------------------------------------- parts


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_map_of_errors_is_drawn_cell_by_cell(cells):
    drawn = [[0.0] * 3 for _ in cells]
    for row, column, count, share in page.map_spans(cells):
        for x in range(column, column + count):
            assert not drawn[row][x]
            drawn[row][x] = share
    assert drawn == cells


@pytest.mark.parametrize("path", candidate.files(ROOT / "kernels" / "matmul_tt"), ids=lambda p: p.stem)
def test_a_listing_contains_the_exact_source(path):
    text = re.sub(r'<pre class="linenos">.*?</pre>', "", highlight.html(path.read_text(), path.suffix), flags=re.S)
    assert html.unescape(re.sub(r"<[^>]*>", "", text)).strip() == path.read_text().strip()


def test_cuda_in_a_python_string_is_read_as_cuda():
    source = 'CUDA = r"""\n#include <a.h>\n__global__ void k() {}\n"""\n'
    assert re.search(r'class="k[a-z]?">__global__<', highlight.html(source, ".py"))


# ---------------------------------------------------------------------------------------------- safety


def test_the_page_may_run_its_own_script_only_and_load_nothing():
    text = gpu_page()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    links = re.findall(r'(?:href|src)="([^"]*)"', text)
    assert links and all(link.startswith("#") for link in links)


def test_texts_from_a_kernel_are_never_markup():
    """Names, ideas, reasons and logs come from files that a program may have written."""
    records = [
        timed(HOSTILE, 1.0, title=HOSTILE), timed(f"$x{HOSTILE}", 2.0, run="2"),
        result(f"--><{HOSTILE}", Status.CRASHED, title=HOSTILE, verdict=HOSTILE, log=HOSTILE + ".", reproduce=HOSTILE),
    ]  # fmt: skip
    text = made(records)
    assert "<img" not in text and text.count("<script") == 1 and "<!--" not in text


def test_a_name_that_looks_like_mathematics_is_drawn_as_it_is():
    picture = pictures.speed(Page([timed("$a$_$b$", 1.0)], SHAPE))
    assert picture is not None and ">$a$_$b$<" in picture.wide and ">$a$_$b$<" in picture.narrow


# ----------------------------------------------------------------------------------------- the command


def results_in(tmp_path: Path) -> Path:
    keep(tmp_path / "matmul_tt" / "nvidia-h200", *board(), timed("fast", 1.0, shape={**SHAPE, "M": 64}))
    emulated = PROBLEM.cpu_shape
    keep(
        tmp_path / "matmul_tt" / "cpu-emulated",
        timed("fast", 1.0, shape=emulated, environment=EMULATION, emulated=True),
    )
    return tmp_path


def test_there_is_a_page_per_device_and_shape_with_links_between_shapes(tmp_path, capsys):
    results = results_in(tmp_path)
    assert cli.main(["report", "matmul_tt", "--results", str(results)]) == 0
    written = [Path(line).relative_to(results / "matmul_tt") for line in capsys.readouterr().out.splitlines()]
    assert list(map(str, written)) == [
        "cpu-emulated/report.html", "nvidia-h200/report.html", "nvidia-h200/report-M64-K8192-N4096.html",
    ]  # fmt: skip
    usual = (results / "matmul_tt" / "nvidia-h200" / "report.html").read_text()
    assert 'href="report-M64-K8192-N4096.html"' in usual


def test_a_kernel_s_source_is_on_the_page_and_marked_if_it_changed(tmp_path):
    tiled = candidate.read(ROOT / "kernels" / "matmul_tt" / "tiled.py")
    (variant,) = variants.of([tiled], [("TILE_K", ["8"])])
    judged = [timed(each.name, 1.0, source_sha256=each.sha256) for each in (tiled, variant)]
    folder = keep(tmp_path / "d", *judged, timed("naive", 1.0), timed("x", 1.0))
    (path,) = report.write(PROBLEM, folder, ROOT)
    kernels = re.findall(r'<details class="kernel".*?sha256', path.read_text(), re.S)
    told = {seen(k).split()[0]: k for k in kernels}
    assert "__global__" in seen(told["tiled"]) and "changed since" not in told["tiled"]
    assert re.search(r"TILE_K\s*=\s*8\s*;", seen(told[variant.name])) and "changed since" not in told[variant.name]
    assert "changed since it was judged" in told["naive"]
    assert "has no file of this name" in seen(told["x"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmul_tt"], "no results of matmul_tt"),
        ([], "no results in"),
        (["matmul"], "did you mean 'matmul_tt'"),
    ],
)
def test_without_results_one_sentence_says_so(tmp_path, capsys, words, message):
    assert cli.main(["report", *words, "--results", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and not said.out


@pytest.mark.parametrize("width", [sheet.WIDE, sheet.NARROW])
@pytest.mark.parametrize("count", [2, 3, 9])
def test_the_points_of_eight_lines_lie_inside_the_chart_and_nearest_to_their_place(width: int, count: int) -> None:
    values = [(i, Interval(1.0, 2.0, 3.0), False) for i in range(count)]
    series = [charts.Series(f"k{i}", values) for i in range(charts.SERIES)]
    svg = charts.lines(series, [str(i) for i in range(count)], " ms", ("n", "t"), width)
    left, wide = map(
        float, re.search(r'<clipPath id="\w+"><rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg).groups()
    )
    xs = [float(x) for x in re.findall(r'<use xlink:href="#\w+" x="([\d.]+)"', svg)]

    assert len(xs) == count * charts.SERIES
    assert [int((x - left) / (wide / count)) for x in xs] == [i for _ in series for i in range(count)]
