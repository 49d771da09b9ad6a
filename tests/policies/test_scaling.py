"""Clusters that grow for many jobs: laws of the rules, whatever policy deals out the GPUs."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drawn import BY_CLOCK, PROFILES, AskedEveryRound, cases, draws
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_job, toy_workload

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Changes, ClusterView, Decision, JobSnapshot, NodeCounts, SharedGpus
from polluxsim.policies.elastic.cluster_size import Forecast, GoodputUse, PendingGpus, Scale, Scaled, _gains
from polluxsim.policies.elastic.estimated_times import OnlineOptimus, Slaq
from polluxsim.policies.elastic.true_times import Afs, EffectiveScaling, Optimus
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.sia.policy import Sia
from polluxsim.policies.tenants.fairness import DominantResourceFairness
from polluxsim.policies.typed.rounds import RoundsOfShares
from polluxsim.policies.typed.rules import MaxMin
from polluxsim.workloads.workload import Job, Workload

INSIDE = {
    "fifo": lambda: Fifo(backfill=True),
    "srtf": Srtf,
    "easy": Easy,
    "optimus": Optimus,
    "optimus-online": OnlineOptimus,
    "slaq": Slaq,
    "afs": Afs,
    "jsa": EffectiveScaling,
    "pollux": Pollux,
    "tiresias-l": lambda: BY_CLOCK["tiresias-l"](1.0),
    "fair-queues": lambda: BY_CLOCK["fair-queues"](1.0),
}
SCALES = {"pending": PendingGpus, "goodput": GoodputUse, "forecast": Forecast}


def scaled(inner: str, scale: str, idle_time: float, moves: bool) -> Policy:
    return Scaled(INSIDE[inner](), SCALES[scale](), idle_time, moves)


def elastic(cluster: Cluster) -> Cluster:
    """Return a cluster of like nodes that grows to as many GPUs."""
    return Cluster.elastic(cluster.num_gpus, least_nodes=1, gpus_per_node=2, startup_time=120.0, node_price=1.0)


drawn = st.tuples(
    st.sampled_from(sorted(INSIDE)), st.sampled_from(sorted(SCALES)), st.sampled_from([0.0, 300.0]), st.booleans()
)


@given(drawn, cases())
@draws(40)
def test_every_job_completes_on_the_nodes_there_are(
    how: tuple[str, str, float, bool], case: tuple[Cluster, Workload]
) -> None:
    cluster, workload = case
    policy = scaled(*how)
    result = simulate(workload, PROFILES, elastic(cluster), policy, seed=1)
    assert all(job.completion_time is not None for job in result.job_records)
    assert all(record.gpus_in_use <= 2 * record.nodes for record in result.round_records)
    again = simulate(workload, PROFILES, elastic(cluster), AskedEveryRound(scaled(*how)), seed=1)
    assert [job.completion_time for job in again.job_records] == [job.completion_time for job in result.job_records]


def test_a_gang_that_is_put_to_poor_use_gets_its_nodes_all_the_same() -> None:
    """Its third GPU adds next to nothing, but it runs on all three or on none."""
    jobs = [Job.rigid("small", 0.0, 1, 6000.0), toy_job("gang", 0.0, 6, "slow")]
    policy = Scaled(Easy(), GoodputUse(grow_above=1.0, aim=0.99), 0.0)
    result = simulate(toy_workload(*jobs), PROFILES, elastic(Cluster((2, 2, 2, 2))), policy)
    assert all(job.completion_time is not None for job in result.job_records)


def test_a_gang_under_a_policy_that_adapts_jobs_gets_the_nodes_that_it_needs() -> None:
    jobs = [Job.rigid("gang", 0.0, 5, 600.0)]
    one_node: Any = SimpleNamespace(wanted=lambda view, nodes: 1, until=lambda time: inf)
    policy = Scaled(Sia(), one_node)
    result = simulate(toy_workload(*jobs), {}, elastic(Cluster((2, 2, 2))), policy)
    assert result.job_records[0].completion_time is not None


@pytest.mark.parametrize("inner", [Fifo, Sia, DominantResourceFairness, lambda: RoundsOfShares(MaxMin())])
def test_a_named_gpu_type_counts_only_the_nodes_that_the_policy_sees(inner: Callable[[], Policy]) -> None:
    cluster = replace(elastic(Cluster((2, 2))), node_types=NodeTypes([GPU_TYPES["t4"]] * 4))
    jobs = [Job.rigid(name, 0.0, 2, 600.0) for name in "ab"]
    result = simulate(toy_workload(*jobs), {}, cluster, Scaled(inner(), PendingGpus()))
    assert all(job.completion_time is not None for job in result.job_records)


def test_one_node_is_kept_where_one_is_used_best() -> None:
    """Of its two GPUs a job uses the half that is aimed at; of four it would use a quarter."""
    jobs = [toy_job("small", 0.0, 1, "slow")]
    result = simulate(toy_workload(*jobs), PROFILES, elastic(Cluster((2, 2, 2, 2))), Scaled(Fifo(), GoodputUse(), 0.0))
    assert {record.nodes for record in result.round_records[1:]} == {1}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(1, 9)), min_size=1, max_size=8))
@draws(30)
def test_nobody_waits_longer_than_a_node_takes_to_start(given: list[tuple[int, int, int]]) -> None:
    """Where the cluster can grow enough for all, and nobody overtakes."""
    jobs = [Job.rigid(f"{i}", 90.0 * at, gpus, 100.0 * length) for i, (at, gpus, length) in enumerate(given)]
    cluster = Cluster.elastic(64, least_nodes=1, gpus_per_node=2, startup_time=180.0, node_price=1.0)
    policy = Scaled(Fifo(), PendingGpus(), 300.0)
    result = simulate(toy_workload(*jobs), {}, cluster, policy, settings=EngineSettings(restart_delay=0.0))
    # A round to be noticed, the start, and a round to be placed.
    assert all(job.queueing_delay is not None and job.queueing_delay <= 60 + 180 + 60 for job in result.job_records)


def test_idle_nodes_go_after_a_while_and_jobs_on_them_move() -> None:
    jobs = [Job.rigid("short", 0.0, 2, 600.0), Job.rigid("long", 0.0, 2, 6000.0)]
    cluster = Cluster.elastic(8, least_nodes=1, gpus_per_node=2, startup_time=60.0, node_price=3600.0)
    nodes, costs = {}, {}
    for moves in (True, False):
        policy = Scaled(Fifo(), PendingGpus(), 300.0, moves)
        result = simulate(toy_workload(*jobs), {}, cluster, policy, settings=EngineSettings(restart_delay=0.0))
        nodes[moves] = [(record.time, record.nodes) for record in result.round_records]
        summary = summarise(result)
        assert summary is not None
        costs[moves] = summary.cost
        assert result.job_records[1].num_restarts == moves
    assert nodes[True][-1][1] == 1
    assert nodes[False][-1][1] == 2
    assert costs[True] < costs[False]


def test_a_policy_that_repeats_its_decision_hears_of_nodes_that_go() -> None:
    """Nothing arrives or ends when the second node is released; the job on it has to move all the same."""
    told: list[tuple[float, bool, list[str]]] = []

    class Noting(Afs):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            told.append((view.time, view.changes.nodes, list(view.changes.evicted)))
            return super().allocate(view, rng)

    jobs = [Job.rigid("short", 0.0, 2, 600.0), Job.rigid("long", 0.0, 2, 6000.0)]
    cluster = Cluster.elastic(8, least_nodes=1, gpus_per_node=2, startup_time=60.0, node_price=1.0)
    policy = Scaled(Noting(), PendingGpus(), 300.0)
    result = simulate(toy_workload(*jobs), {}, cluster, policy, settings=EngineSettings(restart_delay=0.0))
    assert [job.num_restarts for job in result.job_records] == [0, 1]
    assert [each for each in told if each[2]] == [(960.0, True, ["long"])]


def test_a_surplus_node_shows_each_shared_gpu_once() -> None:
    """Jobs a and b share the GPU of the third node, which is surplus. It showed two GPUs, one of them free."""
    seen: list[ClusterView] = []

    class Noting(Fifo):
        def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
            seen.append(view)
            return Decision({}, others_keep=True)

    jobs = [JobSnapshot(name, 0.0, 1, 1, ((2, 1),), 0.0, 0, 1, None, None) for name in "ab"]  # type: ignore[arg-type]
    held = SharedGpus(dict.fromkeys("ab", ((2, 0),)))
    nodes = NodeCounts(requested=3, least=1, most=3, gpus_per_node=(1, 1, 1))
    view = ClusterView(0.0, (1, 1, 1), jobs, Changes(arrived=jobs), nodes=nodes, sharing=held)
    Scaled(Noting(), PendingGpus()).allocate(view, np.random.default_rng(0))
    assert (seen[0].gpus_per_node, list(seen[0].free), list(view.free)) == ((1, 1, 1), [1, 1, 0], [1, 1, 0])


def test_a_job_that_must_leave_its_nodes_gives_up_all_of_its_gpus() -> None:
    """EASY keeps running jobs. `wide` must leave node 2 and has no room then. It kept GPUs of node 1 that `new` got."""
    jobs = [toy_job("wide", 0.0, 4, "slow"), toy_job("small", 0.0, 1, "slow"), toy_job("new", 200.0, 3, "slow")]
    result = simulate(
        toy_workload(*jobs), PROFILES, elastic(Cluster((1, 3))), Scaled(Easy(), GoodputUse(), 0.0), seed=1
    )
    assert all(job.completion_time is not None for job in result.job_records)


def test_a_job_has_as_many_nodes_as_its_minimum_takes() -> None:
    jobs = [toy_job("wide", 0.0, 4, "slow", min_replicas=4)]
    for policy in (Optimus(), Pollux(), Afs()):
        scaled = Scaled(policy, GoodputUse(grow_above=1.0, aim=0.99), 0.0)
        result = simulate(toy_workload(*jobs), PROFILES, elastic(Cluster((2, 2, 2))), scaled)
        assert result.job_records[0].completion_time is not None


def test_a_forecast_has_nodes_ready_for_what_came_at_that_hour_before() -> None:
    """A burst at nine o'clock every day: from the second day on nobody waits for a node to start."""
    jobs = [Job.rigid(f"{day}-{i}", 86400.0 * day + 9 * 3600 + 60.0, 2, 300.0) for day in range(4) for i in range(6)]
    cluster = Cluster.elastic(16, least_nodes=1, gpus_per_node=2, startup_time=240.0, node_price=1.0)
    waits = {}
    for name, scale in {"pending": PendingGpus(), "forecast": Forecast(headroom=5.0)}.items():
        result = simulate(toy_workload(*jobs), {}, cluster, Scaled(Fifo(backfill=True), scale, 0.0))
        waits[name] = [
            [job.queueing_delay for job in result.job_records if job.job.startswith(f"{day}-")] for day in range(4)
        ]
    assert waits["forecast"][0] == waits["pending"][0]
    assert all(max(filter(None, day), default=0.0) >= 240.0 for day in waits["pending"])
    assert all(day == [0.0] * 6 for day in waits["forecast"][1:])


def test_goodput_decides_the_nodes_of_jobs_that_adapt() -> None:
    """Many jobs need many nodes, though each could do with few; when they are gone the nodes go too."""
    jobs = toy_workload(*(Job(f"{i}", 0.0, "toy", 1, 32) for i in range(8)))
    cluster = Cluster.elastic(8, least_nodes=1, gpus_per_node=2, startup_time=60.0, node_price=1.0)
    result = simulate(jobs, PROFILES, cluster, Scaled(Pollux(), GoodputUse(), 60.0), seed=1)
    assert max(record.nodes for record in result.round_records) > 2
    fixed = simulate(jobs, PROFILES, cluster, Pollux(), seed=1)
    assert {record.nodes for record in fixed.round_records} == {1}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Scaled("fifo", PendingGpus()),
            "policy.inner is 'fifo', must be a policy: choose one with policy@policy.inner=NAME",
        ),
        (lambda: Scaled(Fifo(), None), "policy.scale is None, must be an object with a method wanted"),
        (lambda: Scaled(Fifo(), PendingGpus(), -1.0), "policy.idle_time is -1, must be a finite number ≥ 0"),
        (lambda: Forecast(headroom=-1.0), "policy.scale.headroom"),
        (lambda: Forecast(ahead=0.0), "policy.scale.ahead is 0, must be a finite number > 0"),
        (lambda: GoodputUse(grow_above=0.4), "must be 0 < aim < grow_above ≤ 1"),
    ],
)
def test_what_cannot_be_is_named(make: object, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        make()


def test_nodes_are_not_released_while_their_use_is_too_high() -> None:
    view: Any = SimpleNamespace(jobs=[SimpleNamespace(goodput=None, num_replicas=16)])
    assert GoodputUse().wanted(view, NodeCounts(4, 1, 4, (4,) * 4)) == 4  # the use is 1 on any number of nodes
    assert GoodputUse().wanted(view, NodeCounts(4, 1, 8, (4,) * 8)) == 8  # the use is the aim


def test_gpus_beyond_the_largest_power_of_two_count() -> None:
    model = SimpleNamespace(best=lambda num_nodes, num_replicas: (float(num_replicas), 0))
    job: Any = SimpleNamespace(goodput=model, num_replicas=1, max_replicas=100)
    assert sum(_gains(job, NodeCounts(6, 1, 6, (4,) * 6))) == 24


def test_any_policy_is_chosen_inside(tmp_path, capsys) -> None:
    path = tmp_path / "w.csv"
    path.write_text("name,time,num_replicas,duration\na,0,8,600\nb,60,4,60\n")
    how = ("policy=scaled", "policy@policy.inner=srsf", "policy/scale=forecast", "policy.scale.headroom=2")
    rest = ("cluster=elastic", "workload=file", f"workload.path={path}", f"hydra.run.dir={tmp_path / 'run'}")
    assert main(["run", *how, *rest]) == 0
    assert "cost of nodes" in capsys.readouterr().out


def test_a_run_under_way_can_be_copied() -> None:
    policy = Scaled(Fifo(), Forecast())
    assert deepcopy(policy) == policy
    scale: Scale = deepcopy(policy).scale
    assert scale == Forecast()


def test_what_gpus_add_goes_by_the_nodes_that_they_take() -> None:
    """Goodput that is that of the GPUs of one node, be it on two: the second one adds nothing."""
    job = SimpleNamespace(goodput=SimpleNamespace(best=lambda nodes, gpus: (3.0 * gpus / nodes, None)), max_replicas=8)
    assert list(_gains(job, NodeCounts(1, 1, 4, (4, 4, 4, 4)))) == [1.0] * 4 + [0.0] * 4


def test_a_forecast_holds_until_an_hour_begins_or_comes_into_sight() -> None:
    scale = Forecast(ahead=600.0)
    assert [scale.until(time) for time in (0.0, 2999.0, 3000.0, 3500.0)] == [3000.0, 3000.0, 3600.0, 3600.0]


def test_each_node_is_released_after_its_own_idle_time() -> None:
    """Job a needs no node from the round at 180 s on, and job b none from 720 s on. All three nodes went at 780 s."""
    jobs = Job.rigid("a", 0.0, 4, 100.0), Job.rigid("b", 0.0, 8, 600.0), Job.rigid("c", 0.0, 4, 2000.0)
    policy, settings = Scaled(Fifo(), PendingGpus(), 600.0), EngineSettings(restart_delay=0.0)
    cluster = Cluster((4,) * 4, least_nodes=1)
    result = simulate(toy_workload(*jobs), {}, cluster, policy, settings=settings)
    nodes = [(record.time, record.nodes) for record in result.round_records]
    changes = [later for earlier, later in pairwise(nodes) if earlier[1] != later[1]]
    assert [change for change in changes if change[0] > 180.0] == [(780.0, 3), (1320.0, 1)]


def test_no_node_is_needed_while_there_are_no_jobs() -> None:
    """The use was 0 on any number of nodes, so all 4 nodes stayed."""
    view: Any = SimpleNamespace(jobs=[])
    assert GoodputUse().wanted(view, NodeCounts(4, 1, 4, (4,) * 4)) == 1
