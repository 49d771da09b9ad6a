"""CPUs and memory of nodes: they change speeds and nothing else, and nobody has what is not there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from drawn import POLICIES, PROFILES, begun, cases, check_fork, draws, ended, failing, told
from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.errors import InvalidAllocationError, InvalidConfigError, InvalidInputError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import UNLIMITED, Host
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.models.stages import Stages
from polluxsim.policies.contract.view import Decision
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.sharing.muri import Muri
from polluxsim.records.storage import HOSTS_FILE, read_run, write_run
from polluxsim.workloads.workload import Job, Workload, read_workload, write_workload

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.policies.contract.view import ClusterView

SPEEDS: dict[str, Any] = {"cpu_speeds": ((1, 0.5), (2, 1.0), (6, 2.0)), "memory_speeds": ((8, 1.0), (16, 2.0))}
NO_DELAY = EngineSettings(restart_delay=0.0)
CLUSTER = Cluster.of_groups([{"nodes": 1, "gpus": 4, "cpus": 8, "memory": 64}])
CHOOSE_NOTHING = st.sampled_from(sorted(set(POLICIES) - {"synergy", "drf"}))


def with_hosts(cluster: Cluster, cpus: float = 2.0, memory: float = 8.0) -> Cluster:
    """Return a cluster whose nodes have so much for each GPU."""
    return replace(cluster, hosts=tuple(Host(cpus * gpus, memory * gpus) for gpus in cluster.gpus_per_node))


def sensitive(workload: Workload) -> Workload:
    return Workload(tuple(replace(job, **SPEEDS) for job in workload.jobs))


@dataclass
class Grants:
    """First come, first served, with CPUs and memory as told, from a time on [s]."""

    hosts: dict[str, Any]
    since: float = 0.0
    inner: Fifo = field(default_factory=Fifo)
    ended: set[str] = field(default_factory=set)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.ended.update(view.changes.ended)
        hosts: Any = self.hosts if view.time >= self.since else {}
        if isinstance(hosts, dict):
            hosts = {name: host for name, host in hosts.items() if name not in self.ended}
        return replace(self.inner.allocate(view, rng), hosts=hosts, valid_until=-1.0)


@given(CHOOSE_NOTHING.flatmap(lambda name: st.tuples(st.just(name), cases())))
@draws(15)
def test_at_the_share_that_speeds_are_over_nothing_changes(given: tuple[str, tuple[Cluster, Workload]]) -> None:
    """Neither where the cluster says nothing, nor where each GPU's share is that at which jobs were measured."""
    name, (cluster, workload) = given
    plain = simulate(workload, PROFILES, cluster, POLICIES[name](), seed=1)
    assert simulate(sensitive(workload), PROFILES, cluster, POLICIES[name](), seed=1) == plain
    known = simulate(sensitive(workload), PROFILES, with_hosts(cluster), POLICIES[name](), seed=1)
    assert replace(known, host_records=()) == plain
    assert {record[2:] for record in known.host_records} == {(2.0, 8.0, 1.0)}


@given(CHOOSE_NOTHING.flatmap(lambda name: st.tuples(st.just(name), cases())), st.sampled_from([0.5, 1.0, 3.0, 9.0]))
@draws(10)
def test_a_fork_goes_on_alike(given: tuple[str, tuple[Cluster, Workload]], cpus: float) -> None:
    name, (cluster, workload) = given
    rich = with_hosts(cluster, cpus, 16.0)
    run, policy = begun(sensitive(workload), rich, POLICIES[name]()), POLICIES[name]()
    whole = told(ended(begun(sensitive(workload), rich, POLICIES[name]()), POLICIES[name]()))
    for _ in range(2):
        if (view := run.advance()) is not None:
            run.commit(policy.allocate(view, run.rng))
    check_fork(run, policy, whole)


@pytest.mark.parametrize(
    ("cpus", "memory", "speed"), [(1, 64, 0.5), (0.5, 64, 0.25), (6, 64, 2.0), (6, 12, 1.5), (4, 8, 1.0)]
)
def test_a_job_is_as_fast_as_the_lesser_curve_says(cpus: float, memory: float, speed: float) -> None:
    cluster = with_hosts(Cluster((1,)), cpus, memory)
    (job,) = simulate(toy_workload(Job.rigid("one", 0.0, 1, 6000.0, **SPEEDS)), {}, cluster, Fifo()).job_records
    assert job.jct == pytest.approx(60.0 + 30.0 + 6000.0 / speed)
    profiled = Job("one", 0.0, "toy", 1, 10, **SPEEDS)
    plain = simulate(toy_workload(toy_job("one")), PROFILES, Cluster((1,)), Fifo()).job_records[0].jct
    with_cpus = simulate(toy_workload(profiled), PROFILES, cluster, Fifo()).job_records[0].jct
    assert plain is not None
    assert with_cpus == pytest.approx(90.0 + (plain - 90.0) / speed)


def test_an_application_says_how_fast_it_is_and_a_job_says_otherwise() -> None:
    class Known(ToyProfile):
        sensitivity = Sensitivity(((2, 1.0), (4, 2.0)))

    cluster = with_hosts(Cluster((2,)), 4.0)
    jobs = toy_workload(toy_job("says-nothing"), toy_job("says", cpu_speeds=((4, 0.5),)))
    result = simulate(jobs, {"toy": Known()}, cluster, Fifo())
    assert [record.speed for record in result.host_records] == [2.0, 0.5]


def test_new_cpus_count_from_the_round_on_and_are_no_restart() -> None:
    jobs = toy_workload(Job.rigid("slow", 0.0, 1, 1200.0, **SPEEDS), Job.rigid("fast", 0.0, 1, 1200.0, **SPEEDS))
    grants = {"slow": Host(1.0, 8.0), "fast": Host(6.0, 16.0)}
    result = simulate(jobs, {}, CLUSTER, Grants(grants, since=660.0), settings=NO_DELAY)
    # Both do 600 s of work until 660 s; then one goes on at half the speed, the other at twice it.
    assert [job.completion_time for job in result.job_records] == [660.0 + 1200.0, 660.0 + 300.0]
    assert [job.num_restarts for job in result.job_records] == [0, 0]
    assert [(record.time, record.job, record.speed) for record in result.host_records] == [
        (60.0, "slow", 1.0), (60.0, "fast", 1.0), (660.0, "slow", 0.5), (660.0, "fast", 2.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ({"one": Host(7, 8)}, r"over-allocated node 0: jobs would hold 9 CPUs and 24 GB, the node has 8 and 64"),
        ({"one": Host(1, 60)}, "over-allocated node 0"),
        ({"other": Host(1, 1)}, "job 'other', which holds no GPUs"),
        ({"one": Host(0, 1)}, "granted job 'one' .* must be numbers > 0"),
        ({"one": (1, float("inf"))}, "must be numbers > 0"),
        ({"one": 3}, "must be numbers > 0"),
        ([1], "must be a mapping"),
    ],
)
def test_what_is_not_there_cannot_be_granted(hosts: Any, words: str) -> None:
    jobs = toy_workload(Job.rigid("one", 0.0, 1, 60.0), Job.rigid("two", 0.0, 1, 60.0))
    with pytest.raises(InvalidAllocationError, match=words):
        simulate(jobs, {}, CLUSTER, Grants(hosts))


@pytest.mark.parametrize("host", [Host(1, 33), Host(5, 1)])
def test_what_is_granted_is_for_each_gpu(host: Host) -> None:
    """Two GPUs with 33 GB each need 66 of 64."""
    with pytest.raises(InvalidAllocationError, match="over-allocated node 0"):
        simulate(toy_workload(Job.rigid("one", 0.0, 2, 60.0)), {}, CLUSTER, Grants({"one": host}))


def test_a_grant_may_have_numbers_of_numpy() -> None:
    jobs = toy_workload(Job.rigid("one", 0.0, 1, 600.0, **SPEEDS))
    plain, numpy = (
        simulate(jobs, {}, CLUSTER, Grants({"one": grant}))
        for grant in (Host(2.0, 8.0), (np.float64(2.0), np.float32(8.0)))
    )
    assert plain == numpy


def test_nothing_is_granted_where_the_cluster_does_not_say() -> None:
    with pytest.raises(InvalidAllocationError, match="does not say what its nodes have"):
        simulate(toy_workload(Job.rigid("one", 0.0, 1, 60.0)), {}, Cluster((1,)), Grants({"one": Host(1, 1)}))


def test_a_job_on_several_nodes_has_what_the_poorest_has() -> None:
    cluster = Cluster.of_groups([{"nodes": 1, "gpus": 1, "cpus": 6}, {"nodes": 1, "gpus": 1, "cpus": 1}])
    job = Job.rigid("wide", 0.0, 2, 600.0, cpu_speeds=SPEEDS["cpu_speeds"])
    (record,) = simulate(toy_workload(job), {}, cluster, Fifo()).host_records
    assert record[2:] == (1.0, UNLIMITED, 0.5)


def test_jobs_on_one_gpu_have_their_parts_of_its_share() -> None:
    jobs = [Job.rigid(f"{i}", 0.0, 1, 600.0, stages=Stages(1.0, 0.3, 0.3, 0.3), **SPEEDS) for i in range(2)]
    rules = EngineSettings(sharing=Interleaved(), restart_delay=0.0)
    result = simulate(toy_workload(*jobs), {}, with_hosts(Cluster((1,)), 2.0, 16.0), Muri(), settings=rules)
    assert {record[2:] for record in result.host_records if record.time == 60.0} == {(1.0, 8.0, 0.5)}


def test_who_loses_its_node_has_its_share_again_when_it_is_back() -> None:
    cluster = with_hosts(failing((0, 300.0, 120.0), nodes=1), 6.0, 16.0)
    job = Job.rigid("one", 0.0, 1, 1200.0, **SPEEDS)
    result = simulate(toy_workload(job), {}, cluster, Grants({}), settings=NO_DELAY)
    assert result.job_records[0].completion_time == pytest.approx(420.0 + 600.0)  # all is lost that was not saved


def test_a_folder_has_a_table_of_cpus_where_they_are_known(tmp_path: Path) -> None:
    jobs = toy_workload(Job.rigid("one", 0.0, 1, 600.0, **SPEEDS))
    known, plain = (simulate(jobs, {}, cluster, Fifo()) for cluster in (CLUSTER, Cluster((4,))))
    assert len(plain.host_records) == 0
    write_run(tmp_path, known, {"seed": 0})
    assert [tuple(record) for record in read_run(tmp_path).result.host_records] == [(60.0, "one", 2.0, 16.0, 1.0)]
    write_run(tmp_path, plain, {"seed": 0})
    assert not (tmp_path / HOSTS_FILE).exists()
    assert read_run(tmp_path).result.host_records == ()


def test_clusters_say_what_nodes_have_in_groups_that_make_them_again() -> None:
    groups = [{"nodes": 2, "gpus": 8, "type": "v100", "cpus": 24, "memory": 500}, [1, 4, "t4", {"cpus": 48}]]
    cluster = Cluster.of_groups(groups)
    assert cluster.hosts == (Host(24, 500), Host(24, 500), Host(48, UNLIMITED))
    assert Cluster.of_groups(cluster.groups) == cluster
    assert Cluster.of_groups([{"nodes": 1, "gpus": 2, "memory": 8}]).hosts == (Host(UNLIMITED, 8),)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([{"nodes": 1, "gpus": 4, "cpus": 0}], "cpus of a node of the cluster is 0, must be a number > 0"),
        ([{"nodes": 1, "gpus": 4, "memory": "8"}], "memory of a node of the cluster is '8'"),
        ([{"nodes": 1, "gpus": 4, "cpus": True}], "cpus of a node of the cluster is True"),
        ([[1, 4, None, {"cores": 4}]], "must be {cpus: …, memory: …}"),
        ([{"nodes": 1, "gpus": 4, "cpus": 4}, [1, 4]], "CPUs of 1 nodes, must state those of all 2 nodes, or none"),
    ],
)
def test_wrong_cpus_of_nodes_are_one_line(groups: Any, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        Cluster.of_groups(groups)


def test_a_workload_file_says_cpus_memory_and_speeds(tmp_path: Path) -> None:
    jobs = (Job.rigid("one", 0.0, 2, 60.0, cpus=8.0, memory=32.5, **SPEEDS), Job.rigid("two", 1.0, 1, 60.0))
    write_workload(Workload(jobs), tmp_path / "jobs.csv")
    one, two = read_workload(tmp_path / "jobs.csv").jobs
    assert (one.host, one.sensitivity) == (Host(4.0, 16.25), Sensitivity(SPEEDS["cpu_speeds"], SPEEDS["memory_speeds"]))
    assert (two.host, two.sensitivity) == (None, None)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("cpu_speeds", "1:2;2:1", "column 'cpu_speeds' is '1:2;2:1', must be pairs of an amount"),
        ("memory_speeds", "1", "amount:speed pairs"),
        ("cpus", "0", "must be a number above 0"),
    ],
)
def test_wrong_cpus_of_jobs_are_one_line(tmp_path: Path, column: str, value: str, words: str) -> None:
    (tmp_path / "jobs.csv").write_text(f"name,time,num_replicas,duration,{column}\none,0,1,60,{value}\n")
    with pytest.raises(InvalidInputError, match=words):
        read_workload(tmp_path / "jobs.csv")
