"""Builds the charts of an HTML page, each for a wide and a narrow screen, from the page's results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kernel_harness.core.precision import Precision
from kernel_harness.problem.problem import differing
from kernel_harness.report import charts
from kernel_harness.report.page import Page, rows
from kernel_harness.report.sheet import NARROW, WIDE
from kernel_harness.results import ranking
from kernel_harness.results import roofline as peaks
from kernel_harness.results.cells import bounds, ratio
from kernel_harness.results.record import Result, at_each_shape
from kernel_harness.timing import intervals
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing

MOST_ROWS, MOST_POINTS = 24, 14
"""A chart shows at most the first MOST_ROWS kernels of the table, the roofline chart at most MOST_POINTS.

More are unreadable.
"""


@dataclass(frozen=True)
class Picture:
    """A chart as SVG in a wide and a narrow version, and a sentence that describes it for screen readers."""

    wide: str
    narrow: str
    words: str


def _timed(page: Page) -> list[tuple[Result, Timing]]:
    """Returns the results of the page that have a time, baselines included, in table order and at most MOST_ROWS."""
    return [(r, r.timing) for r in page.latest.values() if r.timing][:MOST_ROWS]


def _drawn(draw: Callable[[int], str], words: str) -> Picture:
    return Picture(draw(WIDE), draw(NARROW), words)


def speed(page: Page) -> Picture | None:
    """Builds the chart of the kernels' speedups over the baseline. Returns None if no kernel has a speedup.

    For results from the emulated device, the chart shows times instead, because emulated speedups say nothing about a
    GPU. It is then None if no kernel has a time.
    """
    if page.emulated:
        bars = [_time_bar(result, timing) for result, timing in _timed(page)]
        words = "Milliseconds per call of each kernel in the emulation with their 95% intervals."
        return _drawn(lambda width: charts.times(bars, width), words) if bars else None
    compared = [(r, r.speedup) for r, _ in _timed(page) if r.kernel != r.settings.baseline]
    bars = [_speed_bar(result, speedup) for result, speedup in compared if speedup]
    words = f"Speedup of each kernel over {page.baseline} with its 95% interval, fastest first."
    return _drawn(lambda width: charts.speedups(bars, width, page.baseline), words) if bars else None


def _speed_bar(result: Result, speedup: Interval) -> charts.Bar:
    return charts.Bar(result.kernel, speedup, interval_text(speedup, ratio, "×"), intervals.compare(speedup).value)


def _time_bar(result: Result, timing: Timing) -> charts.Bar:
    colour = "undecided" if result.is_baseline else "same"
    return charts.Bar(result.kernel, timing.time, interval_text(timing.time, "{:.4g}".format, " ms"), colour)


def interval_text(value: Interval, text: Callable[[float], str], unit: str) -> str:
    """Returns a value with its unit and its 95% confidence interval, such as `1.021× (0.981 – 1.067)`.

    `text` makes a number's text. Without an interval, returns text such as `1.021×`.
    """
    estimate, within = f"{text(value.estimate)}{unit}", bounds(value, text, " – ")
    return f"{estimate} ({within})" if within else estimate


def roofline(page: Page) -> Picture | None:
    """Builds the roofline chart: operations per second of each kernel, under the limits of the device.

    Returns None if the limits of the device, or the operations and bytes of the problem, are unknown; if nothing was
    timed; or if a result is from the emulated device.
    """
    timed = [(r, t) for r, t in _timed(page) if r.numbers.get("flops") and r.numbers.get("bytes")]
    timed = timed[:MOST_POINTS]
    roofs = _roofs([result for result, _ in timed])
    if not timed or not roofs or page.emulated:
        return None
    numbers = timed[0][0].numbers
    shares = {row["kernel"]: row["percent_of_peak"] for row in rows(page)}
    points = []
    for result, timing in timed:
        rate, share = numbers["flops"] / timing.time_ms * 1e3, shares[result.kernel]
        percent = "" if share is None else f", {share:.3g}%"
        points.append(charts.Point(result.kernel, rate, f"{rate / 1e12:.3g} TFLOPS{percent}"))
    intensity = numbers["flops"] / numbers["bytes"]
    words = f"Roofline: the kernels at {intensity:.4g} FLOPs per byte under the device's roofs."
    return _drawn(lambda width: charts.roofline(points, intensity, roofs, width), words)


def _roofs(timed: Sequence[Result]) -> list[charts.Roof]:
    """Returns the device's limits in each number format that a kernel computes in.

    If a kernel exceeds the peak of its format, the device's fastest format is among them. There are up to two limits
    per format: those from the device's data sheet, and those measured on the device. Formats with equal limits are one.
    """
    formats: dict[tuple[float, float, str], dict[str, None]] = {}
    for result in timed:
        fastest = peaks.fastest_peak(result)
        for name in (str(result.precision or Precision.FLOAT32), *([fastest[1]] if fastest else [])):
            for source in ("peak", "ceiling"):
                speed, rate = (result.numbers.get(f"{source}_{of}") for of in ("bytes_per_s", f"{name}_flops_per_s"))
                if speed and rate:
                    formats.setdefault((speed, rate, source), {})[name] = None
    return [
        charts.Roof(speed, rate, ", ".join(names), source == "ceiling")
        for (speed, rate, source), names in formats.items()
    ]


def devices(columns: Sequence[tuple[str, Page]], kernels: Sequence[str]) -> Picture | None:
    """Builds the chart of the times of each of the `kernels` on several devices. Returns None if nothing was timed.

    `columns` has the name of each device, and its results.
    """
    times = {name: {kernel: result.timing for kernel, result in page.latest.items()} for name, page in columns}
    drawn = [(k, [t.time if (t := each.get(k)) else None for each in times.values()]) for k in kernels]
    timed = [(kernel, each) for kernel, each in drawn if any(each)][:MOST_ROWS]
    words = f"Milliseconds per call of each kernel on {', '.join(times)}, with their 95% intervals."
    return _drawn(lambda width: charts.devices(timed, width), words) if timed else None


def samples(page: Page) -> Picture | None:
    """Builds the chart of the times of every timed call of each kernel. Returns None if nothing was timed."""
    timed = [(result.kernel, timing.samples_ms) for result, timing in _timed(page)]
    words = "Each timed call of each kernel, with its median."
    return _drawn(lambda width: charts.samples(timed, width), words) if timed else None


def phases(page: Page) -> Picture | None:
    """Builds the chart of the seconds that the build and the checks of each kernel took, failed kernels included.

    Returns None if no kernel was built or checked.
    """
    found = []
    for result in page.latest.values():
        build, check = (result.phases_s.get(name, 0.0) for name in ("build", "check"))
        if not result.is_baseline and build + check > 0:
            cached = bool(result.builds) and all(b.cached for b in result.builds)
            text = f"{build:.1f} s{' cached' if cached else ''} + {check:.1f} s"
            found.append((result.kernel, build, check, text))
    found = found[:MOST_ROWS]
    words = "Seconds that building and checking took."
    return _drawn(lambda width: charts.phases(found, width), words) if found else None


def history(page: Page) -> Picture | None:
    """Builds the chart of how the speedups (emulated: the times) of kernels changed from run to run.

    It shows the first `charts.SERIES` timed kernels of the table. Only results with the processor (CPU) model of the
    newest timed result count, because times with different processors are not comparable. Returns None if these results
    come from fewer than two runs, or if they have no value to show.
    """
    dates = {result.run: result.measured_at[5:16].replace("T", " ") for result in page.results}
    return _over(page, "run", lambda result: result.run, dates, least=1)


def revisions(page: Page) -> Picture | None:
    """Builds the chart of how the speedups (emulated: the times) of kernels changed from one git revision to the next.

    It shows kernels with results of two revisions or more, the last result of each; otherwise it is as in `history`. A
    `+` after a revision stands for uncommitted changes. The revisions are in the order of their first results.
    """
    return _over(page, "revision", _revision, {}, least=2)


def _revision(result: Result) -> str:
    commit = str(result.environment.get("commit", ""))[:7]
    return commit and commit + "+" * bool(result.environment.get("dirty"))


def _over(
    page: Page, what: str, place: Callable[[Result], str], ticks: Mapping[str, str], *, least: int
) -> Picture | None:  # fmt: skip
    """Builds a chart of kernels over the values of `place`, each called `what`, except results for which it is empty.

    `ticks` has the labels of places that are not their own labels. A kernel has at least `least` points.
    """
    timed = [result for result in _of_one_machine(page.results) if place(result)]
    places = list(dict.fromkeys(map(place, timed)))
    if len(places) < 2:
        return None
    shown = [r.kernel for r in page.latest.values() if r.timing and (page.emulated or not r.is_baseline)]
    points = {kernel: _points(timed, places, place, kernel, page.emulated) for kernel in shown}
    series = [charts.Series(kernel, found) for kernel, found in points.items() if len(found) >= least]
    label, unit = ("emulated ms per call", "") if page.emulated else (f"speedup over {page.baseline}", "×")
    words = f"The {label} of each kernel in each {what}."
    labels = [ticks.get(each, each) for each in places]
    draw = partial(charts.lines, series[: charts.SERIES], labels, unit, ("", label))
    return _drawn(draw, words) if series else None


def _of_one_machine(results: Sequence[Result]) -> list[Result]:
    """Returns the timed results with the processor (CPU) model of the newest one, with which they are comparable."""
    timed = [r for r in results if r.timing]
    return [r for r in timed if r.environment.get("processor") == timed[-1].environment.get("processor")]


def sizes(page: Page, results: Sequence[Result]) -> list[tuple[str, Picture]]:
    """Builds the charts of the time, the speedup and the throughput of kernels at each shape, as far as known.

    Returns each with its title. `results` are those at all shapes. The charts show the first `charts.SERIES` timed
    kernels of the page. There are no charts if the kernels were timed at fewer than two shapes.
    """
    timed = _of_one_machine([each for result in results for each in at_each_shape(result)])
    shapes = list({tuple(r.shape.items()): dict(r.shape) for r in timed}.values())
    shapes.sort(key=lambda shape: (math.prod(shape.values()), *shape.values()))
    names = differing(shapes)
    ticks = ["×".join(str(shape.get(name)) for name in names) for shape in shapes]
    latest = [ranking.latest(timed, shape) for shape in shapes]
    kernels = [r.kernel for r in page.latest.values() if r.timing][: charts.SERIES]
    kernels.sort(key=lambda kernel: kernel == page.baseline)  # which has no speedup, so the others keep their colours
    found = []
    for title, label, unit, value in _quantities(page):
        points = {k: [(i, v, False) for i, at in enumerate(latest) if k in at and (v := value(at[k]))] for k in kernels}
        series = [charts.Series(kernel, values) for kernel, values in points.items() if values]
        if len(shapes) > 1 and series:
            draw = partial(charts.lines, series, ticks, unit, ("×".join(names), label))
            found.append((f"{title} at each shape", _drawn(draw, f"The {label} of each kernel at each shape.")))
    return found


def _quantities(page: Page) -> list[tuple[str, str, str, Callable[[Result], Interval | None]]]:
    """Returns what is drawn over the shapes, each as (title, label, unit, function that returns a result's value)."""
    if page.emulated:
        return [("Time", "emulated ms per call", " ms", _time)]
    rate = peaks.tflops if any(map(peaks.tflops, page.latest.values())) else peaks.gbytes_per_s
    return [
        ("Time", "ms per call", " ms", _time),
        ("Speedup", f"speedup over {page.baseline}", "×", _speedup),
        ("Throughput", "TFLOPS" if rate is peaks.tflops else "GB/s", "", partial(_throughput, rate)),
    ]


def _time(result: Result) -> Interval | None:
    return result.timing.time if result.timing else None


def _speedup(result: Result) -> Interval | None:
    return result.speedup if result.kernel != result.settings.baseline else None


def _throughput(rate: Callable[[Result], float | None], result: Result) -> Interval | None:
    """Returns the rate with its interval, which follows from that of the time."""
    value, time = rate(result), _time(result)
    if not value or not time:
        return None
    work = value * time.estimate
    return Interval(time.high and work / time.high, value, time.low and work / time.low)


def _points(
    timed: Sequence[Result], places: Sequence[str], place: Callable[[Result], str], kernel: str, emulated: bool
) -> list[tuple[int, Interval, bool]]:
    """Returns the points of a kernel's line, from the last result at each of the `places`."""
    found: dict[int, tuple[int, Interval, bool]] = {}
    source = None
    for result in (r for r in timed if r.kernel == kernel):
        value = _time(result) if emulated else result.speedup
        if not value:
            continue
        index = places.index(place(result))
        found[index] = (index, value, source is not None and source != result.source_sha256)
        source = result.source_sha256
    return [found[index] for index in sorted(found)]
