from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chisquare

from polluxsim.applications.folder import ProfileFolder
from polluxsim.common.errors import InvalidConfigError, UnknownApplicationError
from polluxsim.hardware.clusters import Cluster
from polluxsim.workloads.mapping import CLASSES, LONGEST_REQUEST, REDRAWN_CLASSES, tuned_configurations
from polluxsim.workloads.philly import (
    CLASS_SHARES,
    GPUS_BY_CLASS,
    JOBS_BY_HOUR,
    PhillyLike,
    PhillyLikeReplay,
    _realistic,
)
from polluxsim.workloads.workload import read_workload

PROFILES = ProfileFolder().load()
SEEDS = range(20)
LEVEL = 1e-4  # of each test below: one in ten thousand fails where all is well, and the seeds are fixed


def draws(**parameters: object) -> list:
    return [job for seed in SEEDS for job in PhillyLike(seed=seed, **parameters).load(PROFILES).jobs]


def size_class(application: str) -> str:
    return next(name for name, _, names in CLASSES if application in names)


def test_class_shares_are_the_traces() -> None:
    jobs = draws()
    assert len(jobs) == 20 * 160
    counts = Counter(size_class(job.application) for job in jobs)
    total = sum(CLASS_SHARES.values())
    expected = [len(jobs) * CLASS_SHARES[name] / total for name in CLASS_SHARES]
    assert chisquare([counts[name] for name in CLASS_SHARES], expected).pvalue > LEVEL
    applications = Counter(job.application for job in jobs)
    for even in (("cifar10", "ncf"), ("deepspeech2", "bert")):
        many = sum(applications[name] for name in even)
        assert binom.cdf(min(applications[name] for name in even), many, 0.5) > LEVEL


def test_hourly_arrivals_are_the_traces() -> None:
    jobs = draws()
    counts = Counter(int(job.submit_time // 3600) for job in jobs)
    expected = [len(jobs) * count / sum(JOBS_BY_HOUR) for count in JOBS_BY_HOUR]
    assert chisquare([counts[hour] for hour in range(8)], expected).pvalue > LEVEL


def test_realistic_gpu_counts_are_the_traces() -> None:
    jobs = draws(tuned=False, num_jobs=1000)
    for name, shares in GPUS_BY_CLASS.items():
        of_class = [job for job in jobs if size_class(job.application) == name]
        counts = Counter(job.num_replicas for job in of_class)
        assert set(counts) <= set(shares)
        expected = [len(of_class) * share / sum(shares.values()) for share in shares.values()]
        assert chisquare([counts[gpus] for gpus in shares], expected).pvalue > LEVEL


def test_no_realistic_large_job_asks_for_fewer_gpus_than_its_work_needs_in_a_day() -> None:
    """As published: XL is from 100 GPU-hours on, of which 4 GPUs do 96 in a day."""
    jobs = [job for job in draws(tuned=False, num_jobs=1000) if job.application == "imagenet"]
    assert {job.num_replicas for job in jobs} == {8, 16, 32}


def test_tuned_configurations_come_at_even_odds() -> None:
    jobs = draws()
    for name, profile in PROFILES.items():
        counts = Counter((job.num_replicas, job.batch_size) for job in jobs if job.application == name)
        choices = tuned_configurations(profile)
        assert set(counts) <= set(choices)
        if len(choices) > 1:
            assert chisquare([counts[choice] for choice in choices]).pvalue > LEVEL


def test_a_day_repeats_the_eight_hours() -> None:
    workload = PhillyLike(num_jobs=5000, hours=24).load(PROFILES)
    assert 23 < workload.jobs[-1].submit_time / 3600 < 24
    thirds = Counter(int(job.submit_time // (8 * 3600)) for job in workload.jobs)
    assert max(thirds.values()) / min(thirds.values()) < 1.15


def test_every_request_can_run_and_is_a_tuned_one() -> None:
    choices = {name: set(tuned_configurations(profile)) for name, profile in PROFILES.items()}
    for tuned in (True, False):
        workload = PhillyLike(num_jobs=2000, tuned=tuned).load(PROFILES)
        workload.check(PROFILES, Cluster.uniform(16, 4))
        if tuned:
            assert all((job.num_replicas, job.batch_size) in choices[job.application] for job in workload.jobs)


@pytest.mark.parametrize("tuned", [True, False])
def test_a_largest_request_cuts_those_beyond_it_and_no_others(tuned: bool) -> None:
    whole = PhillyLike(num_jobs=2000, tuned=tuned).load(PROFILES).jobs
    cut = PhillyLike(num_jobs=2000, tuned=tuned, largest_request=16).load(PROFILES).jobs
    beyond = [job.num_replicas > 16 for job in whole]
    assert any(beyond)
    for job, now, is_cut in zip(whole, cut, beyond, strict=True):
        same = replace(job, num_replicas=now.num_replicas, batch_size=now.batch_size)
        assert now == (same if is_cut else job)
        assert now.num_replicas == min(job.num_replicas, 16)


def test_the_shipped_workload_is_seed_0() -> None:
    shipped = read_workload(Path(__file__).parents[2] / "workloads" / "philly-like-160.csv").jobs
    fresh = PhillyLike().load(PROFILES).jobs
    key = ("job_id", "submit_time", "application", "num_replicas", "batch_size")
    assert [[getattr(job, name) for name in key] for job in shipped] == [
        [getattr(job, name) for name in key] for job in fresh
    ]


@pytest.mark.parametrize(
    "wrong", [{"num_jobs": 0}, {"hours": 0}, {"hours": 10**6}, {"seed": -1}, {"largest_request": 0}]
)
def test_impossible_parameters_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidConfigError, match=r"workload\.\w+ is -?\d+, must be a whole number"):
        PhillyLike(**wrong)


def test_the_figures_are_those_of_the_trace(osdi21: Path) -> None:
    """Counted anew from philly.csv: without this, the tests above would compare a generator with itself."""
    rows = pd.read_csv(osdi21 / "traces" / "philly.csv", parse_dates=["timestamp"])
    rows = rows[(rows["duration"] >= 60) & (rows["gpu_time"] < 1000 * 3600)]
    limits = [3600, 36_000, 360_000, 3_600_000]
    rows["class"] = pd.cut(rows["gpu_time"], [0, *limits], right=False, labels=list(CLASS_SHARES)).astype(str)
    hours = rows["timestamp"].dt.hour
    assert tuple((hours == hour).sum() for hour in range(2, 10)) == JOBS_BY_HOUR
    shares = rows[hours.between(2, 9)]["class"].value_counts(normalize=True)
    for name, share in CLASS_SHARES.items():
        assert 100 * shares[name] == pytest.approx(share, abs=0.06)
    for name, gpus in GPUS_BY_CLASS.items():
        longest = LONGEST_REQUEST if name in REDRAWN_CLASSES else float("inf")
        of_class = rows[(rows["class"] == name) & (rows["duration"] <= longest)]
        counts = of_class["num_gpus"].value_counts(normalize=True)
        for count, share in gpus.items():
            assert 100 * counts[count] == pytest.approx(share, abs=0.06)


BROKEN = {
    test_class_shares_are_the_traces: ("CLASS_SHARES", {"S": 70.0, "M": 20.0, "L": 6.0, "XL": 4.0}),
    test_hourly_arrivals_are_the_traces: ("JOBS_BY_HOUR", (1,) * 8),
    test_realistic_gpu_counts_are_the_traces: ("GPUS_BY_CLASS", {name: {1: 0.9, 4: 0.1} for name in GPUS_BY_CLASS}),
}


@pytest.mark.parametrize("test", BROKEN, ids=lambda test: test.__name__)
def test_a_broken_generator_fails(monkeypatch: pytest.MonkeyPatch, test: Callable[[], None]) -> None:
    monkeypatch.setattr(f"polluxsim.workloads.philly.{BROKEN[test][0]}", BROKEN[test][1])
    with pytest.raises(AssertionError):
        test()


def test_realistic_requests_stay_within_what_an_application_can_use() -> None:
    """No more GPUs than initial batch sizes fit into the largest batch, and whole ones."""
    jobs = [PhillyLike(tuned=False, seed=seed).load(PROFILES).jobs for seed in range(4)]
    limits = {name: profile.application for name, profile in PROFILES.items()}
    small = replace(limits["ncf"], max_batch_size=2 * limits["ncf"].init_batch_size + 1, fixed_batch_size=None)
    rng = np.random.default_rng(0)
    drawn = [_realistic(SimpleNamespace(application=small), "XL", rng) for _ in range(50)]
    assert {(type(gpus), gpus, batch_size) for gpus, batch_size in drawn} == {
        (int, gpus, gpus * small.init_batch_size) for gpus in {gpus for gpus, _ in drawn}
    }
    assert max(gpus for gpus, _ in drawn) == 2
    for job in itertools.chain.from_iterable(jobs):
        assert job.batch_size == job.num_replicas * limits[job.application].init_batch_size


@pytest.mark.parametrize("source", [PhillyLike(), PhillyLikeReplay(hours=24)])
def test_every_application_of_a_size_class_needs_a_profile(source: PhillyLike | PhillyLikeReplay) -> None:
    for name in PROFILES:
        with pytest.raises(UnknownApplicationError, match=f"the size classes need profiles of {name}, and there are"):
            source.load({other: profile for other, profile in PROFILES.items() if other != name})


def test_the_largest_request_may_be_one_gpu() -> None:
    jobs = PhillyLike(num_jobs=40, largest_request=1).load(PROFILES).jobs
    assert {job.num_replicas for job in jobs} == {1}
