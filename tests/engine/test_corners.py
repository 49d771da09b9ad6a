"""What hardly ever happens in a run, and must be right when it does."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from drawn import PROFILES, begun, ended, failing, go_on, told
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.engine.diversion import Diversion
from polluxsim.engine.failures import DrawnFailures
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.engine.truth import Truth
from polluxsim.errors import InvalidConfigError, InvalidInputError, TurnError
from polluxsim.models.profile import ProfileRangeError, StepTime
from polluxsim.policies.fifo import Fifo
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.view import ClusterView, traits_of
from polluxsim.types import Cluster

CLUSTER = Cluster.uniform(2, 2)
JOBS = toy_workload(toy_job("a", 0, 2), toy_job("b", 10, 2), toy_job("c", 130, 4))


def test_fairness_is_unknown_where_the_profile_cannot_say_how_long_a_job_takes_on_its_share() -> None:
    class OnFour(ToyProfile):
        def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
            if sum(gpus_by_node) != 4:
                raise ProfileRangeError("measured on 4 GPUs only")
            return super().step_time(gpus_by_node, atomic_batch_size)

    workload = toy_workload(toy_job("a", 0, 4), toy_job("b", 0, 4))
    result = simulate(workload, {"toy": OnFour()}, Cluster.uniform(1, 4), Fifo())
    assert [job.finish_time_fairness for job in result.job_records] == [None, None]


def test_an_error_of_ours_within_a_placement_is_told_as_it_is() -> None:
    def placement() -> Iterator[tuple[int, int]]:
        yield 0, 1
        raise InvalidInputError("a file of the policy's own is not there")

    class Reading(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Any:
            return {"a": placement()}

    with pytest.raises(InvalidInputError, match="a file of the policy's own is not there"):
        simulate(JOBS, PROFILES, CLUSTER, Reading())


def test_a_run_tells_which_nodes_are_down() -> None:
    cluster, policy = failing((1, 50.0, 1e5), (0, 100.0, 10.0)), Fifo()
    run = begun(toy_workload(toy_job("a", 0, 4)), cluster, policy)
    go_on(run, policy, 1, look=False)
    assert run.down == (1,)
    run.advance(before=105.0)
    assert run.down == (0, 1)


@pytest.mark.parametrize("name", ["checkpoints", "job_failures"])
def test_a_setting_of_another_kind_is_named(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"engine.{name} is 300, allowed are .*, or null"):
        EngineSettings(**{name: 300})  # type: ignore[arg-type]


def test_what_is_computed_once_of_an_application_is_shared_by_copies() -> None:
    truth = Truth(ToyProfile())
    assert deepcopy(truth) is truth


def test_a_run_cannot_go_another_way_in_its_past() -> None:
    run, policy = begun(JOBS, CLUSTER, Fifo()), Fifo()
    go_on(run, policy, 2, look=False)
    scenario = run._state.scenario
    with pytest.raises(TurnError, match="too far to go another way at 30 s"):
        run.divert(Diversion(30.0, scenario))
    run.advance()
    with pytest.raises(TurnError, match="too far to go another way"):
        run.divert(Diversion(1e6, scenario))


def test_agents_that_know_their_throughput_know_it_for_all_jobs_of_an_application() -> None:
    policy = Pollux(GeneticSearch(population=10, generations=5), known_throughput=True)
    result = simulate(JOBS, PROFILES, CLUSTER, policy)
    assert all(job.completion_time is not None for job in result.job_records)


def test_groups_may_fail_where_single_nodes_do_not() -> None:
    failures = DrawnFailures(0.0, group_size=2, group_rate=5.0)
    assert list(failures.units(5)) == [1, 3, 5]
    assert list(DrawnFailures(0.0).units(5)) == []


def test_nodes_that_come_fail_as_they_would_have() -> None:
    """The failures of those that were there before are not called again."""
    failures = DrawnFailures(5000.0, repair_time=60.0)
    workload = toy_workload(toy_job("a", 0, 2), toy_job("b", 10, 2))
    small, large = Cluster.uniform(2, 2, failures), Cluster.uniform(3, 2, failures)
    run, policy = begun(workload, small, Fifo()), Fifo()
    grown = replace_cluster(run, large)
    run.divert(Diversion(0.0, grown))
    assert told(ended(run, policy))[0].outage_records == ended(begun(workload, large, Fifo()), Fifo()).outage_records


def replace_cluster(run: Simulation, cluster: Cluster) -> Scenario:
    scenario = run._state.scenario
    return Scenario(scenario.workload, PROFILES, cluster, scenario.settings, traits_of(Fifo()), "Fifo")


def test_a_job_without_gpus_has_no_pace() -> None:
    run = begun(JOBS, CLUSTER, Fifo())
    run.advance()
    with pytest.raises(RuntimeError, match="job 'a' has no GPUs to train on"):
        _ = run._state.jobs.active["a"]._pace
