"""The jobs of a run by their state, and totals over the jobs that hold GPUs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import TypeAlias

from polluxsim.common.instants import has_come, just_after
from polluxsim.engine.job import ActiveJob, Transition
from polluxsim.engine.views import JobWindow, ViewValidity, set_field
from polluxsim.hardware.placements import JobId
from polluxsim.records.columns import copy_containers
from polluxsim.workloads.workload import Job

ORDER = attrgetter("order")


Part: TypeAlias = tuple[int, float, float]
"""Share of a job in the totals: GPUs, goodput [M0-equivalent examples/s], and GPUs × efficiency."""

NOTHING: Part = (0, 0.0, 0.0)


class Totals:
    """GPUs in use, goodput and efficiency of all running jobs.

    Whole numbers, like those of rigid jobs, are added and subtracted when jobs start and stop. Floating-point sums
    depend on the order of their terms, so they are computed again in the order of submission after a change.
    """

    def __init__(self) -> None:
        self._parts: dict[JobId, Part] = {}
        self._num_fractions = 0
        # Sums of the parts with whole numbers.
        self._gpus = 0
        self._goodput = 0.0
        self._weighted = 0.0
        self._known: Part | None = NOTHING  # totals; None if they must be computed again

    def update(self, job: ActiveJob) -> None:
        """Update the totals with the present share of a job."""
        self._known = None
        old = self._parts.pop(job.job_id, None)
        gpus = job.holding.num_replicas
        if old is not None:
            self._add(old, -1)
        if gpus:
            new = self._parts[job.job_id] = (gpus, job.segment.goodput, gpus * job.segment.efficiency)
            self._add(new, 1)

    def _add(self, part: Part, sign: int) -> None:
        gpus, goodput, weighted = part
        if goodput.is_integer() and weighted.is_integer():
            self._gpus += sign * gpus
            self._goodput += sign * goodput
            self._weighted += sign * weighted
        else:
            self._num_fractions += sign

    def reorder(self) -> None:
        """Take note of another order of submission."""
        self._known = None

    def sum(self, running: Iterable[ActiveJob]) -> Part:
        """Return the totals of the running jobs, which are given in order of submission."""
        if self._known is None and not self._num_fractions:
            self._known = (self._gpus, self._goodput, self._weighted)
        elif self._known is None:
            gpus, goodput, weighted = NOTHING
            for job in running:
                more_gpus, more_goodput, more_weighted = self._parts[job.job_id]
                gpus = gpus + more_gpus
                goodput = goodput + more_goodput
                weighted = weighted + more_weighted
            self._known = (gpus, goodput, weighted)
        return self._known


class Courses:
    """The next ends of epochs of the jobs whose courses are known.

    Jobs are numbered in the order in which their courses became known. Policies learn of ends of epochs in this order.
    """

    def __init__(self) -> None:
        self._next: dict[JobId, tuple[int, float]] = {}  # number, and first time at which the epoch is over [s]
        self._queue: list[tuple[float, int, JobId]] = []
        self._count = 0

    def update(self, job: ActiveJob) -> None:
        """Take note of the next end of an epoch of a job."""
        time, after_round = job.next_epoch
        present = self._next.get(job.job_id)
        # A job that enters no further epoch needs no number.
        if present is None and time == inf:
            return
        if present is None:
            self._count += 1
        number = self._count if present is None else present[0]
        if after_round:
            time = just_after(time)
        self._next[job.job_id] = number, time
        if time < inf:
            heappush(self._queue, (time, number, job.job_id))

    def remove(self, job_id: JobId) -> None:
        """Remove a job. If the job comes back, it gets a new number."""
        self._next.pop(job_id, None)

    def next_time(self) -> float:
        """Return the time of the next end of an epoch [s]; ∞ if there is none."""
        # Entries that are no longer those of their jobs are void, and are dropped when they come first.
        while self._queue and self._next.get(self._queue[0][2]) != (self._queue[0][1], self._queue[0][0]):
            heappop(self._queue)
        if not self._queue:
            return inf
        time, *_ = self._queue[0]
        return time

    def take_due(self, now: float) -> list[JobId]:
        """Return the jobs whose epochs are over, in order of number. `update` must follow for each."""
        if not self._queue:
            return []
        due = {}
        while self._queue and has_come(self._queue[0][0], now):
            time, number, job_id = heappop(self._queue)
            if self._next.get(job_id) == (number, time):
                due[number] = job_id
        return [due[number] for number in sorted(due)]

    def __deepcopy__(self, memo: dict[int, object]) -> Courses:
        return copy_containers(self)


class JobTables:
    """The jobs of a run by their state. Only `State` changes the tables, in its transitions."""

    def __init__(self, validity: ViewValidity) -> None:
        self.active: dict[JobId, ActiveJob] = {}  # submitted and not ended, in order of submission
        self.views: dict[JobId, JobWindow] = {}  # of the active jobs, in the same order
        self.placed: dict[JobId, ActiveJob] = {}  # active jobs with GPUs
        self.running: list[ActiveJob] = []  # the placed jobs in order of submission
        self.learning: dict[JobId, ActiveJob] = {}  # placed jobs whose agents still learn
        self.courses = Courses()
        self.demand = 0  # GPUs that the active jobs request
        self.totals = Totals()
        self._validity = validity
        self._waiting: dict[JobId, ActiveJob] = {}
        self._waiting_are_in_order = True
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

    @property
    def next_needed(self) -> float:
        """Return when jobs next need a round [s]: at the end of an epoch, or when an agent can observe."""
        first_epoch = self.courses.next_time()
        if not self.learning:
            return first_epoch
        # An agent observes once its job has trained for some time: strictly after it began.
        start = min(job.segment.start for job in self.learning.values())
        return min(first_epoch, just_after(start))

    def add(self, transition: Transition) -> None:
        """Add a job that was submitted."""
        job = transition.job
        self.active[job.job_id] = self._waiting[job.job_id] = job
        # Jobs submitted at the instant of a round precede it. By rounding, the given time can be later than the round.
        submit_time = min(job.job.submit_time, transition.time)
        self.views[job.job_id] = JobWindow(job, self._validity, submit_time)
        self.demand += job.job.num_replicas

    def move(self, transition: Transition) -> None:
        """Update the tables after a change of a job's GPUs. `train` must follow if the job has GPUs."""
        job = transition.job
        # A job that changes its GPUs is removed first, so that it is in the order once.
        if job.job_id in self.placed:
            self._stop(job)
        if job.placement:
            self.placed[job.job_id] = job
            place = bisect_left(self.running, job.order, key=ORDER)
            self.running.insert(place, job)
            self._running_views.insert(place, self.views[job.job_id])
            self._waiting.pop(job.job_id, None)
            return
        self.placed.pop(job.job_id, None)
        self.forget_agent(job.job_id)
        self._waiting[job.job_id] = job
        self._waiting_are_in_order = False
        self.totals.update(job)

    def train(self, transition: Transition) -> None:
        """Update the tables at the start of a segment of a job."""
        job = transition.job
        self.totals.update(job)
        if job.agent.learns:
            self.learning[job.job_id] = job
        else:
            self.courses.update(job)

    def enter_epoch(self, transition: Transition) -> None:
        """Update the tables after a job entered another epoch of its known course."""
        self.totals.update(transition.job)
        self.courses.update(transition.job)

    def learn(self, transition: Transition) -> None:
        """Remove a job from the learning jobs if its agent is steady."""
        if transition.job.agent_is_steady:
            del self.learning[transition.job.job_id]

    def forget_agent(self, job_id: JobId) -> None:
        """Update the tables after a change of a job's agent. `train` must follow if the job has GPUs."""
        self.learning.pop(job_id, None)
        self.courses.remove(job_id)

    def replace_request(self, job: ActiveJob, before: Job) -> None:
        """Update the tables after a change of a job's request."""
        self.demand += job.job.num_replicas - before.num_replicas
        self.views[job.job_id].show_request()

    def remove(self, transition: Transition) -> None:
        """Remove a job that has ended."""
        job = transition.job
        if job.job_id in self.placed:
            self._stop(job)
        for table in (self.active, self.views, self.placed, self._waiting):
            table.pop(job.job_id, None)
        self.forget_agent(job.job_id)
        self.totals.update(job)
        self.demand -= job.job.num_replicas

    def put_before(self, name: JobId, other: JobId) -> None:
        """Move a job in the order of submission to the place before another job.

        The view of the job shows the submission time of the other job to policies that sort by this time.
        """
        numbers = sorted(job.order for job in self.active.values())
        order = [job_id for job_id in self.active if job_id != name]
        order.insert(order.index(other), name)
        set_field(self.views[name], "submit_time", self.views[other].submit_time)
        for job_id, number in zip(order, numbers, strict=True):
            self.active[job_id].order = number
        self.active = {job_id: self.active[job_id] for job_id in order}
        self.views = {job_id: self.views[job_id] for job_id in order}
        self.running.sort(key=ORDER)
        self._running_views = [self.views[job.job_id] for job in self.running]
        self._waiting_are_in_order = False
        self.totals.reorder()

    def _stop(self, job: ActiveJob) -> None:
        """Remove a placed job from the running jobs."""
        place = bisect_left(self.running, job.order, key=ORDER)
        del self.running[place], self._running_views[place]


def in_order(jobs: Iterable[ActiveJob]) -> list[ActiveJob]:
    """Return jobs in the order of submission, which is the order of events at one instant."""
    return sorted(jobs, key=ORDER)
