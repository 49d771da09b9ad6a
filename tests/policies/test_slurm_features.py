"""Slurm's rules for parts of an installation, by examples worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from polluxsim.common.errors import InvalidConfigError
from polluxsim.policies.slurm.accounts import read_accounts, read_qos
from polluxsim.policies.slurm.association_limits import AssociationLimits, Owner
from polluxsim.policies.slurm.backfill import backfill
from polluxsim.policies.slurm.eligibility import Conditions, Dependency, JobState, taking_part
from polluxsim.policies.slurm.main_scheduler import main_scheduler
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.priority import in_order
from polluxsim.policies.slurm.selection import chosen_nodes
from polluxsim.policies.slurm.values import (
    ALL_MEMORY,
    Allocated,
    ClusterState,
    FreeNodes,
    Held,
    Node,
    Part,
    Partition,
    PendingJob,
    Request,
    Reservation,
    RunningJob,
    Start,
    node_set,
)

EACH_SECOND = Parameters(bf_interval=1, bf_resolution=1)
FOUR = [Node(gpus=4, cpus=64)] * 4


def waits(name: str, gpus: int, limit: int = 60, nodes: int = 1, **more: object) -> PendingJob:
    return PendingJob(name, Request((Part(nodes, gpus, 1),)), limit, **more)  # type: ignore[arg-type]


def runs(name: str, node: int, gpus: int, end: int) -> RunningJob:
    return RunningJob.on(name, (Held(node, gpus, 1),), end)


def places(allocated: Allocated | None) -> list[int] | None:
    return None if allocated is None else [held.node for held in allocated]


def started(starts: list[Start]) -> dict[str, list[int]]:
    return {start.job.name: [held.node for held in start.held] for start in starts}


class TestCpusAndMemory:
    NODES = (Node(4, 64, memory=256), Node(4, 64, memory=256))

    def choose(self, part: Part, cpus: list[int], memory: list[int], *, exclusive: bool = False) -> list[int] | None:
        free = FreeNodes([4, 4], cpus, memory)
        return places(chosen_nodes(Request((part,), exclusive=exclusive), node_set([0, 1]), free, self.NODES))

    def test_a_node_needs_the_free_cpus(self) -> None:
        assert self.choose(Part(1, 1, 40), [39, 64], [256, 256]) == [1]

    def test_a_node_needs_the_free_memory(self) -> None:
        assert self.choose(Part(1, 1, 1, 100), [60, 64], [99, 256]) == [1]
        assert self.choose(Part(1, 1, 1, 100), [60, 64], [100, 256]) == [0]

    def test_a_job_without_a_stated_memory_needs_all_of_it(self) -> None:
        assert self.choose(Part(1, 1, 1, ALL_MEMORY), [60, 64], [255, 256]) == [1]

    def test_an_exclusive_job_needs_an_idle_node_and_gets_all_cpus(self) -> None:
        assert self.choose(Part(1, 1, 1), [63, 64], [256, 256], exclusive=True) == [1]
        assert self.choose(Part(2, 1, 1), [63, 64], [256, 256], exclusive=True) is None
        free = FreeNodes([4, 4], [64, 64], [256, 256])
        held = chosen_nodes(Request((Part(1, 1, 1, 9),), exclusive=True), node_set([0]), free, self.NODES)
        assert held == (Held(0, 1, 64, 9),)


class TestSeveralPartitions:
    """Partition `left` has nodes 0 and 1, and `right` has node 3."""

    PARTITIONS: ClassVar = {"left": Partition(node_set([0, 1])), "right": Partition(node_set([3]))}

    def state(self, running: list[RunningJob], *jobs: PendingJob, **partitions: Partition) -> ClusterState:
        all_partitions = self.PARTITIONS | partitions
        return ClusterState(0, FOUR, running, in_order(jobs, all_partitions), partitions=all_partitions)

    def test_a_job_starts_in_the_first_partition_with_room(self) -> None:
        state = self.state([], waits("a", 4, partition="right,left"), waits("b", 4, partition="right,left"))
        assert started(main_scheduler(state, EACH_SECOND)) == {"a": [3], "b": [0]}

    def test_a_closed_partition_leaves_the_other_one_open(self) -> None:
        """`wide` closes `left`; `a` starts in `right`, and `b` waits for both."""
        state = self.state(
            [runs("x", 0, 4, 600)],
            waits("wide", 4, nodes=2, partition="left"),
            waits("a", 4, partition="left,right"),
            waits("b", 1, partition="left,right"),
        )
        assert started(main_scheduler(state, EACH_SECOND)) == {"a": [3]}

    def test_the_tier_of_each_partition_counts(self) -> None:
        """`late` is ahead of `early` in `right`, whose tier is higher, and behind it in `left`."""
        jobs = [waits("early", 4, partition="left"), waits("late", 4, partition="left,right")]
        state = self.state([], *jobs, right=Partition(node_set([3]), tier=5))
        assert [(job.name, job.partition) for job in state.pending] == [
            ("late", "right"), ("early", "left"), ("late", "left"),
        ]  # fmt: skip
        assert started(main_scheduler(state, EACH_SECOND)) == {"late": [3], "early": [0]}

    def test_the_backfill_plans_the_job_in_each_partition(self) -> None:
        """`a` waits for all nodes of both partitions, so it is planned at the ends of both."""
        running = [runs("x", 0, 4, 100), runs("y", 1, 4, 100), runs("z", 3, 4, 200)]
        cycle = backfill(self.state(running, waits("a", 4, partition="left,right")), EACH_SECOND)
        assert [(plan.job.partition, plan.start) for plan in cycle.plans] == [("left", 100), ("right", 200)]

    def test_the_backfill_starts_a_job_once(self) -> None:
        cycle = backfill(self.state([], waits("a", 4, partition="left,right")), EACH_SECOND)
        assert started(cycle.starts) == {"a": [0]}
        assert not cycle.plans


class TestEligibility:
    def present(self, now: int, states: dict[str, JobState] | None = None, **conditions: Conditions) -> list[str]:
        """Return the jobs `a` to `d` that take part."""
        all_states = states or {}
        running = [name for name, state in all_states.items() if state is JobState.RUNNING]
        pending = [waits(name, 1) for name in "abcd"]
        present = taking_part(pending, conditions, running, now, lambda name: all_states[name])
        return [job.name for job in present]

    def test_a_job_waits_for_its_begin_time(self) -> None:
        assert self.present(99, b=Conditions(begin=100)) == ["a", "c", "d"]
        assert self.present(100, b=Conditions(begin=100)) == ["a", "b", "c", "d"]

    @pytest.mark.parametrize(
        ("kind", "met"),
        [
            ("after", {JobState.RUNNING, JobState.COMPLETED, JobState.FAILED}),
            ("afterany", {JobState.COMPLETED, JobState.FAILED}),
            ("afterok", {JobState.COMPLETED}),
            ("afternotok", {JobState.FAILED}),
        ],
    )
    def test_a_dependency_is_met_in_some_states(self, kind: str, met: set[JobState]) -> None:
        depends = Conditions(dependencies=(Dependency(kind, ("x",)),))
        assert {state for state in JobState if "a" in self.present(0, {"x": state}, a=depends)} == met

    def test_a_dependency_on_an_array_is_met_by_all_its_tasks(self) -> None:
        depends = Conditions(dependencies=(Dependency("afterok", ("x", "y")),))
        states = {"x": JobState.COMPLETED, "y": JobState.RUNNING}
        assert "a" not in self.present(0, states, a=depends)

    def test_an_array_runs_so_many_tasks_at_once(self) -> None:
        """Two of the tasks x, a, b, c may run; x runs, so one more takes part: the first."""
        tasks = {name: Conditions(array="t", most_at_once=2) for name in "xabc"}
        assert self.present(0, {"x": JobState.RUNNING}, **tasks) == ["a", "d"]
        assert self.present(0, {"x": JobState.COMPLETED}, **tasks) == ["a", "b", "d"]


class TestReservations:
    """Nodes 0 and 1 are reserved from 100 to 200 s."""

    RESERVATION = Reservation("m", node_set([0, 1]), start=100, end=200)

    def state(self, now: int, *jobs: PendingJob, down: int = 0) -> ClusterState:
        pending = in_order(jobs, {})
        return ClusterState(now, FOUR, [], pending, down=down, reservations=[self.RESERVATION])

    def test_a_job_outside_has_to_end_before_it_begins(self) -> None:
        state = self.state(40, waits("fits", 4, limit=60), waits("late", 4, limit=61))
        assert started(main_scheduler(state, EACH_SECOND)) == {"fits": [0], "late": [2]}

    def test_a_job_inside_waits_for_its_beginning_and_uses_its_nodes(self) -> None:
        inside = waits("in", 4, limit=600, reservation="m")
        assert not main_scheduler(self.state(99, inside), EACH_SECOND)
        assert started(main_scheduler(self.state(100, inside), EACH_SECOND)) == {"in": [0]}
        assert not main_scheduler(self.state(200, inside), EACH_SECOND)

    def test_a_job_inside_goes_first_and_closes_nothing(self) -> None:
        """Both nodes of the reservation are too few for `wide`, which asks for three."""
        jobs = [waits("out", 4), waits("wide", 4, nodes=3, reservation="m"), waits("in", 4, reservation="m")]
        state = self.state(150, *jobs)
        assert [job.name for job in state.pending] == ["wide", "in", "out"]
        assert started(main_scheduler(state, EACH_SECOND)) == {"in": [0], "out": [2]}

    def test_the_backfill_plans_after_the_reservation(self) -> None:
        """`wide` needs all nodes: after the reservation, which ends at 200 s."""
        cycle = backfill(self.state(90, waits("wide", 4, nodes=4)), EACH_SECOND)
        assert [(plan.job.name, plan.start) for plan in cycle.plans] == [("wide", 201)]

    def test_a_job_whose_reservation_has_not_begun_gets_no_plan(self) -> None:
        cycle = backfill(self.state(40, waits("in", 4, reservation="m"), waits("out", 4, limit=60)), EACH_SECOND)
        assert started(cycle.starts) == {"out": [0]}
        assert not cycle.plans

    def test_a_draining_node_accepts_no_job(self) -> None:
        state = self.state(300, waits("a", 4), waits("b", 4), down=node_set([0]))
        assert started(main_scheduler(state, EACH_SECOND)) == {"a": [1], "b": [2]}
        cycle = backfill(state, EACH_SECOND)
        assert started(cycle.starts) == {"a": [1], "b": [2]}


class TestPreemption:
    """Four nodes of 4 GPUs are full of jobs of a low tier."""

    PARTITIONS: ClassVar = {
        "low": Partition(node_set(range(4))), "lowest": Partition(node_set(range(4)), tier=0),
        "high": Partition(node_set(range(4)), tier=10),
    }  # fmt: skip
    BY_TIER = Parameters(bf_interval=1, bf_resolution=1, preempt_type="preempt/partition_prio")

    def low(self, name: str, node: int, gpus: int = 4, partition: str = "low", **more: Any) -> RunningJob:
        return runs(name, node, gpus, 600)._replace(partition=partition, **more)

    def state(self, *running: RunningJob, gpus: int = 4, nodes: int = 1, now: int = 0) -> ClusterState:
        job = waits("high", gpus, nodes=nodes, partition="high")
        return ClusterState(now, FOUR, running, [job], partitions=self.PARTITIONS)

    def preempted(self, state: ClusterState, parameters: Parameters | None = None) -> tuple[list[int], set[str]]:
        (start,) = main_scheduler(state, parameters or self.BY_TIER)
        return [held.node for held in start.held], set(start.preempts)

    def test_the_lowest_tier_goes_first(self) -> None:
        state = self.state(*(self.low(f"r{node}", node) for node in range(3)), self.low("x", 3, partition="lowest"))
        assert self.preempted(state) == ([3], {"x"})

    def test_a_job_of_few_nodes_goes_first(self) -> None:
        wide = RunningJob.on("wide", (Held(0, 4, 1), Held(1, 4, 1)), 600)._replace(partition="low")
        assert self.preempted(self.state(wide, self.low("a", 2), self.low("b", 3))) == ([2], {"a"})

    def test_jobs_are_removed_until_the_job_fits_and_others_are_spared(self) -> None:
        """Removed one by one in this order, r0 (1 GPU of node 0), r1 (3 GPUs of node 1) and s0 make room on node 0.

        r1 is not on the node of the job, so it is spared.
        """
        running = [self.low("r0", 0, 1), self.low("r1", 1, 3), self.low("s0", 0, 3), self.low("s1", 1, 1)]
        running += [self.low("r2", 2), self.low("r3", 3)]
        assert self.preempted(self.state(*running)) == ([0], {"r0", "s0"})

    def test_no_job_of_the_same_tier_is_preempted(self) -> None:
        running = [self.low(f"r{node}", node, partition="high") for node in range(4)]
        assert not main_scheduler(self.state(*running), self.BY_TIER)
        assert not main_scheduler(self.state(*(self.low(f"r{node}", node) for node in range(4))), EACH_SECOND)

    def test_the_youngest_goes_first_if_stated(self) -> None:
        running = [self.low(f"r{node}", node, start=node) for node in range(4)]
        youngest = replace(self.BY_TIER, youngest_first=True)
        assert self.preempted(self.state(*running)) == ([0], {"r0"})
        assert self.preempted(self.state(*running), youngest) == ([3], {"r3"})

    def test_a_young_job_is_exempt(self) -> None:
        running = [self.low(f"r{node}", node, start=10 - node) for node in range(4)]
        exempt = replace(self.BY_TIER, preempt_exempt_time=60)
        assert not main_scheduler(self.state(*running, now=66), exempt)
        assert self.preempted(self.state(*running, now=67), exempt) == ([3], {"r3"})

    def test_a_qos_preempts_those_of_its_list(self) -> None:
        running = [self.low(f"r{node}", node, qos="normal", priority=9.0 - node) for node in range(4)]
        job = waits("high", 4, qos="urgent")
        state = ClusterState(0, FOUR, running, [job], preempts={"urgent": frozenset({"normal"})})
        by_qos = replace(self.BY_TIER, preempt_type="preempt/qos")
        # r3 has the lowest priority.
        assert self.preempted(state, by_qos) == ([3], {"r3"})
        assert not main_scheduler(replace(state, preempts={}), by_qos)

    def test_the_backfill_takes_the_first_nodes_as_if_all_candidates_were_gone(self) -> None:
        """The main scheduler removes `x`, which has the lowest tier; the backfill takes node 0, where r0 is."""
        state = self.state(*(self.low(f"r{node}", node) for node in range(3)), self.low("x", 3, partition="lowest"))
        (start,) = backfill(state, self.BY_TIER).starts
        assert ([held.node for held in start.held], start.preempts) == ([0], ("r0",))


class TestLimits:
    """`physics` has the account `theory` below it, and `ada` and `bob` are users of `theory`."""

    ACCOUNTS: ClassVar = {
        "physics": {"GrpTRES": {"gpu": 6}},
        "theory": {"parent": "physics", "users": {"ada": 1, "bob": 1}, "MaxJobs": 2},
        "chemistry": {"users": {"eve": 1}},
    }

    def stopped(
        self, *running: tuple[str, int], qos: dict[str, Any] | None = None, asks: int = 1, by: str = "ada", of: str = ""
    ) -> bool:
        """Return whether a job is stopped while jobs (user, GPUs) run."""
        accounts = read_accounts(self.ACCOUNTS)
        limits = AssociationLimits(accounts, read_qos(qos or {}))
        for user, gpus in running:
            limits.count(Owner(user, accounts.of_user(user), of), (Held(0, gpus, 8 * gpus),))
        return limits.stops(waits("new", asks, user=by, account=accounts.of_user(by), qos=of))

    def test_an_account_counts_the_accounts_below_it(self) -> None:
        assert not self.stopped(("bob", 4), asks=2)
        assert self.stopped(("bob", 4), asks=3)
        assert not self.stopped(("eve", 4), asks=6)

    def test_the_jobs_of_a_user_are_limited(self) -> None:
        assert self.stopped(("ada", 1), ("ada", 1))
        assert not self.stopped(("ada", 1), ("bob", 1))

    def test_a_qos_limits_each_user(self) -> None:
        high = {"high": {"MaxTRESPU": {"gpu": 4}, "MaxJobsPU": 3}}
        assert self.stopped(("eve", 3), asks=2, by="eve", of="high", qos=high)
        assert not self.stopped(("bob", 3), asks=2, by="eve", of="high", qos=high)
        assert self.stopped(("eve", 1), ("eve", 1), ("eve", 1), by="eve", of="high", qos=high)

    def test_a_qos_limits_all_its_jobs_and_each_job(self) -> None:
        assert self.stopped(("bob", 3), asks=2, by="eve", of="q", qos={"q": {"GrpTRES": {"gpu": 4}}})
        assert self.stopped(asks=3, by="eve", of="q", qos={"q": {"MaxTRES": {"gpu": 2}}})
        assert self.stopped(("eve", 1), by="eve", of="q", qos={"q": {"GrpTRES": {"cpu": 8}}})

    def test_a_limit_of_the_qos_replaces_that_of_accounts(self) -> None:
        """`physics` allows 6 GPUs, and `wide` 12: the limit of the QOS counts."""
        wide = {"wide": {"GrpTRES": {"gpu": 12}}}
        assert not self.stopped(("bob", 4), asks=8, of="wide", qos=wide)
        assert self.stopped(("bob", 4), asks=9, of="wide", qos=wide)

    def test_starts_count_and_a_stopped_job_closes_nothing(self) -> None:
        accounts = read_accounts(self.ACCOUNTS)
        jobs = [waits(name, 4, user="bob", account="theory") for name in ("a", "stopped")]
        other = waits("other", 4, nodes=3, user="eve", account="chemistry")
        for schedule in (
            lambda state: main_scheduler(state, EACH_SECOND),
            lambda state: backfill(state, EACH_SECOND).starts,
        ):
            limits = AssociationLimits(accounts, {})
            assert set(started(schedule(ClusterState(0, FOUR, [], [*jobs, other], limits=limits)))) == {"a", "other"}

    @pytest.mark.parametrize(
        ("accounts", "qos", "message"),
        [
            ({"a": {"GrpTRES": 4}}, {}, "policy.accounts.a.GrpTRES is 4, must be amounts by resource, like {gpu: 8}"),
            ({"a": {"MaxJobsPU": 4}}, {}, "policy.accounts.a has the key 'MaxJobsPU', must be one of parent"),
            ({"a": {"parent": "b"}}, {}, "policy.accounts.a.parent is 'b'"),
            ({"a": {"parent": "b"}, "b": {"parent": "a"}}, {}, "policy.accounts.a is above itself"),
            ({}, {"q": {"MaxTRESPU": {"gpus": 4}}}, "policy.qos.q.MaxTRESPU has the key 'gpus', must be one of gpu"),
            ({}, {"q": {"MaxJobsPU": 0}}, "policy.qos.q.MaxJobsPU is 0, must be a whole number"),
            ({}, {"q": {"Preempt": ["z"]}}, "policy.qos.q.Preempt names 'z'"),
        ],
    )
    def test_a_wrong_limit_is_named(self, accounts: dict[str, Any], qos: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidConfigError) as error:
            Parameters(accounts=accounts, qos=qos)
        assert message in str(error.value)
