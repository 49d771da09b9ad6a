"""ElasticFlow: a job is admitted only if all can meet their deadlines, and GPUs to spare go where they cost least."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from polluxsim.policies.deadlines import due
from polluxsim.policies.elastic import TrueTimes, placements, powers_of_two
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.timetable import Timetable
from polluxsim.policies.view import Change, Decision, Reason
from polluxsim.types import num_replicas

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Cluster, JobId
    from polluxsim.workloads.job import Job

    # Extra GPU time for each GPU more [GPU s], the job's place and name, and the GPUs it might have.
    Wish = tuple[float, int, JobId, int]


SLACK = 1e-6
"""A plan ends so much before its deadline, for rounding [s]."""


class Demand(NamedTuple):
    """What a job wants of a plan."""

    times: Mapping[int, float]  # what it still needs on numbers of GPUs, rising, each faster than those before [s]
    deadline: float  # when it should end, ∞ for as soon as GPUs are to spare [s]
    held: int  # GPUs it holds now
    pending: float  # time until its last restart is over [s]
    restart_delay: float  # time that a change of its GPUs takes [s]


class Plan(NamedTuple):
    """GPUs over time."""

    steps: Sequence[tuple[float, int]]  # from when on [s] the job holds how many GPUs, until it ends
    end: float  # when it is complete [s], ∞ for never

    @property
    def gpus(self) -> int:
        """Return what it holds first."""
        return self.steps[0][1]

    def reserve(self, free: Timetable, released: float, *, sign: int = 1) -> None:
        """Take the plan's GPUs until the job has released them [s], or with sign −1 give them back."""
        for (start, gpus), (end, _) in pairwise((*self.steps, (released, 0))):
            if gpus and start < end:
                free.take(sign * gpus, start, end)


def capped(demand: Demand, free: Timetable, cap: int) -> Plan:
    """Return the plan of a job that holds the most GPUs it can use at every time, but for a cap, restarts included."""
    counts = [gpus for gpus in demand.times if gpus <= cap]
    left, held, pending = 1.0, demand.held, demand.pending
    steps: list[tuple[float, int]] = []
    for start, end, available in free.intervals():
        gpus = max((count for count in counts if count <= available), default=0)
        if gpus != held:
            held, pending = gpus, demand.restart_delay if gpus else 0.0
        if not steps or steps[-1][1] != gpus:
            steps.append((start, gpus))
        if not gpus:
            continue
        trained = max(end - start - pending, 0.0)
        if left * demand.times[gpus] <= trained:
            return Plan(steps, start + pending + left * demand.times[gpus])
        left -= trained / demand.times[gpus]
        pending = max(pending - (end - start), 0.0)
    return Plan(steps, inf)


def least(demand: Demand, free: Timetable) -> Plan | None:
    """Return the plan with the least cap that meets the deadline, the minimum satisfactory share; None if none does.

    Source: progressive filling in ElasticFlow (ASPLOS '23), §4.1.
    """
    plans = (capped(demand, free, cap) for cap in demand.times)
    return next((plan for plan in plans if plan.end + SLACK <= demand.deadline), None)


def following(plan: Plan, now: float) -> Plan:
    """Return what is left of a plan."""
    place = max((index for index, (start, _) in enumerate(plan.steps) if start <= now), default=0)
    return Plan(((now, plan.steps[place][1]), *plan.steps[place + 1 :]), plan.end)


class Schedule:
    """The plans of several jobs, which fit together."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.plans: dict[JobId, Plan] = {}
        self.free = Timetable(view.time, view.num_gpus)

    def add(self, job_id: JobId, plan: Plan) -> None:
        """Take in a plan that fits beside the others."""
        plan.reserve(self.free, self.view.round_at(plan.end))
        self.plans[job_id] = plan

    def remove(self, job_id: JobId) -> Plan:
        """Give the GPUs of a plan back, and return it."""
        plan = self.plans.pop(job_id)
        plan.reserve(self.free, self.view.round_at(plan.end), sign=-1)
        return plan

    def admits(self, job_id: JobId, demand: Demand) -> bool:
        """Return whether a job fits beside the others, which is then planned; without a deadline it always does."""
        plan = least(demand, self.free) if demand.deadline < inf else capped(demand, self.free, min(demand.times))
        if plan is not None:
            self.add(job_id, plan)
        return plan is not None

    @classmethod
    def of(cls, view: ClusterView, demands: Mapping[JobId, Demand]) -> Schedule | None:
        """Return the least plans of jobs by deadline, None if not all can be kept."""
        schedule = cls(view)
        order = sorted(demands.items(), key=lambda item: item[1].deadline)
        return schedule if all(schedule.admits(job_id, demand) for job_id, demand in order) else None

    def spread(self, demands: Mapping[JobId, Demand]) -> None:
        """Give GPUs that are free now to those who end earlier by them, the least extra GPU time for each first."""
        wishes = (self._wish(order, job_id, demands[job_id]) for order, job_id in enumerate(self.plans))
        queue = [wish for wish in wishes if wish]
        heapify(queue)
        while queue:
            _, order, job_id, gpus = heappop(queue)
            if gpus - self.plans[job_id].gpus > self.free.now:
                continue
            before = self.remove(job_id)
            wider = capped(demands[job_id], self.free, gpus)
            self.add(job_id, wider if wider.gpus == gpus and wider.end + SLACK < before.end else before)
            if wish := self._wish(order, job_id, demands[job_id], gpus):
                heappush(queue, wish)

    def _wish(self, order: int, job_id: JobId, demand: Demand, tried: int = 0) -> Wish | None:
        """Return the next number of GPUs that a job might have, by what each would cost [GPU s]; None at its most."""
        now = self.plans[job_id].gpus
        if (more := next((gpus for gpus in demand.times if gpus > max(now, tried)), None)) is None:
            return None
        extra = (more * demand.times[more] - now * demand.times[now]) / (more - now) if now else -inf
        return extra, order, job_id, more


@pool_per_type
@dataclass
class ElasticFlow:
    """Admit jobs whose deadlines can be kept, give each the least GPUs that keep it, and spread what is left.

    A job that comes is admitted if there is a plan by which it and all admitted jobs meet their deadlines, restarts
    included; else it is rejected. Jobs without a deadline are always admitted, and get what the others leave. All is
    planned anew at arrivals and ends, by powers of two and true speeds; where that fails, the old plan, which keeps all
    deadlines, goes on.

    Parameters
    ----------
    together
        Whether jobs with deadlines that come in one round are admitted all or none, as in the published simulator.

    Source: Gu et al., "ElasticFlow" (ASPLOS '23), §4.
    """

    together: bool = False
    # Of several GPU types: what a job was promised, it was promised on one.
    jobs_stay: ClassVar[bool] = True
    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)
    _plans: dict[JobId, Plan] = field(default_factory=dict, init=False, repr=False)
    # When the GPUs of each job last changed [s].
    _changed: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    # Who was admitted and is late all the same, as it was slower than believed.
    _late: set[JobId] = field(default_factory=set, init=False, repr=False)

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether deadlines decide nothing."""
        if not jobs or any(job.deadline is not None for job in jobs):
            return []
        return ["no job has a deadline: each job is admitted, and GPUs go where they make a job faster by most"]

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Admit, plan and spread where something happened; else go on by the plan."""
        rejected: dict[JobId, Reason] = {}
        self._forget(view.changes.ended)
        if view.changes.arrived or view.changes.ended or view.changes.nodes:
            rejected = self._plan_anew(view)
        counts = {job_id: following(plan, view.time).gpus for job_id, plan in self._plans.items()}
        changed = [job.job_id for job in view.jobs if num_replicas(job.placement) != counts.get(job.job_id, 0)]
        self._changed |= dict.fromkeys(changed, view.time)
        steps = (start for plan in self._plans.values() for start, _ in plan.steps if start > view.time)
        plans, late = dict(self._plans), frozenset(self._late)
        return Decision(
            placements(view, counts),
            rejected=tuple(rejected),
            valid_until=min(steps, default=inf),
            outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES,
            explain=lambda jobs: (
                {name: rejected[name] for name in jobs if name in rejected}
                | _reasons(view, plans, late, [name for name in jobs if name in plans])
            ),
        )

    def _forget(self, jobs: Iterable[JobId]) -> None:
        self._times.forget(jobs)
        for job_id in jobs:
            self._plans.pop(job_id, None)
            self._changed.pop(job_id, None)
            self._late.discard(job_id)

    def _plan_anew(self, view: ClusterView) -> dict[JobId, Reason]:
        """Make plans for all that are or can be admitted; return why the others cannot."""
        # Who has GPUs already was admitted by the policy before.
        arrived = {job.job_id: job for job in view.changes.arrived if not job.placement}
        # A plan that is over, of a job that is not.
        self._late |= {job_id for job_id, plan in self._plans.items() if plan.end <= view.time}
        demands = {job.job_id: self._demand(view, job) for job in view.jobs if job.job_id not in arrived}
        schedule = self._of_admitted(view, demands)
        new = {job.job_id: self._demand(view, job) for job in arrived.values()}
        rejected: dict[JobId, Reason] = {}
        for group in self._groups(new):
            if (wider := _beside(schedule, demands, group)) is None:
                rejected |= {job_id: _why_not(view, demand) for job_id, demand in group.items()}
            else:
                schedule, demands = wider, demands | group
        schedule.spread(demands)
        self._plans = schedule.plans
        return rejected

    def _groups(self, new: dict[JobId, Demand]) -> list[dict[JobId, Demand]]:
        """Return the jobs that are admitted all or none."""
        bound = {job_id: demand for job_id, demand in new.items() if self.together and demand.deadline < inf}
        each = [{job_id: demand} for job_id, demand in new.items() if job_id not in bound]
        return [bound, *each] if bound else each

    def _of_admitted(self, view: ClusterView, demands: dict[JobId, Demand]) -> Schedule:
        """Return plans that keep all deadlines, new or else the old ones; who is late gets what is left."""
        if (schedule := Schedule.of(view, demands)) is not None:
            return schedule
        schedule = Schedule(view)
        order = sorted(demands, key=lambda job_id: (job_id in self._late, demands[job_id].deadline))
        for job_id in order:
            if job_id in self._plans and job_id not in self._late and not view.changes.nodes:
                schedule.add(job_id, following(self._plans[job_id], view.time))
            elif not schedule.admits(job_id, demands[job_id]):
                self._late.add(job_id)
                demands[job_id] = demands[job_id]._replace(deadline=inf)
                schedule.admits(job_id, demands[job_id])
        return schedule

    def _demand(self, view: ClusterView, job: JobView) -> Demand:
        """Return what a job wants: numbers of GPUs that are each faster than all below."""
        times = dict[int, float]()
        for gpus, time in self._times.on(view, job, powers_of_two(job, view.num_gpus)).items():
            if time < min(times.values(), default=inf):
                times[gpus] = time
        held = num_replicas(job.placement)
        delay = view.delay_of(job)
        pending = max(self._changed.get(job.job_id, -inf) + delay - view.time, 0.0)
        deadline = inf if job.job_id in self._late else due(job)
        return Demand(times, deadline, held, pending if held else 0.0, delay)


def _beside(schedule: Schedule, demands: Mapping[JobId, Demand], new: Mapping[JobId, Demand]) -> Schedule | None:
    """Return a schedule with further jobs: all planned anew, else these in what is left; None if there is none."""
    if (wider := Schedule.of(schedule.view, {**demands, **new})) is not None:
        return wider
    wider = Schedule(schedule.view)
    for job_id, plan in schedule.plans.items():
        wider.add(job_id, plan)
    return wider if all(wider.admits(job_id, demand) for job_id, demand in new.items()) else None


def _why_not(view: ClusterView, demand: Demand) -> Reason:
    """Say why a job is not admitted. Kind: `not-admitted`, with its end if it were alone."""
    alone = capped(demand, Timetable(view.time, view.num_gpus), max(demand.times))
    return Reason("not-admitted", {"deadline": demand.deadline, "planned_end": alone.end})


def _reasons(
    view: ClusterView, plans: Mapping[JobId, Plan], late: Collection[JobId], asked: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Say of admitted jobs what is planned for them. Kinds: `planned`, `planned-late`."""
    jobs, reasons = {job.job_id: job for job in view.jobs}, {}
    for job_id in asked:
        numbers = {"gpus": float(following(plans[job_id], view.time).gpus)}
        if plans[job_id].end < inf:
            numbers["planned_end"] = plans[job_id].end
        if (deadline := jobs[job_id].deadline) is not None:
            numbers["deadline"] = deadline
        reasons[job_id] = Reason("planned-late" if job_id in late else "planned", numbers)
    return reasons
