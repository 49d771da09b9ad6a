"""Elastic policies for deadlines: earliest deadline first, and ElasticFlow with admission and plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import ClassVar

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import JobId, Placement, num_replicas, packed
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.reasons import JobSeen, RoundSeen
from polluxsim.policies.contract.settings import unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason, ReasonKind, Traits
from polluxsim.policies.deadlines.buddies import buddies
from polluxsim.policies.deadlines.plans import Demand, GpuPlan, Schedule, capped_plan, following
from polluxsim.policies.ordered.classic import due
from polluxsim.policies.tools.gpu_counts import TrueTimes, decision_by, fewest_gpus, limits, powers_of_two
from polluxsim.policies.tools.reason_kinds import ELASTIC_UNITS, PLACE, needs_a_power_of_two
from polluxsim.policies.tools.timetable import Timetable
from polluxsim.workloads.job import Job


def has_no_more_in_its_pool(job: JobSeen, reason: Reason, seen: RoundSeen) -> bool:
    """Return whether a power of two does not fit, or, on several types, the request exceeds the idle GPUs of each type.

    A job of a pool moves to another type only if its request fits there.
    """
    fits_nowhere = len(job.speeds) > 1 and all(job.num_replicas > seen.free[name] for name in job.speeds)
    return fits_nowhere or needs_a_power_of_two(job, reason, seen)


_UNITS = {**ELASTIC_UNITS, "deadline": "s", "planned_end": "s"}

MOST_IT_CAN_USE = ReasonKind(
    "most-it-can-use",
    f"{PLACE} When its turn comes, [gpus_left=0?no GPU is left"
    "|{gpus_left:GPU} [gpus_left=1?is|are] left, and it [gpus=0?needs at least {fewest_gpus}"
    "|is_power=0?gets {gpus}, the most that it can use|gets {gpus}, the largest power of two that it can use (at most "
    "{max_replicas})]].",
    _UNITS,
    "A job gets as many of the GPUs that are left as it can use.",
    excuses_waiting=has_no_more_in_its_pool,
)
NOT_ADMITTED = ReasonKind(
    "not-admitted",
    "The policy rejects the job, because "
    "[planned_end>deadline?it would be complete at {planned_end:clock} even alone, after its deadline at "
    "{deadline:clock}."
    "|planned_end?no plan meets its deadline at {deadline:clock}[, those of {others}, which are admitted only together "
    "with it,] and the deadlines of all admitted jobs.|it needs more GPUs than are up.]",
    _UNITS,
    "A job is rejected, because its deadline cannot be met.",
)
PLANNED = ReasonKind(
    "planned",
    "[deadline?The policy admitted the job to meet its deadline at {deadline:clock}[deadline_gpus?, for which it needs "
    "at least {deadline_gpus:GPU} from now on]|The job has no deadline]. The policy spreads GPUs that no deadline "
    "needs, in powers of two, where they cost least extra GPU time. "
    "[planned_end?By its plan, the job [gpus=0?waits|has {gpus:GPU}] now and is complete at {planned_end:clock}."
    "|It waits until the plans of other jobs leave GPUs.] Beside all plans, [gpus_left=0?no GPU|{gpus_left:GPU}] of "
    "{num_gpus} [gpus_left>1?are|is] free now[gpus=0?, and the job needs at least {fewest_gpus}"
    "|next_gpus>gpus_left?, and its next larger number would take {next_gpus}"
    "|next_gpus?. The job gets more when the policy plans again, if it then ends earlier"
    "|, and no larger number would make the job faster].",
    {**_UNITS, "deadline_gpus": "GPUs"},
    "The plan of an admitted job.",
    excuses_waiting=needs_a_power_of_two,
    promises_deadline=True,
)
PLANNED_LATE = ReasonKind(
    "planned-late",
    "The job is slower than expected and will miss its deadline at {deadline:clock}. The plans of the other jobs leave "
    "it [gpus=0?no GPU|{gpus:GPU}] now[, and it is complete at {planned_end:clock} by its plan].",
    _UNITS,
    "An admitted job that will be late.",
)


Share = tuple[JobView, int, int]  # a job, its GPUs, and the GPUs that were left when it was considered


@dataclass(frozen=True)
class ElasticEdf(Policy):
    """Give each job, by deadline, the most GPUs that it can use and that are left, a power of two.

    The policy ignores whether more GPUs make a job faster, as the published baseline does. Jobs without a deadline come
    last. GPUs change only at arrivals and ends.

    Source: EDF in ElasticFlow (ASPLOS '23) and its simulator.
    """

    traits: ClassVar[Traits] = Traits(per_type=True)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if deadlines have no effect."""
        return unless_jobs_differ(jobs, "deadline", "its jobs get GPUs in order of submission")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give the GPUs to the jobs in order of deadline."""
        shares: list[Share] = []
        gpus_left = view.num_gpus
        for job in sorted(view.jobs, key=lambda job: sort_key(due(job))):
            gpus = max((count for count in powers_of_two(job, view.num_gpus) if count <= gpus_left), default=0)
            shares.append((job, gpus, gpus_left))
            gpus_left -= gpus
        counts = {job.job_id: gpus for job, gpus, _ in shares}
        return decision_by(view, counts, lambda jobs: _edf_reasons(shares, view.num_gpus, jobs))


def _edf_reasons(shares: Sequence[Share], num_gpus: int, asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Return the GPUs that were left when each job was considered, on a cluster of a number of GPUs."""
    wanted = set(asked)
    reasons: dict[JobId, Reason] = {}
    for position, (job, gpus, gpus_left) in enumerate(shares, start=1):
        if job.job_id in wanted:
            numbers = {"position": position, "gpus": gpus, "gpus_left": gpus_left, "max_replicas": job.max_replicas}
            deadline = {"no_deadline": 1} if job.deadline is None else {"deadline": job.deadline}
            numbers["is_power"] = int(gpus.bit_count() == 1)
            numbers["fewest_gpus"] = min(powers_of_two(job, num_gpus), default=fewest_gpus(job))
            reasons[job.job_id] = Reason(MOST_IT_CAN_USE, {**numbers, **deadline})
    return reasons


@dataclass
class ElasticFlow(Policy):
    """Admit jobs whose deadlines can be met, give each the fewest GPUs that meet it, and spread the other GPUs.

    A new job is admitted if a plan meets its deadline and those of all admitted jobs, restarts included. Otherwise it
    is rejected. Jobs without a deadline are always admitted, and get the GPUs that the plans leave. Arrivals and
    completions lead to new plans, by powers of two and true speeds. If the new plans miss a deadline, the old plans go
    on that meet theirs. A job that was slower than planned, and would be late, gets a new deadline: the earliest end
    that the plans of the other jobs leave.

    Jobs are placed by `buddies`. A job moves to make room only if its plan meets its deadline with one more restart.

    Parameters
    ----------
    together
        Whether the jobs with deadlines of a round are admitted together or not at all, as in the published simulator.

    Source: Gu et al., "ElasticFlow" (ASPLOS '23), §4.
    """

    traits: ClassVar[Traits] = Traits(per_type=True)
    together: bool = False
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)
    _plans: dict[JobId, GpuPlan] = field(default_factory=dict, init=False, repr=False)
    # Time of the last change of each job's GPUs [s].
    _changed: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    # Most GPUs of each job when the plans were made.
    _limits: Mapping[JobId, int] = field(default_factory=dict, init=False, repr=False)
    # Admitted jobs that miss their deadlines, because they were slower than planned, with their new deadlines [s].
    _late: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a line if no job has a deadline."""
        if not jobs or any(job.deadline is not None for job in jobs):
            return []
        return ["no job has a deadline: each job is admitted, and GPUs go where they make a job faster by most"]

    def stays_on_type(self, job: JobView) -> bool:
        """Return whether a job stays on its GPU type: a promise of a deadline holds there only."""
        return job.deadline is not None

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Admit jobs, and plan after arrivals, completions and changes of nodes or limits."""
        self._times.forget(view.changes)
        for job_id in view.changes.ended:
            for by_job in (self._plans, self._changed, self._late):
                by_job.pop(job_id, None)
        has_learnt = bool(view.changes.learnt) and limits(view) != self._limits
        rejected: dict[JobId, Reason] = {}
        if view.changes.jobs_or_nodes or has_learnt:
            rejected = self._plan_anew(view)
        elif any(view.has_come(view.round_at(plan.end)) for plan in self._plans.values()):
            self._plan_beyond(view)
        placed = self._placed(view, rejected)
        changed = [job.job_id for job in view.jobs if set(job.placement) != set(placed.get(job.job_id, ()))]
        self._changed |= dict.fromkeys(changed, view.time)
        steps = (start for plan in self._plans.values() for start, _ in plan.steps)
        ends = (view.round_at(plan.end) for plan in self._plans.values())
        plans = dict(self._plans)
        late = frozenset(self._late)
        return Decision(
            placed,
            rejected=tuple(rejected),
            valid_until=min((time for time in chain(steps, ends) if not view.has_come(time)), default=inf),
            outdated_by=Change.JOBS_OR_NODES | Change.LEARNING,
            explain=lambda jobs: (
                {name: rejected[name] for name in jobs if name in rejected}
                | self._reasons(view, plans, late, [name for name in jobs if name in plans])
            ),
        )

    def _placed(self, view: ClusterView, rejected: dict[JobId, Reason]) -> dict[JobId, Placement]:
        """Return placements in which jobs move only if their plans keep their deadlines with one more restart.

        If a job would be slower on the nodes that are left than its plan assumes, its plan changes. A new job that
        would be late is added to the rejected jobs.
        """
        fixed = {job.job_id for job in view.jobs if not self._gains_by_move(view, job)}
        slow: dict[JobId, set[int]] = {}
        while True:
            counts = {job_id: following(plan, view.time).gpus for job_id, plan in self._plans.items()}
            anywhere = {
                job.job_id for job in view.jobs if self._times.is_equal_anywhere(job, counts.get(job.job_id, 0))
            }
            placed = buddies(view, counts, fixed, anywhere)
            # A fixed job moves if it shared GPUs before a fork.
            may_move = [job for job in view.jobs if job.job_id not in fixed]
            moved = [job for job in may_move if _moves(job, placed.get(job.job_id, ()))]
            if moved and (too_late := self._restart(view, moved)):
                fixed |= too_late
            elif not self._plan_for_nodes(view, placed, slow, rejected):
                return placed

    def _plan_for_nodes(
        self,
        view: ClusterView,
        placed: Mapping[JobId, Placement],
        slow: dict[JobId, set[int]],
        rejected: dict[JobId, Reason],
    ) -> bool:
        """Plan with the speeds of jobs on the nodes that they would get; return whether a number of GPUs changes.

        `slow` collects the numbers of GPUs that a job is not to get now, because it ends earlier on another number, or
        meets its deadline there.
        """
        changed = [job for job in view.jobs if set(placed.get(job.job_id, ())) - set(job.placement)]
        slowdowns = {job.job_id: self._slowdown(view, job, placed[job.job_id]) for job in changed}
        if all(slowdown == 1.0 for slowdown in slowdowns.values()):
            return False
        schedule = Schedule(view, self._plans)
        changes = False
        demands = {job.job_id: self._demand(view, job).without(slow.get(job.job_id, ())) for job in view.jobs}
        for job in changed:
            gpus = num_replicas(placed[job.job_id])
            slowdown = slowdowns[job.job_id]
            demand = demands[job.job_id]
            if slowdown == 1.0 or gpus not in demand.times:
                continue
            schedule.remove(job.job_id)
            slowed = demand._replace(times={**demand.times, gpus: demand.times[gpus] * slowdown})
            plan_on_node = capped_plan(slowed, schedule.free, gpus)
            other_demand = demand.without([gpus])
            candidates = [plan_on_node, *(capped_plan(other_demand, schedule.free, cap) for cap in other_demand.times)]
            best = min(candidates, key=lambda plan: (not demand.is_met_by(plan), sort_key(plan.end)))
            if not demand.is_met_by(best) and job in view.changes.arrived:
                rejected[job.job_id] = _why_not(view, demand)
                changes = True
                continue
            schedule.add(job.job_id, best)
            demands[job.job_id] = slowed if best is plan_on_node else other_demand
            if best is not plan_on_node:
                slow.setdefault(job.job_id, set()).add(gpus)
                changes = True
        if changes:
            schedule.spread(demands)
        self._plans = schedule.plans
        return changes

    def _slowdown(self, view: ClusterView, job: JobView, placement: Placement) -> float:
        """Return the remaining time of a job on some nodes over that on the fewest nodes, at least 1."""
        if len(placement) <= len(packed(num_replicas(placement), view.node_size)):
            return 1.0
        return max(self._times.slowdown(job, placement), 1.0)

    def _restart(self, view: ClusterView, moved: Sequence[JobView]) -> set[JobId]:
        """Plan one more restart of each moved job, and return the jobs that would be late.

        In this case no plan changes.
        """
        schedule = Schedule(view, self._plans)
        too_late = set[str]()
        for job in moved:
            before = schedule.remove(job.job_id)
            demand = self._demand(view, job, moves=True)
            caps = max(gpus for _, gpus in before.steps), before.gpus
            plans = (capped_plan(demand, schedule.free, cap) for cap in caps)
            after = next((plan for plan in plans if plan.gpus == before.gpus and demand.is_met_by(plan)), None)
            if after is None:
                too_late.add(job.job_id)
            schedule.add(job.job_id, after or before)
        if not too_late:
            self._plans = schedule.plans
        return too_late

    def _plan_beyond(self, view: ClusterView) -> None:
        """Plan anew if a job runs beyond the end of its plan and all jobs can still meet their deadlines.

        The job keeps GPUs that the plans of other jobs need.
        """
        demands = {job.job_id: self._demand(view, job) for job in view.jobs}
        schedule = Schedule.of(view, demands)
        if schedule is not None:
            schedule.spread(demands)
            self._plans = schedule.plans

    def _plan_anew(self, view: ClusterView) -> dict[JobId, Reason]:
        """Plan for all admitted jobs, and return the reasons for rejections."""
        self._limits = limits(view)
        # A job that has GPUs was admitted by another policy before.
        arrived = {job.job_id: job for job in view.changes.arrived if not job.placement}
        demands = {job.job_id: self._demand(view, job) for job in view.jobs if job.job_id not in arrived}
        schedule = self._of_admitted(view, demands)
        new = {job.job_id: self._demand(view, job) for job in arrived.values()}
        rejected: dict[JobId, Reason] = {}
        for group in self._groups(new):
            with_group = _beside(schedule, demands, group)
            if with_group is None:
                other_jobs = {job_id: [name for name in group if name != job_id] for job_id in group}
                rejected |= {job_id: _why_not(view, group[job_id], other_jobs[job_id]) for job_id in group}
            else:
                schedule = with_group
                demands = demands | group
        schedule.spread(demands)
        self._plans = schedule.plans
        return rejected

    def _groups(self, new: dict[JobId, Demand]) -> list[dict[JobId, Demand]]:
        """Return the new jobs in groups that are admitted or rejected together."""
        bound = {job_id: demand for job_id, demand in new.items() if self.together and demand.deadline < inf}
        single_groups = [{job_id: demand} for job_id, demand in new.items() if job_id not in bound]
        return [bound, *single_groups] if bound else single_groups

    def _of_admitted(self, view: ClusterView, demands: dict[JobId, Demand]) -> Schedule:
        """Return plans that meet all deadlines, new or old ones. A job that cannot meet its deadline gets a new one."""
        schedule = Schedule.of(view, demands)
        if schedule is not None:
            return schedule
        schedule = Schedule(view)
        # A job that runs beyond the end of its plan, or lost its nodes, has no old plan to follow.
        running = (
            {}
            if view.changes.nodes
            else {name: plan for name, plan in self._plans.items() if not view.has_come(plan.end)}
        )
        # A plan also misses its deadline if the job had to take nodes on which it is slower.
        old = {name for name, demand in demands.items() if name in running and demand.is_met_by(running[name])}
        deadlines = {name: sort_key(demand.deadline) for name, demand in demands.items()}
        for job_id in sorted(demands, key=lambda name: (name not in old, name in self._late, deadlines[name])):
            if job_id in old:
                schedule.add(job_id, following(running[job_id], view.time))
            elif not schedule.admit(job_id, demand := demands[job_id]):
                plans = (capped_plan(demand, schedule.free, cap) for cap in demand.times or (0,))
                plan = min(plans, key=lambda plan: sort_key(plan.end))
                demands[job_id] = demand._replace(deadline=plan.end)
                schedule.add(job_id, plan)
                if plan.end < inf:  # otherwise it gets a new deadline once its nodes are up
                    self._late[job_id] = plan.end
        return schedule

    def _demand(self, view: ClusterView, job: JobView, *, moves: bool = False) -> Demand:
        """Return the requirements of a job. Numbers of GPUs that do not make the job faster are left out.

        If the job does not move, its speed on its present number of GPUs is that on its present nodes.
        """
        present_gpus = num_replicas(job.placement)
        delay = view.delay_of(job)
        times_alone = self._times.on(job, powers_of_two(job, view.num_gpus))
        if present_gpus in times_alone and not moves:
            times_alone[present_gpus] *= self._times.slowdown(job, job.placement)
        times = dict[int, float]()
        for gpus, time in times_alone.items():
            if time < min(times.values(), default=inf):
                times[gpus] = time
        pending = delay if moves else max(self._changed.get(job.job_id, -inf) + delay - view.time, 0.0)
        deadline = self._late.get(job.job_id, due(job))
        return Demand(times, deadline, present_gpus, pending if present_gpus else 0.0, delay)

    def _gains_by_move(self, view: ClusterView, job: JobView) -> bool:
        """Return whether a job on its present GPUs is so slow that fewer nodes are worth a restart."""
        present_gpus = num_replicas(job.placement)
        if len(job.placement) <= len(packed(present_gpus, view.node_size)):
            return True
        times = self._times.on(job, [present_gpus])
        return times.get(present_gpus, 0.0) * (self._times.slowdown(job, job.placement) - 1.0) > view.delay_of(job)

    def _reasons(
        self, view: ClusterView, plans: Mapping[JobId, GpuPlan], late: Collection[JobId], asked: Sequence[JobId]
    ) -> dict[JobId, Reason]:
        """Return the plans of admitted jobs as reasons."""
        jobs = {job.job_id: job for job in view.jobs}
        gpus_left = view.num_gpus - sum(following(plan, view.time).gpus for plan in plans.values())
        reasons = {}
        for job_id in asked:
            job = jobs[job_id]
            possible = powers_of_two(job, view.num_gpus)
            gpus = following(plans[job_id], view.time).gpus
            numbers = {
                "gpus": float(gpus),
                "gpus_left": float(gpus_left),
                "num_gpus": float(view.num_gpus),
                "fewest_gpus": float(min(possible, default=fewest_gpus(job))),
            }
            if plans[job_id].end < inf:
                numbers["planned_end"] = plans[job_id].end
            if job.deadline is not None:
                numbers["deadline"] = job.deadline
            reasons[job_id] = Reason(PLANNED_LATE, numbers)
            if job_id not in late:
                demand = self._demand(view, job)
                reasons[job_id] = Reason(PLANNED, numbers | _numbers_of_demand(view, demand, gpus))
        return reasons


def _numbers_of_demand(view: ClusterView, demand: Demand, gpus: int) -> dict[str, float]:
    """Return the fewest GPUs that meet a deadline alone from now on, and the GPUs to the next larger number."""
    numbers: dict[str, float] = {}
    if demand.deadline < inf:
        alone = Timetable(view.time, view.num_gpus)
        enough = (cap for cap in demand.times if demand.is_met_by(capped_plan(demand, alone, cap)))
        deadline_gpus = next(enough, None)
        if deadline_gpus is not None:
            numbers["deadline_gpus"] = float(deadline_gpus)
    larger = [count for count in demand.times if count > gpus]
    if larger:
        numbers["next_gpus"] = float(larger[0] - gpus)
    return numbers


def _moves(job: JobView, placement: Placement) -> bool:
    """Return whether a job keeps its number of GPUs but moves to other GPUs."""
    keeps_count = num_replicas(job.placement) == num_replicas(placement)
    return keeps_count and set(job.placement) != set(placement)


def _beside(schedule: Schedule, demands: Mapping[JobId, Demand], new: Mapping[JobId, Demand]) -> Schedule | None:
    """Return a schedule with new jobs, or None. All jobs get new plans; if that fails, only the new jobs do."""
    anew = Schedule.of(schedule.view, {**demands, **new})
    if anew is not None:
        return anew
    extended = Schedule(schedule.view, schedule.plans)
    return extended if all(extended.admit(job_id, demand) for job_id, demand in new.items()) else None


def _why_not(view: ClusterView, demand: Demand, group: Sequence[JobId] = ()) -> Reason:
    """Return why a job is not admitted. `group` contains the jobs that are admitted only together with it.

    The planned end is that of the job alone on the GPUs that are up. It is left out if these are too few.
    """
    numbers = {"deadline": demand.deadline}
    end = capped_plan(demand, Timetable(view.time, view.num_gpus), max(demand.times, default=0)).end
    if end < inf:
        numbers["planned_end"] = end
    return Reason(NOT_ADMITTED, numbers, tuple(group))
