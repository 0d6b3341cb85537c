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

from kernel_harness import find, leaderboard, underway
from kernel_harness.candidate import Candidate, files, read
from kernel_harness.errors import UserError
from kernel_harness.files import replace_text
from kernel_harness.problem import Problem, shape_text
from kernel_harness.report import highlight, page, readme
from kernel_harness.report.page import Page
from kernel_harness.results import Journal, writing

MOST_SOURCES = 100  # a listing takes 30 kB
TEMPLATES = Path(__file__).parent / "templates"


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
    records = underway.read(Journal(folder))
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
    """The page as text: everything is in it, and nothing in it may load or run anything else.

    Raises EnvironmentLacking where matplotlib is not installed.
    """
    from kernel_harness.report import pictures  # takes a second that a README does not need

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
        emulated=one.emulated, tiles=page.tiles(rows, one), rows=rows,
        columns=page.columns(rows, one.baseline), baseline=one.baseline,
        most_rows=pictures.MOST_ROWS, order={row["kernel"]: i for i, row in enumerate(rows)},
        anchors={row["kernel"]: f"kernel-{i}" for i, row in enumerate(rows)},
        pictures={
            "speed": pictures.speed(one), "roofline": pictures.roofline(one),
            "samples": pictures.samples(one), "phases": pictures.phases(one),
            "history": pictures.history(one),
        },
        failures=page.failures(one), map_spans=page.map_spans, kernels=_kernels(one, rows, sources),
        runs=page.runs(one), environment=page.environment(one), script=script, script_hash=f"sha256-{digest}",
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8") + highlight.css(),
    )  # fmt: skip


def _table(results: Path, name: str, device: str, root: Path) -> str:
    problem = _default(find.problem(name, root), device)
    records = underway.read(Journal(results / problem.name / device))
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
    return problem.on(emulated=device == leaderboard.EMULATED)


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


def _kernels(one: Page, rows: Sequence[Mapping[str, Any]], sources: Mapping[str, Candidate]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    facts = {row["kernel"]: page.facts(row) for row in rows}
    for name, record in one.latest.items():
        if record["kind"] != "candidate":
            continue
        source = sources.get(name)
        if len(found) >= MOST_SOURCES:
            source, note = None, f"Only the first {MOST_SOURCES} kernels' sources are on the page."
        elif source is None:
            note = "The file is not among the problem's kernels."
        else:
            note = "" if source.sha256 == record["source_sha256"] else " (changed since it was judged)"
        found.append({
            "name": name, "title": record["title"], "status": record["status"], "facts": facts[name],
            "checks": record["checks"],
            "sha256": record["source_sha256"],
            "remark": record["reason"] if record["status"] == "PASSED" else "", "source_note": note,
            "listing": highlight.html(source.source, source.path.suffix) if source else "",
        })  # fmt: skip
    return found
