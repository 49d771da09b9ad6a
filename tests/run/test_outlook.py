"""Futures drawn from what was known: a job altered is one submitted so, draws are calibrated, the command tells."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from forecast_scores import Score, calibration, calibration_lines, forecast_checks, scored

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.durations import HOUR, clock
from polluxsim.engine.failures import DrawnFailures, JobFailures
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.run.forecasts import (
    Forecast,
    Outlook,
    forecast,
    quantile,
)
from polluxsim.run.resampling import FutureArrivals
from polluxsim.workloads.history import Draw, Seen
from polluxsim.workloads.workload import Job, Workload, write_workload

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.policies.contract.policy import Policy
    from polluxsim.records.results import Result

NOW = 3600.0


def jobs(seed: int, count: int = 40) -> tuple[Job, ...]:
    rng = np.random.default_rng(seed)
    times, lengths = np.sort(rng.uniform(0, 2 * NOW, count)), rng.lognormal(7, 1, count) + 60
    return tuple(
        Job.rigid(f"job{n}", time, int(rng.integers(1, 5)), length, user=f"user{n % 3}")
        for n, (time, length) in enumerate(zip(times.tolist(), lengths.tolist(), strict=True))
    )


def started(workload: Workload, policy: Policy, cluster: Cluster, settings: EngineSettings, until: float) -> Simulation:
    run = Simulation(Scenario.under(policy, workload, {}, cluster, settings))
    while (view := run.advance(before=until)) is not None:
        run.commit(policy.allocate(view, run.rng))
    return run


def ends(result: Result) -> dict[str, float | None]:
    return {job.job: job.completion_time for job in result.job_records}


@pytest.mark.parametrize("kind", [Fifo, Tiresias])
def test_a_job_that_turns_out_longer_is_one_that_was_longer_from_the_start(kind: type[Policy]) -> None:
    """Neither policy looks at durations, so that nothing differs before."""
    workload, cluster, settings = Workload(jobs(1)), Cluster.uniform(3, 4), EngineSettings()
    policy = kind()
    run = started(workload, policy, cluster, settings, NOW)
    longer = tuple(replace(job, duration=(job.duration or 0) * 1.5 + 30) for job, _ in run.active(NOW))
    assert len(longer) > 5
    assert run.waiting
    run.fork(Fork(NOW, run.scenario, altered=longer))
    whole = Workload(tuple({job.job_id: job for job in (*workload.jobs, *longer)}.values()))
    other = kind()
    there = run_to_end(Simulation(Scenario.under(other, whole, {}, cluster, settings)), other)
    found, expected = ends(run_to_end(run, policy)), ends(there)
    assert found.keys() == expected.keys()
    assert [found[name] for name in expected] == pytest.approx(list(expected.values()), abs=1e-6)


def test_failures_are_drawn_anew_from_then_on_by_their_seed() -> None:
    cluster = Cluster.uniform(6, 4, failures=DrawnFailures(9000.0))
    settings = EngineSettings(job_failures=JobFailures(0.5))

    def future(chance: int | None) -> Result:
        policy = Fifo()
        run = started(Workload(jobs(2)), policy, cluster, settings, NOW)
        run.fork(Fork(NOW, run.scenario, chance=chance))
        return run_to_end(run, policy)

    untouched, one, again, two = map(future, (None, 1, 1, 2))
    for first, second in ((untouched, one), (one, two)):
        assert [o for o in first.outage_records if o.time < NOW] == [o for o in second.outage_records if o.time < NOW]
        assert ends(first) != ends(second)
        assert {o.time for o in first.outage_records if o.time > NOW}.isdisjoint(o.time for o in second.outage_records)
    assert ends(one) == ends(again)


def test_of_unknown_durations_as_many_are_in_an_interval_as_it_says() -> None:
    """The rank of what comes among 19 draws is any with the same chance, whatever it ran already."""
    ranks = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        durations, until = rng.lognormal(7, 1.2, 41), rng.uniform(0, 5000, 41)
        while durations[0] <= until[0]:
            durations[0], until[0] = rng.lognormal(7, 1.2), rng.uniform(0, 5000)
        ran, known = np.minimum(durations, until), durations <= until
        seen = [Seen(Job.rigid(f"{n}", 0.0, 1, 1.0), ran[n], bool(known[n])) for n in range(41)]
        seen = [each._replace(job=replace(each.job, duration=float(durations[n]))) for n, each in enumerate(seen)]
        drawn = [Draw(seen, NOW, rng).durations["0"] for _ in range(19)]
        assert min(drawn) > ran[0]
        ranks.append(sum(each < durations[0] for each in drawn))
    assert np.mean(np.array(ranks) < 10) == pytest.approx(0.5, abs=0.08)
    assert np.mean([2 <= rank < 18 for rank in ranks]) == pytest.approx(0.8, abs=0.06)


def test_no_duration_exceeds_a_time_limit_that_the_job_has_not_exceeded_yet() -> None:
    past = [Seen(Job.rigid(f"{n}", 0.0, 1, 1000.0 * n), 1000.0 * n, True) for n in range(1, 20)]
    within, beyond = (replace(Job.rigid(name, 0.0, 1, 9000.0), time_limit=3000.0) for name in ("within", "beyond"))
    seen = [*past, Seen(within, 2000.0, False), Seen(beyond, 4000.0, False)]
    drawn = [Draw(seen, NOW, np.random.default_rng(seed)).durations for seed in range(40)]
    assert all(2000 < each["within"] <= 3000 for each in drawn)
    assert any(each["within"] == 3000 for each in drawn)
    assert all(each["beyond"] > 4000 for each in drawn)


def test_pieces_to_come_have_the_jobs_of_pieces_past() -> None:
    seen = [Seen(job, 0.0, False) for job in jobs(3) if job.submit_time < NOW * 2]
    counts = []
    for seed in range(200):
        draw = Draw(seen, 2 * NOW, np.random.default_rng(seed))
        coming = [job for piece in range(1, 25) for job in draw.arrivals(piece * 1e5)]
        assert len({job.job_id for job in coming}) == len(coming)
        assert all(0 <= job.submit_time % 1e5 < draw.length for job in coming)
        counts.append(len(coming))
    assert np.mean(counts) == pytest.approx(len(seen), rel=0.1)


def test_of_jobs_to_come_as_many_are_in_an_interval_as_it_says_even_after_three_hours() -> None:
    """Arrivals are Poisson's; drawn out of three hours as they are, 60 % would hold."""
    held, forks, span = 0, 9, 3 * HOUR
    for seed in range(200):
        rng = np.random.default_rng(seed)
        times = np.sort(rng.uniform(0, span, rng.poisson(24)))
        seen = [Seen(Job.rigid(f"{number}", float(time), 1, 1.0), 1.0, True) for number, time in enumerate(times)]
        counts = []
        for _ in range(forks):
            draw = Draw(seen, span, rng)
            starts = span + draw.length * np.arange(round(span / draw.length))
            counts.append(sum(len(list(draw.arrivals(start))) for start in starts))
        ties = rng.uniform(-0.5, 0.5, forks + 1)  # so that each rank has the same chance
        held += 1 <= (np.array(counts) + ties[1:] < rng.poisson(24) + ties[0]).sum() < 9
    assert held / 200 == pytest.approx(0.8, abs=0.06)


def test_quantiles_know_what_never_comes() -> None:
    assert [quantile([1.0, inf, inf], share) for share in (0.1, 0.5, 0.9)] == [1.0, inf, inf]
    assert quantile(list(range(1, 20)), 0.9) == 18


def test_the_command_tells_times_and_how_often_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_workload(Workload(jobs(4)), tmp_path / "jobs.csv")
    settings = ["policy=fifo", "workload.path=jobs.csv", "cluster.num_nodes=3"]
    assert main(["run", *settings, "hydra.run.dir=run"]) == 0
    capsys.readouterr()
    assert main(["when", "run", "--at", "1h", "--forks", "9", "--csv"]) == 0
    printed = capsys.readouterr()
    (tmp_path / "when.csv").write_text(printed.out)
    table, run = pd.read_csv("when.csv"), polluxsim.read("run")
    so_far = (run.jobs.submit_time <= NOW).sum()
    until = clock(2 * NOW - run.jobs.submit_time.min())  # for as long as the time since the first submission
    line = f"assumed arrivals: resampled from the {so_far} jobs before 1:00:00, until {until}, then none"
    assert printed.err.splitlines() == [line]
    assert run.at("1h").when(forks=1).attrs["arrivals"] == line
    pd.testing.assert_frame_equal(table, run.at("1h").when(forks=9), check_dtype=False)
    assert (table.completion_p10 > NOW).all()
    assert (table.completion_p10 <= table.completion_p90).all()
    began = run.jobs.set_index("job").start_time
    assert (table.start_p50[~table.waits] == began[table.job[~table.waits]].to_numpy()).all()
    assert (table.start_p90[~table.waits] < NOW).all()
    assert (table.start_p10[table.waits] >= NOW).all()
    moment = run.at("1h")
    some = forecast(moment, [table.job[0]], 9).outlooks  # the futures are the same whichever jobs are asked for
    assert [quantile(some[0].completions, 0.5)] == pytest.approx([table.completion_p50[0]])
    monkeypatch.setattr("polluxsim.run.resampling.WORTH_PROCESSES", 0.0)
    files = FutureArrivals("jobs.csv", jobs(4))
    assert forecast(moment, None, 3, processes=2, arrivals=files) == forecast(moment, None, 3, arrivals=files)
    (begun, over) = forecast_checks(scored(forecast(moment, None, 9), run))
    assert (begun.known + begun.uncertain, over.known + over.uncertain) == (table.waits.sum(), len(table))
    for words, told in (
        (["--at", "noon"], "--at is noon, must be a time"),
        (["--at", "99h"], "ends at"),
        (["nobody", "--at", "1h"], "job 'nobody' neither waits nor runs"),
        (["--at", "1h", "--forks", "0"], "--forks is 0, must be a whole number"),
        (["job3"], "--at is missing; give the time of the forecast as --at TIME"),
        (["--at", "1h", "--arrivals", "some"], "some: no such file"),
    ):
        assert main(["when", "run", *words]) == 2
        assert told in capsys.readouterr().err


def test_a_job_left_out_with_one_that_waits_for_it_ends_once() -> None:
    first, policy = Job.rigid("first", 500.0, 1, 60.0), Fifo()
    workload = Workload(
        (Job.rigid("there", 0.0, 1, 900.0), first, Job.rigid("second", 600.0, 1, 60.0, after=("first",)))
    )
    run = started(workload, policy, Cluster.uniform(1, 4), EngineSettings(), 60.0)
    run.fork(Fork(60.0, run.scenario, without=("first", "second")))
    assert sorted(ends(run_to_end(run, policy))) == ["first", "second", "there"]
    assert len(run.ended()) == 3


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> polluxsim.Result:
    """Two hours in which more short jobs arrive than one node can run. They preempt the first job, which is long."""
    path = tmp_path_factory.mktemp("busy") / "jobs.csv"
    long = Job.rigid("long", 0.0, 4, 9000.0, user="a")
    rest = [Job.rigid(f"j{n}", 60.0 * n + 30, 1, 280.0, user="b") for n in range(120)]
    write_workload(Workload((long, *rest)), path)
    workload = polluxsim.workload("file", path=str(path))
    policy = polluxsim.policy("tiresias", queue_threshold=3600.0)
    return polluxsim.simulate(workload, policy=policy, cluster=(1, 4), progress=False)


@pytest.mark.parametrize("arrivals", ["recent", "none"])
def test_no_interval_has_the_horizon_at_both_ends(busy: polluxsim.Result, arrivals: str) -> None:
    """If jobs arrived for three days as in the first hour, the long job would wait for all that time."""
    table = busy.at("50min").when(["long"], forks=5, arrivals=arrivals)
    low, high = table.completion_p10[0], table.completion_p90[0]
    assert low < high < inf


def test_a_job_that_arrives_at_the_time_asked_for_waits(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    jobs = Workload((Job.rigid("a", 0.0, 1, 300.0), Job.rigid("b", 60.0, 1, 300.0, cancel_time=70.0)))
    write_workload(jobs, path)
    run = polluxsim.simulate(str(path), policy="fifo", cluster=(1, 1), progress=False)
    table = run.at(60.0).when(forks=3)
    assert table.attrs["time"] == 60.0
    assert (table.job.tolist(), table.waits.iloc[-1]) == (["a", "b"], True)
    assert 60 < table.start_p10.iloc[-1] < table.completion_p50.iloc[-1] < inf
    assert run.at(60.0).when(["b"], forks=3).job.tolist() == ["b"]


def test_one_job_may_be_named_by_text_and_a_wrong_number_of_futures_is_told(busy: polluxsim.Result) -> None:
    moment = busy.at(3600.0)
    assert len(moment.when("long", forks=1)) == 1
    with pytest.raises(polluxsim.PolluxSimError, match="'x' futures cannot give a forecast; ask for 1 or more"):
        moment.when(forks="x")  # type: ignore[arg-type]


def test_no_running_job_starts_after_the_time_asked_for(busy: polluxsim.Result) -> None:
    table = busy.at(2990).when(forks=3)
    assert table.attrs["time"] == 3000
    running = table[~table.waits]
    assert len(running) == 4
    assert (running.filter(like="start") <= 2990).all(axis=None)


def test_assumed_arrivals_change_the_forecast(busy: polluxsim.Result, tmp_path: Path) -> None:
    """Without arrivals the long job completes sooner. Jobs of a file arrive at their times; earlier ones do not."""
    moment = busy.at("50min")
    none, recent = (moment.when(forks=5, arrivals=kind) for kind in ("none", "recent"))
    assert none.attrs["arrivals"] == "assumed arrivals: none after 0:50:00"
    assert none.completion_p50[0] < recent.completion_p50[0] - HOUR
    same = Workload((Job.rigid("j1", 0.0, 4, 60.0), Job.rigid("long", 3100.0, 4, 1e4, user="c")))
    write_workload(same, tmp_path / "more.csv")
    from_file = moment.when(forks=5, arrivals=tmp_path / "more.csv")
    path = tmp_path / "more.csv"
    assert from_file.attrs["arrivals"] == f"assumed arrivals: 1 job of {path}, 1 earlier job left out"
    assert set(from_file.job) == set(none.job)
    assert from_file.completion_p50[0] > none.completion_p50[0] + HOUR / 5


def test_a_forecast_of_no_job_has_the_columns_of_a_forecast(busy: polluxsim.Result) -> None:
    moment = busy.at("50min")
    assert list(moment.when([], forks=1).columns) == list(moment.when(["long"], forks=1).columns)


def test_jobs_that_never_arrived_are_no_time_of_a_forecast(tmp_path: Path) -> None:
    rows = "a,0,1,600,", "b,0,1,1e9,", "after b,0,1,60,b", "c,600,1,600,", "after the horizon,9000,1,60,"
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["name,time,num_replicas,duration,after", *rows]))
    settings = polluxsim.settings(horizon=3600.0)
    run = polluxsim.simulate(str(path), policy="fifo", cluster=(1, 1), settings=settings, progress=False)
    assert calibration(run, moments=2, forks=2)


def test_times_after_the_horizon_are_a_lower_bound(
    busy: polluxsim.Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("polluxsim.run.resampling.HORIZON", 100.0)
    monkeypatch.setattr("polluxsim.run.forecasts.HORIZON", 100.0)
    table = busy.at("50min").when(["long"], forks=3)
    assert (table.completion_p10[0], table.completion_p50[0], table.completion_p90[0]) == (3100.0, inf, inf)
    assert main(["when", str(busy.save(tmp_path / "busy")), "long", "--at", "50min", "--forks", "3"]) == 0
    assert "unknown │ 0:51:40 or later" in " ".join(capsys.readouterr().out.split())


def test_the_naive_forecast_comes_from_jobs_of_the_class_that_took_longer() -> None:
    """Completion times of nine such jobs are 1001 to 1009 s; shorter ones, and those of another class, do not count."""
    run = polluxsim.simulate(Workload((Job.rigid("a", 0.0, 1, 60.0),)), policy="fifo", cluster=(1, 4), progress=False)
    (record,) = run.result.job_records
    times = [*(1000.0 + n for n in range(1, 10)), *(10.0 * n for n in range(1, 30))]
    past = [record._replace(job=f"p{n}", num_replicas=1, submit_time=0.0, start_time=0.0, completion_time=time)
            for n, time in enumerate(times)]  # fmt: skip
    past += [each._replace(job=f"{each.job}!", num_replicas=2, completion_time=9000.0) for each in past]
    now = record._replace(job="x", submit_time=4500.0, start_time=4500.0, completion_time=5600.0)
    result = replace(run.result, job_records=(*past, now))
    found = Forecast(5000.0, "", [Outlook("x", False, (4500.0,) * 3, (5500.0, 5550.0, 5700.0))])
    (score,) = scored(found, replace(run, result=result))
    assert score == Score("completions", False, (5500.0, 5700.0), (5501.0, 5509.0), 5600.0)
    starts, completions = forecast_checks([score, score._replace(is_known=True)])
    assert starts == ("starts", 0, 0, 0, 0, 0.0, 0.0, 0, 1.0)
    assert completions == ("completions", 1, 1, 1, 2, 200.0, 8.0, 0, 95 / 4)  # 95 s off the middle of 8 s
    assert calibration_lines(completions) == [
        "completions: 1 of 1 in their 80 % interval, 100 %; 1 equal in every future",
        "completions: median width of the interval 3.33 min; of the naive one from jobs of the same class 8 s, "
        "with 0 % of 2 in it; widened to hold as often 3.17 min",
    ]


def test_jobs_with_profiles_keep_their_progress_in_every_future() -> None:
    """FIFO's futures of jobs with profiles are the run itself, as later jobs change nothing."""
    workload = polluxsim.workload("philly-like", num_jobs=14, hours=1)
    run = polluxsim.simulate(workload, policy="fifo", cluster=(8, 4), progress=False)
    table = run.at("30min").when(forks=2)
    ends = run.jobs.set_index("job").completion_time[table.job].to_numpy()
    assert table.completion_p10.to_numpy() == pytest.approx(ends)
    assert table.completion_p90.to_numpy() == pytest.approx(ends)


def test_a_waiting_job_is_not_forecast_to_start_as_if_it_could_have_started_before(tmp_path: Path) -> None:
    """EASY knows durations. It would have started `long` beside the reservation of `head` if it were short."""
    past = [Job.rigid(f"past-{number}", 0.0, 1, 300.0 if number % 2 else 20000.0, user="u") for number in range(8)]
    wide, head = Job.rigid("wide", 21000.0, 6, 4000.0, user="v"), Job.rigid("head", 21300.0, 8, 600.0, user="v")
    long = Job.rigid("long", 21360.0, 2, 20000.0, user="u")
    path = tmp_path / "jobs.csv"
    write_workload(Workload((*past, wide, head, long)), path)
    run = polluxsim.simulate(polluxsim.workload("file", path=str(path)), policy="easy", cluster=(2, 4), progress=False)
    forecast_of_long = run.at(22200).when(["long"], forks=19, arrivals="none").iloc[0]
    assert forecast_of_long.waits
    assert forecast_of_long.start_p50 > 22260
