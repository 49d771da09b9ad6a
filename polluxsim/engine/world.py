"""What happens to a run from outside: jobs are submitted and cancelled, others follow them, nodes come up."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from polluxsim.engine.agenda import Rank
from polluxsim.engine.job import ActiveJob
from polluxsim.engine.rounds import check_range
from polluxsim.engine.views import JobWindow
from polluxsim.policies.view import Change
from polluxsim.records import Status
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.engine.agenda import Happening
    from polluxsim.engine.state import State
    from polluxsim.policies.view import Decision
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Job


class World:
    """Brings jobs and nodes into a run, and takes jobs away that are cancelled."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._arrivals = state.scenario.workload.new_arrivals()
        self._next = 0
        self._submitted = 0
        self.num_expected = len(state.scenario.workload.jobs)  # jobs that are known and still to be submitted
        self.followers: dict[JobId, Job] = {}  # those that the workload did not name at the start
        self._names: set[JobId] = set()
        # Of jobs that wait for others: what they wait for, and who waits for each.
        self._waits_for: dict[JobId, set[JobId]] = {}
        self._waiting: defaultdict[JobId, list[Job]] = defaultdict(list)
        self._num_blocked = 0
        self._left_out: frozenset[JobId] = frozenset()
        for job in state.scenario.workload.jobs:
            if job.after:
                self._let_wait(job)
        self._call_next()

    @property
    def known(self) -> dict[JobId, Job]:
        """Return all jobs that are known so far, submitted or not: those of the workload first."""
        return {job.job_id: job for job in self._state.scenario.workload.jobs} | self.followers

    @property
    def num_coming(self) -> int:
        """Return how many jobs are still to be submitted whatever becomes of those that are active."""
        return self.num_expected - self._num_blocked

    def _let_wait(self, job: Job) -> None:
        self._waits_for[job.job_id] = set(job.after)
        self._num_blocked += 1
        for name in job.after:
            self._waiting[name].append(job)
        if job.cancel_time is not None:
            self._state.agenda.at(job.cancel_time, Rank.ARRIVAL, self._cancel, job)

    def _call_next(self) -> None:
        jobs = self._state.scenario.workload.jobs
        while self._next < len(jobs) and jobs[self._next].after:
            self._next += 1
        if self._next < len(jobs):
            self._state.agenda.at(jobs[self._next].submit_time, Rank.ARRIVAL, self._submit_next)

    def _submit_next(self, event: Happening) -> None:
        """Submit the jobs of the workload that are due at this instant, and call the next."""
        jobs, now = self._state.scenario.workload.jobs, self._state.agenda.now
        while self._next < len(jobs) and jobs[self._next].submit_time == now:
            if not jobs[self._next].after:
                self._submit(jobs[self._next])
            self._next += 1
        self._call_next()

    def _submit_follower(self, event: Happening) -> None:
        self._submit(event.about)

    def _submit_released(self, event: Happening) -> None:
        """Submit a job that waits for no other any more, unless it was cancelled meanwhile."""
        if self._waits_for.pop(event.about.job_id, None) is not None:
            self._submit(event.about)

    def _submit(self, job: Job) -> None:
        if job.job_id in self._left_out:
            return
        state = self._state
        truth = state.scenario.truth_of(job)
        active = ActiveJob(job, truth, state.scenario.agents.new(job, truth), self._submitted)
        self._submitted += 1
        self.num_expected -= 1
        view = JobWindow(active, state.shutter, state.scenario.speeds_of)
        state.jobs.add(active, view)
        state.inquiry.submitted(job.job_id)
        state.rounds.arrived(view)
        if job.cancel_time is not None and not job.after:
            state.agenda.at(max(job.cancel_time, state.agenda.now), Rank.ARRIVAL, self._cancel, job)

    def _cancel(self, event: Happening) -> None:
        job: Job = event.about
        if (active := self._state.jobs.active.get(job.job_id)) is not None:
            if active.job.cancel_time is not None:
                self.end(active, Status.CANCELLED)
        elif job.job_id in self._waits_for:
            self._give_up(job)

    def end(self, active: ActiveJob, status: Status) -> None:
        """End a job, and submit or give up those that wait for it."""
        state, now = self._state, self._state.agenda.now
        if active.placement:
            state.nodes.give_back(active.placement, active.job_id)
        if status is not Status.COMPLETED:
            active.pass_epochs(now)
        active.place((), None, now, state.scenario.settings.restart_delay, state.shutter.rule)
        state.jobs.remove(active)
        state.inquiry.ended(active.job_id)
        state.records.changed(now, active)
        state.records.ended(active, status, now)
        state.rounds.note(Change.COMPLETION, active.job_id)
        if status is Status.COMPLETED:
            self.expect(self._arrivals.after(active.job, now))
        for job in self._waiting.pop(active.job_id, ()):
            self._release(job, active.job_id, now, is_complete=status is Status.COMPLETED)

    def _release(self, job: Job, name: JobId, now: float, *, is_complete: bool) -> None:
        """Let a job wait for one job less; it cannot come any more if that did not complete."""
        if (left := self._waits_for.get(job.job_id)) is None:
            return
        if not is_complete:
            self._give_up(job)
            return
        left.discard(name)
        if not left:
            self._num_blocked -= 1
            due = replace(job, submit_time=max(job.submit_time, now))
            self._state.agenda.at(due.submit_time, Rank.ARRIVAL, self._submit_released, due)

    def _give_up(self, job: Job) -> None:
        """Count a job as cancelled that was never submitted, and all that wait for it."""
        self._num_blocked -= bool(self._waits_for.pop(job.job_id, None))
        self.num_expected -= 1
        self._state.records.never_submitted(job, self._state.agenda.now)
        for waiting in self._waiting.pop(job.job_id, ()):
            self._release(waiting, job.job_id, self._state.agenda.now, is_complete=False)

    def leave_out(self, names: Iterable[JobId]) -> None:
        """Cancel jobs, and those that are still to be submitted before they are."""
        coming = self.known
        for name in names:
            if (active := self._state.jobs.active.get(name)) is not None:
                self.end(active, Status.CANCELLED)
            elif not coming[name].after or name in self._waits_for:  # else one that it waits for was left out
                self._left_out |= {name}
                self._give_up(coming[name])

    def expect(self, jobs: Iterable[Job]) -> None:
        """Have jobs submitted that the workload does not name.

        Raises
        ------
        InvalidInputError
            If one cannot run here, has a name that is taken, or ought to have come before.
        """
        scenario, now = self._state.scenario, self._state.agenda.now
        for follower in jobs:
            workload = Workload((follower,), scenario.workload.source)
            scenario.check(workload)
            self._names = self._names or {job.job_id for job in scenario.workload.jobs}
            if follower.job_id in self._names:
                raise workload.error(follower, "the workload has this name already, allowed is once")
            if follower.submit_time < now:
                raise workload.error(
                    follower, f"submitted at {follower.submit_time:g} s, allowed is {now:g} s or later"
                )
            self.followers[follower.job_id] = follower
            self._names.add(follower.job_id)
            self.num_expected += 1
            self._state.agenda.at(follower.submit_time, Rank.ARRIVAL, self._submit_follower, follower)

    def decided(self, decision: Decision) -> None:
        """End the jobs that a decision does not admit, and have as many nodes as it says."""
        if decision.num_nodes is not None:
            self._request_nodes(decision.num_nodes)
        for job_id in decision.rejected:
            self.end(self._state.jobs.active[job_id], Status.REJECTED)

    def _request_nodes(self, num_nodes: int) -> None:
        """Have another number of nodes; when new ones come up, the policy is told."""
        agenda = self._state.agenda
        if (time := self._state.nodes.request(num_nodes, agenda.now)) < inf:
            check_range(time, self._state.scenario.settings.round_interval, "the start-up of a node")
            agenda.at(time, Rank.ARRIVAL, self._nodes_are_up)

    def _nodes_are_up(self, event: Happening) -> None:
        self._state.rounds.note(Change.NODES)
