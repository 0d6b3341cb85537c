"""Draws the packages of kernel_harness and their imports into docs/architecture.md.

    python docs/packages.py            rewrite the picture
    python docs/packages.py --check    exit with 1 if the picture is out of date

The picture is a Mermaid graph of every package and one table row for each. An arrow that follows from two others
(a -> b -> c makes a -> c redundant) is left out. The graph is read from the import statements, so nothing is imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kernel_harness"
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- packages -->", "<!-- end -->"

Graph = Mapping[str, frozenset[str]]
"""Package -> the packages that it imports."""


def main() -> int:
    """0 if the page is up to date or was rewritten."""
    text = PAGE.read_text()
    changed = with_picture(text)
    if "--check" in sys.argv[1:]:
        return int(changed != text)
    PAGE.write_text(changed)
    return 0


def with_picture(text: str) -> str:
    """The page's text with a new picture between its markers. Raises CycleError if the imports have a cycle."""
    return re.sub(rf"(?<={START}\n).*?(?={END})", lambda _: f"\n{picture(graph())}\n", text, count=1, flags=re.DOTALL)


def graph() -> Graph:
    """The imports between packages, those inside functions and for type checkers included."""
    found: dict[str, set[str]] = {name: set() for name in _packages()}
    for path in sorted(PACKAGE.rglob("*.py")):
        package = _package_of(path.relative_to(PACKAGE).parts)
        found.get(package, set()).update(other for other in _imported(path) if other in found and other != package)
    return {name: frozenset(others) for name, others in found.items()}


def order(imports: Graph) -> list[str]:
    """Every package after those that it imports, level by level. Raises CycleError if there is no such order."""
    levels: dict[str, int] = {}
    for name in TopologicalSorter(imports).static_order():
        levels[name] = max((levels[other] + 1 for other in imports[name]), default=0)
    return sorted(levels, key=lambda name: (levels[name], name))


def direct(imports: Graph) -> dict[str, list[str]]:
    """The arrows that do not follow from others (the transitive reduction)."""
    reached: dict[str, set[str]] = {}
    for name in order(imports):
        reached[name] = {far for other in imports[name] for far in (other, *reached[other])}
    return {
        name: sorted(o for o in others if not any(o in reached[between] for between in others))
        for name, others in imports.items()
    }


def picture(imports: Graph) -> str:
    """The graph and the table as Markdown, the highest package first."""
    highest_first, arrows = order(imports)[::-1], direct(imports)
    lines = [f"  {name} --> {' & '.join(arrows[name])}" for name in highest_first if arrows[name]]
    rows = [f"| `{name}` | {_first_line(name)} |" for name in highest_first]
    return "\n".join(
        ["```mermaid", "graph TD", *lines, "```", "", "| package | what is in it |", "|---|---|", *rows, ""]
    )


def _packages() -> Iterator[str]:
    """The folders with an __init__.py, and the single modules beside them."""
    for path in sorted(PACKAGE.iterdir()):
        if (path / "__init__.py").exists() or (path.suffix == ".py" and not path.stem.startswith("__")):
            yield path.stem


def _package_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def _imported(path: Path) -> Iterator[str]:
    """The packages that a file's import statements name."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            top, _, rest = module.partition(".")
            if top == PACKAGE.name and rest:
                yield rest.split(".")[0]


def _first_line(package: str) -> str:
    path = PACKAGE / package / "__init__.py"
    doc = ast.get_docstring(ast.parse((path if path.exists() else PACKAGE / f"{package}.py").read_text())) or ""
    return doc.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CycleError as error:
        sys.exit(f"the imports between packages have a cycle: {' -> '.join(error.args[1])}")
