"""The documentation agrees with the code: its links, paths, names and the picture of the packages."""

from __future__ import annotations

import re
import runpy
from graphlib import CycleError
from pathlib import Path
from typing import Any

import pytest
from support.command import ROOT

from kernel_harness import cli, sandbox
from kernel_harness.cli.arguments import EXIT_CODES
from kernel_harness.core.status import Status
from kernel_harness.results import leaderboard

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "cuda_on_cpu" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
PACKAGES: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "packages.py"))
PACKAGE, EMULATION = ROOT / "kernel_harness", ROOT / "cuda_on_cpu"
TOP_FOLDERS = ("kernel_harness", "cuda_on_cpu", "tests", "benchmarks", "docs", "problems", "kernels")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the page's headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_imports_between_packages_have_no_cycle() -> None:
    for root in (PACKAGE, EMULATION):
        PACKAGES["order"](PACKAGES["graph"](root))


def test_a_cycle_is_found() -> None:
    with pytest.raises(CycleError):
        PACKAGES["order"]({"a": frozenset("b"), "b": frozenset("a")})


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    imports = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset()}

    assert PACKAGES["direct"](imports) == {"a": ["b"], "b": ["c"], "c": []}


def test_the_picture_of_the_packages_is_up_to_date() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()

    assert PACKAGES["with_picture"](text) == text, "run: python docs/packages.py"


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_of_the_checkout_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(TOP_FOLDERS)})/[\w./-]*)`", prose(page))

    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_below_the_package_exist(page: Path) -> None:
    packages = [folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()]
    named = re.findall(rf"`((?:{'|'.join(packages)})/\w+\.py)`", prose(page))

    assert not [path for path in named if not (PACKAGE / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_fit_in_120_characters_outside_tables(page: Path) -> None:
    lines = FENCED.sub("", page.read_text()).splitlines()

    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


def test_every_page_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()

    assert not [page.name for page in PAGES[1:] if page.name not in text]


def test_every_verb_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()

    assert not [verb for verb in cli.VERBS if f"| `{verb}" not in text]


def test_exit_codes_have_the_same_words_as_in_the_help() -> None:
    section = (ROOT / "docs" / "problems-and-kernels.md").read_text().split("## Commands and exit codes")[1]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", section.split("\n## ")[0], re.MULTILINE)

    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


def test_every_status_is_explained() -> None:
    text = (ROOT / "docs" / "verdicts.md").read_text()

    assert not [status for status in Status if f"| `{status}` |" not in text]


def test_every_column_of_the_leaderboard_is_explained_in_order() -> None:
    text = (ROOT / "docs" / "results-format.md").read_text()
    section = text.split("## The columns")[1].split("\n## ")[0]

    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == leaderboard.COLUMNS


def test_every_wall_is_in_the_threat_model() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text()

    assert not [kind for kind in sandbox.Kind if f"| `{kind}` |" not in text]
