"""The verb `report`: stored results -> one page per problem, device and shape, or the leaderboards in a README."""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from kernel_harness import find, leaderboard, listing, page, readme
from kernel_harness.candidate import Candidate, files, read
from kernel_harness.errors import UserError
from kernel_harness.files import replace_text
from kernel_harness.page import Page
from kernel_harness.problem import Problem, shape_text
from kernel_harness.results import Journal, writing
from kernel_harness.run import problem_on

TEMPLATES = Path(__file__).parent / "templates"
# (key, title, kind, form) of the table's columns; those that are empty throughout are left out.
_COLUMNS = (
    ("rank", "#", "number", "{}"), ("kernel", "kernel", "name", ""), ("status", "status", "text", ""),
    ("time_ms", "time (ms)", "number", ""), ("speedup", "speedup", "number", ""), ("versus", "vs torch", "text", ""),
    ("tflops", "TFLOPS", "number", ""), ("percent_of_peak", "% of peak", "number", ""),
    ("max_abs_error", "max error", "number", ""),
    ("shapes", "shapes", "text", ""), ("build_s", "build (s)", "number", "{:.1f}"),
)  # fmt: skip


def run(options: argparse.Namespace, root: Path) -> int:
    """Writes what was asked for and prints where it is. Raises UserError where there is nothing to write from."""
    if options.readme is not None:
        names = readme.rewrite(options.readme, lambda name, device: _table(options.results, name, device, root))
        print(f"{options.readme}: {', '.join(names)}")
        return 0
    for name in options.problem or _with_results(options.results, root):
        problem = find.problem(name, root)
        folders = sorted(path.parent for path in (options.results / problem.name).glob("*/runs.jsonl"))
        if not folders:
            raise UserError(f"no results of {problem.name} in {options.results}; a run makes them")
        for folder in folders:
            for path in write(problem, folder, root):
                print(path)
    return 0


def write(problem: Problem, folder: Path, root: Path) -> list[Path]:
    """A page per shape that the folder holds results of. Their paths; raises results.Unwritable."""
    records = Journal(folder).read()
    usual = _default(problem, folder.name)
    shapes = list({tuple(r["shape"].items()): r["shape"] for r in records}.values())
    stems = {_stem(shape, usual.shape): shape for shape in shapes}
    sources = {c.name: c for c in map(read, files(root / "kernels" / problem.name))}
    written = []
    for stem, shape in sorted(stems.items()):
        others = [(shape_text(s), f"{name}.html") for name, s in sorted(stems.items()) if name != stem]
        html = render(Page(records, shape), problem, folder.name, sources, others)
        with writing(folder / f"{stem}.html"):
            replace_text(folder / f"{stem}.html", html)
        written.append(folder / f"{stem}.html")
    return written


def render(
    one: Page, problem: Problem, device: str, sources: Mapping[str, Candidate], others: Sequence[tuple[str, str]]
) -> str:
    """The page as text: everything is in it, and nothing in it may load or run anything else."""
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rows = page.rows(one)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["breakable"] = _breakable
    return environment.get_template("report.html").render(
        problem=problem.name, about=_first_line(problem), device=device, device_name=_device_name(one),
        shape=", ".join(f"{name} = {value}" for name, value in one.shape.items()), others=others,
        measured_at=max((r["measured_at"] for r in one.records), default="")[:16].replace("T", " "),
        emulated=one.emulated, tiles=_tiles(rows, one.emulated), rows=rows, columns=_columns(rows),
        order={row["kernel"]: i for i, row in enumerate(rows)},
        anchors={row["kernel"]: f"kernel-{i}" for i, row in enumerate(rows)},
        pictures={
            "speed": page.speed_picture(one), "roofline": page.roofline_picture(one),
            "samples": page.samples_picture(one), "phases": page.phases_picture(one),
            "history": page.history_picture(one),
        },
        failures=page.failures(one), map_spans=page.map_spans, kernels=_kernels(one, sources), runs=page.runs(one),
        environment=page.environment(one), script=script, script_hash=f"sha256-{digest}",
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8") + listing.css(),
    )  # fmt: skip


def _table(results: Path, name: str, device: str, root: Path) -> str:
    problem = _default(find.problem(name, root), device)
    records = Journal(results / problem.name / device).read()
    table = leaderboard.rank(records, problem.shape)
    if table.empty:
        raise UserError(f"no results of {name} on {device} in {results}; a run there makes them")
    return leaderboard.render(table, "github")


def _with_results(results: Path, root: Path) -> list[str]:
    names = [name for name in find.problem_names(root) if any((results / name).glob("*/runs.jsonl"))]
    if not names:
        raise UserError(f"no results in {results}; a run makes them: python harness.py --problem NAME")
    return names


def _default(problem: Problem, device: str) -> Problem:
    """At the shape that the device's main leaderboard is of."""
    return problem_on(problem, device == leaderboard.EMULATED)


def _stem(shape: Mapping[str, int], usual: Mapping[str, int]) -> str:
    return re.sub("^leaderboard", "report", leaderboard.file_stem(shape, usual))


def _breakable(name: str) -> Markup:
    """A name that may be broken after its underscores where it does not fit."""
    return Markup("_<wbr>").join(str(name).split("_"))


def _first_line(problem: Problem) -> str:
    return (problem.module.__doc__ or "").strip().split("\n")[0]


def _device_name(one: Page) -> str:
    names = {str(r["environment"].get("device", "")) for r in one.latest.values()}
    return " and ".join(sorted(names))


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {"key": key, "title": title, "kind": kind, "form": form}
        for key, title, kind, form in _COLUMNS
        if key in ("rank", "kernel", "status") or any(row[key] is not None for row in rows)
    ]


def _tiles(rows: Sequence[Mapping[str, Any]], emulated: bool) -> list[dict[str, str]]:
    """The page in four figures."""
    kernels = [row for row in rows if not row["baseline"]]
    passed = [row for row in kernels if row["status"] == "PASSED"]
    failed = len(kernels) - len(passed)
    tiles = [{
        "name": "Correct", "value": f"{len(passed)} of {len(kernels)}", "mood": "bad" if failed else "good",
        "detail": f"{failed} failed" if failed else "every check passed",
    }]  # fmt: skip
    best = next((row for row in rows if row["rank"] == 1), None)
    if best is None:
        return tiles
    tiles.append({"name": "Fastest", "value": best["kernel"], "mood": "", "detail": f"{best['time_ms']:.4g} ms"})
    if emulated or best["speedup"] is None:
        return tiles
    bounds = f"95%: {best['speedup_low']:.3g} – {best['speedup_high']:.3g}" if best["speedup_low"] else "too few rounds"
    tiles.append(
        {"name": f"Against torch: {best['versus']}", "value": f"{best['speedup']:.3g}×", "mood": "", "detail": bounds}
    )
    if best["percent_of_peak"] is not None:
        detail = f"{best['tflops']:.3g} TFLOPS" if best["tflops"] else ""
        tiles.append({"name": "Of the peak", "value": f"{best['percent_of_peak']:.3g}%", "mood": "", "detail": detail})
    return tiles


def _kernels(one: Page, sources: Mapping[str, Candidate]) -> list[dict[str, Any]]:
    found = []
    for name, record in one.latest.items():
        if record["kind"] != "candidate":
            continue
        source = sources.get(name)
        if source is None:
            note = "The file is not among the problem's kernels."
        else:
            note = "" if source.sha256 == record["source_sha256"] else " (changed since it was judged)"
        found.append({
            "name": name, "title": record["title"], "status": record["status"], "checks": record["checks"],
            "sha256": record["source_sha256"], "source_note": note,
            "listing": listing.html(source.source, source.path.suffix) if source else "",
        })  # fmt: skip
    return found
