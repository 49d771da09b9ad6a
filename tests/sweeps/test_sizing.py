"""The least cluster that meets a target, and the highest load: against all levels tried one by one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.cli.commands import NO
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.trace_table import TraceInfo, write_trace
from polluxsim.metrics.target import read_target
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.records.results import Result, Status
from polluxsim.statistics.estimates import Estimate
from polluxsim.studies.size_answers import SizeAnswer
from polluxsim.studies.sizing import NEIGHBOURS, hardest
from polluxsim.workloads.trace import TraceReplay

if TYPE_CHECKING:
    from collections.abc import Callable

LOG_RULES = EngineSettings(restart_delay=30.0, round_interval=10.0, free_starts=True, placement="consolidated")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 60 jobs with up to 8 GPUs."""
    rng = np.random.default_rng(4)
    submitted = np.cumsum(rng.exponential(120.0, 60)).round().tolist()
    columns = {
        "job": [f"j{number}" for number in range(60)],
        "submit_time": submitted,
        "duration": rng.lognormal(6.5, 1.0, 60).round().tolist(),
        "num_gpus": rng.choice([1.0, 1.0, 2.0, 4.0, 8.0], 60).tolist(),
    }
    path = tmp_path_factory.mktemp("log") / "jobs.parquet"
    write_trace(columns, TraceInfo("itp", "made up", "own", "", "0"), path)
    return path


def replayed(log: Path, policy: object, nodes: int, load: float = 1.0) -> Result:
    workload = TraceReplay(str(log), load_factor=load).load({})
    return simulate(workload, {}, Cluster.uniform(nodes, 4), policy, settings=LOG_RULES)  # type: ignore[arg-type]


def waits(result: Result) -> list[float]:
    return [job.queueing_delay for job in result.job_records if job.queueing_delay is not None]


def makespan(result: Result) -> float:
    ends = [job.completion_time for job in result.job_records if job.completion_time is not None]
    return max(ends) - min(job.submit_time for job in result.job_records)


def mean_jct(result: Result) -> float:
    return float(np.mean([job.jct for job in result.job_records if job.jct is not None]))


def found_by(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["size", *arguments, "cluster.gpus_per_node=4"]) == status
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("policy", "guest", "target", "bound", "metric"),
    [
        ("fifo", Fifo(), "p90 wait < 10 min", 600, lambda result: np.percentile(waits(result), 90)),
        ("srtf", Srtf(), "makespan <= 4h", 14400, makespan),
    ],
)
def test_the_least_size_is_that_of_all_sizes_run(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, guest: object, target: str,
    bound: float, metric: Callable[[Result], float],
) -> None:  # fmt: skip
    values = {nodes: metric(replayed(log, guest, nodes)) for nodes in range(2, 13)}  # one node has no room for 8 GPUs
    least = min(nodes for nodes, value in values.items() if value < bound)
    assert 3 < least < 12
    where = ("--log", str(log), "--limit", "12", "-o", str(tmp_path / "runs"), f"policy={policy}")
    out = found_by(capsys, "--target", target, *where)
    assert f"least size that meets {read_target(target)}: {least} nodes, " in out
    table = {int(nodes): float(value) for nodes, value in re.findall(r"^│ +(\d+) │ +([\d.]+) │", out, re.MULTILINE)}
    size = read_target(target).unit[1]
    assert table == pytest.approx({nodes: values[nodes] / size for nodes in table}, rel=5e-3)
    assert {least - 1, least, least + 1} <= set(table) < set(values)


def test_the_highest_load_is_that_of_all_loads_run(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = [round(0.1 * number, 1) for number in range(1, 21)]
    borne = [load for load in loads if mean_jct(replayed(log, Tiresias(), 6, load)) < 2400]
    assert 0.2 < max(borne) < 1.9
    arguments = ("--log", str(log), "--highest-load", "--step", "0.1", "--limit", "2", "-o", str(tmp_path / "runs"))
    figure = tmp_path / "load.png"
    what = ("policy=tiresias", "cluster.num_nodes=6", "--figure", str(figure))
    out = found_by(capsys, "--target", "mean jct < 40 min", *arguments, *what)
    assert f"highest load that meets mean jct < 40 min: load {max(borne):g}, " in out
    assert figure.stat().st_size > 5000


def test_a_target_that_no_size_meets_is_said_with_the_best(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--log", str(log), "--limit", "3", "-o", str(tmp_path / "runs"), "policy=fifo")
    out = found_by(capsys, "--target", "p90 wait < 1 min", *where, status=NO)
    wait = np.percentile(waits(replayed(log, Fifo(), 3)), 90)
    assert f"no size from 2 to 3 meets p90 wait < 1 min: the best found is 3 nodes, {wait / 60:.3g} min" in out


def test_groups_of_nodes_grow_where_braces_are_and_seeds_give_an_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same seeds at each size; a second time, nothing is run again."""
    arguments = (
        "--target", "mean wait < 6 min", "--seeds", "6", "--existing", "4", "--limit", "2",
        "-o", str(tmp_path / "s"),
        "workload=philly-like-rigid", "workload.rate=0.2", "workload.hours=4", "policy=fifo",
        "cluster=mixed", "cluster.groups=[[4,16],[{},4]]",
    )  # fmt: skip
    assert main(["size", *arguments]) == 0
    first = capsys.readouterr().out
    runs = pd.read_parquet(tmp_path / "s" / "sweep.parquet")
    assert set(map(tuple, runs.groupby("cluster.groups").seed.unique())) == {(0, 1, 2, 3, 4, 5)}
    assert (
        "least size that meets mean wait < 6 min: 2 nodes, 5.7 min\nrelative to the 4 nodes that exist: -2 nodes\n"
        "95 % interval of this size: 1 to more than 2 nodes (-3 to more than -2)\n" in first
    )
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}
    assert main(["size", *arguments]) == 0
    assert capsys.readouterr().out == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")} == before


def test_three_seeds_give_an_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ("workload=philly-like-rigid", "workload.rate=0.1", "workload.hours=4", "policy=fifo")
    where = ("--limit", "4", "--workers", "1", "-o", str(tmp_path / "runs"), *few)
    out = found_by(capsys, "--target", "mean wait < 500 min", "--seeds", "3", *where)
    (size,) = map(int, re.findall(r"least size that meets .*: (\d+) nodes?", out))
    (low, high) = re.findall(r"95 % interval of this size: (?:below )?(\d+) to (?:more than )?(\d+) nodes", out)[0]
    assert int(low) <= size <= int(high)
    assert "no interval" not in out
    out = found_by(capsys, "--target", "mean wait < 500 min", "--seeds", "2", *where)
    assert "no interval of this size: it needs 3 seeds or more, and each size has 2 seeds (--seeds)" in out


def test_the_search_begins_at_the_first_size_on_which_the_jobs_of_all_seeds_fit(tmp_path: Path) -> None:
    """The largest job requests 4 GPUs with seed 0, and 8 with seed 1."""
    few = (
        "workload=philly-like-rigid",
        "workload.rate=0.2",
        "workload.hours=3",
        "policy=fifo",
        "cluster.gpus_per_node=1",
    )
    arguments = ("--target", "mean wait < 1 d", "--seeds", "2", "--limit", "10", "-o", str(tmp_path / "s"))
    assert main(["size", *arguments, *few]) == 0
    assert pd.read_parquet(tmp_path / "s" / "sweep.parquet")["cluster.num_nodes"].min() == 8


LEVELS = [float(level) for level in range(1, 41)]


@given(st.lists(st.booleans(), min_size=40, max_size=40), st.booleans())
def test_what_is_found_meets_the_target_and_its_harder_neighbours_do_not(meeting: list[bool], upwards: bool) -> None:
    asked = set[float]()

    def meets(level: float) -> bool:
        asked.add(level)
        return meeting[int(level) - 1]

    found = hardest(LEVELS, meets, easier_upwards=upwards)
    if found is None:
        assert not meeting[-1 if upwards else 0]
        return
    assert meets(found)
    harder = [found + (-1 if upwards else 1) * step for step in range(1, NEIGHBOURS + 1)]
    assert not any(meets(level) for level in harder if level in LEVELS)
    assert {level for level in LEVELS if abs(level - found) <= NEIGHBOURS} <= asked


@given(st.integers(0, 40), st.booleans())
def test_where_a_metric_is_monotone_the_hardest_level_is_found_with_few_runs(least: int, upwards: bool) -> None:
    asked = set[float]()

    def meets(level: float) -> bool:
        asked.add(level)
        return level > least if upwards else level <= least

    found = hardest(LEVELS, meets, easier_upwards=upwards)
    assert len(asked) <= 16
    assert found == next((level for level in (LEVELS if upwards else LEVELS[::-1]) if meets(level)), None)


@pytest.mark.parametrize(
    ("values", "of_sizes", "level", "lines"),
    [
        ({3: 90, 4: 50, 5: 70, 6: 40}, True, 4, ["5 nodes, 70 s does not meet it"]),
        ({3: 90, 4: 50, 5: 55, 6: 40}, True, 4, ["5 nodes, 55 s is worse than 4 nodes, 50 s"]),
        ({3: 80, 4: 90, 5: 50}, True, 5, ["4 nodes, 90 s is worse than 3 nodes, 80 s"]),
        ({3: 90, 4: 80, 5: 85}, True, None, ["5 nodes, 85 s is worse than 4 nodes, 80 s"]),
        ({1: 20, 2: 10, 3: 70}, False, 2, ["load 1, 20 s is worse than load 2, 10 s"]),
        ({3: 90, 4: 50, 5: 50, 6: 50.01}, True, 4, []),
    ],
)
def test_larger_clusters_that_do_worse_are_named(
    values: dict[float, float], of_sizes: bool, level: float | None, lines: list[str]
) -> None:
    curve = {level: Estimate(value, None, None) for level, value in values.items()}
    words = list(SizeAnswer(read_target("mean wait < 60s"), curve, of_sizes, level).sentences())
    assert words[1:] == [f"not monotone: {line}" for line in lines]


@pytest.mark.slow
def test_weeks_of_a_log_drawn_by_seeds_give_an_interval_of_the_size(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log lasts two hours; its pieces are a quarter of an hour."""
    where = ("--log", str(log), "policy=fifo", "--existing", "3", "--target", "mean wait < 10 min", "--limit")
    out = found_by(capsys, *where, "3", "--seeds", "2", "-o", str(tmp_path / "a"), status=NO)
    assert "all 2 seeds give the same results; workload.resample_hours=168 draws other weeks of the log" in out
    out = found_by(capsys, *where, "12", "--seeds", "6", "-o", str(tmp_path / "b"), "workload.resample_hours=0.25")
    (found,) = re.findall(r"95 % interval of this size: (\d+) to (\d+) nodes \(([+-]?\d+) to ([+-]?\d+) nodes\)\n", out)
    low, high, more, most = map(int, found)
    (size,) = map(int, re.findall(r"least size that meets .*: (\d+) nodes", out))
    assert low <= size <= high
    assert low < high
    assert (more, most) == (low - 3, high - 3)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("p80 wait < 1h", "--target is 'p80 wait < 1h', must be '[mean|p50|p90|p95|p99] [wait|jct|rho] < VALUE' or"),
        ("p90 makespan < 1h", "--target is"),
        ("p90 wait > 1h", "--target is"),
        ("p90 wait < 10 fortnights", "bounds wait by '10 fortnights'; give a time > 0"),
        ("makespan < 0", "bounds makespan by '0'; give a time > 0"),
        ("mean rho < 1.5h", "bounds rho by '1.5h'; give a number > 0"),
        ("mean rho < inf", "bounds rho by 'inf'; give a number > 0"),
    ],
)
def test_a_target_that_is_none_is_said(text: str, what: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        read_target(text)
    assert what in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--limit", "2.5"], "--limit is 2.5, must be a whole number of nodes"),
        (["--limit", "nan"], "--limit is nan"),
        (["--step", "0.1"], "--step needs --highest-load"),
        (["--limit", "0"], "--limit is 0, must be a number above 0"),
        (["--highest-load", "--step", "-1"], "--step is -1, must be a number above 0"),
        (["--existing", "-1"], "--existing is -1, must be a whole number of at least 0"),
        (["--existing", "3", "--highest-load"], "--existing compares numbers of nodes; leave it out"),
        (["--highest-load", "--step", "0.5", "--limit", "0.4"], "--limit is 0.4, must be 0.5 to 50000"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--workers", "0"], "--workers is 0, must be a whole number"),
        (["--seeds", "2", "seed=5"], "'seed=5' and --seeds 2 contradict each other"),
        (["--figure", "x.gif"], "x.gif: the name of a figure must end in"),
        (["--log", "nowhere.parquet"], "nowhere.parquet: no such file"),
        (["policy=fifoo"], "policy=fifoo is unknown"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["size", "--target", "p90 wait < 1h", *arguments]) == 2
    told = capsys.readouterr().err
    assert what in told
    assert told.count("\n") == 1
    assert not list(tmp_path.rglob("run.json"))


def test_a_job_that_no_size_serves_meets_no_target(log: Path) -> None:
    result = replayed(log, Fifo(), 4)
    target = read_target("p50 wait < 1 d")
    assert target.is_met(target.value(result))
    left = result.job_records[0]._replace(status=Status.CUT_OFF, completion_time=None, jct=None)
    assert not target.is_met(target.value(replace(result, job_records=(left, *result.job_records[1:]))))
