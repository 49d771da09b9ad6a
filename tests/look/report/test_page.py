"""The report in a browser: it loads clean, asks for nothing, and what can be used on it does what it says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.durations import from_clock
from polluxsim.records.results import AllocationRecord, SharingRecord
from polluxsim.records.storage import write_run

from .conftest import CONFIG, HOSTILE, Page, hand_made, opened, write_hand_made

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("by-hand")
    write_hand_made(folder / "run")
    assert main(["report", str(folder / "run"), "-o", str(folder / "r.html")]) == 0
    return folder / "r.html"


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory, simulated: dict[str, Path]) -> Path:
    path = tmp_path_factory.mktemp("two") / "r.html"
    assert main(["report", *map(str, simulated.values()), "-o", str(path)]) == 0
    return path


@pytest.fixture(autouse=True)
def size(browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", DESKTOP)
    prefer(browser, "light")


def prefer(browser: Any, scheme: str) -> None:
    """Prefer light or dark, and a page that does not glide, so that things are where they are."""
    features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    named = [{"name": name, "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})


def move_slider(page: Page, seconds: float) -> None:
    page.run(
        "const s = document.getElementById('time'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
        seconds,
    )


def choose(page: Page, select: str, value: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(page.browser.find_element("id", select)).select_by_value(value)


def holders(page: Page) -> list[str]:
    """Return who holds each GPU in the view of the cluster."""
    return page.run("return polluxReport.cluster.holders()")


def test_it_loads_without_a_complaint_and_without_the_network(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    complaints = [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"]
    assert complaints == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert {url for url in asked if not url.startswith(("data:", "blob:", "about:"))} == {two_runs.as_uri()}
    assert page.run("return document.getElementById('failure').hidden")
    # Nor could anything on it ask: the page forbids it.
    refused = page.run("return fetch('https://example.org').then(() => 'answered', (error) => error.name)")
    assert refused == "TypeError"
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_the_slider_moves_the_cluster(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    for seconds, expected in (
        (30, ["idle"] * 8),
        (600, ["small"] * 4 + ["large"] * 2 + ["idle"] * 2),
        (2000, ["small"] * 4 + ["large"] * 4),
        (3900, ["idle"] * 4 + ["down"] * 4),
        (5000, ["large"] * 8),
    ):
        move_slider(page, seconds)
        assert holders(page) == expected
    assert page.text("#time-text") == "1:23:20"
    assert "8 of 8" in page.text("#moment-numbers")
    assert page.texts("#running a") == ["large 8 GPUs"]
    assert page.texts("#waiting a") == [f"{HOSTILE} for 1 h 20 min"]
    left, _ = over(page, "map", 5000, 0.5)
    assert page.run("return document.querySelector('#timeline .now').getBoundingClientRect().left") == pytest.approx(
        left, abs=1
    )


def test_a_node_that_is_down_is_hatched_and_not_counted_as_free(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    pixels = """
      const canvas = document.getElementById("cluster"), pen = canvas.getContext("2d");
      const style = getComputedStyle(document.documentElement), seen = new Set();
      const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
      for (let i = 0; i < data.length; i += 4) seen.add([data[i], data[i + 1], data[i + 2]].join());
      const colour = (name) => style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi);
      return ["--idle", "--hatch"].map((name) => seen.has(colour(name).map((part) => parseInt(part, 16)).join()));
    """
    for seconds, in_use, down, drawn in ((3900, "0 of 4", "1", [True, True]), (4150, "0 of 8", "0", [True, False])):
        move_slider(page, seconds)
        told = page.text("#moment-numbers").splitlines()
        assert [told[told.index(name) + 1] for name in ("GPUs in use", "nodes down")] == [in_use, down]
        assert page.run(pixels) == drawn


def test_the_slider_goes_by_keyboard_and_shows_its_focus(browser: Any, by_hand: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = opened(browser, by_hand)
    move_slider(page, 0)
    slider = browser.find_element("id", "time")
    slider.send_keys(Keys.END)
    assert page.text("#time-text") == "2:00:00"
    assert page.run("return getComputedStyle(document.getElementById('time')).outlineStyle") == "solid"


def test_the_table_filters_and_sorts(browser: Any, two_runs: Path, by_hand: Path) -> None:
    page = opened(browser, two_runs)
    assert len(set(page.column("application"))) > 1
    choose(page, "filter-application", "ncf")
    page.until("return !document.getElementById('filter-count').textContent.startsWith('30 of')", "fewer jobs")
    assert set(page.column("application")) == {"ncf"}
    assert int(page.text("#filter-count").split()[0]) == len(page.column("job"))
    page = opened(browser, by_hand)
    browser.find_element("id", "filter-name").send_keys("LAR")
    assert page.column("job") == ["large"]
    browser.find_element("id", "filter-name").clear()
    page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert page.column("job") == ["small", "large", HOSTILE]


NAMES_OF_THEIR_OWN = re.compile(
    r"GPU-hours|GPUs in use|waiting time|time to the first|[\"`>](?:JCT|restarts|failures|ρ)[\"`<]"
)


def test_pages_and_the_live_view_have_the_names_of_the_declared_metrics() -> None:
    package = Path(polluxsim.__file__).parent
    assets = package / "look" / "report" / "assets"
    sources = [*assets.glob("*.js"), assets / "page.html", package / "cli" / "live.py"]
    sources += [package / "studies" / "arena" / name for name in ("page.html", "page.py")]
    comments = re.compile(r'^ *(?://|#).*?$|""".*?"""', re.MULTILINE | re.DOTALL)
    code = {path.name: comments.sub("", path.read_text(encoding="utf-8")) for path in sources}
    found = {name: NAMES_OF_THEIR_OWN.findall(text) for name, text in code.items() if NAMES_OF_THEIR_OWN.search(text)}
    assert found == {}


def test_the_table_sorts_by_keyboard_and_says_how(browser: Any, by_hand: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = opened(browser, by_hand)
    sorted_by = "return [...document.querySelectorAll('#job-head th')].map((th) => th.getAttribute('aria-sort'))"
    (header,) = [button for button in page.deep("#job-head button") if button.text == "GPU time [GPU h]"]
    header.send_keys(Keys.ENTER)
    assert page.column("GPU time [GPU h]") == ["0.00", "4.00", "9.60"]
    assert page.run(sorted_by).count("ascending") == 1
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.column("GPU time [GPU h]") == ["9.60", "4.00", "0.00"]
    assert page.run(sorted_by).count("descending") == 1
    assert page.run("return document.activeElement.textContent.startsWith('GPU time [GPU h]')")


def test_whatever_takes_focus_has_a_name(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    nameless = page.run("""
      const named = (e) => e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length
        || document.getElementById(e.getAttribute('aria-labelledby') ?? '')?.textContent;
      const kinds = "a, button, input, select, [tabindex]:not(#job-title), canvas, svg[role=img]";
      return [...document.querySelectorAll(kinds)].filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 80));
    """)
    assert nameless == []


# Text with less contrast to what is behind it than 4.5:1 (WCAG 2.2, 1.4.3): what it says, and the ratio.
FAINT = """
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2;
  const behind = (e) => {
    for (let each = e; each; each = each.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(each).backgroundColor);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !e.getClientRects().length || ["SCRIPT", "STYLE"].includes(e.tagName)) continue;
    const { color, fill } = getComputedStyle(e), ink = light(numbers(e.namespaceURI.endsWith("svg") ? fill : color));
    const paper = light(behind(e)), ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) found.push([e.textContent.trim().slice(0, 30), ratio]);
  }
  return found;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(browser: Any, two_runs: Path, scheme: str) -> None:
    prefer(browser, scheme)
    page = opened(browser, two_runs)
    assert page.run(FAINT) == []
    page.deep("#job-body a")[0].click()
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert page.run(FAINT) == []


def test_names_on_the_map_are_in_the_ink_that_is_read_best(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    contrasts = page.run("""
      return polluxReport.data.load(0).then((run) => run.rgb.map((parts, job) => {
        const [r, g, b] = parts.map((part) => (part / 255) ** 2.2), light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
        return run.ink[job] === "#ffffff" ? 1.05 / (light + 0.05) : (light + 0.05) / 0.05;
      }));
    """)
    assert min(contrasts) >= 4.5


def test_lengths_of_time_and_moments_are_told_as_people_do(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    told = page.run("return [0.5, 9.34, 59.7, 90, 3600, 3700, 86400, 3313000, NaN].map(polluxReport.format.span)")
    expected = ["0.5 s", "9.3 s", "1 min", "1 min 30 s", "1 h 00 min", "1 h 02 min", "24 h 00 min", "38 d 8 h", "–"]
    assert told == expected
    moments = page.run("return [0, 59.6, 4680, 363599].map(polluxReport.format.clock)")
    assert moments == ["0:00:00", "0:01:00", "1:18:00", "100:59:59"]
    assert all(from_clock(moment) is not None for moment in moments)  # as `polluxsim why` takes them
    ticks = "return polluxReport.chart.lengthTicks({ start: 60, end: 259200, log: true }, arguments[0])"
    for room in (160, 380, 500):  # [px]: whole units are told before others
        assert {"1 min", "1 h", "1 d"} <= {text for _, text in page.run(ticks, room)}
    assert page.run("return [0, 1, 2].map((count) => polluxReport.format.plural(count, 'job'))") == [
        "0 jobs", "1 job", "2 jobs",
    ]  # fmt: skip


def over(page: Page, element: str, seconds: float, y: float) -> tuple[int, int]:
    """Return the point of the window at a time in what stands in the timeline, and a share of its height."""
    left, right, width, start, end = page.run(
        "const { LEFT, RIGHT } = polluxReport.chart, { start, end } = polluxReport.page.axis;"
        "return [LEFT, RIGHT, document.getElementById(arguments[0]).getBoundingClientRect().width, start, end]",
        element,
    )
    return page.place(element, (left + (seconds - start) / (end - start) * (width - left - right)) / width, y)


PLACES = ((1440, 0.1, "small cifar10"), (5400, 0.1, "large imagenet"), (3960, 0.1, "idle"), (3960, 0.7, "down"))


def test_hovering_over_the_map_tells_the_job(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    for seconds, y, expected in PLACES:
        (said,) = page.hover(*over(page, "map", seconds, y))
        assert expected in said


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ("cdf", "within"),
        ("by-application", "10–90 %"),
        ("panel-gpus", "GPUs in use"),
        ("panel-efficiency", "75 %"),
        ("panel-queue", "Queue"),
    ],
)
def test_every_figure_tells_what_is_under_the_pointer(browser: Any, by_hand: Path, element: str, said: str) -> None:
    page = opened(browser, by_hand)
    x, y = page.place(element, 0.5, 0.5)
    if element == "by-application":
        x, y = page.run(
            "const dot = document.querySelector('circle').getBoundingClientRect(); return [dot.x + 5, dot.y + 5]"
        )
    (told,) = page.hover(round(x), round(y))
    assert said in told
    assert "FIFO" in told


def test_every_figure_of_a_job_tells_what_is_under_the_pointer(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    page.deep("#job-body a")[0].click()
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    for element in ("job-gpus", "job-batch", "job-efficiency", "job-progress"):
        (told,) = page.hover(*page.place(element, 0.5, 0.4))
        assert all(word in told for word in ("Pollux", "Tiresias", "batch size", "efficiency", "progress"))


def test_nodes_that_are_down_are_hatched(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    colours = """
      const box = map.getBoundingClientRect(), x = (arguments[0] - box.x) / box.width * map.width;
      const y = (arguments[1] - box.y) / box.height * map.height;
      const { data } = map.getContext("2d").getImageData(x - 8, y - 8, 16, 16);
      return new Set(new Uint32Array(data.buffer)).size;
    """
    there, down = (
        page.run(f"const map = document.getElementById('map'); {colours}", *over(page, "map", 3850, y))
        for y in (0.2, 0.7)
    )
    assert there == 1
    assert down > 1


def test_a_tap_on_the_map_moves_the_slider_and_names_the_job_in_the_page(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    page.pointer().move_to_location(*over(page, "map", 5400, 0.7)).click()
    page.perform()
    page.until("return document.getElementById('picked').textContent.includes('large')", "the job is named")
    assert "node 1, GPU 1" in page.text("#picked")
    assert "held 1:10:00 to 2:00:00" in page.text("#picked")
    assert page.text("#time-text").startswith(("1:30:", "1:29:"))
    page.deep("#picked a")[0].click()
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert page.text("#job-title") == "large"


# Whether a pixel of the map is of a job and not of the page, at shares of its width and height.
IS_HELD = """
  const map = document.getElementById("map"), pen = map.getContext("2d");
  return arguments[0].map(([x, y]) => {
    const [r, g, b] = pen.getImageData(Math.floor(x * map.width), Math.floor(y * map.height), 1, 1).data;
    return Math.max(r, g, b) - Math.min(r, g, b) > 40;
  });
"""


def held_at(page: Page, *places: tuple[float, float]) -> list[bool]:
    """Return what is painted at times [s] and shares of the map's height."""
    points = []
    width = page.run("return document.getElementById('map').getBoundingClientRect().width")
    left = page.run("return document.getElementById('map').getBoundingClientRect().left")
    for seconds, y in places:
        points.append(((over(page, "map", seconds, y)[0] - left) / width, y))
    return page.run(IS_HELD, points)


def test_the_map_paints_holders_and_all_figures_zoom_together(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    found = held_at(page, (1800, 0.1), (3960, 0.1), (720, 0.9), (2520, 0.9), (6840, 0.9))
    assert found == [True, False, False, True, True]
    start, end = over(page, "panel-gpus", 1800, 0.5), over(page, "panel-gpus", 3600, 0.5)
    page.pointer().move_to_location(*start).pointer_down().move_to_location(*end).pointer_up()
    page.perform()
    axis = "const { start, end } = polluxReport.page.axis; return [start, end]"
    page.until("return polluxReport.page.axis.start > 1000", "a drag zooms")
    assert page.run(axis) == pytest.approx([1800, 3600], abs=20)
    page.until("return document.querySelector('#panel-queue text').textContent === '0:30'", "the other figures too")
    assert held_at(page, (2700, 0.9), (3590, 0.1)) == [True, True]
    view = page.run("const v = document.querySelector('.view').getBoundingClientRect(); return [v.left, v.width]")
    strip = page.run("const v = document.querySelector('.brush').getBoundingClientRect(); return [v.left, v.width]")
    assert (view[0] - strip[0]) / strip[1] == pytest.approx(0.25, abs=0.01)
    page.place("picked", 0.5, -1)
    middle = (
        "const v = document.querySelector('.view').getBoundingClientRect(); return [v.left + v.width / 2, v.top + 20]"
    )
    x, y = map(round, page.run(middle))
    page.pointer().move_to_location(x, y).pointer_down().move_to_location(round(x + strip[1] / 4), y).pointer_up()
    page.perform()
    page.until("return polluxReport.page.axis.start > 3000", "the strip below moves it")
    assert page.run(axis) == pytest.approx([3600, 5400], abs=40)
    page.run("document.querySelector('[data-move=all]').click()")
    page.until("return polluxReport.page.axis.end === 7200", "all of it")


def test_all_figures_over_time_have_the_same_borders(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    borders = page.run("""
      const lines = [...document.querySelectorAll("#timeline svg .axes line")];
      return lines.map((line) => line.getBoundingClientRect()).filter(({ width }) => width > 100)
        .map(({ left, right }) => [Math.round(left), Math.round(right)].join());
    """)
    assert len(borders) > 6
    assert len(set(borders)) == 1


def test_the_page_of_a_job_states_its_failures_and_their_cost(browser: Any, tmp_path: Path) -> None:
    result = hand_made()
    jobs = tuple(
        job._replace(num_failures=1, lost_time=90.0) if job.job == "large" else job for job in result.job_records
    )
    write_run(tmp_path / "run", replace(result, job_records=jobs), {"config": CONFIG, "seed": 7, "nodes": [[2, 4]]})
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r.html")]) == 0
    page = opened(browser, tmp_path / "r.html", "#job/0/large")
    told = page.text("#job-facts").splitlines()
    assert [told[told.index(name) + 1] for name in ("failures", "cost of failures")] == ["1", "1 min 30 s"]
    page = opened(browser, tmp_path / "r.html", "#job/0/small")
    assert "failures" not in page.text("#job-facts")


def test_a_move_of_the_slider_draws_no_figure_anew(browser: Any, two_runs: Path) -> None:
    """The line of the moment is of the page's own style, so that a move costs the cluster only."""
    page = opened(browser, two_runs)
    page.run("""
      window.drawn = 0;
      new MutationObserver((all) => { window.drawn += all.length; })
        .observe(document.getElementById("timeline"), { childList: true, subtree: true, characterData: true });
    """)
    before = page.run("return document.querySelector('#timeline .now').getBoundingClientRect().left")
    move_slider(page, 60)
    assert page.run("return window.drawn") == 0
    assert page.run("return document.querySelector('#timeline .now').getBoundingClientRect().left") != before


def test_the_page_of_a_job(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand, "#job/0/large")
    assert page.text("#job-title") == "large"
    assert page.texts("#job-changes td:nth-child(2)") == [
        "starts on 2 GPUs",
        "changes its batch size",
        "grows by 2 GPUs",
        "lost 4 GPUs as node 1 went down (failure)",
        "restarts on 8 GPUs",
        "completes",
    ]
    waits = page.texts("#job-waiting > li")
    assert len(waits) == 2
    assert waits[0] == "20 s from 0:01:40: It was submitted between two rounds; the next one was at 0:02:00."
    assert waits[1].startswith(
        "10 min from 1:00:00: it lost 4 GPUs as node 1 went down (failure). "
        "At its beginning all 4 GPUs were held and 1 other job waited too"
    )
    assert "1:00:00 The policy gives the reason kept waiting (gpus_needed = 8 GPUs" in waits[1]
    assert "jobs small" in waits[1]
    assert page.run("return polluxReport.job.figures().gpus.lines[0].y") == [0, 2, 2, 4, 0, 8, 0]
    assert not page.deep("#job-work")
    assert "does not say where its profiles are" in page.text("#job-note")
    page.deep("#job-next")[0].click()
    page.until("return document.getElementById('job-title').textContent !== 'large'", "the next job")
    assert page.text("#job-title") == HOSTILE
    assert page.run("return document.title") == "FIFO on 3 jobs – polluxsim"
    assert "never" in page.text("#job-facts")
    browser.back()
    page.until("return document.getElementById('job-title').textContent === 'large'", "the job before")


def test_a_job_of_a_real_run_has_efficiency_and_progress(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    page.deep("#job-body a")[0].click()
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    done = page.run("return [...polluxReport.job.figures().progress.lines[0].y]")
    assert done[0] == 0
    assert done[-1] == pytest.approx(1, abs=1e-6)
    assert "the profile cards that come with polluxsim" in page.text("#job-note")


def test_another_run_is_shown_and_lines_are_hidden(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    first = page.column("GPU time [GPU h]")
    choose(page, "run", "1")
    page.until("return document.getElementById('run').value === '1'", "the other run")
    assert page.column("GPU time [GPU h]") != first
    count = "return document.querySelectorAll('#panel-queue .line').length"
    assert page.run(count) == 2
    page.run("document.querySelector('.show-run').click()")
    assert page.run(count) == 1


@pytest.mark.parametrize("place", ["", "#job/0/large"])
def test_a_phone_shows_it_all_without_sideways_scrolling(browser: Any, by_hand: Path, place: str) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page = opened(browser, by_hand, place)
    width = "return [document.documentElement.scrollWidth, innerWidth]"
    assert page.run(width) == [390, 390]
    wider = page.run(
        "return [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, pre') && e.offsetParent"
        " && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + '.' + e.className)"
    )
    assert wider == []


@pytest.mark.parametrize("asked", [False, True])
def test_dark_mode_by_the_system_or_by_the_switch(browser: Any, by_hand: Path, asked: bool) -> None:
    if not asked:
        prefer(browser, "dark")
    page = opened(browser, by_hand)
    if asked:
        browser.find_element("id", "theme").click()
    colors = page.run("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    luminance = [sum(map(int, color.strip("rgb()").split(",")[:3])) for color in colors]
    assert luminance[0] < 100
    assert luminance[1] > 600
    assert page.run("return document.documentElement.dataset.theme") == "dark"


def test_scrolling_over_the_map_scrolls_the_page(browser: Any, by_hand: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    page = opened(browser, by_hand)
    x, y = over(page, "map", 3600, 0.5)
    before = page.run("return [scrollY, polluxReport.page.axis.end]")
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_viewport(x, y), 0, 200).perform()
    page.until(f"return scrollY > {before[0]} + 50", "the page has moved")
    assert page.run("return polluxReport.page.axis.end") == before[1]


@pytest.mark.parametrize(
    ("scheme", "device", "place"),
    [*product(("light", "dark"), (DESKTOP,), ("", "#job/0/large")), ("light", PHONE, "")],
)
def test_axe_finds_nothing_serious(browser: Any, by_hand: Path, scheme: str, device: Any, place: str) -> None:
    """What axe-core, which knows the rules of accessible pages, complains of."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    prefer(browser, scheme)
    opened(browser, by_hand, place)
    browser.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 15
    browser.execute_script("document.documentElement.removeAttribute('lang')")
    worse = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert {each["id"] for each in worse["violations"]} - {each["id"] for each in found["violations"]} == {
        "html-has-lang"
    }
    serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in serious] == []


def test_a_gpu_that_jobs_share_is_split_and_counted_once(browser: Any, tmp_path: Path) -> None:
    made = hand_made()
    both = [("small", 0.0, (0, 1)), ("large", 0.6, (1, 0))]
    shares = tuple(SharingRecord(4200.0, name, (0, 0), gpus, 1 - lost) for name, lost, gpus in both)
    allocations = tuple(AllocationRecord(4200.0, name, (0,), (2,), 64, 0) for name, _, _ in both)
    write_run(
        tmp_path / "run", replace(made, allocation_records=allocations, sharing_records=shares, outage_records=()),
        {"config": CONFIG, "nodes": [[2, 4]]},
    )  # fmt: skip
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r.html")]) == 0
    page = opened(browser, tmp_path / "r.html")
    move_slider(page, 5000)
    assert holders(page) == ["small, large", "small, large", *["idle"] * 6]
    assert "2 of 8" in page.text("#moment-numbers")
    page.pointer().move_to_location(*over(page, "map", 5400, 0.05)).click()
    page.perform()
    page.until("return document.getElementById('picked').textContent.includes('large')", "both are named")
    assert "large (imagenet) at 40 % of its speed since 1:10:00, here since 1:10:00" in page.text("#picked")
    page.run("location.hash = '#job/0/large'")
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert "40 % of its speed alone, beside small" in page.text("#job-shared")


def test_the_view_does_not_replace_the_address_of_a_link_that_is_not_followed_yet(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    page.run("""
      const { setTimeout } = window;
      let keepView;  // the timer ends after the click and before the event of the link
      window.setTimeout = (call) => { keepView = call; };
      polluxReport.page.moveTo(3600);
      window.setTimeout = setTimeout;
      document.querySelector("#job-body a").click();
      keepView();
    """)
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert page.run("return location.hash").startswith("#job/0/")
