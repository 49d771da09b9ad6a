"""Synergy: nobody is slower than with its GPUs' share, and nothing that would make somebody faster is left over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from drawn import AskedEveryRound, draws, ended
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_job, toy_workload

from polluxsim.checks.worlds import AGENTS, TYPE_SPEEDS
from polluxsim.checks.worlds import PROFILES as TOY
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.hardware.hosts import Host, shares_of, with_gpus
from polluxsim.hardware.placements import placement_from_nodes
from polluxsim.look.why.sentences import sentence
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Decision, JobSnapshot
from polluxsim.policies.ordered.attained_service import LeastAttainedService
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.sharing.muri import Muri
from polluxsim.policies.sized.synergy import Synergy, tuned
from polluxsim.workloads.synergy import models_by_task
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.contract.view import ClusterView
    from polluxsim.records.results import Result

MODELS: dict[str, dict[str, Any]] = {
    model.name: {"cpu_speeds": model.cpu_speeds, "memory_speeds": model.memory_speeds}
    for models in models_by_task().values()
    for model in models
} | {"unknown": {}}
ORDERS = {
    "fifo": Fifo,
    "srtf": Srtf,
    "las": lambda: LeastAttainedService(quantum=150.0),
    "backfill": lambda: Fifo(True),
}
NO_DELAY = EngineSettings(restart_delay=0.0)


def node(gpus: int = 8, nodes: int = 1) -> Cluster:
    """Return nodes with 3 CPUs and 62.5 GB for each GPU, at which all models have speed 1."""
    return Cluster.of_groups([{"nodes": nodes, "gpus": gpus, "cpus": 3 * gpus, "memory": 62.5 * gpus}])


def job(name: str, time: float = 0.0, gpus: int = 1, duration: float = 3600.0) -> Job:
    return Job.rigid(name, time, gpus, duration, **MODELS[name.partition("-")[0]])


@st.composite
def loads(draw: st.DrawFn) -> tuple[Cluster, Workload]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    hosts = tuple(Host(draw(st.sampled_from([2.0, 3.0, 5.5])) * gpus, 62.5 * gpus) for gpus in sizes)
    if draw(st.booleans()):
        hosts = tuple(Host(3.0 * gpus, 62.5 * gpus) for gpus in sizes)
    names = draw(st.lists(st.sampled_from(sorted(MODELS)), min_size=1, max_size=9))
    jobs = [
        job(
            f"{name}-{index}",
            draw(st.integers(0, 20)) * 50.0,
            draw(st.integers(1, sum(sizes))),
            draw(st.integers(1, 60)) * 37.5,
        )
        for index, name in enumerate(names)
    ]
    return Cluster(tuple(sizes), hosts=hosts), toy_workload(*jobs)


def under(policy: Policy, case: tuple[Cluster, Workload], rules: EngineSettings | None = None) -> Result:
    return simulate(case[1], {}, case[0], policy, settings=rules, seed=1)


@given(loads(), st.sampled_from(sorted(ORDERS)))
@draws(30)
def test_nobody_is_ever_slower_than_with_its_share(case: tuple[Cluster, Workload], order: str) -> None:
    """Nor do all have more than there is: the engine checks that."""
    cluster, workload = case
    jobs = {job.job_id: job for job in workload.jobs}
    result = under(Synergy(ORDERS[order]()), case)
    where: dict[str, tuple[int, ...]] = {}
    events = sorted(
        [*result.allocation_records, *result.host_records], key=lambda record: (record.time, hasattr(record, "speed"))
    )
    for record in events:
        if not hasattr(record, "speed"):
            where[record.job] = record.nodes
        elif (known := jobs[record.job].sensitivity) is not None:
            share = with_gpus(cluster.host_shares, tuple((each, 1) for each in where[record.job]))
            assert record.speed == known.speed(Host(record.cpus, record.memory)) >= known.speed(share)


@given(loads())
@draws(30)
def test_first_come_nobody_is_complete_later_than_with_its_share(case: tuple[Cluster, Workload]) -> None:
    """Where nobody overtakes, who is complete earlier lets nobody start later; shares are the same on all nodes."""
    cluster, workload = case
    alike = replace(cluster, hosts=tuple(Host(3.0 * gpus, 62.5 * gpus) for gpus in cluster.gpus_per_node))
    before = under(Synergy(Fifo(), "proportional"), (alike, workload))
    after = under(Synergy(Fifo()), (alike, workload))
    for slow, fast in zip(before.job_records, after.job_records, strict=True):
        assert slow.jct is not None
        assert fast.jct is not None
        assert fast.jct <= slow.jct * (1 + 1e-12)


@given(loads(), st.sampled_from(sorted(ORDERS)))
@draws(15)
def test_proportional_is_the_order_alone_and_so_is_a_cluster_that_says_nothing(
    case: tuple[Cluster, Workload], order: str
) -> None:
    cluster, workload = case
    assert under(Synergy(ORDERS[order](), "proportional"), case) == under(ORDERS[order](), case)
    silent = (replace(cluster, hosts=()), workload)
    assert under(Synergy(ORDERS[order]()), silent) == under(ORDERS[order](), silent)


@given(loads(), st.sampled_from(sorted(ORDERS)))
@draws(15)
def test_asked_at_every_round_it_decides_the_same(case: tuple[Cluster, Workload], order: str) -> None:
    assert under(AskedEveryRound(Synergy(ORDERS[order]())), case) == under(Synergy(ORDERS[order]()), case)


def snapshot(name: str, known: Sensitivity | None) -> JobSnapshot:
    return JobSnapshot(name, 0.0, 1, 1, (), 0.0, 0, 8, None, None, sensitivity=known)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(MODELS)), st.lists(st.integers(0, 2), min_size=1, max_size=4)), max_size=7
    ),
    st.sampled_from([1.0, 3.0, 4.5]),
)
def test_what_is_left_makes_nobody_faster(drawn: list[tuple[str, list[int]]], cpus: float) -> None:
    """The answer is Pareto-optimal, among those in which nobody is slower than with its share."""
    gpus = [max(sum(nodes.count(node) for _, nodes in drawn), 1) for node in range(3)]
    hosts = [Host(cpus * count, 62.5 * count) for count in gpus]
    jobs = [
        snapshot(
            f"{index}",
            Sensitivity(**{"cpus": speeds["cpu_speeds"], "memory": speeds["memory_speeds"]}) if speeds else None,
        )
        for index, speeds in enumerate(MODELS[name] for name, _ in drawn)
    ]
    placements = {f"{index}": placement_from_nodes(sorted(nodes)) for index, (_, nodes) in enumerate(drawn)}
    found = tuned(hosts, shares_of(hosts, gpus), jobs, placements)
    left = list(hosts)
    for name, host in found.items():
        for there, count in placements[name]:
            left[there] = left[there].less(host.times(count))
    assert all(min(host) >= -1e-9 * max(hosts[0]) for host in left)
    for each in jobs:
        if each.sensitivity is None:
            continue
        host = found[each.job_id]
        more = [left[there].times(1 / count) for there, count in placements[each.job_id]]
        most = Host(host.cpus + min(part.cpus for part in more), host.memory + min(part.memory for part in more))
        assert each.sensitivity.speed(most) == pytest.approx(each.sensitivity.speed(host))


def test_two_jobs_have_between_them_as_much_speed_as_brute_force_finds() -> None:
    """On one node with two GPUs, where only CPUs matter, at whole and half CPUs."""
    hosts = [Host(6.0, 125.0)]
    for one, other in product(("gnmt", "deepspeech", "res50", "mobilenet"), repeat=2):
        known = [Sensitivity(MODELS[name]["cpu_speeds"]) for name in (one, other)]
        jobs = [snapshot(name, each) for name, each in zip("ab", known, strict=True)]
        found = tuned(hosts, shares_of(hosts, [2]), jobs, {"a": ((0, 1),), "b": ((0, 1),)})
        speeds = [each.speed(found[name]) for name, each in zip("ab", known, strict=True)]
        splits = (step / 20 for step in range(1, 120))
        tried = ([known[0].speed(Host(cpus, 62.5)), known[1].speed(Host(6 - cpus, 62.5))] for cpus in splits)
        best = max(sum(pair) for pair in tried if min(pair) >= 1)
        assert sum(speeds) == pytest.approx(best, rel=0.07)


def test_a_language_model_gives_an_image_model_what_it_does_not_need() -> None:
    result = under(Synergy(Fifo()), (node(2), toy_workload(job("gnmt"), job("alexnet"))), NO_DELAY)
    found = {record.job: (record.cpus, record.speed) for record in result.host_records if record.time == 60.0}
    assert found == {"gnmt": (1.0, 1.0), "alexnet": (5.0, 1.53)}
    ends = {record.job: record.completion_time for record in result.job_records}
    assert ends == pytest.approx({"gnmt": 3660.0, "alexnet": 60.0 + 3600.0 / 1.53})


def test_a_job_goes_where_its_demand_fits_and_the_least_is_left() -> None:
    """Beside language models there are CPUs; of two such nodes, the one with fewer left."""
    jobs = [
        *(job(f"res50-{i}", 0.0) for i in range(3)),  # 4 CPUs each: nothing left for others where they are
        *(job(f"gnmt-{i}", 0.0) for i in range(6)),
        job("mobilenet-late", 100.0, 1),
    ]
    result = under(Synergy(Fifo()), (node(4, nodes=3), toy_workload(*jobs)), NO_DELAY)
    where = {record.job: record.nodes[0] for record in result.allocation_records if record.nodes}
    late = [record for record in result.host_records if record.job == "mobilenet-late"]
    assert late[0].speed == 1.55
    assert where["mobilenet-late"] != where["res50-0"]


def test_reasons_say_what_a_job_has_and_how_fast_it_is() -> None:
    result = under(Synergy(Fifo()), (node(2), toy_workload(job("gnmt"), job("alexnet"))), NO_DELAY)
    (said, *_) = [sentence(record, result.reason_texts) for record in result.reason_records if record.job == "alexnet"]
    assert "With 5 CPUs for each GPU and 0.832 times its GPUs' part of the memory, the job is 1.53 times as" in said


@dataclass
class Mapping:
    """Answers a mapping alone, as a policy may."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Any:
        return {each.job_id: ((0, 1),) for each in view.jobs}


def test_an_order_that_answers_a_mapping_will_do() -> None:
    result = under(Synergy(Mapping()), (node(2), toy_workload(job("gnmt"), job("alexnet"))))
    assert max(record.speed for record in result.host_records) == 1.53
    assert Decision({}).hosts == {}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Synergy("fifo"), "policy.order is 'fifo', must be a policy"),  # type: ignore[arg-type]
        (lambda: Synergy(Fifo(), "greedy"), "policy.allocation is 'greedy', must be one of tuned, proportional"),
        (lambda: Synergy(Muri()), "policy.order is Muri, must be a policy of whole GPUs"),
    ],
)
def test_wrong_parameters_are_one_line(make: Any, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        make()


def test_a_job_on_two_gpu_types_keeps_its_gpus_beside_a_job_with_a_larger_demand() -> None:
    types = NodeTypes([GPU_TYPES["v100"]] * 5 + [GPU_TYPES["t4"]] * 5)
    cluster = Cluster((1,) * 10, node_types=types, hosts=(Host(4.0, 32.0),) * 10)
    little: dict[str, Any] = {"cpu_speeds": ((1.0, 1.0),), "memory_speeds": ((1.0, 1.0),)}
    jobs = toy_workload(
        Job.rigid("fast", 0.0, 3, 6000.0, gpu_types=("v100",)),
        Job.rigid("slow", 0.0, 1, 6000.0, gpu_types=("t4",)),
        toy_job("mixed", 70.0, 5, cpus=5.0, memory=5.0, **little),
        toy_job("large", 71.0, 1, gpu_types=("t4",), cpu_speeds=((1.0, 0.4), (16.0, 1.0))),
    )
    profiles = {"toy": replace(TOY["toy"], type_speeds=TYPE_SPEEDS)}
    policy = Synergy(Fifo())
    scenario = Scenario(jobs, profiles, cluster, EngineSettings(), policy.traits, "synergy", AGENTS["omnilearn"])
    result = ended(Simulation(scenario), policy)
    nodes = [tuple(record.nodes) for record in result.allocation_records if record.job == "mixed" and record.nodes]
    assert nodes[0] == (3, 4, 6, 7, 8)
