"""Run a policy in a drawn world, and turn every error of the policy into a finding."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from time import process_time
from typing import TypeVar

import numpy as np

from polluxsim.checks.findings import Fault, Finding, observer, of_error
from polluxsim.checks.laws import Watch
from polluxsim.checks.worlds import World
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.policy_calls import guarded
from polluxsim.engine.simulation import Simulation
from polluxsim.engine.time_limit import Interruption
from polluxsim.hardware.placements import Allocation
from polluxsim.policies.contract.view import ClusterView, Decision, Policy, traits_of
from polluxsim.records.results import Result
from polluxsim.run.interrupt import interrupts_noted

AnswerT = TypeVar("AnswerT")

GRACE = 2.0  # time after the limit at which an unfinished decision ends the process [s]


class FoundError(Exception):
    """A run showed a fault of the policy, which `finding` describes."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


class DecisionTimeoutError(Interruption):
    """A decision takes too long. It is not an `Exception`, so `except Exception` in a policy does not catch it."""


class ObservedPolicy:
    """A wrapper of a policy that records whether any decision was valid beyond its own round."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.traits = traits_of(policy)
        self.had_lasting_decision = False

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return what the policy decides."""
        answer = self.policy.allocate(view, rng)
        self.had_lasting_decision |= isinstance(answer, Decision) and answer.valid_until > view.time
        return answer


class AskedEveryRound(ObservedPolicy):
    """A policy that the engine asks in every round, because its decisions expire immediately."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the decision of the policy, which expires at once."""
        answer = super().allocate(view, rng)
        return replace(answer, valid_until=-inf) if isinstance(answer, Decision) else answer


def policy_name(policy: Policy) -> str:
    """Return the name of a policy in error messages."""
    return type(policy.policy if isinstance(policy, ObservedPolicy) else policy).__name__


class Name(str):
    """A job's name, equal to the plain text, with another hash, so that sets of names have another order.

    Sets and dictionaries must not mix both.
    """

    __slots__ = ("salt",)
    salt: int  # number that changes the hash

    __eq__ = str.__eq__

    def __hash__(self) -> int:
        return hash((str(self), self.salt))

    def __deepcopy__(self, memo: object) -> Name:
        return self


def with_other_hashes(world: World, salt: int) -> World:
    """Return a world whose jobs have the same names with other hashes."""
    jobs = []
    for job in world.jobs:
        name = Name(job.job_id)
        name.salt = salt
        jobs.append(replace(job, job_id=name))
    return replace(world, jobs=tuple(jobs))


def run_policy(world: World, policy: Policy, timeout: float | None = None, watch: Watch | None = None) -> Result:
    """Return the result of a run of a policy in a world.

    Parameters
    ----------
    timeout
        Longest time of a decision [s]; None for no limit.
    watch
        Laws that watch the run, or None.

    Raises
    ------
    FoundError
        If the policy fails, gives an invalid answer, or takes too long.
    """
    run = start_run(world, policy)
    while (view := run.advance()) is not None:
        take_turn(run, policy, view, timeout, watch)
    result = run.result()
    if watch is not None:
        watch.end(result)
    return result


def start_run(world: World, policy: Policy) -> Simulation:
    """Return the run of a policy in a world, at its beginning. All runs have one seed, so that they can be compared."""
    return Simulation(world.scenario(traits_of(policy), policy_name(policy)), seed=1)


def take_turn(
    run: Simulation, policy: Policy, view: ClusterView, timeout: float | None = None, watch: Watch | None = None
) -> float:
    """Ask a policy for a decision and apply it; return the time of the decision [s of CPU].

    Raise the errors of `run_policy`.
    """
    time, started = view.time, process_time()
    decision = decision_of(policy, view, run.rng, timeout)
    seconds = process_time() - started
    seen = None if watch is None else observer(view, decision, partial(_answered, policy, time))
    _answered(policy, time, partial(run.commit, decision))
    if watch is not None and seen is not None:
        watch.see(seen())
    return seconds


def decision_of(
    policy: Policy, view: ClusterView, rng: np.random.Generator, timeout: float | None = None
) -> Allocation | Decision:
    """Return the decision of a policy. Raise the errors of `run_policy`."""
    with _within(timeout, policy, view.time):
        return _answered(policy, view.time, partial(policy.allocate, view, rng))


def _answered(policy: Policy, time: float, ask: Callable[[], AnswerT]) -> AnswerT:
    """Return the answer of a policy; raise each of its errors as a finding. Ctrl-C is no error of the policy."""
    name = policy_name(policy)
    with interrupts_noted() as pressed:
        try:
            with guarded(name, time):
                return ask()
        except BaseException as error:
            if pressed or isinstance(error, DecisionTimeoutError):
                raise
            what = f"policy {name} raised {type(error).__name__} in the round at {time:g} s"
            is_ours = isinstance(error, PolluxSimError)
            raise FoundError(
                of_error(error, str(error) if is_ours else f"{what}, which would end the program")
            ) from error


@contextmanager
def _within(timeout: float | None, policy: Policy, time: float) -> Iterator[None]:
    """Raise a `FoundError` if the block, a decision in the round at `time` [s], takes longer than `timeout` [s]."""
    if timeout is None:
        yield
        return

    def ring(*_: object) -> None:
        raise DecisionTimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    with Path(os.devnull).open("w") as nowhere:  # for code that ignores signals; `polluxsim check` is another process
        faulthandler.dump_traceback_later(timeout + GRACE, exit=True, file=nowhere)
        try:
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except DecisionTimeoutError:  # the alarm may also ring just before it is switched off
            what = f"policy {policy_name(policy)} did not decide within {timeout:g} s in the round at {time:g} s"
            raise FoundError(Finding(Fault.HANG, what)) from None
        finally:
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGALRM, before)
