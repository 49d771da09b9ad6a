"""A run that is replayed from what it left is that run again; a record may come as CSV."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidAllocationError, InvalidInputError
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Srtf
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.replay import Timeline, _side_by_side
from polluxsim.records.storage import write_run

CLUSTER = Cluster((4, 2, 1))
PROFILES = {"toy": ToyProfile(epochs=(300.0, 700.0))}


@pytest.mark.parametrize("policy", [Tiresias, Srtf, Pollux])
@given(seed=st.integers(0, 5), starts=st.lists(st.integers(0, 900), min_size=1, max_size=6))
@settings(max_examples=8)
def test_a_runs_own_folder_gives_the_run_again(
    tmp_path_factory: pytest.TempPathFactory, policy: type, seed: int, starts: list[int]
) -> None:
    jobs = toy_workload(*(toy_job(f"{i}", float(start), 1 + i % 3) for i, start in enumerate(sorted(starts))))
    first = simulate(jobs, PROFILES, CLUSTER, policy(), seed=seed)
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, first, {"config": {}})
    again = simulate(jobs, PROFILES, CLUSTER, Timeline(str(folder)), seed=seed)
    assert again.job_records == first.job_records
    assert again.allocation_records == first.allocation_records


def test_a_run_of_the_command_line_is_replayed_by_it(tmp_path: Path) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    common = ["run", "workload=philly-like", "workload.num_jobs=5"]
    assert main([*common, "policy=tiresias", f"hydra.run.dir={run}"]) == 0
    assert main([*common, "policy=replay", f"policy.path={run}", f"hydra.run.dir={again}"]) == 0
    assert (again / "jobs.parquet").read_bytes() == (run / "jobs.parquet").read_bytes()
    assert json.loads((again / "run.json").read_text())["config"]["policy"]["path"] == str(run)


def timeline(path: Path, *lines: str, header: str = "time,job,allocation") -> str:
    path.write_text("\n".join([header, *lines]) + "\n")
    return str(path)


def test_a_job_that_takes_longer_than_recorded_keeps_what_is_free(tmp_path: Path) -> None:
    """`a` runs on beside what others are recorded with, makes room for `b`, and goes on after it."""
    lines = ("60,a,0 0", "120,a,", "60,c,1", "120,c,", "240,b,0 0 0 0", "2000,b,")
    jobs = toy_workload(*(toy_job(name) for name in "abc"))
    result = simulate(jobs, PROFILES, CLUSTER, Timeline(timeline(tmp_path / "t.csv", *lines)))
    changes = [(change.time, change.gpus) for change in result.allocation_records if change.job == "a"]
    assert changes[:2] == [(60.0, (2,)), (240.0, ())]
    assert changes[2][1] == (2,)
    assert all(job.completion_time is not None for job in result.job_records)


def test_whether_batch_sizes_adapt_is_as_recorded(tmp_path: Path) -> None:
    header = "time,job,allocation,batch_size"
    fixed = timeline(tmp_path / "f.csv", "60,a,,0", "120,a,0,8", "180,a,0 0,8", header=header)
    free = timeline(tmp_path / "g.csv", "60,a,,0", "120,a,0,8", "180,a,0 0,16", header=header)
    assert [Timeline(path).traits.adaptive for path in (fixed, free)] == [False, True]
    assert Timeline(fixed, adaptive=True).traits.adaptive


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("60,a,0 x", "line 2: column 'allocation' is '0 x', must be a node number for each GPU"),
        ("soon,a,0", "line 2: column 'time' is 'soon'"),
        ("60,,0", "line 2: column 'job'"),
    ],
)
def test_a_bad_record_is_named(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Timeline(timeline(tmp_path / "t.csv", line))


def test_a_job_that_is_not_recorded_is_named(tmp_path: Path) -> None:
    path = timeline(tmp_path / "t.csv", "60,a,0")
    with pytest.raises(InvalidInputError, match=r"t\.csv: nothing is recorded of job 'b'"):
        simulate(toy_workload(toy_job("a"), toy_job("b")), PROFILES, CLUSTER, Timeline(path))
    with pytest.raises(InvalidInputError, match="nowhere: no such file"):
        Timeline(str(tmp_path / "nowhere"))


def test_the_recorded_run_is_followed_from_the_command_line(osdi21: Path, tmp_path: Path) -> None:
    record = tmp_path / "recorded.csv"
    record.write_bytes(gzip.decompress((osdi21 / "replay" / "pollux-workload-6.csv.gz").read_bytes()))
    with record.open() as file:
        ends = {row["job"]: float(row["completion_time"]) for row in csv.DictReader(file) if row["completion_time"]}
    options = ["engine=osdi21", f"profiles.path={osdi21}", f"workload.path={osdi21}/workloads/workload-6.csv"]
    assert main(["run", *options, "policy=replay", f"policy.path={record}", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    jobs = pd.read_parquet(tmp_path / "run" / "jobs.parquet").set_index("job")
    expected = pd.Series(ends) - jobs["submit_time"]
    assert ((jobs["jct"] / expected - 1).abs() < 0.01).all()
    assert len(expected.dropna()) == 160


def schedule(path: Path, *rounds: object, round_s: object = 60) -> str:
    path.write_text(json.dumps({"schedule": rounds, "round_s": round_s}))
    return str(path)


def test_rounds_of_another_simulator_are_followed(tmp_path: Path) -> None:
    """`a` is late and keeps its worker, whereupon `b` gets the other, and then its own again."""
    path = schedule(tmp_path / "R.JSON", {}, {"a": [0]}, *[{"b": [0]}] * 4, {"b": [1]})
    jobs = toy_workload(*(toy_job(name) for name in "ab"))
    result = simulate(jobs, {"toy": ToyProfile(epochs=(100.0,))}, Cluster((1, 1)), Timeline(path))
    changes = [(change.time, change.job, change.nodes) for change in result.allocation_records]
    assert changes == [(60.0, "a", (0,)), (120.0, "b", (1,)), (190.0, "a", ()), (240.0, "b", (0,)), (280.0, "b", ())]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "r.json: not JSON"),
        ("[" * 100_000, "r.json: not JSON"),
        ("[]", "r.json: must have a list schedule, and round_s"),
        ('{"schedule": [], "round_s": 0}', "r.json: must have a list schedule, and round_s"),
        ('{"schedule": [3], "round_s": 1}', "r.json, round 0: 3, must be jobs with their workers"),
        ('{"schedule": [{}, {"a": [-1]}], "round_s": 1}', "round 1: job 'a' has .-1., must be worker numbers"),
        ('{"schedule": [{"a": [1, 1]}], "round_s": 1}', "round 0: job 'a' has a worker twice"),
    ],
)
def test_a_bad_schedule_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(InvalidInputError, match=words) as caught:
        Timeline(str(tmp_path / "r.json"))
    assert "\n" not in str(caught.value)


def test_a_schedule_of_a_larger_cluster_is_refused(tmp_path: Path) -> None:
    path = schedule(tmp_path / "r.json", {}, {"a": [7]})
    with pytest.raises(InvalidAllocationError, match="gave job 'a' node 7, must be 0 to 2"):
        simulate(toy_workload(toy_job("a")), PROFILES, CLUSTER, Timeline(path))


def test_the_first_keep_theirs_and_others_get_as_many_elsewhere_or_none() -> None:
    wanted = {"a": ((0, 2),), "b": ((0, 1), (1, 1)), "c": ((0, 2),), "d": ((1, 3),), "e": ((2, 1),)}
    found = _side_by_side((2, 3, 3), wanted)
    assert found["a"] == ((0, 2),)
    assert found["e"] == ((2, 1),)
    assert found["d"] == ((1, 3),)
    assert {name: sum(gpus for _, gpus in placement) for name, placement in found.items()} == {
        "a": 2,
        "e": 1,
        "d": 3,
        "b": 2,
    }
    assert _side_by_side((2,), wanted) == wanted
