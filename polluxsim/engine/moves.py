"""What a decision changes: who gets which GPUs, on nodes that are up, each once and to a job that can use them."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.errors import InvalidAllocationError, PolluxSimError, short
from polluxsim.gpu_types import ANY
from polluxsim.models.profile import ProfileRangeError
from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.nodes import Nodes
    from polluxsim.engine.state import State
    from polluxsim.engine.truth import Pace
    from polluxsim.policies.view import Decision
    from polluxsim.types import JobId, Placement


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


def moves_of(decision: Decision, state: State) -> Mapping[JobId, Move]:
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
    if gpus > (most := _most_replicas(job)):
        raise InvalidAllocationError(f"gave job {job.job_id!r} {gpus} GPUs, allowed are at most {most}")
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


def _most_replicas(job: ActiveJob) -> int:
    """Return the most GPUs that a job can use: what its application and its user allow, or its user asked for."""
    application, asked = job.truth.profile.application, job.job
    most = application.most_replicas(application.max_batch_size if job.agent.learns else asked.batch_size)
    most = max(most, asked.num_replicas)
    return most if asked.max_replicas is None else min(most, asked.max_replicas)


def _plain(job_id: JobId, placement: object) -> Placement:
    try:
        pairs = [(whole(node), whole(gpus)) for node, gpus in placement]  # type: ignore[attr-defined]
    except PolluxSimError:
        raise
    except (TypeError, ValueError):
        pairs = [(None, None)]
    if any(number is None for pair in pairs for number in pair):
        raise InvalidAllocationError(
            f"gave job {job_id!r} {short(placement)}, allowed are pairs (node, GPUs) of whole numbers"
        )
    return tuple(pairs)  # type: ignore[arg-type]


def whole(number: object) -> int | None:
    """Return a whole number of any library as Python's; None for 1.5 and True."""
    if type(number) is int:
        return number
    if isinstance(number, bool) or type(number).__name__ in ("bool", "bool_"):
        return None
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        return None
