"""The report in a browser: it loads clean, asks for nothing, and what can be used on it does what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from polluxsim.cli.main import main

from .conftest import DEEP, HOSTILE, Page, opened, write_hand_made

if TYPE_CHECKING:
    from pathlib import Path

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
    return page.run("return Bokeh.documents[0].get_model_by_name('cluster-gpus').data.job")


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
        (3900, ["idle"] * 8),
        (5000, ["large"] * 8),
    ):
        move_slider(page, seconds)
        assert holders(page) == expected
    assert page.text("#time-text") == "1 h 23 min"
    assert "8 of 8" in page.text("#moment-numbers")
    assert page.texts("#running a") == ["large 8 GPUs"]
    assert page.texts("#waiting a") == [f"{HOSTILE} since 1 h 20 min"]
    assert page.run("return Bokeh.documents[0].get_model_by_name('now-map').location") == pytest.approx(
        5000 / 3600, abs=1e-3
    )


def test_the_slider_goes_by_keyboard_and_shows_its_focus(browser: Any, by_hand: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = opened(browser, by_hand)
    move_slider(page, 0)
    slider = browser.find_element("id", "time")
    slider.send_keys(Keys.END)
    assert page.text("#time-text") == "2 h 00 min"
    assert page.run("return getComputedStyle(document.getElementById('time')).outlineStyle") == "solid"


def test_the_table_filters_and_sorts(browser: Any, two_runs: Path, by_hand: Path) -> None:
    page = opened(browser, two_runs)
    applications = set(page.column(1))
    assert len(applications) > 1
    choose(page, "filter-application", "ncf")
    page.until("return !document.getElementById('filter-count').textContent.startsWith('30 of')", "fewer jobs")
    assert set(page.column(1)) == {"ncf"}
    assert int(page.text("#filter-count").split()[0]) == len(page.column(0))
    page = opened(browser, by_hand)
    browser.find_element("id", "filter-name").send_keys("LAR")
    assert page.column(0) == ["large"]
    browser.find_element("id", "filter-name").clear()
    page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert page.column(0) == ["small", "large", HOSTILE]
    (header,) = [element for element in page.deep(".slick-header-column") if element.text == "GPU-hours"]
    header.click()
    assert page.column(6) == ["0.00", "4.00", "9.60"]
    header.click()
    assert page.column(6) == ["9.60", "4.00", "0.00"]


def over_map(page: Page, hours: float, y: float) -> tuple[int, int]:
    """Return the point of the window where a time and a height of the map are, after scrolling there."""
    script = """
      const model = Bokeh.documents[0].get_model_by_name('map');
      let view = null;
      for (const root of Bokeh.index.roots ?? Object.values(Bokeh.index)) if (root.model === model) view = root;
      view.el.scrollIntoView({ block: 'center', behavior: 'instant' });
      const { left, top } = view.el.getBoundingClientRect(), { frame } = view;
      return [left + frame.x_scale.compute(arguments[0]), top + frame.y_scale.compute(arguments[1])];
    """
    x, y = page.run(script, hours, y)
    return round(x), round(y)


def test_hovering_over_the_map_tells_the_job(browser: Any, by_hand: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    page = opened(browser, by_hand)
    places = ((0.4, 6.5, "small (cifar10)"), (1.5, 6.5, "large (imagenet)"), (1.1, 6.5, "idle"), (1.1, 2.5, "down"))
    for hours, y, expected in places:
        actions = ActionChains(browser)
        actions.w3c_actions.pointer_action.move_to_location(*over_map(page, hours, y))
        actions.perform()
        told = DEEP.replace("SELECTOR", "'.told'") + "return found.map((e) => e.textContent.trim())"
        page.until(f"{told}.includes({json.dumps(expected)})", f"the tooltip says {expected}")


def test_nodes_that_are_down_are_hatched(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    hatched = page.run("return Bokeh.documents[0].get_model_by_name('map-down').data")
    assert hatched == {"left": [1.0], "right": [pytest.approx(4100 / 3600)], "top": [4], "bottom": [0]}


def test_a_tap_on_the_map_moves_the_slider_and_names_the_job_in_the_page(browser: Any, by_hand: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    page = opened(browser, by_hand)
    actions = ActionChains(browser)
    actions.w3c_actions.pointer_action.move_to_location(*over_map(page, 1.5, 2.5)).click()
    actions.perform()
    page.until("return document.getElementById('picked').textContent.includes('large')", "the job is named")
    assert "node 1, GPU 1" in page.text("#picked")
    assert "held from 1.17 h to 2.00 h" in page.text("#picked")
    assert page.text("#time-text").startswith("1 h 30 min") or page.text("#time-text").startswith("1 h 29 min")
    page.deep("#picked a")[0].click()
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert page.text("#job-title") == "large"


def test_the_map_paints_holders_and_zooms(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand)
    image = "const i = Bokeh.documents[0].get_model_by_name('map-image').data; "
    page.until(image + "return i.image[0].length > 100", "the map is painted")
    rows, columns = page.run(image + "return i.image[0].shape")
    assert rows == 8
    opaque = page.run(image + "return Array.from(i.image[0], (pixel) => pixel >>> 24)")
    for row, hours, held in ((7, 0.5, True), (7, 1.1, False), (0, 0.2, False), (0, 0.7, True), (0, 1.9, True)):
        assert (opaque[row * columns + int(hours / 2 * columns)] > 0) is held, (row, hours)
    browser.find_element("css selector", "[data-map=in]").click()
    page.until(image + "return i.dw[0] < 1.01", "half the time")
    assert page.run("return Bokeh.documents[0].get_model_by_name('gpus').x_range.end") == pytest.approx(1.5)
    browser.find_element("css selector", "[data-map=all]").click()
    page.until(image + "return i.dw[0] > 1.99 && i.image[0].shape[0] === 8", "all of it")


def test_the_page_of_a_job(browser: Any, by_hand: Path) -> None:
    page = opened(browser, by_hand, "#job/0/large")
    assert page.text("#job-title") == "large"
    assert page.texts("#job-changes td:nth-child(2)") == [
        "starts on 2 GPUs",
        "changes its batch size",
        "grows by 2 GPUs",
        "loses its GPUs and waits",
        "restarts on 8 GPUs",
        "completes",
    ]
    waits = page.texts("#job-waiting > li")
    assert len(waits) == 2
    assert waits[0].startswith("20 s from 0.03 h: at its beginning 4 GPUs of 8 were free and nobody else waited")
    assert waits[1].startswith("10 min from 1.00 h: at its beginning 4 GPUs of 8 were free and 1 other job waited too")
    assert "1.00 h the policy says: kept waiting (gpus_needed = 8 GPUs" in waits[1]
    assert "jobs small" in waits[1]
    data = page.run("return Bokeh.documents[0].get_model_by_name('job-had').data")
    assert data["gpus"] == [0, 2, 2, 4, 0, 8, 0]
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
    page.deep("a[href^='#job/']")[0].click()
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    done = page.run("return Bokeh.documents[0].get_model_by_name('job-done').data")
    assert done["progress"][0] == 0
    assert done["progress"][-1] == pytest.approx(1, abs=1e-6)
    assert "the profile cards that come with polluxsim" in page.text("#job-note")


def test_another_run_is_shown_and_lines_are_hidden(browser: Any, two_runs: Path) -> None:
    page = opened(browser, two_runs)
    first = page.run("return Bokeh.documents[0].get_model_by_name('jobs').data.jct[0]")
    choose(page, "run", "1")
    page.until(f"return Bokeh.documents[0].get_model_by_name('jobs').data.jct[0] !== {first}", "the other run's jobs")
    page.run("document.querySelector('.show-run').click()")
    visible = "return Bokeh.documents[0].get_model_by_name('queue').renderers.map((line) => line.visible)"
    assert page.run(visible) == [False, True]


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
    x, y = over_map(page, 1.0, 4.0)
    before = page.run("return [scrollY, Bokeh.documents[0].get_model_by_name('map').x_range.end]")
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_viewport(x, y), 0, 200).perform()
    page.until(f"return scrollY > {before[0]} + 50", "the page has moved")
    assert page.run("return Bokeh.documents[0].get_model_by_name('map').x_range.end") == before[1]
