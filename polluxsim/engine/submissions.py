"""The jobs that are not submitted yet: submissions, cancellations, and jobs that wait for other jobs."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from polluxsim.common.instants import coincide, has_come
from polluxsim.engine.at_start import place_running_jobs
from polluxsim.engine.clock import Event, Rank
from polluxsim.engine.job import Transition
from polluxsim.engine.recorder import RunRecorder
from polluxsim.engine.state import State
from polluxsim.hardware.placements import JobId
from polluxsim.records.results import Status
from polluxsim.workloads.workload import Job, Workload


class Submissions:
    """Submits the jobs of a workload, and the jobs that follow when other jobs end."""

    def __init__(self, state: State, recorder: RunRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._arrivals = state.scenario.workload.new_arrivals()
        self._next = 0
        self.followers: dict[JobId, Job] = {}  # jobs that the workload did not name at the start
        self.num_expected = len(state.scenario.workload.jobs)  # known jobs that are still to be submitted
        self._scheduled: set[JobId] = set()  # jobs whose submission is an event
        # The jobs that each blocked job waits for, and the jobs that wait for each job.
        self._predecessors: dict[JobId, set[JobId]] = {}
        self._dependents: defaultdict[JobId, list[Job]] = defaultdict(list)
        self._left_out: frozenset[JobId] = frozenset()
        for job in state.scenario.workload.jobs:
            if job.after:
                self._block(job)
        self._schedule_next()

    @property
    def known(self) -> Mapping[JobId, Job]:
        """Return all jobs that are known so far, including jobs that are not submitted yet.

        The jobs of the workload come first.
        """
        by_name = self._state.scenario.workload.by_name
        if not self.followers:
            return by_name
        return ChainMap(self.followers, by_name)  # iterates over the last mapping first

    @property
    def num_coming(self) -> int:
        """Return the number of jobs that will be submitted whatever happens to the active jobs."""
        return self.num_expected - len(self._predecessors)

    def add(self, jobs: Sequence[Job], source: str = "added jobs") -> None:
        """Submit additional jobs later, which the workload does not name.

        They may wait for jobs of the workload and for each other. A job that cannot run raises an `InvalidInputError`,
        which names the source.
        """
        scenario = self._state.scenario
        now = self._state.clock.now
        names = {job.job_id for job in jobs}
        checked = set[JobId]()
        known_jobs = self.known
        # All jobs are checked before the first one is added, so that an error leaves the run as it was.
        for job in jobs:
            workload = Workload((replace(job, after=()),), source)
            scenario.check(workload)
            if job.job_id in known_jobs or job.job_id in checked:
                raise workload.error(job, "the workload already has a job of this name, must be another name")
            if job.submit_time < now and not coincide(job.submit_time, now):
                raise workload.error(job, f"submitted at {job.submit_time:g} s, must be {now:g} s or later")
            missing = [name for name in job.after if name not in names and name not in known_jobs]
            if missing:
                raise workload.error(job, f"after has {missing[0]!r}, must have names of jobs in this run")
            checked.add(job.job_id)
        for job in jobs:
            self.followers[job.job_id] = job
            self.num_expected += 1
            if job.after:
                self._block(job)
                continue
            if job.submit_time < self._state.nodes.start:
                # GPU time, costs and failures count from the first submission, which is now this one.
                self._state.nodes.begin_at(job.submit_time)
            self._schedule(job)
        if any(job.after for job in jobs):
            self._release_after_ended(jobs)

    def _release_after_ended(self, jobs: Iterable[Job]) -> None:
        """Release, or give up, the jobs that wait for jobs that have ended before."""
        ended = self._recorder.jobs
        statuses = dict(zip(ended.column("job"), ended.column("status"), strict=True))
        for job in jobs:
            for name in job.after:
                if name in statuses:
                    self._release(job, name, is_complete=statuses[name] is Status.COMPLETED)

    def leave_out(self, names: Iterable[JobId]) -> bool:
        """Cancel jobs that are active or not submitted yet. Return whether there were such jobs."""
        known_jobs = self.known
        # Jobs that wait for others are known by `_is_pending`.
        left_out = False
        coming = {job.job_id for job in self._state.scenario.workload.jobs[self._next :] if not job.after}
        for name in names:
            active = self._state.jobs.active.get(name)
            if active is not None:
                self._state.end(active, Status.CANCELLED)
            elif self._is_pending(name) or (name in coming and name not in self._left_out):
                self._left_out |= {name}
                self._give_up(known_jobs[name])
            else:
                continue
            left_out = True
        return left_out

    def end(self, transition: Transition) -> None:
        """Add the followers of a job that has ended, and release or give up the jobs that wait for it."""
        job_id = transition.job.job_id
        is_complete = transition.status is Status.COMPLETED
        if is_complete:
            followers = self._arrivals.after(transition.job.job, transition.time)
            if followers:
                self.add(followers, self._state.scenario.workload.source)
        for job in self._dependents.pop(job_id, ()):
            self._release(job, job_id, is_complete=is_complete)

    def _schedule_next(self) -> None:
        """Schedule the next submission of the workload. Only one is in the queue, so that the queue stays short."""
        jobs = self._state.scenario.workload.jobs
        while self._next < len(jobs) and jobs[self._next].after:
            self._next += 1
        if self._next < len(jobs):
            self._state.clock.at(_due(jobs[self._next]), Rank.ARRIVAL, self._submit_next)

    def _submit_next(self, event: Event) -> None:
        """Submit the jobs of the workload that are due now, and schedule the next ones."""
        jobs = self._state.scenario.workload.jobs
        now = self._state.clock.now
        first = jobs[self._next]
        while self._next < len(jobs) and has_come(_due(jobs[self._next]), now):
            job = jobs[self._next]
            self._next += 1
            if not job.after and job.job_id not in self._left_out:
                self._submit(job)
        if first.past is not None:  # this is the start of the run, and the jobs from before it are first
            place_running_jobs(self._state)
        self._schedule_next()

    def _schedule(self, job: Job) -> None:
        """Schedule the submission of a job that the workload does not submit by itself."""
        self._scheduled.add(job.job_id)
        time = job.submit_time
        if job.past is not None:
            time = self._state.clock.now  # it was submitted before the run
        self._state.clock.at(time, Rank.ARRIVAL, self._submit_scheduled, job)

    def _submit_scheduled(self, event: Event) -> None:
        """Submit a job, unless it was cancelled or left out."""
        if event.about.job_id in self._scheduled:
            self._scheduled.remove(event.about.job_id)
            self._submit(event.about)

    def _submit(self, job: Job) -> None:
        """Submit a job, and schedule its cancellation if it has one."""
        self.num_expected -= 1
        self._state.submit(job)
        # The cancellation of a job that waited for others was scheduled when it began to wait.
        if job.cancel_time is not None and not job.after:
            time = max(job.cancel_time, self._state.clock.now)
            self._state.clock.at(time, Rank.ARRIVAL, self._cancel, job)

    def _cancel(self, event: Event) -> None:
        """Cancel a job, whether it is active or still waits for its submission."""
        job: Job = event.about
        active = self._state.jobs.active.get(job.job_id)
        if active is not None:
            # A fork may have given the job another request, without a cancellation.
            if active.job.cancel_time is not None:
                self._state.end(active, Status.CANCELLED)
        elif self._is_pending(job.job_id):
            self._give_up(job)

    def _is_pending(self, name: JobId) -> bool:
        """Return whether a job waits for other jobs to complete, or for its delay after them."""
        return name in self._predecessors or name in self._scheduled

    def _block(self, job: Job) -> None:
        """Let a job wait until other jobs are complete, or until it is cancelled."""
        self._predecessors[job.job_id] = set(job.after)
        for name in job.after:
            self._dependents[name].append(job)
        if job.cancel_time is not None:
            time = max(job.cancel_time, self._state.clock.now)
            self._state.clock.at(time, Rank.ARRIVAL, self._cancel, job)

    def _release(self, job: Job, name: JobId, *, is_complete: bool) -> None:
        """Let a job wait no longer for the job `name`, which has ended, and schedule it if it waits for no other job.

        If `name` did not complete, the job can never be submitted, and is given up.
        """
        # None for a job that was given up, because it was cancelled or another job did not complete.
        predecessors = self._predecessors.get(job.job_id)
        if predecessors is None:
            return
        if not is_complete:
            self._give_up(job)
            return
        predecessors.discard(name)
        if not predecessors:
            del self._predecessors[job.job_id]
            if job.past is None:
                earliest = self._state.clock.now
                if job.cancel_time is not None:
                    # A cancellation that is still to come is at this instant or later, but its time can be rounded.
                    earliest = min(earliest, job.cancel_time)
                job = replace(job, submit_time=max(job.submit_time, earliest))
            self._schedule(job)

    def _give_up(self, job: Job) -> None:
        """Cancel a job before its submission, and all jobs that wait for it."""
        self._predecessors.pop(job.job_id, None)
        self._scheduled.discard(job.job_id)
        self.num_expected -= 1
        self._recorder.never_submitted(job)
        # Jobs that wait for it can never be submitted either.
        for waiting in self._dependents.pop(job.job_id, ()):
            self._release(waiting, job.job_id, is_complete=False)


def _due(job: Job) -> float:
    """Return when a job enters the queue of the run: a job that was submitted before the run, at its start [s]."""
    return max(job.submit_time, 0.0)
