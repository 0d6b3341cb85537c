"""Draws matplotlib figures for an HTML page: sizes are in pixels, and the page's CSS gives the fonts and colours."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from kernel_harness.core.errors import EnvironmentLacking

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError:
    raise EnvironmentLacking("a report needs matplotlib: pip install -r requirements.txt") from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, NARROW = 960, 340
"""The two widths of a chart, in pixels. Every chart is drawn once in each width, with text of the same size.

The page shows the chart whose width suits the screen.
"""

_SVG = "http://www.w3.org/2000/svg"
# The page's colours are CSS variables with a light and a dark value. matplotlib draws with a stand-in colour for each
# variable, and the stand-in is then replaced by the variable.
_VARIABLES = ("ink", "muted", "grid", "faster", "slower", "same", "undecided", "card", "roof", "build", "check", *(
    f"series-{i}" for i in range(8)
))  # fmt: skip
_STAND_IN = {name: f"#0000{i:02x}" for i, name in enumerate(_VARIABLES, 1)}
_STYLE: Any = {"svg.fonttype": "none", "font.size": 12, "path.simplify": False, "axes.unicode_minus": True}
LETTER = 6.7  # average width in pixels of a letter at font size 12


class Sheet:
    """A matplotlib figure with one Axes. The size and the margins (left, right, top, bottom) are in pixels."""

    def __init__(self, width: float, height: float, margins: tuple[float, float, float, float]) -> None:
        left, right, top, bottom = margins
        self.width, self.height = width, height
        with matplotlib.rc_context(_STYLE):
            self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
            size = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
            self.axes = self.figure.add_axes(size)
        self.axes.spines[["left", "right", "top"]].set_visible(False)
        self.axes.spines["bottom"].set_color(colour("grid"))
        self.axes.tick_params(which="both", length=0, colors=colour("muted"), labelsize=11)
        self.axes.grid(True, color=colour("grid"), linewidth=0.8)
        self.axes.set_axisbelow(True)

    def label(self, horizontal: str, vertical: str = "") -> None:
        """Labels the horizontal and the vertical axis."""
        self.axes.set_xlabel(horizontal, color=colour("muted"), fontsize=11)
        self.axes.set_ylabel(vertical, color=colour("muted"), fontsize=11)

    def svg(self, name: str) -> str:
        """Returns the figure as an SVG element for an HTML page.

        `name` must differ between the figures of a page: the identifiers inside the SVG are derived from it.
        """
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"{name}-{self.width}"}):
            self.figure.savefig(text, format="svg", transparent=True, metadata=nothing)
        return _page_svg(text.getvalue(), self.width, self.height)


class Rows(Sheet):
    """A figure with one row per kernel: `names` has the kernels' names, and `texts` their values as text.

    On a wide figure the name is left of the row and the value right of it. On a narrow figure both are above the row.
    `middles` has the vertical positions of the rows, and `thickness` is the height of a bar, both in axis units.
    """

    def __init__(self, names: Sequence[str], texts: Sequence[str], width: int, height: int = 26) -> None:
        wide = width == WIDE
        most = 30
        names = [short(n, most) for n in names]
        left = max(map(len, names)) * LETTER + 18 if wide else 4
        right = max(map(len, texts)) * LETTER + 14 if wide else 4
        row = height if wide else height + 18
        super().__init__(width, row * len(names) + 44, (left, right, 6, 38))
        self.axes.set_ylim(len(names) - 0.5, -0.5)
        self.axes.set_yticks([])
        self.axes.grid(False, axis="y")
        shift = 0 if wide else 9 / row
        self.middles = [i + shift for i in range(len(names))]
        self.thickness = 0.6 * height / row
        for i, (name, text) in enumerate(zip(names, texts, strict=True)):
            y = i if wide else i + shift - (0.5 * height + 6) / row
            _row_text(self.axes, (0, y), name, wide, ink=True)
            _row_text(self.axes, (1, y), text, wide, ink=False)


def colour(name: str) -> str:
    """Returns the colour that matplotlib draws in place of the page's CSS variable `name`.

    When the figure is converted to SVG, the variable replaces this colour again.
    """
    return _STAND_IN[name]


def short(name: str, most: int) -> str:
    """Returns the name, cut to at most `most` characters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _row_text(axes: Axes, at: tuple[float, float], text: str, wide: bool, *, ink: bool) -> None:
    """Writes a text of a row at `at`: (0 or 1 for the left or right end of the axes, the height in axis units).

    With `ink`, the text has the page's main text colour, otherwise a muted one. In a narrow chart it is inside the
    axes, before the lines of the grid; the page gives it an outline in the colour of the background.
    """
    left = at[0] == 0
    axes.annotate(
        text, at, ((-10 if left else 8) if wide else 0, 0), xycoords=axes.get_yaxis_transform(),
        textcoords="offset points", va="center", ha="right" if left == wide else "left",
        color=colour("ink" if ink else "muted"), annotation_clip=False, parse_math=False, fontsize=12,
    )  # fmt: skip


def angle(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> float:
    """Returns the angle on the screen between the horizontal and the line from `start` to `end`, in degrees.

    The angle is positive if the line goes up. `start` and `end` are points (x, y) in the units of the axes.
    """
    (x0, y0), (x1, y1) = axes.transData.transform([start, end])
    return math.degrees(math.atan2(y1 - y0, x1 - x0))


def apart(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Returns the positions, moved to be at least `gap` apart and between `low` and `high`. Their order is kept.

    If there is no room for all of these positions, those that would be below `low` are all moved to `low`.
    """
    order = sorted(range(len(positions)), key=positions.__getitem__)
    placed = list(positions)
    for before, this in itertools.pairwise(order):
        placed[this] = max(placed[this], placed[before] + gap)
    limit = high
    for this in reversed(order):
        placed[this] = max(low, min(placed[this], limit))
        limit = placed[this] - gap
    return placed


def _page_svg(text: str, width: float, height: float) -> str:
    """Returns `text`, an SVG image, without matplotlib's own fonts, colours and identifiers.

    The charts pass the text of a tooltip as an identifier that contains ": "; such an identifier becomes a tooltip.
    """
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(text)
    root.attrib.update({"width": f"{width:g}", "height": f"{height:g}", "aria-hidden": "true"})
    for element in list(root.iter()):
        _plain(element)
    _flatten(root)
    return ElementTree.tostring(root, encoding="unicode")


def _plain(element: ElementTree.Element) -> None:
    """Gives an element the page's look: no identifier that nothing refers to, no font, the page's colours."""
    name = element.attrib.get("id", "")
    if not re.fullmatch(r"[mp][0-9a-f]{10}", name):  # other elements refer to identifiers of this form
        element.attrib.pop("id", None)
        if ": " in name:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = name
            element.insert(0, title)
    style = element.attrib.get("style")
    if style is not None:
        kept = [part.strip() for part in style.split(";") if not part.strip().startswith("font-family")]
        element.set("style", _coloured("; ".join(re.sub(r"^font: ([\d.]+px).*$", r"font-size: \1", p) for p in kept)))
    for key in {"d", "x", "y", "transform"} & element.attrib.keys():
        short = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}", element.attrib[key])
        # A stroke without a length is a dot: see `charts._dots`.
        element.set(key, re.sub(r"M (\S+) (\S+) L \1 \2 ?(?=M|$)", r"M\1 \2h0", " ".join(short.split())))
    if element.attrib.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def _flatten(element: ElementTree.Element) -> list[ElementTree.Element]:
    """Removes what draws nothing from an element: empty and invisible elements, groups without a tooltip, indentation.

    Returns what remains of the element, as a list of elements.
    """
    element[:] = [kept for child in element for kept in _flatten(child)]
    element.text, element.tail = (element.text or "").strip(), None
    tag = element.tag.removeprefix(f"{{{_SVG}}}")
    if tag in ("metadata", "style") or (tag == "path" and element.attrib.get("style") == "fill: none"):
        return []
    if tag == "defs" and not len(element):
        return []
    is_group = tag == "g" and not element.attrib and not any(child.tag.endswith("title") for child in element)
    return list(element) if is_group else [element]


def _coloured(style: str) -> str:
    for name, colour in _STAND_IN.items():
        style = style.replace(colour, f"var(--{name})")
    return style
