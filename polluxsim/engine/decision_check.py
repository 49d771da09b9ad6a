"""What a policy may answer: a mapping or a decision, whose every part is what it should be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import isfinite, isnan
from numbers import Real
from operator import is_
from typing import TYPE_CHECKING

from polluxsim.engine.hosting import checked_hosts
from polluxsim.engine.moves import moves_of
from polluxsim.engine.plain import whole
from polluxsim.errors import InvalidAllocationError, short
from polluxsim.hosts import NOBODY
from polluxsim.policies.view import Change, Decision

if TYPE_CHECKING:
    from polluxsim.engine.moves import Move
    from polluxsim.engine.state import State
    from polluxsim.hosts import Host
    from polluxsim.types import JobId, Placement

ROUNDING = 1e-9
"""By this share an objective may seem to exceed its bound."""


def checked(answer: object, state: State) -> tuple[Decision, Mapping[JobId, Move], Mapping[JobId, Host]]:
    """Return a policy's answer as plain values that nobody can change any more, and what it changes.

    That is, job by job in order of submission, moves, and the CPUs and memory that are granted for each GPU.

    Raises
    ------
    InvalidAllocationError
        Naming the policy, the job, and the node where there is one, at the first thing that is wrong.
    """
    name = state.scenario.policy_name
    try:
        decision = answer if isinstance(answer, Decision) else Decision(_mapping(answer))
        decision = _plain_parts(decision, state)
        moves = moves_of(decision, state)
        return decision, moves, checked_hosts(decision, moves, state) if decision.hosts else NOBODY
    except InvalidAllocationError as error:
        raise InvalidAllocationError(f"policy {name} {error}") from error


def _mapping(answer: object) -> Mapping[JobId, Placement]:
    if not isinstance(answer, Mapping):
        raise InvalidAllocationError(
            f"answered {short(answer)}, allowed is a mapping of jobs to placements, or a Decision"
        )
    return answer


def _plain_parts(decision: Decision, state: State) -> Decision:
    """Return a decision with plain values in all that it says beside its allocation."""
    _mapping(decision.allocation)
    if not isinstance(decision.shared, Mapping):
        raise _wrong("shared", decision.shared, "a mapping of jobs to GPUs by number")
    if type(decision.others_keep) is not bool:
        raise _wrong("others_keep", decision.others_keep, "True or False")
    if not isinstance(decision.outdated_by, Change):
        raise _wrong("outdated_by", decision.outdated_by, "Change.ARRIVAL and the like, joined by |")
    if decision.explain is not None and not callable(decision.explain):
        raise _wrong("explain", decision.explain, "a function from jobs to reasons, or None")
    fitness = _number("fitness", decision.fitness)
    bound = _number("upper_bound", decision.upper_bound)
    if bound is not None and (bound <= 0 or (fitness is not None and fitness > bound * (1 + ROUNDING))):
        allowed = "a number > 0" if bound <= 0 else f"no less than the fitness, {fitness!r}, or None"
        raise _wrong("upper_bound", decision.upper_bound, allowed)
    if (until := _real(decision.valid_until)) is None or isnan(until):
        raise _wrong("valid_until", decision.valid_until, "a time [s], −inf to be asked at every round")
    rejected = _rejected(decision, state)
    wanted = None if decision.num_nodes is None else _num_nodes(decision.num_nodes, state)
    said = (decision.fitness, decision.upper_bound, decision.valid_until, decision.num_nodes)
    if all(map(is_, said, (fitness, bound, until, wanted))) and not decision.rejected:
        return decision
    return replace(decision, fitness=fitness, upper_bound=bound, valid_until=until, num_nodes=wanted, rejected=rejected)


def _rejected(decision: Decision, state: State) -> tuple[JobId, ...]:
    """Return the jobs that are not admitted, each once, in order of submission."""
    if isinstance(decision.rejected, str) or not isinstance(decision.rejected, Collection):
        raise _wrong("rejected", decision.rejected, "names of jobs")
    for job_id in decision.rejected:
        if not isinstance(job_id, str) or (job := state.jobs.active.get(job_id)) is None:
            raise InvalidAllocationError(f"rejected job {short(job_id)}, which is not active")
        if job.placement or decision.allocation.get(job_id):
            raise InvalidAllocationError(f"rejected job {job_id!r}, allowed are jobs that hold no GPUs and get none")
    return tuple(sorted(set(decision.rejected), key=lambda job_id: state.jobs.active[job_id].order))


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    if (number := _real(value)) is None or not isfinite(number):
        raise _wrong(name, value, "a finite number, or None")
    return number


def _real(value: object) -> float | None:
    """Return a real number of any library as Python's; None for True and for what is too large."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _num_nodes(wanted: object, state: State) -> int:
    counts = state.nodes.counts
    if counts is None:
        raise InvalidAllocationError(f"asked for {short(wanted)} nodes, but their number cannot change")
    if (number := whole(wanted)) is None or not counts.least <= number <= counts.most:
        raise InvalidAllocationError(f"asked for {short(wanted)} nodes, allowed are {counts.least} to {counts.most}")
    return number


def _wrong(name: str, value: object, allowed: str) -> InvalidAllocationError:
    return InvalidAllocationError(f"decided with {name} {short(value)}, allowed is {allowed}")
