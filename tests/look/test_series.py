"""Series are what the tables say, and every picture of a run shows the same ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.hardware.clusters import Cluster
from polluxsim.look.colours import looks
from polluxsim.look.occupancy import occupancy
from polluxsim.look.plot.distributions import jct_cdf
from polluxsim.look.report.charts import ReportRun, charts
from polluxsim.metrics.summary import summarise
from polluxsim.records.results import AllocationRecord, JobRecord, Result, RoundRecord, Status
from polluxsim.records.storage import Run
from polluxsim.statistics.groups import grouped
from polluxsim.statistics.job_values import completion_hours, cumulative, hours_by_application
from polluxsim.statistics.series import Steps, active_jobs, bin_edges, gpus_in_use, usage_by_bin, waiting_jobs

BIN_WIDTHS = [37.0, 600.0, 1800.0, 1e6]


def job(name: str, submit: float, end: float | None) -> JobRecord:
    jct, status = (None, Status.CUT_OFF) if end is None else (end - submit, Status.COMPLETED)
    return JobRecord(name, "toy", submit, submit, end, jct, 0.0, 0, 0.0, status)


def by_hand() -> Result:
    """Return a run of 100 s: a has 2 GPUs from 10 to 30 s, b 4 GPUs from 20 s until it is cut off; c came too late."""
    return Result(
        job_records=(job("a", 0, 30), job("b", 5, None), job("c", 200, None)),
        round_records=(RoundRecord(10, 2, 2, 1.0, 0.5), RoundRecord(20, 2, 6, 1.0, 0.8)),
        allocation_records=(
            AllocationRecord(10, "a", (0,), (2,), 64, 0),
            AllocationRecord(20, "b", (0, 1), (1, 3), 128, 0),
            AllocationRecord(30, "a", (), (), 0, 0),
        ),
        end_time=100.0,
    )


def test_by_hand() -> None:
    edges = np.array([0.0, 15.0, 25.0, 60.0, 120.0])
    gpus, efficiency = usage_by_bin(by_hand(), edges)
    np.testing.assert_allclose(gpus * [15, 10, 35, 60], [10, 40, 150, 160])
    np.testing.assert_allclose(efficiency, [0.5, (20 * 0.8 + 10 * 0.5 + 10 * 0.8) / 40, 0.8, 0.8])
    assert active_jobs(by_hand()).at([-1, 0, 5, 29, 30, 99]).tolist() == [0, 1, 2, 2, 1, 1]
    assert waiting_jobs(by_hand()).at([0, 5, 10, 20, 30]).tolist() == [1, 2, 1, 0, 0]
    np.testing.assert_allclose(waiting_jobs(by_hand()).means(edges) * [15, 10, 35, 60], [10 + 10 + 0, 5, 0, 0])
    hours, submitted = completion_hours(by_hand())
    assert (hours.tolist(), submitted) == ([30 / 3600], 2)
    assert hours_by_application(by_hand())["toy"].tolist() == [30 / 3600, 95 / 3600]


def test_a_cancelled_job_waits_no_longer_and_has_no_completion_time() -> None:
    result = by_hand()
    gone = job("d", 40, None)._replace(status=Status.CANCELLED, end_time=60.0)
    more = replace(result, job_records=(*result.job_records, gone))
    assert (active_jobs(more).at([40, 59, 60]) - active_jobs(result).at([40, 59, 60])).tolist() == [1, 1, 0]
    assert (waiting_jobs(more).at([40, 60]) - waiting_jobs(result).at([40, 60])).tolist() == [1, 0]
    assert completion_hours(more)[1] == completion_hours(result)[1]
    assert len(hours_by_application(more)["toy"]) == 2


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-5, 5)), max_size=8), st.lists(st.floats(1, 99), max_size=5))
def test_means_over_bins_are_those_of_their_parts(steps: list[tuple[float, int]], cuts: list[float]) -> None:
    values = Steps(*(np.array(column, float) for column in zip(*sorted(steps), strict=True))) if steps else None
    if values is None:
        values = Steps(np.zeros(0), np.zeros(0))
    edges = np.unique([0.0, *cuts, 100.0])
    assert values.means(edges) @ np.diff(edges) == pytest.approx(100 * values.means(edges[[0, -1]])[0], abs=1e-9)
    if len(values.times) < 2:
        late = np.clip(100 - values.times, 0, 100).sum() * values.values.sum()
        assert values.means(edges[[0, -1]])[0] * 100 == pytest.approx(late, abs=1e-9)


@pytest.mark.parametrize(("end", "width"), [(1.2000000000000002, 0.1), (2.9000000000000004, 0.1), (70.0, 30.0)])
def test_no_bin_is_empty(end: float, width: float) -> None:
    assert (np.diff(bin_edges(end, width)) > 0).all()


@pytest.mark.parametrize("width", BIN_WIDTHS)
def test_bins_conserve_gpu_time_waiting_time_and_the_weighted_efficiency(runs: list[Run], width: float) -> None:
    for run in runs:
        result = run.result
        edges = bin_edges(result.end_time, width)
        gpus, efficiency = usage_by_bin(result, edges)
        gpu_time = gpus * np.diff(edges)
        assert gpu_time.sum() == pytest.approx(result.jobs["gpu_seconds"].sum())
        assert (gpus >= 0).all()
        assert (gpus <= 64 + 1e-9).all()
        (whole,) = usage_by_bin(result, np.array([0.0, result.end_time]))[1]
        known = gpu_time > 0
        assert (gpu_time[known] @ efficiency[known]) / gpu_time.sum() == pytest.approx(whole)
        held = occupancy(result, Cluster.uniform(16, 4))
        spans = {(int(held.job[i]), float(held.start[i]), float(held.end[i])) for i in range(len(held.job))}
        without = result.jobs["jct"].sum() - sum(end - start for _, start, end in spans)
        assert waiting_jobs(result).means(edges) @ np.diff(edges) == pytest.approx(without)


def test_counts_are_those_of_the_rounds(runs: list[Run]) -> None:
    for run in runs:
        rounds = run.result.rounds
        np.testing.assert_array_equal(gpus_in_use(run.result).at(rounds["time"]), rounds["gpus_in_use"])
        np.testing.assert_array_equal(active_jobs(run.result).at(rounds["time"]), rounds["active_jobs"])
        for steps in (gpus_in_use(run.result), active_jobs(run.result), waiting_jobs(run.result)):
            assert np.diff(steps.times).min() > 0
            np.testing.assert_array_equal(steps.at(steps.times), steps.values)


def test_hours_are_those_of_the_summary(runs: list[Run]) -> None:
    for run in runs:
        means = {name: hours.mean() * 3600 for name, hours in hours_by_application(run.result).items()}
        assert means == pytest.approx(summarise(run.result).jct_by_application)


def test_the_report_and_the_figures_show_the_same(runs: list[Run]) -> None:
    """The distribution, point by point, of a run with a job that was cut off too."""
    for run in (*runs[:2], Run("by-hand", {"nodes": [[2, 4]]}, by_hand())):
        shown = ReportRun("", run.result, occupancy(run.result, Cluster.uniform(16, 4)), *looks(["FIFO"]))
        columns, _ = charts([shown])
        line = jct_cdf(grouped([run])).axes[0].get_lines()[0]
        np.testing.assert_allclose(columns["jct_0"] / 3600, np.asarray(line.get_xdata())[1::2])
        np.testing.assert_array_equal(columns["share_0"], np.asarray(line.get_ydata())[1::2])


def test_a_distribution_of_many_jobs_keeps_its_ends_and_its_shape() -> None:
    values = np.random.default_rng(0).lognormal(size=20_000)
    x, share = cumulative(values, most=1000)
    assert len(x) <= 1000
    assert (x[0], x[-1], share[-1]) == (values.min(), values.max(), 1.0)
    assert np.abs(share - np.searchsorted(np.sort(values), x, side="right") / len(values)).max() < 1e-9
