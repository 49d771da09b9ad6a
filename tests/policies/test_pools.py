"""Every policy on clusters of several GPU types: it works or says in a line why not; each type is a pool of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import inf

import pytest
from drawn import POLICIES, AskedEveryRound, check_fork, draws, ended, go_on, policy_config, told
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.shipped import shipped
from polluxsim.engine.scenario import Scenario, for_cluster
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved
from polluxsim.engine.simulation import Simulation, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.hardware.placements import Allocation, packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.elastic.true_times import Afs
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.policies.tools.pools import ByType, PerType
from polluxsim.records.results import Result, Status
from polluxsim.run.building import build
from polluxsim.run.composing import composed
from polluxsim.workloads.workload import Job, Workload

SPEEDS = {"t4": 1.0, "rtx2080ti": 2.0, "a100-40": 8.0, "v100": 4.0, "p100": 2.0, "k80": 1.0}
REFUSED = {"autoscale-goodput", "autoscale-throughput"}
CONFIGS = sorted(path.stem for path in (shipped("configs") / "policy").glob("*.yaml"))
RULES = EngineSettings(sharing=Interleaved())


@dataclass(frozen=True)
class TypedToy(ToyProfile):
    """A toy that trains on every type, as many times as fast as `SPEEDS` has it."""

    @property
    def by_type(self) -> dict[str, ToyProfile]:
        return {name: ToyProfile(self.name, self.seconds / speed, self.epochs) for name, speed in SPEEDS.items()}


@cache
def cluster_of(name: str) -> Cluster:
    cluster: Cluster = build(composed({"cluster": name}, {}, 0).config, "cluster")
    return cluster


def jobs_on(cluster: Cluster, *, rigid: bool) -> Workload:
    """Return two dozen jobs, some of them for one type or two, and more GPUs than there are in all."""
    types, jobs = list(cluster.types), list[Job]()
    for number in range(24):
        kinds = ({}, {"gpu_types": (types[number % 3],)}, {"gpu_types": tuple(types[:2])})
        said = {"user": "ab"[number % 2], "deadline": 9e4, **kinds[number % 4 % 3]}
        gpus = 1 + number * 7 % 8
        if rigid:
            speeds = tuple((name, SPEEDS[name]) for name in said.get("gpu_types", types))
            jobs.append(Job.rigid(f"{number}", 20.0 * number, gpus, 900.0, type_speeds=speeds, **said))
        else:
            jobs.append(toy_job(f"{number}", 20.0 * number, gpus, **said))
    return toy_workload(*jobs)


@pytest.mark.parametrize("cluster_name", ["sia-64", "gavel-36"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_policy_works_on_several_gpu_types_or_says_why_not(name: str, cluster_name: str) -> None:
    config, cluster = policy_config(name), cluster_of(cluster_name)
    if "???" in config.values():  # a recorded run, which says itself who gets what
        assert name == "replay"
        return
    policy: Policy = instantiate(config)
    rigid = not traits_of(policy).needs_profiles
    workload, profiles = jobs_on(cluster, rigid=rigid), {"toy": TypedToy(epochs=(100.0, 400.0))}
    if name in REFUSED:
        there = ", ".join(cluster.types)
        words = f"policy Autoscaler knows one GPU type, as it gives one job all nodes; the cluster has {there}"
        with pytest.raises(InvalidConfigError, match=words):
            simulate(workload, profiles, cluster, policy, settings=RULES)
        return
    result = simulate(workload, profiles, cluster, policy, settings=RULES)
    assert not [job.job for job in result.job_records if job.jct is None and job.status is not Status.REJECTED]
    allowed = {job.job_id: job.gpu_types or tuple(cluster.types) for job in workload.jobs}
    for record in result.allocation_records:
        assert {cluster.node_types[node].name for node in record.nodes} <= set(allowed[record.job])
    assert len({cluster.node_types[n].name for r in result.allocation_records for n in r.nodes}) == 3


# Those that ask for each type by itself, and count nothing over the cluster.
PER_TYPE = [name for name, make in POLICIES.items() if traits_of(make()).per_type and name != "quotas"]
TWO = [[2, 4, "t4"], [1, 4, "a100-40"]]


@st.composite
def loads(draw: st.DrawFn, *, bound: bool, rigid: bool, only_rigid: bool = False) -> Workload:
    """Return some jobs, each bound to one of the two types, or to none; rigid ones are as fast on both."""
    jobs = []
    for number in range(draw(st.integers(1, 7))):
        types = (draw(st.sampled_from(["t4", "a100-40"])),) if bound or draw(st.booleans()) else ()
        gpus, time = draw(st.integers(1, 4)), 25.0 * draw(st.integers(0, 40))
        said = {"gpu_types": types, "deadline": draw(st.sampled_from([None, 400.0, 1500.0]))}
        if only_rigid or (rigid and draw(st.booleans())):
            jobs.append(Job.rigid(f"j{number}", time, gpus, 12.5 * draw(st.integers(1, 80)), **said))
        else:
            jobs.append(toy_job(f"j{number}", time, gpus, draw(st.sampled_from(["toy", "slow"])), **said))
    return Workload(tuple(sorted(jobs, key=lambda job: job.submit_time)))


def typed_loads(names: list[str], *, bound: bool) -> st.SearchStrategy[tuple[str, Workload]]:
    return st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), loads(bound=bound, rigid=not traits_of(POLICIES[name]()).needs_profiles))
    )


PROFILES = {"toy": TypedToy(epochs=(100.0, 600.0)), "slow": TypedToy("slow", 4.0, (100.0, 200.0))}


def test_these_are_asked_for_each_type_by_itself() -> None:
    assert set(PER_TYPE) == {
        "afs", "jsa", "proportional", "themis", "optimus", "elastic-edf", "elasticflow", "easy", "conservative",
        "optimus-online", "slaq",
    }  # fmt: skip


@given(typed_loads(PER_TYPE, bound=True))
@draws(75)
def test_jobs_bound_to_types_run_as_on_a_cluster_of_each_type_alone(given: tuple[str, Workload]) -> None:
    name, workload = given
    both = simulate(workload, PROFILES, Cluster.of_groups(TWO), POLICIES[name](), seed=1)
    done = {
        job.job: (job.start_time, job.completion_time, job.gpu_seconds, job.num_restarts) for job in both.job_records
    }
    for group in TWO:
        here = tuple(job for job in workload.jobs if job.gpu_types == (group[2],))
        if here:
            alone = simulate(Workload(here), PROFILES, Cluster.of_groups([group]), POLICIES[name](), seed=1)
            for job in alone.job_records:
                assert done[job.job] == (job.start_time, job.completion_time, job.gpu_seconds, job.num_restarts)


@given(typed_loads([*PER_TYPE, "multifactor"], bound=False))
@draws(50)
def test_to_ask_at_every_round_changes_nothing_on_several_types_either(given: tuple[str, Workload]) -> None:
    name, workload = given
    cluster = Cluster.of_groups(TWO)
    once = simulate(workload, PROFILES, cluster, POLICIES[name](), seed=1)
    assert once == simulate(workload, PROFILES, cluster, AskedEveryRound(POLICIES[name]()), seed=1)


@given(typed_loads([*PER_TYPE, "multifactor"], bound=False), st.integers(0, 15), st.booleans())
@draws(30)
def test_a_copy_of_pools_goes_on_like_the_first(given: tuple[str, Workload], turns: int, look: bool) -> None:
    name, workload = given
    cluster = Cluster.of_groups(TWO)
    policy, other = for_cluster(POLICIES[name](), cluster), for_cluster(POLICIES[name](), cluster)

    def begun() -> Simulation:
        return Simulation(Scenario.under(policy, workload, PROFILES, cluster, EngineSettings()), 1)

    uninterrupted = told(ended(begun(), other))
    run = begun()
    go_on(run, policy, turns, look=look)
    check_fork(run, policy, uninterrupted)


def where(result: Result, cluster: Cluster) -> dict[str, str]:
    """Return the type that each job ran on."""
    return {r.job: cluster.node_types[r.nodes[0]].name for r in result.allocation_records if r.nodes}


def queue_of_twelve() -> tuple[Workload, Cluster]:
    cluster = Cluster.of_groups([[2, 4, "t4"], [1, 1, "a100-40"]])
    jobs = [Job.rigid(f"{n}", 0.0, 1, 600.0, type_speeds=(("t4", 1.0), ("a100-40", 8.0))) for n in range(12)]
    return toy_workload(*jobs), cluster


def test_a_job_goes_where_it_is_soonest_done_if_gpus_are_shared_in_proportion() -> None:
    """The a100 is eight times as fast: with the eighth job it is no better, and the first type of the cluster goes."""
    workload, cluster = queue_of_twelve()
    run = Simulation(Scenario.under(Easy(), workload, {}, cluster, EngineSettings()), 1)
    view = run.advance()
    assert view is not None
    pools = ByType(stays=lambda job: True)
    pools.parts(view)
    assert [pools.of(f"{n}") for n in range(12)] == ["a100-40"] * 7 + ["t4"] * 5


@pytest.mark.parametrize("clock", [1.0, 3.0, 0.1, 1 / 7, 1 / 3])
def test_the_unit_of_time_decides_no_tie_between_types(clock: float) -> None:
    """With ten jobs for its GPU, a type that is ten times as fast is as good as an idle one; the first type goes."""
    cluster = Cluster((1, 1), node_types=NodeTypes([GPU_TYPES["t4"], GPU_TYPES["v100"]]))
    for duration in range(10, 200, 10):
        jobs = [Job.rigid(f"{n}", 0.0, 1, duration * clock, gpu_types=("v100",)) for n in range(9)]
        speeds = (("t4", 0.3), ("v100", 3.0))
        jobs.append(Job.rigid("last", 0.0, 1, duration * clock, type_speeds=speeds))
        run = Simulation(Scenario.under(Easy(), Workload(tuple(jobs)), {}, cluster, EngineSettings()), 1)
        view = run.advance()
        assert view is not None
        pools = ByType()
        pools.parts(view)
        assert pools.of("last") == "t4"


def test_a_job_that_waits_goes_on_to_a_type_with_gpus_to_spare_if_it_is_sooner_done_there() -> None:
    """Nine of ten on the a100 wait; while these are more than eight times its GPUs, the last go to the t4s."""
    workload, cluster = queue_of_twelve()
    jobs = [replace(job, gpu_types=("a100-40",)) for job in workload.jobs[:9]]
    last = replace(workload.jobs[9], submit_time=30.0)
    result = simulate(Workload((*jobs, last)), {}, cluster, Easy())
    assert where(result, cluster)["9"] == "t4"
    fewer = simulate(Workload((*jobs[:5], last)), {}, cluster, Easy())
    assert where(fewer, cluster)["9"] == "a100-40"


def test_nobody_is_sent_on_to_gpus_that_a_job_of_theirs_waits_for() -> None:
    """With nine before it on the a100, the sixth would be sooner done on the t4; that is idle, but one came for it."""
    both = (("t4", 1.0), ("a100-40", 8.0))
    jobs = [Job.rigid(f"{n}", 0.0 if n < 6 else 90.0, 1, 6000.0, type_speeds=both) for n in range(10)]
    bound = [job if job.job_id == "5" else replace(job, gpu_types=("a100-40",)) for job in jobs]
    cluster, kinds = Cluster.of_groups([[1, 1, "t4"], [1, 1, "a100-40"]]), []
    for came in ([], [Job.rigid("own", 90.0, 1, 6000.0, type_speeds=both, gpu_types=("t4",))]):
        policy, pools = for_cluster(Easy(), cluster), ByType()
        run = Simulation(Scenario.under(policy, Workload((*bound, *came)), {}, cluster, EngineSettings()), 1)
        while (view := run.advance()) is not None and view.time <= 120.0:
            pools.parts(view)
            run.commit(policy.allocate(view, run.rng))
        kinds.append(pools.of("5"))
    assert kinds == ["t4", "a100-40"]


@given(st.sampled_from(["easy", "conservative", "multifactor"]), loads(bound=False, rigid=True, only_rigid=True))
@draws(40)
def test_nobody_waits_alone_while_enough_gpus_of_a_type_that_it_can_use_are_idle(name: str, workload: Workload) -> None:
    """At rounds at which something happened; where one waits only, as else it may be somebody's turn before."""
    cluster = Cluster.of_groups(TWO)
    policy = for_cluster(POLICIES[name](), cluster)
    run = Simulation(Scenario.under(policy, workload, PROFILES, cluster, EngineSettings()), 1)
    while (view := run.advance()) is not None:
        happened = view.changes.arrived or view.changes.ended
        run.commit(policy.allocate(view, run.rng))
        if happened and len(run.waiting) == 1:
            types = next(job.gpu_types for job in workload.jobs if job.job_id == run.waiting[0]) or ("t4", "a100-40")
            asked = next(job.num_replicas for job in workload.jobs if job.job_id == run.waiting[0])
            held = [node for placement in run.allocation.values() for node, gpus in placement for _ in range(gpus)]
            idle = {"t4": 8 - sum(node < 2 for node in held), "a100-40": 4 - held.count(2)}
            assert all(idle[gpu_type] < asked for gpu_type in types)


class TwoGpus:
    """A policy of a user's, which gives every job two GPUs of the first node with room."""

    def allocate(self, view: ClusterView, rng: object) -> Allocation:
        free, given = list(view.gpus_per_node), {}
        for job in view.jobs:
            if (node := next((node for node, gpus in enumerate(free) if gpus >= 2), None)) is not None:
                free[node] -= 2
                given[job.job_id] = ((node, 2),)
        return given


def test_a_policy_of_ones_own_is_asked_for_each_type_where_it_says_so() -> None:
    cluster = Cluster.of_groups(TWO)
    jobs = [Job.rigid(f"{n}", 0.0, 2, 300.0, gpu_types=(name,)) for n, name in enumerate(("a100-40", "t4", "a100-40"))]
    result = simulate(toy_workload(*jobs), {}, cluster, PerType(TwoGpus()))
    assert where(result, cluster) == {"0": "a100-40", "1": "t4", "2": "a100-40"}


def test_quotas_are_those_of_each_type() -> None:
    """Vision owns the a100s: its second job takes one back from speech, whose own are t4s."""
    cluster = Cluster.of_groups([[1, 2, "t4"], [1, 2, "a100-40"]])
    kind = {"gpu_types": ("a100-40",)}
    jobs = [
        Job.rigid("borrower", 0.0, 2, 900.0, queue="speech", **kind),
        Job.rigid("owner", 120.0, 1, 300.0, queue="vision", **kind),
        Job.rigid("other", 120.0, 2, 300.0, queue="speech", gpu_types=("t4",)),
    ]
    policy = Quotas({"vision": {"a100-40": 2}, "speech": {"t4": 2}})
    result = simulate(toy_workload(*jobs), {}, cluster, policy, settings=EngineSettings(restart_delay=0.0))
    start = {job.job: (job.start_time, job.num_restarts) for job in result.job_records}
    assert start == {"borrower": (60.0, 1), "owner": (120.0, 0), "other": (120.0, 0)}


@pytest.mark.parametrize("limits", ["borrowing_limits", "lending_limits"])
def test_a_limit_on_one_type_does_not_limit_other_types(limits: str) -> None:
    cluster = Cluster.of_groups([[1, 2, "t4"], [1, 2, "a100-40"]])
    wide = Job.rigid("wide", 0.0, 2, 900.0, queue="vision", gpu_types=("a100-40",))
    owner = Job.rigid("owner", 3600.0, 1, 60.0, queue="speech")
    each = {queue: {"t4": 0} for queue in ("vision", "speech")}
    policy = Quotas({"speech": {"a100-40": 1}}, **{limits: each})
    result = simulate(toy_workload(wide, owner), {}, cluster, policy)
    assert result.job_records[0].start_time == 60.0


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        (
            {"vision": 2},
            r"policy\.gpus\.vision is 2, but the cluster has several GPU types; give a number for each of t4, a",
        ),
        ({"vision": {"h100": 2}}, r"policy\.gpus\.vision is .*, but the cluster has several"),
        ({"vision": {"t4": -1}}, r"policy\.gpus\.vision\.t4 is -1, must be a whole number ≥ 0"),
    ],
)
def test_wrong_quotas_are_one_line(gpus: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        simulate(toy_workload(toy_job("a")), PROFILES, Cluster.of_groups(TWO), Quotas(gpus))


def test_quotas_of_more_gpus_than_there_are_of_a_type_are_one_line() -> None:
    message = r"policy\.gpus comes to 9 GPUs of t4, but the cluster has 8; reduce the quotas"
    with pytest.raises(InvalidConfigError, match=message):
        Quotas({"vision": {"t4": 9}}).without_effect([], Cluster.of_groups(TWO))


def test_fair_share_counts_over_all_types() -> None:
    """Ada used t4s, so that Bob's job goes first on the a100s, though Ada's came before."""
    cluster = Cluster.of_groups([[1, 4, "t4"], [1, 1, "a100-40"]])
    fast = {"gpu_types": ("a100-40",)}
    jobs = [
        Job.rigid("past", 0.0, 4, 900.0, user="ada", gpu_types=("t4",)),
        Job.rigid("first", 0.0, 1, 600.0, user="eve", **fast),
        Job.rigid("ada", 60.0, 1, 300.0, user="ada", **fast),
        Job.rigid("bob", 120.0, 1, 300.0, user="bob", **fast),
    ]
    result = simulate(toy_workload(*jobs), {}, cluster, Multifactor(age=0.0))
    starts = {job.job: job.start_time for job in result.job_records}
    assert starts["bob"] < starts["ada"]


def test_a_type_whose_nodes_are_down_is_sent_nobody() -> None:
    """A view made by hand, of which the fastest type has no node that is up."""
    cluster = Cluster.of_groups(TWO)
    policy, job = Afs(), toy_job("a", 0.0, 2)
    run = Simulation(Scenario.under(policy, toy_workload(job), PROFILES, cluster, EngineSettings()), 1)
    view = run.advance()
    assert view is not None
    pools = ByType()
    parts = pools.parts(replace(view, gpus_per_node=(4, 4, 0)))
    assert pools.of("a") == "t4"
    assert [part.num_gpus for part in parts.values()] == [8, 0]


@dataclass
class OneTypeEach:
    """Quotas by which each job can only use one type."""

    types: dict[str, str]
    takes_back = False

    def quota_of(self, queue: str | None, gpu_type: str) -> int:
        return 0

    def can_ever_hold(self, job: JobView, gpu_type: str, num_gpus: float = inf) -> bool:
        return gpu_type == self.types[job.job_id]


def test_the_time_left_is_that_on_the_largest_nodes_that_are_up() -> None:
    """It counts the nodes of all types, and in a pool those of its type; the two types have unlike speeds."""
    cluster = Cluster.of_groups([[1, 4, "t4"], [2, 2, "a100-40"]])
    policy = Afs()
    workload = toy_workload(toy_job("a", 0.0, 4), toy_job("b", 0.0, 2))
    run = Simulation(Scenario.under(policy, workload, PROFILES, cluster, EngineSettings()), 1)
    view = run.advance()
    assert view is not None
    pools = ByType(OneTypeEach({"a": "a100-40", "b": "t4"}))
    seen = [(view, job) for job in view.jobs]
    seen += [(part, job) for part in pools.parts(view).values() for job in part.jobs]
    for part, job in seen:
        choice = split_batch_size(job.oracle.application, job.batch_size, job.num_replicas)
        shape = packed(job.num_replicas, part.node_size)
        assert job.oracle.time_left(job.num_replicas) == job.oracle.remaining_time(shape, choice)
    assert [(job.job_id, part.node_size) for part, job in seen] == [("a", 4), ("b", 4), ("b", 4), ("a", 2)]
