"""Forks of forks repeat the edits of their ancestors, in memory and from their folders."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from forecast_scores import calibration
from odd_jobs import write_jobs

import polluxsim
from polluxsim.applications.folder import ProfileFolder
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, PolluxSimError
from polluxsim.engine.failures import DrawnFailures, SpotReclaims
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster, Repairs
from polluxsim.models.known_duration import BatchPlan
from polluxsim.models.stages import Stages
from polluxsim.policies.ordered.classic import Srtf
from polluxsim.run import building
from polluxsim.run.forks import Branch, fields_of, job_from
from polluxsim.run.spec import Edit
from polluxsim.statistics.groups import settings_of
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload, read_workload, write_workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim import Result

WORKLOAD = polluxsim.workload("philly-like", num_jobs=14, hours=1)
FAILURES = {"_target_": f"{DrawnFailures.__module__}.{DrawnFailures.__name__}", "rate": 500.0}
SPOT = {"_target_": f"{SpotReclaims.__module__}.{SpotReclaims.__name__}", "rate": 20000.0}
NEW = Workload(
    (
        Job.rigid("new", 2400.0, 8, 1500.0, user="ada", cpus=4.0, time_limit=1e4),
        Job.rigid("newer", 2400.0, 2, 900.0, priority=2.0),
        Job("profiled", 5000.0, "cifar10", 2, 256, queue="vision"),
    )
)

EDITS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a dropped node": {"drop_nodes": [3]},
    "added nodes": {"cluster": polluxsim.cluster(num_nodes=10)},
    "fewer nodes": {"cluster": polluxsim.cluster(num_nodes=6)},
    "a node added and dropped": {"cluster": polluxsim.cluster(num_nodes=9), "drop_nodes": [8]},
    "a job left out": {"without": [0]},
    "jobs left out that come later": {"without": [-1, -2]},
    "added jobs": {"add": NEW},
    "another policy": {"policy": "srtf"},
    "a policy given as an object": {"policy": Srtf()},
    "other settings of the policy": {"policy": polluxsim.policy(None, queue_threshold=1e4)},
    "another seed": {"seed": 7},
    "several": {"policy": "las", "drop_nodes": [1], "without": [-1], "add": NEW, "seed": 3},
}
FIRST, SECOND, THIRD = 1800.0, 3600.0, 5400.0


CHANGES_NOTHING = ("nothing", "a node added and dropped", "another seed")


@pytest.fixture(scope="module")
def run() -> Result:
    cluster = polluxsim.cluster(num_nodes=8, failures=FAILURES)
    return polluxsim.simulate(WORKLOAD, policy="tiresias", cluster=cluster, progress=False)


def named(run: Result, edits: dict[str, Any], time: float) -> dict[str, Any]:
    """Return edits with names of jobs that end after a time in place of their numbers."""
    jobs = run.jobs.sort_values("submit_time")
    names = jobs.job[jobs.end_time > time].tolist()
    return edits | ({"without": [names[number] for number in edits["without"]]} if "without" in edits else {})


def folder_of(run: Result, folder: Path) -> dict[str, bytes]:
    """Save a run, and return the content of its tables, without wall-clock times."""
    run.save(folder)
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet") if path.name != "timing.parquet"}


@pytest.mark.parametrize("name", EDITS)
def test_a_fork_of_a_saved_fork_with_nothing_changed_is_that_fork(name: str, run: Result, tmp_path: Path) -> None:
    """The second fork is at the time of the first one, or later."""
    fork = run.at(FIRST).fork(**named(run, EDITS[name], FIRST))
    tables = folder_of(fork, tmp_path / "fork")
    saved = polluxsim.read(tmp_path / "fork")
    assert (fork.result.job_records == run.result.job_records) == (name in CHANGES_NOTHING)
    for time in (FIRST, SECOND):
        again = saved.at(time).fork()
        assert folder_of(again, tmp_path / f"{time}") == tables
        assert again.info["summary"] == fork.info["summary"]
        assert again.info["config"] == fork.info["config"]
        assert again.info["nodes"] == fork.info["nodes"]


SECOND_EDITS: list[dict[str, Any]] = [
    {"drop_nodes": [2]},
    {"cluster": polluxsim.cluster(num_nodes=12)},
    {"cluster": polluxsim.cluster(num_nodes=5)},
    {"policy": "las"},
    {"without": [-1]},
    {"add": Workload((Job.rigid("third", 6000.0, 1, 700.0),))},
]


@pytest.mark.parametrize("seed", range(6))
def test_forks_of_forks_of_forks_repeat_all_edits(seed: int, run: Result, tmp_path: Path) -> None:
    """Two forks, then nothing: the third is the second one, in memory and from its folder."""
    first = EDITS[str(np.random.default_rng(seed).choice(list(EDITS)[1:]))]
    one = run.at(FIRST).fork(**named(run, first, FIRST))
    two = one.at(SECOND).fork(**named(one, SECOND_EDITS[seed], SECOND), seed=5)
    tables = folder_of(two, tmp_path / "two")
    for name, parent in {"memory": two, "folder": polluxsim.read(tmp_path / "two")}.items():
        three = parent.at(THIRD).fork()
        assert folder_of(three, tmp_path / name) == tables
    assert three.info["descent"]["before"]["descent"]["before"]["descent"]["time"] == FIRST


def test_a_fork_does_not_replace_the_folder_of_its_run(run: Result, tmp_path: Path) -> None:
    """Both may have the same settings. The same fork replaces itself."""
    run.save(tmp_path / "run")
    fork = run.at(FIRST).fork(drop_nodes=[3])
    with pytest.raises(InvalidConfigError, match=r"a finished run of other settings is there \(descent"):
        fork.save(tmp_path / "run")
    fork.save(tmp_path / "fork")
    assert run.at(FIRST).fork(drop_nodes=[3]).save(tmp_path / "fork") == tmp_path / "fork"


def test_a_run_of_the_second_fork_alone_is_another_one(run: Result) -> None:
    """Forks that ignored the edits before them would pass the tests above if edits changed nothing."""
    one = run.at(FIRST).fork(drop_nodes=[0, 1, 2, 3])
    assert one.at(SECOND).fork(seed=1).result.job_records != run.at(SECOND).fork(seed=1).result.job_records
    assert not any(
        node < 4 for nodes in one.at(SECOND).fork().allocations.query("time >= 1800").nodes for node in nodes
    )


def test_the_commands_repeat_the_edits_of_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["workload=philly-like", "workload.num_jobs=14", "workload.hours=2", "cluster.num_nodes=8"]
    assert main(["run", "policy=fifo", *settings, "hydra.run.dir=r"]) == 0
    assert main(["whatif", "r", "--at", "10min", "--drop-node", "7"]) == 0
    assert main(["whatif", "r-at-10min/otherwise", "--at", "30min", "policy=srtf", "-o", "w"]) == 0
    assert main(["whatif", "w/otherwise", "--at", "40min", "--drop-node", "6", "-o", "v"]) == 0
    fork, as_it_was, third = (polluxsim.read(name) for name in ("r-at-10min/otherwise", "w/as-it-was", "v/as-it-was"))
    assert as_it_was.result == fork.result
    assert fork.metrics is not None
    cut_off = fork.jobs.job[fork.jobs.completion_time.isna()]
    assert (round(fork.metrics.avg_jct or 0), len(cut_off)) == (1293, 9)
    assert third.result == polluxsim.read("w/otherwise").result
    assert settings_of(polluxsim.read("v/otherwise"))["cluster.lost_nodes"] == "7 6"
    capsys.readouterr()
    assert main(["when", "r-at-10min/otherwise", "--at", "100min", "--forks", "2", "--csv"]) == 0
    waits = [line for line in capsys.readouterr().out.splitlines() if ",True," in line]
    assert waits[0].startswith(f"{cut_off.iloc[0]},True,")
    assert waits[0].endswith(",inf,inf")
    assert main(["whatif", "w/otherwise", "--at", "20min", "policy=las"]) == 2
    assert capsys.readouterr().err == (
        "polluxsim: otherwise was forked at 0:30:00, after 0:20:00; name a later time, or the run before the fork\n"
    )


@pytest.mark.parametrize("edits", ["a dropped node", "fewer nodes", "a job left out", "added jobs"])
def test_forecasts_of_a_fork_are_those_of_its_own_future(edits: str, tmp_path: Path) -> None:
    """Under FIFO, jobs with profiles start and end in each future as in the run, because nothing is unknown."""
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=polluxsim.cluster(num_nodes=8), progress=False)
    change = EDITS[edits] if edits != "added jobs" else {"add": Workload((Job("a", 1860.0, "bert", 4, 24),))}
    fork = run.at(FIRST).fork(**named(run, change, FIRST))
    fork.save(tmp_path / "fork")
    for time in (FIRST, SECOND):
        found = polluxsim.read(tmp_path / "fork").at(time).when(forks=3)
        ends = fork.jobs.set_index("job").completion_time.fillna(inf)[found.job]
        assert len(found) >= 2
        np.testing.assert_allclose(found.completion_p50, ends)
        assert not set(found.job) & set(fork.info["descent"]["without"])
    scores = calibration(polluxsim.read(tmp_path / "fork"), 2, forks=2)  # at times after the fork
    assert scores or edits in ("a dropped node", "fewer nodes")  # with which no job completes


def test_a_forecast_does_not_know_the_jobs_that_a_fork_added_for_later() -> None:
    """Under SRTF, where a later job takes the GPUs of longer ones."""
    run = polluxsim.simulate(WORKLOAD, policy="srtf", cluster=(8, 4), progress=False)
    later = Workload(tuple(Job.rigid(f"later{n}", SECOND + 300.0 * n, 32, 200.0) for n in range(1, 9)))
    as_it_was, fork = (run.at(FIRST).fork(**change) for change in ({}, {"add": later}))
    assert as_it_was.jobs.jct.mean() < fork.jobs.jct[~fork.jobs.job.str.startswith("later")].mean()
    for time in (FIRST, SECOND):
        known, unknown = (each.at(time).when(forks=1, arrivals="none") for each in (as_it_was, fork))
        assert len(known) > 2
        pd.testing.assert_frame_equal(known, unknown)


def test_a_fork_keeps_the_failures_of_nodes_and_added_nodes_have_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["policy=fifo", "workload=philly-like", "workload.num_jobs=14", "workload.hours=2"]
    cluster = ["cluster.num_nodes=8", "cluster/spot=reclaimed", "cluster.spot.rate=2000"]
    assert main(["run", *settings, *cluster, "engine/checkpoints=interval", "hydra.run.dir=SP"]) == 0
    assert main(["whatif", "SP", "--at", "20min", "cluster.num_nodes=9"]) == 0
    assert polluxsim.read("SP-at-20min/otherwise").info["nodes"] == [[9, 4]]


@pytest.mark.parametrize("given", [polluxsim.cluster(num_nodes=12), (12, 4)], ids=["choice", "pair"])
def test_added_nodes_fail_as_the_others_and_leave_their_failures(given: Any) -> None:
    cluster = polluxsim.cluster(num_nodes=8, failures=FAILURES | {"rate": 9000.0}, spot=SPOT)
    settings = polluxsim.settings(horizon=30000.0)
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=cluster, settings=settings, progress=False)
    moment = run.at(FIRST)
    fork = moment.fork(cluster=given)
    down = [record for record in fork.result.outage_records if record.time >= moment.time]
    assert {record.kind for record in down if record.node >= 8} == {"failure", "reclaimed"}
    end = min(run.result.end_time, fork.result.end_time)
    of_old = [[o for o in each.result.outage_records if o.node < 8 and o.until < end] for each in (run, fork)]
    assert of_old[0] == of_old[1]
    assert fork.info["config"]["cluster"]["spot"] == SPOT


def test_a_larger_cluster_keeps_every_setting_but_its_nodes() -> None:
    """Repairs and prices too, which no shipped cluster of a fixed size has."""
    cluster = Cluster((4,) * 4, node_price=2.5, failures=DrawnFailures(1000.0), repairs=Repairs(crews=1))
    policy, grown = Srtf(), replace(cluster, gpus_per_node=(4,) * 6)
    run = Simulation(Scenario.under(policy, NEW, ProfileFolder().load(), cluster, EngineSettings()))
    config = {"cluster": {}, "policy": {}}
    branch = Branch(config, run, policy)
    branch.change(Edit(FIRST), {"cluster": grown})
    assert branch.scenario.cluster == grown
    with pytest.raises(
        InvalidConfigError, match=r"cluster.node_price is 0.0, but a fork keeps the value of the run, 2.5"
    ):
        branch.change(Edit(FIRST, {"cluster": {"node_price": 0}}), {"cluster": Cluster((4,) * 8)})


def test_nodes_that_went_down_stay_down() -> None:
    """An earlier fork removed them, so that a later one can neither drop nor add them."""
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=polluxsim.cluster(num_nodes=8), progress=False)
    fork = run.at(FIRST).fork(cluster=(6, 4), drop_nodes=[2])
    moment = fork.at(SECOND)
    with pytest.raises(PolluxSimError, match="node 2 went down for good in an earlier fork"):
        moment.fork(drop_nodes=[2])
    with pytest.raises(PolluxSimError, match=r"cluster has 8 nodes, but node 6, 7 went down .* at least 9 nodes"):
        moment.fork(cluster=(8, 4))
    grown = moment.fork(cluster=(10, 4))
    nodes = {node for nodes in grown.allocations.query("time >= @SECOND").nodes for node in nodes}
    assert nodes <= {0, 1, 3, 4, 5, 8, 9}
    assert grown.info["nodes"] == [[10, 4]]
    assert moment.fork(cluster=(5, 4)).info["descent"]["lost_nodes"] == [5]
    beyond = run.at(FIRST).fork(cluster=(9, 4), drop_nodes=[8]).at(SECOND).fork(cluster=(10, 4))
    assert {record.node for record in beyond.result.outage_records} == {8}


def test_a_fork_cannot_change_how_nodes_fail(run: Result) -> None:
    with pytest.raises(PolluxSimError, match=r"cluster\.failures cannot be changed in the middle of a run"):
        run.at(FIRST).fork(cluster=polluxsim.cluster(None, failures=FAILURES | {"rate": 1.0}))
    with pytest.raises(PolluxSimError, match=r"cluster\.failures cannot be changed in the middle of a run"):
        run.at(FIRST).fork(cluster=Cluster.uniform(9, 4))


def test_a_fork_of_an_older_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=(8, 4), progress=False)
    fork = run.at(FIRST).fork(drop_nodes=[7])
    new = ("before", "added_jobs", "seed", "new_policy")
    descent = {name: part for name, part in fork.info["descent"].items() if name not in new}
    replace(fork, info={**fork.info, "descent": descent}).save("old")
    line = (
        "polluxsim: old/run.json: the settings before the fork are missing, because an older polluxsim wrote the file; "
        "make the fork again from its run 'fifo'\n"
    )
    for command in (["whatif", "old", "--at", "1h", "policy=srtf"], ["when", "old", "--at", "1h"]):
        assert main(command) == 2
        assert capsys.readouterr().err == line
    with pytest.raises(InvalidInputError, match="the settings before the fork are missing"):
        polluxsim.read("old").at(SECOND)
    assert main(["table", "old"]) == 0


TAMPERED: dict[str, tuple[str, Any]] = {
    "time": ("descent.time", "noon"),
    "a negative time": ("descent.time", -1),
    "nodes": ("descent.lost_nodes", 7),
    "nodes by name": ("descent.lost_nodes", ["x"]),
    "jobs": ("descent.without", [1]),
    "seed": ("descent.seed", -1),
    "policy": ("descent.new_policy", "yes"),
    "names of jobs": ("descent.added", ["stranger"]),
    "a job": ("descent.added_jobs.new", 1),
    "a field of a job": ("descent.added_jobs.new.colour", "red"),
    "a value of a job": ("descent.added_jobs.new.num_replicas", 0),
    "stages of a job": ("descent.added_jobs.new.stages", [1.0]),
    "plan of a job": ("descent.added_jobs.new.plan", {"sizes": [1]}),
    "order of times": ("descent.before.descent", "later"),
    "the run before": ("descent.before", [1]),
    "settings before": ("descent.before.config", None),
    "a part of the settings before": ("descent.before.config.policy", "fifo"),
    "no policy before": ("descent.before.config", {"seed": 0}),
    "the seed": ("config.seed", "x"),
    "a dangerous class before": ("descent.before.config.policy._target_", "os.remove"),
    "an own class before": ("descent.before.config.policy._target_", "canary.Fifo"),
    "an object before": ("descent.before.config.policy", {"object": "x.Y"}),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = polluxsim.simulate(WORKLOAD, policy="fifo", cluster=(8, 4), progress=False)
    return run.at(FIRST).fork(drop_nodes=[7], add=NEW, policy="srtf").save(tmp_path_factory.mktemp("saved") / "fork")


@pytest.mark.parametrize("name", TAMPERED)
def test_a_damaged_or_dangerous_descent_is_one_line(
    name: str, saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing is imported before the refusal."""
    monkeypatch.chdir(tmp_path)
    info = json.loads((saved / "run.json").read_text())
    place, value = TAMPERED[name]
    *parts, last = place.split(".")
    part = info
    for key in parts:
        part = part[key]
    part[last] = deepcopy(info["descent"]) | {"time": 3000.0} if value == "later" else value
    for path in saved.glob("*.parquet"):
        Path("bad").mkdir(exist_ok=True)
        (Path("bad") / path.name).symlink_to(path)
    (Path("bad") / "run.json").write_text(json.dumps(info))
    used: list[object] = []
    for function in ("get_object", "instantiate"):
        monkeypatch.setattr(building, function, lambda *arguments, **_: used.append(arguments))
    assert main(["when", "bad", "--at", "1h", "--forks", "1"]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(("polluxsim: bad/run.json: ", "polluxsim: bad cannot be simulated again: its policy was"))
    assert errors.count("\n") == 1
    assert used == []


POLICY = """
class Shuffled:
    def allocate(self, view, rng):
        free, allocation = list(view.gpus_per_node), {}
        for job in (view.jobs[number] for number in rng.permutation(len(view.jobs))):
            nodes = [node for node, gpus in enumerate(free) if gpus >= job.num_replicas]
            for node in nodes[:1]:
                free[node] -= job.num_replicas
                allocation[job.job_id] = ((node, job.num_replicas),)
        return allocation
"""


@pytest.fixture
def own_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a policy `shuffled`, of a class outside polluxsim, which draws random numbers."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "classes_of_a_fork.py").write_text(POLICY)
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "shuffled.yaml").write_text("_target_: classes_of_a_fork.Shuffled\n")
    with polluxsim.config_dirs(tmp_path):
        yield


def small_jobs() -> Workload:
    return Workload(tuple(Job.rigid(f"job{n}", 300.0 * n, 1 + n % 4, 2400.0) for n in range(12)))


def test_a_fork_may_load_the_classes_that_its_user_named(own_policy: None, tmp_path: Path) -> None:
    """In the process that named them; its folder needs `allow_classes`."""
    write_workload(small_jobs(), tmp_path / "jobs.csv")
    run = polluxsim.simulate(tmp_path / "jobs.csv", policy="fifo", cluster=(2, 4), progress=False)
    again = run.at(FIRST).fork(policy="shuffled").at(SECOND).fork(policy="srtf")
    again.save(tmp_path / "fork")
    with pytest.raises(InvalidInputError, match="add --allow-classes classes_of_a_fork"):
        polluxsim.read(tmp_path / "fork").at(THIRD)
    allowed = polluxsim.read(tmp_path / "fork", allow_classes=["classes_of_a_fork"])
    assert allowed.at(THIRD).fork().result == again.result


def test_a_fork_of_a_fork_continues_the_random_draws_of_its_seed(own_policy: None, tmp_path: Path) -> None:
    write_workload(small_jobs(), tmp_path / "jobs.csv")
    run = polluxsim.simulate(tmp_path / "jobs.csv", policy="shuffled", cluster=(2, 4), progress=False)
    fork = run.at(FIRST).fork(seed=7)
    assert fork.result.job_records != run.result.job_records
    again = fork.at(SECOND).fork()
    assert again.result == fork.result
    assert again.info["seed"] == 7


def jobs_with_every_field() -> list[Job]:
    plan = BatchPlan((8, 16), 1000, 500, {("v100", 8): 2.0, ("v100", 16): 3.0}, "v100", (8,), 5.0, inf)
    return [
        Job.rigid("elastic", 1.0, 2, 60.0, 3, speeds=((1, 0.5), (2, 1.0)), min_replicas=1, max_replicas=4),
        Job.rigid("types", 1.5, 2, 60.0, type_speeds=(("t4", 1.0), ("a10", 0.0)), gpu_types=("t4", "a10")),
        Job.rigid("stages", 2.0, 1, 60.0, stages=Stages(1.0, 0.5, 0.25, 0.0), cpus=2.0, memory=8.0),
        Job.rigid("host", 2.0, 1, 60.0, cpu_speeds=((1.0, 0.5), (2.0, 1.0)), memory_speeds=((4.0, 1.0),)),
        Job.rigid("plan", 3.0, 1, 60.0, plan=plan, cancel_time=100.0, deadline=50.0, priority=-1.0),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_job_is_the_one_that_run_json_says(seed: int, tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.csv", random.Random(seed), share_profiled=0.5)
    for job in (*read_workload(tmp_path / "jobs.csv").jobs, *jobs_with_every_field()):
        said = json.loads(json.dumps(fields_of(job)))
        assert job_from(job.job_id, said) == replace(job, line=0)
        assert repr(job_from(job.job_id, said)) == repr(replace(job, line=0))
