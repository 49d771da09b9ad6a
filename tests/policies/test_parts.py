"""Policies inside policies: views are split into disjoint parts, and the decisions about them are merged."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy import toy_workload

import polluxsim
from polluxsim.common.errors import InvalidConfigError, PolluxSimError
from polluxsim.engine.scenario import Scenario, for_cluster
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.node_shapes import ConsolidatedRule, NodeRequest
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.elastic.cluster_size import PendingGpus, Scaled
from polluxsim.policies.elastic.true_times import Afs
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.tools.partitions import ByQueue, PerPartition, PerQueue
from polluxsim.policies.tools.parts import PerPart
from polluxsim.policies.tools.pools import PerType
from polluxsim.records.results import Result
from polluxsim.workloads.workload import Job, Workload

PAGE = Path(__file__).parents[2] / "docs" / "contract.md"
FOUR = Cluster((4, 4, 4, 4))
TYPES = Cluster.of_groups([[2, 4, "t4"], [2, 4, "a100-40"]])
PARTITIONS = Cluster.of_groups(
    [
        {"nodes": 2, "gpus": 4, "type": "t4", "partitions": ["vision", "speech"]},
        {"nodes": 1, "gpus": 4, "type": "a100-40", "partitions": ["vision"]},
        {"nodes": 1, "gpus": 4, "type": "a100-40", "partitions": ["other"]},
    ]
)


def jobs(*queues: str) -> Workload:
    """Return three dozen jobs in queues, which need more GPUs than there are."""
    return toy_workload(
        *(
            Job.rigid(
                f"{number}",
                45.0 * number,
                1 + number * 7 % 4,
                400.0 + 100.0 * (number * 5 % 9),
                queue=queues[number % len(queues)] or None,
                type_speeds=() if queues == ("",) else (("t4", 1.0), ("a100-40", 2.0)),
            )
            for number in range(36)
        )
    )


def nodes_of(result: Result) -> dict[str, set[int]]:
    """Return the nodes on which each job ran."""
    nodes: dict[str, set[int]] = {}
    for record in result.allocation_records:
        nodes.setdefault(record.job, set()).update(record.nodes)
    return nodes


def examples() -> dict[str, Any]:
    """Run the examples of the page in order, and return their names."""
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        exec(code, names)
    return names


def test_the_partition_of_the_page_keeps_small_and_large_jobs_apart() -> None:
    names = examples()
    workload = jobs("")
    result = simulate(workload, {}, FOUR, names["PerPart"](Easy(), names["BySize"]()))
    gpus = {job.job_id: job.num_replicas for job in workload.jobs}
    for job, nodes in nodes_of(result).items():
        assert nodes <= ({0, 1} if gpus[job] < 4 else {2, 3})
    assert {job.status for job in result.job_records} == {"completed"}
    assert traits_of(names["Mine"]()).never_preempts


def test_each_part_of_queues_is_like_a_cluster_of_its_own() -> None:
    workload = jobs("vision", "speech")
    rigid = Workload(tuple(replace(job, type_speeds=()) for job in workload.jobs))
    both = simulate(rigid, {}, FOUR, PerQueue(Fifo(), {"vision": (0, 2), "speech": (1, 3)}))
    starts = {job.job: job.start_time for job in both.job_records}
    for queue, own in (("vision", {0, 2}), ("speech", {1, 3})):
        mine = Workload(tuple(job for job in rigid.jobs if job.queue == queue))
        alone = simulate(mine, {}, Cluster((4, 4)), Fifo())
        assert {job.job: job.start_time for job in alone.job_records} == {
            job.job_id: starts[job.job_id] for job in mine.jobs
        }
        assert set.union(*(nodes_of(both)[job.job_id] for job in mine.jobs)) == own


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"vision": range(4)}, "job '1' is in queue 'speech', which has no nodes, must be one of vision"),
        ({"vision": (0, 1), "speech": (1, 2)}, "node 1 is of queue 'vision' and of queue 'speech'"),
    ],
)
def test_wrong_queues_are_one_line(nodes: dict[str, Any], words: str) -> None:
    workload = jobs("vision", "speech")
    with pytest.raises(PolluxSimError, match=words):
        simulate(workload, {}, TYPES, PerQueue(Fifo(), nodes))


def test_a_node_has_one_queue() -> None:
    with pytest.raises(InvalidConfigError, match="node 3 is of queue 'a' and of queue 'b'"):
        ByQueue({"a": [3], "b": [3]})


def test_a_run_prepares_its_policy_where_the_cluster_needs_it() -> None:
    policy = Easy()
    assert for_cluster(policy, FOUR) is policy
    typed = for_cluster(policy, TYPES)
    assert isinstance(typed, PerType)
    assert not traits_of(typed).per_type
    assert for_cluster(typed, TYPES) is typed
    parted = for_cluster(policy, PARTITIONS)
    assert isinstance(parted, PerPartition)
    assert for_cluster(parted, PARTITIONS) is parted
    assert parted.label == typed.label == "Easy"
    fifo = Fifo()
    assert for_cluster(fifo, TYPES) is fifo


def test_the_policy_of_a_started_run_is_prepared() -> None:
    run, policy = polluxsim.start(jobs("vision", "speech"), policy="easy", cluster=PARTITIONS)
    asked = []
    while (view := run.advance()) is not None:
        run.commit(policy.allocate(view, run.rng))
        asked.append(view.time)
    expected = polluxsim.simulate(jobs("vision", "speech"), policy="easy", cluster=PARTITIONS, progress=False)
    assert asked
    starts = {job.job: job.start_time for job in run.result().job_records}
    assert starts == dict(zip(expected.jobs["job"], expected.jobs["start_time"], strict=True))


@pytest.mark.parametrize("cluster", [TYPES, PARTITIONS], ids=["types", "partitions"])
@pytest.mark.parametrize(
    "make", [Easy, Afs, Fifo, lambda: Scaled(Easy(), PendingGpus())], ids=["easy", "afs", "fifo", "scaled"]
)
def test_a_copy_in_the_middle_goes_on_like_the_run(make: Any, cluster: Cluster) -> None:
    workload = jobs("vision", "speech")
    policy = for_cluster(make(), cluster)
    whole = simulate(workload, {}, cluster, make(), seed=1)
    run = Simulation(Scenario.under(policy, workload, {}, cluster, EngineSettings()), 1)
    while (view := run.advance(before=900.0)) is not None:
        run.commit(run.ask(policy, view))
    copied, its_policy = deepcopy((run, policy))
    assert run_to_end(run, policy) == whole
    assert run_to_end(copied, its_policy) == whole


class Seeing(Policy):
    """Notes what it sees of the nodes, and starts nothing."""

    def __init__(self) -> None:
        self.seen: list[tuple[tuple[int, ...], tuple[str, ...], list[str]]] = []

    def allocate(self, view: ClusterView, rng: object) -> dict[str, Any]:
        types = tuple(dict.fromkeys(name for job in view.jobs for name in job.speeds))
        self.seen.append((view.gpus_per_node, types, [job.job_id for job in view.changes.arrived]))
        return {}

    def __deepcopy__(self, memo: object) -> Seeing:
        return self


def test_a_policy_of_a_part_sees_its_nodes_types_and_arrivals_only() -> None:
    seeing = Seeing()
    workload = jobs("vision", "other")
    run = Simulation(Scenario.under(seeing, workload, {}, PARTITIONS, EngineSettings()), 1)
    view = run.advance()
    assert view is not None
    PerPartition(seeing).allocate(view, run.rng)
    arrived = [job.job_id for job in view.changes.arrived]
    mine = [job_id for job_id in arrived if int(job_id) % 2 == 0]
    others = [job_id for job_id in arrived if int(job_id) % 2]
    types = ("t4", "a100-40") if mine else ()
    assert seeing.seen == [((4, 4, 4, 0), types, mine), ((0, 0, 0, 4), ("a100-40",) if others else (), others)]


def test_shapes_within_a_part_of_a_part_are_those_of_its_nodes() -> None:
    rule = ConsolidatedRule([8, 4, 2, 2], ["a", "b", "b", "b"])
    inner = rule.within([1, 2, 3]).within([2, 3, 0])
    assert inner.shape(NodeRequest(4), "b").parts == (2, 2)
    assert rule.within([1, 2]).shape(NodeRequest(4), "b").parts == (4,)


def test_an_inner_policy_knows_that_types_are_shown_to_it_one_by_one() -> None:
    scaled = Scaled(Easy(), PendingGpus())
    assert isinstance(scaled.wrapped, PerType)
    assert not traits_of(scaled).per_type
    assert traits_of(PerPart(Fifo(), ByQueue({}))) == traits_of(Fifo())
