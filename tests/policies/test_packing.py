"""Laws of finding GPUs: what is free is what nobody holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from drawn import begun, ended
from hypothesis import given
from hypothesis import strategies as st
from toy import toy_workload

from polluxsim.engine.futures import Fork
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Placement
from polluxsim.models.stages import Stages
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.elastic.true_times import Afs, Proportional
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Srtf
from polluxsim.policies.reserving.conservative import Conservative
from polluxsim.policies.sharing.antman import _first_with
from polluxsim.policies.sharing.muri import Muri
from polluxsim.policies.sized.themis import Themis
from polluxsim.policies.tenants.fairness import DominantResourceFairness
from polluxsim.policies.tools.free_gpus import FreeGpus, pack, remove
from polluxsim.workloads.workload import Job

nodes = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@st.composite
def nodes_with_a_job(draw: st.DrawFn) -> tuple[list[int], tuple[tuple[int, int], ...]]:
    free = draw(nodes)
    held = [(node, draw(st.integers(0, gpus))) for node, gpus in enumerate(free)]
    return free, tuple((node, gpus) for node, gpus in held if gpus)


@given(nodes)
def test_a_job_is_packed_exactly_where_there_is_room(free: list[int]) -> None:
    for wanted in range(1, sum(free) + 2):
        placement = FreeGpus(free).pack(wanted)
        assert (placement is None) == (wanted > sum(free))
        if placement is None:
            continue
        assert sum(gpus for _, gpus in placement) == wanted
        assert FreeGpus(free).has(placement)
        assert len({node for node, _ in placement}) == len(placement)
        # The emptiest nodes first: no other node could spare one of those used.
        largest = sorted(free, reverse=True)
        assert sum(largest[: len(placement) - 1]) < wanted
        assert sorted((free[node] for node, _ in placement), reverse=True) == largest[: len(placement)]


@given(nodes_with_a_job())
def test_what_is_taken_is_free_no_more_and_what_is_given_back_is(
    drawn: tuple[list[int], tuple[tuple[int, int], ...]],
) -> None:
    free, placement = drawn
    left = remove(free, placement)
    for wanted in range(1, sum(free) + 2):
        after, again = FreeGpus(free), FreeGpus(free)
        after.take(placement)
        again.take(placement)
        again.give_back(placement)
        assert after.pack(wanted) == FreeGpus(left).pack(wanted)
        assert again.pack(wanted) == FreeGpus(free).pack(wanted)


@given(nodes_with_a_job(), nodes_with_a_job())
def test_packing_one_job_after_the_other_takes_each_gpu_once(
    first: tuple[list[int], tuple[tuple[int, int], ...]], second: tuple[list[int], tuple[tuple[int, int], ...]]
) -> None:
    free, held = first
    wanted = sum(gpus for _, gpus in held)
    assert pack(free, wanted, keep=held) == (held or FreeGpus(free).pack(wanted))
    gone = second[1]
    if gone and not FreeGpus(free).has(gone):  # its nodes are gone or taken
        count = sum(gpus for _, gpus in gone)
        assert pack(free, count, keep=gone) == FreeGpus(free).pack(count)
    several, taken = FreeGpus(free), [0] * len(free)
    while (placement := several.pack(1)) is not None:
        for node, gpus in placement:
            taken[node] += gpus
    assert taken == free


def test_gpus_are_kept_on_a_node_with_enough_else_on_the_one_with_most() -> None:
    free = {0: [(0, 0)], 1: [(1, 0), (1, 1)], 2: [(2, 0), (2, 1), (2, 2)]}
    assert [_first_with(free, wanted) for wanted in (1, 2, 4)] == [free[0], free[1], free[2]]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.data())
def test_the_emptiest_node_comes_first_after_any_changes(gpus: list[int], data: st.DataObject) -> None:
    free = FreeGpus(gpus)
    held: list[Placement] = []
    for _ in range(8):
        if held and data.draw(st.booleans()):
            free.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
            continue
        expected = list(free.gpus)
        wanted = data.draw(st.integers(1, 10))
        placement = free.pack(wanted)
        if placement is None:
            assert wanted > sum(expected)
            continue
        held.append(placement)
        for node, count in placement:
            assert node == expected.index(max(expected))
            assert count == min(expected[node], wanted)
            expected[node] -= count
            wanted -= count
        assert free.gpus == expected
        assert free.total == sum(expected)


@pytest.mark.parametrize("policy", [Srtf, Tiresias, Afs, Proportional, Themis, Conservative, DominantResourceFairness])
def test_after_a_fork_from_a_policy_under_which_jobs_share_gpus_each_job_gets_whole_ones(policy: type[Policy]) -> None:
    stages = {"a": Stages(1.0, 0.9, 0.05, 0.0), "b": Stages(1.0, 0.05, 0.9, 0.0), "c": Stages(1.0, 0.2, 0.2, 0.9)}
    jobs = [Job.rigid(name, 0.0, 2, 1200.0, stages=each) for name, each in stages.items()]
    jobs += [Job.rigid("d", 0.0, 2, 6000.0)]
    cluster = Cluster.of_groups([{"nodes": 2, "gpus": 2, "cpus": 8, "memory": 64}])
    before = Muri()
    run = begun(toy_workload(*jobs), cluster, before, EngineSettings(sharing=Interleaved()))
    while (view := run.advance(120.0)) is not None:
        run.commit(before.allocate(view, run.rng))
    assert len(run.allocation) == 4  # 2 GPUs each, of 4
    made = policy()
    run.fork(Fork(120.0, replace(run.scenario, traits=traits_of(made)), has_new_policy=True))
    view = run.advance()
    assert view is not None
    run.commit(made.allocate(view, run.rng))
    if policy not in (Conservative, DominantResourceFairness):  # these do not preempt
        used = Counter[int]()
        for placement in run.allocation.values():
            used.update(dict(placement))
        assert all(gpus <= 2 for gpus in used.values())
    assert all(job.completion_time is not None for job in ended(run, made).job_records)
