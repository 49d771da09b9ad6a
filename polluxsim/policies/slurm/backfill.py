"""One cycle of sched/backfill: start the jobs that delay no plan of a job before them, and plan the other jobs.

A cycle has two sources. The map of windows (`windows`) tells which nodes no plan holds at a time. WILL_RUN (`will_run`)
tells when running jobs leave enough of these nodes. A job is tried at later and later times until both agree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.preemption import candidates, preempting_in_backfill
from polluxsim.policies.slurm.reservations import opening
from polluxsim.policies.slurm.selection import chosen_nodes
from polluxsim.policies.slurm.values import (
    Allocated,
    JobName,
    NodeSet,
    PendingJob,
    Request,
    RunningJob,
    SchedulerState,
    SlurmStart,
    node_set,
)
from polluxsim.policies.slurm.will_run import Expected, FreeResources, will_run
from polluxsim.policies.slurm.windows import MapAnswer, Windows


class ExpectedStart(NamedTuple):
    """The expected start of a job, as `squeue --start` prints it."""

    job: PendingJob
    start: int  # [s]
    held: Allocated
    holds_nodes: bool  # whether no later job of the cycle may use the nodes then


@dataclass
class Cycle:
    """The result of a cycle."""

    starts: list[SlurmStart] = field(default_factory=list)
    plans: list[ExpectedStart] = field(default_factory=list)
    num_tested: int = 0  # jobs that were tested, whether or not they start


def backfill(state: SchedulerState, parameters: Parameters) -> Cycle:
    """Return what a cycle starts and plans. It knows no plans of earlier cycles.

    The jobs that start are counted in `state.limits`.
    """
    return _Cycle(state, parameters).run()


class _Cycle:
    """A cycle at work."""

    def __init__(self, state: SchedulerState, parameters: Parameters) -> None:
        self._state = state
        self._parameters = parameters
        self._windows = Windows(state.now, state.up, parameters)
        self._occupancy = FreeResources.of(state)
        # Answers of `will_run` since the last start, which do not depend on the time of the attempt.
        self._expected: dict[tuple[Request, NodeSet], Expected | None] = {}
        self._tested = Counter[tuple[str, str]]()
        self._result = Cycle()
        self._started: set[JobName] = set()
        if parameters.bf_running_job_reserve:
            for job in state.running:
                self._windows.plan(job.nodes, state.now, job.end)

    def run(self) -> Cycle:
        """Test the jobs of the queue in order, and return what starts and what is planned.

        Jobs that a limit stops are skipped. The cycle ends at the largest number of tests or of starts.
        """
        most_starts = self._parameters.bf_max_job_start
        for job in self._state.pending:
            # A job of several partitions is in the queue several times, and has perhaps started in one of them.
            if job.name in self._started:
                continue
            if self._state.limits.stops(job) or self._is_beyond_limits(job):
                continue
            if self._result.num_tested >= self._parameters.bf_max_job_test:
                break
            if most_starts and len(self._result.starts) >= most_starts:
                break
            self._result.num_tested += 1
            self._test(job)
        return self._result

    def _is_beyond_limits(self, job: PendingJob) -> bool:
        """Return whether a limit on the tested jobs of a user or a partition leaves a job out, and count it otherwise.

        The limits keep one user with many jobs from using the time of a whole cycle.
        (Source: slurm.conf(5), `bf_max_job_user`, `bf_max_job_part` and `bf_max_job_user_part`.)
        """
        parameters = self._parameters
        keys = {
            ("user", job.user): parameters.bf_max_job_user,
            ("partition", job.partition): parameters.bf_max_job_part,
            (job.user, job.partition): parameters.bf_max_job_user_part,
        }
        if any(most and self._tested[key] >= most for key, most in keys.items()):
            return True
        self._tested.update(keys.keys())
        return False

    def _test(self, job: PendingJob) -> None:
        """Start or plan a job, or leave it out.

        The steps are those of plugins/sched/backfill/backfill.c.
        """
        now = self._state.now
        nodes_of_job = self._state.nodes_of(job)
        start: int | None = now
        while start is not None:
            nodes, later = self._look(job, start)
            # Only a start now can preempt jobs; a plan never does.
            if start == now and self._preempts(job, nodes & nodes_of_job):
                return
            expected = self._expect(job.request, nodes & nodes_of_job)
            if expected is None:
                start = later
                continue
            # The answer counts running jobs, and `start` counts plans: the job waits for the later of both.
            used = node_set(held.node for held in expected.held)
            time = max(expected.start, start)
            if time <= now:
                if not used & self._state.completing:
                    self._start(SlurmStart(job, expected.held))
                    return
                # A completing node is free for WILL_RUN, but accepts no job. So the start is one second late.
                # (Measured.)
                time = now + 1
            # Before `time`, more nodes may become free, on which the job could start earlier.
            if later is not None and time > later:
                start = later
                continue
            if self._windows.lacks(used, time, time + job.limit):
                start = time
                continue
            self._plan(ExpectedStart(job, time, expected.held, holds_nodes=self._holds_nodes(job, time)), used)
            return

    def _preempts(self, job: PendingJob, allowed: NodeSet) -> bool:
        """Start a job that finds its nodes busy by preemption if it can, and return whether it does."""
        if not self._parameters.preempts:
            return False
        occupancy = self._occupancy
        if chosen_nodes(job.request, allowed, occupancy.free, occupancy.nodes) is not None:
            return False
        lower = [running for running in candidates(job, self._state, self._parameters) if occupancy.has(running)]
        taken = preempting_in_backfill(job.request, allowed, occupancy.free, occupancy.nodes, lower, self._parameters)
        if taken is None:
            return False
        for victim in taken.victims:
            occupancy.end(victim)
        self._start(SlurmStart(job, taken.held, tuple(victim.name for victim in taken.victims)))
        return True

    def _look(self, job: PendingJob, start: int) -> MapAnswer:
        """Return what plans and reservations leave to a job from a time on, and the time of the next attempt."""
        look = self._windows.look(start, job.limit)
        if not self._state.reservations:
            return look
        nodes, later = opening(job, start, look.nodes, self._state.reservations)
        times = [time for time in (look.later, later) if time is not None]
        return MapAnswer(nodes, min(times, default=None))

    def _expect(self, request: Request, allowed: NodeSet) -> Expected | None:
        """Return the answer of `will_run`; None also if there are too few nodes to ask."""
        if allowed.bit_count() < request.nodes:
            return None
        key = (request, allowed)
        if key not in self._expected:
            self._expected[key] = will_run(request, allowed, self._occupancy, self._state.now, self._parameters)
        return self._expected[key]

    def _start(self, start: SlurmStart) -> None:
        """Start a job. Running jobs are not in the map of windows, because `will_run` knows them."""
        self._result.starts.append(start)
        self._started.add(start.job.name)
        self._state.limits.add(start.job)
        running = RunningJob.begun(start, self._state.now)
        self._occupancy.start(running)
        self._expected.clear()
        if self._parameters.bf_running_job_reserve:
            self._windows.plan(running.nodes, self._state.now, running.end)

    def _holds_nodes(self, job: PendingJob, time: int) -> bool:
        """Return whether a plan is early enough, and its job important enough, to hold nodes."""
        latest = self._state.now + self._parameters.bf_window * 60
        return time <= latest and self._parameters.reserves(job.priority, self._state.now - job.eligible)

    def _plan(self, plan: ExpectedStart, used: NodeSet) -> None:
        """Record a plan. It takes whole nodes: a job that waits for one GPU shuts its node to every job then."""
        self._result.plans.append(plan)
        if plan.holds_nodes:
            self._windows.plan(used, plan.start, plan.start + plan.job.limit)
