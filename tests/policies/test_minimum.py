"""No policy gives a job fewer GPUs than its user allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import POLICIES, PROFILES, draws, policies_and_cases
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_job, toy_workload

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.tools.gpu_counts import powers_of_two, served_first
from polluxsim.workloads.workload import Job, Workload


@given(policies_and_cases, st.data())
@draws(120)
def test_no_job_holds_fewer_gpus_than_its_minimum(
    drawn: tuple[str, tuple[Cluster, Workload]], data: st.DataObject
) -> None:
    """The engine reports a violation; the records are checked too, and each job gets its turn.

    Sia may lack a configuration for a job if the nodes of a type have different sizes.
    """
    name, (cluster, workload) = drawn
    minimum = {job.job_id: data.draw(st.integers(1, job.num_replicas)) for job in workload.jobs}
    jobs = [replace(job, min_replicas=minimum[job.job_id]) for job in workload.jobs]
    result = simulate(toy_workload(*jobs), PROFILES, cluster, POLICIES[name](), seed=1)
    held = [(change.job, sum(change.gpus)) for change in result.allocation_records if change.gpus]
    assert [(job, gpus) for job, gpus in held if gpus < minimum[job]] == []
    assert name == "sia" or all(job.end_time is not None for job in result.job_records)


@pytest.mark.parametrize("policy", [Optimus(), Pollux(), Pollux(GeneticSearch(population=20, generations=20))])
def test_of_ten_jobs_of_four_gpus_no_more_than_four_run(policy: Policy) -> None:
    """There are 16 GPUs. Without a minimum, all ten jobs would have 1 or 2."""
    jobs = (toy_job(f"{index}", 0.0, 4, "slow", min_replicas=4) for index in range(10))
    cluster = Cluster.uniform(4, 4)
    result = simulate(toy_workload(*jobs), PROFILES, cluster, policy, settings=EngineSettings(horizon=400.0))
    held = [sum(change.gpus) for change in result.allocation_records if change.gpus]
    assert len(held) >= 4
    assert min(held) >= 4


def test_a_job_that_does_not_fit_lets_later_jobs_pass() -> None:
    minimum = {"a": 2, "b": 3, "c": 1, "d": 2}
    jobs = [toy_job(name, 0.0, 4, min_replicas=least) for name, least in minimum.items()]
    assert [job.job_id for job in served_first(jobs, 4)] == ["a", "c"]  # type: ignore[arg-type]


def test_a_job_between_two_powers_of_two_gets_as_many_as_it_can() -> None:
    from types import SimpleNamespace

    job = SimpleNamespace(min_replicas=5, max_replicas=7, gang_size=None)
    assert list(powers_of_two(job, 8)) == [7]  # type: ignore[arg-type]
    job.max_replicas = 9
    assert list(powers_of_two(job, 16)) == [8]  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [Optimus(), Pollux()])
def test_why_says_that_too_few_gpus_are_left(policy: Policy) -> None:
    jobs: list[Job] = [toy_job(name, 0.0, 3, "slow", min_replicas=3, max_replicas=4) for name in ("first", "second")]
    rules = EngineSettings(horizon=130.0, reasons="rounds")
    result = simulate(toy_workload(*jobs), PROFILES, Cluster.uniform(1, 4), policy, settings=rules)
    said = [sentence(record, result.reason_texts) for record in result.reason_records]
    assert any(text.startswith("Only 1 GPU is left for the job. It needs at least 3, so it waits.") for text in said)
