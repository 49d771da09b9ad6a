"""A generated load is one that the Philly cluster could have had; loads that are broken are not.

The trace is one draw, and its large bursts make it a noisy one: 244 of 10,000 bursts have 70 % of the jobs. So each of
its statistics is asked to be a likely further value beside those of 20 generated traces of the same length (a t
prediction interval, Bonferroni over all statistics), and the mean of the 20 is asked to be near it.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from philly_statistics import generated, print_figures, read_philly, statistics
from scipy.stats import t as student

from polluxsim.applications.folder import ProfileFolder
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.trace_table import origin_of, read_trace
from polluxsim.workloads import philly_figures as figures
from polluxsim.workloads.log_file import write_log
from polluxsim.workloads.philly import PhillyLikeReplay
from polluxsim.workloads.philly_replay import MONDAY, ReplayLike, _beats
from polluxsim.workloads.workload import read_workload

SEEDS = 20
LEVEL = (
    0.01  # of all statistics together: one in a hundred sets of seeds fails where all is well, and the seeds are fixed
)

# Source: python benchmarks/philly_statistics.py, the column of the trace.
TRACE = {
    "offered load of the GPUs": 0.1812,
    "inter-arrival mean [s]": 85.55,
    "inter-arrival CV": 2.536,
    "inter-arrival p50 [s]": 8,
    "inter-arrival sd of ln": 1.943,
    "jobs a weekday": 1168,
    "jobs a day at the weekend": 613.7,
    "heartbeat [%]": 12.01,
    "jobs at 00 h [mean = 1]": 1.249,
    "jobs at 01 h [mean = 1]": 0.99,
    "jobs at 02 h [mean = 1]": 1.115,
    "jobs at 03 h [mean = 1]": 1.108,
    "jobs at 04 h [mean = 1]": 0.6789,
    "jobs at 05 h [mean = 1]": 1.132,
    "jobs at 06 h [mean = 1]": 1.677,
    "jobs at 07 h [mean = 1]": 2.096,
    "jobs at 08 h [mean = 1]": 1.118,
    "jobs at 09 h [mean = 1]": 1.006,
    "jobs at 10 h [mean = 1]": 1.03,
    "jobs at 11 h [mean = 1]": 0.8743,
    "jobs at 12 h [mean = 1]": 0.7563,
    "jobs at 13 h [mean = 1]": 0.7111,
    "jobs at 14 h [mean = 1]": 0.6421,
    "jobs at 15 h [mean = 1]": 0.6534,
    "jobs at 16 h [mean = 1]": 0.888,
    "jobs at 17 h [mean = 1]": 0.6691,
    "jobs at 18 h [mean = 1]": 0.8044,
    "jobs at 19 h [mean = 1]": 0.7337,
    "jobs at 20 h [mean = 1]": 1.021,
    "jobs at 21 h [mean = 1]": 0.8916,
    "jobs at 22 h [mean = 1]": 1.138,
    "jobs at 23 h [mean = 1]": 1.017,
    "bursts an hour": 5.226,
    "CV of times between bursts": 1.33,
    "bursts of 1 job [%]": 62.54,
    "bursts of >= 10 jobs [%]": 5.748,
    "bursts of >= 100 jobs [%]": 1.327,
    "tail exponent (Hill, >= 10 jobs)": 0.6858,
    "gap in a burst p50 [s]": 5,
    "gap in a burst p90 [s]": 30,
    "jobs in bursts of one GPU count [%]": 91.49,
    "ln duration: between bursts / all squares": 0.8613,
    "ln duration: ICC(1)": 0.839,
    "jobs with 1 GPUs [%]": 94.66,
    "jobs with 2 GPUs [%]": 0.6116,
    "jobs with 4 GPUs [%]": 2.422,
    "jobs with 8 GPUs [%]": 2.006,
    "jobs with 16 GPUs [%]": 0.1957,
    "jobs with 32 GPUs [%]": 0.08483,
    "duration p10 [s]": 72,
    "duration p50 [s]": 1471,
    "duration p90 [s]": 12720,
    "duration p99 [s]": 229700,
    "mean of ln duration": 7.114,
    "sd of ln duration": 1.951,
    "S: jobs [%]": 74.52,
    "S: GPU-time [%]": 2.574,
    "S: 1 GPUs [%]": 98.52,
    "S: 2 GPUs [%]": 0.2699,
    "S: 4 GPUs [%]": 0.784,
    "S: 8 GPUs [%]": 0.3892,
    "M: jobs [%]": 18.69,
    "M: GPU-time [%]": 5.601,
    "M: 1 GPUs [%]": 95.5,
    "M: 2 GPUs [%]": 0.1757,
    "M: 4 GPUs [%]": 2.058,
    "M: 8 GPUs [%]": 1.904,
    "L: jobs [%]": 4.76,
    "L: GPU-time [%]": 18.18,
    "L: 1 GPUs [%]": 64.39,
    "L: 2 GPUs [%]": 5.174,
    "L: 4 GPUs [%]": 18.02,
    "L: 8 GPUs [%]": 11.1,
    "XL: jobs [%]": 2.033,
    "XL: GPU-time [%]": 73.64,
    "XL: 1 GPUs [%]": 15.95,
    "XL: 2 GPUs [%]": 6.46,
    "XL: 4 GPUs [%]": 29.27,
    "XL: 8 GPUs [%]": 40.92,
}
# The same as others rounded or defined them: all days, and a heartbeat told apart a little differently.
AS_GIVEN = {
    "inter-arrival mean [s]": 85.5, "inter-arrival CV": 2.54, "inter-arrival p50 [s]": 8,
    "inter-arrival sd of ln": 1.94,
    "jobs a weekday": 1168, "jobs a day at the weekend": 614, "heartbeat [%]": 12.4, "jobs at 07 h [mean = 1]": 2.12,
    "bursts an hour": 5.4, "bursts of 1 job [%]": 64, "bursts of >= 10 jobs [%]": 5.5, "bursts of >= 100 jobs [%]": 1.3,
    "tail exponent (Hill, >= 10 jobs)": 0.7, "gap in a burst p50 [s]": 5, "gap in a burst p90 [s]": 30,
    "jobs in bursts of one GPU count [%]": 91.5, "ln duration: between bursts / all squares": 0.86,
    "jobs with 1 GPUs [%]": 94.65, "jobs with 2 GPUs [%]": 0.62, "jobs with 4 GPUs [%]": 2.40,
    "jobs with 8 GPUs [%]": 2.02, "jobs with 16 GPUs [%]": 0.19, "jobs with 32 GPUs [%]": 0.08,
    "duration p10 [s]": 72, "duration p50 [s]": 1456, "duration p90 [s]": 12793, "duration p99 [s]": 235723,
    "mean of ln duration": 7.105, "sd of ln duration": 1.963,
    "S: jobs [%]": 74.6, "M: jobs [%]": 18.6, "L: jobs [%]": 4.8, "XL: jobs [%]": 2.1,
    "S: GPU-time [%]": 2.5, "M: GPU-time [%]": 5.5, "L: GPU-time [%]": 18.0, "XL: GPU-time [%]": 74.1,
    "S: 1 GPUs [%]": 98.5, "S: 4 GPUs [%]": 0.8, "S: 8 GPUs [%]": 0.4,
    "M: 1 GPUs [%]": 95.4, "M: 4 GPUs [%]": 2.0, "M: 8 GPUs [%]": 2.0,
    "L: 1 GPUs [%]": 64.6, "L: 2 GPUs [%]": 5.2, "L: 4 GPUs [%]": 17.7, "L: 8 GPUs [%]": 11.2,
    "XL: 1 GPUs [%]": 17.5, "XL: 2 GPUs [%]": 6.4, "XL: 4 GPUs [%]": 28.7, "XL: 8 GPUs [%]": 40.2,
}  # fmt: skip
WHOLE_SECONDS = {"inter-arrival p50 [s]", "gap in a burst p50 [s]", "gap in a burst p90 [s]"}


def drawn(seeds: int = SEEDS, **parameters: object) -> pd.DataFrame:
    return pd.DataFrame([statistics(generated(ReplayLike(seed=seed, **parameters))) for seed in range(seeds)])


def unlikely(values: pd.DataFrame, aims: Mapping[str, float] = TRACE) -> set[str]:
    """Return the statistics that are no likely further value of those drawn."""
    critical = student.ppf(1 - LEVEL / len(aims) / 2, len(values) - 1) * np.sqrt(1 + 1 / len(values))
    spread = values.std()
    spread = spread.where(~spread.index.isin(WHOLE_SECONDS), spread.clip(lower=0.5))
    return {name for name, aim in aims.items() if not abs(values[name].mean() - aim) <= critical * spread[name]}


def far(values: pd.DataFrame) -> set[str]:
    """Return those that are not near the mean of the drawn ones; what near is, is our choice."""
    return {name for name, aim in TRACE.items() if not abs(values[name].mean() - aim) <= near(name, aim)}


def near(name: str, aim: float) -> float:
    if name.startswith("jobs at"):
        return 0.2
    if "GPU" in name and name[0] in "MLX":
        return 3.0  # points, shares within small classes
    return 1.0 if name.endswith("[%]") else 0.1 * aim


@pytest.fixture(scope="module")
def values() -> pd.DataFrame:
    return drawn()


def test_every_statistic_of_the_trace_is_a_likely_one(values: pd.DataFrame) -> None:
    assert set(values.columns) == set(TRACE)
    assert unlikely(values) == set()
    assert unlikely(values, AS_GIVEN) == set()


def test_the_mean_of_the_seeds_is_near_the_trace(values: pd.DataFrame) -> None:
    """What is likely could still be far off where single traces differ much."""
    assert far(values) == set()


def test_the_expected_statistics_are_those_of_the_trace(osdi21: Path) -> None:
    found = statistics(read_philly(osdi21 / "traces" / "philly.csv"))
    assert found == pytest.approx(TRACE, rel=1e-3)


def test_the_tables_are_those_of_the_trace(osdi21: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_figures(read_philly(osdi21 / "traces" / "philly.csv"))
    lines = capsys.readouterr().out.splitlines()
    printed = dict(line.split(" = ", 1) for line in lines if " = " in line)
    tail, most = printed["SIZE_TAIL"].rsplit(" ", 1)
    assert (literal_eval(tail), int(most)) == (figures.SIZE_TAIL, figures.MOST_JOBS)
    assert float(printed["BURSTS_PER_HOUR"]) == figures.BURSTS_PER_HOUR
    assert literal_eval(printed["HOURS small"]) == list(figures.STARTS_BY_HOUR)
    weekends = [float(printed[f"WEEKEND {name}"]) for name in ("small", "large")]
    assert weekends == [figures.WEEKEND, figures.LARGE_WEEKEND]
    for kind in figures.BURST_KINDS:
        assert literal_eval(printed[f"GPUS {kind}"]) == figures.USUAL_GPUS[kind]
        tenants = figures.TENANTS[kind]
        assert literal_eval(printed[f"TENANTS {kind}"])[: len(tenants)] == list(tenants)
        durations = printed[f"DURATIONS {kind}, 1 GPU"].split(" ", 1)[1]
        assert literal_eval(durations) == list(figures.DURATIONS_ALONE[kind])
        if kind != "one":
            assert tuple(map(float, printed[f"MIXED {kind}"].split())) == figures.MIXED[kind]
            assert [round(gap) for gap in literal_eval(printed[f"GAPS {kind}"])] == list(figures.GAPS[kind])
    for count, row in figures.DURATIONS_BY_GPUS.items():
        name = f"DURATIONS {count} GPUs" if count < 16 else "DURATIONS > 8 GPUs"
        assert literal_eval(printed[name].split(" ", 1)[1]) == list(row)


BROKEN = {
    "no bursts": ({"SIZE_TAIL": {1: 1.0, 2: 0.01, 10: 0.001, 50: 0.0001}}, "bursts of 1 job [%]"),
    "a lighter tail": ({"SIZE_TAIL": {1: 1.0, 2: 0.37, 10: 0.04, 50: 0.008, 1000: 1e-5}}, "bursts of >= 100 jobs [%]"),
    "twice as many bursts": ({"BURSTS_PER_HOUR": 10.4}, "bursts an hour"),
    "durations that are not alike": ({"LIKENESS": 0.3}, "ln duration: ICC(1)"),
    "durations that are the same": ({"LIKENESS": 0.99}, "ln duration: ICC(1)"),
    "every hour like the other": (
        {"STARTS_BY_HOUR": (1,) * 24, "LARGE_STARTS_BY_HOUR": (1,) * 24},
        "jobs at 07 h [mean = 1]",
    ),
    "every day like the other": ({"WEEKEND": 1.0, "LARGE_WEEKEND": 1.0}, "jobs a day at the weekend"),
    "GPUs that differ in a burst": ({"MIXED": dict.fromkeys(figures.MIXED, (0.6, 0.5))}, "jobs with 1 GPUs [%]"),
    "slow bursts": (
        {"GAPS": {kind: np.minimum(300, np.multiply(3, row)) for kind, row in figures.GAPS.items()}},
        "gap in a burst p50 [s]",
    ),
    "short jobs": (
        {"DURATIONS_ALONE": {kind: np.sqrt(row) for kind, row in figures.DURATIONS_ALONE.items()}},
        "duration p50 [s]",
    ),
    "large jobs with more GPUs as short as others": (
        {"DURATIONS_BY_GPUS": dict.fromkeys(figures.DURATIONS_BY_GPUS, figures.DURATIONS_ALONE["many"])},
        "XL: 8 GPUs [%]",
    ),
    "nobody is ever silent": ({"OUTAGES_PER_DAY": 0, "ACTIVITY_VARIANCE": 1e-3}, "CV of times between bursts"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_load_is_rejected(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    changes, statistic = BROKEN[broken]
    for name, value in changes.items():
        monkeypatch.setattr(figures, name, value)
    values = drawn(seeds=3)
    assert statistic in unlikely(values) | far(values)


def test_a_load_without_heartbeat_is_rejected_and_has_the_same_bursts() -> None:
    assert "heartbeat [%]" in far(drawn(seeds=3, heartbeat=False))
    with_it, without = (ReplayLike(hours=200, heartbeat=beats, seed=3).draw() for beats in (True, False))
    rows = set(zip(*(column.tolist() for column in with_it), strict=True))
    assert set(zip(*(column.tolist() for column in without), strict=True)) < rows


@pytest.mark.parametrize("rate", [0.2, 0.5, 2.5, 20])
def test_the_rate_scales_the_bursts(rate: float) -> None:
    """Where it makes more of them, they are still bursts: of other virtual clusters."""
    one, other = (
        statistics(generated(ReplayLike(hours=168 * max(1, round(12 / factor)), rate=factor, heartbeat=False)))
        for factor in (1, rate)
    )
    assert other["bursts an hour"] / one["bursts an hour"] == pytest.approx(rate, rel=0.15)
    assert other["bursts of 1 job [%]"] == pytest.approx(one["bursts of 1 job [%]"], abs=2)
    assert other["bursts of >= 10 jobs [%]"] == pytest.approx(one["bursts of >= 10 jobs [%]"], abs=1)


def test_a_window_is_in_order_and_under_way_when_it_opens() -> None:
    jobs = ReplayLike(hours=48, start=24 * 5, rate=20, seed=4).draw()
    assert (np.diff(jobs.times) >= 0).all()
    assert jobs.times.min() >= 24 * 5 * 3600
    assert jobs.times.max() < 24 * 7 * 3600
    first, second = np.histogram(jobs.times, bins=2, range=(24 * 5 * 3600, 24 * 7 * 3600))[0]
    assert first / second == pytest.approx(1, abs=0.5)  # Saturday and Sunday


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, seed: int) -> None:
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")]
    jobs = [ReplayLike(hours=100, seed=seed).draw() for _ in paths]
    for path in paths:
        write_log(ReplayLike(hours=100, seed=seed).load({}), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    other = ReplayLike(hours=100, seed=seed + 1).draw()
    assert len(other.times) != len(jobs[0].times)
    info, rows = read_trace(paths[0])
    assert (info.format, info.time_zone) == ("workload", "UTC")
    assert origin_of(paths[0], info) == MONDAY + timedelta(seconds=int(jobs[0].times[0]))
    assert [row.submit_time for row in rows] == (jobs[0].times - jobs[0].times[0]).tolist()
    assert [row.duration for row in rows] == jobs[0].durations.tolist()
    assert pq.read_schema(paths[0]).field("duration").metadata[b"unit"] == b"s"


def test_a_profiled_replay_can_run() -> None:
    profiles = ProfileFolder().load()
    sizes = []
    for seed in range(3):
        for tuned in (True, False):
            workload = PhillyLikeReplay(seed=seed, tuned=tuned).load(profiles)
            workload.check(profiles, Cluster.uniform(16, 4))
            assert all(0 <= job.submit_time < 8 * 3600 for job in workload.jobs)
        assert workload.jobs == PhillyLikeReplay(seed=seed, tuned=False).load(profiles).jobs
        sizes.append(len(workload.jobs))
    assert 80 < np.mean(sizes) < 300


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hours": 0}, r"workload\.hours is 0, must be a whole number from 1 to 20000"),
        ({"start": -1}, r"workload\.start is -1"),
        ({"rate": 0.0}, r"workload\.rate is 0, must be a number > 0"),
        ({"rate": float("nan")}, r"workload\.rate is nan"),
        ({"seed": -1}, r"workload\.seed is -1"),
        ({"hours": 2000, "rate": 55.0}, r"workload\.hours · workload\.rate is 110000, must be a number ≤ 20000"),
    ],
)
@pytest.mark.parametrize("source", [ReplayLike, PhillyLikeReplay])
def test_impossible_parameters_are_named(source: type, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        source(**parameters)


@pytest.fixture
def run_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_jobs_of_a_workload_become_a_log_or_a_workload_file(
    run_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["workload=philly-like-log", "workload.hours=300h", "seed=2", "workload.heartbeat=false"]
    assert main(["workload", *words, "-o", "t.parquet"]) == 0
    jobs = ReplayLike(hours=300, seed=2, heartbeat=False).draw()
    hours = (jobs.durations * jobs.gpus).sum() / 3600
    assert capsys.readouterr().out == f"t.parquet: {len(jobs.times)} jobs, {hours:.0f} GPU-hours\n"
    assert read_trace(run_in / "t.parquet")[0].source.startswith("philly-like log, seed 2, generated by")
    words = ["workload=philly-like-replay", "workload.rate=2", "workload.start=0"]
    assert main(["workload", *words, "-o", "w.csv"]) == 0
    drawn = PhillyLikeReplay(rate=2, start=0).load(ProfileFolder().load()).jobs
    assert [replace(job, line=0) for job in read_workload(run_in / "w.csv").jobs] == list(drawn)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["t.parquet", "workload=philly-like"],
            " has no duration, which a log must state; give a name that ends in .csv",
        ),
        (
            ["t.parquet", "workload=philly-like-rigid", "workload.slack=2"],
            "has the field deadline, which a log does not have; give a name that ends in .csv",
        ),
        (["w.txt"], "w.txt: must end in .csv for a workload, or in .parquet for a log; give another name"),
        (["t.parquet", "workload=philly-like-log", "workload.hours=0h"], "workload.hours is 0, must be a whole number"),
        (
            [
                "t.parquet",
                "workload=philly-like-log",
                "workload.hours=1",
                "workload.rate=1e-9",
                "workload.heartbeat=false",
            ],
            "philly-like log: no job is submitted in 1 h",
        ),
    ],
)
def test_an_impossible_load_is_named(
    run_in: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["workload", "-o", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not list(run_in.iterdir())


@given(st.integers(0, 500), st.integers(1, 100), st.integers(0, 9))
def test_heartbeats_come_at_their_phase(first: int, hours: int, seed: int) -> None:
    beats = _beats(first, first + hours, np.random.default_rng(seed))
    assert ((beats.times - figures.BEAT_PHASE) % figures.BEAT_INTERVAL == 0).all()
    assert (np.diff(beats.times) > 0).all()
    assert ((beats.times >= first * 3600) & (beats.times < (first + hours) * 3600 + figures.BEAT_PHASE)).all()
    assert set(beats.gpus.tolist()) <= {1}
