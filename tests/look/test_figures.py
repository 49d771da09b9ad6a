"""What the figures show is what the tables say: lines are read back from the axes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from polluxsim.applications.folder import ProfileFolder
from polluxsim.common.errors import InvalidInputError
from polluxsim.look.colours import POLICY_COLOURS
from polluxsim.look.empty_states import empty_states
from polluxsim.look.job_progress import progress_of
from polluxsim.look.plot.cluster_views import queue
from polluxsim.look.plot.distributions import cdf, fairness_cdf, fairness_of, jct_by_application, jct_cdf, spreads
from polluxsim.look.plot.job_life import job_life, lives_of
from polluxsim.look.plot.scaling import COLUMNS, decision_times, scaling, summary
from polluxsim.look.plot.sweep import drawn_of, sweep
from polluxsim.look.plot.usage import usage
from polluxsim.metrics.summary import summarise
from polluxsim.records.results import AllocationRecord, JobRecord, Result, RoundRecord, Status, TimingRecord
from polluxsim.records.storage import Run
from polluxsim.statistics.estimates import Sample, Samples
from polluxsim.statistics.frames import frame_of
from polluxsim.statistics.groups import RunGroup, grouped
from polluxsim.statistics.job_values import completion_hours
from polluxsim.statistics.series import bin_edges, usage_by_bin

values = st.lists(st.floats(0.001, 1e5), min_size=1, max_size=50)


def job(name: str, submit: float, end: float | None, gpu_seconds: float = 0.0) -> JobRecord:
    jct = None if end is None else end - submit
    status = Status.CUT_OFF if end is None else Status.COMPLETED
    return JobRecord(name, "toy", submit, submit, end, jct, 0.0, 0, gpu_seconds, status)


def by_hand() -> Result:
    """Return a run of 100 s: a has 2 GPUs from 10 to 30 s, b 4 GPUs from 20 s until it is cut off."""
    return Result(
        job_records=(job("a", 0, 30, 40), job("b", 5, None, 320)),
        round_records=(RoundRecord(10, 2, 2, 1.0, 0.5), RoundRecord(20, 2, 6, 1.0, 0.8)),
        allocation_records=(
            AllocationRecord(10, "a", (0,), (2,), 64, 0),
            AllocationRecord(20, "b", (0, 1), (1, 3), 128, 0),
            AllocationRecord(30, "a", (), (), 0, 0),
        ),
        end_time=100.0,
    )


def run_of(result: Result, **config: object) -> Run:
    return Run("by-hand", {"config": config} if config else {}, result)


def lines(figure: Figure, panel: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in figure.axes[panel].get_lines()]


@given(values, st.integers(0, 9))
def test_a_distribution_rises_from_0_to_the_share_that_is_known(sample: list[float], more: int) -> None:
    x, share = cdf(sample, len(sample) + more)
    assert (np.diff(x) >= 0).all()
    assert (np.diff(share) >= 0).all()
    assert share[0] == 0
    assert share[-1] == pytest.approx(len(sample) / (len(sample) + more))
    if not more:
        assert share[-1] == 1.0
    for value in sample:  # the line at a value is the share of those no larger
        assert share[x <= value].max() == pytest.approx(sum(other <= value for other in sample) / (len(sample) + more))


def test_shares_have_ticks_in_per_cent_as_reports_have_them(runs: list[Run]) -> None:
    figures = (jct_cdf(grouped(runs)), usage(grouped(runs)))
    for figure in figures:
        figure.draw_without_rendering()
        ticks = [text.get_text() for text in figure.axes[-1].get_yticklabels()]
        assert "100 %" in ticks


def test_the_cdf_has_every_job_of_the_tables(runs: list[Run]) -> None:
    groups = grouped(runs)
    figure = jct_cdf(groups)
    for group, (x, share) in zip(groups, lines(figure), strict=True):
        jcts = np.concatenate([run.result.jobs["jct"] for run in group.runs])
        np.testing.assert_allclose(x[::2], np.sort(jcts) / 3600)
        assert share[-1] == 1
    assert len(figure.axes[0].collections) == 2  # the bands of two runs each


def test_jobs_cut_off_stay_in_the_denominator() -> None:
    figure = jct_cdf(grouped([run_of(by_hand())]))
    ((x, share),) = lines(figure)
    assert x.tolist() == [30 / 3600] * 2
    assert share.tolist() == [0, 0.5]


def test_a_distribution_needs_a_completed_job() -> None:
    result = replace(by_hand(), job_records=(job("a", 0.0, None),))
    with pytest.raises(InvalidInputError, match="no job completed, so there is no completion time"):
        jct_cdf(grouped([run_of(result)]))


def test_a_queue_without_waits_says_so() -> None:
    waiting = by_hand()
    record = AllocationRecord(0.0, "a", (0,), (4,), 100, 0)
    at_once = replace(waiting, job_records=(job("a", 0.0, None),), allocation_records=(record,))
    texts = [[text.get_text() for text in queue(grouped([run_of(run)])).axes[0].texts] for run in (waiting, at_once)]
    assert "No job waited for a GPU." not in texts[0]
    assert "No job waited for a GPU." in texts[1]


@pytest.mark.parametrize(
    ("records", "sentences"),
    [
        ([job("a", 0.0, 900.0), job("b", 0.0, 900.0)], []),
        ([job("a", 0.0, 900.0)], ["The run has one job, so means and percentiles are its own values."]),
        (
            [job("a", 0.0, None), job("b", 0.0, None)],
            ["No job completed, so there is no distribution of completion times."],
        ),
        (
            [job("a", 0.0, 900.0), job("b", 0.0, 900.0), job("c", 1e9, None)],
            ["1 job was never submitted before the run ended."],
        ),
        ([job("a", 0.0, 900.0)._replace(run_time=900.0), job("b", 0.0, 900.0)._replace(run_time=900.0)],
         ["No job waited for a GPU."]),
    ],
)  # fmt: skip
def test_a_sentence_states_what_a_run_lacks(records: list[JobRecord], sentences: list[str]) -> None:
    run = run_of(replace(by_hand(), job_records=tuple(records)))
    assert empty_states([run], ["FIFO"]) == sentences
    assert empty_states([run, run], ["FIFO", "EASY"])[: len(sentences)] == [f"FIFO: {text}" for text in sentences]


def test_means_by_application_are_those_of_the_summary(runs: list[Run]) -> None:
    figure = jct_by_application(grouped(runs[:1]))
    expected = summarise(runs[0].result).jct_by_application
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ((x, y),) = lines(figure)
    assert {names[round(place)]: hours * 3600 for hours, place in zip(x, y, strict=True)} == pytest.approx(expected)
    spread = spreads(RunGroup("", "", (run_of(by_hand()),)))["toy"]
    assert spread.mean == pytest.approx((30 + 95) / 2 / 3600)  # b counts with its age
    assert spread.low < spread.mean < spread.high


def test_usage_draws_the_bins(runs: list[Run]) -> None:
    figure = usage(grouped(runs[:1]), bin_width=600.0)
    edges = bin_edges(runs[0].result.end_time, 600.0)
    gpus, efficiency = usage_by_bin(runs[0].result, edges)
    for panel, expected in ((0, gpus), (1, efficiency)):
        x, y = lines(figure, panel)[0]
        np.testing.assert_allclose(x[::2] * 3600, edges[:-1])
        np.testing.assert_allclose(y[::2], expected)
    assert lines(figure)[1][1][0] == 64  # the GPUs there are


def test_usage_by_type_adds_up_to_that_of_all_gpus() -> None:
    """Of two types: a panel each, its GPUs, and what is held of its nodes."""
    alike = run_of(by_hand())
    alike.info["nodes"] = [[2, 3]]
    (whole,) = lines(usage(grouped([alike]), 10.0))[:1]
    run = run_of(by_hand())
    run.info["nodes"] = [[1, 3, "t4"], [1, 3, "a100-40"]]
    figure = usage(grouped([run]), 10.0)
    assert [axes.get_ylabel() for axes in figure.axes] == ["t4 in use", "a100-40 in use", "statistical efficiency"]
    (_, first), (_, second) = (lines(figure, panel)[0] for panel in (0, 1))
    assert second.max() == 3
    np.testing.assert_allclose(first + second, whole[1])
    assert [lines(figure, panel)[1][1][0] for panel in (0, 1)] == [3, 3]
    assert len(usage(grouped([run, alike], each=True), 10.0).axes) == 2  # of other clusters, all together


def test_pooled_runs_are_averaged_and_a_run_that_has_ended_uses_nothing(runs: list[Run]) -> None:
    pair = runs[:2]
    figure = usage(grouped(pair), bin_width=600.0)
    x, y = lines(figure)[0]
    edges = np.append(x[::2], x[-1]) * 3600
    total = sum(run.result.jobs["gpu_seconds"].sum() for run in pair)
    assert 2 * (y[::2] @ np.diff(edges)) == pytest.approx(total)


def test_a_jobs_life_is_that_of_the_tables(runs: list[Run]) -> None:
    (run, *_) = runs
    groups, profiles = grouped([run]), ProfileFolder().load()
    lives, contention = lives_of(groups, None, [profiles])
    heaviest = run.result.jobs.loc[run.result.jobs["gpu_seconds"].idxmax()]
    (life,) = lives
    assert life.label == heaviest["job"]
    assert life.gpus.values @ np.diff(life.gpus.edges) == pytest.approx(heaviest["gpu_seconds"])
    assert life.gpus.edges[[0, -1]].tolist() == [heaviest["submit_time"], heaviest["completion_time"]]
    figure = job_life(lives, contention)
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "active jobs",
        "GPUs",
        "batch size\n[examples]",
        "efficiency",
    ]
    changes = run.result.allocations.query("job == @heaviest['job'] and gpus.str.len() > 0")
    drawn = lines(figure, 2)[0][1][::2]
    np.testing.assert_array_equal(drawn[np.isfinite(drawn)], changes["batch_size"])
    without = job_life(*lives_of(groups))
    assert len(without.axes) == 3


def test_several_jobs_of_a_run_share_the_contention(runs: list[Run]) -> None:
    names = list(runs[0].result.jobs["job"][:2])
    lives, contention = lives_of(grouped(runs[:1]), names)
    assert [life.label for life in lives] == names
    assert len(contention) == 1
    lives, contention = lives_of(grouped(runs[::2]), names[:1])
    assert [life.label for life in lives] == ["Pollux", "Tiresias"]
    assert len(contention) == 2
    with pytest.raises(InvalidInputError, match=r"no job 'nobody', give one of its 16 jobs"):
        lives_of(grouped(runs[:1]), ["nobody"])


def test_the_work_of_every_job_is_done_when_it_completes(runs: list[Run]) -> None:
    """And the efficiencies of all jobs, weighted by GPUs, are the recorded ones of every round."""
    profiles = ProfileFolder().load()
    for run in runs:
        rounds = run.result.rounds
        times, weighted = rounds["time"].to_numpy(), np.zeros(len(rounds))
        for record in run.result.job_records:
            profile = profiles[record.application]
            known = progress_of(run.result, record, profile, lambda *_: 30.0)
            work = profile.epoch_end(profile.application.num_epochs - 1)
            assert known.progress[-1] == pytest.approx(work, rel=1e-9)
            assert (np.diff(known.progress) >= 0).all()
            changes = [row for row in run.result.allocation_records if row.job == record.job]
            held = np.array([0, *(sum(row.gpus) for row in changes)])
            gpus = held[np.searchsorted([row.time for row in changes], times, side="right")]
            place = np.clip(np.searchsorted(known.edges, times, side="right") - 1, 0, len(known.efficiency) - 1)
            weighted += np.where(gpus > 0, gpus * known.efficiency[place], 0.0)
        expected = rounds["efficiency"] * rounds["gpus_in_use"]
        np.testing.assert_allclose(weighted, expected, rtol=1e-9, atol=1e-9)


def test_fairness_needs_its_column(runs: list[Run]) -> None:
    if "finish_time_fairness" not in runs[0].result.jobs:
        with pytest.raises(InvalidInputError, match="no column 'finish_time_fairness'"):
            fairness_of(runs[0].name, runs[0].result)
    told = replace(runs[0].result)
    told.__dict__["jobs"] = told.jobs.assign(finish_time_fairness=[None, *np.linspace(0.5, 2, 15)])
    figure = fairness_cdf(grouped([replace(runs[0], result=told)]))
    x, share = lines(figure)[0]
    np.testing.assert_allclose(x[::2], np.linspace(0.5, 2, 15))
    assert share[-1] == pytest.approx(15 / 16)
    late = max(job.submit_time for job in told.job_records)  # a job that is submitted later does not count
    earlier = replace(told, end_time=late - 1)
    assert fairness_of("run", earlier)[1] == completion_hours(earlier)[1] < 16


def test_a_sweep_by_hand() -> None:
    frame = pd.DataFrame(
        {
            "policy._target_": ["a.Pollux"] * 4 + ["b.Tiresias"] * 2,
            "policy.p": [1.0, 1.0, -1.0, -1.0, None, None],
            "seed": [0, 1, 0, 1, 0, 1],
            "avg_jct": [3600, 7200, 1800, 1800, 10800, 14400],
        }
    )
    pollux, tiresias = drawn_of(frame, "policy.p", "avg_jct").series
    assert (pollux.label, pollux.x.tolist(), pollux.mean.tolist()) == ("Pollux", [-1, 1], [0.5, 1.5])
    assert np.isnan([pollux.low, pollux.high]).all()  # two runs are too few for an interval
    assert np.isnan(tiresias.x).all()
    assert tiresias.mean.tolist() == [3.5]
    figure = sweep(frame, "policy.p")
    assert lines(figure)[0][1].tolist() == [0.5, 1.5]
    assert figure.axes[0].get_ylabel() == "average JCT [h]"
    for arguments, message in (
        (("policy.q", "avg_jct"), r"no setting 'policy.q'; give one of policy._target_, policy.p, seed"),
        (("policy.p", "speed"), r"no metric 'speed'; give one of avg_jct"),
        (("policy.p", "policy.p"), r"no metric 'policy.p'"),
        (("policy.p", "avg_jct", ["policy.z"]), r"no setting 'policy.z'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            drawn_of(frame, *arguments)
    with pytest.raises(InvalidInputError, match=r"^1 run has no avg_jct"):
        drawn_of(frame.assign(avg_jct=[None, *frame.avg_jct[1:]]), "policy.p", "avg_jct")


def test_policies_along_an_axis_have_their_own_colours_and_room_above() -> None:
    frame = pd.DataFrame({"policy._target_": ["a.Pollux", "b.Tiresias"], "seed": [0, 0], "avg_jct": [3600, 7200]})
    axes = sweep(frame, "policy").axes[0]
    shown = [line for line in axes.get_lines() if line.get_marker() != "none"]
    assert [(line.get_color(), line.get_xdata()[0]) for line in shown] == [
        (POLICY_COLOURS["Pollux"], 0), (POLICY_COLOURS["Tiresias"], 1),
    ]  # fmt: skip
    assert axes.get_ylim()[1] > 2.1


def test_policies_without_their_own_colour_look_different_and_have_whole_bars() -> None:
    names = ["Sia", "Gavel", "Themis", "Shockwave"]
    rows = [(f"a.{name}", seed, 3600.0 * (seed + len(name))) for name in names for seed in range(4)]
    axes = sweep(pd.DataFrame(rows, columns=["policy._target_", "seed", "avg_jct"]), "policy").axes[0]
    points = [line for line in axes.get_lines() if len(line.get_xdata()) == 1]
    assert len({(line.get_color(), line.get_marker()) for line in points}) == 4
    # The line, the two ends of the bars, and the dashes at the changes.
    assert [line.get_marker() for line in axes.get_lines() if line not in points] == ["none", "_", "_", "_"]


def test_runs_without_the_setting_are_a_level_line_beside_runs_of_the_policy_with_it() -> None:
    rows = [("a.Pollux", value, 3600.0) for value in (None, 1.0, 2.0)] + [("b.Srtf", None, 7200.0)]
    frame = pd.DataFrame(rows, columns=["policy._target_", "policy.p", "avg_jct"])
    series = drawn_of(frame, "policy.p", "avg_jct").series
    assert [(each.label, each.x.tolist()) for each in series[:1]] == [("Pollux", [1.0, 2.0])]
    assert [each.label for each in series[1:]] == ["Pollux, no p", "SRTF"]
    assert all(np.isnan(each.x).all() for each in series[1:])
    assert len(lines(sweep(frame, "policy.p"))) == 3


def test_the_gpus_of_rented_nodes_are_drawn_as_they_were_there() -> None:
    rounds = (RoundRecord(0.0, 1, 4, 1.0, 0.5, nodes=1), RoundRecord(50.0, 1, 4, 1.0, 0.5, nodes=2))
    cluster = {"_target_": "x.elastic", "num_nodes": 2, "least_nodes": 1, "gpus_per_node": 4}
    run = run_of(replace(by_hand(), round_records=rounds), cluster=cluster)
    run.info["nodes"] = [[2, 4]]
    drawn = usage(grouped([run]), 600.0).axes[0].get_lines()
    assert drawn[-1].get_ydata().tolist() == [4, 4, 8, 8]
    np.testing.assert_allclose(drawn[-1].get_xdata() * 3600, [0, 50, 50, 100])


def test_runs_and_their_sweep_draw_the_same(runs: list[Run]) -> None:
    frame = frame_of(runs)
    assert frame["avg_jct"].tolist() == [run.info["summary"]["avg_jct"] for run in runs]
    (series,) = drawn_of(frame[:2], "seed", "makespan").series
    np.testing.assert_allclose(series.mean * 3600, [run.info["summary"]["makespan"] for run in runs[:2]])


def test_a_sweep_has_the_intervals_of_the_table_of_findings() -> None:
    """Workloads are the units, or runs if there are fewer than six workloads; two runs have no interval."""
    rng = np.random.default_rng(7)
    for workloads, seeds in ((8, 3), (2, 4), (5, 1), (2, 1)):
        runs = [(f"{name}.csv", seed) for name in range(workloads) for seed in range(seeds)]
        jcts = 3600 * np.exp(rng.normal(0, 0.3, len(runs)))
        frame = pd.DataFrame(runs, columns=["workload.path", "seed"]).assign(avg_jct=jcts)
        frame["policy._target_"], frame["policy.p"] = "a.Pollux", -1.0
        samples = [Sample("jct", "a", jct, *run) for run, jct in zip(runs, jcts / 3600, strict=True)]
        (drawn,) = drawn_of(frame, "policy.p", "avg_jct").series
        measured = Samples(samples).mean("jct", "a")
        assert measured is not None
        np.testing.assert_allclose(
            [drawn.mean[0], drawn.low[0], drawn.high[0]],
            np.array(measured.estimate, dtype=float),
            err_msg=f"{workloads}",
        )
        axes = sweep(frame, "policy.p").axes[0]
        bars = [bar for bar in axes.collections if len(bar.get_paths())]
        assert bool(bars) == (workloads * seeds >= 3)
        assert ("assuming normal values" in axes.get_title(loc="left")) == (workloads * seeds == 5)


def test_decision_times_by_hand() -> None:
    run = run_of(by_hand(), cluster={"groups": [[2, 4], [1, 8]]})
    timings = [
        TimingRecord("load", None, 9.0),
        TimingRecord("other", 10.0, 9.0),
        TimingRecord("decide", 10.0, 0.002),
        TimingRecord("decide", 20.0, 0.004),
    ]
    times = decision_times("Pollux", run, timings)
    assert times.to_numpy().tolist() == [["Pollux", 16, 2, 0.002], ["Pollux", 16, 2, 0.004]]
    assert summary(times, "num_jobs")[["x", "middle"]].to_numpy().tolist() == [[2.0, 3.0]]
    many = pd.DataFrame([("a", 64, jobs, jobs / 1e3) for jobs in range(1, 101)], columns=list(COLUMNS))
    points = summary(many, "num_jobs")
    assert len(points) <= 10
    np.testing.assert_allclose(points["x"], points["middle"])  # time is in proportion to jobs
    x, y = lines(scaling(many))[0]
    np.testing.assert_allclose(x, y)
