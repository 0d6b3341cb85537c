"""Renders the HTML pages from the templates. A page contains its style and its script, and loads no other file."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from kernel_harness.results.cells import ratio

TEMPLATES = Path(__file__).parent / "templates"


def rendered(name: str, style: str = "", **values: Any) -> str:
    """Returns the page of the template `<name>.html` with the scripts `shared.js` and `<name>.js`, as HTML text.

    The security policy of the page forbids a browser to run another script or to load other files for it. `style` is
    added to the style of all pages. `values` are the variables of the template.
    """
    script = "".join((TEMPLATES / f"{part}.js").read_text(encoding="utf-8") for part in ("shared", name))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(breakable=breakable, ratio=ratio)
    return environment.get_template(f"{name}.html").render(
        script=script, script_hash=f"sha256-{digest}",
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8") + style, **values,
    )  # fmt: skip


def breakable(name: str) -> Markup:
    """Returns the name as HTML in which a browser may break the line after each underscore."""
    return Markup("_<wbr>").join(str(name).split("_"))
