"""Tables of the jobs of a run: active, running, waiting and learning jobs, and totals over the running jobs."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.engine.segment import NEVER
from polluxsim.engine.shutter import set_field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.scenario import Scenario
    from polluxsim.engine.views import JobWindow
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Job

ORDER = attrgetter("order")


class Part(NamedTuple):
    """Share of a job in the totals: GPUs, goodput [M0-equivalent examples/s], and GPUs × efficiency."""

    gpus: int
    goodput: float
    weighted: float


NOTHING = Part(0, 0.0, 0.0)


class Totals:
    """GPUs in use, goodput and efficiency of all running jobs.

    Whole numbers, like those of rigid jobs, are added and subtracted when jobs start and stop. Floating-point sums
    depend on the order of their terms, so they are computed again in the order of submission.
    """

    def __init__(self) -> None:
        self._parts: dict[JobId, Part] = {}
        self._fractions = 0
        # Sum of the parts with whole numbers.
        self._whole = NOTHING

    def update(self, job: ActiveJob) -> None:
        """Update the totals with the present share of a job."""
        old, gpus = self._parts.pop(job.job_id, None), job.tenure.num_replicas
        if old is not None:
            self._add(old, -1)
        if gpus:
            new = self._parts[job.job_id] = Part(gpus, job.segment.goodput, gpus * job.segment.efficiency)
            self._add(new, 1)

    def _add(self, part: Part, sign: int) -> None:
        gpus, goodput, weighted = part
        if goodput.is_integer() and weighted.is_integer():
            all_gpus, all_goodput, all_weighted = self._whole
            self._whole = Part(all_gpus + sign * gpus, all_goodput + sign * goodput, all_weighted + sign * weighted)
        else:
            self._fractions += sign

    def of(self, running: Iterable[ActiveJob]) -> Part:
        """Return the totals of the running jobs, which are given in order of submission."""
        if not self._fractions:
            return self._whole
        gpus, goodput, weighted = 0, 0.0, 0.0
        for job in running:
            part = self._parts[job.job_id]
            gpus, goodput, weighted = gpus + part.gpus, goodput + part.goodput, weighted + part.weighted
        return Part(gpus, goodput, weighted)


class Jobs:
    """The jobs of a run by their state."""

    def __init__(self) -> None:
        self.active: dict[JobId, ActiveJob] = {}  # submitted and not ended, in order of submission
        self.placed: dict[JobId, ActiveJob] = {}  # active jobs with GPUs
        self.learning: dict[JobId, ActiveJob] = {}  # placed jobs whose agents still learn
        self.on_course: dict[JobId, ActiveJob] = {}  # placed jobs whose ends of epochs are known
        self.views: dict[JobId, JobWindow] = {}  # views of the active jobs, in order of submission
        self.demand = 0  # GPUs that the active jobs request
        self.totals = Totals()
        self._waiting: dict[JobId, ActiveJob] = {}
        self._waiting_are_in_order = True
        self.running: list[ActiveJob] = []  # placed jobs, in order of submission
        self._running_views: list[JobWindow] = []

    @property
    def waiting(self) -> Iterable[ActiveJob]:
        """Return the jobs without GPUs, in order of submission."""
        if not self._waiting_are_in_order:
            self._waiting = {job.job_id: job for job in in_order(self._waiting.values())}
            self._waiting_are_in_order = True
        return self._waiting.values()

    def waiting_views(self) -> Iterable[JobWindow]:
        """Yield the views of the jobs without GPUs, in order of submission."""
        return (self.views[job.job_id] for job in self.waiting)

    def all_views(self) -> Iterable[JobWindow]:
        """Return the views of all active jobs, in order of submission."""
        return self.views.values()

    def running_views(self) -> Iterable[JobWindow]:
        """Return the views of the placed jobs, in order of submission."""
        return self._running_views

    def add(self, job: ActiveJob, view: JobWindow) -> None:
        """Add a job that was submitted."""
        self.active[job.job_id] = job
        self.views[job.job_id] = view
        self._waiting[job.job_id] = job
        self.demand += job.job.num_replicas

    def alter(self, job: Job, scenario: Scenario) -> ActiveJob:
        """Replace the request of an active job, and return the active job."""
        active = self.active[job.job_id]
        self.demand += job.num_replicas - active.job.num_replicas
        active.job, active.truth = job, scenario.truth_of(job)
        if active.truth.application != self.views[job.job_id].oracle.application:
            active.agent = scenario.agents.new(job, active.truth)
        self.views[job.job_id].show(active)
        return active

    def put_before(self, name: JobId, other: JobId) -> None:
        """Move a job in the order of submission to the place before another job."""
        numbers = sorted(job.order for job in self.active.values())
        order = [each for each in self.active if each != name]
        order.insert(order.index(other), name)
        set_field(self.views[name], "submit_time", self.views[other].submit_time)
        for each, number in zip(order, numbers, strict=True):
            self.active[each].order = number
        self.active = {each: self.active[each] for each in order}
        self.views = {each: self.views[each] for each in order}
        self.running.sort(key=ORDER)
        self._running_views = [self.views[job.job_id] for job in self.running]
        self._waiting_are_in_order = False

    def remove(self, job: ActiveJob) -> None:
        """Remove a job that has ended."""
        for table in (self.active, self.views, self.placed, self.learning, self.on_course, self._waiting):
            table.pop(job.job_id, None)
        self.totals.update(job)
        self.demand -= job.job.num_replicas
        self._stops(job)

    def moved(self, job: ActiveJob) -> None:
        """Update the tables after a change of a job's GPUs."""
        self._stops(job)
        if job.placement:
            self.placed[job.job_id] = job
            place = bisect_left(self.running, job.order, key=ORDER)
            self.running.insert(place, job)
            self._running_views.insert(place, self.views[job.job_id])
            self._waiting.pop(job.job_id, None)
            return
        for table in (self.placed, self.learning, self.on_course):
            table.pop(job.job_id, None)
        self._waiting[job.job_id] = job
        self._waiting_are_in_order = False
        self.totals.update(job)

    def _stops(self, job: ActiveJob) -> None:
        place = bisect_left(self.running, job.order, key=ORDER)
        if place < len(self.running) and self.running[place] is job:
            del self.running[place], self._running_views[place]

    def changes_agent(self, job: ActiveJob) -> None:
        """Update the tables after a change of a job's agent. `trains` must follow if the job has GPUs."""
        for table in (self.learning, self.on_course):
            table.pop(job.job_id, None)

    def trains(self, job: ActiveJob) -> None:
        """Update the tables at the start of a segment of a job."""
        self.totals.update(job)
        if job.agent.learns:
            self.learning[job.job_id] = job
        elif job.next_epoch is not NEVER:
            self.on_course[job.job_id] = job


def in_order(jobs: Iterable[ActiveJob]) -> list[ActiveJob]:
    """Return jobs in the order of submission, which is the order of events at one instant."""
    return sorted(jobs, key=ORDER)
