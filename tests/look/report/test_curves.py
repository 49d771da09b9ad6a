"""Curves are exact at every zoom, two runs stand on one axis, the address keeps the view, and panels can be saved."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from polluxsim.records.storage import read_run
from polluxsim.statistics.series import gpus_in_use, usage_by_bin, waiting_jobs

from .conftest import opened
from .test_page import by_hand, choose, over, size, two_runs  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

AT = "return arguments[1].map(polluxReport.page.figures.get('panel-' + arguments[0]).lines[arguments[2]].curve.at)"
MEANS = """
  const { curve } = polluxReport.page.figures.get("panel-" + arguments[0]).lines[arguments[2]], edges = arguments[1];
  return edges.slice(1).map((edge, i) => curve.mean(edges[i], edge));
"""


def test_curves_have_every_change_of_the_tables(
    browser: Any,
    two_runs: Path,  # noqa: F811
    simulated: dict[str, Path],
) -> None:
    page = opened(browser, two_runs)
    for number, folder in enumerate(simulated.values()):
        result = read_run(folder).result
        changes = np.unique([record.time for record in result.allocation_records])
        moments = np.unique([*changes, *(changes[:-1] + np.diff(changes) / 2)])
        moments = moments[moments < result.end_time].tolist()
        for name, steps in (("gpus", gpus_in_use(result)), ("queue", waiting_jobs(result))):
            np.testing.assert_array_equal(page.run(AT, name, moments, number), steps.at(moments))
        edges = np.linspace(0, result.end_time, 40)
        gpus, efficiency = usage_by_bin(result, edges)
        assert page.run(MEANS, "gpus", edges.tolist(), number) == pytest.approx(gpus)
        shown = np.array(page.run(MEANS, "efficiency", edges.tolist(), number), float)
        np.testing.assert_allclose(shown, efficiency, rtol=1e-6)


def test_a_zoomed_curve_changes_where_the_run_changes_and_tells_the_value_there(browser: Any, by_hand: Path) -> None:  # noqa: F811
    page = opened(browser, by_hand)
    page.run("polluxReport.page.look(1790, 1810)")
    page.until("return polluxReport.page.axis.end === 1810", "the window")
    x, y = page.run("""
      const { curves, page } = polluxReport, { curve } = page.figures.get("panel-gpus").lines[0];
      const seen = curves.seen(curve, 1790, 1810, 800);
      return [seen.x, seen.y];
    """)
    assert (x, y) == ([1790, 1800, 1810], [6, 8])  # `large` grows from 2 to 4 GPUs beside `small`
    for seconds, gpus in ((1799, 6), (1801, 8)):
        (said,) = page.hover(*over(page, "panel-gpus", seconds, 0.5))
        assert f"FIFO {gpus} " in said


def test_a_drag_hides_the_box_of_the_old_time(browser: Any, by_hand: Path) -> None:  # noqa: F811
    page = opened(browser, by_hand)
    start, end = over(page, "panel-queue", 600, 0.5), over(page, "panel-queue", 3000, 0.5)
    page.pointer().move_to_location(*start).pointer_down().move_to_location(*end)
    page.actions.w3c_actions.pointer_action.pointer_up()
    page.perform()
    page.until("return polluxReport.page.axis.end < 3100", "the window")
    assert page.texts("#timeline .readout") == []


def test_time_after_the_end_is_no_part_of_the_run(browser: Any, two_runs: Path, simulated: dict[str, Path]) -> None:  # noqa: F811
    page = opened(browser, two_runs)
    ends = [read_run(folder).result.end_time for folder in simulated.values()]
    short = int(np.argmin(ends))
    page.run(
        "const s = document.getElementById('run'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))",
        str(short),
    )
    page.until(f"return polluxReport.map.run().number === {short}", "the shorter run")
    alpha = """
      const map = document.getElementById("map"), { LEFT, RIGHT } = polluxReport.chart;
      const { start, end } = polluxReport.page.axis;
      const x = LEFT + (arguments[0] - start) / (end - start) * (map.clientWidth - LEFT - RIGHT);
      return map.getContext("2d").getImageData(x * devicePixelRatio, 20, 1, 1).data[3];
    """
    after = (min(ends) + max(ends)) / 2
    assert page.run(alpha, after) == 0  # neither idle nor held
    assert page.run(alpha, min(ends) - 60) > 0
    (said,) = page.hover(*over(page, "map", after, 0.5))
    assert "the run ended at" in said


def test_two_runs_stand_on_one_axis_with_their_difference(browser: Any, two_runs: Path) -> None:  # noqa: F811
    page = opened(browser, two_runs)
    assert page.texts("#timeline .of-beside") == ["Tiresias", "Tiresias"]
    heights = page.run("return ['map', 'map-beside'].map((id) => document.getElementById(id).clientHeight)")
    assert heights[0] == heights[1] > 100
    scales = page.run("return polluxReport.groups.figures().map((figure) => figure.y.end)")
    assert scales[0] == scales[1]
    page.browser.find_element("id", "difference").click()
    assert page.texts("#timeline .minus")[0] == ": Tiresias minus Pollux"
    moments = [600.0, 1800.0, 3000.0, 4000.0]
    difference = page.run(AT, "gpus", moments, 0)
    page.browser.find_element("id", "difference").click()
    first, second = (page.run(AT, "gpus", moments, number) for number in (0, 1))
    assert difference == [b - a for a, b in zip(first, second, strict=True)]
    choose(page, "map-of", "jobs by submission")
    kinds = page.run("return [...new Set(polluxReport.map.table().slice(1).map((row) => row[1]))].sort()")
    assert kinds == ["runs", "starts", "waits"]
    choose(page, "beside", "")
    page.until("return document.getElementById('map-beside-figure').hidden", "one map")


def test_the_address_keeps_runs_moment_and_window(browser: Any, two_runs: Path) -> None:  # noqa: F811
    page = opened(browser, two_runs)
    page.run("polluxReport.page.look(1000, 2000); polluxReport.page.moveTo(1500)")
    page.until("return location.hash === '#view/0/1/1500/1000.0/2000.0'", "the address")
    again = opened(browser, two_runs, "#view/1/0/1200/600.0/1800.0")
    state = again.run("""
      const { axis } = polluxReport.page, of = (id) => document.getElementById(id).value;
      return [of("run"), of("beside"), document.getElementById("time-text").textContent, axis.start, axis.end];
    """)
    assert state == ["1", "0", "0:20:00", 600, 1800]


def test_a_job_that_is_looked_for_comes_into_sight_with_its_life(browser: Any, by_hand: Path) -> None:  # noqa: F811
    page = opened(browser, by_hand)
    page.run("""
      const find = document.getElementById("find");
      find.value = "small";
      for (const event of ["input", "change"]) find.dispatchEvent(new Event(event));
    """)
    page.until("return polluxReport.page.axis.end < 4500", "the axis holds its life")
    assert page.run("return polluxReport.page.axis.end") >= 3660
    assert page.run("return document.getElementById('map').getBoundingClientRect().top < innerHeight")


def test_panels_are_saved_as_csv_svg_and_png(browser: Any, by_hand: Path) -> None:  # noqa: F811
    page = opened(browser, by_hand)
    text = page.run("""
      const { saving } = polluxReport;
      return saving.csv(saving.rows(document.getElementById("panel-gpus").closest("figure")));
    """)
    head, *rows = csv.reader(io.StringIO(text))
    assert head == ["time [s]", "FIFO"]
    assert ["1800", "8"] in rows
    svg = page.run("return polluxReport.saving.picture(document.getElementById('panel-gpus').closest('figure'))")
    assert svg.startswith("<svg")
    assert "GPUs in use" in svg
    assert "stroke: rgb(" in svg
    for panel in ("panel-gpus", "groups", "map"):
        script = """
          const done = arguments[1];
          const figure = document.getElementById(arguments[0]).closest("figure");
          polluxReport.saving.raster(figure).then((blob) => done([blob.type, blob.size]));
        """
        kind, size_of_file = page.browser.execute_async_script(script, panel)
        assert kind == "image/png"
        assert size_of_file > 1000


def test_the_map_is_walked_by_the_keyboard(browser: Any, by_hand: Path) -> None:  # noqa: F811
    from selenium.webdriver.common.keys import Keys

    page = opened(browser, by_hand)
    page.run("polluxReport.page.moveTo(600)")
    canvas = page.browser.find_element("id", "map")
    canvas.send_keys(Keys.ENTER)
    assert "At 0:10:00, node 0, GPU 0: small" in page.text("#picked")
    canvas.send_keys(*[Keys.ARROW_DOWN] * 4)
    assert "node 1, GPU 0: large" in page.text("#picked")
    canvas.send_keys(*[Keys.ARROW_RIGHT] * 10)
    assert "At 0:2" in page.text("#picked")


def test_a_job_page_names_its_lines_and_marks_restarts_once(browser: Any, two_runs: Path) -> None:  # noqa: F811
    page = opened(browser, two_runs)
    name = page.column("job")[0]
    page.run("location.hash = arguments[0]", f"#job/0/{name}")
    page.until("return !document.getElementById('job').hidden", "the job's page")
    assert page.texts("#life-legend li") == ["Pollux", "Tiresias"]
    assert not page.deep("#life .mark")
    assert len(page.deep("#life .restart")) <= 1
