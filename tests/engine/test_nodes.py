"""A cluster whose number of nodes a policy changes: start-up, release, bills, and what autoscalers make of it."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.applications.folder import ProfileFolder
from polluxsim.applications.measured import MeasuredProfile
from polluxsim.common.errors import InvalidAllocationError, InvalidConfigError
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.rounds import every_round
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.view import Change, ClusterView, Decision
from polluxsim.policies.elastic.cluster_size import Autoscaler
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.tools.free_gpus import pack
from polluxsim.records.results import Result
from polluxsim.workloads.workload import OneJob

PROFILES = {"toy": ToyProfile(epochs=(400.0, 2000.0))}


class Asking:
    """Asks for numbers of nodes as they were drawn, and gives its job all GPUs of the nodes that stay."""

    def __init__(self, numbers: list[int | None]) -> None:
        self.numbers = numbers
        self.seen: list[tuple[float, int, int]] = []  # time, nodes up, nodes requested before the decision

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.seen.append((view.time, len(view.gpus_per_node), view.nodes.requested))
        num_nodes = self.numbers[len(self.seen) % len(self.numbers)]
        stay = view.gpus_per_node[:num_nodes]
        placements = {job.job_id: pack(stay, min(sum(stay), 8), keep=job.placement) for job in view.jobs[:1]}
        return Decision(placements, num_nodes=num_nodes)


@given(
    st.lists(st.one_of(st.none(), st.integers(2, 6)), min_size=1, max_size=12),
    st.sampled_from([0.0, 45.0, 60.0, 130.0, 600.0]),
    st.lists(st.integers(1, 4), min_size=6, max_size=6),
)
@settings(max_examples=40)
def test_nodes_come_after_their_start_up_and_are_paid_from_request_to_release(
    numbers: list[int | None], startup: float, sizes: list[int]
) -> None:
    cluster = Cluster(tuple(sizes), least_nodes=2, startup_time=startup, node_price=36.0)
    policy = Asking(numbers)
    result = simulate(toy_workload(toy_job("a", 0, 1)), PROFILES, cluster, policy)
    # A second bookkeeping: when each requested node will be up.
    up_at, bill, since = [0.0, 0.0], 0.0, 0.0
    for (time, up, requested), record, asked in zip(
        policy.seen, every_round(result, 60.0), [numbers[(i + 1) % len(numbers)] for i in range(10**4)], strict=False
    ):
        assert time == record.time
        assert requested == len(up_at)
        assert up == sum(when <= time for when in up_at)
        bill, since = bill + len(up_at) * (time - since) / 100, time
        if asked is not None:
            up_at = up_at[:asked] + [time + startup] * (asked - len(up_at))
        assert record.nodes == sum(when <= time for when in up_at)
        assert record.hourly_cost == 36.0 * len(up_at)
        assert record.cost == pytest.approx(bill)
    summary = summarise(result)
    assert summary.cost == pytest.approx(bill + len(up_at) * (result.end_time - since) / 100)
    # Nobody has GPUs of a node that is not up.
    nodes = {record.time: record.nodes for record in every_round(result, 60.0)}
    assert all(max(change.nodes) < nodes[change.time] for change in result.allocation_records if change.time in nodes)


class Patient:
    """Asks for a second node, and says that its decision stands until that is there."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.asked.append((view.time, len(view.gpus_per_node)))
        placements = {job.job_id: ((0, 1),) for job in view.jobs}
        return Decision(placements, num_nodes=2, valid_until=inf, outdated_by=Change.NODES)


def test_a_node_that_comes_up_outdates_a_decision() -> None:
    policy = Patient()
    simulate(toy_workload(toy_job("a")), PROFILES, Cluster.elastic(2, 1, 4, 150.0, 0.0), policy)
    assert policy.asked == [(60.0, 1), (240.0, 2)]


def test_a_fixed_cluster_is_always_up_and_paid_for_as_a_whole() -> None:
    nodes = Nodes(Cluster((4, 2), node_price=1.8))
    assert (nodes.counts, nodes.present(0.0), nodes.mean_gpus(0.0, 5.0)) == (None, (4, 2), 6.0)
    assert nodes.cost(1000.0) == pytest.approx(1.0)


class Wants:
    def __init__(self, num_nodes: object, placement: object = ((0, 1),)) -> None:
        self.num_nodes, self.placement = num_nodes, placement

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        return Decision({job.job_id: self.placement for job in view.jobs}, num_nodes=self.num_nodes)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (0, "asked for 0 nodes, must be 1 to 3"),
        (4, "asked for 4 nodes, must be 1 to 3"),
        (1.5, "asked for 1.5 nodes, must be 1 to 3"),
        (True, "asked for True nodes, must be 1 to 3"),
    ],
)
def test_a_number_of_nodes_that_cannot_be_is_named(wanted: object, message: str) -> None:
    jobs = toy_workload(toy_job("a"))
    with pytest.raises(InvalidAllocationError, match=message):
        simulate(jobs, PROFILES, Cluster.elastic(3, 1, 4, 0.0, 0.0), Wants(wanted))


def test_a_fixed_cluster_does_not_change() -> None:
    with pytest.raises(InvalidAllocationError, match="asked for 2 nodes, but their number cannot change"):
        simulate(toy_workload(toy_job("a")), PROFILES, Cluster.uniform(3, 4), Wants(2))


def test_gpus_of_a_node_that_is_not_up_or_given_back_cannot_be_had() -> None:
    cluster = Cluster.elastic(3, 1, 4, 600.0, 0.0)
    with pytest.raises(InvalidAllocationError, match="node 1, must be 0 to 0"):
        simulate(toy_workload(toy_job("a")), PROFILES, cluster, Wants(2, ((1, 1),)))

    class LetsGo:
        """Keeps its job where it is, on a node that it gives back."""

        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            (job,) = view.jobs
            if job.placement == ((1, 1),):
                return Decision({job.job_id: job.placement}, num_nodes=1)
            placement = job.placement or ((0, 1),) if len(view.gpus_per_node) < 2 else ((1, 1),)
            return Decision({job.job_id: placement}, num_nodes=2)

    with pytest.raises(InvalidAllocationError, match="node 1, must be 0 to 0"):
        simulate(toy_workload(toy_job("a")), PROFILES, Cluster.elastic(3, 1, 4, 60.0, 0.0), LetsGo())


@pytest.mark.parametrize(
    "wrong",
    [{"least_nodes": 0}, {"least_nodes": 17}, {"startup_time": -1.0}, {"node_price": float("inf")}],
)
def test_an_impossible_cluster_is_named(wrong: dict[str, float]) -> None:
    (name,) = wrong
    sizes = {"num_nodes": 16, "least_nodes": 1, "gpus_per_node": 4, "startup_time": 0.0, "node_price": 1.0}
    with pytest.raises(InvalidConfigError, match=f"cluster.{name} is"):
        Cluster.elastic(**(sizes | wrong))


def test_policies_that_know_nothing_of_nodes_run_on_those_there_are() -> None:
    jobs = toy_workload(*(toy_job(f"{i}", 0, 4) for i in range(3)))
    elastic = simulate(jobs, PROFILES, Cluster.elastic(4, 1, 4, 60.0, 1.0), Fifo())
    fixed = simulate(jobs, PROFILES, Cluster.uniform(1, 4), Fifo())
    assert [job.jct for job in elastic.job_records] == [job.jct for job in fixed.job_records]


def imagenet(measure: str, profiles: dict[str, object]) -> Result:
    cluster = Cluster.elastic(16, 1, 4, 120.0, 3.912)
    return simulate(OneJob("imagenet").load(profiles), profiles, cluster, Autoscaler(measure=measure))


def stages(result: Result) -> list[int]:
    """Return the numbers of nodes that lasted longer than a quarter of an hour."""
    nodes = [record.nodes for record in every_round(result, 60.0)]
    starts = [0] + [i + 1 for i, (a, b) in enumerate(pairwise(nodes)) if a != b] + [len(nodes)]
    return [nodes[a] for a, b in pairwise(starts) if b - a > 15]


def check_figure_9(profiles: dict[str, object]) -> None:
    goodput, throughput = (imagenet(measure, profiles) for measure in ("goodput", "throughput"))
    cheap, fast = summarise(goodput), summarise(throughput)
    print(f"cost {cheap.cost / fast.cost - 1:+.1%}, time {cheap.makespan / fast.makespan - 1:+.1%}", stages(goodput))
    # In stages, and later than by throughput, which takes (nearly) all there are at once.
    assert len(stages(goodput)) >= 4
    assert stages(goodput) == sorted(stages(goodput))
    assert len(stages(throughput)) == 1
    assert cheap.cost < 0.85 * fast.cost
    assert fast.makespan < cheap.makespan < 1.2 * fast.makespan


def test_figure_9_by_cards() -> None:
    check_figure_9(ProfileFolder().load())


def test_figure_9_by_measurements(measured_profiles: dict[str, MeasuredProfile]) -> None:
    check_figure_9(measured_profiles)


@given(st.floats(0.1, 0.9), st.floats(0.1, 0.9))
def test_autoscalers_want_thresholds_in_order(aim: float, above: float) -> None:
    if aim < above:
        assert Autoscaler(aim=aim, grow_above=above).aim == aim
    else:
        with pytest.raises(InvalidConfigError, match="must be 0 < aim < grow_above"):
            Autoscaler(aim=aim, grow_above=above)


def test_start_up_time_delays_growth() -> None:
    profiles = ProfileFolder().load()
    times = []
    for startup in (0.0, 600.0):
        cluster = Cluster.elastic(8, 1, 4, startup, 1.0)
        jobs = OneJob("imagenet").load(profiles)
        result = simulate(jobs, profiles, cluster, Autoscaler(), settings=EngineSettings(horizon=4000.0))
        times.append(next(record.time for record in result.round_records if record.nodes > 1))
    assert times[1] == times[0] + 600.0
