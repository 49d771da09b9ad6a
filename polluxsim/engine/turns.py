"""A run that takes turns: it goes on to the next decision, is told that decision, and goes on."""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.durations import clock
from polluxsim.engine.afterwards import finished
from polluxsim.engine.agenda import Agenda, Rank
from polluxsim.engine.crashes import Crashes
from polluxsim.engine.decision_check import checked
from polluxsim.engine.diversion import Detour
from polluxsim.engine.guests import guest
from polluxsim.engine.jobs import Jobs
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.outages import Downtime
from polluxsim.engine.readings import Readings
from polluxsim.engine.reasons import Inquiry, checked_reasons
from polluxsim.engine.recorder import Recorder
from polluxsim.engine.rounds import Rounds
from polluxsim.engine.shown import shown
from polluxsim.engine.shutter import Shutter
from polluxsim.engine.standstill import Standstill
from polluxsim.engine.state import State
from polluxsim.engine.training import Training
from polluxsim.engine.world import World
from polluxsim.errors import TurnError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from polluxsim.engine.agenda import Happening
    from polluxsim.engine.diversion import Diversion
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.moves import Move
    from polluxsim.engine.scenario import Scenario
    from polluxsim.policies.view import ClusterView, Decision, Reason
    from polluxsim.records import Result
    from polluxsim.types import Allocation, JobId


class Simulation(Readings):
    """A run that waits for each decision of its caller.

    `advance` continues to the next round with a decision and returns a view of the cluster. `commit` applies the
    decision. When `advance` has returned None, `result` returns the records. Between these calls, `copy.deepcopy`
    makes a fork, which continues exactly like the run. Copy a policy with a state in the same call:
    `copy.deepcopy((run, policy))`.

    Parameters
    ----------
    scenario
        The input of the simulation.
    seed
        Seed of the policy's random generator and of all other random draws.

    Attributes
    ----------
    rng
        Random generator of the policy.
    view
        View of the cluster while the run waits for a decision, otherwise None.
    standstill
        Reason why the run was stopped, if it was stopped.

    Examples
    --------
    >>> run = Simulation(scenario, seed=0)                    # doctest: +SKIP
    >>> while (view := run.advance()) is not None:            # doctest: +SKIP
    ...     run.commit(policy.allocate(view, run.rng))
    >>> result = run.result()                                 # doctest: +SKIP
    """

    def __init__(self, scenario: Scenario, seed: int = 0) -> None:
        agenda, settings = Agenda(), scenario.settings
        rounds = Rounds(agenda, settings.round_interval, self._round, ask_at_failures=settings.ask_at_failures)
        inquiry = Inquiry(settings.reasons, settings.round_interval)
        shutter = Shutter(settings.time_rule)
        records = Recorder(settings)
        self._state = State(scenario, agenda, Jobs(), Nodes(scenario.cluster), rounds, inquiry, records, shutter)
        self._world = World(self._state)
        self._training = Training(self._state, self._world)
        self._downtime = Downtime(self._state, self._training, seed)
        self._crashes = Crashes(self._state, self._training, self._world, seed)
        self._standstill = Standstill(settings)
        self._chosen_anew: list[ActiveJob] = []
        self.view: ClusterView | None = None
        self.standstill: str | None = None
        self._is_over = False
        self._started = perf_counter()
        if settings.horizon is not None:
            agenda.at(settings.horizon, Rank.HORIZON, self._reach_horizon)
        self.rng = np.random.default_rng(*np.random.SeedSequence(seed).spawn(1))

    def __repr__(self) -> str:
        jobs = self._state.jobs
        counts = f"{len(jobs.running)} jobs running, {len(jobs.active) - len(jobs.running)} waiting"
        policy, ended = self.scenario.policy_name, f"{self.num_ended} of {self.num_jobs} ended"
        return f"Simulation({policy!r} at {clock(self.time)}, {counts}, {ended})"

    def advance(self, before: float = inf) -> ClusterView | None:
        """Continue until a decision is needed, and return the view. Return None at the end of the run.

        Parameters
        ----------
        before
            Stop also if nothing more happens before this time [s].

        Raises
        ------
        TurnError
            If the run already waits for a decision.
        """
        if self.view is not None:
            raise TurnError(f"a decision is due at {self.time:g} s: commit one before the run can go on")
        while not self._is_over and self.view is None and (before == inf or self._state.agenda.peek() < before):
            if not self._state.jobs.active and not self._world.num_expected:
                self._is_over = True
            elif self._state.agenda.peek() == inf:
                self._stand_still(self._standstill.now(self._state))
            else:
                self._state.agenda.step()
        return self.view

    def commit(self, decision: Allocation | Decision) -> None:
        """Apply a decision. After an invalid decision the run is unchanged and still waits.

        Parameters
        ----------
        decision
            GPUs of each job, as a mapping of jobs to placements, or a `Decision`.

        Raises
        ------
        InvalidAllocationError
            If the decision is invalid. The message names the first error.
        TurnError
            If the run does not wait for a decision.
        """
        if self.view is None:
            raise TurnError(f"no decision is due at {self.time:g} s: advance to the next round at which one is")
        state = self._state
        state.records.time_spent("decide", perf_counter() - self._asked, self.time)
        with guest(state.scenario.policy_name, self.time):
            plain, moves, hosts = checked(decision, state)
            reasons = self._reasons(plain, moves)
        self.view, state.shutter.is_open = None, False
        for job_id, reason in reasons.items():
            state.records.explained(self.time, job_id, reason, moved=job_id in moves)
        self._world.decided(plain)
        state.records.decided(plain)
        state.rounds.decided(plain)
        if hosts is not state.nodes.granted and hosts != state.nodes.granted:
            state.nodes.granted, state.rounds.has_changed = hosts, True
        self._end_round(moves.values())

    def divert(self, diversion: Diversion) -> None:
        """Change the run from a round on. The past and copies of the run are unchanged.

        Raises
        ------
        TurnError
            If the run waits for a decision, or is past that round.
        """
        if self.view is not None or self.time > diversion.time:
            raise TurnError(f"the run is at {self.time:g} s, too far to go another way at {diversion.time:g} s")
        if diversion.seed is not None:
            self.rng = np.random.default_rng(diversion.seed)
        Detour(self._state, self._world, self._training, self._downtime, self._crashes).expect(diversion)

    def result(self) -> Result:
        """Return the records of the run, or of its past if it is not over."""
        if self.view is not None:
            raise TurnError(f"a decision is due at {self.time:g} s: commit one before the result is taken")
        seconds, over = perf_counter() - self._started, self._is_over
        return finished(self._state, self._world.known, seconds, self.standstill, is_over=over)

    def _round(self, event: Happening) -> None:
        state = self._state
        somebody = state.jobs.active or state.scenario.traits.scales
        if not state.rounds.begin(event.about) or not somebody:
            return
        if (why := self._standstill.at_round(state, self._world.num_coming)) is not None:
            self._stand_still(why)
            return
        self._training.pass_epochs()
        self._chosen_anew = self._training.end_interval()
        if state.rounds.policy_is_due and any(state.nodes.present(self.time)):
            state.shutter.time, state.shutter.is_open = self.time, True
            self.view = shown(state, self.time)
            self._asked = perf_counter()
        else:
            self._end_round(())

    def _reasons(self, decision: Decision, moves: Mapping[JobId, Move]) -> Mapping[JobId, Reason]:
        """Return what decided about the jobs whose reasons are due, where the policy says it, in order of name."""
        if decision.explain is None:
            return {}
        state = self._state
        if not (due := state.inquiry.due(self.time, moves.keys() | decision.rejected, state.jobs.active)):
            return {}
        reasons = checked_reasons(decision.explain(due), due)
        holding = {job for job in due if (moves[job].placement if job in moves else job in state.jobs.placed)}
        state.inquiry.asked(self.time, due, moves.keys(), holding)
        return {job_id: reasons[job_id] for job_id in due if job_id in reasons}

    def _end_round(self, moves: Collection[Move]) -> None:
        """Bring the cluster to where it will be until the next round, and call that."""
        state = self._state
        has_changed = bool(moves) or state.rounds.has_changed
        if has_changed:
            self._training.carry_out(moves, self._chosen_anew)
            self._crashes.expect(move.job for move in moves if move.placement)
        state.records.round(self.time, state.jobs, state.nodes, has_changed=has_changed)
        state.rounds.end(self._training.next_needed)

    def _reach_horizon(self, event: Happening) -> None:
        self._is_over = True

    def _stand_still(self, why: str) -> None:
        self.standstill, self._is_over = why, True
