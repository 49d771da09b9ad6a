"""Slurm's schedulers as the deciders of a comparison, and what a record does not state about an installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from polluxsim.common.durations import length
from polluxsim.hardware.placements import partitions_of_queue
from polluxsim.policies.slurm.association_limits import AssociationLimits, JobOwner
from polluxsim.policies.slurm.backfill import ExpectedStart, backfill
from polluxsim.policies.slurm.consumption import Needs, StatedConsumption, needs
from polluxsim.policies.slurm.eligibility import Conditions, Dependency, JobState, taking_part
from polluxsim.policies.slurm.main_scheduler import main_scheduler
from polluxsim.policies.slurm.multifactor import billing, fair_shares, with_priorities
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.priority import in_order, job_size
from polluxsim.policies.slurm.priority_parameters import PriorityParameters
from polluxsim.policies.slurm.usage import Usage
from polluxsim.policies.slurm.values import (
    NO_LIMITS,
    Held,
    Node,
    NodePart,
    NodeSet,
    PendingJob,
    Request,
    RunningJob,
    SchedulerState,
    SlurmLimits,
    SlurmPartition,
    SlurmStart,
    node_set,
)
from polluxsim.studies.decisions.changes_of_nodes import NO_CHANGES, ChangesOfNodes
from polluxsim.studies.decisions.orders import SeenState
from polluxsim.studies.decisions.record import RecordedJob, Started

SUBMISSION = "submission"
SIZE = "size"
SMALL = "small"
ORDERS = (SUBMISSION, SIZE, SMALL)
"""Orders of the queue: priority/basic, or priority/multifactor by the job size alone, large or small jobs first."""
FACTORS = "factors"
"""Order by all factors of priority/multifactor that the policy states."""
FITTED_ORDERS = (SUBMISSION, SIZE)  # orders that are tried if none is stated

NODE = "node"
GPU = "gpu"
TASKS = (NODE, GPU)
"""Tasks of a job: one on each node, or one for each GPU of a node (--ntasks-per-node)."""

MAIN = "main"
BACKFILL = "backfill"
BOTH = "both"

SIZE_WEIGHT = 10_000  # PriorityWeightJobSize; any weight gives the same order


@dataclass(frozen=True)
class Installation:
    """What a comparison assumes about an installation of Slurm."""

    nodes: tuple[Node, ...]
    parameters: Parameters
    order: str = SUBMISSION
    tasks: str = NODE
    zero: int = 0  # epoch time of second 0 of the record [s]
    tiers: Mapping[str, int] = field(default_factory=dict)  # `PriorityTier` of partitions by name; 1 for other ones
    partitions: Mapping[str, NodeSet] = field(default_factory=dict)  # by name; all nodes for other ones
    node_names: Sequence[str] = ()  # in the order of `nodes`; needed for the next value
    changes: ChangesOfNodes = NO_CHANGES  # reservations, and nodes that were drained
    jobs: tuple[RecordedJob, ...] = ()  # of the record, from which the usage of users is counted


class SlurmDecider:
    """Slurm's schedulers on an installation."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        # Several orders of a second lead to the same moment, and jobs ask for the same in all of them.
        self._starts: dict[tuple[SeenState, str], frozenset[Started]] = {}
        self._requests: dict[str, Request] = {}
        self._shares: dict[int, dict[str, float]] = {}  # fair-share factors of users, by time [s]
        self._conditions: dict[str, Conditions] = {}

    @property
    def schedulers(self) -> Sequence[str]:
        """Return the schedulers that may run in a second."""
        return (MAIN, BACKFILL, BOTH) if self._installation.parameters.has_backfill else (MAIN,)

    @property
    def judges_quiet(self) -> bool:
        """Return whether all schedulers run each second in which something happens."""
        parameters = self._installation.parameters
        return not parameters.has_backfill or parameters.bf_interval == 1

    def starts(self, moment: SeenState, scheduler: str) -> frozenset[Started]:
        """Return the jobs that a scheduler starts, and those that it preempts for them."""
        key = (moment, scheduler)
        if key not in self._starts:
            starts, _ = self.decide(moment, scheduler)
            decided = []
            for start in starts:
                decided.append(started(start))
                decided += [Started(name, (), is_preempted=True) for name in start.preempts]
            self._starts[key] = frozenset(decided)
        return self._starts[key]

    def reasons(self, moment: SeenState, scheduler: str) -> dict[str, str]:
        """Return why each pending job starts or waits, in words."""
        starts, plans = self.decide(moment, scheduler)
        state = self._state_of(moment)
        name_of = {MAIN: "the main scheduler", BACKFILL: "the backfill", BOTH: "the main scheduler or the backfill"}
        reasons = {
            job.name: f"{name_of[scheduler]} finds no room for it now, and plans no start" for job in moment.pending
        }
        # Later reasons replace earlier ones: a start says more than a plan, and a plan more than none.
        if scheduler == MAIN:
            for job in moment.pending:
                reasons[job.name] = "the main scheduler does not start it, because it or a job before it does not fit"
        eligible = {job.name for job in state.pending}
        for job in moment.pending:
            if job.name not in eligible:
                reasons[job.name] = "it does not take part yet: its begin time, a dependency or its array holds it back"
        for waiting in state.pending:
            stop = state.limits.stop(waiting)
            if stop is not None:
                in_use = f"{stop.whose or 'each job'}: {stop.held} of {stop.most} in use"
                limit = f"{stop.name} of {stop.resource} ({in_use}, {stop.needed} needed)"
                reasons[waiting.name] = f"a limit of its account or QOS stops it: {limit}"
        for plan in plans:
            ahead = length(plan.start - moment.second - self._installation.zero)
            reasons[plan.job.name] = f"the backfill plans it in {ahead}, when its nodes are expected to be free"
        for start in starts:
            reasons[start.job.name] = f"{name_of[scheduler]} starts it: it fits, and delays no plan of a job before it"
        return reasons

    def decide(self, moment: SeenState, scheduler: str, depth: int = 0) -> tuple[list[SlurmStart], list[ExpectedStart]]:
        """Return the starts of a scheduler, and the plans of the backfill.

        The main scheduler considers `depth` jobs; 0 for the whole queue.
        """
        state = self._state_of(moment)
        parameters = self._installation.parameters
        starts: list[SlurmStart] = []
        plans: list[ExpectedStart] = []
        if scheduler in (MAIN, BOTH):
            starts += main_scheduler(state, parameters, depth)
        # The backfill sees the starts of the main scheduler in the same second.
        if scheduler in (BACKFILL, BOTH):
            cycle = backfill(state.after(starts), parameters)
            starts += cycle.starts
            plans += cycle.plans
        return starts, plans

    def _state_of(self, moment: SeenState) -> SchedulerState:
        """Return what slurmctld knows at a moment."""
        installation = self._installation
        zero = installation.zero
        nodes_of = {start.job: start.nodes for start in moment.started}
        running = []
        for job in moment.running:
            # An earlier pass may have put the job on other nodes than the record, if nodes are not compared.
            nodes = nodes_of.get(job.name, job.nodes)
            runs = RunningJob.on(job.name, self._held(job, nodes), job.start + job.limit + zero)
            running.append(runs._replace(start=job.start + zero, partition=job.partition, qos=job.asked.qos))
        pending = []
        for job in sorted(moment.pending, key=lambda job: (job.queued, job.position)):
            request = self._request(job)
            priority = 0.0
            order = self._installation.order
            if order in (SIZE, SMALL):
                # Priorities are whole numbers in Slurm, so jobs of nearly equal size keep the order of submission.
                size = job_size(request, self._installation.nodes, favours_small=order == SMALL)
                priority = float(int(SIZE_WEIGHT * size))
            pending.append(
                PendingJob(
                    job.name,
                    request,
                    job.limit,
                    priority,
                    job.earliest + zero,
                    job.user,
                    job.partition,
                    job.asked.reservation,
                    job.asked.qos,
                    self._owner(job).account,
                )
            )
        if self._installation.order == FACTORS:
            pending = self._by_factors(pending, moment.second + zero)
        partitions = self._partitions((*moment.pending, *moment.running))
        completing = node_set(node for job in moment.completing for node in job.nodes)
        return SchedulerState(
            moment.second + zero,
            self._installation.nodes,
            running,
            in_order(self._taking_part(moment, pending), partitions),
            completing,
            installation.changes.drained_at(moment.second, installation.node_names),
            partitions,
            self._limits(moment),
            preempts={name: qos.preempts for name, qos in installation.parameters.qualities.items()},
            reservations=installation.changes.reservations_at(moment.second, installation.node_names, zero),
        )

    def _by_factors(self, pending: Sequence[PendingJob], now: int) -> list[PendingJob]:
        """Return the pending jobs with the priorities that the stated factors give [s]."""
        parameters = self._installation.parameters
        if not isinstance(parameters, PriorityParameters):
            raise TypeError("the factors of the priority need PriorityParameters")
        period = 60 * parameters.priority_calc_period
        computed_at = now // period * period
        fair_share: dict[str, float] = {}
        if parameters.counts_usage:
            fair_share = self._fair_shares(computed_at, parameters)
        return with_priorities(pending, self._installation.nodes, computed_at, fair_share, parameters)

    def _fair_shares(self, time: int, parameters: PriorityParameters) -> dict[str, float]:
        """Return the fair-share factors of users at a time [s], from the recorded jobs that started before it."""
        if time not in self._shares:
            zero = self._installation.zero
            usage = Usage(60.0 * parameters.priority_decay_half_life)
            for number, job in enumerate(self._installation.jobs):
                usage.add_user(job.user)
                if job.start + zero <= time:
                    # By number, because a requeued job may be in the record twice.
                    usage.begin(
                        str(number), job.user, billing(self._held(job, job.nodes), parameters), job.start + zero
                    )
                    if job.end + zero <= time:
                        usage.end(str(number), job.end + zero)
            self._shares[time] = fair_shares(usage.at(time), parameters)
        return self._shares[time]

    def _limits(self, moment: SeenState) -> SlurmLimits:
        """Return the limits of accounts and QOS, with what running jobs hold of them."""
        parameters = self._installation.parameters
        if not (parameters.accounts or parameters.qos):
            return NO_LIMITS
        limits = AssociationLimits(parameters.tree, parameters.qualities)
        for job in moment.running:
            limits.count(self._owner(job), self._held(job, job.nodes))
        return limits

    def _owner(self, job: RecordedJob) -> JobOwner:
        """Return the user, account and QOS of a job; the account is that of the user if the record states none."""
        account = job.asked.account or self._installation.parameters.tree.of_user(job.user)
        return JobOwner(job.user, account, job.asked.qos)

    def _taking_part(self, moment: SeenState, pending: Sequence[PendingJob]) -> Sequence[PendingJob]:
        """Return the pending jobs that are eligible and within the limit of their array, in their order."""
        for job in moment.pending:
            if job.name not in self._conditions:
                self._conditions[job.name] = conditions_of(job, self._installation.zero)
        states = dict.fromkeys((job.name for job in moment.pending), JobState.PENDING)
        # A dependency is fulfilled only when the nodes of the other job have completed too.
        states |= dict.fromkeys((job.name for job in (*moment.running, *moment.completing)), JobState.RUNNING)
        running = [job.name for job in moment.running]
        now = moment.second + self._installation.zero
        return taking_part(pending, self._conditions, running, now, lambda name: states.get(name, JobState.COMPLETED))

    def _partitions(self, jobs: Sequence[RecordedJob]) -> dict[str, SlurmPartition]:
        """Return the partitions of jobs by name, with all nodes and tier 1 if nothing is stated."""
        installation = self._installation
        all_nodes = node_set(range(len(installation.nodes)))
        partitions = {}
        for job in jobs:
            for name in partitions_of_queue(job.partition):
                nodes = installation.partitions.get(name, all_nodes)
                partitions[name] = SlurmPartition(nodes, installation.tiers.get(name, 1))
        return partitions

    def _held(self, job: RecordedJob, nodes: Sequence[int]) -> tuple[Held, ...]:
        """Return what a job holds on each of its nodes."""
        held = []
        for node, gpus in zip(nodes, job.gpus_by_node, strict=True):
            needed = self._needs(job, gpus)
            on_node = self._installation.nodes[node]
            cpus = needed.cpus
            if job.asked.exclusive:
                # No other job may use the rest of the node.
                cpus = on_node.cpus
            memory = NodePart(1, gpus, cpus, needed.memory).memory_on(on_node)
            held.append(Held(node, gpus, cpus, memory))
        return tuple(held)

    def _needs(self, job: RecordedJob, gpus: int) -> Needs:
        """Return the CPUs and memory that a job needs on a node on which it has GPUs."""
        installation = self._installation
        num_tasks = gpus if installation.tasks == GPU else 1
        stated = StatedConsumption(job.asked.cpus, job.asked.memory)
        return needs(gpus, num_tasks, stated, installation.parameters)

    def _request(self, job: RecordedJob) -> Request:
        """Return what a job asks for, as parts with equal numbers of GPUs on each node, from what it got."""
        if job.name not in self._requests:
            parts: dict[int, int] = {}
            for gpus in job.gpus_by_node:
                parts[gpus] = parts.get(gpus, 0) + 1
            of_job = []
            for gpus, count in parts.items():
                needed = self._needs(job, gpus)
                of_job.append(NodePart(count, gpus, needed.cpus, needed.memory))
            self._requests[job.name] = Request(
                tuple(of_job),
                states_tasks=self._installation.tasks == GPU,
                gpu_type=job.gpu_type,
                features=job.asked.features,
                exclusive=job.asked.exclusive,
            )
        return self._requests[job.name]


def conditions_of(job: RecordedJob, zero: int) -> Conditions:
    """Return what has to be true before a job of a record takes part.

    A record has only jobs that started, so the jobs on which they depend ended as they had to.
    """
    dependencies = []
    for dependency in job.asked.dependencies:
        kind = dependency.kind
        if kind in ("afterok", "afternotok"):
            kind = "afterany"
        dependencies.append(Dependency(kind, dependency.jobs))
    return Conditions(job.earliest + zero, tuple(dependencies), job.asked.array, job.asked.most_at_once)


def started(start: SlurmStart) -> Started:
    """Return a start of Slurm as one of a comparison, with its nodes in rising order."""
    return Started(start.job.name, tuple(sorted(held.node for held in start.held)))
