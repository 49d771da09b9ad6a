"""The report on paper: swatches, lines in data units, few pages, no controls; and tables on a phone."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from .conftest import opened
from .test_page import PHONE, by_hand, size, two_runs  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

import pytest


@pytest.fixture
def paper(browser: Any) -> Iterator[Any]:
    """Show pages as they are printed."""
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def printed(browser: Any, path: Path) -> Any:
    page = opened(browser, path)
    page.run("dispatchEvent(new Event('beforeprint'))")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    return page


def test_swatches_are_drawings_and_controls_are_left_out(paper: Any, two_runs: Path) -> None:  # noqa: F811
    page = printed(paper, two_runs)
    legend = page.run(
        "const all = [...document.querySelectorAll('#figures .legend li')];"
        "return all.map((each) => each.querySelector('svg.swatch rect') !== null)"
    )
    assert legend == [True, True]
    assert page.run("return getComputedStyle(document.querySelector('.legend li'), '::before').content") == "none"
    assert not page.deep(".save, .choice, .tools, .brush")
    assert page.run("return getComputedStyle(document.getElementById('map-of')).appearance") == "none"


def test_the_line_of_the_moment_is_where_the_charts_have_it(paper: Any, by_hand: Path) -> None:  # noqa: F811
    page = printed(paper, by_hand)
    page.run("polluxReport.page.moveTo(3600)")
    line, expected, width = page.run("""
      const { LEFT, RIGHT } = polluxReport.chart, { start, end } = polluxReport.page.axis;
      const host = document.getElementById("timeline").getBoundingClientRect();
      const share = (3600 - start) / (end - start);
      const svg = document.querySelector("#panel-gpus svg");
      return [document.querySelector("#timeline .now").getBoundingClientRect().left - host.left,
        LEFT + share * (host.width - LEFT - RIGHT), svg.viewBox.baseVal.width / svg.getBoundingClientRect().width];
    """)
    assert abs(line - expected) < 2
    assert abs(width - 1) < 0.01  # drawn for the width of the paper


def test_a_report_takes_few_pages(browser: Any, two_runs: Path) -> None:  # noqa: F811
    opened(browser, two_runs)
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    (count,) = (
        re.findall(rb"/Type /Pages\b.*?/Count (\d+)", pdf, re.DOTALL)[:1] or re.findall(rb"/Count (\d+)", pdf)[:1]
    )
    assert 4 <= int(count) <= 9


def test_a_wide_table_on_a_phone_says_that_it_goes_on(browser: Any, by_hand: Path) -> None:  # noqa: F811
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page = opened(browser, by_hand)
    page.until("return document.getElementById('job-rows').classList.contains('more')", "the edge is faded")
    page.run("document.getElementById('job-rows').scrollLeft = 10000")
    page.until("return !document.getElementById('job-rows').classList.contains('more')", "its end is plain")
