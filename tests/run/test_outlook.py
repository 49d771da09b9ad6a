"""Futures drawn from what was known: a job altered is one submitted so, draws are calibrated, the command tells."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.durations import HOUR
from polluxsim.engine.diversion import Diversion
from polluxsim.engine.failures import DrawnFailures, JobFailures
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, driven
from polluxsim.policies.fifo import Fifo
from polluxsim.policies.tiresias import Tiresias
from polluxsim.run.outlook import checked, outlooks, quantile
from polluxsim.types import Cluster
from polluxsim.workloads.history import Draw, Seen
from polluxsim.workloads.workload import Job, Workload, write_workload

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.policies.view import Policy
    from polluxsim.records import Result

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
    run.divert(Diversion(NOW, run.scenario, altered=longer))
    whole = Workload(tuple({job.job_id: job for job in (*workload.jobs, *longer)}.values()))
    other = kind()
    there = driven(Simulation(Scenario.under(other, whole, {}, cluster, settings)), other)
    found, expected = ends(driven(run, policy)), ends(there)
    assert found.keys() == expected.keys()
    assert [found[name] for name in expected] == pytest.approx(list(expected.values()), abs=1e-6)


def test_failures_are_drawn_anew_from_then_on_by_their_seed() -> None:
    cluster = Cluster.uniform(6, 4, failures=DrawnFailures(9000.0))
    settings = EngineSettings(job_failures=JobFailures(0.5))

    def future(chance: int | None) -> Result:
        policy = Fifo()
        run = started(Workload(jobs(2)), policy, cluster, settings, NOW)
        run.divert(Diversion(NOW, run.scenario, chance=chance))
        return driven(run, policy)

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
    (tmp_path / "when.csv").write_text(capsys.readouterr().out)
    table, run = pd.read_csv("when.csv"), polluxsim.read("run")
    pd.testing.assert_frame_equal(table, run.at("1h").when(forks=9), check_dtype=False)
    assert (table.completion_p10 > NOW).all()
    assert (table.completion_p10 <= table.completion_p90).all()
    assert (table.start_p50[~table.waits] == NOW).all()
    assert (table.start_p10[table.waits] >= NOW).all()
    some = outlooks(run.at("1h")._moment, [table.job[0]], 9)  # the same futures, whoever is asked about
    assert [quantile(some[0].completions, 0.5)] == pytest.approx([table.completion_p50[0]])
    monkeypatch.setattr("polluxsim.run.redrawn.WORTH_PROCESSES", 0.0)
    assert outlooks(run.at("1h")._moment, None, 5, processes=2) == outlooks(run.at("1h")._moment, None, 5)
    (begun, over) = checked(outlooks(run.at("1h")._moment, None, 9), run, NOW)
    assert (begun.known + begun.uncertain, over.known + over.uncertain) == (table.waits.sum(), len(table))
    assert main(["when", "run", "--calibrate", "2", "--forks", "5"]) == 0
    assert "completions: " in capsys.readouterr().out
    for words, told in (
        (["--at", "noon"], "TIME is 'noon'"),
        (["--at", "99h"], "ends at"),
        (["nobody", "--at", "1h"], "job 'nobody' neither waits nor runs"),
        (["--at", "1h", "--forks", "0"], "0 futures"),
        (["--calibrate", "0"], "--calibrate 0"),
    ):
        assert main(["when", "run", *words]) == 2
        assert told in capsys.readouterr().err


def test_a_job_left_out_with_one_that_waits_for_it_ends_once() -> None:
    first, policy = Job.rigid("first", 500.0, 1, 60.0), Fifo()
    workload = Workload(
        (Job.rigid("there", 0.0, 1, 900.0), first, Job.rigid("second", 600.0, 1, 60.0, after=("first",)))
    )
    run = started(workload, policy, Cluster.uniform(1, 4), EngineSettings(), 60.0)
    run.divert(Diversion(60.0, run.scenario, without=("first", "second")))
    assert sorted(ends(driven(run, policy))) == ["first", "second", "there"]
    assert len(run.ended()) == 3
