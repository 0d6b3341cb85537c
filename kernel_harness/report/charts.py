"""Draws charts as SVG elements for a page. The module `pictures` decides which charts a page has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from kernel_harness.report.sheet import LETTER, WIDE, Rows, Sheet, angle, apart, colour, short
from kernel_harness.timing.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEADER = {
    "arrowstyle": "-", "color": colour("muted"), "linewidth": 0.6, "shrinkA": 1, "shrinkB": 5, "relpos": (0, 0.5),
}  # fmt: skip
_LINE = 16  # the least distance of two labels, in pixels
SERIES = 8
MOST_DOTS = 64


@dataclass(frozen=True)
class Bar:
    """A row of a chart: a kernel's name, its time in ms or speedup (`value`), `value` as text, and a colour's name."""

    name: str
    value: Interval
    text: str
    colour: str


def speedups(bars: Sequence[Bar], width: int, baseline: str) -> str:
    """Returns a chart as an SVG element: for each kernel, a bar from 1x to its speedup over the baseline `baseline`.

    `bars` has a row of the chart for each kernel. The axis is logarithmic, so 2x and 0.5x have bars of equal length.
    `width` is in pixels.
    """
    sheet = Rows([b.name for b in bars], [b.text for b in bars], width)
    axes = sheet.axes
    for y, bar in zip(sheet.middles, bars, strict=True):
        low, high = sorted((1.0, bar.value.estimate))
        axes.barh(y, high - low, left=low, height=sheet.thickness, color=colour(bar.colour), alpha=0.35, gid=_tip(bar))
        _whisker(axes, y, bar)
    axes.axvline(1, color=colour("ink"), linewidth=1.2)
    _log_axis(axes, [b.value for b in bars], "{:g}×", include=(0.8, 1.25))
    sheet.label(f"speedup over {baseline} (logarithmic)")
    return sheet.svg("speedups")


def times(bars: Sequence[Bar], width: int) -> str:
    """Returns a chart as an SVG element: each kernel's emulated time as a dot, with its confidence interval as a line.

    `bars` has a row of the chart for each kernel. The axis is logarithmic and in milliseconds. `width` is in pixels.
    """
    sheet = Rows([b.name for b in bars], [b.text for b in bars], width)
    for y, bar in zip(sheet.middles, bars, strict=True):
        _whisker(sheet.axes, y, bar)
    _log_axis(sheet.axes, [b.value for b in bars], "{:g}")
    sheet.label("emulated ms per call (logarithmic)")
    return sheet.svg("times")


def devices(rows: Sequence[tuple[str, Sequence[Interval | None]]], width: int) -> str:
    """Returns a chart as an SVG element: for each kernel, its time on each device as a dot with its interval.

    `rows` has (kernel, time in ms on each device, or None where it was not timed); the first SERIES devices are drawn,
    each in its own colour. The axis is logarithmic. `width` is in pixels.
    """
    texts = [" / ".join(f"{time.estimate:.4g}" if time else "-" for time in times) for _, times in rows]
    sheet = Rows([name for name, _ in rows], texts, width, height=16 * min(SERIES, len(rows[0][1])) + 8)
    for middle, (name, times), text in zip(sheet.middles, rows, texts, strict=True):
        for i, time in enumerate(times[:SERIES]):
            if time:
                y = middle + sheet.thickness * (i / max(1, min(SERIES, len(times)) - 1) - 0.5)
                _whisker(sheet.axes, y, Bar(name, time, text, f"series-{i}"))
    _log_axis(sheet.axes, [time for _, times in rows for time in times if time], "{:g}")
    sheet.label("ms per call (logarithmic)")
    return sheet.svg("devices")


def samples(rows: Sequence[tuple[str, Sequence[float]]], width: int) -> str:
    """Returns a chart as an SVG element: for each kernel, a row of dots, its calls' times divided by their median.

    `rows` has (kernel, times of its calls in ms). If a kernel has more than MOST_DOTS times, MOST_DOTS of them are
    drawn, the smallest and the largest included. `width` is in pixels.
    """
    texts = [f"{median(ms):.4g} ms, {len(ms)} rounds" for _, ms in rows]
    sheet = Rows([name for name, _ in rows], texts, width, height=30)
    ends: list[float] = []
    for y, (_, ms) in zip(sheet.middles, rows, strict=True):
        middle = median(ms)
        ordered = sorted(one / middle for one in ms)
        shown = [ordered[i * len(ordered) // MOST_DOTS] for i in range(MOST_DOTS)]
        shown = [*shown[:-1], ordered[-1]] if len(ordered) > MOST_DOTS else ordered
        # Steps of the golden ratio spread the heights evenly, so dots of similar times do not overlap. Random heights
        # would make each drawing of the same times different.
        heights = [y + sheet.thickness * ((i * 0.618034) % 1 - 0.5) for i in range(len(shown))]
        _dots(sheet.axes, shown, heights)
        sheet.axes.plot([1, 1], [y - sheet.thickness / 1.6, y + sheet.thickness / 1.6], color=colour("ink"), lw=2)
        ends += [ordered[0], ordered[-1]]
    _log_axis(sheet.axes, [Interval(min(ends), 1, max(ends))], "{:g}×", include=(0.9, 1.1))
    sheet.label("each timed call over the kernel's median (logarithmic)")
    return sheet.svg("samples")


def phases(rows: Sequence[tuple[str, float, float, str]], width: int) -> str:
    """Returns a chart as an SVG element: for each kernel, one bar of the seconds of its build and then of its checks.

    `rows` has (kernel, seconds of the build, seconds of the checks, text beside the bar). `width` is in pixels.
    """
    sheet = Rows([r[0] for r in rows], [r[3] for r in rows], width)
    for y, (_, build, check, _) in zip(sheet.middles, rows, strict=True):
        sheet.axes.barh(y, build, height=sheet.thickness, color=colour("build"))
        sheet.axes.barh(y, check, left=build, height=sheet.thickness, color=colour("check"))
    sheet.axes.set_xlim(0, max(r[1] + r[2] for r in rows) * 1.02 or 1)
    sheet.label("seconds")
    return sheet.svg("phases")


@dataclass(frozen=True)
class Point:
    """A kernel in the roofline chart: its name, its operations per second, and the text of its label after the name."""

    name: str
    flops_per_s: float
    text: str


@dataclass(frozen=True)
class Roof:
    """The limits of a device: its memory bandwidth, and its arithmetic speed in one number format.

    `measured` says that both limits were measured on the device; otherwise both are from its data sheet.
    """

    bytes_per_s: float
    flops_per_s: float
    number_format: str
    measured: bool

    def at(self, intensity: float) -> float:
        """Returns the most operations per second that are possible at `intensity`.

        `intensity` is the number of operations for each byte that is read from memory or written to it.
        """
        return min(self.flops_per_s, intensity * self.bytes_per_s)


def roofline(points: Sequence[Point], intensity: float, roofs: Sequence[Roof], width: int) -> str:
    """Returns the roofline chart as an SVG element: a line for each entry of `roofs` and a dot for each kernel.

    A roof is the most operations per second that a device can do, as a function of the operations per byte. It is
    dashed if it was measured, solid if it is from the data sheet. `intensity` is the problem's operations per byte, the
    same for all kernels. `width` is in pixels.
    """
    wide = width == WIDE
    named = [roof for roof in roofs if wide or not roof.measured]
    texts = [f"{p.name}  {p.text}" if wide else short(p.name, 16) for p in points]
    texts += [_roof_text(roof, wide) for roof in named]
    ridges = [roof.flops_per_s / roof.bytes_per_s for roof in roofs]
    left, right = min(*ridges, intensity) / 16, max(*ridges, intensity) * 4
    bottom = min([*(p.flops_per_s for p in points), *(roof.at(left) for roof in roofs)]) / 2e12
    gutter = max(map(len, texts)) * LETTER + 24
    sheet = Sheet(width, max(360, _LINE * len(texts) + 70), (52, gutter, 14, 44))
    axes = sheet.axes
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    highest = max([*(p.flops_per_s for p in points), *(roof.flops_per_s for roof in roofs)])
    axes.set_ylim(bottom, 2 * highest / 1e12)
    axes.plot([intensity, intensity], [bottom, highest / 1e12], color=colour("grid"), linewidth=1.2, dashes=(3, 3))
    for roof in roofs:
        _roof(axes, roof, (left, right), bottom)
    for roof in {roof.measured: roof for roof in sorted(named, key=lambda roof: -roof.flops_per_s)}.values():
        _bandwidth(axes, roof, left)
    at = [(intensity, p.flops_per_s / 1e12) for p in points]
    for place, point in zip(at, points, strict=True):
        axes.plot(*place, "o", color=colour("series-0"), markersize=8, gid=f"{point.name}: {point.text}")
    at += [(right, roof.at(right) / 1e12) for roof in named]
    _labels(axes, at, texts, [colour("ink")] * len(points) + [colour("roof")] * len(named), arrowprops=_LEADER)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    sheet.label("FLOPs per byte that must be moved", "TFLOPS")
    return sheet.svg("roofline")


def _roof_text(roof: Roof, wide: bool) -> str:
    speed = f"{roof.flops_per_s / 1e12:.3g}"
    return (
        f"{speed} TFLOPS {roof.number_format}{' measured' * roof.measured}" if wide else f"{speed} {roof.number_format}"
    )


def _roof(axes: Axes, roof: Roof, ends: tuple[float, float], bottom: float) -> None:
    """Draws one line of the roofline chart, from x = `ends[0]` to x = `ends[1]`.

    `bottom` is the lower end of the chart in TFLOPS.
    """
    xs = [ends[0], roof.flops_per_s / roof.bytes_per_s, ends[1]]
    ys = [roof.at(x) / 1e12 for x in xs]
    if roof.measured:
        axes.plot(xs, ys, color=colour("roof"), linewidth=1.2, dashes=(5, 3))
    else:
        axes.fill_between(xs, ys, bottom, color=colour("roof"), alpha=0.08, linewidth=0)
        axes.plot(xs, ys, color=colour("roof"), linewidth=2)


def _bandwidth(axes: Axes, roof: Roof, left: float) -> None:
    """Writes the bandwidth of a roof along its slope, which begins at x = `left`: above the line, or below if measured.

    The roof should be the lowest of its source, so that the text is where the slopes of all roofs coincide.
    """
    ridge = roof.flops_per_s / roof.bytes_per_s
    middle = math.sqrt(left * ridge)
    side, how = (-11, " measured") if roof.measured else (11, "")
    axes.annotate(
        f"{roof.bytes_per_s / 1e12:.3g} TB/s{how}", (middle, roof.at(middle) / 1e12), (-side / 2, side),
        textcoords="offset points", ha="center", va="center", color=colour("muted"), fontsize=12,
        rotation=angle(axes, (left, roof.at(left)), (ridge, roof.flops_per_s)),
    )  # fmt: skip


@dataclass(frozen=True)
class Series:
    """The time or speedup of one kernel in several runs or at several shapes, a line in a chart.

    `values` has (index of the run or shape, value with its interval, whether the source is new in that run).
    """

    name: str
    values: Sequence[tuple[int, Interval, bool]]


def lines(series: Sequence[Series], places: Sequence[str], unit: str, labels: tuple[str, str], width: int) -> str:
    """Returns a chart as an SVG element: for each kernel, a line over runs or shapes. A ring marks a new source.

    `series` has the lines, at most SERIES. `places` has the labels of the runs or shapes. `unit` is a value's unit,
    `labels` are those of the horizontal and the vertical axis, and `width` is in pixels.
    """
    gutter = min(24, max(len(s.name) for s in series)) * LETTER + 16 if width == WIDE else 104
    sheet = Sheet(width, 60 + max(240, 18 * len(series)), (56, gutter, 14, 40))
    axes = sheet.axes
    # The lines are shifted sideways, so that their intervals do not overlap, but not to the next place.
    step_aside = min(5 * len(places) / axes.get_window_extent().width, 0.7 / max(1, len(series) - 1))
    for i, one in enumerate(series):
        shift = (i - (len(series) - 1) / 2) * step_aside
        xs, values = [v[0] + shift for v in one.values], [v[1] for v in one.values]
        hue = colour(f"series-{i % SERIES}")
        axes.plot(xs, [v.estimate for v in values], color=hue, linewidth=1.8)
        for x, (at, value, new) in zip(xs, one.values, strict=True):
            if value.low is not None and value.high is not None:
                axes.plot([x, x], [value.low, value.high], color=hue, linewidth=3, alpha=0.25)
            face = "none" if new else hue
            tip = f"{one.name}, {places[at]}: {value.estimate:.4g}{unit}{', new source' if new else ''}"
            axes.plot(x, value.estimate, "o", ms=7 if new else 5, mfc=face, mec=hue, mew=1.6, gid=tip)
    axes.set_yscale("log")
    axes.set_xlim(-0.5, len(places) - 0.5)
    _log_ticks(axes.yaxis, "{:g}" + unit)
    step = -(-len(places) // (8 if width == WIDE else 3))
    axes.set_xticks(range(0, len(places), step), [places[i] for i in range(0, len(places), step)])
    most = 24 if width == WIDE else 14
    ends = [(x, v.estimate) for x, v, _ in (s.values[-1] for s in series)]
    hues = [colour(f"series-{i % SERIES}") for i in range(len(series))]
    _labels(axes, ends, [short(s.name, most) for s in series], hues)
    sheet.label(*labels)
    return sheet.svg("-".join(labels))


def _tip(bar: Bar) -> str:
    return f"{bar.name}: {bar.text}"


def _whisker(axes: Axes, y: float, bar: Bar) -> None:
    low, high = bar.value.low, bar.value.high
    if low is not None and high is not None:
        axes.plot([low, high], [y, y], color=colour(bar.colour), linewidth=2.2, solid_capstyle="round", gid=_tip(bar))
    axes.plot(bar.value.estimate, y, "o", color=colour(bar.colour), markersize=8, gid=_tip(bar))


def _dots(axes: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    """Draws dots as very short strokes with round ends: as SVG text they take a tenth of the bytes of markers."""
    gap = [math.nan] * len(xs)
    across = [v for x, g in zip(xs, gap, strict=True) for v in (x, x * (1 + 1e-6), g)]
    down = [v for y, g in zip(ys, gap, strict=True) for v in (y, y, g)]
    axes.plot(across, down, color=colour("series-0"), alpha=0.45, linewidth=4.5, solid_capstyle="round")


def _log_axis(axes: Axes, values: Sequence[Interval], form: str, include: Sequence[float] = ()) -> None:
    ends = [end for v in values for end in (v.low, v.estimate, v.high) if end is not None] + list(include)
    low, high = min(ends), max(ends)
    pad = max(1.08, (high / low) ** 0.04)
    axes.set_xscale("log")
    axes.set_xlim(low / pad, high * pad)
    _log_ticks(axes.xaxis, form)


def _log_ticks(axis: Any, form: str) -> None:
    """Puts ticks on a logarithmic axis, formatted with the format string `form`.

    The ticks are at powers of ten. The fewer powers of ten the axis spans, the more ticks are put between them. An axis
    of less than 0.2 powers of ten has ticks at equal differences.
    """
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    if decades < 0.2:
        axis.set_major_locator(MaxNLocator(5))
    else:
        fine = (1.0, 2.0, 5.0) if decades > 0.7 else (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
        subs = (1.0,) if decades > 2.5 else fine
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda v, _: form.format(v)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _labels(
    axes: Axes, at: Sequence[tuple[float, float]], texts: Sequence[str], colours: Sequence[str], **look: Any
) -> None:
    """Writes the texts right of the axes, each at the height of its point in `at` if that leaves every text readable.

    The points are (x, y) in the units of the axes. `look` goes to `Axes.annotate`.
    """
    box = axes.get_window_extent()
    pixels = axes.transData.transform(at)
    heights = apart([float(y) for _, y in pixels], _LINE, box.y0 + 6, box.y1 - 6)
    for place, text, hue, height in zip(at, texts, colours, heights, strict=True):
        axes.annotate(
            text, place, (1 + 8 / box.width, (height - box.y0) / box.height), textcoords="axes fraction", va="center",
            color=hue, annotation_clip=False, parse_math=False, fontsize=12, **look,
        )  # fmt: skip
