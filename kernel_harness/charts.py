"""Numbers -> pictures: SVG to stand in a page, whose colours are the page's. What is worth a picture is page's."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from kernel_harness.errors import EnvironmentLacking
from kernel_harness.timing import Interval

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
except ImportError:
    raise EnvironmentLacking("a report needs matplotlib: pip install -r requirements.txt") from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, NARROW = 960, 340
"""Pixels. Every chart is drawn twice; the page shows the one that fits, its text at its own size in both."""

_SVG = "http://www.w3.org/2000/svg"
# Colours that matplotlib may write; each stands for a variable of the page, which knows whether it is dark.
_VARIABLES = ("ink", "muted", "grid", "faster", "slower", "same", "undecided", "card", "roof", "build", "check", *(
    f"series-{i}" for i in range(8)
))  # fmt: skip
_STAND_IN = {name: f"#0000{i:02x}" for i, name in enumerate(_VARIABLES, 1)}
_STYLE: Any = {"svg.fonttype": "none", "font.size": 12, "path.simplify": False, "axes.unicode_minus": True}
_LETTER = 6.7  # pixels that a letter of 12 takes, about
_LEADER = {
    "arrowstyle": "-", "color": _STAND_IN["muted"], "linewidth": 0.6, "shrinkA": 1, "shrinkB": 5, "relpos": (0, 0.5),
}  # fmt: skip
SERIES = 8
MOST_DOTS = 256


@dataclass(frozen=True)
class Bar:
    """A row of a chart: a kernel, its value with what bounds it, the value as text, and its colour's name."""

    name: str
    value: Interval
    text: str
    colour: str


def speedups(bars: Sequence[Bar], width: int, baseline: str) -> str:
    """Bars from 1x to the speedup on a logarithmic axis, so that twice as fast and half as fast are as long."""
    sheet = _Rows([b.name for b in bars], [b.text for b in bars], width)
    axes = sheet.axes
    for y, bar in zip(sheet.middles, bars, strict=True):
        low, high = sorted((1.0, bar.value.estimate))
        axes.barh(y, high - low, left=low, height=sheet.thickness, color=_c(bar.colour), alpha=0.35, gid=_tip(bar))
        _whisker(axes, y, bar)
    axes.axvline(1, color=_c("ink"), linewidth=1.2)
    _log_axis(axes, [b.value for b in bars], "{:g}×", include=(0.8, 1.25))
    sheet.label(f"speedup over {baseline} (logarithmic)")
    return sheet.svg("speedups", bars)


def times(bars: Sequence[Bar], width: int) -> str:
    """A dot and its interval per kernel, in milliseconds on a logarithmic axis."""
    sheet = _Rows([b.name for b in bars], [b.text for b in bars], width)
    for y, bar in zip(sheet.middles, bars, strict=True):
        _whisker(sheet.axes, y, bar)
    _log_axis(sheet.axes, [b.value for b in bars], "{:g}")
    sheet.label("ms per call (logarithmic)")
    return sheet.svg("times", bars)


def samples(rows: Sequence[tuple[str, Sequence[float]]], width: int) -> str:
    """Every sample of a kernel over its median, as a dot: rows of (kernel, milliseconds)."""
    texts = [f"{_median(sorted(ms)):.4g} ms, {len(ms)} rounds" for _, ms in rows]
    sheet = _Rows([name for name, _ in rows], texts, width, height=30)
    ends: list[float] = []
    for y, (_, ms) in zip(sheet.middles, rows, strict=True):
        middle = _median(sorted(ms))
        ordered = sorted(one / middle for one in ms)
        shown = [ordered[i * len(ordered) // MOST_DOTS] for i in range(MOST_DOTS)]
        shown = [*shown[:-1], ordered[-1]] if len(ordered) > MOST_DOTS else ordered
        # Spread by the golden ratio: neighbours in time never share a height, and no dot moves between drawings.
        heights = [y + sheet.thickness * ((i * 0.618034) % 1 - 0.5) for i in range(len(shown))]
        _dots(sheet.axes, shown, heights)
        sheet.axes.plot([1, 1], [y - sheet.thickness / 1.6, y + sheet.thickness / 1.6], color=_c("ink"), lw=2)
        ends += [ordered[0], ordered[-1]]
    _log_axis(sheet.axes, [Interval(min(ends), 1, max(ends))], "{:g}×", include=(0.9, 1.1))
    sheet.label("each timed call over the kernel's median (logarithmic)")
    return sheet.svg("samples", [])


def phases(rows: Sequence[tuple[str, float, float, str]], width: int) -> str:
    """Seconds of building and of checking, end to end: rows of (kernel, build_s, check_s, text)."""
    sheet = _Rows([r[0] for r in rows], [r[3] for r in rows], width)
    for y, (_, build, check, _) in zip(sheet.middles, rows, strict=True):
        sheet.axes.barh(y, build, height=sheet.thickness, color=_c("build"))
        sheet.axes.barh(y, check, left=build, height=sheet.thickness, color=_c("check"))
    sheet.axes.set_xlim(0, max(r[1] + r[2] for r in rows) * 1.02 or 1)
    sheet.label("seconds")
    return sheet.svg("phases", [])


@dataclass(frozen=True)
class Point:
    """A kernel in the roofline: FLOP/s, and how it is labelled."""

    name: str
    flops_per_s: float
    text: str


@dataclass(frozen=True)
class Roof:
    """What a device can do at most, in bytes/s and FLOP/s in a number format: on paper, or as measured."""

    bytes_per_s: float
    flops_per_s: float
    number_format: str
    measured: bool

    def at(self, intensity: float) -> float:
        """FLOP/s at so many FLOPs per byte."""
        return min(self.flops_per_s, intensity * self.bytes_per_s)


def roofline(points: Sequence[Point], intensity: float, roofs: Sequence[Roof], width: int) -> str:
    """The device's roofs, the measured ones dashed, and the kernels at the problem's FLOPs per byte."""
    ridges = [roof.flops_per_s / roof.bytes_per_s for roof in roofs]
    left, right = min(*ridges, intensity) / 8, max(*ridges, intensity) * (25 if width == WIDE else 1000)
    bottom = min([*(p.flops_per_s for p in points), *(roof.at(left) for roof in roofs)]) / 2
    sheet = _Sheet(width, 360 if width == WIDE else 330, (52, 12, 14, 44))
    axes = sheet.axes
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom / 1e12, 4 * max(roof.flops_per_s for roof in roofs) / 1e12)
    highest = max(roof.at(intensity) for roof in roofs) / 1e12
    axes.plot([intensity, intensity], [bottom / 1e12, highest], color=_c("grid"), linewidth=1.2, dashes=(3, 3))
    for roof in roofs:
        _roof(axes, roof, (left, right), bottom)
    _, ceiling = axes.transData.transform((intensity, highest))
    _named_points(axes, [(intensity, p.flops_per_s / 1e12) for p in points], points, ceiling, width)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    sheet.label("FLOPs per byte that must be moved", "TFLOPS")
    return sheet.svg("roofline", [])


def _roof(axes: Axes, roof: Roof, ends: tuple[float, float], bottom: float) -> None:
    """A roof's line and its labels: above the line for what is on paper, below it for what was measured."""
    ridge = roof.flops_per_s / roof.bytes_per_s
    xs = [ends[0], ridge, ends[1]]
    ys = [roof.at(x) / 1e12 for x in xs]
    if roof.measured:
        axes.plot(xs, ys, color=_c("roof"), linewidth=1.2, dashes=(5, 3))
    else:
        axes.fill_between(xs, ys, bottom / 1e12, color=_c("roof"), alpha=0.08, linewidth=0)
        axes.plot(xs, ys, color=_c("roof"), linewidth=2)
    side, how = (-11, " measured") if roof.measured else (11, "")
    text = f"{roof.flops_per_s / 1e12:.3g} TFLOPS {roof.number_format}{how}"
    _note(axes, (ridge, ys[1]), text, (4, side), ha="left")
    middle = math.sqrt(ends[0] * ridge)
    slope = _angle(axes, (xs[0], ys[0]), (xs[1], ys[1]))
    text = f"{roof.bytes_per_s / 1e12:.3g} TB/s{how}"
    _note(axes, (middle, roof.at(middle) / 1e12), text, (-side / 2, side), ha="center", rotation=slope)


@dataclass(frozen=True)
class Series:
    """A kernel over the runs: (index of the run, value with its bounds, whether its source was new)."""

    name: str
    values: Sequence[tuple[int, Interval, bool]]


def history(series: Sequence[Series], runs: Sequence[str], form: str, label: str, width: int) -> str:
    """At most SERIES lines over `runs`, each named at its end; a ring where the source had changed."""
    gutter = min(24, max(len(s.name) for s in series)) * _LETTER + 16 if width == WIDE else 104
    sheet = _Sheet(width, 60 + max(240, 18 * len(series)), (56, gutter, 14, 40))
    axes = sheet.axes
    # Beside each other, so that intervals can be told apart.
    apart = 5 * (len(runs) - 0.4) / axes.get_window_extent().width
    for i, one in enumerate(series):
        shift = (i - (len(series) - 1) / 2) * apart
        xs, values = [v[0] + shift for v in one.values], [v[1] for v in one.values]
        colour = _c(f"series-{i % SERIES}")
        axes.plot(xs, [v.estimate for v in values], color=colour, linewidth=1.8)
        for x, (run, value, new) in zip(xs, one.values, strict=True):
            if value.low is not None and value.high is not None:
                axes.plot([x, x], [value.low, value.high], color=colour, linewidth=3, alpha=0.25)
            face = "none" if new else colour
            tip = f"{one.name}, {runs[run]}: {form.format(value.estimate)}{', new source' if new else ''}"
            axes.plot(x, value.estimate, "o", ms=7 if new else 5, mfc=face, mec=colour, mew=1.6, gid=tip)
    axes.set_yscale("log")
    axes.set_xlim(-0.3, len(runs) - 0.7)
    _log_ticks(axes.yaxis, form)
    step = -(-len(runs) // (8 if width == WIDE else 3))
    axes.set_xticks(range(0, len(runs), step), [runs[i] for i in range(0, len(runs), step)])
    _ends(axes, series, width)
    sheet.label("", label)
    return sheet.svg("history", [])


# ------------------------------------------------------------------------------------------------ sheets


class _Sheet:
    """A figure of a size in pixels with one plain axes inside its margins (left, right, top, bottom)."""

    def __init__(self, width: float, height: float, margins: tuple[float, float, float, float]) -> None:
        left, right, top, bottom = margins
        self.width, self.height = width, height
        with matplotlib.rc_context(_STYLE):
            self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
            size = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
            self.axes = self.figure.add_axes(size)
        self.axes.spines[["left", "right", "top"]].set_visible(False)
        self.axes.spines["bottom"].set_color(_c("grid"))
        self.axes.tick_params(which="both", length=0, colors=_c("muted"), labelsize=11)
        self.axes.grid(True, color=_c("grid"), linewidth=0.8)
        self.axes.set_axisbelow(True)

    def label(self, horizontal: str, vertical: str = "") -> None:
        """What the axes count."""
        self.axes.set_xlabel(horizontal, color=_c("muted"), fontsize=11)
        self.axes.set_ylabel(vertical, color=_c("muted"), fontsize=11)

    def svg(self, name: str, bars: Sequence[Bar]) -> str:
        """The picture as an element that can stand in HTML; its identifiers are its own."""
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"{name}-{self.width}"}):
            self.figure.savefig(text, format="svg", transparent=True, metadata=nothing)
        return _page_svg(text.getvalue(), self.width, self.height)


class _Rows(_Sheet):
    """One row per kernel: on a wide sheet its name left and its value right, on a narrow one both above."""

    def __init__(self, names: Sequence[str], texts: Sequence[str], width: int, height: int = 26) -> None:
        wide = width == WIDE
        most = 30
        names = [_short(n, most) for n in names]
        left = max(map(len, names)) * _LETTER + 18 if wide else 4
        right = max(map(len, texts)) * _LETTER + 14 if wide else 4
        row = height if wide else height + 18
        super().__init__(width, row * len(names) + 50, (left, right, 6, 44))
        self.axes.set_ylim(len(names) - 0.5, -0.5)
        self.axes.set_yticks([])
        self.axes.grid(False, axis="y")
        shift = 0 if wide else 9 / row
        self.middles = [i + shift for i in range(len(names))]
        self.thickness = 0.6 * height / row
        for i, (name, text) in enumerate(zip(names, texts, strict=True)):
            y = i if wide else i + shift - (0.5 * height + 6) / row
            _note(self.axes, (0, y), name, (-10 if wide else 0, 0), ha="right" if wide else "left", row=True, ink=True)
            _note(self.axes, (1, y), text, (8 if wide else 0, 0), ha="left" if wide else "right", row=True)


def _c(name: str) -> str:
    return _STAND_IN[name]


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _tip(bar: Bar) -> str:
    return f"{bar.name}: {bar.text}"


def _whisker(axes: Axes, y: float, bar: Bar) -> None:
    low, high = bar.value.low, bar.value.high
    if low is not None and high is not None:
        axes.plot([low, high], [y, y], color=_c(bar.colour), linewidth=2.2, solid_capstyle="round", gid=_tip(bar))
    axes.plot(bar.value.estimate, y, "o", color=_c(bar.colour), markersize=8, gid=_tip(bar))


def _dots(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    """As strokes of no length with round ends: a tenth of the size of as many markers."""
    gap = [math.nan] * len(xs)
    across = [v for x, g in zip(xs, gap, strict=True) for v in (x, x * (1 + 1e-6), g)]
    down = [v for y, g in zip(ys, gap, strict=True) for v in (y, y, g)]
    axes.plot(across, down, color=_c("series-0"), alpha=0.45, linewidth=4.5, solid_capstyle="round")


def _note(
    axes: Axes, at: tuple[float, float], text: str, shift: tuple[float, float], *, row: bool = False, ink: bool = False,
    **look: Any,
) -> None:  # fmt: skip
    """Text beside a point; in a `row`, the point's x is a share of the axes' width."""
    where: Any = axes.get_yaxis_transform() if row else "data"
    axes.annotate(
        text, at, shift, xycoords=where, textcoords="offset points", va="center", color=_c("ink" if ink else "muted"),
        annotation_clip=False, parse_math=False, fontsize=12,
        bbox={"facecolor": _c("card"), "edgecolor": "none", "pad": 1} if row else None, **look,
    )  # fmt: skip


def _log_axis(axes: Axes, values: Sequence[Interval], form: str, include: Sequence[float] = ()) -> None:
    ends = [end for v in values for end in (v.low, v.estimate, v.high) if end is not None] + list(include)
    low, high = min(ends), max(ends)
    pad = max(1.08, (high / low) ** 0.04)
    axes.set_xscale("log")
    axes.set_xlim(low / pad, high * pad)
    _log_ticks(axes.xaxis, form)


def _log_ticks(axis: Any, form: str) -> None:
    """Powers of ten and, where they are few, 2 and 5 between them."""
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    subs = (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0) if decades > 0.7 else tuple(range(1, 10))
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda v, _: form.format(v)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _angle(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> float:
    (x0, y0), (x1, y1) = axes.transData.transform([start, end])
    return math.degrees(math.atan2(y1 - y0, x1 - x0))


def _apart(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved as little as keeps them `gap` apart and within the ends, their order kept."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    placed = list(positions)
    for before, this in itertools.pairwise(order):
        placed[this] = max(placed[this], placed[before] + gap)
    limit = high
    for this in reversed(order):
        placed[this] = max(low, min(placed[this], limit))
        limit = placed[this] - gap
    return placed


def _named_points(
    axes: Axes, at: Sequence[tuple[float, float]], points: Sequence[Point], roof: float, width: int
) -> None:
    """`roof` is the height in pixels that names must stay below."""
    pixels = axes.transData.transform(at)
    heights = _apart([float(y) for _, y in pixels], 17, axes.get_window_extent().y0 + 10, roof - 12)
    for place, point, (_, y), height in zip(at, points, pixels, heights, strict=True):
        axes.plot(*place, "o", color=_c("series-0"), markersize=8, gid=f"{point.name}: {point.text}")
        text = f"{point.name}  {point.text}" if width == WIDE else _short(point.name, 22)
        axes.annotate(
            text, place, (16, height - y), textcoords="offset points", va="center", color=_c("ink"), parse_math=False,
            fontsize=12, arrowprops=_LEADER,
        )  # fmt: skip


def _ends(axes: Axes, series: Sequence[Series], width: int) -> None:
    last = [s.values[-1] for s in series]
    pixels = axes.transData.transform([(x, v.estimate) for x, v, _ in last])
    box = axes.get_window_extent()
    heights = _apart([float(y) for _, y in pixels], 15, box.y0 + 6, box.y1 - 6)
    most = 24 if width == WIDE else 14
    for i, (one, height) in enumerate(zip(series, heights, strict=True)):
        name = _short(one.name, most)
        share = (height - box.y0) / box.height
        axes.annotate(
            name, (1, share), (8, 0), xycoords="axes fraction", textcoords="offset points", va="center",
            color=_c(f"series-{i % SERIES}"), annotation_clip=False, parse_math=False, fontsize=12,
        )  # fmt: skip


# --------------------------------------------------------------------------------------- into the page


def _page_svg(text: str, width: float, height: float) -> str:
    """What matplotlib wrote, as part of a page: no fonts, colours or names of its own; what has a tip gets one."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    root = ElementTree.fromstring(text)
    root.attrib.update({"width": f"{width:g}", "height": f"{height:g}", "aria-hidden": "true"})
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
        _plain(parent)
    return ElementTree.tostring(root, encoding="unicode")


def _plain(element: ElementTree.Element) -> None:
    name = element.attrib.get("id", "")
    if not re.fullmatch(r"[mp][0-9a-f]{10}", name):  # what others refer to
        element.attrib.pop("id", None)
        if ": " in name:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = name
            element.insert(0, title)
    style = element.attrib.get("style")
    if style is not None:
        kept = [part.strip() for part in style.split(";") if not part.strip().startswith("font-family")]
        element.set("style", _coloured("; ".join(re.sub(r"^font: ([\d.]+px).*$", r"font-size: \1", p) for p in kept)))
    path = element.attrib.get("d")
    if path is not None:
        element.set("d", re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}", path).replace("\n", ""))


def _coloured(style: str) -> str:
    for name, colour in _STAND_IN.items():
        style = style.replace(colour, f"var(--{name})")
    return style
