"""Slurm's schedulers as a policy of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, ClassVar

import numpy as np

from polluxsim.common.values import NonNegativeInt, OneOf, PositiveFloat, PositiveInt
from polluxsim.common.written import Name, takes_settings
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.hosts import Host
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import check_owners, overestimate_without_effect, unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, Traits
from polluxsim.policies.slurm.backfill import backfill
from polluxsim.policies.slurm.explaining import Passes, reasons
from polluxsim.policies.slurm.main_scheduler import main_scheduler
from polluxsim.policies.slurm.node_values import by_number, check_nodes
from polluxsim.policies.slurm.parameters import BACKFILL, Parameters
from polluxsim.policies.slurm.priority import in_order, job_size
from polluxsim.policies.slurm.turns import Turns
from polluxsim.policies.slurm.values import ClusterState, Partition, PendingJob, Start
from polluxsim.policies.slurm.view_hosts import HostsOfView
from polluxsim.policies.slurm.view_state import JobsOfView, whole_second
from polluxsim.workloads.job import Job

BASIC = "priority/basic"
MULTIFACTOR = "priority/multifactor"
NODE = "node"
GPU = "gpu"


@takes_settings("policy")
@dataclass
class Slurm(Parameters, Policy):
    """Decide as slurmctld does: main scheduler, sched/backfill and select/cons_tres.

    A job that allows one GPU type asks for it (`--gres=gpu:TYPE:N`); each job gets nodes of one type. A cycle takes no
    time. Jobs do not end at their limits, and a node of a job that ended accepts jobs at once. A preempted job is
    requeued, and keeps what its checkpoints keep. `Parameters` of the same package states the parameters that are not
    listed here.

    Parameters
    ----------
    priority_type
        `PriorityType`: priority/basic is the order of submission; priority/multifactor adds the next two factors.
    priority_weight_job_size, priority_weight_age
        `PriorityWeightJobSize` and `PriorityWeightAge`.
    priority_favor_small
        `PriorityFavorSmall`: whether small jobs have a larger factor of the job size.
    priority_max_age
        `PriorityMaxAge`: time of waiting at which the age counts in full [min].
    priority_calc_period
        `PriorityCalcPeriod`: time between two computations of priorities [min].
    priority_tier
        `PriorityTier` of partitions by name; 1 for other partitions. The queue of a job is its partition.
    weight
        `Weight` of nodes by number, like {0-15: 10}; 1 for other nodes. Nodes of a lower weight are allocated first.
    tasks
        Tasks of a job: one on each node, or one for each GPU of a node (--ntasks-per-node).
    overestimate
        Limit of a job without a time limit, as a multiple of its true run time.

    Source: SchedMD, slurm.conf(5) and the "Scheduling Configuration Guide"; runs of slurmctld 22.05.
    """

    # Groups of ends, plans and intervals depend on whole seconds.
    scales_with_time: ClassVar[bool] = False

    priority_type: Annotated[str, OneOf("priority/basic", "priority/multifactor")] = BASIC
    priority_weight_job_size: NonNegativeInt = 0
    priority_weight_age: NonNegativeInt = 0
    priority_favor_small: bool = False
    priority_max_age: PositiveInt = 7 * 24 * 60
    priority_calc_period: PositiveInt = 5
    priority_tier: Mapping[Name, PositiveInt] = field(default_factory=dict)
    weight: Mapping[Name, NonNegativeInt] = field(default_factory=dict)
    tasks: Annotated[str, OneOf("node", "gpu")] = NODE
    overestimate: PositiveFloat = 1.0
    _jobs: JobsOfView = field(init=False, repr=False, compare=False)
    _turns: Turns = field(init=False, repr=False, compare=False)
    _plans: dict[JobId, int] = field(default_factory=dict, init=False, repr=False, compare=False)  # starts [s]

    @property
    def traits(self) -> Traits:
        """Return the traits of the policy, which preempts jobs only if `preempt_type` says so."""
        return Traits(never_preempts=not self.preempts, keeps_shapes=True, obeys_limits=True, follows_clock=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = by_number("policy.weight", self.weight)
        self._jobs = JobsOfView(self, self.overestimate, self.tasks == GPU, weights)
        self._turns = Turns(self)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence for each setting that has no effect."""
        check_nodes("policy.weight", self.weight, len(cluster.gpus_per_node))
        check_owners("policy.priority_tier", self.priority_tier, jobs, "queue", "")
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
            for name in ("priority_weight_job_size", "priority_weight_age"):
                if getattr(self, name):
                    sentences.append(f"policy.{name} has no effect without policy.priority_type={MULTIFACTOR}")
        return sentences

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Let the schedulers run that are due, and start their jobs."""
        changes = view.changes
        if changes.jobs_or_nodes or changes.evicted:
            self._turns.note_change()
        if self._jobs.forget_requeued(whole_second(view.time)):
            self._turns.note_change()
        self._jobs.take_note(view)
        passes = self._run(view)
        placements: dict[JobId, Placement] = {}
        now = whole_second(view.time)
        for start in passes.starts:
            for name in start.preempts:
                self._jobs.requeue(name, now)
                placements[name] = ()
            placements[start.job.name] = self._jobs.start(start, now)
        view.limits.take_note(view.jobs, placements, others_keep=True)
        next_run = inf
        if len(passes.starts) < len(view.waiting):
            next_run = view.round_at(self._turns.next_run(view.time))
        next_requeued = view.round_at(self._jobs.next_requeued())
        plans = self._plans
        return Decision(
            placements,
            others_keep=True,
            hosts=self._grants(view, placements),
            valid_until=min(next_run, next_requeued),
            outdated_by=Change.JOBS_OR_NODES,
            explain=lambda jobs: reasons(view, passes, plans, next_run, jobs),
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
        if self.priority_tier:
            partitions = {}
            names = {job.partition for job in state.pending} | {job.partition for job in state.running}
            for name in names:
                partitions[name] = Partition(state.up, self.priority_tier.get(name, 1))
            state = replace(state, partitions=partitions)
        state = replace(state, pending=self._in_order(state))
        queue = state.pending
        num_considered = 0
        by_main: list[Start] = []
        by_backfill: list[Start] = []
        if runs_main:
            depth = turns.depth(now)
            by_main = main_scheduler(state, self, depth)
            state = state.after(by_main)
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
        stopped: frozenset[JobId] = frozenset()
        if self.accounts or self.qos:
            started = {start.job.name for start in (*by_main, *by_backfill)}
            stopped = frozenset(job.name for job in queue if job.name not in started and state.limits.stops(job))
        return Passes(queue, num_considered, by_main, by_backfill, stopped)

    def _in_order(self, state: ClusterState) -> Sequence[PendingJob]:
        """Return the pending jobs in the order of the queue."""
        if self.priority_type == BASIC:
            return in_order(state.pending, state.partitions) if self.priority_tier else state.pending
        period = 60 * self.priority_calc_period
        computed_at = state.now // period * period
        prioritised = []
        for job in state.pending:
            age = min(max(computed_at - job.eligible, 0) / (60 * self.priority_max_age), 1.0)
            size = job_size(job.request, state.nodes, favours_small=self.priority_favor_small)
            priority = int(self.priority_weight_age * age + self.priority_weight_job_size * size)
            prioritised.append(job._replace(priority=float(max(priority, 1))))
        return in_order(prioritised, state.partitions)
