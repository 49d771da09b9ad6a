"""What a decision changes: who gets which GPUs, on nodes that are up, each once and to a job that can use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from polluxsim.engine.mixed import MixedPace
from polluxsim.engine.plain import plain_pairs
from polluxsim.engine.sharing_check import check_together, newly_shared, placement_of
from polluxsim.engine.tenure import spread
from polluxsim.errors import InvalidAllocationError, short
from polluxsim.gpu_types import ANY
from polluxsim.models.profile import ProfileRangeError
from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.nodes import Nodes
    from polluxsim.engine.state import State
    from polluxsim.engine.truth import Pace
    from polluxsim.policies.view import Decision
    from polluxsim.types import Gpus, JobId, Placement


class Move(NamedTuple):
    """A job that gets other GPUs, by number too if others may have them, and how it trains there; or loses all."""

    job: ActiveJob
    placement: Placement
    pace: Pace | None
    gpus: Gpus = ()


def moves_of(decision: Decision, state: State) -> Mapping[JobId, Move]:
    """Return the placements that change, with how the jobs will train there."""
    new = dict(_changed(decision, state))
    shared = newly_shared(decision, state)
    new |= {job_id: placement_of(gpus) for job_id, gpus in shared.items()}
    if not decision.others_keep:
        gone = state.jobs.placed.keys() - decision.allocation.keys()
        new |= dict.fromkeys(gone - decision.shared.keys() if decision.shared else gone, ())
    up = state.nodes.present(state.agenda.now, decision.num_nodes)
    for job_id, placement in new.items():
        _check_nodes(job_id, placement, len(up))
    if shared or (new and state.nodes.board.held):
        check_together(new, shared, up, state)
    else:
        _check_free(new, up, state)
    if decision.num_nodes is not None:
        for job in state.jobs.placed.values():
            _check_nodes(job.job_id, new.get(job.job_id, job.placement), len(up))
    moves = [
        _move(state.jobs.active[job_id], placement, state.nodes, shared.get(job_id, ()))
        for job_id, placement in new.items()
    ]
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
        plain = plain_pairs(job_id, placement, "(node, GPUs)")
        if plain != held and (len(plain) != len(held) or set(plain) != set(held)):
            yield job_id, plain


def _check_free(new: Mapping[JobId, Placement], up: Sequence[int], state: State) -> None:
    """Check that nothing is given twice."""
    free = state.nodes.idle(len(up))
    for job_id in new:
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


def _check_nodes(job_id: JobId, placement: Placement, num_nodes: int) -> None:
    if len(placement) > 1 and len({node for node, _ in placement}) != len(placement):
        raise InvalidAllocationError(f"named a node twice for job {job_id!r}: {placement}")
    for node, gpus in placement:
        if not 0 <= node < num_nodes:
            raise InvalidAllocationError(f"gave job {job_id!r} node {node}, allowed are 0 to {num_nodes - 1}")
        if gpus < 1:
            raise InvalidAllocationError(f"gave job {job_id!r} {gpus} GPUs of node {node}, allowed are 1 or more")


def _move(job: ActiveJob, placement: Placement, nodes: Nodes, numbered: Gpus) -> Move:
    """Return a change of GPUs, with how the job will train there."""
    if not placement:
        return Move(job, placement, None)
    gpu_type, *others = _gpu_types(job, placement, nodes)
    _, shape, gpus = spread(placement)
    if gpus > (most := _most_replicas(job)):
        raise InvalidAllocationError(f"gave job {job.job_id!r} {gpus} GPUs, allowed are at most {most}")
    if gpus < (fewest := job.job.min_replicas or 1):
        reason = f"its min_replicas is {fewest}: give it none, or {fewest} or more"
        raise InvalidAllocationError(f"gave job {job.job_id!r} {gpus} GPUs, but {reason}")
    try:
        if others:
            return Move(job, placement, _mixed(job, placement, nodes, numbered))
        truth = job.truth.on(gpu_type)
        choice = job.agent.choose(len(placement), gpus, gpu_type, job.segment.epoch)
        return Move(job, placement, truth.pace(shape, choice), numbered)
    except ProfileRangeError as error:
        raise InvalidAllocationError(f"gave job {job.job_id!r} {placement}: {error}") from error


def _mixed(job: ActiveJob, placement: Placement, nodes: Nodes, numbered: Gpus) -> Pace:
    """Return how a job will train on GPUs of several types, which its agent must know how to divide a batch among."""
    if job.agent.divide is None or numbered:
        mixed = " and ".join(nodes.types.names_of(placement))
        raise InvalidAllocationError(f"gave job {job.job_id!r} GPUs of {mixed}: {placement}, allowed is one type")
    crew, first = nodes.types.crew(placement), nodes.types[placement[0][0]].name
    return MixedPace(job.truth, gpus_by_node(placement), crew, job.agent.divide(crew, job.segment.epoch), first)


def _gpu_types(job: ActiveJob, placement: Placement, nodes: Nodes) -> Sequence[str]:
    """Return the types of a placement, all of them ones that the job can use."""
    types, allowed = nodes.types.names_of(placement), job.job.gpu_types
    for gpu_type in types if allowed else ():
        if gpu_type not in allowed and gpu_type != ANY.name:
            raise InvalidAllocationError(
                f"gave job {job.job_id!r} GPUs of {gpu_type}: {placement}, allowed for it are {', '.join(allowed)}"
            )
    return types


def _most_replicas(job: ActiveJob) -> int:
    """Return the most GPUs that a job can use: what its application and its user allow, or its user asked for."""
    application, asked = job.truth.application, job.job
    most = application.most_replicas(application.max_batch_size if job.agent.learns else asked.batch_size)
    most = max(most, asked.num_replicas)
    return most if asked.max_replicas is None else min(most, asked.max_replicas)
