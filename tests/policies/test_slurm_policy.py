"""The policy `slurm` in the simulator: when its schedulers run, what they plan with, and its reasons, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.use_limits import use_limits
from polluxsim.policies.slurm.policy import Slurm
from polluxsim.policies.slurm.reason_kinds import (
    BEGIN_TIME,
    CANCELLED,
    PREEMPTED,
    PRIORITY,
    RESOURCES,
    RESUMED,
    STARTED_BY_BACKFILL,
    STARTED_IN_ORDER,
    SUSPENDED,
)
from polluxsim.policies.tools.reason_kinds import RUNS_ON
from polluxsim.records.results import ReasonRecord, Result, Status
from polluxsim.workloads.workload import Job, Workload


def job(name: str, submitted: float, gpus: int, duration: float, limit: float | None = None, **more: Any) -> Job:
    return Job.rigid(name, submitted, gpus, duration, time_limit=limit, **more)


ZERO = 60.0  # time of the first submission [s]; tests count from it


def starts(jobs: list[Job], policy: Slurm | None = None, nodes: int = 2, **settings: Any) -> dict[str, float]:
    """Return the start of each job since `ZERO` [s], on nodes of 4 GPUs. Submissions count from `ZERO`, too."""
    result = simulated(jobs, policy or Slurm(), nodes, **settings)
    return {row.job: (row.start_time or 0.0) - ZERO for row in result.job_records}


def simulated(jobs: list[Job], policy: Slurm, nodes: int, **settings: Any) -> Result:
    moved = tuple(replace(job, submit_time=job.submit_time + ZERO) for job in jobs)
    engine = EngineSettings(**{"round_interval": 1.0, "placement": "consolidated", "free_starts": True, **settings})
    return simulate(Workload(moved), {}, Cluster((4,) * nodes), policy, settings=engine)


# `wide` needs both nodes and waits for `first`, which ends at its limit. The second node is free meanwhile.
FIRST = job("first", 0.0, 4, 600.0, 600.0)
WIDE = job("wide", 10.0, 8, 60.0, 60.0)


class TestSchedules:
    def test_a_job_that_fits_starts_when_it_is_submitted(self) -> None:
        assert starts([job("a", 7.0, 4, 60.0, 60.0)]) == {"a": 7.0}

    def test_a_backfilled_job_waits_for_the_next_cycle(self) -> None:
        """Cycles are 30 s apart. The first one is at 0 s, and starts `first`; the next one is at 30 s."""
        found = starts([FIRST, WIDE, job("short", 12.0, 4, 60.0, 300.0)])
        assert found == {"first": 0.0, "wide": 600.0, "short": 30.0}

    def test_bf_interval_is_the_time_between_cycles(self) -> None:
        found = starts([FIRST, WIDE, job("short", 12.0, 4, 60.0, 300.0)], Slurm(bf_interval=5))
        assert found["short"] == 15.0  # the cycles are at 0, 5, 10 and 15 s

    def test_a_job_that_would_delay_a_plan_waits(self) -> None:
        found = starts([FIRST, WIDE, job("long", 12.0, 4, 60.0, 900.0)])
        assert found == {"first": 0.0, "wide": 600.0, "long": 660.0}

    def test_the_main_scheduler_alone_overtakes_nothing(self) -> None:
        found = starts([FIRST, WIDE, job("short", 12.0, 4, 60.0, 300.0)], Slurm(scheduler_type="sched/builtin"))
        assert found["short"] == 660.0

    def test_the_main_scheduler_gathers_events(self) -> None:
        """It runs at 0 s, and again 3 s later; `bf_interval` keeps the backfill out."""
        jobs = [job("a", 0.0, 4, 60.0, 60.0), job("b", 1.0, 4, 60.0, 60.0)]
        assert starts(jobs)["b"] == 3.0
        assert starts(jobs, Slurm(batch_sched_delay=0))["b"] == 1.0

    def test_after_an_event_only_the_first_jobs_are_considered(self) -> None:
        """Both jobs are submitted at 30 s. The whole queue is considered at the next multiple of 60 s."""
        policy = Slurm(default_queue_depth=1, scheduler_type="sched/builtin")
        found = starts([job("x", 0.0, 1, 5.0, 60.0), job("a", 30.0, 1, 600.0, 600.0), job("b", 30.0, 1, 60.0)], policy)
        assert found == {"x": 0.0, "a": 30.0, "b": 60.0}

    def test_limits_are_whole_minutes(self) -> None:
        """`short` has 5 min 50 s until the plan of `wide`, and its limit of 5 min 1 s counts as 6 min."""
        found = starts([FIRST, WIDE, job("short", 240.0, 4, 60.0, 301.0)])
        assert found["short"] == 660.0
        found = starts([FIRST, WIDE, job("short", 240.0, 4, 60.0, 300.0)])
        assert found["short"] == 240.0

    def test_a_job_without_a_limit_has_its_run_time(self) -> None:
        jobs = [FIRST, WIDE, job("short", 12.0, 4, 290.0)]
        assert starts(jobs)["short"] == 30.0
        assert starts(jobs, Slurm(overestimate=3.0))["short"] == 660.0


class TestNodes:
    def test_the_smallest_run_of_neighbours_is_taken(self) -> None:
        """The first two nodes become free, and the last one is free: it is a run of its own."""
        short = [job(name, 0.0, 4, 60.0, 60.0) for name in ("a", "b")]
        jobs = [*short, job("c", 0.0, 4, 600.0, 600.0), job("one", 100.0, 4, 60.0, 60.0)]
        records = simulated(jobs, Slurm(), 4).allocation_records
        assert [record.nodes for record in records if record.job == "one" and record.nodes] == [(3,)]

    def test_uneven_jobs_and_jobs_anywhere_run(self) -> None:
        """6 GPUs are a whole node and a half; with `placement=anywhere` they are on any GPUs."""
        jobs = [job("half", 0.0, 2, 600.0, 600.0), job("six", 5.0, 6, 60.0, 60.0)]
        assert starts(jobs)["six"] == 5.0
        assert starts([*jobs, job("one", 6.0, 1, 60.0, 60.0)], placement="anywhere")["six"] == 5.0


class TestTypes:
    """Nodes 0 and 1 have four A100, and nodes 2 and 3 four H100. The run of each type is two nodes long."""

    CLUSTER = Cluster.of_groups([[2, 4, "a100-40"], [2, 4, "h100"]])

    def nodes(self, jobs: list[Job], policy: Slurm | None = None) -> dict[str, tuple[int, ...]]:
        settings = EngineSettings(round_interval=1.0, placement="consolidated", free_starts=True)
        result = simulate(Workload(tuple(jobs)), {}, self.CLUSTER, policy or Slurm(), settings=settings)
        first: dict[str, tuple[int, ...]] = {}
        for record in result.allocation_records:
            if record.nodes:
                first.setdefault(record.job, record.nodes)
        return first

    def test_a_job_gets_the_type_that_it_asks_for(self) -> None:
        jobs = [
            job("any", 0.0, 4, 60.0, 60.0), job("h", 0.0, 4, 60.0, 60.0, gpu_types=("h100",)),
            job("wide", 0.0, 8, 60.0, 60.0, gpu_types=("h100",)),
        ]  # fmt: skip
        # `wide` waits for both H100 nodes, although nodes 1 and 3 are idle.
        assert self.nodes(jobs) == {"any": (0,), "h": (2,), "wide": (2, 3)}

    def test_a_job_of_two_nodes_gets_one_type(self) -> None:
        jobs = [job("one", 0.0, 4, 60.0, 60.0), job("two", 1.0, 8, 60.0, 60.0)]
        assert self.nodes(jobs) == {"one": (0,), "two": (2, 3)}

    def test_one_queue_holds_all_types(self) -> None:
        """The main scheduler stops at `h2`, which needs an H100, so that `a` waits although an A100 is idle."""
        jobs = [
            job("h1", 0.0, 8, 600.0, 600.0, gpu_types=("h100",)), job("h2", 1.0, 8, 60.0, 60.0, gpu_types=("h100",)),
            job("a", 2.0, 4, 60.0, 60.0),
        ]  # fmt: skip
        settings = EngineSettings(round_interval=1.0, placement="consolidated", free_starts=True)
        policy = Slurm(scheduler_type="sched/builtin")
        result = simulate(Workload(tuple(jobs)), {}, self.CLUSTER, policy, settings=settings)
        assert {row.job: row.start_time for row in result.job_records} == {"h1": 1.0, "h2": 601.0, "a": 601.0}

    def test_nodes_of_a_lower_weight_go_first(self) -> None:
        jobs = [job("any", 0.0, 4, 60.0, 60.0), job("two", 1.0, 8, 60.0, 60.0)]
        assert self.nodes(jobs, Slurm(weight={"0-1": 10})) == {"any": (2,), "two": (0, 1)}

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            ({"n1": 2}, "policy.weight is {'n1': 2}, must be values of nodes by number, like {0-15: 10, 20: 5}"),
            ({"0-2": 2, "1": 3}, "policy.weight states node 1 twice"),
            ({"0-9": 2}, "policy.weight states node 9, and the cluster has the nodes 0 to 3"),
        ],
    )
    def test_a_wrong_weight_is_named(self, weight: dict[str, int], message: str) -> None:
        with pytest.raises(InvalidConfigError) as error:
            Slurm(weight=weight).without_effect([FIRST], self.CLUSTER)
        assert message in str(error.value)


class TestHosts:
    """Two nodes of 4 GPUs, 32 CPUs and 128 GiB: a job of one GPU that needs many CPUs leaves GPUs idle."""

    CLUSTER = Cluster.of_groups([{"nodes": 2, "gpus": 4, "cpus": 32, "memory": 128 * 1.073741824}])

    def result(self, jobs: list[Job], **policy: Any) -> Result:
        settings = EngineSettings(round_interval=1.0, placement="consolidated", free_starts=True)
        return simulate(Workload(tuple(jobs)), {}, self.CLUSTER, Slurm(**policy), settings=settings)

    def first_nodes(self, jobs: list[Job], **policy: Any) -> dict[str, tuple[float, tuple[int, ...]]]:
        first: dict[str, tuple[float, tuple[int, ...]]] = {}
        for record in self.result(jobs, **policy).allocation_records:
            if record.nodes:
                first.setdefault(record.job, (record.time, record.nodes))
        return first

    def test_cpus_limit_jobs(self) -> None:
        """`wide` needs 24 CPUs, so that 8 of node 0 are left: too few for `b`, which needs 10."""
        jobs = [
            job("wide", 1.0, 1, 600.0, 600.0, cpus=24), job("b", 1.0, 1, 600.0, 600.0, cpus=10),
            job("c", 1.0, 1, 60.0, 60.0, cpus=30),
        ]  # fmt: skip
        assert self.first_nodes(jobs) == {"wide": (1.0, (0,)), "b": (1.0, (1,)), "c": (601.0, (0,))}

    def test_a_job_without_cpus_gets_those_of_its_gpus(self) -> None:
        jobs = [job("plain", 1.0, 2, 600.0, 600.0), job("b", 1.0, 1, 600.0, 600.0, cpus=17)]
        assert self.first_nodes(jobs)["b"] == (1.0, (1,))
        assert self.first_nodes(jobs, def_cpu_per_gpu=7)["b"] == (1.0, (0,))
        granted = {
            row.job: (row.cpus, round(row.memory, 6)) for row in self.result(jobs, def_cpu_per_gpu=7).host_records
        }
        assert granted == {"plain": (7, round(32 * 1.073741824, 6)), "b": (17, round(32 * 1.073741824, 6))}

    def test_memory_limits_jobs_if_slurm_counts_it(self) -> None:
        """`a` needs 96 GiB of the 128 GiB of node 0."""
        jobs = [job("a", 1.0, 1, 600.0, 600.0, cpus=1, memory=96 * 1.073741824), job("b", 1.0, 2, 60.0, 60.0)]
        memory = {"select_type_parameters": "CR_Core_Memory", "def_mem_per_gpu": 20480}
        assert self.first_nodes(jobs)["b"] == (1.0, (0,))
        assert self.first_nodes(jobs, **memory)["b"] == (1.0, (1,))
        assert self.first_nodes(jobs, **{**memory, "def_mem_per_gpu": 16384})["b"] == (1.0, (0,))

    def test_without_a_default_a_job_gets_all_memory(self) -> None:
        jobs = [job("a", 1.0, 1, 600.0, 600.0), job("b", 1.0, 1, 600.0, 600.0), job("c", 1.0, 1, 60.0, 60.0)]
        first = self.first_nodes(jobs, select_type_parameters="CR_Core_Memory")
        assert first == {"a": (1.0, (0,)), "b": (1.0, (1,)), "c": (601.0, (0,))}


class TestPriorities:
    JOBS = (job("busy", 0.0, 8, 100.0, 120.0), job("small", 5.0, 1, 600.0, 600.0), job("large", 6.0, 8, 60.0, 60.0))

    def test_the_order_is_that_of_submission(self) -> None:
        found = starts([*self.JOBS])
        assert (found["small"], found["large"]) == (100.0, 700.0)

    @pytest.mark.parametrize(("favours_small", "first"), [(False, "large"), (True, "small")])
    def test_the_job_size_may_come_first(self, favours_small: bool, first: str) -> None:
        policy = Slurm(
            priority_type="priority/multifactor", priority_weight_job_size=1000, priority_favor_small=favours_small
        )
        found = starts([*self.JOBS], policy)
        assert found[first] == 100.0

    def test_the_age_may_come_first(self) -> None:
        """Both weights count: after 10 days, `small` has the full age."""
        policy = Slurm(
            priority_type="priority/multifactor",
            priority_weight_job_size=1000,
            priority_weight_age=5000,
            priority_max_age=10,
        )
        jobs = [job("busy", 0.0, 8, 1500.0, 1500.0), self.JOBS[1], job("large", 1000.0, 8, 60.0, 60.0)]
        assert starts(jobs, policy)["small"] == 1500.0

    @pytest.mark.parametrize("flags", ["FAIR_TREE", "NO_FAIR_TREE"])
    def test_the_fair_share_may_come_first(self, flags: str) -> None:
        """`ada` holds all GPUs for 20 minutes. Then the job of `bob`, who used nothing, goes first."""
        jobs = [
            job("busy", 0.0, 8, 1200.0, 1200.0, user="ada"), job("again", 5.0, 8, 60.0, 60.0, user="ada"),
            job("other", 6.0, 8, 60.0, 60.0, user="bob"),
        ]  # fmt: skip
        policy = Slurm(
            priority_type="priority/multifactor", priority_weight_fairshare=1000, priority_flags=flags,
            accounts={"lab": {"users": {"ada": 1, "bob": 1}}},
        )  # fmt: skip
        assert starts(jobs)["again"] == 1200.0
        assert starts(jobs, policy)["other"] == 1200.0


class TestTiers:
    def test_a_partition_of_a_higher_tier_goes_first(self) -> None:
        jobs = [
            job("busy", 0.0, 8, 100.0, 120.0, queue="low"), job("early", 5.0, 8, 60.0, 60.0, queue="low"),
            job("late", 6.0, 8, 60.0, 60.0, queue="high"),
        ]  # fmt: skip
        assert starts(jobs)["early"] == 100.0
        assert starts(jobs, Slurm(priority_tier={"high": 10}))["late"] == 100.0


class TestPartitions:
    """Partition `left` has nodes 0 and 1, `right` node 1 and 2, and `other` node 3."""

    CLUSTER = Cluster((4, 4, 4, 4), partitions={"left": (0, 1), "right": (1, 2), "other": (3,)})

    def first_nodes(self, jobs: list[Job], **policy: Any) -> dict[str, tuple[float, tuple[int, ...]]]:
        settings = EngineSettings(round_interval=1.0, placement="consolidated", free_starts=True)
        result = simulate(Workload(tuple(jobs)), {}, self.CLUSTER, Slurm(**policy), settings=settings)
        first: dict[str, tuple[float, tuple[int, ...]]] = {}
        for record in result.allocation_records:
            if record.nodes:
                first.setdefault(record.job, (record.time, record.nodes))
        return first

    def test_a_partition_has_its_own_nodes(self) -> None:
        """`b` waits for node 0 or 1, although node 2 of the same group is idle."""
        jobs = [
            job("a", 1.0, 8, 100.0, 120.0, queue="left"), job("b", 1.0, 4, 60.0, 60.0, queue="left"),
            job("c", 1.0, 4, 60.0, 60.0, queue="other"),
        ]  # fmt: skip
        assert self.first_nodes(jobs) == {"a": (1.0, (0, 1)), "b": (101.0, (0,)), "c": (1.0, (3,))}

    def test_a_job_in_two_partitions_starts_in_the_one_with_room(self) -> None:
        jobs = [
            job("a", 1.0, 8, 100.0, 120.0, queue="left"), job("b", 1.0, 4, 60.0, 60.0, queue="left"),
            job("either", 1.0, 4, 60.0, 60.0, queue="left,right"),
        ]  # fmt: skip
        assert self.first_nodes(jobs)["either"] == (1.0, (2,))

    def test_its_tier_in_each_partition_counts(self) -> None:
        jobs = [
            job("busy", 1.0, 8, 100.0, 120.0, queue="right"), job("early", 2.0, 8, 60.0, 60.0, queue="right"),
            job("late", 3.0, 8, 60.0, 60.0, queue="right,left"),
        ]  # fmt: skip
        assert self.first_nodes(jobs)["late"] == (161.0, (1, 2))
        assert self.first_nodes(jobs, priority_tier={"left": 9})["late"] == (101.0, (0, 1))

    @pytest.mark.parametrize(
        ("queue", "message"),
        [
            ("left,middle", "has queue 'left,middle', and the cluster has partitions: the queue must be one of left"),
            ("left,other", "has queue 'left,other', and these partitions have no common nodes; name one of them"),
        ],
    )
    def test_wrong_partitions_are_named(self, queue: str, message: str) -> None:
        with pytest.raises(InvalidInputError) as error:
            self.first_nodes([job("a", 1.0, 1, 60.0, 60.0, queue=queue)])
        assert message in str(error.value)

    def test_other_policies_use_the_nodes_of_both(self) -> None:
        from polluxsim.policies.ordered.classic import Fifo

        jobs = [job("a", 1.0, 12, 60.0, 60.0, queue="left,right")]
        settings = EngineSettings(round_interval=1.0, placement="consolidated")
        records = simulate(Workload(tuple(jobs)), {}, self.CLUSTER, Fifo(), settings=settings).allocation_records
        assert records[0].nodes == (0, 1, 2)


class TestPreemption:
    POLICY: ClassVar = {"priority_tier": {"high": 10}, "preempt_type": "preempt/partition_prio"}
    JOBS = (
        job("a", 0.0, 4, 600.0, 600.0, queue="low"), job("b", 0.0, 4, 300.0, 300.0, queue="low"),
        job("urgent", 50.0, 4, 100.0, 120.0, queue="high"), job("late", 60.0, 4, 60.0, 60.0, queue="low"),
    )  # fmt: skip

    def test_a_job_of_a_higher_tier_takes_the_first_node(self) -> None:
        """`urgent` preempts `a` on node 0 at 50 s, and leaves it at 150 s.

        `a` may start again 121 s after 50 s, at 171 s. So `late` gets node 0 at 150 s, and `a` follows at 210 s. It
        has 550 s of its 600 s left. (`engine.restart_delay` is 0.)
        """
        assert starts([*self.JOBS], Slurm(), restart_delay=0.0)["urgent"] == 300.0
        policy = Slurm(**self.POLICY)
        moved = [replace(job, submit_time=job.submit_time + ZERO) for job in self.JOBS]
        settings = EngineSettings(round_interval=1.0, placement="consolidated", free_starts=True, restart_delay=0.0)
        result = simulate(Workload(tuple(moved)), {}, Cluster((4, 4)), policy, settings=settings)
        records = [(row.time - ZERO, row.job, row.nodes) for row in result.allocation_records]
        assert (50.0, "urgent", (0,)) in records
        assert (50.0, "a", ()) in records
        assert (150.0, "late", (0,)) in records
        assert (210.0, "a", (0,)) in records
        reasons = {record.kind: dict(record.numbers) for record in result.reason_records if record.job == "a"}
        assert reasons[BEGIN_TIME.name]["next_run"] == 171.0 + ZERO
        ends = {row.job: row.completion_time - ZERO for row in result.job_records}
        assert ends == {"urgent": 150.0, "b": 300.0, "late": 210.0, "a": 760.0}

    def test_a_requeued_job_waits_two_minutes(self) -> None:
        """Node 0 is idle from 150 to 171 s, and `a` keeps its place ahead of `after`."""
        jobs = [*self.JOBS[:3], job("after", 160.0, 8, 60.0, 60.0, queue="low")]
        assert starts(jobs, Slurm(**self.POLICY), restart_delay=0.0)["after"] == 721.0

    def test_an_exempt_job_is_not_preempted(self) -> None:
        policy = Slurm(**self.POLICY, preempt_exempt_time=3600)
        assert starts([*self.JOBS], policy, restart_delay=0.0)["urgent"] == 300.0

    def result(self, mode: str, *jobs: Job, **policy: Any) -> tuple[Result, list[tuple[float, str, tuple[int, ...]]]]:
        """Return the result of jobs, and each change of their nodes since `ZERO`."""
        settings = Slurm(**self.POLICY, preempt_mode=mode, **policy)
        result = simulated([*(jobs or self.JOBS)], settings, 2, restart_delay=10.0)
        return result, [(row.time - ZERO, row.job, row.nodes) for row in result.allocation_records]

    def test_cancel_ends_the_job(self) -> None:
        """`urgent` preempts `a` at 50 s. `a` ends at the next round, and is not complete. `late` follows `urgent`."""
        result, changes = self.result("CANCEL")
        ended = {row.job: (row.status, row.completion_time) for row in result.job_records}
        assert ended["a"] == (Status.REJECTED, None)
        assert (50.0, "urgent", (0,)) in changes
        assert (150.0, "late", (0,)) in changes
        assert [change for change in changes if change[1] == "a"] == [(0.0, "a", (0,)), (50.0, "a", ())]
        kinds = [record.kind for record in result.reason_records if record.job == "a"]
        assert kinds[-2:] == [PREEMPTED.name, CANCELLED.name]

    def test_suspend_keeps_the_progress_and_the_node(self) -> None:
        """`a` waits from 50 to 150 s and resumes without a restart delay, ahead of `late`, which waits for `b`."""
        result, changes = self.result("SUSPEND")
        assert [change for change in changes if change[1] == "a"] == [
            (0.0, "a", (0,)), (50.0, "a", ()), (150.0, "a", (0,)), (700.0, "a", ()),
        ]  # fmt: skip
        assert (300.0, "late", (1,)) in changes
        kinds = [record.kind for record in result.reason_records if record.job == "a"]
        assert [kind for kind in kinds if kind != RUNS_ON.name] == [
            STARTED_IN_ORDER.name, PREEMPTED.name, SUSPENDED.name, RESUMED.name,
        ]  # fmt: skip

    def test_what_is_free_of_a_suspended_job_is_for_it_and_for_jobs_that_preempt_it(self) -> None:
        """`urgent` uses 1 GPU of node 0. The other 3 are not for `late`, but for `second`, until 210 s."""
        jobs = [*self.JOBS[:2], job("urgent", 50.0, 1, 100.0, 120.0, queue="high"), self.JOBS[3]]
        jobs.append(job("second", 70.0, 2, 140.0, 180.0, queue="high"))
        _, changes = self.result("SUSPEND", *jobs)
        assert (70.0, "second", (0,)) in changes
        assert (210.0, "a", (0,)) in changes
        assert (300.0, "late", (1,)) in changes

    def test_a_limit_counts_a_suspended_job(self) -> None:
        """`again` waits until `a`, which is suspended, has ended at 700 s: `ada` may have one job."""
        owned = [replace(self.JOBS[0], user="ada"), *self.JOBS[1:3]]
        owned.append(job("again", 60.0, 1, 60.0, 60.0, queue="low", user="ada"))
        _, changes = self.result("SUSPEND", *owned, accounts={"lab": {"MaxJobs": 1, "users": {"ada": 1}}})
        assert (700.0, "again", (0,)) in changes

    def test_the_traits_tell_whether_jobs_lose_their_gpus(self) -> None:
        assert Slurm().traits.never_preempts
        assert not Slurm(**self.POLICY).traits.never_preempts


class TestLimits:
    def test_a_job_that_a_limit_stops_closes_nothing(self) -> None:
        jobs = [
            job("a", 0.0, 4, 100.0, 120.0, user="ada"), job("b", 1.0, 4, 100.0, 120.0, user="ada"),
            job("c", 2.0, 4, 100.0, 120.0, user="bob"),
        ]  # fmt: skip
        found = starts(jobs, limits={"all": {"user_gpus": 4}})
        assert (found["a"], found["b"], found["c"]) == (0.0, 100.0, 3.0)
        assert use_limits({"all": {"user_gpus": 4}})

    def test_the_starts_of_one_run_count(self) -> None:
        jobs = [job(name, 0.0, 4, 100.0, 120.0, user="ada") for name in ("a", "b")]
        assert starts(jobs, limits={"all": {"user_gpus": 4}}) == {"a": 0.0, "b": 100.0}

    def test_limits_of_accounts_and_qos_are_those_of_slurm(self) -> None:
        """`ada` and `bob` share the account `lab` with 4 GPUs. `q` runs one job of a user at once."""
        jobs = [
            job("a", 0.0, 4, 100.0, 120.0, user="ada"), job("b", 1.0, 4, 100.0, 120.0, user="bob"),
            job("c", 2.0, 1, 100.0, 120.0, user="eve", qos="q"), job("d", 2.0, 1, 100.0, 120.0, user="eve", qos="q"),
        ]  # fmt: skip
        accounts = {"lab": {"GrpTRES": {"gpu": 4}, "users": {"ada": 1, "bob": 1}}}
        policy = Slurm(accounts=accounts, qos={"q": {"MaxJobsPU": 1}})
        result = simulated(jobs, policy, 2)
        found = {row.job: (row.start_time or 0.0) - ZERO for row in result.job_records}
        assert found == {"a": 0.0, "b": 100.0, "c": 3.0, "d": 103.0}
        texts = {sentence(record, result.reason_texts) for record in result.reason_records if record.job in "bd"}
        said = {text.removesuffix(" The job delays no other job.") for text in texts}
        assert {
            "The limit GrpTRES of gpu stops the job: account lab has 4 of at most 4 GPUs, and this job needs 4.",
            "The limit MaxJobsPU stops the job: user eve in QOS q has 1 of at most 1 running jobs, "
            "and this job needs 1.",
        } <= said

    def test_with_assoc_limit_stop_it_does(self) -> None:
        jobs = [
            job("a", 0.0, 4, 100.0, 120.0, user="ada"), job("b", 1.0, 4, 100.0, 120.0, user="ada"),
            job("c", 2.0, 4, 100.0, 120.0, user="bob"),
        ]  # fmt: skip
        policy = Slurm(assoc_limit_stop=True, scheduler_type="sched/builtin")
        assert starts(jobs, policy, limits={"all": {"user_gpus": 4}})["c"] == 100.0


def test_reasons_are_those_of_squeue() -> None:
    jobs = [FIRST, WIDE, job("long", 12.0, 4, 60.0, 900.0), job("short", 13.0, 4, 60.0, 300.0)]
    reasons: dict[str, list[ReasonRecord]] = {}
    for record in simulated(jobs, Slurm(), 2).reason_records:
        reasons.setdefault(record.job, []).append(record)
    assert reasons["first"][0].kind == STARTED_IN_ORDER.name
    kinds = {name: [record.kind for record in records] for name, records in reasons.items()}
    assert RESOURCES.name in kinds["wide"]
    assert PRIORITY.name in kinds["long"]
    assert STARTED_BY_BACKFILL.name in kinds["short"]
    priority = next(record for record in reasons["long"] if record.kind == PRIORITY.name)
    assert priority.others == ("wide",)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Slurm(bf_max_job_user=2), "no job has a user: policy.bf_max_job_user has no effect"),
        (
            Slurm(scheduler_type="sched/builtin", bf_interval=60),
            "policy.bf_interval has no effect without policy.scheduler_type=sched/backfill",
        ),
        (
            Slurm(priority_weight_age=1),
            "policy.priority_weight_age has no effect without policy.priority_type=priority/multifactor",
        ),
        (Slurm(overestimate=2.0), "policy.overestimate has no effect"),
        (Slurm(priority_tier={"high": 2}), "no job has a queue: policy.priority_tier has no effect"),
    ],
)
def test_a_setting_without_effect_is_told(policy: Slurm, sentence: str) -> None:
    (found,) = policy.without_effect([FIRST, WIDE], Cluster((4, 4)))
    assert found.startswith(sentence)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bf_interval": 0}, "policy.bf_interval is 0, must be a whole number ≥ 1"),
        ({"scheduler_type": "backfill"}, "policy.scheduler_type is 'backfill', must be one of sched/backfill"),
        ({"tasks": "cpu"}, "policy.tasks is 'cpu', must be one of node, gpu"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        Slurm(**settings)
    assert message in str(error.value)
