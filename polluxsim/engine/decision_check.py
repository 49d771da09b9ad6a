"""What a policy may answer: every job known, every node up, no GPU given twice, nothing a job cannot use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import isfinite, isnan
from numbers import Real
from operator import index, is_
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.errors import InvalidAllocationError, PolluxSimError, short
from polluxsim.gpu_types import ANY
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.view import Change, Decision
from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.nodes import Nodes
    from polluxsim.engine.state import State
    from polluxsim.engine.truth import Pace
    from polluxsim.types import JobId, Placement

ROUNDING = 1e-9
"""By this share an objective may seem to exceed its bound."""


class Move(NamedTuple):
    """A job that gets other GPUs, or loses them.

    Attributes
    ----------
    job
        The job.
    placement
        What it gets, empty for nothing.
    pace
        How it will train there; None without GPUs.
    """

    job: ActiveJob
    placement: Placement
    pace: Pace | None


class Checked(NamedTuple):
    """A decision that can be carried out.

    Attributes
    ----------
    decision
        Its plain values.
    moves
        What it changes, by job, in order of submission.
    """

    decision: Decision
    moves: Mapping[JobId, Move]


def checked(answer: object, state: State) -> Checked:
    """Return a policy's answer as plain values that nobody can change any more, and what it changes.

    Raises
    ------
    InvalidAllocationError
        Naming the policy, the job, and the node where there is one, at the first thing that is wrong.
    """
    name = state.scenario.policy_name
    try:
        decision = answer if isinstance(answer, Decision) else Decision(_mapping(answer))
        decision = _plain_parts(decision, state)
        return Checked(decision, _moves(decision, state))
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
    if (number := _whole(wanted)) is None or not counts.least <= number <= counts.most:
        raise InvalidAllocationError(f"asked for {short(wanted)} nodes, allowed are {counts.least} to {counts.most}")
    return number


def _wrong(name: str, value: object, allowed: str) -> InvalidAllocationError:
    return InvalidAllocationError(f"decided with {name} {short(value)}, allowed is {allowed}")


def _moves(decision: Decision, state: State) -> Mapping[JobId, Move]:
    """Return the placements that change, with how the jobs will train there."""
    new = dict(_changed(decision, state))
    if not decision.others_keep:
        new |= dict.fromkeys(state.jobs.placed.keys() - decision.allocation.keys(), ())
    _check_free(new, decision, state)
    moves = [_move(state.jobs.active[job_id], placement, state.nodes) for job_id, placement in new.items()]
    return {move.job.job_id: move for move in sorted(moves, key=lambda move: move.job.order)}


def _changed(decision: Decision, state: State) -> Iterator[tuple[JobId, Placement]]:
    """Yield the jobs that are given other GPUs than they hold, whatever the order in which these are named."""
    active = state.jobs.active
    for job_id, placement in decision.allocation.items():
        if not isinstance(job_id, str) or (job := active.get(job_id)) is None:
            raise InvalidAllocationError(f"gave GPUs to job {short(job_id)}, which is not active")
        held = job.tenure.placement
        if placement is held:  # kept, and looked at when it was new
            continue
        plain = _plain(job_id, placement)
        if plain != held and (len(plain) != len(held) or set(plain) != set(held)):
            yield job_id, plain


def _check_free(new: Mapping[JobId, Placement], decision: Decision, state: State) -> None:
    """Check that nodes are there, and that nothing is given twice."""
    up = state.nodes.present(state.agenda.now, decision.num_nodes)
    free = state.nodes.idle(len(up))
    for job_id, placement in new.items():
        _check_nodes(job_id, placement, len(up))
        for node, gpus in state.jobs.active[job_id].placement:
            if node < len(up):
                free[node] += gpus
    for job_id, placement in new.items():
        for node, gpus in placement:
            free[node] -= gpus
            if free[node] < 0:
                size = up[node]
                raise InvalidAllocationError(
                    f"over-allocated node {node}: with job {job_id!r} it is asked for {size - free[node]} GPUs, "
                    f"allowed are {size}"
                )
    if decision.num_nodes is not None:
        for job in state.jobs.placed.values():
            _check_nodes(job.job_id, new.get(job.job_id, job.placement), len(up))


def _check_nodes(job_id: JobId, placement: Placement, num_nodes: int) -> None:
    if len(placement) > 1 and len({node for node, _ in placement}) != len(placement):
        raise InvalidAllocationError(f"named a node twice for job {job_id!r}: {placement}")
    for node, gpus in placement:
        if not 0 <= node < num_nodes:
            raise InvalidAllocationError(f"gave job {job_id!r} node {node}, allowed are 0 to {num_nodes - 1}")
        if gpus < 1:
            raise InvalidAllocationError(f"gave job {job_id!r} {gpus} GPUs of node {node}, allowed are 1 or more")


def _move(job: ActiveJob, placement: Placement, nodes: Nodes) -> Move:
    """Return a change of GPUs, with how the job will train there."""
    if not placement:
        return Move(job, placement, None)
    gpu_type = _gpu_type(job, placement, nodes)
    shape = gpus_by_node(placement)
    gpus = sum(shape)
    if gpus > job.most_replicas:
        raise InvalidAllocationError(f"gave job {job.job_id!r} {gpus} GPUs, allowed are at most {job.most_replicas}")
    try:
        truth = job.truth.on(gpu_type)
        choice = job.agent.choose(len(placement), gpus, gpu_type, job.segment.epoch)
        return Move(job, placement, truth.pace(shape, choice))
    except ProfileRangeError as error:
        raise InvalidAllocationError(f"gave job {job.job_id!r} {placement}: {error}") from error


def _gpu_type(job: ActiveJob, placement: Placement, nodes: Nodes) -> str:
    """Return the type of a placement, which has one, and one that the job can use."""
    gpu_type, *others = nodes.types_of(placement)
    if others:
        mixed = " and ".join((gpu_type, *others))
        raise InvalidAllocationError(f"gave job {job.job_id!r} GPUs of {mixed}: {placement}, allowed is one type")
    allowed = job.job.gpu_types
    if allowed and gpu_type not in allowed and gpu_type != ANY.name:
        raise InvalidAllocationError(
            f"gave job {job.job_id!r} GPUs of {gpu_type}: {placement}, allowed for it are {', '.join(allowed)}"
        )
    return gpu_type


def _plain(job_id: JobId, placement: object) -> Placement:
    try:
        pairs = [(_whole(node), _whole(gpus)) for node, gpus in placement]  # type: ignore[attr-defined]
    except PolluxSimError:
        raise
    except (TypeError, ValueError):
        pairs = [(None, None)]
    if any(number is None for pair in pairs for number in pair):
        raise InvalidAllocationError(
            f"gave job {job_id!r} {short(placement)}, allowed are pairs (node, GPUs) of whole numbers"
        )
    return tuple(pairs)  # type: ignore[arg-type]


def _whole(number: object) -> int | None:
    """Return a whole number of any library as Python's; None for 1.5 and True."""
    if type(number) is int:
        return number
    if isinstance(number, bool) or type(number).__name__ in ("bool", "bool_"):
        return None
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        return None
