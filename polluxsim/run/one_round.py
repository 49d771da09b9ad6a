"""Let another policy decide one round of a run, and compare what follows with the run.

The policy of the run is asked first, with the generator of the run. In the fork its answer is dropped, and the other
policy answers: a new object, which is told of all active jobs, with a generator that depends on the seed and the round
only. Its decision stands until the next round. From then on the policy of the run decides, and sees the placements as
they are. The agents of the jobs stay, and nodes fail at the same times.

`RoundTrials` lets the other policy decide single rounds of the run. `Takeovers` goes the other way: in the run of the
other policy, the policy of the run takes over at single rounds, and decides until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import fsum, inf
from typing import NamedTuple, TypeAlias

import numpy as np

from polluxsim.common.errors import InvalidConfigError, PolluxSimError
from polluxsim.engine.decision import Plan
from polluxsim.engine.job import Move
from polluxsim.engine.policy_calls import Explained, checked_reasons, guarded
from polluxsim.engine.scenario import Scenario, for_cluster
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.contract.view import Decision, Traits, decision_of
from polluxsim.records.regret import WHOLE_CLUSTER, Difference, RoundRegret, Takeover
from polluxsim.run.decision_walk import (
    NotComparableError,
    Outcomes,
    Walk,
    jct_changes,
    to_end,
    total_jct,
    without_reasons,
)
from polluxsim.run.without_effect import settings_without_effect

STAYING = ("adaptive", "known_throughput", "maximises_throughput", "shares_gpus", "scales")
"""Traits that change how jobs and nodes behave. They belong to a run, so that one decision cannot bring them."""


@dataclass(frozen=True)
class OtherPolicy:
    """The policy that decides one round.

    Attributes
    ----------
    name
        Its name in messages.
    make
        Function that returns a new object.
    is_own
        Whether it is the policy of the run with equal settings. Then a copy with the state of the run's policy answers.
    """

    name: str
    make: Callable[[], Policy]
    is_own: bool = False


Start: TypeAlias = Callable[[], tuple[Simulation, Policy]]
"""Function that returns a run before its first decision, and a policy that has not decided yet."""


def check_other(other: OtherPolicy, scenario: Scenario) -> None:
    """Check that another policy can decide a round of a run.

    Raise InvalidConfigError if it has a trait that the run lacks, and InvalidInputError if it cannot schedule the jobs.
    """
    if other.is_own:
        return
    # One copy of a policy for each GPU type or partition may have other traits than the policy.
    policy = for_cluster(other.make(), scenario.cluster)
    traits = traits_of(policy)
    for name in STAYING:
        if getattr(traits, name) and not getattr(scenario.traits, name):
            raise InvalidConfigError(
                f"policy {other.name} cannot decide in a run of {scenario.policy_name}, which lacks its trait {name}: "
                "jobs and nodes would behave otherwise; name another policy, or a run of a policy with this trait"
            )
    settings_without_effect(policy, replace(scenario, traits=_checked_traits(traits), policy_name=other.name))


def _checked_traits(traits: Traits) -> Traits:
    """Return the traits with which the jobs of a run are checked: jobs may be smaller than they request."""
    return replace(traits, adaptive=True)


def differences(run: Simulation, own: Plan, other: Plan) -> list[Difference]:
    """Return how another decision differs from that of the policy, for a run that waits for a decision."""
    view = run.view
    assert view is not None
    present = run.allocation
    different = []
    for job in view.jobs:
        difference = _difference(job.job_id, present.get(job.job_id, ()), own, other)
        if difference is not None:
            different.append(difference)
    if view.nodes is not None:
        own_nodes = _num_nodes(own, view.nodes.requested)
        other_nodes = _num_nodes(other, view.nodes.requested)
        if own_nodes != other_nodes:
            different.append(Difference(WHOLE_CLUSTER, "resize", own_nodes, other_nodes))
    return different


def _num_nodes(plan: Plan, requested: int) -> int:
    """Return the number of nodes after a decision; `requested` if the decision leaves it as it is."""
    if plan.decision.num_nodes is None:
        return requested
    return plan.decision.num_nodes


def _difference(job: JobId, present: Placement, own: Plan, other: Plan) -> Difference | None:
    """Return how another decision differs from a decision for one job; None if it does not.

    `present` are the GPUs that the job holds before the round.
    """
    own_move = own.moves.get(job)
    other_move = other.moves.get(job)
    own_gpus = _num_gpus(own_move, present)
    other_gpus = _num_gpus(other_move, present)
    # A job has one kind of difference, the one with the largest effect: GPUs, then places, then what comes with them.
    if own_gpus != other_gpus:
        kind = _kind_of_change(bool(present), own_gpus, other_gpus)
    elif _places(own_move) != _places(other_move):
        kind = "move"
    elif own_gpus and _extras(job, own) != _extras(job, other):
        kind = "resize"
    elif (job in own.decision.rejected) != (job in other.decision.rejected):
        # Only the policy of the run may reject a job, so the other one lets it wait.
        kind = "wait"
    else:
        return None
    return Difference(job, kind, own_gpus, other_gpus)


def _kind_of_change(is_running: bool, own_gpus: int, other_gpus: int) -> str:
    """Return the kind of difference for a job to which the policies give different numbers of GPUs."""
    if own_gpus and other_gpus:
        return "resize"
    if is_running:
        return "preempt"
    return "start" if other_gpus else "wait"


def _num_gpus(move: Move | None, present: Placement) -> int:
    """Return the GPUs of a job after a decision, which moves it or leaves it where it is."""
    placement = present if move is None else move.placement
    return sum(gpus for _, gpus in placement)


def _places(move: Move | None) -> object:
    """Return the GPUs of a change, in a fixed order; None without a change."""
    if move is None:
        return None
    return sorted(move.placement), sorted(move.gpus)


def _extras(job: JobId, plan: Plan) -> object:
    """Return what a decision gives to a job beside GPUs: CPUs and memory, a batch size, and a restart delay."""
    move = plan.moves.get(job)
    delay = None if move is None else move.delay
    return plan.hosts.get(job), plan.batches.get(job), delay


class _Fork(NamedTuple):
    """A run that waits for a decision of another policy, and this decision."""

    run: Simulation
    policy: Policy  # of the run
    decision: Decision
    differences: Sequence[Difference]


class RoundTrials:
    """Let another policy decide single rounds of a run, best in rising order.

    `start` returns the run before its first decision, and `outcomes` are the ends of its jobs. With several
    `repetitions`, both futures are simulated for each of them, with equal random numbers. The first repetition has
    those of the run.
    """

    def __init__(self, start: Start, other: OtherPolicy, outcomes: Outcomes, seed: int, repetitions: int = 1) -> None:
        self._start = start
        self._other = other
        self._outcomes = outcomes
        self._seed = seed
        self._repetitions = repetitions
        self._walk = Walk(*start())

    def regret(self, number: int) -> RoundRegret:
        """Return the regret of the decision with a number.

        If the simulation is past it, it begins anew. Raise ValueError if there is no such decision, and PolicyError if
        the policy of the run fails.
        """
        if number <= self._walk.number:
            self._walk = Walk(*self._start())
        walk = self._walk
        view = walk.go_to(number)
        regret = RoundRegret(number, view.time)
        # The copy must have the state before the question, because a policy may remember that it was asked.
        own_copy = deepcopy((walk.run, walk.policy)) if self._other.is_own else None
        own = decision_of(walk.run.ask(walk.policy, view))
        own_answer = None
        if own_copy is not None:
            run, policy = own_copy
            assert run.view is not None
            own_answer = decision_of(run.ask(policy, run.view))
        changes: list[Mapping[JobId, float]] = []
        try:
            for repetition in range(self._repetitions):
                fork = self._fork(number, repetition, own, own_answer)
                # The first repetition has the random numbers of the run, so it tells what both policies do.
                if repetition == 0:
                    regret = replace(regret, differences=tuple(fork.differences))
                    explained = self._reasons(own, fork)
                changes.append(self._changes(number, repetition, own, fork))
        except NotComparableError as error:
            regret = replace(regret, not_comparable=str(error))
        else:
            means = _means(changes)
            regret = replace(
                regret,
                values=tuple(fsum(change.values()) for change in changes),
                jct_changes=means,
                reasons=_of_most_changed(explained, means),
            )
        walk.make(own)
        return regret

    def finish(self, run: Simulation, policy: Policy) -> Outcomes:
        """Simulate a future to its end, and return the ends of its jobs. A subclass may look at the future, too."""
        return to_end(run, policy)

    def _fork(self, number: int, repetition: int, own: Decision, own_answer: Decision | None) -> _Fork:
        """Return a copy of the run, whose policy was asked, with the decision of the other policy.

        `own_answer` is the answer of a copy of the run's policy, if that is the other policy. Raise NotComparableError
        if the other policy fails, or rejects a job.
        """
        run, policy = deepcopy((self._walk.run, self._walk.policy))
        name = self._other.name
        own_plan = run.planned(own)
        if own_answer is not None:
            return _Fork(run, policy, own_answer, differences(run, own_plan, run.planned(own_answer)))
        # The other policy is told of all active jobs, as if they had just arrived.
        run.hand_over()
        assert run.view is not None
        other = for_cluster(self._other.make(), run.scenario.cluster)
        try:
            answer = run.ask(other, run.view, self._generator(number, repetition), name)
            plan = run.planned(answer, name)
        except PolluxSimError as error:
            raise NotComparableError(str(error)) from error
        if plan.decision.rejected:
            names = ", ".join(plan.decision.rejected)
            raise NotComparableError(f"{name} rejects {names}, whose completion times would not count")
        # The decision stands until the next round, in which the policy of the run decides.
        decision = replace(plan.decision, valid_until=-inf)
        return _Fork(run, policy, decision, differences(run, own_plan, plan))

    def _changes(self, number: int, repetition: int, own: Decision, fork: _Fork) -> dict[JobId, float]:
        """Return by how much each JCT is shorter in a fork [s]. Equal decisions need no simulation.

        Raise NotComparableError if the fork fails, or jobs end in another way there.
        """
        if not fork.differences:
            return {}
        outcomes = self._outcomes
        # The run itself is the first repetition. Each further one simulates both futures with new random numbers.
        if repetition > 0:
            run, policy = deepcopy((self._walk.run, self._walk.policy))
            self._draw_anew(run, number, repetition)
            run.commit(without_reasons(own))
            outcomes = self.finish(run, policy)
            self._draw_anew(fork.run, number, repetition)
        try:
            fork.run.commit(without_reasons(fork.decision))
            return jct_changes(outcomes, self.finish(fork.run, fork.policy))
        except PolluxSimError as error:
            raise NotComparableError(f"in the fork, {error}") from error

    def _generator(self, *numbers: int) -> np.random.Generator:
        """Return a generator that depends on the seed and the numbers only."""
        return np.random.default_rng([self._seed, *numbers])

    def _draw_anew(self, run: Simulation, number: int, repetition: int) -> None:
        """Give a future the random numbers of a repetition."""
        rng = self._generator(number, repetition, 1)
        run.draw_anew(rng, int(rng.integers(2**32)))

    def _reasons(self, own: Decision, fork: _Fork) -> tuple[dict[JobId, Explained], dict[JobId, Explained]]:
        """Return the reasons of both policies for the jobs that they treat differently."""
        jobs = [difference.job for difference in fork.differences if difference.job != WHOLE_CLUSTER]
        time = self._walk.run.time
        own_name = self._walk.run.scenario.policy_name
        return _reasons(own, jobs, own_name, time), _reasons(fork.decision, jobs, self._other.name, time)


def _reasons(decision: Decision, jobs: Sequence[JobId], name: str, time: float) -> dict[JobId, Explained]:
    """Return the reasons of a decision for jobs; none if the policy has none, or fails to state them."""
    if decision.explain is None or not jobs:
        return {}
    try:
        with guarded(name, time):
            return checked_reasons(decision.explain(jobs), jobs, time)
    except PolluxSimError:
        return {}


def _of_most_changed(
    reasons: Sequence[Mapping[JobId, Explained]], changes: Mapping[JobId, float]
) -> tuple[tuple[Explained, ...], tuple[Explained, ...]]:
    """Return the reasons of both policies for the job that gains most and for the job that loses most.

    Only jobs with a reason are considered. At equal changes, the name decides.
    """
    own, other = reasons
    jobs = sorted(own.keys() | other.keys(), key=lambda job: (-changes.get(job, 0.0), job))
    # A single job is both, and is stated once.
    chosen = dict.fromkeys([*jobs[:1], *jobs[-1:]])
    return tuple(own[job] for job in chosen if job in own), tuple(other[job] for job in chosen if job in other)


def _means(changes: Sequence[Mapping[JobId, float]]) -> dict[JobId, float]:
    """Return the mean of numbers by job, in order of name. A job that is left out has 0."""
    jobs = sorted({job for change in changes for job in change})
    return {job: fsum(change.get(job, 0.0) for change in changes) / len(changes) for job in jobs}


class Takeovers:
    """Let the policy of a run take over from another policy at single rounds of the run of that policy."""

    def __init__(self, start: Start, other: OtherPolicy, outcomes: Outcomes) -> None:
        self._start = start
        self._other = other
        self._outcomes = outcomes
        self._walk = walk_of_other(start, other)

    def takeover(self, number: int) -> Takeover:
        """Return the end of the run in which the policy of the run takes over at the round with a number.

        If the simulation is past the round, it begins anew. Raise ValueError if there is no such round.
        """
        # The walk waits before the decision of the last call, which can be asked for again.
        if number < self._walk.number:
            self._walk = walk_of_other(self._start, self._other)
        view = self._walk.go_to(number)
        run = deepcopy(self._walk.run)
        # The policy of the run has seen nothing before, and draws as from its own start.
        beginning, policy = self._start()
        run.rng = beginning.rng
        if number > 0:
            run.hand_over()
        try:
            outcomes = to_end(run, policy)
            jct_changes(self._outcomes, outcomes)
        except (PolluxSimError, NotComparableError) as error:
            return Takeover(number, view.time, None, str(error))
        return Takeover(number, view.time, total_jct(outcomes))


def walk_of_other(start: Start, other: OtherPolicy) -> Walk:
    """Return the run of another policy before its first decision. The jobs have the agents of the run."""
    run, policy = start()
    if not other.is_own:
        policy = for_cluster(other.make(), run.scenario.cluster)
    return Walk(run, policy, other.name)
