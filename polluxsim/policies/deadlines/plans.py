"""Plans of GPUs over time for jobs with deadlines, and the schedule that they form together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from polluxsim.common.instants import has_come, sort_key
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.tools.timetable import Timetable

# Extra GPU time for each further GPU [s], order of the job, its name, and its GPUs if the wish is granted.
Wish = tuple[float, int, JobId, int]


class Demand(NamedTuple):
    """Requirements of a job on its plan."""

    times: Mapping[int, float]  # remaining time by ascending numbers of GPUs, each shorter than those before [s]
    deadline: float  # latest end [s], ∞ for none
    held: int  # GPUs that the job holds now
    pending: float  # time until the last restart is over [s]
    restart_delay: float  # time of a restart [s]

    def without(self, counts: Collection[int]) -> Demand:
        """Return the demand without some numbers of GPUs."""
        return self._replace(times={gpus: time for gpus, time in self.times.items() if gpus not in counts})

    def is_met_by(self, plan: GpuPlan) -> bool:
        """Return whether a plan ends by the deadline."""
        return has_come(plan.end, self.deadline)


class GpuPlan(NamedTuple):
    """GPUs over time."""

    steps: Sequence[tuple[float, int]]  # times [s], and the GPUs that the job holds from then on
    end: float  # time of completion [s], ∞ for never

    @property
    def gpus(self) -> int:
        """Return the GPUs of the first step."""
        return self.steps[0][1]

    def reserve(self, free: Timetable, released: float, *, sign: int = 1) -> None:
        """Take the GPUs of the plan until the job releases them [s], or give them back with sign −1."""
        for (start, gpus), (end, _) in pairwise((*self.steps, (released, 0))):
            if gpus and start < end:
                free.take(sign * gpus, start, end)


def capped_plan(demand: Demand, free: Timetable, cap: int) -> GpuPlan:
    """Return the plan in which a job always holds all free GPUs that it can use, up to a cap; restarts are included."""
    counts = [gpus for gpus in demand.times if gpus <= cap]
    work_left = 1.0
    gpus_before = demand.held
    pending = demand.pending
    steps: list[tuple[float, int]] = []
    for start, end, available in free.intervals():
        gpus = max((count for count in counts if count <= available), default=0)
        if gpus != gpus_before:
            gpus_before = gpus
            pending = demand.restart_delay if gpus else 0.0
        if not steps or steps[-1][1] != gpus:
            steps.append((start, gpus))
        if not gpus:
            continue
        trained = max(end - start - pending, 0.0)
        completion = start + pending + work_left * demand.times[gpus]
        if has_come(completion, end):
            return GpuPlan(steps, completion)
        work_left -= trained / demand.times[gpus]
        pending = max(pending - (end - start), 0.0)
    return GpuPlan(steps, inf)


def following(plan: GpuPlan, now: float) -> GpuPlan:
    """Return the rest of a plan from now on [s]."""
    step = max((index for index, (start, _) in enumerate(plan.steps) if has_come(start, now)), default=0)
    return GpuPlan(((now, plan.steps[step][1]), *plan.steps[step + 1 :]), plan.end)


class Schedule:
    """Plans of jobs that together need at most the GPUs of the cluster. At first it has the rest of each of `plans`."""

    def __init__(self, view: ClusterView, plans: Mapping[JobId, GpuPlan] = MappingProxyType({})) -> None:
        self.view = view
        self.plans: dict[JobId, GpuPlan] = {}
        self.free = Timetable(view.time, view.num_gpus)
        for job_id, plan in plans.items():
            self.add(job_id, following(plan, view.time))

    def add(self, job_id: JobId, plan: GpuPlan) -> None:
        """Add a plan, for which enough GPUs are free."""
        plan.reserve(self.free, self.view.round_at(plan.end))
        self.plans[job_id] = plan

    def remove(self, job_id: JobId) -> GpuPlan:
        """Remove a plan, and return it."""
        plan = self.plans.pop(job_id)
        plan.reserve(self.free, self.view.round_at(plan.end), sign=-1)
        return plan

    def admit(self, job_id: JobId, demand: Demand) -> bool:
        """Add the plan with the least cap that meets the deadline of a job; return False if no plan meets it.

        Without a deadline, the least cap is the fewest GPUs of the job.

        Source: minimum satisfactory share by progressive filling in ElasticFlow (ASPLOS '23), §4.1.
        """
        # While nodes are down, a job may fit on no number of GPUs. Without a deadline, it then waits.
        caps = demand.times if demand.deadline < inf else [min(demand.times, default=0)]
        plans = (capped_plan(demand, self.free, cap) for cap in caps)
        plan = next((plan for plan in plans if demand.is_met_by(plan)), None)
        if plan is not None:
            self.add(job_id, plan)
        return plan is not None

    @classmethod
    def of(cls, view: ClusterView, demands: Mapping[JobId, Demand]) -> Schedule | None:
        """Return the least plans of jobs in order of deadline, or None if a deadline is missed."""
        schedule = cls(view)
        order = sorted(demands.items(), key=lambda item: sort_key(item[1].deadline))
        return schedule if all(schedule.admit(job_id, demand) for job_id, demand in order) else None

    def spread(self, demands: Mapping[JobId, Demand]) -> None:
        """Give free GPUs to jobs that complete earlier with them.

        Jobs without GPUs come first, then the least extra GPU time for each further GPU.

        Source: elastic allocation of ElasticFlow (ASPLOS '23), §4.2; that jobs without GPUs come first is ours.
        """
        wishes = (self._wish(order, job_id, demands[job_id]) for order, job_id in enumerate(self.plans))
        queue = [wish for wish in wishes if wish]
        heapify(queue)
        while queue:
            _, order, job_id, gpus = heappop(queue)
            if gpus - self.plans[job_id].gpus > self.free.now:
                continue
            before = self.remove(job_id)
            after = capped_plan(demands[job_id], self.free, gpus)
            self.add(job_id, after if after.gpus == gpus and not has_come(before.end, after.end) else before)
            wish = self._wish(order, job_id, demands[job_id], gpus)
            if wish:
                heappush(queue, wish)

    def _wish(self, order: int, job_id: JobId, demand: Demand, tried: int = 0) -> Wish | None:
        """Return the next larger number of GPUs of a job with its extra GPU time for each further GPU [s], or None."""
        now = self.plans[job_id].gpus
        if now and now not in demand.times:
            return None  # a plan from before keeps its GPUs, although fewer GPUs on fewer nodes are now faster
        more = next((gpus for gpus in demand.times if gpus > max(now, tried)), None)
        if more is None:
            return None
        if not now:
            return -inf, order, job_id, more
        service = more * demand.times[more]
        extra = (service - now * demand.times[now]) / (more - now)
        return sort_key(extra, now=service), order, job_id, more
