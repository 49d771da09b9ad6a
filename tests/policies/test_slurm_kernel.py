"""Slurm's rules on small examples, and laws of its schedulers in drawn states."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.logs.site.hostlist import expanded
from polluxsim.policies.slurm.backfill import Cycle, backfill
from polluxsim.policies.slurm.main_scheduler import main_scheduler
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.priority import in_order, job_size
from polluxsim.policies.slurm.selection import chosen_nodes
from polluxsim.policies.slurm.values import (
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
    node_set,
)
from polluxsim.policies.slurm.will_run import FreeResources, will_run
from polluxsim.policies.slurm.windows import FreeWindow, Windows

FOUR = [Node(gpus=4, cpus=64)] * 4
EACH_SECOND = Parameters(bf_interval=1, bf_resolution=1)


def asks(gpus: int, nodes: int = 1, *, states_tasks: bool = False) -> Request:
    cpus = gpus if states_tasks else 1
    return Request((NodePart(nodes, gpus, cpus),), states_tasks=states_tasks)


def waits(name: str, gpus: int, limit: int = 60, nodes: int = 1, **more: object) -> PendingJob:
    return PendingJob(name, asks(gpus, nodes), limit, **more)  # type: ignore[arg-type]


def runs(name: str, node: int, gpus: int, end: int) -> RunningJob:
    return RunningJob.on(name, (Held(node, gpus, 1),), end)


class Stopped:
    """A limit that stops the job `stopped`."""

    def stops(self, job: PendingJob) -> bool:
        return job.name == "stopped"

    def add(self, job: PendingJob) -> None:
        assert job.name != "stopped"


def places(allocated: Allocated | None) -> list[int] | None:
    return None if allocated is None else [held.node for held in allocated]


def names(cycle: Cycle) -> list[str]:
    return [start.job.name for start in cycle.starts]


def planned(cycle: Cycle) -> dict[str, int]:
    return {plan.job.name: plan.start for plan in cycle.plans}


def test_defaults_are_those_of_slurm_conf() -> None:
    defaults = Parameters()
    assert (defaults.bf_interval, defaults.bf_resolution, defaults.bf_window) == (30, 60, 1440)
    assert (defaults.bf_max_job_test, defaults.default_queue_depth, defaults.sched_interval) == (500, 100, 60)
    assert (defaults.sched_min_interval, defaults.batch_sched_delay, defaults.kill_wait) == (2, 3, 30)


class TestChosenNodes:
    def choose(self, request: Request, gpus: list[int], cpus: list[int], nodes: list[Node] = FOUR) -> list[int] | None:
        return places(chosen_nodes(request, node_set(range(len(nodes))), FreeNodes(gpus, cpus), nodes))

    def test_the_smallest_sufficient_run_of_neighbours_is_taken(self) -> None:
        # The runs are n1 and n3–n4.
        assert self.choose(asks(4), [4, 0, 4, 4], [64, 60, 64, 64]) == [0]
        assert self.choose(asks(4, nodes=2), [4, 0, 4, 4], [64, 60, 64, 64]) == [2, 3]

    def test_one_node_is_the_one_with_the_fewest_cpus_of_its_run(self) -> None:
        assert self.choose(asks(1), [4, 3, 2, 0], [64, 62, 63, 60]) == [1]

    def test_stated_tasks_make_nodes_equal_so_that_the_first_wins(self) -> None:
        assert self.choose(asks(1, states_tasks=True), [4, 3, 2, 0], [64, 62, 63, 60]) == [0]

    def test_free_gpus_do_not_count(self) -> None:
        assert self.choose(asks(1), [4, 1, 4, 4], [64, 64, 64, 64]) == [0]

    def test_several_nodes_are_taken_from_the_left(self) -> None:
        assert self.choose(asks(4, nodes=2), [4, 4, 4, 4], [64, 64, 60, 60]) == [0, 1]

    def test_if_no_run_suffices_the_largest_comes_first(self) -> None:
        nodes = [Node(4, 64)] * 6
        free = [4, 0, 4, 4, 0, 4]
        # The runs are n1, n3–n4 and n6. The largest has two nodes, and n1 is the first of the rest.
        assert self.choose(asks(4, nodes=3), free, [64] * 6, nodes) == [0, 2, 3]

    def test_a_node_needs_a_free_cpu_for_each_task(self) -> None:
        assert self.choose(asks(4, states_tasks=True), [4, 4, 4, 4], [3, 3, 3, 4]) == [3]
        assert self.choose(asks(4, states_tasks=True), [4, 4, 4, 4], [3, 3, 3, 3]) is None

    def test_runs_of_lower_weight_go_first_even_if_they_are_too_small(self) -> None:
        nodes = [Node(4, 64, weight=2)] * 3 + [Node(4, 64, weight=1)]
        assert self.choose(asks(4), [4] * 4, [64] * 4, nodes) == [3]
        assert self.choose(asks(4, nodes=2), [4] * 4, [64] * 4, nodes) == [0, 3]

    def test_a_stated_type_and_stated_features_leave_out_other_nodes(self) -> None:
        nodes = [Node(4, 64, gpu_type="a100"), Node(4, 64, gpu_type="h100", features=frozenset({"nvlink"}))]
        of_type = asks(1)._replace(gpu_type="h100")
        with_feature = asks(1)._replace(features=frozenset({"nvlink"}))
        assert self.choose(of_type, [4, 4], [64, 64], nodes) == [1]
        assert self.choose(with_feature, [4, 4], [64, 64], nodes) == [1]
        assert self.choose(asks(1)._replace(gpu_type="v100"), [4, 4], [64, 64], nodes) is None

    def test_tasks_may_share_nodes(self) -> None:
        six_tasks = Request(num_tasks=6, task=NodePart(1, 1, 1))
        allocated = chosen_nodes(six_tasks, 0b1111, FreeNodes([4, 0, 3, 4], [64] * 4), FOUR)
        assert allocated == (Held(2, 3, 3), Held(3, 3, 3))


class TestWillRun:
    def expect(self, request: Request, running: list[RunningJob], now: int, **more: int) -> tuple[int, list[int]]:
        state = SchedulerState(now, FOUR, running, ())
        expected = will_run(request, state.up, FreeResources.of(state), now, replace(EACH_SECOND, **more))
        assert expected is not None
        return expected.start, [held.node for held in expected.held]

    def test_a_job_that_fits_starts_now(self) -> None:
        assert self.expect(asks(4), [runs("a", 0, 4, 100)], 0) == (0, [1])

    def test_ends_of_one_window_are_one_group_and_the_last_is_the_start(self) -> None:
        # The edge is at 120 s, and the group has all ends to 150 s.
        full = [runs("a", 0, 4, 100), runs("b", 1, 4, 150), runs("c", 2, 4, 151), runs("d", 3, 4, 900)]
        assert self.expect(asks(4), full, 0) == (150, [0])

    def test_the_edge_is_anchored_at_multiples_of_30_s_of_epoch_time(self) -> None:
        # The first end, at 120 s, is a multiple itself, so the edge is at 150 s, and the group has all ends to 180 s.
        full = [runs("a", 0, 4, 120), runs("b", 1, 4, 180), runs("c", 2, 4, 181), runs("d", 3, 4, 900)]
        assert self.expect(asks(4), full, 0)[0] == 180
        # All ends are a second earlier, and so is the edge, by 30 s.
        earlier = [job._replace(end=job.end - 1) for job in full]
        assert self.expect(asks(4), earlier, 0)[0] == 119

    def test_windows_double_until_they_have_the_next_end(self) -> None:
        # The edge is at 120 s. The window of the second group is 60 s, and 120 s after the next doubling.
        full = [runs("a", 0, 4, 100), runs("b", 1, 4, 181), runs("c", 2, 4, 239), runs("d", 3, 4, 241)]
        assert self.expect(asks(4, nodes=2), full, 0)[0] == 239
        assert self.expect(asks(4, nodes=2), full, 0, bf_window_linear=1)[0] == 181

    def test_a_job_beyond_its_limit_ends_after_kill_wait(self) -> None:
        full = [runs(name, node, 4, 90) for node, name in enumerate("abcd")]
        assert self.expect(asks(4), full, 100, kill_wait=30)[0] == 120
        assert self.expect(asks(4), full, 100, kill_wait=1)[0] == 101
        assert self.expect(asks(4), full, 100, kill_wait=1, over_time_limit=1)[0] == 151


class TestWindows:
    def test_the_map_begins_as_one_window_at_a_multiple_of_the_resolution(self) -> None:
        assert Windows(119, 0b11, Parameters()).windows == [FreeWindow(60, 86_460, 0b11)]

    def test_a_plan_splits_windows_and_is_floored(self) -> None:
        windows = Windows(0, 0b11, Parameters())
        windows.plan(0b01, 125, 245)
        assert windows.windows == [FreeWindow(0, 120, 0b11), FreeWindow(120, 240, 0b10), FreeWindow(240, 86_400, 0b11)]

    def test_a_short_plan_has_the_length_of_the_resolution(self) -> None:
        windows = Windows(0, 0b11, Parameters())
        windows.plan(0b01, 125, 130)
        assert windows.windows[1] == FreeWindow(120, 180, 0b10)

    def test_one_pair_of_equal_neighbours_is_merged(self) -> None:
        windows = Windows(0, 0b11, EACH_SECOND)
        windows.plan(0b01, 10, 20)
        windows.plan(0b01, 20, 30)
        assert windows.windows == [FreeWindow(0, 10, 0b11), FreeWindow(10, 30, 0b10), FreeWindow(30, 86_400, 0b11)]

    def test_at_most_one_pair_is_merged(self) -> None:
        windows = Windows(0, 0b11, EACH_SECOND)
        windows.plan(0b01, 10, 20)
        windows.plan(0b01, 30, 40)
        windows.plan(0b01, 20, 30)
        assert [window.begin for window in windows.windows] == [0, 10, 30, 40]

    def test_a_job_needs_its_nodes_in_every_window(self) -> None:
        windows = Windows(0, 0b11, EACH_SECOND)
        windows.plan(0b01, 10, 20)
        assert windows.look(0, 9).nodes == 0b11
        assert windows.look(0, 10).nodes == 0b10  # a window that begins at the end counts

    def test_the_next_attempt_is_where_a_window_has_more_nodes(self) -> None:
        windows = Windows(0, 0b11, EACH_SECOND)
        windows.plan(0b01, 10, 20)
        assert windows.look(0, 15).later == 20
        assert windows.look(0, 5).later == 20  # the search includes the first window behind the job
        assert windows.look(20, 5).later is None

    def test_the_search_for_the_next_attempt_ends_at_the_first_window_behind_the_job(self) -> None:
        windows = Windows(0, 0b11, EACH_SECOND)
        windows.plan(0b01, 10, 30)
        windows.plan(0b10, 20, 30)
        assert [window.begin for window in windows.windows] == [0, 10, 20, 30]
        assert windows.look(0, 5).later is None
        assert windows.look(0, 10).later == 30


class TestOrder:
    def test_the_tier_comes_before_the_priority_and_equal_jobs_keep_their_order(self) -> None:
        jobs = [
            waits("a", 1, partition="low", priority=9), waits("b", 1, partition="high", priority=1),
            waits("c", 1, partition="high", priority=1), waits("d", 1, partition="high", priority=2),
        ]  # fmt: skip
        tiers = {"low": SlurmPartition(0b1111, tier=1), "high": SlurmPartition(0b1111, tier=10)}
        assert [job.name for job in in_order(jobs, tiers)] == ["d", "b", "c", "a"]
        assert [job.name for job in in_order(jobs, {})] == ["a", "d", "b", "c"]

    def test_the_job_size_is_that_of_the_measured_priorities(self) -> None:
        sizes = [job_size(asks(4, nodes), FOUR) for nodes in (1, 2)]
        assert [int(10_000 * size) for size in sizes] == [1269, 2539]
        assert job_size(asks(4), FOUR, favours_small=True) == pytest.approx(1 - sizes[0])


class TestMainScheduler:
    def started(self, state: SchedulerState, parameters: Parameters = EACH_SECOND, depth: int = 0) -> list[str]:
        return [start.job.name for start in main_scheduler(state, parameters, depth)]

    def test_the_first_job_that_does_not_fit_closes_the_partition(self) -> None:
        running = [runs(name, node, 3, 500) for node, name in enumerate("abcd")]
        queue = [waits("fits", 1), waits("large", 2), waits("behind", 1)]
        assert self.started(SchedulerState(0, FOUR, running, queue)) == ["fits"]

    def test_it_looks_at_the_first_jobs_only(self) -> None:
        state = SchedulerState(0, FOUR, (), [waits("a", 1), waits("b", 1), waits("c", 1)])
        assert self.started(state, depth=2) == ["a", "b"]
        assert self.started(state, replace(EACH_SECOND, partition_job_depth=1)) == ["a"]

    def test_a_completing_node_accepts_no_job(self) -> None:
        state = SchedulerState(0, FOUR[:1], (), [waits("a", 1)], completing=0b1)
        assert self.started(state) == []

    def test_a_closed_partition_closes_its_nodes_to_other_partitions(self) -> None:
        both = {"small": SlurmPartition(0b0011), "all": SlurmPartition(0b1111)}
        running = [runs("a", 0, 4, 500)]
        queue = [waits("wide", 4, nodes=2, partition="small"), waits("other", 4, nodes=3, partition="all")]
        state = SchedulerState(0, FOUR, running, [*queue, waits("one", 4, partition="all")], partitions=both)
        # n2 is free, but belongs to the closed partition, so only n3 and n4 are left for the partition `all`.
        assert self.started(state) == []
        assert self.started(replace(state, pending=[queue[0], state.pending[2]])) == ["one"]

    @pytest.mark.parametrize(
        "job",
        [waits("stopped", 4, nodes=4, priority=20), waits("large", 4, nodes=4, priority=5)],
        ids=["stopped by a limit", "below bf_min_prio_reserve"],
    )
    def test_some_jobs_close_nothing(self, job: PendingJob) -> None:
        queue = [job, waits("behind", 1, priority=20)]
        state = SchedulerState(0, FOUR, [runs("a", 0, 4, 500)], queue, limits=Stopped())
        assert self.started(state, replace(EACH_SECOND, bf_min_prio_reserve=10)) == ["behind"]

    def test_a_limit_closes_the_partition_with_assoc_limit_stop(self) -> None:
        state = SchedulerState(0, FOUR, (), [waits("stopped", 1), waits("behind", 1)], limits=Stopped())
        assert self.started(state, replace(EACH_SECOND, assoc_limit_stop=True)) == []


class TestBackfill:
    def test_a_job_that_delays_no_plan_starts(self) -> None:
        running = [runs("a", 0, 4, 200), runs("b", 1, 4, 500), runs("c", 2, 4, 500)]
        queue = [waits("wide", 4, limit=600, nodes=2), waits("short", 4, limit=120), waits("long", 4, limit=600)]
        cycle = backfill(SchedulerState(0, FOUR, running, queue), EACH_SECOND)
        # The plan of `wide` is for n1 and n4 at 200 s. `short` ends before; `long` waits until a plan of n1 or n4 ends.
        assert names(cycle) == ["short"]
        assert planned(cycle)["wide"] == 200

    def test_a_plan_shuts_whole_nodes(self) -> None:
        # One GPU is free, and `one` plans the node for its second GPU, so that no other job gets it meanwhile.
        state = SchedulerState(0, FOUR[:1], [runs("a", 0, 3, 300)], [waits("two", 2), waits("long", 1, limit=600)])
        cycle = backfill(state, EACH_SECOND)
        assert names(cycle) == []
        assert planned(cycle) == {"two": 300, "long": 360}

    def test_each_job_has_a_plan(self) -> None:
        state = SchedulerState(0, FOUR[:1], [runs("a", 0, 4, 100)], [waits("b", 4), waits("c", 4), waits("d", 4)])
        assert planned(backfill(state, EACH_SECOND)) == {"b": 100, "c": 160, "d": 220}

    def test_plans_begin_at_multiples_of_the_resolution(self) -> None:
        state = SchedulerState(0, FOUR[:1], [runs("a", 0, 4, 100)], [waits("b", 4), waits("c", 4)])
        # The plan of `b` holds the node from 60 to 120 s.
        assert planned(backfill(state, Parameters())) == {"b": 100, "c": 120}

    def test_a_completing_node_is_planned_for_the_next_second(self) -> None:
        state = SchedulerState(50, FOUR[:1], (), [waits("a", 4)], completing=0b1)
        cycle = backfill(state, EACH_SECOND)
        assert (names(cycle), planned(cycle)) == ([], {"a": 51})

    def test_a_job_beyond_the_window_holds_no_nodes(self) -> None:
        state = SchedulerState(0, FOUR[:1], [runs("a", 0, 3, 120)], [waits("two", 2), waits("one", 1, limit=600)])
        assert names(backfill(state, EACH_SECOND)) == []
        assert names(backfill(state, replace(EACH_SECOND, bf_window=1))) == ["one"]

    @pytest.mark.parametrize("setting", ["bf_min_prio_reserve", "bf_min_age_reserve"])
    def test_an_unimportant_job_holds_no_nodes(self, setting: str) -> None:
        state = SchedulerState(0, FOUR[:1], [runs("a", 0, 3, 120)], [waits("two", 2), waits("one", 1, limit=600)])
        assert names(backfill(state, replace(EACH_SECOND, **{setting: 10}))) == ["one"]

    @pytest.mark.parametrize(
        ("setting", "started"),
        [
            ("bf_max_job_test", ["a1"]),
            ("bf_max_job_start", ["a1"]),
            ("bf_max_job_user", ["a1", "b1"]),
            ("bf_max_job_part", ["a1", "b1"]),
            ("bf_max_job_user_part", ["a1", "b1"]),
        ],
    )
    def test_limits_on_the_jobs_of_a_cycle(self, setting: str, started: list[str]) -> None:
        queue = [
            waits("a1", 1, user="ada", partition="x"),
            waits("a2", 1, user="ada", partition="x"),
            waits("b1", 1, user="bob", partition="y"),
        ]
        partitions = {"x": SlurmPartition(0b1111), "y": SlurmPartition(0b1111)}
        state = SchedulerState(0, FOUR, (), queue, partitions=partitions)
        assert names(backfill(state, EACH_SECOND)) == ["a1", "a2", "b1"]
        assert names(backfill(state, replace(EACH_SECOND, **{setting: 1}))) == started

    def test_a_job_stopped_by_a_limit_neither_starts_nor_gets_a_plan(self) -> None:
        cycle = backfill(SchedulerState(0, FOUR, (), [waits("stopped", 1)], limits=Stopped()), EACH_SECOND)
        assert cycle == Cycle()


@st.composite
def states(draw: st.DrawFn) -> SchedulerState:
    """Draw a state in which some nodes are full or nearly full."""
    now = draw(st.integers(0, 10_000))
    free = [4] * 4
    running = []
    for number in range(draw(st.integers(0, 8))):
        node = draw(st.integers(0, 3))
        gpus = draw(st.integers(1, 4))
        if gpus <= free[node]:
            free[node] -= gpus
            running.append(runs(f"r{number}", node, gpus, now + draw(st.integers(-50, 600))))
    pending = []
    for number in range(draw(st.integers(1, 8))):
        gpus = draw(st.integers(1, 4))
        limit = 60 * draw(st.integers(1, 10))
        pending.append(waits(f"p{number}", gpus, limit, nodes=draw(st.integers(1, 3))))
    return SchedulerState(now, FOUR, running, pending, completing=draw(st.sampled_from([0, 0, 0b0010])))


@given(states(), st.sampled_from([EACH_SECOND, Parameters()]))
def test_starts_fit_on_the_free_nodes(state: SchedulerState, parameters: Parameters) -> None:
    for starts in (main_scheduler(state, parameters), backfill(state, parameters).starts):
        after = state.after(starts).free()
        assert min(after.gpus) >= 0
        assert min(after.cpus) >= 0
        for start in starts:
            assert not node_set(places(start.held) or ()) & state.completing


@given(states(), st.sampled_from([EACH_SECOND, Parameters()]))
def test_a_job_starts_now_or_has_at_most_one_plan_for_later(state: SchedulerState, parameters: Parameters) -> None:
    cycle = backfill(state, parameters)
    answers = names(cycle) + [plan.job.name for plan in cycle.plans]
    assert len(set(answers)) == len(answers)
    assert all(plan.start > state.now for plan in cycle.plans)


@given(states())
def test_plans_of_one_node_do_not_overlap(state: SchedulerState) -> None:
    """A plan holds whole nodes, so no later plan of the cycle has one of them at the same time."""
    cycle = backfill(state, EACH_SECOND)
    for number, plan in enumerate(cycle.plans):
        for other in cycle.plans[:number]:
            is_at_once = plan.start < other.start + other.job.limit and other.start < plan.start + plan.job.limit
            assert not (is_at_once and set(places(plan.held) or ()) & set(places(other.held) or ()))


@given(states())
def test_the_main_scheduler_starts_the_first_jobs_of_the_queue(state: SchedulerState) -> None:
    started = [start.job.name for start in main_scheduler(state, EACH_SECOND)]
    assert started == [job.name for job in state.pending[: len(started)]]


@given(states(), st.integers(1, 100))
def test_decisions_do_not_change_if_all_times_move_by_half_a_minute(state: SchedulerState, count: int) -> None:
    """Only the remainder of epoch time modulo 30 s matters, and no absolute time."""
    shift = 30 * count
    running = [job._replace(end=job.end + shift) for job in state.running]
    moved = replace(state, now=state.now + shift, running=running)
    cycle = backfill(state, EACH_SECOND)
    later = backfill(moved, EACH_SECOND)
    assert later.starts == cycle.starts
    assert [plan._replace(start=plan.start - shift) for plan in later.plans] == cycle.plans


class Snapshot(NamedTuple):
    """The state of a real Slurm, and the expected starts that it states, by job."""

    state: SchedulerState
    expected: dict[str, int]


def snapshots(folder: Path) -> Iterator[Snapshot]:
    """Yield the states of the recorded run `live`, one every 20 s."""
    zero = json.loads((folder / "live.json").read_text())["t0"]
    with gzip.open(folder / "live.jsonl.gz", "rt") as lines:
        for line in lines:
            yield _snapshot(json.loads(line), zero)


def _snapshot(read: dict[str, Any], zero: float) -> Snapshot:
    running: list[RunningJob] = []
    pending: list[tuple[int, int, PendingJob]] = []
    expected: dict[str, int] = {}
    for job in read["squeue"]["jobs"]:
        name = str(job["job_id"])
        gpus = int(job["tres_per_node"].rpartition(":")[2])
        if job["job_state"] == "RUNNING":
            numbers = [int(node.removeprefix("n")) - 1 for node in expanded(job["nodes"]) or ()]
            running.append(RunningJob.on(name, tuple(Held(node, gpus, 1) for node in numbers), job["end_time"]))
        elif job["job_state"] == "PENDING":
            request = asks(gpus, job["node_count"])
            pending.append((-job["priority"], job["job_id"], PendingJob(name, request, 60 * job["time_limit"])))
            if job["start_time"]:
                expected[name] = job["start_time"]
    queue = [job for _, _, job in sorted(pending, key=lambda entry: entry[:2])]
    return Snapshot(SchedulerState(int(zero + read["at"]), FOUR, running, queue), expected)


def plans_near(folder: Path) -> tuple[int, int]:
    """Return the number of expected starts within 2 s of those of a real Slurm, and of all."""
    near = 0
    total = 0
    for state, expected in snapshots(folder):
        cycle = backfill(state, EACH_SECOND)
        starts = planned(cycle) | dict.fromkeys(names(cycle), state.now)
        near += sum(abs(starts.get(name, 0) - start) <= 2 for name, start in expected.items())
        total += len(expected)
    return near, total


def test_plans_are_those_of_squeue_start(slurm_runs: Path) -> None:
    assert plans_near(slurm_runs) == (312, 312)


def test_without_the_merge_of_windows_plans_differ(slurm_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windows, "_merge", lambda *_: None)
    near, total = plans_near(slurm_runs)
    assert near < 0.9 * total
