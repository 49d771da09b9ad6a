"""A run at a moment has the future it had, and others that are those of runs made so from the start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.durations import clock
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.workloads.workload import write_workload

if TYPE_CHECKING:
    from polluxsim import Result

POLICIES = ("fifo", "tiresias", "pollux")
WORKLOAD = polluxsim.workload("philly-like", num_jobs=14, hours=1)
SMALL = polluxsim.cluster(num_nodes=8)


@pytest.fixture(scope="module", params=POLICIES)
def run(request: pytest.FixtureRequest) -> Result:
    return polluxsim.simulate(WORKLOAD, policy=request.param, cluster=SMALL, progress=False)


def records(run: Result) -> tuple[Any, ...]:
    result = run.result
    return result.job_records, result.round_records, result.allocation_records, result.reason_records


def jobs_of(run: Result, *without: str) -> pd.DataFrame:
    return run.jobs.drop(columns=list(without)).sort_values("job", ignore_index=True)


def test_without_a_change_it_has_the_future_it_had(run: Result) -> None:
    policy = run.info["config"]["policy"]
    for time in np.random.default_rng(0).uniform(0, run.result.end_time, 3):
        moment = run.at(time)
        assert records(moment.fork()) == records(run)
        again = moment.fork(policy=polluxsim.policy(None, **{key: policy[key] for key in policy if key != "_target_"}))
        assert records(again) == records(run)


def test_a_node_that_comes_and_goes_at_once_changes_nothing(run: Result) -> None:
    fork = run.at("30min").fork(cluster=polluxsim.cluster(num_nodes=9), drop_nodes=[8])
    assert records(fork) == records(run)
    assert records(run.at("30min").fork(cluster=polluxsim.cluster(num_nodes=9))) != records(run)


def test_a_dropped_node_is_one_that_fails_for_good(run: Result, tmp_path: Path) -> None:
    later, now = "7,1e6,,failure", "1,1800,,dropped"
    (tmp_path / "later.csv").write_text(f"node,time,down_until,kind\n{later}\n")
    (tmp_path / "both.csv").write_text(f"node,time,down_until,kind\n{now}\n{later}\n")
    target = "polluxsim.engine.failures.RecordedFailures"
    sound, failing = (
        polluxsim.simulate(
            WORKLOAD,
            policy=run.name,
            cluster=polluxsim.cluster(num_nodes=8, failures={"_target_": target, "path": str(tmp_path / name)}),
            progress=False,
        )
        for name in ("later.csv", "both.csv")
    )
    fork = sound.at(1790).fork(drop_nodes=[1])
    pd.testing.assert_frame_equal(jobs_of(fork), jobs_of(failing))
    assert fork.result.outage_records == failing.result.outage_records
    assert not any(1 in nodes for nodes in fork.allocations[fork.allocations.time >= 1800].nodes)


def test_where_no_work_is_ever_lost_a_dropped_node_costs_its_gpus_alone(run: Result) -> None:
    jobs = run.at(1790).fork(drop_nodes=[1, 2]).jobs
    assert (jobs.lost_work == 0).all()
    if run.name != "fifo":  # where nobody overtakes a job that does not fit any more
        assert set(jobs.status[jobs.num_replicas <= 24]) == {"completed"}


def test_a_job_left_out_is_one_that_is_cancelled(run: Result) -> None:
    jobs = workload().jobs
    active, coming = run.jobs[run.jobs.end_time > 1800].job.iloc[0], jobs[-1].job_id
    cancelled = [replace(job, cancel_time=1800.0) if job.job_id == active else job for job in jobs]
    fork = run.at(1800).fork(without=[active])
    other = polluxsim.simulate(polluxsim.Workload(tuple(cancelled)), policy=run.name, cluster=SMALL, progress=False)
    pd.testing.assert_frame_equal(jobs_of(fork, "cancel_time"), jobs_of(other, "cancel_time"))
    assert fork.jobs.set_index("job").status[active] == "cancelled"
    never = run.at(1800).fork(without=[coming]).jobs.set_index("job").loc[coming]
    assert (never.status, pd.isna(never.start_time), never.end_time) == ("cancelled", True, 1800)


def test_a_job_added_is_one_of_the_workload(run: Result, tmp_path: Path) -> None:
    jobs = workload().jobs
    (extra,) = (replace(jobs[0], job_id="extra", submit_time=2000.0, line=0),)
    write_workload(polluxsim.Workload((extra,)), tmp_path / "more.csv")
    fork = run.at(1800).fork(add=tmp_path / "more.csv")
    other = polluxsim.simulate(polluxsim.Workload((*jobs, extra)), policy=run.name, cluster=SMALL, progress=False)
    pd.testing.assert_frame_equal(jobs_of(fork), jobs_of(other))


def workload() -> polluxsim.Workload:
    run, _ = polluxsim.start(WORKLOAD, policy="fifo", cluster=SMALL)
    return run.scenario.workload


class Relay:
    """FIFO up to a time, then shortest remaining time first."""

    def __init__(self, time: float) -> None:
        self.time = time

    def allocate(self, view: Any, rng: np.random.Generator) -> Any:
        policy = Fifo() if view.time < self.time else Srtf()
        return replace(policy.allocate(view, rng), valid_until=-np.inf)


@pytest.mark.parametrize("time", [600.0, 1800.0, 7200.0])
def test_another_policy_decides_from_then_on(time: float) -> None:
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=SMALL, progress=False)
    relay = polluxsim.simulate(WORKLOAD, policy=Relay(time), cluster=SMALL, progress=False)
    pd.testing.assert_frame_equal(jobs_of(run.at(time).fork(policy="srtf")), jobs_of(relay))


@pytest.mark.parametrize(("before", "after"), [("tiresias", "pollux"), ("pollux", "tiresias"), ("optimus", "pollux")])
def test_agents_change_with_the_policy(before: str, after: str) -> None:
    """At the start of the run, where nobody has learnt anything, it is a run under the other policy."""
    run = polluxsim.simulate(WORKLOAD, policy=before, cluster=SMALL, progress=False)
    whole = polluxsim.simulate(WORKLOAD, policy=after, cluster=SMALL, progress=False)
    pd.testing.assert_frame_equal(jobs_of(run.at(0).fork(policy=after)), jobs_of(whole))
    later = run.at("1h").fork(policy=after)
    assert set(later.jobs.status) == {"completed"}
    rows = later.allocations[(later.allocations.time > 3600) & (later.allocations.batch_size > 0)]
    assert (rows.groupby("job").batch_size.nunique() > 1).any() == (after == "pollux")


def test_who_takes_over_rented_nodes_goes_on_with_them() -> None:
    run, whole = (
        polluxsim.simulate(WORKLOAD, policy=policy, cluster="elastic", progress=False)
        for policy in ("scaled", "autoscale-goodput")
    )
    pd.testing.assert_frame_equal(jobs_of(run.at(0).fork(policy="autoscale-goodput")), jobs_of(whole))
    assert set(run.at("1h").fork(policy="fifo").jobs.status) == {"completed"}
    with pytest.raises(polluxsim.PolluxSimError, match="cannot change or drop nodes"):
        run.at("1h").fork(drop_nodes=[1])


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"cluster": (4, 8)}, "a fork adds or removes nodes at the end"),
    ({"cluster": "elastic"}, "a fork cannot change or drop nodes"),
    ({"drop_nodes": [8]}, "there is no node 8 to drop; name one from 0 to 7"),
    ({"drop_nodes": 3}, r"drop_nodes is 3, must be whole numbers of nodes in a list, like \[3\]"),
    ({"drop_nodes": [1.5]}, r"drop_nodes is \[1.5\], must be whole numbers of nodes"),
    ({"without": 3}, "without is 3, must be names of jobs in a list"),
    ({"without": "nobody"}, "has no job 'nobody'"),
    ({"seed": -1}, "seed is -1, must be a whole number ≥ 0"),
    ({"without": ["nobody"]}, "has no job 'nobody'"),
    ({"policy": "nobody"}, "policy=nobody is unknown"),
    ({"policy": polluxsim.policy(None, p=3)}, "policy.p is not a setting of"),
]


@pytest.mark.parametrize(("changes", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_what_cannot_be_is_told(changes: dict[str, Any], words: str) -> None:
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=SMALL, progress=False)
    with pytest.raises(polluxsim.PolluxSimError, match=words):
        run.at(600).fork(**changes)
    with pytest.raises(polluxsim.PolluxSimError, match="ended at"):
        run.at(run.result.end_time - 70).fork(without=[run.jobs.sort_values("end_time").job.iloc[0]])
    for time in (run.result.end_time, 1e30):
        with pytest.raises(polluxsim.PolluxSimError, match="ends at"):
            run.at(time)
    with pytest.raises(polluxsim.PolluxSimError, match="TIME is 'noon'"):
        run.at("noon")


def test_a_run_that_cannot_be_made_again_is_told(tmp_path: Path) -> None:
    given = polluxsim.simulate(workload(), policy="fifo", cluster=SMALL, progress=False)
    with pytest.raises(polluxsim.PolluxSimError, match="its workload was an object in Python"):
        given.at(600)
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=SMALL, progress=False)
    run.info["config"]["cluster"]["num_nodes"] = 10
    with pytest.raises(polluxsim.PolluxSimError, match="it is another run"):
        run.at("3h")


def test_the_command_keeps_both_futures_and_compares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["policy=fifo", "workload=philly-like", "workload.num_jobs=14", "cluster.num_nodes=8"]
    assert main(["run", *settings, "hydra.run.dir=first"]) == 0
    assert main(["whatif", "first", "--at", "0:30", "policy=pollux", "--drop-node", "2", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    assert "without node 2 from 0:30:00 against FIFO" in printed.replace("Pollux, ", "")
    folders = {path.name for path in (tmp_path / "first-at-30min").iterdir()}
    assert folders == {"as-it-was", "otherwise", "as-it-was-seed1", "otherwise-seed1"}
    info = json.loads((tmp_path / "first-at-30min" / "otherwise" / "run.json").read_text())
    assert info["descent"] == {
        "run": "first", "key": json.loads((tmp_path / "first" / "run.json").read_text())["key"], "time": 1800.0,
        "lost_nodes": [2], "down_nodes": [], "down_for": 0.0,
        "without": [], "added": [], "added_jobs": {}, "seed": None, "new_policy": True,
        "before": {"config": json.loads((tmp_path / "first" / "run.json").read_text())["config"]},
    }  # fmt: skip
    assert info["config"]["policy"]["_target_"].endswith("Pollux")
    for mistake, words in (
        (["engine.x=1"], "cannot be changed in the middle of a run"),
        ([], "no change is given"),
        (["policy=srtf", "--seeds", "0"], "--seeds is 0"),
    ):
        assert main(["whatif", "first", "--at", "600", *mistake]) == 2
        assert words in capsys.readouterr().err
    assert main(["whatif", "first", "policy=srtf"]) == 2


def test_what_ifs_with_different_changes_never_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["policy=fifo", "workload=philly-like", "workload.num_jobs=4", "workload.hours=1"]
    assert main(["run", *settings, "cluster.num_nodes=8", "hydra.run.dir=first"]) == 0
    for name, duration in (("some", 60), ("other", 90)):
        (tmp_path / f"{name}.csv").write_text(f"name,time,num_replicas,duration\nnew,900,1,{duration}\n")

    def folders() -> dict[str, bytes]:
        return {path.name: (path / "otherwise" / "jobs.parquet").read_bytes() for path in tmp_path.glob("first-at-*")}

    changes = (["--drop-node", "3"], ["--drop-node", "2"], ["--add", "some.csv"], ["--add", "other.csv"])
    for number, change in enumerate(changes):
        before = folders()
        assert main(["whatif", "first", "--at", "600", *change]) == 0
        assert {name: data for name, data in folders().items() if name in before} == before
        assert len(folders()) == number + 1
    assert set(folders()) == {"first-at-10min", *(f"first-at-10min-{number}" for number in (2, 3, 4))}
    assert main(["whatif", "first", "--at", "600", *changes[1]]) == 0  # the same changes, and the same folder
    assert len(folders()) == 4
    capsys.readouterr()
    assert main(["whatif", "first", "--at", "600", "--drop-node", "1", "-o", "first-at-10min"]) == 2
    assert "a finished run of other settings is there (descent.lost_nodes is [3] there, [1] here)" in (
        capsys.readouterr().err
    )
    assert main(["whatif", "first", "--at", "600", "policy.backfill={a: "]) == 2
    assert capsys.readouterr().err.startswith("polluxsim: policy.backfill={a: : the value is not YAML")


def test_the_line_of_an_added_job_is_not_one_of_the_workload(run: Result, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("name,time,application,num_replicas,batch_size\nearly,0,cifar10,1,128\n")
    with pytest.raises(polluxsim.PolluxSimError, match=r", job 'early': submitted at 0 s, must be 1800 s or later"):
        run.at("30min").fork(add=tmp_path / "more.csv")


def test_a_fork_names_its_time_and_changes(run: Result) -> None:
    moment = run.at("30min")
    policy = run.name
    assert repr(moment).startswith(f"Moment('{policy}' at 0:30:00, ")
    assert repr(moment).endswith(" waiting)")
    changes: list[tuple[dict[str, Any], str]] = [
        ({"policy": "las"}, "las"),
        ({"policy": Srtf(), "seed": 3}, "Srtf, seed 3"),
        ({"drop_nodes": [7, 7], "without": [run.jobs.job.iloc[-1]] * 2}, "1 node(s) dropped, 1 job(s) left out"),
        ({"cluster": (9, 4)}, "cluster.num_nodes=9, cluster.gpus_per_node=4"),
        ({}, "no changes"),
    ]
    for change, words in changes:
        fork = moment.fork(**change)
        assert fork.name == f"{policy} from 0:30:00 with {words}"
        assert repr(fork).startswith(f"Result('{fork.name}', ")


def test_a_simulation_and_its_parts_state_what_they_are() -> None:
    run, policy = polluxsim.start(WORKLOAD, policy="fifo", cluster=SMALL)
    source = run.scenario.workload.source
    assert repr(run.scenario) == f"Scenario('Fifo', Workload(14 jobs from {source!r}), 32 GPUs)"
    while (view := run.advance()) is not None and view.time < 1800:
        assert repr(view).startswith(f"ClusterView at {clock(view.time)} ({view.time:g} s): ")
        run.commit(policy.allocate(view, run.rng))
    running, waiting = len(run.allocation), len(run.waiting)
    jobs = f"{running} jobs running, {waiting} waiting, {run.num_ended} of 14 ended"
    assert repr(run) == f"Simulation('Fifo' at {clock(run.time)}, {jobs})"
