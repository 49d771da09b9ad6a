"""Run a policy in a random world, and turn every error of the policy into a finding.

A round has this order: the policy decides; the state before the decision is read from the view; the engine applies the
decision; the laws check the round. The view is read before the engine continues, because it is valid only until then.
The laws check after the engine, which raises an error for a malformed decision.

The policy's own code runs in several places: `allocate`, `explain`, and the excuses of its reasons. Each call goes
through `_call_policy`, so that any error in it becomes a `FoundError`.
"""

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
from polluxsim.checks.laws import RunLaws
from polluxsim.checks.worlds import World
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.policy_calls import guarded
from polluxsim.engine.simulation import Simulation
from polluxsim.engine.time_limit import Interruption
from polluxsim.hardware.placements import Allocation
from polluxsim.policies.contract.policy import Policy, PolicyAround, as_policy, traits_of
from polluxsim.policies.contract.view import ClusterView, Decision
from polluxsim.records.results import Result
from polluxsim.run.interrupt import interrupts_noted

ResultT = TypeVar("ResultT")

GRACE = 2.0  # time after the limit at which an unfinished decision ends the process [s]


class FoundError(Exception):
    """A run showed a fault of the policy, which `finding` describes."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding


class CheckTimeoutError(Interruption):
    """A decision takes too long. It is not an `Exception`, so `except Exception` in a policy does not catch it."""


class ObservedPolicy(PolicyAround):
    """A wrapper of a policy that records whether any decision was valid beyond its own round."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.had_lasting_decision = False

    @property
    def wrapped(self) -> Policy:
        """Return the policy."""
        return self.policy

    @property
    def label(self) -> str:
        """Return the name of the policy."""
        return self.policy.label

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the decision of the policy."""
        answer = self.policy.allocate(view, rng)
        if isinstance(answer, Decision) and answer.valid_until > view.time:
            self.had_lasting_decision = True
        return answer


class AskedEveryRound(ObservedPolicy):
    """A policy that the engine asks in every round, because its decisions expire immediately."""

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        """Return the decision of the policy, which expires at once."""
        answer = super().allocate(view, rng)
        if isinstance(answer, Decision):
            return replace(answer, valid_until=-inf)
        return answer  # a plain allocation is valid for one round only


class Name(str):
    """A job's name, equal to the plain text, with another hash, so that sets of names have another order.

    A set or dictionary must not mix names with plain texts: equal keys would have different hashes.
    """

    __slots__ = ("salt",)
    salt: int  # number that changes the hash

    __eq__ = str.__eq__

    def __hash__(self) -> int:
        return hash((str(self), self.salt))

    def __deepcopy__(self, memo: object) -> Name:
        # A copy would need the salt before the hash. Texts are immutable, so the name itself can serve as its copy.
        return self


def with_other_hashes(world: World, salt: int) -> World:
    """Return a world whose jobs have the same names with other hashes."""
    jobs = []
    for job in world.jobs:
        name = Name(job.job_id)
        name.salt = salt
        jobs.append(replace(job, job_id=name))
    return replace(world, jobs=tuple(jobs))


def run_policy(world: World, policy: Policy, timeout: float | None = None, laws: RunLaws | None = None) -> Result:
    """Return the result of a run of a policy in a world.

    Parameters
    ----------
    timeout
        Longest time of a decision [s]; None for no limit.
    laws
        Laws that check each round and the result, and collect their findings; None for no laws.

    Raises
    ------
    FoundError
        If the policy fails, gives an invalid answer, or takes too long.
    """
    run = start_run(world, policy)
    while (view := run.advance()) is not None:
        take_turn(run, policy, view, timeout, laws)
    result = run.result()
    if laws is not None:
        laws.check_end(result)
    return result


def start_run(world: World, policy: Policy) -> Simulation:
    """Return the run of a policy in a world, at its beginning. All runs have one seed, so that they can be compared."""
    return Simulation(world.scenario(traits_of(policy), as_policy(policy).label), seed=1)


def take_turn(
    run: Simulation, policy: Policy, view: ClusterView, timeout: float | None = None, laws: RunLaws | None = None
) -> float:
    """Ask a policy for a decision and apply it; return the time of the decision [s of CPU].

    Raise the errors of `run_policy`.
    """
    time = view.time
    started = process_time()
    decision = decision_of(policy, view, run.rng, timeout)
    seconds = process_time() - started
    if laws is None:
        _call_policy(policy, time, partial(run.commit, decision))
        return seconds
    # The snapshot reads the view before `commit`, after which the view is out of date.
    snapshot = observer(view, decision, partial(_call_policy, policy, time))
    _call_policy(policy, time, partial(run.commit, decision))
    # The laws call the excuses of the policy's reasons.
    _call_policy(policy, time, partial(laws.check_round, snapshot()))
    return seconds


def decision_of(
    policy: Policy, view: ClusterView, rng: np.random.Generator, timeout: float | None = None
) -> Allocation | Decision:
    """Return the decision of a policy. Raise the errors of `run_policy`."""
    with _time_limit(timeout, policy, view.time):
        return _call_policy(policy, view.time, partial(policy.allocate, view, rng))


def _call_policy(policy: Policy, time: float, function: Callable[[], ResultT]) -> ResultT:
    """Return the result of a function that calls a policy in the round at `time` [s].

    Every error becomes a `FoundError`, except Ctrl-C and the time limit.
    """
    name = as_policy(policy).label
    with interrupts_noted() as pressed:
        try:
            with guarded(name, time):
                return function()
        # Not only `Exception`: a policy that calls sys.exit() would end the check.
        except BaseException as error:
            if pressed or isinstance(error, CheckTimeoutError):
                raise
            if isinstance(error, PolluxSimError):
                message = str(error)
            else:
                raised = f"policy {name} raised {type(error).__name__} in the round at {time:g} s"
                message = f"{raised}, which would end the program"
            raise FoundError(of_error(error, message)) from error


@contextmanager
def _time_limit(timeout: float | None, policy: Policy, time: float) -> Iterator[None]:
    """Raise a `FoundError` if the block, a decision in the round at `time` [s], takes longer than `timeout` [s].

    An alarm interrupts Python code. Compiled code ignores the alarm until it returns; if it does not return within
    `GRACE`, the process ends. `polluxsim check` therefore checks in a process of its own.
    """
    if timeout is None:
        yield
        return

    def on_alarm(*_: object) -> None:
        raise CheckTimeoutError

    previous_handler = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    # The traceback of the ended process would tell the user nothing.
    with Path(os.devnull).open("w") as nowhere:
        faulthandler.dump_traceback_later(timeout + GRACE, exit=True, file=nowhere)
        try:
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        # Outside the inner block, because the alarm may also ring just before it is switched off.
        except CheckTimeoutError:
            hang = f"policy {as_policy(policy).label} did not decide within {timeout:g} s in the round at {time:g} s"
            raise FoundError(Finding(Fault.HANG, hang)) from None
        finally:
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGALRM, previous_handler)
