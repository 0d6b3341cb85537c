"""Writes HTML pages from stored results, one per problem, device and shape. Updates leaderboards in a README."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernel_harness.checking import timed_shapes
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import command
from kernel_harness.problem import lookup, variants
from kernel_harness.problem.candidate import Candidate, read
from kernel_harness.problem.problem import Problem, Shape, shape_text
from kernel_harness.report import devices, highlight, page, readme
from kernel_harness.report.page import Page
from kernel_harness.report.templating import rendered
from kernel_harness.results import failure_text, journal, leaderboard, line_profile, ranking, rows
from kernel_harness.results.journal import Journal
from kernel_harness.results.line_profile import StoredProfile
from kernel_harness.results.record import Result

MOST_BYTES = 400_000  # a page lists kernel sources, in the order of its table, as long as it stays below this size


def pages(problems: Sequence[str], results: Path, root: Path) -> list[Path]:
    """Writes the HTML pages of the problems named in `problems`. Returns the paths of the pages.

    A problem has a page for each device and shape with results. An empty `problems` stands for all problems that have
    results. `results` is the folder of stored results, `root` the folder with `problems/` and `kernels/`. Raises
    UserError if a problem in `problems` does not exist or has no results, or if `problems` is empty and there are no
    results. Raises Unwritable if a page cannot be written.
    """
    written = []
    for name in problems or _with_results(results, root):
        problem = lookup.problem(name, root)
        folders = sorted(path.parent for path in (results / problem.name).glob("*/runs.jsonl"))
        if not folders:
            raise UserError(f"there are no results of {problem.name} in {results}; a run stores some")
        for folder in folders:
            written += write(problem, folder, root)
    return written


def device_pages(problems: Sequence[str], results: Path, root: Path) -> list[Path]:
    """Writes a page for each problem in `problems`, and for each shape, with the results of all devices side by side.

    Returns the paths of the pages. An empty `problems` stands for all problems that have such pages. For `results` and
    `root`, and for what is raised, see `pages`. Also raises UserError if a problem in `problems` does not have results
    of two devices at one shape, or if no problem has.
    """
    written = []
    for name in problems or _with_results(results, root):
        problem = lookup.problem(name, root)
        tables = devices.columns(results / problem.name)
        if problems and not tables:
            raise _no_two_devices(results / problem.name)
        for shape, columns in tables.items():
            path = results / problem.name / f"{_stem('devices', dict(shape), problem.shape)}.html"
            journal.write(path, devices.render(problem.name, shape, columns))
            written.append(path)
    if not written:
        raise _no_two_devices(results)
    return written


def _no_two_devices(folder: Path) -> UserError:
    return UserError(
        f"{folder} has no results of two devices at one shape; copy another machine's folder <problem>/<device> beside "
        "this machine's, under a name of its own"
    )


def rewrite_readme(path: Path, results: Path, root: Path) -> list[str]:
    """Replaces each leaderboard in the file `path`. Returns their names, as `problem/device`.

    A leaderboard is between two marker lines, HTML comments of which the first names problem and device. `results` is
    the folder of stored results, `root` the folder with `problems/` and `kernels/`. Raises UserError if a marker is
    wrong, if there are no results of its problem and device at the problem's usual shape, or if the file cannot be
    written.
    """
    return readme.rewrite(path, lambda name, device: _table(results, name, device, root))


def write(problem: Problem, folder: Path, root: Path) -> list[Path]:
    """Writes an HTML page for each shape, or group of shapes, of the results in `folder`. Returns the paths.

    `folder` has the results of one problem on one device. `root` is the folder with `kernels/`. Raises Unwritable if a
    page cannot be written.
    """
    results = Journal(folder).read()
    usual = _at_usual_shape(problem, results)
    usual_further = [there.shape for there in timed_shapes.of_file(usual)]
    stems = {_stem("report", s, usual.shape, more, usual_further): (s, more) for s, more in ranking.timed_at(results)}
    files = {c.name: c for c in map(read, lookup.kernel_files(problem.name, root))}
    sources = {r.kernel: source for r in results if (source := variants.named(r.kernel, files))}
    profiles = line_profile.stored(folder.parent / rows.EMULATED / "profiles")
    written = []
    for stem, at in sorted(stems.items()):
        others = [(_named(*each), f"{name}.html") for name, each in sorted(stems.items()) if name != stem]
        html = render(Page(results, *at), problem, folder.name, sources, others, profiles, results)
        journal.write(folder / f"{stem}.html", html)
        written.append(folder / f"{stem}.html")
    return written


def render(
    one: Page, problem: Problem, device: str, sources: Mapping[str, Candidate], others: Sequence[tuple[str, str]],
    profiles: Mapping[str, StoredProfile] = MappingProxyType({}), everything: Sequence[Result] = (),
) -> str:  # fmt: skip
    """Returns the page `one` as HTML text, with a security policy that forbids a browser to load other files for it.

    `device` is the name of the folder with the device's results. `sources` has the kernel files by kernel name, as
    these files are now. `others` has a link text and a file name for each page of another shape. `profiles` has stored
    profiles by kernel name, and `everything` the results at all shapes. Raises EnvironmentLacking if matplotlib is not
    installed.
    """
    from kernel_harness.report import pictures

    rows = page.rows(one)
    values: dict[str, Any] = dict(
        problem=problem.name, about=problem.title, device=device,
        device_name=" and ".join(sorted({result.device for result in one.latest.values()})),
        shape="; ".join(", ".join(f"{n} = {v}" for n, v in shape.items()) for shape in (one.shape, *one.further)),
        others=others,
        measured_at=max((r.measured_at for r in one.results), default="")[:16].replace("T", " "),
        emulated=one.emulated, tiles=page.tiles(rows, one), rows=rows,
        columns=page.columns(rows, one), baseline=one.baseline,
        most_rows=pictures.MOST_ROWS, order={row["kernel"]: i for i, row in enumerate(rows)},
        anchors={row["kernel"]: f"kernel-{i}" for i, row in enumerate(rows)},
        pictures={
            "speed": pictures.speed(one), "roofline": pictures.roofline(one),
            "samples": pictures.samples(one), "phases": pictures.phases(one),
            "history": pictures.history(one), "revisions": pictures.revisions(one),
            "sizes": pictures.sizes(one, everything),
        },
        failures=[r for r in one.latest.values() if not r.passed], advice=failure_text.advice,
        above_peak=leaderboard.ABOVE_PEAK_NOTE if any((row["percent_of_peak"] or 0) > 100 for row in rows) else "",
        map_spans=page.map_spans, runs=page.runs(one), environment=page.environment(one),
    )  # fmt: skip
    kernels = _kernels(one, sources, profiles)
    room = MOST_BYTES - len(rendered("report", highlight.css(), kernels=kernels, **values).encode())
    for kernel in kernels:
        source = sources.get(kernel["result"].kernel)
        listing = highlight.html(source.source, source.path.suffix) if source else ""
        size = len(listing.encode())
        if size <= room:
            kernel["listing"], room = listing, room - size
        else:
            kernel["source_note"] = "The page has no room for the source of this kernel."
    return rendered("report", highlight.css(), kernels=kernels, **values)


def _table(folder: Path, name: str, device: str, root: Path) -> str:
    problem = lookup.problem(name, root)
    results = Journal(folder / problem.name / device).read()
    usual = _at_usual_shape(problem, results)
    table = leaderboard.rank(results, usual.shape, [there.shape for there in timed_shapes.of_file(usual)])
    if not table:
        raise UserError(
            f"there are no results of {name} on {device} at the problem's usual shape in {folder}; a run on "
            "that device stores some, unless --shape names another shape"
        )
    return leaderboard.render(table, "github")


def _with_results(results: Path, root: Path) -> list[str]:
    names = [name for name in lookup.problem_names(root) if any((results / name).glob("*/runs.jsonl"))]
    if not names:
        raise UserError(f"there are no results in {results}; a run stores some: {shlex.join(command())} --problem NAME")
    return names


def _at_usual_shape(problem: Problem, results: Sequence[Result]) -> Problem:
    """Returns the problem at its usual shape on the device of these results, a GPU or the emulated device."""
    return problem.on(emulated=any(result.emulated for result in results))


def _stem(name: str, shape: Shape, usual: Shape, further: Sequence[Shape] = (), own: Sequence[Shape] = ()) -> str:
    return re.sub("^leaderboard", name, leaderboard.file_stem(shape, usual, further, own))


def _named(shape: Shape, further: Sequence[Shape]) -> str:
    return "; ".join(map(shape_text, (shape, *further)))


def _kernels(
    one: Page, sources: Mapping[str, Candidate], profiles: Mapping[str, StoredProfile]
) -> list[dict[str, Any]]:
    """Returns what the page's section of each kernel shows, without the listing of its source."""
    found: list[dict[str, Any]] = []
    for name, result in one.latest.items():
        source = sources.get(name)
        if source is None:
            note = "The folder of the problem's kernels has no file of this name."
        else:
            note = "" if source.sha256 == result.source_sha256 else " (the file has changed since it was judged)"
        if not result.is_baseline:
            found.append({
                "result": result, "facts": page.facts(result), "remark": result.reason if result.passed else "",
                "source_note": note, "listing": "", "profile": page.profile_of(result, profiles),
            })  # fmt: skip
    return found
