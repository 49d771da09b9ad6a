"""Hyper-parameter search: jobs that follow others, and a searcher that learns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyProfile, toy_job

from polluxsim.applications.folder import ProfileFolder
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, UnknownApplicationError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.summary import summarise
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.results import Status
from polluxsim.workloads.search import (
    HyperParameters,
    HyperParameterSearch,
    Sampler,
    Trials,
    parameters_at,
    surrogate_accuracy,
)
from polluxsim.workloads.workload import Job, Workload

PROFILES = {"toy": ToyProfile(epochs=(300.0, 700.0))}


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=25)
def test_so_many_trials_are_under_way_until_all_are_started(trials: int, at_once: int, gpus: int) -> None:
    at_once = min(at_once, trials)
    search = HyperParameterSearch("toy", trials, at_once, gpus, batch_size=10 * gpus).load(PROFILES)
    assert len(search.jobs) + search.num_followers == trials
    result = simulate(search, PROFILES, Cluster.uniform(at_once, 4), Fifo())
    jobs = result.job_records
    assert len({job.job for job in jobs}) == len(jobs) == trials
    assert [job.submit_time for job in jobs] == sorted(job.submit_time for job in jobs)
    # Every later trial is submitted when an earlier one completes, and at no time are there more or fewer.
    completions = sorted(job.completion_time for job in jobs)
    assert [job.submit_time for job in jobs] == [0.0] * at_once + completions[: trials - at_once]
    busy = [record.active_jobs for record in result.round_records if record.time < completions[trials - at_once]]
    assert set(busy) <= {at_once}


def test_the_same_search_again_is_the_same() -> None:
    search = HyperParameterSearch("toy", 9, 3, 2, 20, seed=4).load(PROFILES)
    first, second = (simulate(search, PROFILES, Cluster.uniform(2, 4), Fifo()) for _ in range(2))
    assert first == second


def test_the_searcher_learns_from_scores() -> None:
    """Trials that follow are better on average than those drawn before anything was known; other seeds draw others."""
    job = toy_job("trial")
    scores = []
    for seed in range(6):
        trials = Trials(job, 60, 4, seed)
        under_way = list(trials.first)
        while under_way:
            under_way += trials.after(under_way.pop(0), 0.0)
        scores.append([score for score, _ in trials.sampler.scored])
    early, late = (sum(sum(s[part]) for s in scores) for part in (slice(0, 10), slice(50, 60)))
    assert late > 1.05 * early
    assert len({tuple(s) for s in scores}) == 6


def test_proposals_stay_within_the_ranges() -> None:
    """However good the edge of the cube looks."""
    sampler = Sampler(0)
    for _ in range(200):
        point = sampler.propose()
        sampler.learn(point, float(point.sum()))
        rate, momentum, decay = parameters_at(point)
        assert 1e-3 <= rate <= 1.0
        assert 0.5 <= momentum <= 0.99
        assert 1e-5 <= decay <= 1e-2
    assert point.sum() > 2.5


@given(st.floats(1e-3, 1), st.floats(0.5, 0.99), st.floats(1e-5, 1e-2))
def test_the_surrogate_is_best_at_common_values(rate: float, momentum: float, decay: float) -> None:
    best = surrogate_accuracy(HyperParameters(0.1, 0.9, 5e-4))
    assert best == pytest.approx(0.95)
    assert surrogate_accuracy(HyperParameters(1.0, 0.9, 5e-4)) == pytest.approx(0.95 / 1.1)
    assert 0 < surrogate_accuracy(HyperParameters(rate, momentum, decay)) <= best + 1e-12


def test_trials_that_never_came_are_no_jobs_of_a_run_that_was_cut_off() -> None:
    search = HyperParameterSearch("toy", 9, 2, 4, 40).load(PROFILES)
    result = simulate(search, PROFILES, Cluster.uniform(2, 4), Fifo(), settings=EngineSettings(horizon=400.0))
    assert [job.status for job in result.job_records] == [Status.COMPLETED] * 2 + [Status.CUT_OFF] * 2


class Follows:
    """Has one job follow the first that completes."""

    def __init__(self, follower: Job) -> None:
        self.followers = [follower]

    def after(self, job: Job, time: float) -> Sequence[Job]:
        return [self.followers.pop()] if self.followers else ()


@pytest.mark.parametrize(
    ("follower", "message"),
    [
        (toy_job("a", 900.0), "job 'a': the workload already has a job of this name"),
        (toy_job("b", 1.0), "job 'b': submitted at 1 s, must be 790 s or later"),
        (toy_job("b", 900.0, 9), "num_replicas is 9, must be at most 8, the number of GPUs"),
        (toy_job("b", 900.0, application="no"), "application 'no' has no profile"),
    ],
)
def test_a_follower_that_cannot_run_is_named(follower: Job, message: str) -> None:
    workload = Workload((toy_job("a"),), new_arrivals=lambda: Follows(follower))
    with pytest.raises(InvalidInputError, match=message):
        simulate(workload, PROFILES, Cluster.uniform(2, 4), Fifo())


def test_a_follower_may_come_later() -> None:
    workload = Workload((toy_job("a"), toy_job("c", 2000.0)), new_arrivals=lambda: Follows(toy_job("b", 5000.5)))
    jobs = simulate(workload, PROFILES, Cluster.uniform(2, 4), Fifo()).job_records
    assert [(job.job, job.start_time) for job in jobs] == [("a", 60.0), ("c", 2040.0), ("b", 5040.0)]


def test_impossible_searches_are_named() -> None:
    for name in ("num_trials", "at_once"):
        with pytest.raises(InvalidConfigError, match=rf"workload\.{name} is 2\.5, must be a whole number from 1 to"):
            HyperParameterSearch(**{name: 2.5})
    with pytest.raises(InvalidConfigError, match="at_once is 5, must be 1 to"):
        HyperParameterSearch(num_trials=4, at_once=5)
    with pytest.raises(InvalidConfigError, match=r"workload\.num_replicas is 0, must be a whole number ≥ 1"):
        HyperParameterSearch(num_replicas=0)
    with pytest.raises(InvalidConfigError, match=r"workload\.seed is -1, must be a whole number ≥ 0"):
        HyperParameterSearch(seed=-1)
    assert HyperParameterSearch("toy", seed=2**64).load(PROFILES).jobs
    with pytest.raises(UnknownApplicationError, match="'cifar10', must be one of toy"):
        HyperParameterSearch().load(PROFILES)


def test_table_3_by_cards() -> None:
    """A fifth of the trials: Pollux is faster than fixed GPUs in both columns."""
    profiles = ProfileFolder().load()
    search = HyperParameterSearch(num_trials=20).load(profiles)
    cluster = Cluster.uniform(4, 4)
    fixed, pollux = (summarise(simulate(search, profiles, cluster, policy)) for policy in (Fifo(), Pollux()))
    print(f"JCT {fixed.avg_jct / 60:.1f} -> {pollux.avg_jct / 60:.1f} min")
    assert pollux.avg_jct < 0.8 * fixed.avg_jct
    assert pollux.makespan < 0.8 * fixed.makespan
