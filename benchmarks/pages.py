"""Replaces tables in the pages of docs/. A line `<!-- NAME -->` is before a table, and `<!-- end -->` after it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def write(page: str, name: str, table: str) -> None:
    """Replaces the table `name` in a page of docs/. Raises ValueError if the page lacks the markers of that table."""
    path = DOCS / page
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    text, replaced = pattern.subn(lambda m: f"{m[1]}\n{table}\n\n{m[2]}", path.read_text(), count=1)
    if not replaced:
        raise ValueError(f"{path} has no marker <!-- {name} --> with <!-- end --> after it")
    path.write_text(text)
