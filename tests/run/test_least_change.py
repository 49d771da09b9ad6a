"""The least change said makes a job run that waits, and one less does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.run.moment import RunMoment, Trial

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim import Result
    from polluxsim.engine.futures import Fork

WORKLOAD = polluxsim.workload("philly-like", num_jobs=24, hours=1)


@pytest.fixture(scope="module", params=["fifo", "tiresias", "srtf", "pollux"])
def run(request: pytest.FixtureRequest) -> Result:
    return polluxsim.simulate(WORKLOAD, policy=request.param, cluster=(4, 4), progress=False)


def test_the_change_lets_it_run_and_one_less_does_not(run: Result) -> None:
    found = 0
    for time in (1800.0, 3000.0, 4800.0):
        moment = RunMoment(run, time)
        for name in moment.copied()[0].waiting[:3]:
            trial = Trial(moment, name)
            if (least := trial.least()) is None:
                assert (run.allocations.query("job == @name").time == moment.time).any()
                continue
            tries = (trial.runs_with_nodes, trial.runs_with_fewer_gpus, trial.runs_with_places)
            for number, runs in zip(least, tries, strict=True):
                found += number is not None
                assert number is None or runs(number)
                assert number in (None, 1) or not runs(number - 1)
            asked = run.jobs.set_index("job").num_replicas[name]
            if run.name == "fifo":  # where the head of the queue runs as soon as there is room
                assert least.nodes is not None
                assert (least.places or 0) <= len(trial.ahead)
                assert (least.fewer_gpus or 0) < asked
    assert found > 4 or run.name == "pollux"  # under which hardly anybody waits


@pytest.mark.parametrize("policy", ["las", "srtf"])
def test_changes_are_tried_in_the_round_that_pauses_a_job(policy: str) -> None:
    run = polluxsim.simulate(WORKLOAD, policy=policy, cluster=(4, 4), progress=False)
    pauses = run.allocations[run.allocations.gpus.map(sum) == 0]
    pauses = pauses[~pauses.set_index(["job", "time"]).index.isin(run.jobs.set_index(["job", "completion_time"]).index)]
    assert len(pauses) >= 2
    for pause in pauses.head(5).itertuples():
        trial = Trial(RunMoment(run, pause.time), pause.job)
        least = trial.least()
        assert least is not None
        assert least.places is None or trial.runs_with_places(least.places)


def test_a_tried_cluster_changes_nothing_but_the_nodes() -> None:
    """The rule of the agents stays, too."""
    run = polluxsim.simulate(WORKLOAD, policy="fifo", agent="kungfu", cluster=(4, 4), progress=False)
    moment = RunMoment(run, 3000)
    trial = Trial(moment, moment.copied()[0].waiting[0])
    tried: list[Fork] = []
    trial._runs = lambda fork: bool(tried.append(fork))  # type: ignore[method-assign, func-returns-value]
    trial.runs_with_nodes(3)
    (fork,) = tried
    assert fork.scenario.cluster.num_nodes == 7
    assert fork.scenario.batch_rule is not None
    assert replace(fork.scenario, cluster=moment.scenario.cluster) == moment.scenario


def test_changes_of_a_fork_are_tried_on_its_own_nodes() -> None:
    """At the round of the fork, too, at which its nodes come."""
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=(4, 4), progress=False)
    fork = run.at(3000).fork(cluster=(64, 4))
    name = RunMoment(run, 3000).copied()[0].waiting[0]
    trials = [Trial(RunMoment(each, 3000), name) for each in (run, fork)]
    assert [trial.least() is None for trial in trials] == [False, True]
    smaller = run.at(3000).fork(cluster=(3, 4))
    trial = Trial(RunMoment(smaller, 3000), name)
    assert trial.runs_with_nodes(64)


def test_the_command_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["workload=philly-like", "workload.num_jobs=24", "workload.hours=1", "cluster.num_nodes=4"]
    assert main(["run", "policy=fifo", *settings, "hydra.run.dir=run"]) == 0
    run = polluxsim.read("run")
    name = RunMoment(run, 3000).copied()[0].waiting[0]
    capsys.readouterr()
    for brief in ([], ["--brief"]):
        assert main(["why", "run", name, "--at", "3000", *brief]) == 0
        assert ("it would have run with" in " ".join(capsys.readouterr().out.split())) == (not brief)


@pytest.mark.parametrize("cancelled", [110, 120])
def test_who_gives_up_before_the_next_round_or_at_it_is_gone(
    cancelled: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(
        f"name,time,num_replicas,duration,cancel_time\na,0,4,7200,\nb,10,4,600,{cancelled}\nc,20,4,600,\n"
    )
    settings = ["workload.path=jobs.csv", "cluster.num_nodes=1", "hydra.run.dir=run"]
    assert main(["run", "policy=fifo", *settings]) == 0
    assert main(["why", "run", "b", "--at", "100"]) == 0
    assert "It was gone before the next round, at 0:02:00." in " ".join(capsys.readouterr().out.split())
    assert main(["when", "run", "--at", "120", "--forks", "2"]) == 0
    assert main(["whatif", "run", "--at", "120", "policy=srtf"]) == 0
