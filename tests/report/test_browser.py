"""The page in a real browser: loading, sorting, filtering and layout, for screen, phone, dark mode and print."""

from __future__ import annotations

import base64
import io
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from support.command import ROOT
from support.pages import HOSTILE, SHAPE, board, keep, result, timed

from kernel_harness import report
from kernel_harness.core.status import Status
from kernel_harness.problem import lookup
from kernel_harness.results.line_profile import LineCosts, StoredProfile

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver
from selenium.common import exceptions
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not installed"),
]
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-sync", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    except exceptions.WebDriverException as error:
        pytest.skip(f"Chromium does not start: {str(error.msg).splitlines()[0]}")
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """A page with times, failures, two runs, and texts that contain markup."""
    hostile = result("hostile", Status.CRASHED, title=HOSTILE, verdict=HOSTILE, log=HOSTILE + ".")
    folder = keep(tmp_path_factory.mktemp("results"), *board(), hostile, timed("fast", 2.4, run="20260103-000000-ffff"))
    (written,) = report.write(lookup.problem("matmul_tt", ROOT), folder, ROOT)
    assert dict(SHAPE) == dict(lookup.problem("matmul_tt", ROOT).shape)
    return written


@pytest.fixture
def opened(browser, path) -> webdriver.Chrome:
    """The page, newly loaded, on a wide light screen."""
    look(browser, 1200)
    load(browser, path)
    return browser


LOADED = "return [location.href, document.readyState]"
_numbers = itertools.count()


def load(browser, path: Path) -> None:
    """Opens a page and waits until its script has run.

    `get` may return while the page before is still shown, or before the end of the page is read. So each load has an
    address of its own, and the page itself says that it is complete.
    """
    address = f"{path.as_uri()}?{next(_numbers)}"
    browser.get(address)
    WebDriverWait(browser, 60).until(lambda browser: browser.execute_script(LOADED) == [address, "complete"])


def look(browser, width: int, *, dark: bool = False, media: str = "") -> None:
    """Emulates a screen of that width in pixels."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})


def kernels(browser) -> list[str]:
    """The names in the visible rows of the table, from top to bottom."""
    script = """return [...document.querySelectorAll('#table tbody tr')].filter(row => row.offsetHeight)
                .map(row => row.querySelector('a').textContent)"""
    return list(browser.execute_script(script))


def sort_by(browser, title: str) -> None:
    browser.execute_script(
        "[...document.querySelectorAll('th button')].find(b => b.textContent === arguments[0]).click()", title
    )


def shown(browser, selector: str) -> list[bool]:
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect().height > 0)"
    return list(browser.execute_script(script, selector))


BY_RANK = ["fast", "torch", "tiled", "naive", "slowest", "untimed", "no_build", "hostile", "wrong_tail"]
UNTIMED = {"untimed", "hostile", "no_build", "wrong_tail"}


def test_it_loads_without_console_messages_and_without_the_network(opened):
    assert opened.get_log("browser") == []
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert kernels(opened) == BY_RANK


def test_text_that_contains_markup_runs_nothing(opened):
    assert opened.execute_script("return window.hacked") is None


def test_a_script_added_to_the_page_does_not_run(opened):
    opened.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    )
    assert opened.execute_script("return window.hacked") is None
    assert "Content Security Policy" in opened.get_log("browser")[0]["message"]


def test_number_columns_sort_as_numbers_with_empty_cells_last(opened):
    sort_by(opened, "kernel")  # otherwise the rows without a time are last already
    sort_by(opened, "time (ms)")
    assert kernels(opened)[:5] == ["fast", "torch", "tiled", "naive", "slowest"]
    assert set(kernels(opened)[5:]) == UNTIMED
    sort_by(opened, "time (ms)")
    assert kernels(opened)[:5] == ["slowest", "naive", "tiled", "torch", "fast"]
    assert set(kernels(opened)[5:]) == UNTIMED


def test_text_columns_sort_alphabetically_and_set_aria_sort(opened):
    sort_by(opened, "kernel")
    assert kernels(opened) == sorted(BY_RANK)
    sorts = "return [...document.querySelectorAll('th[aria-sort]')].map(h => h.textContent + h.ariaSort)"
    assert opened.execute_script(sorts) == ["kernelascending"]
    sort_by(opened, "#")
    assert kernels(opened) == BY_RANK


def test_the_table_is_filtered_by_words_and_by_status(opened):
    box = opened.find_element("id", "filter")
    box.send_keys("IDEA tile")
    assert kernels(opened) == ["tiled"]
    assert opened.find_element("id", "count").text == "1 of 9 rows"
    box.clear()
    box.send_keys(" ")
    opened.find_element("css selector", "[data-show=failed]").click()
    assert kernels(opened) == ["no_build", "hostile", "wrong_tail"]
    opened.find_element("css selector", "[data-show=all]").click()
    assert kernels(opened) == BY_RANK


def test_a_kernel_s_link_opens_its_source(opened):
    opened.find_element("link text", "tiled").click()
    title = "return document.querySelector('.kernel[open] .title')?.textContent"
    assert WebDriverWait(opened, 30).until(lambda browser: browser.execute_script(title)) == "tiled"


def test_each_chart_is_shown_once_in_the_width_of_the_screen(opened):
    assert shown(opened, ".chart.wide svg") == [True] * 5 and shown(opened, ".chart.narrow svg") == [False] * 5
    look(opened, 390)
    assert shown(opened, ".chart.wide svg") == [False] * 5 and shown(opened, ".chart.narrow svg") == [True] * 5


@pytest.mark.parametrize("width", [320, 390, 820, 1200])
def test_nothing_is_wider_than_the_screen(opened, width):
    look(opened, width)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width


def test_every_column_of_the_table_can_be_reached_on_a_phone(opened):
    """The table is scrolled in its own frame, and the column of names, which stays, leaves room for another column."""
    look(opened, 400)
    reached = """
      const frame = document.querySelector('#leaderboard .scroll');
      const heads = [...document.querySelectorAll('#table th')].filter(head => head.offsetWidth);
      const name = heads.find(head => head.classList.contains('name'));
      return heads.filter(head => head !== name).map(head => {
        frame.scrollLeft = 0;
        frame.scrollLeft = head.getBoundingClientRect().left - name.getBoundingClientRect().right;
        const [box, left] = [head.getBoundingClientRect(), name.getBoundingClientRect().right];
        return [head.textContent, box.left >= left - 1, box.right <= frame.getBoundingClientRect().right + 1];
      })"""
    found = opened.execute_script(reached)
    assert [title for title, *seen in found if not all(seen)] == []
    assert {"time (ms)", "speedup", "shapes"} <= {title for title, *_ in found}


def test_the_status_of_every_kernel_is_on_a_phone_s_screen(opened):
    look(opened, 420)
    visible = """
      const frame = document.querySelector('#leaderboard .scroll').getBoundingClientRect();
      return [...document.querySelectorAll('#table tbody tr')].map(row => [...row.querySelectorAll('.badge')]
        .filter(badge => badge.offsetHeight && badge.getBoundingClientRect().right <= frame.right)
        .map(badge => badge.textContent).join())"""
    assert sorted(opened.execute_script(visible)) == sorted(
        ["PASSED"] * 6 + ["BUILD_ERROR", "CRASHED", "WRONG_VALUES"]
    )  # fmt: skip


def test_the_line_between_two_rows_goes_on_under_the_column_that_stays(opened):
    """The pixels of the line have one colour over the whole width of the table."""
    look(opened, 420)
    opened.execute_script("document.querySelector('#leaderboard .scroll').scrollLeft = 60")
    tops = "[...document.querySelectorAll('#table tbody tr')].map(row => row.getBoundingClientRect().top + scrollY)"
    left = "document.querySelector('#leaderboard .scroll').getBoundingClientRect().left"
    rows, start = opened.execute_script(f"return [{tops}, {left}]")
    image = screenshot(opened)
    line = image.getpixel((round(start) + 250, round(rows[0])))
    for top in rows:
        pixels = {image.getpixel((round(start) + x, round(top))) for x in (4, 40, 100, 180, 250)}
        assert pixels == {line}, (top, pixels)


def test_code_in_a_reason_is_not_wrapped_on_a_phone(browser, tmp_path):
    code = "    5 |   c[i] = a[i] + " + "undefined_name + " * 6
    kernel = result("k", Status.BUILD_ERROR, verdict=f"k.cu:5: error: no such name\n{code}\n      |    ^")
    (written,) = report.write(lookup.problem("matmul_tt", ROOT), keep(tmp_path / "nvidia-h200", kernel), ROOT)
    look(browser, 420)
    load(browser, written)
    heights = "return [...document.querySelectorAll('.failure .code')].map(line => line.getBoundingClientRect().height)"
    long, caret = browser.execute_script(heights)
    assert long == caret > 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 420


def test_letters_of_the_charts_are_large_enough_to_read(opened):
    """At least 8 pixels, after the picture is scaled."""
    smallest = """return Math.min(...[...document.querySelectorAll('.chart text')]
        .filter(text => text.getBoundingClientRect().height)
        .map(text => [parseFloat(getComputedStyle(text).fontSize), text.getScreenCTM()])
        .map(([size, shown]) => size * Math.hypot(shown.a, shown.b)))"""
    for width in (320, 390, 820, 1200):
        look(opened, width)
        assert opened.execute_script(smallest) >= 8, width


def screenshot(browser) -> Image.Image:
    """The whole page, with one pixel of the image for a pixel of the page."""
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")


def contrast(browser, selector: str) -> float:
    """The contrast of an element's text to the card behind it (WCAG's ratio; text needs at least 4.5)."""
    script = """
      const light = rgb => rgb.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const element = document.querySelector(arguments[0]);
      const style = getComputedStyle(element);
      const text = light(element instanceof SVGElement ? style.fill : style.color);
      const card = light(getComputedStyle(document.querySelector('#leaderboard')).backgroundColor);
      return (Math.max(text, card) + 0.05) / (Math.min(text, card) + 0.05)"""
    return float(browser.execute_script(script, selector))


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_light_and_dark(opened, dark):
    look(opened, 1200, dark=dark)
    for selector in (".note", "td.name a", ".versus.slower", ".versus.faster", ".chart.wide text", ".badge.bad"):
        assert contrast(opened, selector) >= 4.5, selector


def test_dark_is_dark_and_paper_is_white(opened):
    background = "return getComputedStyle(document.body).backgroundColor"
    look(opened, 1200, dark=True)
    assert opened.execute_script(background) == "rgb(16, 19, 23)"
    look(opened, 800, dark=True, media="print")
    assert opened.execute_script(background) == "rgb(255, 255, 255)"
    assert shown(opened, ".controls") == [False] and all(shown(opened, ".chart.wide svg"))


def test_it_prints(opened):
    printed = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_the_lines_of_a_profile_are_sorted_by_their_cost(browser, tmp_path):
    sectors = {1: 90.0, 2: 1000.0, 3: 5.0}
    lines = tuple(LineCosts(line, f"line {line}", count, 0.0, 0.0, 0.0) for line, count in sectors.items())
    kernel = timed("fast", 2.5)
    folder = keep(tmp_path / "nvidia-h200", kernel)
    profile = StoredProfile("fast", kernel.source_sha256, {"M": 48}, False, (), lines)
    profile.write(tmp_path / "cpu-emulated" / "profiles")
    (written,) = report.write(lookup.problem("matmul_tt", ROOT), folder, ROOT)
    load(browser, written)
    browser.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    for wanted in ("312", "213"):
        browser.execute_script("document.querySelectorAll('.profile th button')[2].click()")
        rows = "[...document.querySelectorAll('.profile tbody tr')].map((row) => row.cells[0].innerText)"
        assert "".join(browser.execute_script(f"return {rows}")) == wanted
