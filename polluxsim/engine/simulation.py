"""Simulate a workload on a cluster under a policy: SimPy events for arrivals, epochs and rounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import numpy as np
import simpy

from polluxsim.agent.adaptive import AdaptiveAgent
from polluxsim.agent.agent import FixedBatchAgent
from polluxsim.engine.afterwards import with_fairness, with_overheads
from polluxsim.engine.allocation_check import checked_allocation
from polluxsim.engine.alone import TimesAlone, first_round
from polluxsim.engine.interference import crowded_nodes, interferes
from polluxsim.engine.oracle import JobOracle, Truth
from polluxsim.engine.recorder import Recorder
from polluxsim.engine.running import RunningJob
from polluxsim.engine.settings import EngineSettings
from polluxsim.errors import PolicyError, PolluxSimError, StalledError
from polluxsim.policies.view import ClusterView, JobView, is_adaptive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.agent.agent import Agent
    from polluxsim.models.profile import Profile
    from polluxsim.policies.view import Policy
    from polluxsim.records import Result, RoundRecord
    from polluxsim.types import Allocation, Cluster, JobId
    from polluxsim.workloads.workload import Job, Workload

# Order of what happens at one instant; simpy.Event.succeed has the first priority.
COMPLETION, ARRIVAL, ROUND, AFTER_ROUND, HORIZON = range(1, 6)

STALLED_ROUNDS, STALLED_DELAYS = 1000, 10
"""Rounds, and restart delays on top, without any progress after the last arrival that are taken as a standstill."""


class Watcher(Protocol):
    """Follows a run while it goes on."""

    def __call__(self, view: ClusterView, allocation: Allocation, record: RoundRecord) -> None:
        """Take note of a round that has just been carried out."""
        ...


def simulate(
    workload: Workload,
    profiles: Mapping[str, Profile],
    cluster: Cluster,
    policy: Policy,
    *,
    settings: EngineSettings | None = None,
    seed: int = 0,
    watcher: Watcher | None = None,
) -> Result:
    """Replay a workload.

    Parameters
    ----------
    workload
        The jobs.
    profiles
        Profiles by application name.
    cluster
        The GPUs there are.
    policy
        A fresh policy: it may remember things, so that each run needs its own.
    settings
        Intervals, delays and the rule of time.
    seed
        Seed of the policy's random generator; the same seed gives the same result.
    watcher
        Called after every scheduling round.

    Returns
    -------
    Result
        Records of all jobs, those cut off included, of the rounds and of every change.

    Raises
    ------
    InvalidInputError
        If a job cannot run on this cluster or with these profiles.
    InvalidAllocationError
        If the policy gives what is not there.
    StalledError
        If the policy lets all jobs starve.
    """
    workload.check(profiles, cluster)
    return Simulation(workload, profiles, cluster, policy, settings or EngineSettings(), seed, watcher).run()


class Simulation:
    """One run; `simulate` says what the parameters are."""

    def __init__(
        self,
        workload: Workload,
        profiles: Mapping[str, Profile],
        cluster: Cluster,
        policy: Policy,
        settings: EngineSettings,
        seed: int,
        watcher: Watcher | None,
    ) -> None:
        self._workload = workload
        self._truths = {name: Truth(profile) for name, profile in profiles.items()}
        self._cluster = cluster
        self._policy = policy
        self._settings = settings
        self._watcher = watcher
        self._time_rule = settings.time_rule
        (policy_seed,) = np.random.SeedSequence(seed).spawn(1)
        self._rng = np.random.default_rng(policy_seed)
        self._recorder = Recorder()
        self._active: dict[JobId, RunningJob] = {}
        self._arrivals_left = len(workload.jobs)
        self._waiting: dict[JobId, JobView] = {}
        self._idle_rounds = 0
        self._round_is_due = False
        self._env = simpy.Environment()
        self._done = self._env.event()

    def run(self) -> Result:
        """Run until all jobs are complete, or to the horizon."""
        started = perf_counter()
        for job in self._workload.jobs:
            self._at(job.submit_time, ARRIVAL, partial(self._arrive, job))
        if self._settings.horizon is not None:
            self._at(self._settings.horizon, HORIZON, self._finish)
        if self._workload.jobs:
            self._env.run(until=self._done)
        self._recorder.took("simulate", perf_counter() - started)
        return self._finished()

    def _finished(self) -> Result:
        """Return all records, with what can be said of the jobs only now."""
        started = perf_counter()
        jobs = {job.job_id: job for job in self._workload.jobs}
        adaptive = is_adaptive(self._policy)
        alone = TimesAlone(self._truths, self._cluster, self._settings, self._agent, adaptive=adaptive)
        result = with_overheads(self._recorder.result(self._workload.jobs, self._env.now), self._settings.restart_delay)
        result = with_fairness(result, self._cluster.num_gpus, lambda job, gpus: alone.time(jobs[job.job], gpus))
        self._recorder.took("fairness", perf_counter() - started)
        return replace(result, timing_records=self._recorder.timings)

    def _at(self, time: float, priority: int, action: Callable[[], None]) -> None:
        """Call `action` at a time [s]; what is due at one instant goes by priority, then by age."""
        event = simpy.Event(self._env)
        event._ok, event._value = True, None
        event.callbacks = [lambda _: action()]
        self._env.schedule(event, priority, time - self._env.now)  # type: ignore[arg-type]  # any int will do

    def _arrive(self, job: Job) -> None:
        profile = self._truths[job.application].profile
        self._active[job.job_id] = running = RunningJob(job, profile, self._agent(job, profile), self._time_rule)
        self._recorder.submitted(running)
        self._arrivals_left -= 1
        self._call_round(first_round(self._env.now, self._settings.round_interval))

    def _agent(self, job: Job, profile: Profile) -> Agent:
        if is_adaptive(self._policy):
            return AdaptiveAgent(profile.application)
        return FixedBatchAgent(profile.application, job.batch_size)

    def _call_round(self, index: int) -> None:
        """Call the round at `index` times the interval, unless one is called already: it is as early or earlier."""
        if not self._round_is_due:
            self._round_is_due = True
            self._at(index * self._settings.round_interval, ROUND, self._round)

    def _round(self) -> None:
        now = self._env.now
        self._round_is_due = False
        if not self._active:
            return
        self._guard_against_standstill(now)
        changed = {job: None for job in self._active.values() if job.placement and job.end_interval(now)}
        view = self._view(now)
        decision, allocation = self._decide(view)
        changed.update(dict.fromkeys(self._apply(allocation, now)))
        changed.update(dict.fromkeys(self._interfere()))
        for job in changed:
            if job.placement:
                self._begin_segment(job, now)
        record = self._recorder.round(now, self._active.values(), decision)
        if self._watcher is not None:
            self._watcher(view, allocation, record)
        self._call_round(round(now / self._settings.round_interval) + 1)

    def _decide(self, view: ClusterView) -> tuple[Allocation, Allocation]:
        """Return the policy's decision as it gave it, and as it will be carried out."""
        started = perf_counter()
        try:
            decision = self._policy.allocate(view, self._rng)
        except PolluxSimError:
            raise
        except Exception as error:  # a guest's error: what it was, and where the simulation stood
            name = type(self._policy).__name__
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise PolicyError(f"policy {name} failed in the round at {view.time:g} s: {what}") from error
        self._recorder.took("decide", perf_counter() - started, view.time)
        return decision, checked_allocation(decision, self._active, self._cluster)

    def _view(self, now: float) -> ClusterView:
        return ClusterView(
            time=now,
            gpus_per_node=self._cluster.gpus_per_node,
            jobs=tuple(self._job_view(job, now) for job in self._active.values()),
            restart_delay=self._settings.restart_delay,
        )

    def _job_view(self, job: RunningJob, now: float) -> JobView:
        """Return what a policy sees of a job; while it waits, nothing of that changes."""
        submitted, agent = job.job, job.agent
        if not job.placement and (known := self._waiting.get(submitted.job_id)) is not None:
            return known
        view = JobView(
            job_id=submitted.job_id,
            submit_time=submitted.submit_time,
            num_replicas=submitted.num_replicas,
            batch_size=submitted.batch_size,
            placement=job.placement,
            attained_service=job.attained_service(now),
            num_restarts=job.num_restarts,
            max_replicas=agent.max_replicas,
            goodput=agent.goodput,
            oracle=JobOracle(self._truths[submitted.application], job.epoch, job.progress),
        )
        if not job.placement:
            self._waiting[submitted.job_id] = view
        return view

    def _apply(self, allocation: Allocation, now: float) -> list[RunningJob]:
        """Give the jobs their new placements; return those whose placement is another."""
        moved = []
        for job_id, job in self._active.items():
            placement = allocation.get(job_id, ())
            if placement != job.placement:
                self._waiting.pop(job_id, None)
                job.place(placement, now, self._settings.restart_delay)
                moved.append(job)
                if not placement:
                    self._recorder.changed(now, job)
        return moved

    def _interfere(self) -> list[RunningJob]:
        """Judge who disturbs whom until the next round; return the jobs for which that changed."""
        slowdown = self._settings.interference
        if not slowdown:
            return []
        crowded = crowded_nodes(job.placement for job in self._active.values())
        changed = []
        for job in self._active.values():
            share = slowdown if interferes(job.placement, crowded) else 0.0
            if share != job.interference:
                job.interference = share
                changed.append(job)
        return changed

    def _begin_segment(self, job: RunningJob, now: float) -> None:
        job.begin_segment(now)
        self._recorder.changed(now, job)
        time, after_round = job.milestone
        priority = AFTER_ROUND if after_round else COMPLETION
        self._at(time, priority, partial(self._end_epoch, job, job.segment))

    def _end_epoch(self, job: RunningJob, segment: int) -> None:
        if job.segment != segment:
            return  # something changed meanwhile, and a later milestone is on its way
        now = job.milestone.time
        if not job.end_epoch():
            self._begin_segment(job, now)
            return
        self._recorder.changed(now, job)
        del self._active[job.job.job_id]
        if not self._active and not self._arrivals_left:
            self._finish()

    def _finish(self) -> None:
        if not self._done.triggered:
            self._done.succeed()

    def _guard_against_standstill(self, now: float) -> None:
        """Raise an error where nobody has made progress for long and nobody more arrives."""
        settings = self._settings
        at_work = self._arrivals_left or any(job.is_at_work(now) for job in self._active.values())
        self._idle_rounds = 0 if at_work else self._idle_rounds + 1
        if self._idle_rounds >= STALLED_ROUNDS + STALLED_DELAYS * settings.restart_delay / settings.round_interval:
            raise StalledError(
                f"none of the {len(self._active)} jobs left, the first is {next(iter(self._active))!r}, has made any "
                f"progress in {self._idle_rounds} rounds up to {now:g} s: it gave no GPU, or moved them every time"
            )
