from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from polluxsim.applications.measured import MeasuredProfile
from polluxsim.common.errors import InvalidConfigError, PolluxSimError
from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.importing import import_trace
from polluxsim.logs.trace_table import TraceInfo, write_trace
from polluxsim.workloads.mapping import tuned_configurations
from polluxsim.workloads.philly import PhillySample

# Source: configurations of the workloads of Pollux (OSDI '21).
TUNED = {
    "cifar10": {(6, 2048), (8, 2048), (12, 4096), (16, 4096)},
    "bert": {(6, 384), (8, 384), (12, 384), (16, 384)},
    "deepspeech2": {(6, 320), (8, 320), (12, 640)},
    "imagenet": {(24, 3200), (32, 6400), (48, 6400)},
    "yolov3": {(4, 64)},
    "ncf": {(1, 32768)},
}


@pytest.mark.parametrize("name", TUNED)
def test_tuned_configurations_follow_from_the_profiles(
    measured_profiles: dict[str, MeasuredProfile], name: str
) -> None:
    assert set(tuned_configurations(measured_profiles[name])) == TUNED[name]


def test_a_sample_is_seeded_and_runs_on_the_testbed(
    osdi21: Path, measured_profiles: dict[str, MeasuredProfile]
) -> None:
    path = str(osdi21 / "traces" / "philly.csv")
    first, again, other = (PhillySample(path, seed=seed).load(measured_profiles) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(first.jobs) == 160
    assert all(0 <= job.submit_time < 8 * 3600 for job in first.jobs)
    assert all((job.num_replicas, job.batch_size) in TUNED[job.application] for job in first.jobs)
    first.check(measured_profiles, Cluster.uniform(16, 4))


def test_a_realistic_sample_keeps_the_traces_gpus_and_initial_batch_sizes(
    osdi21: Path, measured_profiles: dict[str, MeasuredProfile]
) -> None:
    sample = PhillySample(str(osdi21 / "traces" / "philly.csv"), num_jobs=2000, tuned=False).load(measured_profiles)
    sample.check(measured_profiles, Cluster.uniform(16, 4))
    for job in sample.jobs:
        assert job.batch_size == measured_profiles[job.application].application.init_batch_size * job.num_replicas
    small = Counter(job.num_replicas for job in sample.jobs if job.application in ("cifar10", "ncf"))
    assert small[1] / small.total() == pytest.approx(0.985, abs=0.02)  # source: statistics of the trace


def test_class_shares_are_those_of_the_window(osdi21: Path, measured_profiles: dict[str, MeasuredProfile]) -> None:
    """S, M, L, XL: 78.3, 15.25, 4.6, 1.9 %; with 5,000 draws of 31,000 the standard error is at most 0.6 %."""
    sample = PhillySample(str(osdi21 / "traces" / "philly.csv"), num_jobs=5000).load(measured_profiles)
    shares = Counter(job.application for job in sample.jobs)
    expected = {"cifar10": 39.15, "ncf": 39.15, "deepspeech2": 7.6, "bert": 7.6, "yolov3": 4.6, "imagenet": 1.9}
    for name, share in expected.items():
        assert shares[name] / 50 == pytest.approx(share, abs=2.0)


def test_an_imported_trace_has_the_same_jobs_to_draw_from(
    tmp_path: Path, osdi21: Path, measured_profiles: dict[str, MeasuredProfile]
) -> None:
    """The order of its rows differs: it is sorted by submission."""
    lines = (osdi21 / "traces" / "philly.csv").read_text().splitlines()
    some = tmp_path / "some.csv"
    some.write_text("\n".join(lines[:5001]) + "\n")
    import_trace("philly", some, tmp_path / "some.parquet")
    drawn = []
    for path in (some, tmp_path / "some.parquet"):
        with pytest.raises(InvalidConfigError, match=r"must be 1 to \d+, the jobs") as caught:
            PhillySample(str(path), num_jobs=10**6).load(measured_profiles)
        count = int(str(caught.value).split("must be 1 to ")[1].split(",")[0])
        jobs = PhillySample(str(path), num_jobs=count).load(measured_profiles).jobs
        drawn.append([job.submit_time for job in jobs])
    assert drawn[0] == drawn[1]
    assert 1000 < len(drawn[0]) < 5000


@pytest.mark.parametrize(
    ("origin", "submitted"), [("2017-10-02T03:30:00+00:00", 0.0), ("1970-01-01T22:00:00+00:00", 27000.0)]
)
def test_days_begin_at_two_o_clock_utc(
    tmp_path: Path, measured_profiles: dict[str, MeasuredProfile], origin: str, submitted: float
) -> None:
    """Source: workloads of Pollux (OSDI '21), whose hours are those of the trace, two hours later."""
    columns = {"job": ["a"], "submit_time": [submitted], "duration": [600.0], "num_gpus": [1.0]}
    write_trace(columns, TraceInfo("x", "x", "", "UTC", origin), tmp_path / "one.parquet")
    (job,) = PhillySample(str(tmp_path / "one.parquet"), 1).load(measured_profiles).jobs
    assert job.submit_time == 5400.0 if submitted == 0 else job.submit_time == 12600.0


def test_a_trace_without_time_of_day_cannot_be_folded(
    tmp_path: Path, measured_profiles: dict[str, MeasuredProfile]
) -> None:
    info = TraceInfo("itp", "x", "", "", "17.0")
    columns = {"job": ["a"], "submit_time": [0.0], "duration": [100.0], "num_gpus": [1.0]}
    write_trace(columns, info, tmp_path / "relative.parquet")
    with pytest.raises(PolluxSimError, match=r"origin_time is '17.0', must be a date and time with a zone"):
        PhillySample(str(tmp_path / "relative.parquet"), 1).load(measured_profiles)


def test_a_header_within_the_log_is_no_job(tmp_path: Path, measured_profiles: dict[str, MeasuredProfile]) -> None:
    header, path = "timestamp,duration,num_gpus,gpu_time,cluster", tmp_path / "philly.csv"
    path.write_text(f"{header}\n2017-10-02 03:00:00,100,1,100,a\n{header}\n2017-10-02 04:00:00,100,1,100,a\n")
    assert len(PhillySample(str(path), 2).load(measured_profiles).jobs) == 2


def test_impossible_samples_are_named(tmp_path: Path, measured_profiles: dict[str, MeasuredProfile]) -> None:
    for count in (0, 2.5):
        with pytest.raises(InvalidConfigError, match=rf"workload\.num_jobs is {count}, must be a whole number ≥ 1"):
            PhillySample("", num_jobs=count)
    with pytest.raises(PolluxSimError, match="need profiles of ncf"):
        PhillySample("", 1).load({name: p for name, p in measured_profiles.items() if name != "ncf"})
    path = tmp_path / "philly.csv"
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\nyesterday,66.0,1,66.0,11cb48\n")
    with pytest.raises(PolluxSimError, match=r"line 2: column 'timestamp' is not a time like .*; found 'yesterday'"):
        PhillySample(str(path), 1).load(measured_profiles)
