"""The page to play with: its numbers are the package's, and what is moved is what changes."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import lesson
import numpy as np
import pytest

from polluxsim.policies.pollux.problem import power_mean


@pytest.fixture(scope="module")
def text() -> str:
    return lesson.page()


@pytest.fixture(scope="module")
def address(text: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("lesson") / "lesson.html"
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


def test_the_page_needs_no_other(text: str) -> None:
    assert "://" not in re.sub(r'"http://www.w3.org/2000/svg"', "", text)


def test_a_fitness_is_the_power_mean_of_what_the_page_has_of_each_job(text: str) -> None:
    data = json.loads(re.search(r"const DATA = (\{.*\});", text)[1])  # type: ignore[index]
    for shown in data["rounds"]:
        worth = []
        for job in shown["jobs"]:
            gpus = sum(count for _, count in job["after"])
            speedup = job["speedups"][len(job["after"]) > 1][gpus]
            worth.append(speedup * (1 if job["after"] == job["before"] else job["factor"]))
        mean = power_mean(np.log(np.array(worth) + data["floor"]), data["power"])
        assert mean == pytest.approx(shown["fitness"], rel=1e-4)


def said(browser: Any, name: str) -> float:
    return float(browser.find_element("id", name).text.rstrip(" %").replace(",", ""))


def move(browser: Any, name: str, value: int) -> None:
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'));",
        name, value,
    )  # fmt: skip


def press(browser: Any, name: str) -> None:
    browser.execute_script("document.getElementById(arguments[0]).click()", name)


def fitnesses(browser: Any) -> tuple[float, float]:
    yours, pollux = re.findall(r"(?:yours|Pollux’s) ([\d.]+),", browser.find_element("id", "verdict").text)
    return float(yours), float(pollux)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_the_lesson(browser: Any, address: str, scheme: str) -> None:
    preferred = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preferred})
    browser.get(address)
    browser.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 10
    serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in serious] == []


def test_sliders_and_exchanges_do_what_they_say(browser: Any, address: str) -> None:
    browser.get(address)
    for gpus, batch, moment in ((0, 0, 0), (3, 10, 5), (11, 24, 20)):
        for name, value in (("gpus", gpus), ("batch", batch), ("moment", moment)):
            move(browser, name, value)
        product = said(browser, "throughput") * said(browser, "efficiency") / 100
        assert said(browser, "product") == pytest.approx(product, rel=2e-3)
    press(browser, "peak")
    assert browser.find_element("id", "product-said").text == "the most these GPUs can do"
    yours, pollux = fitnesses(browser)
    assert yours == pollux
    press(browser, "before")
    moved, pollux = fitnesses(browser)
    assert moved < pollux
    for _ in range(8):
        press(browser, "exchange")
    assert moved < fitnesses(browser)[0]
    assert all(line["level"] != "SEVERE" for line in browser.get_log("browser"))


def test_no_single_exchange_beats_pollux_at_its_own_power(browser: Any, address: str) -> None:
    """What the page counts is what the search counted: its answer is no worse than all that lie beside it."""
    browser.get(address)
    for _ in range(lesson.MOST_ROUNDS):
        press(browser, "earlier")
    for _ in range(lesson.MOST_ROUNDS):
        press(browser, "exchange")
        yours, pollux = fitnesses(browser)
        assert yours <= pollux * 1.001
        press(browser, "later")
