"""Slurm's schedulers as a policy of the simulator.

`Turns` tells which schedulers are due in a round, and `JobsOfView` turns the view into the plain values on which they
work. The schedulers themselves (`main_scheduler`, `backfill`) are functions of these values, and know no simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, Any, ClassVar

import numpy as np

from polluxsim.common.values import NonNegativeInt, OneOf, PositiveFloat
from polluxsim.common.written import Name, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import Host
from polluxsim.hardware.placements import JobId, Placement, partitions_of_queue
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import check_names, overestimate_without_effect, unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, Traits
from polluxsim.policies.slurm.backfill import backfill
from polluxsim.policies.slurm.explaining import Passes, Preempted, reasons
from polluxsim.policies.slurm.main_scheduler import main_scheduler
from polluxsim.policies.slurm.multifactor import billing, fair_shares, with_priorities
from polluxsim.policies.slurm.node_values import by_number, check_nodes
from polluxsim.policies.slurm.parameters import BACKFILL, Parameters
from polluxsim.policies.slurm.priority import in_order
from polluxsim.policies.slurm.priority_parameters import BASIC, MULTIFACTOR, PriorityParameters
from polluxsim.policies.slurm.stated_reservations import read_reservations
from polluxsim.policies.slurm.turns import Turns
from polluxsim.policies.slurm.usage import Usage
from polluxsim.policies.slurm.values import LimitStop, PendingJob, SchedulerState, SlurmPartition, SlurmStart, node_set
from polluxsim.policies.slurm.view_hosts import HostsOfView
from polluxsim.policies.slurm.view_state import JobsOfView, placement_of, whole_second
from polluxsim.workloads.job import Job

NODE = "node"
GPU = "gpu"


@takes_settings("policy")
@dataclass
class Slurm(PriorityParameters, Policy):
    """Decide as slurmctld does: main scheduler, sched/backfill and select/cons_tres.

    A job that allows one GPU type asks for it (`--gres=gpu:TYPE:N`); each job gets nodes of one type. A cycle takes no
    time. Jobs do not end at their limits, and a node of a job that ended accepts jobs at once. A preempted job that is
    requeued keeps what its checkpoints keep. `Parameters` and `PriorityParameters` of the
    same package state the parameters that are not listed here.

    Parameters
    ----------
    weight
        `Weight` of nodes by number, like {0-15: 10}; 1 for other nodes. Nodes of a lower weight are allocated first.
    tasks
        Tasks of a job: one on each node, or one for each GPU of a node (--ntasks-per-node).
    reservations
        Reservations by name, like {maint: {StartTime: 3600, EndTime: 7200, Nodes: 0-1}}. Times are in seconds, nodes
        are numbers, and `Jobs` lists the jobs that ask for the reservation (--reservation).
    begin_time
        Times from which jobs may start (--begin), by name of the job [s].
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.

    Source: SchedMD, slurm.conf(5) and the "Scheduling Configuration Guide"; runs of slurmctld 22.05.
    """

    # Groups of ends, plans and intervals depend on whole seconds.
    scales_with_time: ClassVar[bool] = False

    weight: Mapping[Name, NonNegativeInt] = field(default_factory=dict)
    tasks: Annotated[str, OneOf("node", "gpu")] = NODE
    reservations: Mapping[Name, Any] = field(default_factory=dict)
    begin_time: Mapping[Name, NonNegativeInt] = field(default_factory=dict)
    overestimate: PositiveFloat = 1.0
    _jobs: JobsOfView = field(init=False, repr=False, compare=False)
    _turns: Turns = field(init=False, repr=False, compare=False)
    _usage: Usage = field(init=False, repr=False, compare=False)
    _plans: dict[JobId, int] = field(default_factory=dict, init=False, repr=False, compare=False)  # starts [s]

    @property
    def traits(self) -> Traits:
        """Return the traits of the policy, which preempts jobs only if `preempt_type` says so."""
        return Traits(never_preempts=not self.preempts, keeps_shapes=True, obeys_limits=True, follows_clock=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = by_number("policy.weight", self.weight)
        self._jobs = JobsOfView(self, self.overestimate, self.tasks == GPU, weights)
        self._jobs.reservations = read_reservations(self.reservations)
        self._jobs.begin = self.begin_time
        self._turns = Turns(self)
        self._usage = Usage(60.0 * self.priority_decay_half_life)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence for each setting that has no effect."""
        check_nodes("policy.weight", self.weight, len(cluster.gpus_per_node))
        check_nodes("policy.reservations", self._jobs.reserved_nodes(), len(cluster.gpus_per_node))
        names_of_jobs = {job.job_id for job in jobs}
        check_names("policy.reservations", self._jobs.reservations.of_jobs, "job", names_of_jobs)
        check_names("policy.begin_time", self.begin_time, "job", names_of_jobs)
        names = {name for job in jobs for name in partitions_of_queue(job.queue)} | set(cluster.partitions)
        if names - {""}:
            for setting in ("priority_tier", "priority_job_factor"):
                check_names(f"policy.{setting}", getattr(self, setting), "queue", names | {""})
        sentences = overestimate_without_effect(self.overestimate, jobs)
        if self.priority_tier:
            sentences += unless_jobs_differ(jobs, "queue", "policy.priority_tier has no effect")
        for name in ("bf_max_job_user", "bf_max_job_user_part"):
            if getattr(self, name):
                sentences += unless_jobs_differ(jobs, "user", f"policy.{name} has no effect")
        if not self.has_backfill:
            for name, default in Parameters.__dataclass_fields__.items():
                if name.startswith("bf_") and getattr(self, name) != default.default:
                    sentences.append(f"policy.{name} has no effect without policy.scheduler_type={BACKFILL}")
        if self.priority_type == BASIC:
            for name in PriorityParameters.__dataclass_fields__:
                if name.startswith("priority_weight_") and getattr(self, name):
                    sentences.append(f"policy.{name} has no effect without policy.priority_type={MULTIFACTOR}")
        return sentences

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let the schedulers run that are due, and start their jobs in place of those that they preempt."""
        changes = view.changes
        # Schedulers run only after a change. That a requeued job may start again is a change, too.
        if changes.jobs_or_nodes or changes.evicted:
            self._turns.note_change()
        if self._jobs.forget_requeued(whole_second(view.time)) or self._jobs.passes_reservation(view.time):
            self._turns.note_change()
        self._jobs.take_note(view)
        if self.counts_usage:
            for name, time in changes.ended.items():
                self._usage.end(name, time)
        cancelled = [job.job_id for job in view.waiting if job.job_id in self._jobs.cancelled]
        self._jobs.resume(view)
        passes = self._run(view)
        self._count_use(view, passes)
        placements: dict[JobId, Placement] = {}
        for name, job in self._jobs.resumed.items():
            placements[name] = placement_of(job.held)
        now = whole_second(view.time)
        for start in passes.starts:
            for name in start.preempts:
                self._jobs.preempt(view, name)
                placements[name] = ()
            placements[start.job.name] = self._jobs.start(start, now)
        view.limits.take_note(view.jobs, placements, others_keep=True)
        # Without a job that waits, no run could start one.
        next_run = inf
        if len(passes.starts) < len(view.waiting):
            next_run = view.round_at(self._turns.next_run(view.time))
        next_requeued = view.round_at(self._jobs.next_requeued())
        if len(self._jobs.cancelled) > len(cancelled):
            # The preempted jobs lose their GPUs now, and end at the next round.
            next_run = view.time
        # The reasons may be asked for later, when the policy has other plans.
        plans = self._plans
        preempted = Preempted(
            self._jobs.begin_times, frozenset(self._jobs.suspended), frozenset(self._jobs.resumed), frozenset(cancelled)
        )
        return Decision(
            placements,
            others_keep=True,
            hosts=self._grants(view, placements),
            rejected=cancelled,
            delays=dict.fromkeys(self._jobs.resumed, 0.0),
            valid_until=min(next_run, next_requeued, view.round_at(self._jobs.next_reservation(view.time))),
            outdated_by=Change.JOBS_OR_NODES,
            explain=lambda jobs: reasons(view, passes, plans, preempted, next_run, jobs),
        )

    def _grants(self, view: ClusterView, placements: Mapping[JobId, Placement]) -> dict[JobId, Host]:
        """Return the CPUs and memory of running and starting jobs."""
        if not view.hosts:
            return {}
        placed = []
        for job in view.jobs:
            placement = placements.get(job.job_id, job.placement)
            if placement:
                placed.append((job, placement))
        return HostsOfView(view, self).grants(placed)

    def _run(self, view: ClusterView) -> Passes:
        """Let the schedulers run that are due, the main scheduler first."""
        turns = self._turns
        now = view.time
        runs_main = turns.main_runs(now)
        runs_backfill = turns.backfill_runs(now)
        if not view.waiting or not (runs_main or runs_backfill):
            return Passes()
        state = self._jobs.state(view)
        if self.priority_tier or view.partitions:
            state = replace(state, partitions=self._partitions(view, state))
        state = replace(state, pending=self._in_order(state))
        queue = state.pending
        num_considered = 0
        by_main: list[SlurmStart] = []
        by_backfill: list[SlurmStart] = []
        if runs_main:
            depth = turns.depth(now)
            by_main = main_scheduler(state, self, depth)
            state = state.after(by_main)
            # A depth of 0 is the whole queue.
            num_considered = min(depth or len(queue), len(queue))
            turns.note_main(now, is_whole_queue=num_considered == len(queue))
        if runs_backfill:
            cycle = backfill(state, self)
            by_backfill = cycle.starts
            self._plans = {plan.job.name: plan.start for plan in cycle.plans}
            num_considered = len(queue)
            turns.note_backfill(now)
        if by_main or by_backfill:
            turns.note_starts()
        stopped: dict[JobId, LimitStop] = {}
        if self.accounts or self.qos:
            started = {start.job.name for start in (*by_main, *by_backfill)}
            for job in queue:
                stop = None if job.name in started else state.limits.stop(job)
                if stop is not None:
                    stopped[job.name] = stop
        return Passes(queue, num_considered, by_main, by_backfill, stopped)

    def _partitions(self, view: ClusterView, state: SchedulerState) -> dict[str, SlurmPartition]:
        """Return the partitions of the jobs by name. Without partitions of the cluster, each has all nodes."""
        partitions: dict[str, SlurmPartition] = {}
        for job in (*view.running, *view.waiting):
            for name in partitions_of_queue(job.queue):
                if name in partitions:
                    continue
                nodes = node_set(view.partitions[name]) & state.up if view.partitions else state.up
                partitions[name] = SlurmPartition(nodes, self.priority_tier.get(name, 1))
        return partitions

    def _in_order(self, state: SchedulerState) -> Sequence[PendingJob]:
        """Return the pending jobs in the order of the queue."""
        if self.priority_type == BASIC:
            # Without tiers, the jobs are in the order of submission already.
            return in_order(state.pending, state.partitions) if state.partitions else state.pending
        # Slurm computes priorities once in a period.
        period = 60 * self.priority_calc_period
        computed_at = state.now // period * period
        fair_share: dict[str, float] = {}
        if self.counts_usage:
            for job in state.pending:
                self._usage.add_user(job.user)
            fair_share = fair_shares(self._usage.at(computed_at), self)
        prioritised = with_priorities(state.pending, state.nodes, computed_at, fair_share, self)
        return in_order(prioritised, state.partitions)

    def _count_use(self, view: ClusterView, passes: Passes) -> None:
        """Count the use of jobs that ended, start, or lose their nodes."""
        if not self.counts_usage:
            return
        for name in view.changes.evicted:
            self._usage.end(name, view.time)
        for job in view.waiting:
            if job.job_id in self._jobs.resumed:
                held = self._jobs.resumed[job.job_id].held
                self._usage.begin(job.job_id, job.user or "", billing(held, self), view.time)
        for start in passes.starts:
            for name in start.preempts:
                self._usage.end(name, view.time)
            self._usage.begin(start.job.name, start.job.user, billing(start.held, self), view.time)
