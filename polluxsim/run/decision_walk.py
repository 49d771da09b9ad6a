"""Simulate a run from one decision to the next, and compare how its jobs end in two futures.

A `Walk` stops before a decision, where a run can be copied. The decisions of the policy have numbers from 0 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from math import fsum
from typing import NamedTuple, TypeAlias

from polluxsim.engine.policy_calls import rare_collections
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.placements import Allocation, JobId
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, decision_of
from polluxsim.records.results import Result, Status


class JobEnd(NamedTuple):
    """The end of a job in a run."""

    status: Status
    jct: float  # completion time, or age at the end of the run if it was cut off [s]; 0 with another status

    @property
    def is_counted(self) -> bool:
        """Return whether the job is in the mean JCT."""
        return self.status in (Status.COMPLETED, Status.CUT_OFF)


Outcomes: TypeAlias = Mapping[JobId, JobEnd]
"""The ends of the jobs that were submitted during a run, by name."""


class RunOutcome(NamedTuple):
    """A whole run, without its records."""

    times: tuple[float, ...]  # of the rounds in which the policy decided [s]
    outcomes: Outcomes
    is_drawn: bool  # whether the policy drew random numbers, or jobs can fail by themselves

    @property
    def total_jct(self) -> float:
        """Return the sum of the completion times of all counted jobs [s]."""
        return total_jct(self.outcomes)


class NotComparableError(Exception):
    """Two futures cannot be compared; the message says why."""


def total_jct(outcomes: Outcomes) -> float:
    """Return the sum of the completion times of all counted jobs [s]."""
    return fsum(outcome.jct for outcome in outcomes.values() if outcome.is_counted)


def num_counted(outcomes: Outcomes) -> int:
    """Return the number of jobs in the mean JCT."""
    return sum(outcome.is_counted for outcome in outcomes.values())


def outcomes_of(run: Simulation) -> dict[JobId, JobEnd]:
    """Return the ends of the jobs of a run that is over. Jobs from before the run are left out.

    A job that is still active is cut off, at an age of at least 0.
    """
    outcomes = {}
    for record in run.ended():
        if record.is_counted:
            outcomes[record.job] = JobEnd(record.status, record.jct or 0.0)
    for job, _ in run.active(run.time):
        if job.submit_time >= 0:
            outcomes[job.job_id] = JobEnd(Status.CUT_OFF, max(run.time - job.submit_time, 0.0))
    return outcomes


def outcomes_in(result: Result) -> dict[JobId, JobEnd]:
    """Return the ends of the jobs in the result of a run, as `outcomes_of` returns them for the run itself."""
    outcomes = {}
    for record in result.job_records:
        if record.is_counted and record.submit_time <= result.end_time:
            jct = record.jct or 0.0
            # A record of a job that is cut off has no JCT.
            if record.status is Status.CUT_OFF:
                jct = max(result.end_time - record.submit_time, 0.0)
            outcomes[record.job] = JobEnd(record.status, jct)
    return outcomes


def jct_changes(own: Outcomes, other: Outcomes) -> dict[JobId, float]:
    """Return the JCT in one future less that in another one, for each job whose JCT differs [s].

    A job that is cut off in both futures counts with its ages. Raise NotComparableError if a counted job of one future
    ends in another way, or is not submitted, in the other one.
    """
    changes = {}
    # The order of a set is not fixed, so that callers sort what they show.
    for job in own.keys() | other.keys():
        before = own.get(job)
        after = other.get(job)
        if before is None or after is None or before.status is not after.status:
            _check_ends(job, before, after)
        elif before.is_counted and before.jct != after.jct:
            changes[job] = before.jct - after.jct
    return changes


def _check_ends(job: JobId, before: JobEnd | None, after: JobEnd | None) -> None:
    """Raise NotComparableError if a job is counted in one of two futures in which it ends in different ways."""
    if any(outcome is not None and outcome.is_counted for outcome in (before, after)):
        raise NotComparableError(f"job {job!r} is {_end(before)} in the run, and {_end(after)} in the fork")


def _end(outcome: JobEnd | None) -> str:
    """Return how a job ends, in words."""
    if outcome is None:
        return "not submitted"
    return str(outcome.status)


def without_reasons(answer: Allocation | Decision) -> Decision:
    """Return a decision without reasons, which take time and are not read."""
    return replace(decision_of(answer), explain=None)


def to_end(run: Simulation, policy: Policy) -> dict[JobId, JobEnd]:
    """Ask a policy for all remaining decisions of a run, and return the ends of the jobs. The run may wait for one."""
    with rare_collections():
        view = run.view or run.advance()
        while view is not None:
            run.commit(without_reasons(run.ask(policy, view)))
            view = run.advance()
    return outcomes_of(run)


class Walk:
    """A run that is simulated from one decision to a later one.

    `name` is the name of the policy in errors; None for that of the run's own policy.
    """

    def __init__(self, run: Simulation, policy: Policy, name: str | None = None) -> None:
        self.run = run
        self.policy = policy
        self.number = -1  # of the last decision, or of the decision for which the run waits
        self._name = name

    def advance(self) -> ClusterView | None:
        """Make the present decision if it is not made yet, and return the view of the next one; None at the end."""
        # A walk that has just begun, or has made its decision, waits for none.
        if self.run.view is not None:
            self.make(self.run.ask(self.policy, self.run.view, name=self._name))
        view = self.run.advance()
        if view is not None:
            self.number += 1
        return view

    def go_to(self, number: int) -> ClusterView:
        """Return the view of a decision that is not yet made. Raise ValueError if it is made, or does not exist."""
        with rare_collections():
            while self.number < number and self.advance() is not None:
                pass
        if self.number != number or self.run.view is None:
            raise ValueError(f"decision {number} does not exist, or is already made")
        return self.run.view

    def make(self, answer: Allocation | Decision) -> None:
        """Make the present decision."""
        self.run.commit(without_reasons(answer))


def course_of(walk: Walk) -> RunOutcome:
    """Simulate a run from its first decision to its end, and return its course."""
    # A generator whose state has not changed was not used.
    rng = walk.run.rng
    before = deepcopy(rng.bit_generator.state)
    times = []
    with rare_collections():
        view = walk.advance()
        while view is not None:
            times.append(view.time)
            view = walk.advance()
    failures = walk.run.scenario.settings.job_failures
    jobs_fail = failures is not None and failures.rate > 0
    return RunOutcome(tuple(times), outcomes_of(walk.run), jobs_fail or rng.bit_generator.state != before)
