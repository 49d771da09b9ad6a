"""What the report shows is what the run's tables say: laws of its arrays, and what they become on a page."""

from __future__ import annotations

import base64
import colorsys
import json
import re
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color
from rich.console import Console
from toy import toy_job, toy_workload

import polluxsim
from polluxsim.applications.folder import ProfileFolder
from polluxsim.cli.live import Picture
from polluxsim.cli.main import main
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.colours import POLICY_COLOURS, application_colour, job_colour, on_page
from polluxsim.look.job_progress import NO_LIVES, have_fitting_ends, lives_of
from polluxsim.look.occupancy import occupancy
from polluxsim.look.plot.distributions import jct_cdf
from polluxsim.look.report.charts import charts
from polluxsim.look.report.page import ReportSubject, _report_runs, report
from polluxsim.look.report.payload import packed, run_columns
from polluxsim.look.side_by_side import SideBySide
from polluxsim.metrics.declared import Metric
from polluxsim.metrics.summary import summarise
from polluxsim.records.results import AllocationRecord, JobRecord, Result, Status
from polluxsim.records.storage import Run, read_run
from polluxsim.statistics.groups import grouped
from polluxsim.statistics.metric_lines import MetricLine, difference, first_of_same_jobs, metric_lines
from polluxsim.workloads.workload import Job, Workload

from .conftest import CONFIG, hand_made, opened

if TYPE_CHECKING:
    from pathlib import Path

NODES = (4, 2, 3)
TWO_NODES = Cluster.uniform(2, 4)


@st.composite
def histories(draw: st.DrawFn) -> Result:
    """Return a run in which jobs get, keep, change and lose GPUs at random, several at one moment."""
    placed: dict[str, dict[int, int]] = {}
    records = []
    for time in range(1, draw(st.integers(1, 12))):
        changed = draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=4))
        free = [size - sum(p.get(n, 0) for j, p in placed.items() if j not in changed) for n, size in enumerate(NODES)]
        for job in changed:
            wanted = {node: draw(st.integers(0, left)) for node, left in enumerate(free)}
            placed[job] = {node: gpus for node, gpus in wanted.items() if gpus}
            free = [left - wanted[node] for node, left in enumerate(free)]
            records.append(AllocationRecord(10.0 * time, job, (*placed[job],), (*placed[job].values(),), 1, 0))
    jobs = tuple(JobRecord(job, "x", 0.0, None, None, None, None, 0, 0.0, Status.CUT_OFF) for job in "abcde")
    return Result(jobs, (), tuple(records), end_time=130.0)


@given(histories())
def test_at_every_moment_each_gpu_has_one_holder_and_each_job_its_gpus(result: Result) -> None:
    held = occupancy(result, Cluster(NODES))
    assert held.gpus_per_node == NODES
    node_of_row = np.repeat(range(len(NODES)), NODES)
    for moment in np.arange(5.0, 130.0, 10.0):
        now = np.flatnonzero((held.start <= moment) & (moment < held.end))
        rows = np.concatenate([np.arange(held.row[i], held.row[i] + held.rows[i]) for i in now] or [[]]).astype(int)
        assert len(set(rows.tolist())) == len(rows)
        last = {record.job: record for record in result.allocation_records if record.time <= moment}
        for number, job in enumerate("abcde"):
            own = [np.arange(held.row[i], held.row[i] + held.rows[i]) for i in now if held.job[i] == number]
            on_node = np.bincount(node_of_row[np.concatenate(own).astype(int)] if own else [], minlength=len(NODES))
            recorded = dict(zip(last[job].nodes, last[job].gpus, strict=True)) if job in last else {}
            assert on_node.tolist() == [recorded.get(node, 0) for node in range(len(NODES))]


def test_a_job_keeps_its_gpus_while_it_can() -> None:
    held = occupancy(hand_made(), TWO_NODES)
    large = [(held.start[i], held.end[i], held.row[i], held.rows[i]) for i in range(len(held.job)) if held.job[i] == 1]
    assert large == [(120, 1800, 4, 2), (1800, 3600, 4, 4), (4200, 7200, 0, 4), (4200, 7200, 4, 4)]


def unpacked(text: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Do what data.js does."""
    data = zlib.decompress(base64.b64decode(text))
    length = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + length])
    base = -(-(4 + length) // 8) * 8
    kinds = {"Float32Array": "<f4", "Float64Array": "<f8", "Uint8Array": "u1", "Uint32Array": "<u4"}
    return head, {
        name: np.frombuffer(data, kinds[kind], count, base + offset)
        for name, (kind, offset, count) in head["columns"].items()
    }


def test_columns_come_back_as_they_were() -> None:
    result = hand_made()
    head, columns = unpacked(packed(run_columns(result, occupancy(result, TWO_NODES), NO_LIVES), {"é": "ü"}))
    assert head["é"] == "ü"
    assert columns["job_end"].tolist() == [3660.0, 7200.0, -1.0]
    assert columns["change_job"].tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert columns["change_moved"].tolist() == [1, 1, 1, 0, 1, 1, 1, 1]
    assert columns["change_gpus"].tolist() == [4, 0, 2, 2, 4, 0, 8, 0]


def test_lives_end_with_the_work_done_and_leave_out_little(simulated: dict[str, Path]) -> None:
    result = read_run(simulated["pollux"]).result
    profiles = ProfileFolder(None).load()
    lives = lives_of(result, profiles, lambda *_: 30.0)
    last = np.append(lives.job[1:] != lives.job[:-1], True)
    assert lives.progress[last] == pytest.approx(np.ones(len(result.job_records)), abs=1e-6)
    same = lives.job[1:] == lives.job[:-1]
    assert np.diff(lives.progress)[same].min() >= 0
    assert np.diff(lives.time)[same].min() > 0
    assert have_fitting_ends(result, lives)


def test_a_job_that_was_rejected_at_its_first_round_has_no_life() -> None:
    job = JobRecord("a", "ncf", 0.0, None, None, None, None, 0, 0.0, Status.REJECTED, end_time=60.0)
    result = Result((job,), (), (AllocationRecord(60.0, "a", (), (), 0, 0),), end_time=120.0)
    lives = lives_of(result, ProfileFolder(None).load(), lambda *_: 30.0)
    assert np.isnan(lives.efficiency).all()
    assert not lives.progress.any()


def test_profiles_by_which_the_work_is_not_done_at_completion_are_not_the_runs(simulated: dict[str, Path]) -> None:
    result = read_run(simulated["pollux"]).result
    early = [job._replace(completion_time=(job.start_time + job.completion_time) / 2) for job in result.job_records]  # type: ignore[operator]
    wrong = replace(result, job_records=tuple(early))
    assert not have_fitting_ends(wrong, lives_of(wrong, ProfileFolder(None).load(), lambda *_: 30.0))


def test_runs_are_compared_with_the_first() -> None:
    summary = summarise(hand_made())
    assert summary is not None
    twice = replace(summary, avg_jct=2 * summary.avg_jct, restarts=0, cut_off=())
    found = {line.label: line for line in metric_lines([summary, twice, replace(twice, avg_jct=summary.avg_jct)])}
    jct = found["average JCT"]
    assert difference(jct, 2, 1) == ("−50.0 %", "better")
    assert difference(jct, 1, 2) == ("+100 %", "worse")
    assert difference(jct, 1, 0) == ("", "")  # against a lower bound
    assert difference(jct, 0, 0) == ("", "")
    assert jct.texts[0].startswith("≥ ")
    assert not jct.texts[1].startswith("≥")
    assert difference(found["restarts"], 1, 0) == ("−100 %", "")  # neither is better
    assert difference(found["makespan"], 1, 0) == difference(found["GPU time"], 1, 0) == ("", "")
    assert found["GPU time"].texts[0].startswith("≥ ")
    assert difference(found["makespan"], 2, 1) == ("±0.0 %", "")
    loss = MetricLine("x", "x", "", [-2.0, -1.0], ["-2", "-1"], Metric("x", can_be_negative=True), [False, False])
    assert difference(loss, 1, 0) == ("+50.0 %", "worse")
    assert difference(loss, 0, 1) == ("−100 %", "better")


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_of_runs_fits_and_tells_changes_against_the_first_of_the_same_jobs(width: int) -> None:
    result = hand_made()
    later = replace(result, job_records=tuple(job._replace(submit_time=1.0) for job in result.job_records))
    summary = summarise(result)
    assert summary is not None
    runs = [replace(summary, avg_jct=hours * 3600.0, cut_off=()) for hours in (4, 6, 2, 5)]
    bases = first_of_same_jobs([result, result, result, later])
    screen = Console(width=width, force_terminal=True, color_system="standard")
    with screen.capture() as captured:
        screen.print(SideBySide(dict(zip("abcd", runs, strict=True)), bases=bases))
    plain = re.sub(r"\x1b\[[\d;]*m", "", captured.get())
    assert all(len(line) <= width for line in plain.splitlines())
    told = [part.strip() for line in plain.splitlines() if "average JCT [" in line for part in line.split("│")[2:-1]]
    assert [re.sub(" +", " ", part) for part in told] == ["4.000", "6.000 +50.0 %", "2.000 −50.0 %", "5.000"]
    assert re.search(r"\x1b\[31m +\+50", captured.get())
    assert re.search(r"\x1b\[32m +−50", captured.get())


def test_a_policy_has_one_colour_on_the_page_in_figures_and_on_the_terminal(simulated: dict[str, Path]) -> None:
    runs = [read_run(folder) for folder in simulated.values()]
    page = report([ReportSubject(run) for run in runs])
    for policy, group in zip(("Pollux", "Tiresias"), grouped(runs), strict=True):
        (line,) = jct_cdf([group]).axes[0].get_lines()
        assert line.get_color() == POLICY_COLOURS[policy]
        assert f"--run: {on_page(POLICY_COLOURS[policy])}" in page
    applications = {job.application for job in runs[0].result.job_records}
    hues = {name: colorsys.rgb_to_hls(*bytes.fromhex(application_colour(name)[1:])) for name in applications}
    assert len({round(hue, 2) for hue, _, _ in hues.values()}) == len(applications)
    jobs = runs[0].result.job_records
    workload = toy_workload(*(toy_job(job.job, job.submit_time, application=job.application) for job in jobs))
    picture = Picture(workload, Cluster.uniform(16, 4))
    for number, job in enumerate(jobs):
        assert picture._style(job.job).color == Color.parse(job_colour(job.application, number))


def test_a_report_needs_a_run_with_jobs() -> None:
    with pytest.raises(ValueError, match="no runs"):
        report([])
    with pytest.raises(ValueError, match="has no jobs"):
        report([ReportSubject(Run("empty", {}, Result((), (), (), 0.0)))])


def test_gpus_in_use_by_type_add_up_to_those_in_use(browser, tmp_path):
    cluster = Cluster.of_groups([[2, 4, "t4"], [1, 8, "a100-40"]])
    jobs = tuple(Job.rigid(f"j{n}", 50.0 * n, 1 + n % 4, 300.0) for n in range(12))
    polluxsim.simulate(Workload(jobs), policy="fifo", cluster=cluster).save(tmp_path / "run")
    _, head = charts(_report_runs([read_run(tmp_path / "run")]))
    names = [panel["name"] for panel in head["panels"]]
    assert names[:4] == ["gpus", "gpus of t4", "gpus of a100-40", "cost"]
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r.html")]) == 0
    page = opened(browser, tmp_path / "r.html")
    moments = np.linspace(0, 900, 91).tolist()
    script = "return arguments[1].map(polluxReport.page.figures.get('panel-' + arguments[0]).lines[0].curve.at)"
    of_all, of_t4, of_a100 = (np.array(page.run(script, name, moments)) for name in names[:3])
    np.testing.assert_array_equal(of_t4 + of_a100, of_all)
    assert max(of_t4) > 0


def test_a_report_states_that_its_run_has_one_job() -> None:
    result = polluxsim.simulate(policy="fifo", workload="one-job", progress=False)
    page = report([ReportSubject(result)])
    assert '<p class="note empty">The run has one job, so means and percentiles are its own values.</p>' in page
    assert '<p class="note empty">' not in report([ReportSubject(Run("by-hand", {"config": CONFIG}, hand_made()))])
