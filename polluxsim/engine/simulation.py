"""A run that waits for each decision of its caller, and the loop that asks a policy for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import TypeAlias

import numpy as np

from polluxsim.common.durations import clock
from polluxsim.common.errors import TurnError
from polluxsim.common.instants import coincide, has_come
from polluxsim.common.values import FiniteFloat, check
from polluxsim.engine.clock import Event, Rank
from polluxsim.engine.decision import Plan, plan_of
from polluxsim.engine.futures import Fork, Forks
from polluxsim.engine.job import ActiveJob, Move
from polluxsim.engine.outages import Crashes, Downtime
from polluxsim.engine.policy_calls import (
    DueReasons,
    Explained,
    checked_reasons,
    cluster_view,
    guarded,
    rare_collections,
)
from polluxsim.engine.recorder import RunRecorder
from polluxsim.engine.rounds import Rounds
from polluxsim.engine.scenario import Scenario, for_cluster
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.standstill import Standstill
from polluxsim.engine.state import Observers, State
from polluxsim.engine.submissions import Submissions
from polluxsim.engine.time_limit import time_limited
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Allocation, Gpus, JobId, Placement
from polluxsim.models.profile import Profile
from polluxsim.policies.contract.policy import Allocates
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.records.results import GpuSeconds, JobRecord, Result, RoundRecord, Status
from polluxsim.workloads.workload import Job, Workload


class Simulation:
    """A run that waits for decisions of its caller.

    `advance` continues to the next round with a decision and returns a view of the cluster. `commit` applies the
    decision. When `advance` has returned None, `result` returns the records. Between these calls, `copy.deepcopy`
    makes a fork, which continues exactly like the run. Copy a policy with a state in the same call:
    `copy.deepcopy((run, policy))`. Call `hand_over` before another policy decides, if it has a state.

    Parameters
    ----------
    seed
        Seed of the policy's random generator and of all other random draws.

    Attributes
    ----------
    view
        The view of the cluster while the run waits for a decision, else None.
    rng
        The policy's random generator.
    standstill
        Why the run was stopped, if no job made progress any more.

    Examples
    --------
    >>> run = Simulation(scenario, seed=0)                    # doctest: +SKIP
    >>> while (view := run.advance()) is not None:            # doctest: +SKIP
    ...     run.commit(policy.allocate(view, run.rng))
    >>> result = run.result()                                 # doctest: +SKIP
    """

    def __init__(self, scenario: Scenario, seed: int = 0) -> None:
        settings = scenario.settings
        self._state = state = State(scenario)
        self._rounds = rounds = Rounds(
            state.clock, settings.round_interval, self._round, ask_at_failures=settings.ask_at_failures
        )
        self._reasons = reasons = DueReasons(settings.reasons, settings.round_interval)
        self._recorder = recorder = RunRecorder(state)
        self._submissions = submissions = Submissions(state, recorder)
        downtime = Downtime(state, seed)
        self._crashes = crashes = Crashes(state, seed)
        self._forks = Forks(state, submissions, downtime, crashes, rounds, recorder)
        jobs = state.jobs
        state.observers = Observers(
            submitted=(jobs.add, rounds.submit, reasons.submit),
            placed=(jobs.move, recorder.move),
            started=(jobs.train, recorder.record_allocation, crashes.start),
            resumed=(jobs.train, recorder.record_allocation),
            epoch_entered=(jobs.enter_epoch, rounds.enter_epoch),
            epoch_ended=(recorder.save, rounds.enter_epoch),
            interval_begun=(recorder.pass_over, rounds.pass_over),
            learnt=(jobs.learn, rounds.learn),
            evicted=(jobs.move, recorder.save, recorder.record_allocation, rounds.evict, reasons.evict),
            ended=(jobs.remove, recorder.end, rounds.end, reasons.end, submissions.end),
            nodes_changed=(rounds.change_nodes,),
            shares_changed=(recorder.record_shares,),
            chooser_changed=(recorder.record_chooser,),
            hosts_changed=(recorder.record_hosts,),
        )
        self._standstill = Standstill(settings, downtime)
        self._rechosen: list[ActiveJob] = []
        self.view: ClusterView | None = None
        self.standstill: str | None = None
        self._stops_at_every_round = False
        self._may_keep = False  # whether the view is one of a round in which the last decision is still valid
        self._is_over = False
        self._started = self._called = perf_counter()
        if settings.horizon is not None:
            state.clock.at(settings.horizon, Rank.HORIZON, self._reach_horizon)
        self.rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])

    def __repr__(self) -> str:
        jobs = self._state.jobs
        counts = f"{len(jobs.running)} jobs running, {len(jobs.active) - len(jobs.running)} waiting"
        policy = self.scenario.policy_name
        ended = f"{self.num_ended} of {self.num_jobs} ended"
        return f"Simulation({policy!r} at {clock(self.time)}, {counts}, {ended})"

    def advance(self, before: float = inf, *, every_round: bool = False) -> ClusterView | None:
        """Continue until a decision is needed, and return the view. Return None at the end of the run.

        With `before`, stop before the first event at this time or later [s], and return None if no decision is needed
        until then. `time` is then that of the last event, and `is_over` says whether the run has ended. Raise a
        `TurnError` if the run already waits.

        With `every_round`, stop at the next round in which there are jobs, also if nothing can change in it. If no
        `decision_is_due` there, call `advance` again to keep the last decision, or commit another one.
        """
        if before != inf:
            check("before", before, FiniteFloat)
        if self.view is not None:
            self._end_without_decision("the run can go on")
        self._stops_at_every_round = every_round
        events = self._state.clock
        jobs = self._state.jobs
        submissions = self._submissions
        while not self._is_over and self.view is None:
            # The round need not be an event yet: nothing may change in it.
            if every_round and jobs.active:
                self._rounds.call(self.time)
            time = events.peek()
            if before < inf and has_come(before, time):
                break
            if not jobs.active and not submissions.num_expected:
                self._is_over = True
            elif time == inf:
                self._stop(self._standstill.message(self._state))
            else:
                events.step()
        return self.view

    def ask(
        self, policy: Allocates, view: ClusterView, rng: np.random.Generator | None = None, name: str | None = None
    ) -> Allocation | Decision:
        """Return the decision of a policy about the view of the run.

        `rng` is its random generator, by default that of the run. `name` is its name in errors, by default that of the
        policy of the run. Raise `PolicyError` if the policy fails, or takes longer than `decision_limit` of the
        settings.
        """
        if rng is None:
            rng = self.rng
        with self._limited(view.time, name), guarded(name or self.scenario.policy_name, view.time):
            return policy.allocate(view, rng)

    def planned(self, decision: Allocation | Decision, name: str | None = None) -> Plan:
        """Return a decision with plain values, and the changes that `commit` would make. The run is unchanged.

        `name` is the name of the policy in errors. Raise the errors of `commit`.
        """
        if self.view is None:
            raise self._no_decision_due()
        with self._limited(self.time, name), guarded(name or self.scenario.policy_name, self.time):
            return plan_of(decision, self._state, name)

    def commit(self, decision: Allocation | Decision) -> None:
        """Apply a decision: a mapping of jobs to placements, or a `Decision`.

        Raises
        ------
        InvalidAllocationError
            If the decision is invalid. The run is unchanged and still waits. The message names the first error.
        PolicyError
            If the decision or its reasons raise an error, or if a reason is invalid. The run still waits.
        TurnError
            If the run does not wait for a decision.
        """
        if self.view is None:
            raise self._no_decision_due()
        # Before the check, whose time is not that of the policy.
        seconds = perf_counter() - self._called
        with self._limited(self.time), guarded(self.scenario.policy_name, self.time):
            plan = plan_of(decision, self._state)
            reasons = self._explained(plan)
        self._recorder.time_spent("decide", seconds, self.time)
        # All checks come before this line, so that an invalid decision leaves the run as it was.
        self._close_view()
        self._apply(plan, reasons)

    def hand_over(self) -> None:
        """Announce all active jobs again, for a policy that has not seen the run: it decides next, instead of another.

        If the run waits for a decision, `view` is a new view with the announcement; a view from before remains valid.
        Raise a `TurnError` if the run is over.
        """
        if self._is_over:
            raise TurnError(f"the run is over at {self.time:g} s: hand a copy over that was made before")
        self._recorder.begin_policy()
        self._rounds.announce_all(self._state.jobs.active)
        if self.view is None:
            self._rounds.ask_anew()
        else:
            self.view = cluster_view(self._state, self._rounds)
            self._may_keep = False

    def fork(self, fork: Fork) -> None:
        """Change the run from a time on. The past and copies of the run are unchanged.

        Jobs that end at this time have ended. A run that ends before this time is unchanged. Raise a `TurnError` if the
        run waits for a decision, is over, or is already past this time.
        """
        self._end_without_decision("the run can be forked")
        if self._is_over:
            raise TurnError(f"the run is over at {self.time:g} s: fork a copy that was made before")
        check("fork.time", fork.time, FiniteFloat)
        if self.time > fork.time and not coincide(self.time, fork.time):
            raise TurnError(
                f"the run is at {self.time:g} s, past the fork at {fork.time:g} s: fork a copy that was made before"
            )
        if fork.seed is not None:
            self.rng = np.random.default_rng(fork.seed)
        self._forks.schedule(fork)

    def draw_anew(self, rng: np.random.Generator, chance: int) -> None:
        """Give the policy another random generator, and draw the failures of jobs by another seed, from now on.

        Nodes fail as before.
        """
        self.rng = rng
        self._crashes.draw_anew(chance)

    def result(self) -> Result:
        """Return the records of the run, or its records so far if it is not over.

        Raise a `TurnError` if the run waits for a decision.
        """
        self._end_without_decision("the result is taken")
        seconds = perf_counter() - self._started
        return self._recorder.result(self.known, seconds, self.standstill, is_over=self._is_over)

    @property
    def decision_is_due(self) -> bool:
        """Return whether the run waits for a decision: its last decision, if there is one, is no longer valid."""
        return self.view is not None and not self._may_keep

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended: all jobs have ended, the horizon is reached, or no job can progress."""
        return self._is_over

    @property
    def scenario(self) -> Scenario:
        """Return the input of the simulation."""
        return self._state.scenario

    @property
    def time(self) -> float:
        """Return the time of the run [s]."""
        return self._state.clock.now

    @property
    def start_time(self) -> float:
        """Return the start of the run, its first submission [s]. Costs and GPU time count from it."""
        return self._state.nodes.start

    @property
    def known(self) -> Mapping[JobId, Job]:
        """Return all jobs that are known so far, including jobs that are not submitted yet."""
        return self._submissions.known

    @property
    def num_jobs(self) -> int:
        """Return the number of jobs that are known so far, including jobs that are not submitted yet."""
        return len(self.scenario.workload.jobs) + len(self._submissions.followers)

    @property
    def num_ended(self) -> int:
        """Return the number of jobs that have ended."""
        return len(self._recorder.jobs)

    def ended(self, start: int = 0) -> Sequence[JobRecord]:
        """Return the records of the jobs that have ended, in this order, from number `start` on.

        After the result of a complete run was returned, the records are in order of submission.
        """
        return self._recorder.jobs[start:]

    @property
    def allocation(self) -> dict[JobId, Placement]:
        """Return the placements of the running jobs, in order of submission."""
        return {job.job_id: job.placement for job in self._state.jobs.running}

    @property
    def shares(self) -> dict[JobId, tuple[Gpus, float]]:
        """Return the numbered GPUs of jobs that can share GPUs, and their speeds relative to their speeds alone."""
        return dict(self._state.shares)

    @property
    def waiting(self) -> list[JobId]:
        """Return the active jobs without GPUs, in order of submission."""
        return [job.job_id for job in self._state.jobs.waiting]

    def active(self, time: float) -> list[tuple[Job, float]]:
        """Return the active jobs in order of submission, with their work at a time before the next event [M0-steps]."""
        return [(job.job, job.progress_at(time)) for job in self._state.jobs.active.values()]

    @property
    def down(self) -> tuple[int, ...]:
        """Return the numbers of the nodes that are down, in rising order."""
        return tuple(sorted(self._state.nodes.down))

    @property
    def last_round(self) -> RoundRecord | None:
        """Return the record of the last round; None before the first."""
        return self._recorder.last_round

    @property
    def mean_jct(self) -> float | None:
        """Return the mean completion time of the complete jobs that metrics count [s]; None without such jobs."""
        return self._recorder.mean_jct

    @property
    def gpu_seconds(self) -> GpuSeconds:
        """Return how the GPU time has been used so far."""
        return self._recorder.gpu_seconds()

    def _limited(self, time: float, name: str | None = None) -> time_limited:
        """Return a context manager that limits the time of the policy in the round at `time` [s]."""
        return time_limited(self.scenario.settings.decision_limit, name or self.scenario.policy_name, time)

    def _no_decision_due(self) -> TurnError:
        return TurnError(f"no decision is due at {self.time:g} s: advance to the next round at which one is")

    def _round(self, event: Event) -> None:
        state = self._state
        # Without jobs there is nothing to decide, unless the policy changes the number of nodes.
        has_begun = has_come(state.nodes.start, self.time)
        may_change = state.jobs.active or (state.scenario.traits.scales and has_begun)
        if not self._rounds.begin(event.about) or not may_change:
            return
        num_coming = self._submissions.num_coming
        num_forks = self._forks.num_pending
        why = self._standstill.at_round(state, self._rounds, num_coming, num_forks)
        if why is not None:
            self._stop(why)
            return
        # Before the policy is asked, jobs enter their epochs, because agents that learn observe the present epoch.
        state.enter_epochs()
        self._rechosen = state.end_interval()
        # A policy is not asked while no node is up: it could give out no GPU.
        is_due = self._rounds.policy_is_due
        if (is_due or self._stops_at_every_round) and any(state.nodes.present(self.time)):
            self.view = cluster_view(state, self._rounds)
            self._may_keep = not is_due
            self._called = perf_counter()
        else:
            self._keep_decision()

    def _explained(self, plan: Plan) -> Sequence[Explained]:
        """Return the policy's reasons for the jobs whose reasons are due. A job that the policy leaves out has none."""
        decision = plan.decision
        moves = plan.moves
        jobs = self._state.jobs
        if decision.explain is None:
            return ()
        due = self._reasons.due(self.time, moves.keys() | decision.rejected, jobs.active)
        if not due:
            return ()
        reasons = checked_reasons(decision.explain(due), due, self.time)
        self._recorder.take_texts(reasons.values())
        holding = set[JobId]()  # jobs that hold GPUs after the round
        for job_id in due:
            holds_gpus = job_id in jobs.placed
            if job_id in moves:
                holds_gpus = bool(moves[job_id].placement)
            if holds_gpus:
                holding.add(job_id)
        self._reasons.asked(self.time, due, moves.keys(), holding)
        return [reasons[job_id] for job_id in due if job_id in reasons]

    def _apply(self, plan: Plan, reasons: Iterable[Explained]) -> None:
        """Apply a decision: nodes, rejected jobs, CPUs and memory, and GPUs."""
        state = self._state
        decision = plan.decision
        # Reasons come first: they are about the jobs as the policy saw them, and rejected jobs are gone after it.
        for reason in reasons:
            self._recorder.explain(reason, moved=reason.record.job in plan.moves)
        if decision.num_nodes is not None:
            state.request_nodes(decision.num_nodes)
        # The ends are noted before `rounds.decide` clears the changes: the policy need not hear of its rejections.
        for job_id in decision.rejected:
            state.end(state.jobs.active[job_id], Status.REJECTED)
        self._recorder.decide(decision)
        self._rounds.decide(decision)
        rechosen: Sequence[ActiveJob] = self._rechosen
        if plan.batches or state.batches:
            rechosen = state.choose_batches(plan.batches, plan.moves.keys(), rechosen)
        self._rounds.has_changed |= state.grant(plan.hosts) or bool(rechosen)
        self._end_round(plan.moves.values(), rechosen)

    def _end_without_decision(self, purpose: str) -> None:
        """End a round in which the last decision is still valid. Raise a `TurnError` if a decision is due."""
        if self.decision_is_due:
            raise TurnError(f"a decision is due at {self.time:g} s: commit one before {purpose}")
        if self.view is not None:
            self._close_view()
            self._keep_decision()

    def _close_view(self) -> None:
        self.view = None
        self._may_keep = False
        self._state.view_validity.is_open = False

    def _keep_decision(self) -> None:
        """End a round without a decision. Agents have chosen batch sizes where the policy has not."""
        self._end_round((), [job for job in self._rechosen if job.batch is None])

    def _end_round(self, moves: Collection[Move], rechosen: Sequence[ActiveJob]) -> None:
        """Change the GPUs and batch sizes of jobs until the next round, and schedule that round."""
        has_changed = bool(moves) or self._rounds.has_changed
        if has_changed:
            self._state.place(moves, rechosen)
        self._recorder.round(has_changed=has_changed)
        self._rounds.finish(self._state.jobs.next_needed)

    def _reach_horizon(self, event: Event) -> None:
        self._is_over = True

    def _stop(self, why: str) -> None:
        self.standstill = why
        self._is_over = True


Watcher: TypeAlias = Callable[[Simulation], None]
"""Called after each round in which the policy decided."""


def simulate(
    workload: Workload,
    profiles: Mapping[str, Profile],
    cluster: Cluster,
    policy: Allocates,
    *,
    settings: EngineSettings | None = None,
    seed: int = 0,
    watcher: Watcher | None = None,
) -> Result:
    """Replay a workload under a policy, and return the records of all jobs, of the rounds, and of all changes.

    Parameters
    ----------
    profiles
        Profiles by application name.
    policy
        A new policy. The object may have a state, so each run needs a new object.
    seed
        Seed of the policy's random generator and of all other random draws. The same seed gives the same result.
    watcher
        Called after each round in which the policy decided.

    Raises
    ------
    InvalidInputError
        If a job cannot run on this cluster, with these profiles or under this policy.
    InvalidConfigError
        If the policy, the cluster and the settings do not fit together.
    PolicyError
        If the policy fails.
    InvalidAllocationError
        If a decision is invalid.
    """
    scenario = Scenario.under(policy, workload, profiles, cluster, settings or EngineSettings())
    return run_to_end(Simulation(scenario, seed), for_cluster(policy, cluster), watcher)


def run_to_end(run: Simulation, policy: Allocates, watcher: Watcher | None = None) -> Result:
    """Ask a policy for all remaining decisions of a run, and return the result. Raise the errors of `simulate`."""
    with rare_collections():
        view = run.view or run.advance()
        while view is not None:
            run.commit(run.ask(policy, view))
            if watcher is not None:
                watcher(run)
            view = run.advance()
        return run.result()
