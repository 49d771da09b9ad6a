"""Elastic policies for deadlines: earliest deadline first, and ElasticFlow with admission and plans.

`ElasticEdf` gives GPUs by deadline and promises nothing. `ElasticFlow` promises each admitted job its deadline.

Invariant of `ElasticFlow`: the plans of all admitted jobs fit on the GPUs that are up, and a plan is replaced only by
one that meets the deadline, or because the job was slower than planned. A job that is late for this reason is in
`_late`, and its new deadline is the end of its new plan.

Trap: a placement can be slower than the plan assumes (on more nodes), or cost a restart that the plan does not have.
`ElasticFlow._placed` therefore places jobs again after each change of a plan, until plans and placements agree.

Source: Gu et al., "ElasticFlow" (ASPLOS '23), §4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import JobId, Placement, num_replicas, packed
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import unless_jobs_differ
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.deadlines.buddies import buddies
from polluxsim.policies.deadlines.explaining import numbers_of_demand, numbers_of_holders, why_not
from polluxsim.policies.deadlines.plans import Demand, GpuPlan, Schedule, best_plan, capped_plan, following
from polluxsim.policies.deadlines.reason_kinds import MOST_IT_CAN_USE, PLANNED, PLANNED_LATE
from polluxsim.policies.ordered.classic import due
from polluxsim.policies.tools.gpu_counts import TrueTimes, decision_by, fewest_gpus, limits, powers_of_two
from polluxsim.workloads.job import Job


class TurnOfJob(NamedTuple):
    """What a job gets when its turn comes in the order of deadlines."""

    job: JobView
    gpus: int
    gpus_left: int  # GPUs that no earlier job took


@dataclass(frozen=True)
class ElasticEdf(Policy):
    """Give each job, by deadline, the most GPUs that it can use and that are left, a power of two.

    A job that can use no power of two gets its largest number. The policy ignores whether more GPUs make a job faster,
    as the published baseline does. Jobs without a deadline come last. GPUs change only at arrivals and ends, at changes
    of nodes, and when an agent learns.

    Source: EDF in ElasticFlow (ASPLOS '23) and its simulator.
    """

    traits: ClassVar[Traits] = Traits(per_type=True)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return a sentence if deadlines have no effect."""
        return unless_jobs_differ(jobs, "deadline", "its jobs get GPUs in order of submission")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Give the GPUs to the jobs in order of deadline."""
        turns: list[TurnOfJob] = []
        counts: dict[JobId, int] = {}
        gpus_left = view.num_gpus
        for job in sorted(view.jobs, key=lambda job: sort_key(due(job))):
            gpus = max((count for count in powers_of_two(job, view.num_gpus) if count <= gpus_left), default=0)
            turns.append(TurnOfJob(job, gpus, gpus_left))
            counts[job.job_id] = gpus
            gpus_left -= gpus
        return decision_by(view, counts, lambda jobs: _edf_reasons(turns, view.num_gpus, jobs))


def _edf_reasons(turns: Sequence[TurnOfJob], num_gpus: int, asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Return the reasons of the jobs in `asked`, from the turns of all jobs on a cluster of `num_gpus` GPUs."""
    wanted = set(asked)
    reasons: dict[JobId, Reason] = {}
    ahead: dict[str, float] = {}  # GPUs of the nearest earlier job that gets some
    for position, (job, gpus, gpus_left) in enumerate(turns, start=1):
        ahead_of_job = ahead
        if gpus:
            ahead = {f"ahead {job.job_id}": gpus}
        if job.job_id not in wanted:
            continue
        numbers: dict[str, float] = {
            **ahead_of_job,
            "position": position,
            "gpus": gpus,
            "gpus_left": gpus_left,
            "max_replicas": job.max_replicas,
            # A job without a power of two gets its largest number of GPUs.
            "is_power": int(gpus.bit_count() == 1),
            "fewest_gpus": min(powers_of_two(job, num_gpus), default=fewest_gpus(job)),
        }
        if job.deadline is None:
            numbers["no_deadline"] = 1
        else:
            numbers["deadline"] = job.deadline
        reasons[job.job_id] = Reason(MOST_IT_CAN_USE, numbers)
    return reasons


@dataclass
class ElasticFlow(Policy):
    """Admit jobs whose deadlines can be met, give each the fewest GPUs that meet it, and spread the other GPUs.

    A new job is admitted if a plan meets its deadline and those of all admitted jobs, restarts included. Otherwise it
    is rejected. Jobs without a deadline are always admitted, and get the GPUs that the plans leave. Arrivals,
    completions, and changes of nodes or limits lead to new plans, by powers of two and true speeds. If the new plans
    miss a deadline, the old plans go on that meet theirs. A job that was slower than planned, and would be late, gets a
    new deadline: the earliest end that the plans of the other jobs leave.

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
        has_deadlines = any(job.deadline is not None for job in jobs)
        if not jobs or has_deadlines:
            return []
        return ["no job has a deadline: each job is admitted, and GPUs go where they make a job faster by most"]

    def stays_on_type(self, job: JobView) -> bool:
        """Return whether a job stays on its GPU type: a promise of a deadline holds there only."""
        return job.deadline is not None

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Admit jobs, and plan after arrivals, completions and changes of nodes or limits."""
        self._times.forget(view.changes)
        for job_id in view.changes.ended:
            self._plans.pop(job_id, None)
            self._changed.pop(job_id, None)
            self._late.pop(job_id, None)
        has_other_limits = bool(view.changes.learnt) and limits(view) != self._limits
        rejected: dict[JobId, Reason] = {}
        if view.changes.jobs_or_nodes or has_other_limits:
            rejected = self._plan_anew(view)
        elif self._runs_beyond_a_plan(view):
            self._plan_beyond(view)
        placed = self._placed(view, rejected)
        for job in view.jobs:
            if set(job.placement) != set(placed.get(job.job_id, ())):
                self._changed[job.job_id] = view.time
        # Copies, because the reasons may be asked for after this policy has planned again.
        plans = dict(self._plans)
        late = frozenset(self._late)

        def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
            reasons = {job_id: rejected[job_id] for job_id in asked if job_id in rejected}
            admitted = [job_id for job_id in asked if job_id in plans]
            return reasons | self._reasons(view, plans, late, admitted)

        return Decision(
            placed,
            rejected=tuple(rejected),
            valid_until=self._next_change(view),
            outdated_by=Change.JOBS_OR_NODES | Change.LEARNING,
            explain=explain,
        )

    def _runs_beyond_a_plan(self, view: ClusterView) -> bool:
        """Return whether a job has not ended by the round at which its plan ends."""
        return any(view.has_come(view.round_at(plan.end)) for plan in self._plans.values())

    def _next_change(self, view: ClusterView) -> float:
        """Return the next time at which a plan changes the GPUs of a job or ends; ∞ if there is none [s]."""
        next_change = inf
        for plan in self._plans.values():
            times = [start for start, _ in plan.steps]
            times.append(view.round_at(plan.end))
            for time in times:
                if time < next_change and not view.has_come(time):
                    next_change = time
        return next_change

    def _placed(self, view: ClusterView, rejected: dict[JobId, Reason]) -> dict[JobId, Placement]:
        """Return placements in which jobs move only if their plans keep their deadlines with one more restart.

        If a job would be slower on the nodes that are left than its plan assumes, its plan changes. A new job that
        would be late is added to the rejected jobs.
        """
        fixed = {job.job_id for job in view.jobs if not self._may_move(view, job)}
        avoided: dict[JobId, set[int]] = {}
        # Each turn fixes a further job, rejects one, or excludes a number of GPUs of one, so the loop ends.
        while True:
            counts = {job_id: following(plan, view.time).gpus for job_id, plan in self._plans.items()}
            anywhere: set[JobId] = set()
            for job in view.jobs:
                if self._times.is_equal_anywhere(job, counts.get(job.job_id, 0)):
                    anywhere.add(job.job_id)
            placed = buddies(view, counts, fixed, anywhere)
            # A fixed job moves if it shared GPUs before a fork. No plan can avoid this restart.
            may_move = [job for job in view.jobs if job.job_id not in fixed]
            moved = [job for job in may_move if _moves(job, placed.get(job.job_id, ()))]
            if moved:
                too_late = self._restart(view, moved)
                if too_late:
                    fixed |= too_late
                    continue
            if not self._plan_for_nodes(view, placed, avoided, rejected):
                return placed

    def _plan_for_nodes(
        self,
        view: ClusterView,
        placed: Mapping[JobId, Placement],
        avoided: dict[JobId, set[int]],
        rejected: dict[JobId, Reason],
    ) -> bool:
        """Plan with the speeds of jobs on the nodes that they would get; return whether a number of GPUs changes.

        `avoided` collects the numbers of GPUs that a job is not to get now, because it ends earlier on another number,
        or meets its deadline there. `rejected` collects the new jobs that would be late on all numbers.
        """
        changed = [job for job in view.jobs if set(placed.get(job.job_id, ())) - set(job.placement)]
        slowdowns = {job.job_id: self._slowdown(view, job, placed[job.job_id]) for job in changed}
        if all(slowdown == 1.0 for slowdown in slowdowns.values()):
            return False
        schedule = Schedule(view, self._plans)
        changes = False
        demands: dict[JobId, Demand] = {}
        for job in view.jobs:
            demands[job.job_id] = self._demand(view, job).without(avoided.get(job.job_id, ()))
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
            candidates = [plan_on_node]
            for cap in other_demand.times:
                candidates.append(capped_plan(other_demand, schedule.free, cap))
            best = best_plan(demand, candidates)
            # An admitted job has a promise and stays, although it will be late. A new job has none yet.
            if not demand.is_met_by(best) and job in view.changes.arrived:
                rejected[job.job_id] = why_not(view, demand, schedule)
                changes = True
                continue
            schedule.add(job.job_id, best)
            demands[job.job_id] = slowed if best is plan_on_node else other_demand
            if best is not plan_on_node:
                avoided.setdefault(job.job_id, set()).add(gpus)
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
            most_gpus = max(gpus for _, gpus in before.steps)
            after = None
            # With the cap of the old plan, the job may take more GPUs than before at once: then only its present GPUs.
            for cap in (most_gpus, before.gpus):
                plan = capped_plan(demand, schedule.free, cap)
                if plan.gpus == before.gpus and demand.is_met_by(plan):
                    after = plan
                    break
            if after is None:
                too_late.add(job.job_id)
            schedule.add(job.job_id, after or before)
        if not too_late:
            self._plans = schedule.plans
        return too_late

    def _plan_beyond(self, view: ClusterView) -> None:
        """Plan anew, because a job runs beyond the end of its plan; keep the plans if a deadline would be missed.

        The job keeps GPUs that the plans of other jobs need.
        """
        demands = self._demands(view, view.jobs)
        schedule = Schedule.of(view, demands)
        if schedule is not None:
            schedule.spread(demands)
            self._plans = schedule.plans

    def _plan_anew(self, view: ClusterView) -> dict[JobId, Reason]:
        """Plan for all admitted jobs, and return the reasons for rejections."""
        self._limits = limits(view)
        # A job that has GPUs was admitted by another policy before.
        arrived = {job.job_id: job for job in view.changes.arrived if not job.placement}
        admitted = [job for job in view.jobs if job.job_id not in arrived]
        demands = self._demands(view, admitted)
        schedule = self._of_admitted(view, demands)
        new = self._demands(view, arrived.values())
        rejected: dict[JobId, Reason] = {}
        for group in self._groups(new):
            with_group = schedule.with_new(demands, group)
            if with_group is None:
                for job_id, demand in group.items():
                    other_jobs = [other for other in group if other != job_id]
                    rejected[job_id] = why_not(view, demand, schedule, other_jobs)
            else:
                schedule = with_group
                demands = demands | group
        schedule.spread(demands)
        self._plans = schedule.plans
        return rejected

    def _groups(self, new: dict[JobId, Demand]) -> list[dict[JobId, Demand]]:
        """Return the new jobs in groups that are admitted or rejected together."""
        with_deadlines: dict[JobId, Demand] = {}
        single_groups: list[dict[JobId, Demand]] = []
        for job_id, demand in new.items():
            if self.together and demand.deadline < inf:
                with_deadlines[job_id] = demand
            else:
                single_groups.append({job_id: demand})
        return [with_deadlines, *single_groups] if with_deadlines else single_groups

    def _of_admitted(self, view: ClusterView, demands: dict[JobId, Demand]) -> Schedule:
        """Return plans that meet all deadlines, new or old ones. A job that must be late gets another in `demands`."""
        schedule = Schedule.of(view, demands)
        if schedule is not None:
            return schedule
        schedule = Schedule(view)
        old_plans = self._old_plans(view, demands)
        # The old plans come first, because they are known to fit together. Of the other jobs, late ones come last,
        # because they have missed their deadlines anyway.
        for job_id, plan in old_plans.items():
            schedule.add(job_id, following(plan, view.time))
        without_plan = [job_id for job_id in demands if job_id not in old_plans]
        for job_id in self._urgent_first(without_plan, demands):
            demand = demands[job_id]
            if schedule.admit(job_id, demand):
                continue
            # A job that can run on no number of GPUs gets the plan that never ends.
            caps = list(demand.times) or [0]
            plans = [capped_plan(demand, schedule.free, cap) for cap in caps]
            plan = min(plans, key=lambda plan: sort_key(plan.end))
            demands[job_id] = demand._replace(deadline=plan.end)
            schedule.add(job_id, plan)
            if plan.end < inf:  # otherwise it gets a new deadline once its nodes are up
                self._late[job_id] = plan.end
        return schedule

    def _old_plans(self, view: ClusterView, demands: Mapping[JobId, Demand]) -> dict[JobId, GpuPlan]:
        """Return the present plans that still meet the deadlines of their jobs, in the order of `_of_admitted`."""
        # After a change of nodes, a job may have lost GPUs, and the plans may need more GPUs than are up.
        if view.changes.nodes:
            return {}
        old_plans: dict[JobId, GpuPlan] = {}
        for job_id, demand in demands.items():
            plan = self._plans.get(job_id)
            # A job that runs beyond the end of its plan has no plan to follow.
            if plan is None or view.has_come(plan.end):
                continue
            # A plan also misses its deadline if the job had to take nodes on which it is slower.
            if demand.is_met_by(plan):
                old_plans[job_id] = plan
        return {job_id: old_plans[job_id] for job_id in self._urgent_first(old_plans, demands)}

    def _urgent_first(self, jobs: Iterable[JobId], demands: Mapping[JobId, Demand]) -> list[JobId]:
        """Return jobs by deadline, those that already miss their deadlines last."""
        return sorted(jobs, key=lambda job_id: (job_id in self._late, sort_key(demands[job_id].deadline)))

    def _demands(self, view: ClusterView, jobs: Iterable[JobView]) -> dict[JobId, Demand]:
        """Return the requirements of jobs that do not move."""
        return {job.job_id: self._demand(view, job) for job in jobs}

    def _demand(self, view: ClusterView, job: JobView, *, moves: bool = False) -> Demand:
        """Return the requirements of a job. Numbers of GPUs that do not make the job faster are left out.

        If the job does not move, its speed on its present number of GPUs is that on its present nodes.
        """
        present_gpus = num_replicas(job.placement)
        delay = view.delay_of(job)
        times_alone = self._times.on(job, powers_of_two(job, view.num_gpus))
        if present_gpus in times_alone and not moves:
            times_alone[present_gpus] *= self._times.slowdown(job, job.placement)
        times: dict[int, float] = {}
        shortest = inf
        for gpus, time in times_alone.items():
            if time < shortest:
                times[gpus] = time
                shortest = time
        if not present_gpus:
            pending = 0.0  # the plan adds a restart when it gives the job GPUs
        elif moves:
            pending = delay
        else:
            restart_end = self._changed.get(job.job_id, -inf) + delay
            pending = max(restart_end - view.time, 0.0)
        deadline = self._late.get(job.job_id, due(job))
        return Demand(times, deadline, present_gpus, pending, delay)

    def _may_move(self, view: ClusterView, job: JobView) -> bool:
        """Return whether a job may move: it is on the fewest nodes, or so slow that they are worth a restart."""
        present_gpus = num_replicas(job.placement)
        if len(job.placement) <= len(packed(present_gpus, view.node_size)):
            return True
        time_on_fewest_nodes = self._times.on(job, [present_gpus]).get(present_gpus, 0.0)
        time_lost = time_on_fewest_nodes * (self._times.slowdown(job, job.placement) - 1.0)
        return time_lost > view.delay_of(job)

    def _reasons(
        self, view: ClusterView, plans: Mapping[JobId, GpuPlan], late: Collection[JobId], asked: Sequence[JobId]
    ) -> dict[JobId, Reason]:
        """Return the reasons of the jobs in `asked`, which have plans. `late` contains the jobs that will be late."""
        jobs = {job.job_id: job for job in view.jobs}
        counts = {job_id: following(plan, view.time).gpus for job_id, plan in plans.items()}
        gpus_left = view.num_gpus - sum(counts.values())
        planned = [job for job in view.jobs if job.job_id in plans]
        planned.sort(key=lambda job: sort_key(due(job)))
        positions = {job.job_id: position for position, job in enumerate(planned, start=1)}
        reasons = {}
        for job_id in asked:
            job = jobs[job_id]
            possible = powers_of_two(job, view.num_gpus)
            gpus = counts[job_id]
            numbers = {
                "position": float(positions[job_id]),
                "jobs": float(len(plans)),
                "gpus": float(gpus),
                "gpus_left": float(gpus_left),
                "num_gpus": float(view.num_gpus),
                "fewest_gpus": float(min(possible, default=fewest_gpus(job))),
            }
            numbers |= numbers_of_holders(counts, job_id)
            if plans[job_id].end < inf:
                numbers["planned_end"] = plans[job_id].end
            if job.deadline is not None:
                numbers["deadline"] = job.deadline
            if job_id in late:
                reasons[job_id] = Reason(PLANNED_LATE, numbers)
            else:
                demand = self._demand(view, job)
                reasons[job_id] = Reason(PLANNED, numbers | numbers_of_demand(view, demand, gpus))
        return reasons


def _moves(job: JobView, placement: Placement) -> bool:
    """Return whether a job keeps its number of GPUs but moves to other GPUs."""
    keeps_count = num_replicas(job.placement) == num_replicas(placement)
    return keeps_count and set(job.placement) != set(placement)
