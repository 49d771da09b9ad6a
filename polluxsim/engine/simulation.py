"""Simulate a workload on a cluster under a policy: SimPy events for arrivals, epochs and rounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import numpy as np
import simpy

from polluxsim.engine.afterwards import with_fairness, with_overheads
from polluxsim.engine.agents import Agents
from polluxsim.engine.allocation_check import checked_allocation, checked_node_count
from polluxsim.engine.alone import TimesAlone, first_round
from polluxsim.engine.interference import crowded_nodes, interferes
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.oracle import JobOracle, Truth
from polluxsim.engine.recorder import Recorder
from polluxsim.engine.running import RunningJob
from polluxsim.engine.settings import EngineSettings
from polluxsim.errors import PolicyError, PolluxSimError, StalledError
from polluxsim.models.rigid import RigidProfile
from polluxsim.policies.view import Change, ClusterView, JobView, needs_profiles
from polluxsim.workloads.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.policies.view import Policy
    from polluxsim.records import Result, RoundRecord
    from polluxsim.types import Allocation, Cluster, JobId
    from polluxsim.workloads.workload import Job

# Order of what happens at one instant; simpy.Event.succeed has the first priority.
COMPLETION, ARRIVAL, ROUND, AFTER_ROUND, HORIZON = range(1, 6)

STALLED_ROUNDS, STALLED_DELAYS = 1000, 10
"""Rounds, and restart delays on top, without any progress after the last arrival that are taken as a standstill."""


class Watcher(Protocol):
    """Follows a run while it goes on."""

    def __call__(self, view: ClusterView, allocation: Allocation, record: RoundRecord) -> None:
        """Take note of a round in which the policy was asked, and which has just been carried out."""
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
        Called after every scheduling round in which the policy was asked.

    Returns
    -------
    Result
        Records of all jobs, those cut off included, of the rounds and of every change.

    Raises
    ------
    InvalidInputError
        If a job cannot run on this cluster, with these profiles or under this policy.
    InvalidAllocationError
        If the policy gives what is not there.
    StalledError
        If the policy lets all jobs starve.
    """
    _check(workload, profiles, cluster, policy)
    return Simulation(workload, profiles, cluster, policy, settings or EngineSettings(), seed, watcher).run()


def _check(workload: Workload, profiles: Mapping[str, Profile], cluster: Cluster, policy: Policy) -> None:
    workload.check(profiles, cluster)
    if needs_profiles(policy) and (rigid := workload.first_rigid_job) is not None:
        raise workload.error(rigid, f"has no profile, and {type(policy).__name__} needs one of every job")


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
        self._arrivals = workload.new_arrivals()
        self._jobs = {job.job_id: job for job in workload.jobs}
        self._profiles = profiles
        self._truths = {name: Truth(profile) for name, profile in profiles.items()}
        self._agents = Agents(policy, max(cluster.gpus_per_node))
        self._cluster = cluster
        self._nodes = Nodes(cluster)
        self._policy = policy
        self._settings = settings
        self._watcher = watcher
        self._time_rule = settings.time_rule
        (policy_seed,) = np.random.SeedSequence(seed).spawn(1)
        self._rng = np.random.default_rng(policy_seed)
        self._recorder = Recorder()
        # All in order of submission: the jobs not complete, what a policy saw of them last, and those not settled.
        self._active: dict[JobId, RunningJob] = {}
        self._views: dict[JobId, JobView] = {}
        self._placed: dict[JobId, RunningJob] = {}
        self._unsettled: dict[JobId, RunningJob] = {}
        self._arrivals_left = len(workload.jobs)
        self._decision: Allocation = {}
        self._decision_stands_until = -inf
        self._outdated_by = Change.ANY
        self._has_changed = True
        self._idle_rounds = 0
        self._round_is_due = False
        self._env = simpy.Environment()
        self._done = self._env.event()

    def run(self) -> Result:
        """Run until all jobs are complete, or to the horizon."""
        started = perf_counter()
        for job in self._jobs.values():
            self._at(job.submit_time, ARRIVAL, partial(self._arrive, job))
        if self._settings.horizon is not None:
            self._at(self._settings.horizon, HORIZON, self._finish)
        if self._jobs:
            self._env.run(until=self._done)
        self._recorder.took("simulate", perf_counter() - started)
        return self._finished()

    def _finished(self) -> Result:
        """Return all records, with what can be said of the jobs only now."""
        started = perf_counter()
        jobs = sorted(self._jobs.values(), key=attrgetter("submit_time"))
        alone = TimesAlone(self._truths, self._cluster, self._settings, self._agents.new)
        now = self._env.now
        result = with_overheads(self._recorder.result(jobs, now), self._settings.restart_delay)
        gpus = self._nodes.mean_gpus(now)
        result = with_fairness(result, gpus, lambda job, share: alone.time(self._jobs[job.job], share))
        self._recorder.took("fairness", perf_counter() - started)
        return replace(result, timing_records=self._recorder.timings)

    def _at(self, time: float, priority: int, action: Callable[[], None]) -> None:
        """Call `action` at a time [s]; what is due at one instant goes by priority, then by age."""
        event = simpy.Event(self._env)
        event._ok, event._value = True, None
        event.callbacks = [lambda _: action()]
        self._env.schedule(event, priority, time - self._env.now)  # type: ignore[arg-type]  # any int will do

    def _arrive(self, job: Job) -> None:
        truth = self._truth(job)
        order = len(self._jobs) - self._arrivals_left
        running = RunningJob(job, truth, self._agents.new(job, truth), self._time_rule, order)
        self._active[job.job_id] = running
        self._views[job.job_id] = self._job_view(running, self._env.now)
        self._recorder.submitted(running)
        self._arrivals_left -= 1
        self._note(Change.ARRIVAL)
        self._call_round(first_round(self._env.now, self._settings.round_interval))

    def _truth(self, job: Job) -> Truth:
        if job.duration is None:
            return self._truths[job.application]
        return Truth(RigidProfile(job.num_replicas, job.duration))

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
        chosen_anew = self._end_interval(now)
        is_asked = now >= self._decision_stands_until
        if is_asked or self._has_changed:
            self._carry_out(now, chosen_anew, is_asked=is_asked)
        else:
            self._recorder.round_without_change(now, self._nodes)
        self._call_round(round(now / self._settings.round_interval) + 1)

    def _end_interval(self, now: float) -> list[RunningJob]:
        """Let the agents that still learn choose again; return the jobs whose batch size is another."""
        working = [job for job in _in_order(self._unsettled.values()) if job.is_at_work(now)]
        if working:
            self._note(Change.LEARNING)
        chosen_anew = [job for job in working if job.end_interval(now)]
        for job in working:
            if job.is_settled:
                del self._unsettled[job.job.job_id]
        return chosen_anew

    def _note(self, change: Change) -> None:
        """Take note of a change, which may outdate the present decision."""
        self._has_changed = True
        if change in self._outdated_by:
            self._decision_stands_until = -inf

    def _carry_out(self, now: float, chosen_anew: list[RunningJob], *, is_asked: bool) -> None:
        """Bring the cluster to where it will be until the next round, by a decision of the policy where it is asked."""
        changed = dict.fromkeys(chosen_anew)
        if is_asked:
            view = self._view(now)
            self._decision, allocation = self._decide(view)
            changed.update(dict.fromkeys(self._apply(allocation, now)))
        changed.update(dict.fromkeys(self._interfere()))
        for job in changed:
            if job.placement:
                self._begin_segment(job, now)
        self._has_changed = False
        placed = _in_order(self._placed.values())
        record = self._recorder.round(now, len(self._active), placed, self._decision, self._nodes)
        if is_asked:
            self._decision_stands_until = getattr(self._decision, "valid_until", -inf)
            self._outdated_by = getattr(self._decision, "outdated_by", Change.ANY)
            if self._watcher is not None:
                self._watcher(view, allocation, record)

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
        wanted = getattr(decision, "num_nodes", None)
        num_nodes = None if wanted is None else checked_node_count(wanted, self._nodes.counts)
        allocation = checked_allocation(decision, self._views, self._nodes.present(view.time, num_nodes))
        if num_nodes is not None:
            self._request(num_nodes, view.time)
        return decision, allocation

    def _request(self, num_nodes: int, now: float) -> None:
        """Have another number of nodes; when new ones come up, the policy is asked again."""
        if (time := self._nodes.request(num_nodes, now)) < inf:
            self._at(time, ARRIVAL, partial(self._note, Change.NODES))

    def _view(self, now: float) -> ClusterView:
        # While a job waits, nothing of its view changes.
        for job_id, job in self._placed.items():
            self._views[job_id] = self._job_view(job, now)
        return ClusterView(
            time=now,
            gpus_per_node=self._nodes.present(now).gpus_per_node,
            nodes=self._nodes.counts,
            jobs=tuple(self._views.values()),
            restart_delay=self._settings.restart_delay,
        )

    def _job_view(self, job: RunningJob, now: float) -> JobView:
        """Return what a policy sees of a job."""
        submitted, agent = job.job, job.agent
        return JobView(
            job_id=submitted.job_id,
            submit_time=submitted.submit_time,
            num_replicas=submitted.num_replicas,
            batch_size=submitted.batch_size,
            placement=job.placement,
            attained_service=job.attained_service(now),
            num_restarts=job.num_restarts,
            max_replicas=agent.max_replicas,
            goodput=agent.goodput,
            oracle=JobOracle(job.truth, job.epoch, job.progress_at(now)),
        )

    def _apply(self, allocation: Allocation, now: float) -> list[RunningJob]:
        """Give the jobs their new placements; return those whose placement is another, in order."""
        placed = [job for job_id, job in self._placed.items() if allocation.get(job_id, ()) != job.placement]
        started = [self._active[job_id] for job_id, new in allocation.items() if new and job_id not in self._placed]
        moved = _in_order(placed + started)
        for job in moved:
            job_id = job.job.job_id
            job.place(allocation.get(job_id, ()), now, self._settings.restart_delay)
            if job.placement:
                self._placed[job_id] = job
                continue
            del self._placed[job_id]
            self._unsettled.pop(job_id, None)
            self._views[job_id] = self._job_view(job, now)
            self._recorder.changed(now, job)
        return moved

    def _interfere(self) -> list[RunningJob]:
        """Judge who disturbs whom until the next round; return the jobs for which that changed, in order."""
        slowdown = self._settings.interference
        if not slowdown:
            return []
        crowded = crowded_nodes(job.placement for job in self._placed.values())
        changed = []
        for job in self._active.values():
            share = slowdown if interferes(job.placement, crowded) else 0.0
            if share != job.interference:
                job.interference = share
                changed.append(job)
        return changed

    def _begin_segment(self, job: RunningJob, now: float) -> None:
        job.begin_segment(now)
        if not job.is_settled:
            self._unsettled[job.job.job_id] = job
        self._recorder.changed(now, job)
        time, after_round = job.milestone
        priority = AFTER_ROUND if after_round else COMPLETION
        self._at(time, priority, partial(self._end_epoch, job, job.segment))

    def _end_epoch(self, job: RunningJob, segment: int) -> None:
        if job.segment != segment:
            return  # something changed meanwhile, and a later milestone is on its way
        now = job.milestone.time
        if not job.end_epoch():
            self._note(Change.EPOCH)
            self._begin_segment(job, now)
            return
        self._note(Change.COMPLETION)
        self._recorder.changed(now, job)
        self._recorder.completed(job)
        for group in (self._active, self._views, self._placed, self._unsettled):
            group.pop(job.job.job_id, None)
        self._follow(job.job, now)
        if not self._active and not self._arrivals_left:
            self._finish()

    def _follow(self, job: Job, now: float) -> None:
        """Have the jobs arrive that follow a complete one."""
        for follower in self._arrivals.after(job, now):
            workload = Workload((follower,), self._workload.source)
            _check(workload, self._profiles, self._cluster, self._policy)
            if follower.job_id in self._jobs:
                raise workload.error(follower, "the workload has this name already, allowed is once")
            if follower.submit_time < now:
                raise workload.error(
                    follower, f"submitted at {follower.submit_time:g} s, allowed is {now:g} s or later"
                )
            self._jobs[follower.job_id] = follower
            self._arrivals_left += 1
            self._at(follower.submit_time, ARRIVAL, partial(self._arrive, follower))

    def _finish(self) -> None:
        if not self._done.triggered:
            self._done.succeed()

    def _guard_against_standstill(self, now: float) -> None:
        """Raise an error where nobody has made progress for long and nobody more arrives."""
        settings = self._settings
        at_work = self._arrivals_left or any(job.is_at_work(now) for job in self._placed.values())
        self._idle_rounds = 0 if at_work else self._idle_rounds + 1
        if self._idle_rounds >= STALLED_ROUNDS + STALLED_DELAYS * settings.restart_delay / settings.round_interval:
            raise StalledError(
                f"none of the {len(self._active)} jobs left, the first is {next(iter(self._active))!r}, has made any "
                f"progress in {self._idle_rounds} rounds up to {now:g} s: it gave no GPU, or moved them every time"
            )


def _in_order(jobs: Iterable[RunningJob]) -> list[RunningJob]:
    """Return jobs in order of submission, in which all that happens at one instant happens to them."""
    return sorted(jobs, key=attrgetter("order"))
