"""What the cluster and the queue are made of, the other maps, a job that is looked for, failures and checkpoints."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from polluxsim.cli.main import main
from polluxsim.look.timeline import events
from polluxsim.records.storage import read_run, write_run
from polluxsim.statistics.job_values import fairness

from .conftest import CONFIG, Page, hand_made, write_hand_made
from .test_kinds_of_runs import page_of
from .test_page import IS_HELD, by_hand, choose, over, size  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

# What the groups come to in each bin, and what the panels of GPUs in use and of the queue have there.
SUMS = """
  const { groups, page } = polluxReport, areas = groups.figures()[0].areas, { x, high } = areas.at(-1);
  const line = (name) => Array.from(high, (_, bin) => page.figures.get(name).lines[0].curve.mean(x[bin], x[bin + 1]));
  return [[...high], line("panel-gpus"), line("panel-queue")];
"""


@pytest.mark.parametrize("policy", ["pollux", "tiresias"])
def test_groups_come_to_the_whole_whatever_they_are_told_by(
    browser: Any, tmp_path: Path, simulated: dict[str, Path], policy: str
) -> None:
    page = page_of(browser, tmp_path, simulated[policy])
    total = read_run(simulated[policy]).info["nodes"][0]
    kinds = "return [...document.getElementById('group-by').options].map((option) => option.value)"
    for content in ("GPUs in use", "Jobs that wait", "Free GPUs"):
        choose(page, "group-of", content)
        for kind in page.run(kinds):
            choose(page, "group-by", kind)
            found, gpus, queue = page.run(SUMS)
            free = [total[0] * total[1] - value for value in gpus]
            whole = {"GPUs in use": gpus, "Jobs that wait": queue, "Free GPUs": free}[content]
            if kind == "cause":  # jobs that restart hold GPUs
                assert all(value >= least - 1e-6 for value, least in zip(found, whole, strict=True))
            else:
                assert found == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("policy", ["pollux", "tiresias"])
def test_the_distribution_of_fairness_is_that_of_the_jobs(
    browser: Any, tmp_path: Path, simulated: dict[str, Path], policy: str
) -> None:
    page = page_of(browser, tmp_path, simulated[policy])
    known = fairness(read_run(simulated[policy]).result)
    script = """
      const { x } = polluxReport.page.figures.get("rho"), { LEFT, RIGHT } = polluxReport.chart;
      const width = document.getElementById("rho").getBoundingClientRect().width;
      const share = Math.log(arguments[0] / x.start) / Math.log(x.end / x.start);
      return (LEFT + share * (width - LEFT - RIGHT)) / width;
    """
    for place in (len(known) // 5, len(known) // 2):
        between = float(np.sort(known)[place : place + 2].prod()) ** 0.5
        (said,) = page.hover(*page.place("rho", page.run(script, between), 0.5))
        assert said.splitlines()[0].startswith("ρ up to ")
        shown = float(said.split("%")[0].split()[-1])
        near = [100 * (known <= between * factor).mean() for factor in (0.98, 1.02)]  # a point is so wide
        assert near[0] - 0.1 <= shown <= near[1] + 0.1


def test_waits_are_told_by_their_cause(browser: Any, tmp_path: Path) -> None:
    """By hand: 0 or 4 GPUs are left at 1:00:00, as a node is down, and all are held from 1:10:00 on."""
    page = page_of(browser, tmp_path, write_hand_made(tmp_path / "run"))
    choose(page, "group-of", "Jobs that wait")
    choose(page, "group-by", "cause")
    assert page.texts("#group-legend li") == [
        "between rounds 0.0 h", "no GPUs 1.4 h", "behind others 0.7 h", "restarting 0.0 h",
    ]  # fmt: skip
    (said,) = page.hover(*over(page, "groups", 6000, 0.5))
    assert "no GPUs 1" in said
    choose(page, "group-by", "time they have waited")
    (said,) = page.hover(*over(page, "groups", 6000, 0.5))
    assert "up to 6 h 00 min 1" in said


def test_the_legend_of_two_runs_names_the_run_of_each_time(
    browser: Any, tmp_path: Path, simulated: dict[str, Path]
) -> None:
    page = page_of(browser, tmp_path, simulated["pollux"], simulated["tiresias"])
    for text in page.texts("#group-legend li"):
        assert re.fullmatch(r"\w+ Pollux [\d.,]+ h · Tiresias [\d.,]+ h", text)


def test_the_end_of_a_run_has_the_origin_of_the_axis_and_the_time_since_the_first_submission(
    browser: Any, tmp_path: Path, simulated: dict[str, Path]
) -> None:
    page = page_of(browser, tmp_path, simulated["pollux"], simulated["tiresias"])
    texts = page.run("""
      const { fillText } = CanvasRenderingContext2D.prototype, texts = [];
      CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        texts.push(text);
        fillText.call(this, text, ...place);
      };
      const [first, second] = [polluxReport.map, polluxReport.map.beside].map((map) => map.run());
      polluxReport.page.look(Math.min(first.end, second.end) - 1, Math.max(first.end, second.end) + 1);
      for (const map of [polluxReport.map, polluxReport.map.beside]) { map.paint(); }
      return texts;
    """)
    ends = [text for text in texts if text.startswith("The run ended at")]
    assert ends
    for text in ends:
        assert re.fullmatch(r"The run ended at \d+:\d\d:\d\d, .+ after its first submission", text)


def test_rows_of_the_map_may_be_jobs_in_order_of_submission_or_owner(browser: Any, tmp_path: Path) -> None:
    result = hand_made()
    users = {"small": "zoe", "large": "ann"}
    jobs = tuple(job._replace(user=users.get(job.job, "zoe")) for job in result.job_records)
    write_run(tmp_path / "run", replace(result, job_records=jobs), {"config": CONFIG, "seed": 7, "nodes": [[2, 4]]})
    page = page_of(browser, tmp_path, tmp_path / "run")
    choose(page, "map-of", "jobs by submission")
    told = {(600, 0.1): "small", (600, 0.5): "has 2 GPUs", (3900, 0.5): "waits", (30, 0.9): "not submitted yet"}
    for (seconds, y), words in told.items():
        (said,) = page.hover(*over(page, "map", seconds, y))
        assert words in said
    assert page.run(IS_HELD, [[0.3, 0.1], [0.9, 0.1], [0.3, 0.9]]) == [True, False, False]
    choose(page, "map-of", "jobs by user")
    (said,) = page.hover(*over(page, "map", 600, 0.1))
    assert "large" in said
    page.pointer().move_to_location(*over(page, "map", 600, 0.9)).click()
    page.perform()
    page.until("return document.getElementById('picked').textContent.includes('waits')", "the job is named")


def test_above_512_gpus_the_map_opens_with_how_full_nodes_are(browser: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "run", hand_made(), {"config": CONFIG, "seed": 7, "nodes": [[200, 4]]})
    page = page_of(browser, tmp_path, tmp_path / "run")
    assert page.run("return document.getElementById('map-of').value") == "share of GPUs in use"
    assert "share of GPUs in use, of 4 GPUs a line" in page.text("#map-detail")
    read = """
      const map = document.getElementById("map"), pen = map.getContext("2d"), { LEFT, RIGHT } = polluxReport.chart;
      const y = 1.5 / 200 * map.height, x = (share) => LEFT + share * (map.width - LEFT - RIGHT);
      return arguments[0].map((share) => pen.getImageData(x(share), y, 1, 1).data[0]);
    """
    half, full, idle = page.run(read, [1200 / 7200, 2700 / 7200, 3650 / 7200 - 0.49])
    assert full < half < idle  # node 1 has 2 of 4 GPUs in use, all, and none
    choose(page, "map-of", "GPUs")
    assert page.run(IS_HELD, [[0.35, 0.001]]) == [True]


def test_a_job_that_is_looked_for_stands_out_everywhere(browser: Any, by_hand: Path) -> None:  # noqa: F811
    from .conftest import opened

    page = opened(browser, by_hand)
    browser.find_element("id", "find").send_keys("larg")
    assert page.texts("#found a") == ["large"]
    assert page.texts("#job-body .found th") == ["large"]
    assert page.run("return document.querySelectorAll('#panel-queue .strip').length") == 2  # it waited twice
    assert page.run("return document.querySelectorAll('#groups .mark').length") == 2  # submitted, ended
    browser.find_element("id", "find").clear()
    page.run("document.getElementById('find').dispatchEvent(new Event('input'))")
    assert not page.deep("#job-body .found")


def test_failures_are_marked_on_every_figure_over_time(browser: Any, by_hand: Path) -> None:  # noqa: F811
    from .conftest import opened

    page = opened(browser, by_hand)
    paths = "return [...document.querySelectorAll('#timeline .failure')].map((path) => path.getAttribute('d'))"
    found = page.run(paths)
    assert len(found) == page.run("return document.querySelectorAll('#timeline [id^=panel]').length")
    left, _ = over(page, "panel-queue", 3600, 0.5)
    start = page.run("return document.getElementById('panel-queue').getBoundingClientRect().left")
    assert float(found[0][1:].split()[0]) == pytest.approx(left - start, abs=1.5)
    (said,) = page.hover(*over(page, "panel-queue", 3900, 0.5))
    assert "At 1:00:00 node 1 went down (failure), until 1:08:20." in said


def checkpoints_on_the_page(page: Page, job: str) -> list[float]:
    script = "const { data } = polluxReport; return data.load(0)" + (
        ".then((run) => data.checkpointsOf(run, run.jobNumber.get(arguments[0])))"
    )
    return sorted(page.run(script, job))


def test_a_jobs_page_has_its_checkpoints_where_the_timeline_has_them(browser: Any, tmp_path: Path) -> None:
    small = ["workload=philly-like", "workload.num_jobs=12", "cluster.num_nodes=8", "policy=tiresias"]
    failing = ["cluster/failures=rsc-2", "cluster.failures.rate=2000", "engine/checkpoints=interval"]
    assert main(["run", *small, *failing, "engine.checkpoints.every=1200", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    run = read_run(tmp_path / "run")
    page = page_of(browser, tmp_path, tmp_path / "run")
    stops = [event for event in events(run) if event["name"] == "checkpoint"]
    tracks = {event["args"]["name"]: event["tid"] for event in events(run) if event["name"] == "thread_name"}
    assert len(stops) > 20
    for job in run.result.job_records:
        expected = [event["ts"] / 1e6 for event in stops if event["tid"] == tracks[job.job]]
        assert checkpoints_on_the_page(page, job.job) == pytest.approx(expected, abs=1e-3)
    job = next(job.job for job in run.result.job_records if checkpoints_on_the_page(page, job.job))
    page.run(f"location.hash = '#job/0/{job}'")
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert page.run("return document.querySelectorAll('#life .checkpoint[d^=M]').length") == 2  # GPUs, batch size
