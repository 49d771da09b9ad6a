"""What hardly ever happens in a run, and must be right when it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from drawn import PROFILES, begun, ended, failing, go_on, told
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, TurnError
from polluxsim.engine.failures import DrawnFailures
from polluxsim.engine.futures import Fork
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.engine.truth import GroundTruth
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.models.profile import ProfileRangeError, StepTime
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.workloads.workload import Job, Workload

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
    with pytest.raises(InvalidConfigError, match=f"engine.{name} is 300, must be .*, or null"):
        EngineSettings(**{name: 300})  # type: ignore[arg-type]


def test_what_is_computed_once_of_an_application_is_shared_by_copies() -> None:
    truth = GroundTruth(ToyProfile())
    assert deepcopy(truth) is truth


def test_a_run_cannot_go_another_way_in_its_past() -> None:
    run, policy = begun(JOBS, CLUSTER, Fifo()), Fifo()
    go_on(run, policy, 2, look=False)
    scenario = run._state.scenario
    with pytest.raises(TurnError, match="past the fork at 30 s: fork a copy that was made before"):
        run.fork(Fork(30.0, scenario))
    run.advance()
    with pytest.raises(TurnError, match=r"a decision is due at .* s: commit one before the run can be forked"):
        run.fork(Fork(1e6, scenario))


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
    failures = DrawnFailures(100_000.0, repair_time=60.0)
    workload = Workload((Job.rigid("a", 0.0, 2, 1500.0), Job.rigid("b", 10.0, 2, 1500.0)))
    small, large = Cluster.uniform(2, 2, failures), Cluster.uniform(3, 2, failures)
    run, policy = begun(workload, small, Fifo()), Fifo()
    grown = replace_cluster(run, large)
    run.fork(Fork(0.0, grown))
    outages = told(ended(run, policy))[0].outage_records
    assert outages == ended(begun(workload, large, Fifo()), Fifo()).outage_records
    assert {outage.node for outage in outages} == {0, 1, 2}


def test_a_policy_is_told_of_nodes_that_come() -> None:
    run = begun(JOBS, CLUSTER, Fifo())
    run.fork(Fork(0.0, replace_cluster(run, Cluster.uniform(3, 2))))
    view = run.advance()
    assert view is not None
    assert view.changes.nodes


def replace_cluster(run: Simulation, cluster: Cluster) -> Scenario:
    scenario = run._state.scenario
    return Scenario(scenario.workload, PROFILES, cluster, scenario.settings, traits_of(Fifo()), "Fifo")


def test_a_job_without_gpus_has_no_pace() -> None:
    run = begun(JOBS, CLUSTER, Fifo())
    run.advance()
    with pytest.raises(RuntimeError, match="job 'a' has no GPUs to train on"):
        _ = run._state.jobs.active["a"]._present_speed


@dataclass(frozen=True)
class Foreseen:
    """Each node goes down once, at a time that chance says, or none has a say in; known and drained long before."""

    by_chance: bool = True

    def units(self, num_nodes: int) -> range:
        return range(num_nodes)

    def outage(self, unit: int, number: int, since: float, draw: Callable[[int], Sequence[float]]) -> Outage | None:
        start = 2000.0 + 1000.0 * unit + (500.0 * draw(1)[0] if self.by_chance else 0.0)
        return None if number else Outage((unit,), start, 60.0, "test", 900.0, drain=600.0)


def test_failures_drawn_anew_take_the_place_of_those_to_come_but_for_what_is_known() -> None:
    jobs = toy_workload(*(Job.rigid(f"j{n}", 100.0 * n, 2, 400.0) for n in range(30)))
    policy, seed = Fifo(), 7

    def downs(cluster: Cluster, diverted: float | None, first_seed: int) -> list[tuple[int, float]]:
        run = begun(jobs, cluster, policy, seed=first_seed)
        if diverted is not None:
            while (view := run.advance(before=diverted)) is not None:
                run.commit(policy.allocate(view, run.rng))
            run.fork(Fork(diverted, run.scenario, chance=seed))
        return [(each.node, each.time) for each in ended(run, policy).outage_records]

    cluster = Cluster.uniform(2, 2, Foreseen())
    before, after = downs(cluster, None, 1), downs(cluster, None, seed)
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert downs(cluster, 600.0, 1) == after
    assert downs(cluster, before[0][1] - 800.0, 1) == [before[0], after[1]]
    fixed = Cluster.uniform(2, 2, Foreseen(by_chance=False))
    assert downs(fixed, 600.0, 1) == downs(fixed, None, 1) == [(0, 2000.0), (1, 3000.0)]


def test_a_node_that_drains_beyond_those_that_count_is_not_asked_for() -> None:
    nodes = Nodes(Cluster.uniform(2, 4))
    nodes.announce(1, 9.0, drains=True)
    assert (nodes.idle(1), nodes.idle(2)) == ([4], [4, 0])


def test_a_node_rented_anew_is_not_what_befell_the_one_before() -> None:
    nodes = Nodes(Cluster.elastic(2, 2, 4, 0.0, 1.0))
    nodes.announce(1, 900.0, drains=False)
    nodes.announce(1, 900.0, drains=True)
    nodes.fall(1, 100.0, 5000.0, "test")
    nodes.request(1, 200.0)
    assert nodes.all_outages()[0].until == 200.0
    nodes.request(2, 300.0)
    assert nodes.present(300.0) == (4, 4)
    assert (nodes.idle(2), nodes.coming, nodes.draining, nodes.down) == ([4, 4], {}, {}, {})


def test_a_way_of_its_own_has_chances_of_its_own() -> None:
    run, other = begun(JOBS, CLUSTER, Fifo()), begun(JOBS, CLUSTER, Fifo())
    run.fork(Fork(0.0, run.scenario, seed=5))
    assert run.rng.random() == np.random.default_rng(5).random()
    expected = deepcopy(other.rng).random()
    other.fork(Fork(0.0, other.scenario))
    assert other.rng.random() == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"cancel_time": None}, [("a", 1060.0), ("b", 1440.0)]), ({"cancel_time": 500.0}, [("a", None), ("b", 900.0)])],
)
def test_a_job_need_not_be_cancelled_after_all(change: dict[str, Any], expected: list[tuple[str, float]]) -> None:
    long, policy = Job.rigid("a", 0.0, 4, 970.0, cancel_time=500.0), Fifo()
    run = begun(Workload((long, Job.rigid("b", 0.0, 4, 330.0))), Cluster.uniform(1, 4), policy)
    go_on(run, policy, 1, look=False)
    run.fork(Fork(300.0, run.scenario, altered=(replace(long, **change),)))
    found = [(job.job, job.completion_time) for job in ended(run, policy).job_records]
    assert found == expected


def test_a_job_that_waits_may_ask_for_fewer_gpus() -> None:
    policy, asks = Fifo(), Job.rigid("b", 0.0, 4, 330.0)
    run = begun(Workload((Job.rigid("a", 0.0, 2, 970.0), asks)), Cluster.uniform(1, 4), policy)
    go_on(run, policy, 1, look=False)
    run.fork(Fork(300.0, run.scenario, altered=(replace(asks, num_replicas=2, batch_size=2),)))
    job = ended(run, policy).job_records[1]
    assert (job.num_replicas, job.start_time, job.completion_time) == (2, 300.0, 660.0)
