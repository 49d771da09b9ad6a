"""Gandiva's jobs grow onto GPUs of their node that stay idle, and give them back at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from drawn import AskedEveryRound, begun, check_fork, draws, ended, go_on, told
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.models.stages import Stages
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from polluxsim.records.results import Result

SPEEDS = ((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (8, 8.0))
LOADS = Stages(1.0, 0.9, 0.05, 0.0)
FREE = EngineSettings(restart_delay=0.0)


def grows(name: str, at: float, duration: float, gpus: int = 1, **options: Any) -> Job:
    return Job.rigid(name, at, gpus, duration, **{"speeds": SPEEDS, **options})


def run(*jobs: Job, grow_after: float | None = 300.0, nodes: int = 1, packing: bool = False) -> Result:
    rules = EngineSettings(restart_delay=0.0, sharing=Interleaved()) if packing else FREE
    policy = Gandiva(packing=packing, grow_after=grow_after)
    return simulate(Workload(jobs), {}, Cluster.uniform(nodes, 4), policy, settings=rules)


def held(result: Result, name: str) -> list[tuple[float, int]]:
    return [(row.time, sum(row.gpus)) for row in result.allocation_records if row.job == name]


@pytest.mark.parametrize("packing", [False, True])
def test_a_job_grows_after_the_time_and_shrinks_as_another_comes_by_hand(packing: bool) -> None:
    """Four GPUs; `a` has one, all of them 300 s later, and gives back three as `b` comes, which asks for three."""
    result = run(grows("a", 0.0, 2000.0), Job.rigid("b", 590.0, 3, 300.0), packing=packing)
    # 300 s with one GPU, 240 s with four: 1,260 s of work at 600 s, 300 s beside `b`, and 300 s until it grows again.
    assert held(result, "a") == [(60, 1), (360, 4), (600, 1), (1200, 4), (1235, 0)]
    assert held(result, "b") == [(600, 3), (900, 0)]


@pytest.mark.parametrize("packing", [False, True])
def test_only_who_says_so_grows_up_to_what_it_says_on_its_own_node(packing: bool) -> None:
    """Two nodes of four: a gang does not, nor does who has GPUs on both, and another only up to three."""
    gang, least = Job.rigid("gang", 0.0, 1, 3000.0), grows("least", 0.0, 6000.0, max_replicas=3)
    result = run(gang, least, nodes=2, packing=packing)
    assert [gpus for _, gpus in held(result, "gang")] == [1, 0]
    assert [gpus for _, gpus in held(result, "least")] == [1, 3, 0]
    assert len({row.nodes for row in result.allocation_records if row.job == "least" and row.nodes}) == 1
    wide = run(grows("wide", 0.0, 3000.0, 6, speeds=((6, 1.0), (8, 1.3))), nodes=2, packing=packing)
    assert [gpus for _, gpus in held(wide, "wide")] == [6, 0]


@pytest.mark.parametrize("packing", [False, True])
def test_who_grew_stays_so_while_others_come_and_go_elsewhere(packing: bool) -> None:
    result = run(grows("a", 0.0, 6000.0), Job.rigid("b", 900.0, 2, 300.0), nodes=2, packing=packing)
    assert [gpus for _, gpus in held(result, "a")] == [1, 4, 0]
    assert [gpus for _, gpus in held(result, "b")] == [2, 0]


def test_nobody_grows_while_somebody_waits_and_none_by_default() -> None:
    crowd = (*(grows(f"{place}", 0.0, 900.0, 3) for place in range(2)), grows("late", 30.0, 3000.0, 3))
    result = run(*crowd)
    last = max(job.completion_time or 0.0 for job in result.job_records if job.job != "late")
    (grew,) = (row for row in result.allocation_records if sum(row.gpus) == 4)
    assert grew.job == "late"
    assert last + 300 <= grew.time <= last + 360
    assert {gpus for _, gpus in held(run(grows("a", 0.0, 3000.0), grow_after=None), "a")} == {0, 1}
    with pytest.raises(InvalidConfigError, match="grow_after is 0"):
        Gandiva(grow_after=0.0)


@pytest.mark.parametrize("packing", [False, True])
def test_a_gpu_that_a_job_left_must_be_idle_for_the_whole_time_before_another_grows(packing: bool) -> None:
    """`a` grows onto the idle GPU at 360 s, 300 s after both started, and onto that of `b` 300 s after `b` left it."""
    result = run(grows("a", 0.0, 1400.0, 2), Job.rigid("b", 0.0, 1, 480.0), packing=packing)
    assert held(result, "a") == [(60, 2), (360, 3), (840, 4), (1030, 0)]


@pytest.mark.parametrize("packing", [False, True])
def test_a_gpu_that_becomes_idle_does_not_renew_the_time_of_another(packing: bool) -> None:
    """`b` leaves a second GPU idle at the round at 240 s. `a` grew onto both GPUs at 540 s."""
    result = run(grows("a", 0.0, 1900.0, 2), Job.rigid("b", 0.0, 1, 150.0), packing=packing)
    assert held(result, "a")[:3] == [(60, 2), (360, 3), (540, 4)]


@pytest.mark.parametrize("packing", [False, True])
def test_a_turn_lasts_a_time_slice(packing: bool) -> None:
    rules = EngineSettings(restart_delay=0.0, sharing=Interleaved() if packing else None)
    jobs = Workload(tuple(Job.rigid(name, 0.0, 1, 600.0) for name in "ab"))
    policy = Gandiva(time_slice=180.0, packing=packing)
    changes = simulate(jobs, {}, Cluster.uniform(1, 1), policy, settings=rules).allocation_records
    turns = [(change.time, change.job) for change in changes if change.gpus]
    assert turns == [*((60.0 + 180.0 * turn, "ab"[turn % 2]) for turn in range(7)), (1200.0, "b")]


def test_why_says_that_it_grew() -> None:
    result = run(grows("a", 0.0, 2000.0))
    said = [sentence(record, result.reason_texts) for record in result.reason_records]
    assert any("and 3 more idle GPUs of its node" in text for text in said), said


jobs = st.lists(
    st.tuples(
        st.integers(0, 3000), st.sampled_from([1, 2, 4]), st.integers(60, 4000), st.booleans(),
        st.sampled_from([None, LOADS]),
    ),
    min_size=1, max_size=10,
).map(lambda rows: tuple(
    Job.rigid(
        f"{place}", float(at), gpus, float(length), stages=stages,
        **({"speeds": tuple((count, count**0.8) for count in (1, 2, 4, 8))} if grows else {}),
    )
    for place, (at, gpus, length, grows, stages) in enumerate(sorted(rows, key=lambda row: row[0]))
))  # fmt: skip


@given(jobs, st.booleans(), st.integers(0, 12), st.booleans())
@draws(20)
def test_all_complete_a_copy_ends_alike_and_to_be_asked_more_often_changes_nothing(
    jobs: tuple[Job, ...], packing: bool, turns: int, look: bool
) -> None:
    """And nobody has more than its user allows, or more than a node."""
    rules = EngineSettings(restart_delay=0.0, sharing=Interleaved())
    cluster, workload = Cluster.uniform(2, 4), Workload(jobs)
    policy, other, always = (Gandiva(packing=packing, grow_after=200.0) for _ in range(3))
    uninterrupted = told(result := ended(begun(workload, cluster, other, rules), other))
    assert all(job.completion_time is not None for job in result.job_records)
    asked = {job.job_id: job for job in jobs}
    for row in result.allocation_records:
        more = sum(row.gpus) - asked[row.job].num_replicas
        assert more <= 0 or (asked[row.job].speeds and len(row.nodes) == 1)
    again = simulate(workload, {}, cluster, AskedEveryRound(always), settings=rules, seed=1)
    assert again.job_records == result.job_records
    run = begun(workload, cluster, policy, rules)
    go_on(run, policy, turns, look=look)
    check_fork(run, policy, uninterrupted)
