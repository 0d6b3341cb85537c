"""Draws the packages of kernel_harness and of cuda_on_cpu and their imports into docs/architecture.md.

    python docs/packages.py            rewrite the picture
    python docs/packages.py --check    exit with 1 if the picture is out of date

There is one picture for each of the two: a Mermaid graph of every package and one table row for each. In the picture of
kernel_harness, cuda_on_cpu is one package. An arrow that follows from two others (a -> b -> c makes a -> c redundant)
is left out. The graph is read from the import statements, so nothing is imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HARNESS, EMULATION = ROOT / "kernel_harness", ROOT / "cuda_on_cpu"
PAGE = ROOT / "docs" / "architecture.md"
MARKED = "(?<=<!-- packages of {} -->\n).*?(?=<!-- end -->)"

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
    """The page's text with new pictures between its markers. Raises CycleError if the imports have a cycle."""
    for root in (HARNESS, EMULATION):
        drawn = f"\n{picture(root)}\n"
        text = re.sub(MARKED.format(root.name), lambda _, drawn=drawn: drawn, text, count=1, flags=re.DOTALL)
    return text


def graph(root: Path) -> Graph:
    """The imports between the packages in the folder `root`, those inside functions and for type checkers included.

    If cuda_on_cpu is imported and is not `root`, it is one of the packages.
    """
    found: dict[str, set[str]] = {name: set() for name in _packages(root)}
    if root != EMULATION:
        found[EMULATION.name] = set()
    for path in sorted(root.rglob("*.py")):
        package = path.relative_to(root).parts[0].removesuffix(".py")
        found.get(package, set()).update(o for o in _imported(path, root) if o in found and o != package)
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


def picture(root: Path) -> str:
    """The graph of the packages in the folder `root` and the table as Markdown, the highest package first."""
    imports = graph(root)
    highest_first, arrows = order(imports)[::-1], direct(imports)
    lines = [f"  {name} --> {' & '.join(arrows[name])}" for name in highest_first if arrows[name]]
    rows = [f"| `{name}` | {_first_line(root, name)} |" for name in highest_first]
    return "\n".join(
        ["```mermaid", "graph TD", *lines, "```", "", "| package | what is in it |", "|---|---|", *rows, ""]
    )


def _packages(root: Path) -> Iterator[str]:
    """The folders with an __init__.py, and the single modules beside them."""
    for path in sorted(root.iterdir()):
        if (path / "__init__.py").exists() or (path.suffix == ".py" and not path.stem.startswith("__")):
            yield path.stem


def _imported(path: Path, root: Path) -> Iterator[str]:
    """The packages of `root` that a file's import statements name, and cuda_on_cpu."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            top, _, rest = module.partition(".")
            if top == root.name and rest:
                yield rest.split(".")[0]
            elif top == EMULATION.name:
                yield top


def _first_line(root: Path, package: str) -> str:
    folder = EMULATION if package == EMULATION.name else root / package
    path = folder / "__init__.py"
    doc = ast.get_docstring(ast.parse((path if path.exists() else root / f"{package}.py").read_text())) or ""
    return doc.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CycleError as error:
        sys.exit(f"the imports between packages have a cycle: {' -> '.join(error.args[1])}")
