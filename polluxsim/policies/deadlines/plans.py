"""Plans of GPUs over time for jobs with deadlines, and the schedule that they form together.

A `Demand` is what a job needs, a `GpuPlan` is what it gets, and a `Schedule` contains the plans of all jobs. The GPUs
of all plans never exceed those of the cluster, because each plan takes its GPUs from the timetable of the schedule.

Trap: a plan states times at which a job changes its GPUs, but policies decide at rounds. A plan that ends between two
rounds therefore reserves its GPUs until the next round.

Source: Gu et al., "ElasticFlow" (ASPLOS '23), §4.1 and §4.2.
"""

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


class Demand(NamedTuple):
    """Requirements of a job on its plan."""

    times: Mapping[int, float]  # remaining time by ascending numbers of GPUs, each shorter than those before [s]
    deadline: float  # latest end [s], ∞ for none
    present_gpus: int  # GPUs that the job holds now
    pending: float  # time until the last restart is over [s]
    restart_delay: float  # time of a restart [s]

    def without(self, counts: Collection[int]) -> Demand:
        """Return the demand without some numbers of GPUs."""
        other_times = {gpus: time for gpus, time in self.times.items() if gpus not in counts}
        return self._replace(times=other_times)

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
        release = (released, 0)
        for (start, gpus), (end, _) in pairwise((*self.steps, release)):
            if gpus and start < end:
                free.take(sign * gpus, start, end)


class Wish(NamedTuple):
    """The next larger number of GPUs of a job. The smallest wish is granted first."""

    cost: float  # extra GPU time for each further GPU [s], as a sort key; −∞ if the job has no GPUs
    order: int  # rank of the job among the plans, which decides between equal costs
    job_id: JobId
    gpus: int  # GPUs of the job if the wish is granted


def capped_plan(demand: Demand, free: Timetable, cap: int) -> GpuPlan:
    """Return the plan in which a job always holds all free GPUs that it can use, up to a cap; restarts are included.

    The plan never ends if the job can run on no number of GPUs up to the cap.
    """
    counts = [gpus for gpus in demand.times if gpus <= cap]
    work_left = 1.0  # share of the remaining work; the times of the demand are those of the whole
    gpus_before = demand.present_gpus
    pending = demand.pending
    steps: list[tuple[float, int]] = []
    for start, end, available in free.intervals():
        gpus = max((count for count in counts if count <= available), default=0)
        if gpus != gpus_before:
            # Each change of GPUs is a restart. The job trains only after it.
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
        # The rest of a restart that is longer than the interval falls into the next one.
        pending = max(pending - (end - start), 0.0)
    return GpuPlan(steps, inf)


def following(plan: GpuPlan, now: float) -> GpuPlan:
    """Return the rest of a plan from now on [s]."""
    present_step = 0
    for index, (start, _) in enumerate(plan.steps):
        if has_come(start, now):
            present_step = index
    _, present_gpus = plan.steps[present_step]
    later_steps = plan.steps[present_step + 1 :]
    return GpuPlan(((now, present_gpus), *later_steps), plan.end)


def best_plan(demand: Demand, plans: Sequence[GpuPlan]) -> GpuPlan:
    """Return the plan that meets the deadline and ends first; the one that ends first if none meets the deadline."""
    return min(plans, key=lambda plan: (not demand.is_met_by(plan), sort_key(plan.end)))


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
        has_deadline = demand.deadline < inf
        # While nodes are down, a job may fit on no number of GPUs. Without a deadline, it then waits.
        caps = list(demand.times) if has_deadline else [min(demand.times, default=0)]
        for cap in caps:
            plan = capped_plan(demand, self.free, cap)
            if demand.is_met_by(plan):
                self.add(job_id, plan)
                return True
        return False

    @classmethod
    def of(cls, view: ClusterView, demands: Mapping[JobId, Demand]) -> Schedule | None:
        """Return the least plans of jobs in order of deadline, or None if a deadline is missed."""
        schedule = cls(view)
        deadlines = {job_id: sort_key(demand.deadline) for job_id, demand in demands.items()}
        for job_id in sorted(demands, key=deadlines.__getitem__):
            if not schedule.admit(job_id, demands[job_id]):
                return None
        return schedule

    def with_new(self, demands: Mapping[JobId, Demand], new: Mapping[JobId, Demand]) -> Schedule | None:
        """Return a schedule with new jobs, or None. All jobs get new plans; if that fails, only the new jobs do.

        `demands` contains the demands of the jobs in this schedule, which does not change.
        """
        anew = Schedule.of(self.view, {**demands, **new})
        if anew is not None:
            return anew
        extended = Schedule(self.view, self.plans)
        for job_id, demand in new.items():
            if not extended.admit(job_id, demand):
                return None
        return extended

    def spread(self, demands: Mapping[JobId, Demand]) -> None:
        """Give free GPUs to jobs that complete earlier with them.

        Jobs without GPUs come first, then the least extra GPU time for each further GPU.

        Source: elastic allocation of ElasticFlow (ASPLOS '23), §4.2; that jobs without GPUs come first is ours.
        """
        queue: list[Wish] = []
        for order, job_id in enumerate(self.plans):
            wish = self._next_wish(order, job_id, demands[job_id])
            if wish is not None:
                queue.append(wish)
        heapify(queue)
        while queue:
            _, order, job_id, gpus = heappop(queue)
            # GPUs are never given back here, so a job whose wish does not fit now gets no other one either.
            if gpus - self.plans[job_id].gpus > self.free.now:
                continue
            before = self.remove(job_id)
            after = capped_plan(demands[job_id], self.free, gpus)
            ends_earlier = not has_come(before.end, after.end)
            self.add(job_id, after if after.gpus == gpus and ends_earlier else before)
            wish = self._next_wish(order, job_id, demands[job_id], tried=gpus)
            if wish is not None:
                heappush(queue, wish)

    def _next_wish(self, order: int, job_id: JobId, demand: Demand, tried: int = 0) -> Wish | None:
        """Return the wish for the next number of GPUs above the present one and above `tried`; None if there is none.

        `tried` is the last number that was tried. The job did not get it if it would not end earlier.
        """
        present_gpus = self.plans[job_id].gpus
        if present_gpus and present_gpus not in demand.times:
            return None  # a plan from before keeps its GPUs, although fewer GPUs on fewer nodes are now faster
        next_gpus = next((gpus for gpus in demand.times if gpus > max(present_gpus, tried)), None)
        if next_gpus is None:
            return None
        if not present_gpus:
            return Wish(-inf, order, job_id, next_gpus)
        present_service = present_gpus * demand.times[present_gpus]
        next_service = next_gpus * demand.times[next_gpus]
        extra_for_each_gpu = (next_service - present_service) / (next_gpus - present_gpus)
        # The difference is as inexact as the service, so `now` is the service.
        return Wish(sort_key(extra_for_each_gpu, now=next_service), order, job_id, next_gpus)
