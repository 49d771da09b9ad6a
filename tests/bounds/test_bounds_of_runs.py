"""Bounds of finished runs: in Python, by the command, and in the views of runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import bounds as benchmark
import numpy as np
import pytest

import polluxsim
from polluxsim.checks.checking import checked_world
from polluxsim.checks.findings import Fault
from polluxsim.checks.worlds import World
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.records.bounds import BOUND_FILE, MetricBound, RunBound
from polluxsim.records.results import OutageRecord
from polluxsim.records.storage import read_run
from polluxsim.run import limits_of_jobs
from polluxsim.run.bounds import BoundRequest, bounds_of_runs
from polluxsim.statistics.bounds.problem import Capacity
from polluxsim.statistics.bounds.speeds import SpeedBounds
from polluxsim.workloads.workload import Job

RIGID = """name,time,num_replicas,duration{more}
a,30,4,600{a}
b,30,3,900{b}
c,100,2,300{c}
"""
COMMON = ("cluster.num_nodes=1", "cluster.gpus_per_node=4", "engine.restart_delay=0")


def made(folder: Path, *settings: str, more: str = "", values: Sequence[str] = ("", "", ""), name: str = "run") -> Path:
    """Return the folder of a run of three jobs on four GPUs."""
    a, b, c = values
    (folder / "jobs.csv").write_text(RIGID.format(more=more, a=a, b=b, c=c))
    workload = f"workload.path={folder / 'jobs.csv'}"
    assert main(["run", workload, *COMMON, *settings, "-o", str(folder / name)]) == 0
    return folder / name


def printed(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == status
    return capsys.readouterr().out


def test_the_command_prints_the_gap_to_a_bound_that_can_be_worked_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, "policy=fifo")
    (answer,) = json.loads(printed(capsys, "bound", run, "--json", "--at-rounds", "--time-limit", "2s"))
    jct = answer["metrics"]["avg_jct"]
    assert jct["parts"]["alone"] == pytest.approx(600)
    # FIFO runs one job after the other from 60 s on.
    assert jct["value"] == pytest.approx((60 + 600 - 30 + 60 + 1500 - 30 + 60 + 1800 - 100) / 3, abs=60)
    assert jct["parts"]["alone"] < jct["bound"] <= jct["value"]
    assert jct["gap"] == pytest.approx(jct["value"] / jct["bound"] - 1)
    assert answer["metrics"]["p50_jct"]["parts"] == {"alone": 600}
    assert answer["metrics"]["makespan"]["part"] == "work"
    # 2,400 + 2,700 + 600 GPU s on 4 GPUs
    assert answer["metrics"]["makespan"]["bound"] == pytest.approx(5700 / 4)
    # The first two jobs start 30 s after their submission, and the third one 20 s.
    assert answer["at_rounds"]["avg_jct"]["parts"]["alone"] == pytest.approx(600 + 80 / 3)
    assert answer["sentences"] == []


def test_the_table_of_a_sweep_has_one_bound_for_each_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep"
    words = ["workload=philly-like-rigid", "workload.hours=2", "engine.restart_delay=0"]
    assert main(["run", "-m", "policy=fifo,srsf", "seed=1,2", *words, "-o", str(sweep)]) == 0
    table = sweep / "sweep.parquet"
    answers = json.loads(printed(capsys, "bound", table, "--json", "--metric", "avg_jct", "--time-limit", "1s"))
    assert len(answers) == 4
    seeds = [read_run(sweep / answer["run"]).info["seed"] for answer in answers]
    bounds = [answer["metrics"]["avg_jct"]["bound"] for answer in answers]
    assert len(set(zip(seeds, bounds, strict=True))) == len(set(bounds)) == 2
    assert all((sweep / answer["run"] / BOUND_FILE).is_file() for answer in answers)
    # A run that is not in the table, and a table that was moved.
    made(tmp_path, "policy=fifo", name="sweep/further")
    assert len(json.loads(printed(capsys, "bound", table, "--json", "--time-limit", "1s"))) == 4
    table.rename(tmp_path / "moved.parquet")
    assert main(["bound", str(tmp_path / "moved.parquet")]) == 2
    assert "which the table names; leave the table in the folder of its sweep" in capsys.readouterr().err


def test_csv_has_a_row_for_each_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, "policy=fifo")
    text = printed(capsys, "bound", run, "--csv", "--metric", "p50_jct", "--at-rounds")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["metric"], row["starts_at"], row["part"]) for row in rows] == [
        ("p50_jct", "any time", "alone"), ("p50_jct", "rounds", "alone"),
    ]  # fmt: skip
    assert float(rows[0]["bound"]) == 600


def test_stored_bounds_appear_in_table_compare_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo = made(tmp_path, "policy=fifo", name="fifo")
    srsf = made(tmp_path, "policy=srsf", name="srsf")
    assert "best possible" not in printed(capsys, "table", fifo, srsf)
    text = printed(capsys, "bound", fifo, srsf, "--metric", "avg_jct", "--time-limit", "1s")
    assert "best possible" in text
    # Both runs are of one world, and share their bound.
    stored = [json.loads((run / BOUND_FILE).read_text())["metrics"] for run in (fifo, srsf)]
    assert stored[0] == stored[1]
    for words in (("table", fifo, srsf), ("compare", fifo, srsf), ("table", fifo, srsf, "--metric", "avg_jct")):
        assert "best possible" in printed(capsys, *words)
    assert "best possible" not in printed(capsys, "table", fifo, srsf, "--metric", "makespan")
    printed(capsys, "report", fifo, "-o", tmp_path / "report.html")
    assert "best possible ≥" in (tmp_path / "report.html").read_text()


def test_the_bound_of_an_earlier_run_in_a_folder_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, "policy=fifo", name="run")
    printed(capsys, "bound", run, "--metric", "avg_jct", "--time-limit", "1s")
    stored = json.loads((run / BOUND_FILE).read_text())
    (run / BOUND_FILE).write_text(json.dumps(stored | {"jobs": "another digest"}))
    assert "best possible" not in printed(capsys, "table", run)


@pytest.mark.parametrize("damage", ["{", "[]", '{"jobs": 1}'])
def test_a_damaged_bound_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    run = made(tmp_path, "policy=fifo", name="run")
    (run / BOUND_FILE).write_text(damage)
    if damage.startswith('{"'):
        assert "best possible" not in printed(capsys, "table", run)
        return
    capsys.readouterr()
    assert main(["table", str(run)]) == 2
    assert f"{BOUND_FILE}: damaged" in capsys.readouterr().err


def test_a_second_command_keeps_the_bounds_of_other_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, "policy=fifo")
    printed(capsys, "bound", run, "--metric", "makespan")
    printed(capsys, "bound", run, "--metric", "p50_jct")
    assert set(json.loads((run / BOUND_FILE).read_text())["metrics"]) == {"makespan", "p50_jct"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--metric", "avg_jt"), "metric 'avg_jt' has no bound, must be one of avg_jct"),
        (("--time-limit", "0s"), "must be a duration above 0"),
        (("--time-limit", "30"), "must be a duration with its unit"),
    ],
)
def test_wrong_input_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, str], message: str
) -> None:
    run = made(tmp_path, "policy=fifo")
    capsys.readouterr()
    assert main(["bound", str(run), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_run_with_a_horizon_has_no_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, "policy=fifo", "engine.horizon=900")
    text = printed(capsys, "bound", run)
    assert "There is no bound, because 2 jobs were cut off, and the JCT of such a job is its age." in text


def test_jobs_that_wait_for_others_have_the_bounds_of_jobs_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path, "policy=fifo", more=",after", values=(",", ",a", ",b"))
    (answer,) = json.loads(printed(capsys, "bound", run, "--json"))
    assert answer["metrics"]["avg_jct"]["parts"] == {"alone": pytest.approx(600)}
    # One job after the other, from the first submission on.
    assert answer["metrics"]["makespan"]["bound"] == pytest.approx(1800)
    assert "Jobs wait for other jobs" in answer["sentences"][0]


SHARED = ("policy=muri-s", "workload=shared-gpus", "engine/sharing=interleaved", "cluster.num_nodes=2")


def test_shared_gpus_leave_only_jobs_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", *SHARED, "engine.restart_delay=0", "-o", str(tmp_path / "run")]) == 0
    (answer,) = json.loads(printed(capsys, "bound", tmp_path / "run", "--json"))
    assert list(answer["metrics"]["avg_jct"]["parts"]) == ["alone"]
    assert "Jobs may share GPUs" in answer["sentences"][0]
    # Planted error: shared GPUs count once.
    monkeypatch.setattr(limits_of_jobs, "_reasons_for_alone_only", lambda scenario, jobs: iter(()))
    (bound,) = bounds_of_runs([read_run(tmp_path / "run")], BoundRequest(time_limit=0.5))
    assert "makespan" in bound.broken


def test_a_run_that_is_better_than_its_bound_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(tmp_path, "policy=fifo")
    monkeypatch.setattr(
        limits_of_jobs, "_speeds_of_known_duration", lambda *facts: SpeedBounds((1,), np.array([[0.1]]))
    )
    capsys.readouterr()
    assert main(["bound", str(run), "--metric", "avg_jct"]) == 1
    assert "run is better than its bound (avg_jct), which no schedule can be" in capsys.readouterr().err


def test_the_bound_of_a_result_in_memory_and_of_a_fork() -> None:
    run = polluxsim.simulate(policy="fifo", workload="philly-like-rigid", progress=False)
    bound = run.bound(["avg_jct", "makespan"], time_limit=1.0, at_rounds=True)
    assert set(bound.metrics) == set(bound.at_rounds) == {"avg_jct", "makespan"}
    assert bound.broken == ()
    assert bound.gap("avg_jct") == pytest.approx(run.metrics.avg_jct / bound.metrics["avg_jct"].value - 1)
    fork = run.at("2h").fork(policy="srsf", drop_nodes=[3], cluster=polluxsim.cluster(num_nodes=20))
    of_fork = fork.bound(["avg_jct"], time_limit=1.0)
    assert of_fork.broken == ()
    assert of_fork.metrics["avg_jct"].value <= fork.metrics.avg_jct
    with pytest.raises(InvalidConfigError, match="has no bound"):
        run.bound(["restarts"])
    with pytest.raises(InvalidConfigError, match="time_limit"):
        run.bound(time_limit=0)


def test_a_run_of_jobs_given_in_python_cannot_be_bounded() -> None:
    jobs = polluxsim.Workload((Job.rigid("a", 0.0, 1, 60.0),))
    run = polluxsim.simulate(policy="fifo", workload=jobs, progress=False)
    with pytest.raises(InvalidInputError, match="its workload was an object in Python"):
        run.bound()


def test_a_policy_of_the_user_is_not_loaded(tmp_path: Path) -> None:
    run = read_run(made(tmp_path, "policy=fifo"))
    info = dict(run.info)
    info["config"] = {**info["config"], "policy": {"_target_": "no_such_module.Policy"}}
    (bound,) = bounds_of_runs([polluxsim.Result("run", info, run.result)], BoundRequest(["p50_jct"]))
    assert bound.metrics["p50_jct"].value == 600


def test_an_upper_bound_has_its_gap_the_other_way_round() -> None:
    bound = RunBound(
        {"deadlines_met": MetricBound({"alone": 8.0, "prices": 5.0}, is_upper=True)}, values={"deadlines_met": 4.0}
    )
    assert bound.gap("deadlines_met") == pytest.approx(0.2)
    assert bound.gap("avg_jct") is None
    assert bound.broken == ()
    assert RunBound(bound.metrics, values={"deadlines_met": 6.0}).broken == ("deadlines_met",)


def test_capacity_after_the_end_of_a_run_is_whole() -> None:
    cluster = polluxsim.Cluster.uniform(2, 4)
    outages = (OutageRecord(10.0, np.inf, 0, 4, "failure"), OutageRecord(20.0, 30.0, 1, 4, "failure"))
    capacity = limits_of_jobs.capacity_of(cluster, outages, 100.0)
    assert capacity.times.tolist() == [-np.inf, 10, 20, 30, 100]
    assert capacity.gpus.tolist() == [[8, 4, 0, 4, 8]]
    elastic = polluxsim.Cluster.elastic(2, 1, 4, 0.0, 0.0)
    assert limits_of_jobs.capacity_of(elastic, outages, 100.0).gpus.tolist() == [[8]]


@pytest.mark.parametrize("number", range(0, 60, 4))
def test_no_run_of_a_random_world_is_below_its_bound(number: int) -> None:
    policy = benchmark.SHIPPED[number % len(benchmark.SHIPPED)]
    assert not benchmark.below_the_bound(policy, number, 0.05)


class TestPlantedErrors:
    """Errors in what a job or a cluster can do at best, each of which the law finds."""

    def test_a_job_that_can_grow_counted_on_its_requested_gpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = limits_of_jobs._speeds_of_known_duration

        def as_requested(job: Job, profile: object, on_pool: int, most: int) -> SpeedBounds | None:
            if job.speeds:
                return SpeedBounds((job.num_replicas,), np.array([[1.0]]))
            return right(job, profile, on_pool, most)  # type: ignore[arg-type]

        assert benchmark.below_the_bound("afs", 36, 0.05) == []
        monkeypatch.setattr(limits_of_jobs, "_speeds_of_known_duration", as_requested)
        (message, *_) = benchmark.below_the_bound("afs", 36, 0.05) or [""]
        assert "avg_jct is 770.9" in message

    def test_repairs_that_come_too_late(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = limits_of_jobs.capacity_of

        def late(cluster: object, outages: Sequence[OutageRecord], until: float) -> Capacity:
            later = [outage._replace(until=outage.until + 3000) for outage in outages]
            return right(cluster, later, until + 3000)  # type: ignore[arg-type]

        assert benchmark.below_the_bound("fifo", 29, 0.05) == []
        monkeypatch.setattr(limits_of_jobs, "capacity_of", late)
        (message, *_) = benchmark.below_the_bound("fifo", 29, 0.05) or [""]
        assert "no schedule has less than" in message

    def test_the_check_of_a_policy_has_the_law(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World((2,), (Job.rigid("a", 0.0, 2, 120.0), Job.rigid("b", 0.0, 1, 60.0)))
        assert checked_world("fifo", world, faults=[Fault.BOUND]) == []
        monkeypatch.setattr(
            limits_of_jobs, "_speeds_of_known_duration", lambda *facts: SpeedBounds((2,), np.array([[0.5]]))
        )
        (first, *_) = checked_world("fifo", world, faults=[Fault.BOUND])
        assert first.fault is Fault.BOUND
        assert first.world == world


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "least"), [(1, 9195), (2, 4643), (6, 2789)])
def test_rigid_workloads_have_sharp_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int, least: float
) -> None:
    settings = ("policy=srsf", "workload=philly-like-rigid", "engine.restart_delay=0", f"seed={seed}")
    assert main(["run", *settings, "-o", str(tmp_path / "run")]) == 0
    (answer,) = json.loads(printed(capsys, "bound", tmp_path / "run", "--json", "--metric", "avg_jct"))
    jct = answer["metrics"]["avg_jct"]
    assert least <= jct["bound"] <= jct["value"]
