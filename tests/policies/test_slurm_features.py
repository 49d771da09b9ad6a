"""Slurm's rules for parts of an installation, by examples worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any, ClassVar

import pytest

from polluxsim.common.errors import InvalidConfigError
from polluxsim.policies.slurm.accounts import read_accounts, read_qos
from polluxsim.policies.slurm.association_limits import AssociationLimits, JobOwner
from polluxsim.policies.slurm.backfill import backfill
from polluxsim.policies.slurm.eligibility import Conditions, Dependency, JobState, taking_part
from polluxsim.policies.slurm.fair_share import associations, classic, fair_tree
from polluxsim.policies.slurm.main_scheduler import main_scheduler
from polluxsim.policies.slurm.multifactor import with_priorities
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.priority import in_order
from polluxsim.policies.slurm.priority_parameters import PriorityParameters
from polluxsim.policies.slurm.selection import chosen_nodes
from polluxsim.policies.slurm.usage import Usage
from polluxsim.policies.slurm.values import (
    ALL_MEMORY,
    Allocated,
    FreeNodes,
    Held,
    Node,
    NodePart,
    PendingJob,
    Request,
    RunningJob,
    SchedulerState,
    SlurmPartition,
    SlurmReservation,
    SlurmStart,
    node_set,
)

EACH_SECOND = Parameters(bf_interval=1, bf_resolution=1)
FOUR = [Node(gpus=4, cpus=64)] * 4


def waits(name: str, gpus: int, limit: int = 60, nodes: int = 1, **more: object) -> PendingJob:
    return PendingJob(name, Request((NodePart(nodes, gpus, 1),)), limit, **more)  # type: ignore[arg-type]


def runs(name: str, node: int, gpus: int, end: int) -> RunningJob:
    return RunningJob.on(name, (Held(node, gpus, 1),), end)


def places(allocated: Allocated | None) -> list[int] | None:
    return None if allocated is None else [held.node for held in allocated]


def started(starts: list[SlurmStart]) -> dict[str, list[int]]:
    return {start.job.name: [held.node for held in start.held] for start in starts}


class TestCpusAndMemory:
    NODES = (Node(4, 64, memory=256), Node(4, 64, memory=256))

    def choose(
        self, part: NodePart, cpus: list[int], memory: list[int], *, exclusive: bool = False
    ) -> list[int] | None:
        free = FreeNodes([4, 4], cpus, memory)
        return places(chosen_nodes(Request((part,), exclusive=exclusive), node_set([0, 1]), free, self.NODES))

    def test_a_node_needs_the_free_cpus(self) -> None:
        assert self.choose(NodePart(1, 1, 40), [39, 64], [256, 256]) == [1]

    def test_a_node_needs_the_free_memory(self) -> None:
        assert self.choose(NodePart(1, 1, 1, 100), [60, 64], [99, 256]) == [1]
        assert self.choose(NodePart(1, 1, 1, 100), [60, 64], [100, 256]) == [0]

    def test_a_job_without_a_stated_memory_needs_all_of_it(self) -> None:
        assert self.choose(NodePart(1, 1, 1, ALL_MEMORY), [60, 64], [255, 256]) == [1]

    def test_an_exclusive_job_needs_an_idle_node_and_gets_all_cpus(self) -> None:
        assert self.choose(NodePart(1, 1, 1), [63, 64], [256, 256], exclusive=True) == [1]
        assert self.choose(NodePart(2, 1, 1), [63, 64], [256, 256], exclusive=True) is None
        free = FreeNodes([4, 4], [64, 64], [256, 256])
        held = chosen_nodes(Request((NodePart(1, 1, 1, 9),), exclusive=True), node_set([0]), free, self.NODES)
        assert held == (Held(0, 1, 64, 9),)


class TestSeveralPartitions:
    """Partition `left` has nodes 0 and 1, and `right` has node 3."""

    PARTITIONS: ClassVar = {"left": SlurmPartition(node_set([0, 1])), "right": SlurmPartition(node_set([3]))}

    def state(self, running: list[RunningJob], *jobs: PendingJob, **partitions: SlurmPartition) -> SchedulerState:
        all_partitions = self.PARTITIONS | partitions
        return SchedulerState(0, FOUR, running, in_order(jobs, all_partitions), partitions=all_partitions)

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
        state = self.state([], *jobs, right=SlurmPartition(node_set([3]), tier=5))
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

    RESERVATION = SlurmReservation("m", node_set([0, 1]), start=100, end=200)

    def state(self, now: int, *jobs: PendingJob, down: int = 0) -> SchedulerState:
        pending = in_order(jobs, {})
        return SchedulerState(now, FOUR, [], pending, down=down, reservations=[self.RESERVATION])

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
        "low": SlurmPartition(node_set(range(4))), "lowest": SlurmPartition(node_set(range(4)), tier=0),
        "high": SlurmPartition(node_set(range(4)), tier=10),
    }  # fmt: skip
    BY_TIER = Parameters(bf_interval=1, bf_resolution=1, preempt_type="preempt/partition_prio")

    def low(self, name: str, node: int, gpus: int = 4, partition: str = "low", **more: Any) -> RunningJob:
        return runs(name, node, gpus, 600)._replace(partition=partition, **more)

    def state(self, *running: RunningJob, gpus: int = 4, nodes: int = 1, now: int = 0) -> SchedulerState:
        job = waits("high", gpus, nodes=nodes, partition="high")
        return SchedulerState(now, FOUR, running, [job], partitions=self.PARTITIONS)

    def preempted(self, state: SchedulerState, parameters: Parameters | None = None) -> tuple[list[int], set[str]]:
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
        state = SchedulerState(0, FOUR, running, [job], preempts={"urgent": frozenset({"normal"})})
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
            limits.count(JobOwner(user, accounts.of_user(user), of), (Held(0, gpus, 8 * gpus),))
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
            assert set(started(schedule(SchedulerState(0, FOUR, [], [*jobs, other], limits=limits)))) == {"a", "other"}

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


class TestFairShare:
    """Account `a` has 40 shares and the users a1 and a2; `b` has 60 shares, b1 (2 shares), b2 and the account `c`.

    `a` used 100 of 400, so its level is 0.4 / 0.25 = 1.6, and that of `b` is 0.6 / 0.75 = 0.8.
    """

    ACCOUNTS: ClassVar = {
        "a": {"fairshare": 40, "users": {"a1": 1, "a2": 1}},
        "b": {"fairshare": 60, "users": {"b1": 2, "b2": 1}},
        "c": {"fairshare": 1, "parent": "b", "users": {"c1": 1, "c2": 3}},
    }
    USAGE: ClassVar = {"a2": 100.0, "b1": 100.0, "b2": 100.0, "c1": 20.0, "c2": 80.0}

    def test_fair_tree_ranks_depth_first(self) -> None:
        """Levels in `a`: a1 ∞, a2 0.5; in `b`: b1 (1/2)/(1/3) = 1.5, b2 and `c` (1/4)/(1/3) = 0.75, b2 first.

        The account `c` equals the user b2, so the first of `c` has the rank of b2. Levels in `c`: c1 (1/4)/(1/5) = 1.25
        and c2 (3/4)/(4/5). There are 6 users.
        """
        found = fair_tree(associations(read_accounts(self.ACCOUNTS), self.USAGE))
        ranks = {user: round(6 * factor, 9) for user, factor in found.items()}
        assert ranks == {"a1": 6, "a2": 5, "b1": 4, "b2": 3, "c1": 3, "c2": 1}

    def test_equal_accounts_are_ranked_together(self) -> None:
        """Both accounts have the level 1, so their users compete: x2 and y1 (level ∞) first, then y2 and x1 (0.5)."""
        accounts = {"x": {"users": {"x1": 1, "x2": 1}}, "y": {"users": {"y1": 1, "y2": 1}}}
        found = fair_tree(associations(read_accounts(accounts), {"x1": 5.0, "y2": 5.0}))
        assert found == {"x2": 1.0, "y1": 1.0, "x1": 0.5, "y2": 0.5}

    def test_the_classic_factor_uses_the_effective_usage(self) -> None:
        """S of a2 is 0.4 / 2 = 0.2; U is 0.25 + (0.25 − 0.25) / 2. S of a1 is 0.2, and U is 0 + 0.25 / 2.

        S of c1 is 0.6 / 4 / 4 = 0.0375. U of `c` is 0.25 + (0.75 − 0.25) / 4 = 0.375, and that of c1 is
        0.05 + (0.375 − 0.05) / 4 = 0.13125.
        """
        below_root = associations(read_accounts(self.ACCOUNTS), self.USAGE)
        found = classic(below_root)
        expected = {"a1": 0.125 / 0.2, "a2": 0.25 / 0.2, "c1": 0.13125 / 0.0375}
        for user, exponent in expected.items():
            assert found[user] == pytest.approx(2**-exponent), user
        assert classic(below_root, 2)["a2"] == pytest.approx(2 ** (-1.25 / 2))

    def test_users_without_an_account_have_one_share_each(self) -> None:
        found = fair_tree(associations(read_accounts({"a": {"users": {"a1": 1}}}), {"x": 10.0, "a1": 30.0}))
        assert found == {"x": 1.0, "a1": 0.5}

    def test_usage_is_what_jobs_held_and_halves(self) -> None:
        """16 CPUs for 3600 s; the mean of 2^(−t) over t from 0 to 1 is 0.5 / ln 2."""
        forever = Usage(0.0)
        forever.begin("j", "ada", 16.0, 0.0)
        assert forever.at(3600.0) == {"ada": 57_600.0}
        halving = Usage(3600.0)
        halving.begin("j", "ada", 16.0, 0.0)
        halving.end("j", 3600.0)
        assert halving.at(7200.0)["ada"] == pytest.approx(57_600 * 0.5 / log(2) / 2)

    def test_a_job_that_ended_after_the_time_counts_up_to_it(self) -> None:
        usage = Usage(0.0)
        usage.begin("j", "ada", 1.0, 0.0)
        usage.end("j", 400.0)
        assert usage.at(300.0) == {"ada": 300.0}
        assert usage.at(600.0) == {"ada": 400.0}

    def test_usage_does_not_depend_on_how_often_it_is_computed(self) -> None:
        once, often = Usage(1000.0), Usage(1000.0)
        for usage in (once, often):
            usage.begin("j", "ada", 3.0, 100.0)
        for time in range(100, 5000, 300):
            often.at(float(time))
        for usage in (once, often):
            usage.end("j", 5010.0)
        assert often.at(6000.0)["ada"] == pytest.approx(once.at(6000.0)["ada"])


class TestMultifactor:
    def priority(self, job: PendingJob, now: int = 0, fair_share: float = 0.0, **parameters: Any) -> float:
        of_queue = PriorityParameters(priority_type="priority/multifactor", **parameters)
        (prioritised,) = with_priorities([job], FOUR, now, {"ada": fair_share}, of_queue)
        return prioritised.priority

    def test_the_priority_is_a_weighted_sum_of_factors(self) -> None:
        """Age: 12 of 24 h; fair share 0.25; size: (1/4 + 1/256) / 2; partition: 2 of 4; QOS: 50 of 200."""
        job = waits("j", 1, user="ada", partition="p", qos="normal")
        found = self.priority(
            job, 43_200, 0.25, priority_max_age=1440, priority_weight_age=1000, priority_weight_fairshare=2000,
            priority_weight_job_size=10_000, priority_weight_partition=100, priority_weight_qos=40,
            priority_job_factor={"p": 2, "q": 4}, qos={"normal": {"Priority": 50}, "high": {"Priority": 200}},
        )  # fmt: skip
        assert found == int(500 + 500 + 10_000 * (0.25 + 1 / 256) / 2 + 50 + 10)

    def test_the_least_priority_is_one(self) -> None:
        assert self.priority(waits("j", 1, user="ada")) == 1.0
