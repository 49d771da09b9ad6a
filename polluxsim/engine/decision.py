"""Check a policy's decision, and turn it into one frozen plan of plain values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan
from operator import is_
from typing import Any, NamedTuple, TypeGuard

from polluxsim.common.errors import (
    BrokenGangError,
    InvalidAllocationError,
    TooFewReplicasError,
    short,
)
from polluxsim.engine.batch_sizes import batches_of
from polluxsim.engine.granted_hosts import granted_hosts
from polluxsim.engine.job import ActiveJob, ChosenBatch, Move
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.plain_values import not_active, over_allocated, real_number, whole_number_of
from polluxsim.engine.progress import spread
from polluxsim.engine.sharing import Sharing, Tenant, tenant_of
from polluxsim.engine.state import State
from polluxsim.engine.truth import MixedTrainingSpeed, TrainingSpeed
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.hosts import Host
from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
from polluxsim.hardware.restarts import LONGEST_DELAY
from polluxsim.models.profile import FixedReplicasError, ProfileRangeError
from polluxsim.policies.contract.view import Change, Decision

ROUNDING = 1e-9  # share by which an objective may exceed its bound


class Plan(NamedTuple):
    """A checked decision."""

    decision: Decision  # with plain values
    moves: Mapping[JobId, Move]  # changes of GPUs, in order of submission
    hosts: Mapping[JobId, Host]  # CPUs and memory per GPU of jobs to which the policy granted them
    batches: Mapping[JobId, ChosenBatch]  # batch sizes that the policy chose


def plan_of(answer: object, state: State, name: str | None = None) -> Plan:
    """Return the plan of a policy's answer, which is a mapping or a `Decision`.

    Raise InvalidAllocationError, or a class based on it, if the answer is invalid. The error names the policy, by
    default that of the run.
    """
    try:
        if not isinstance(answer, Decision) and not _is_mapping(answer):
            kinds = "a mapping of jobs to placements, or a Decision"
            raise InvalidAllocationError(f"answered {short(answer)}, must be {kinds}")
        if not isinstance(answer, Decision):
            answer = Decision(answer)
        decision = _with_plain_values(answer, state)
        moves, batches = _moves(decision, state)
        hosts: Mapping[JobId, Host] = {}
        if decision.hosts:
            hosts = granted_hosts(decision, moves, state)
        return Plan(decision, moves, hosts, batches)
    except InvalidAllocationError as error:
        # The same class, so that a caller can tell the kinds of errors apart.
        raise type(error)(f"policy {name or state.scenario.policy_name} {error}") from error


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    # The check of an abstract class is slow, and most mappings are dictionaries.
    return type(value) is dict or isinstance(value, Mapping)


def _is_collection(value: object) -> bool:
    return type(value) is tuple or (isinstance(value, Collection) and not isinstance(value, str))


FIELDS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    ("allocation", _is_mapping, "a mapping of jobs to placements"),
    ("shared", _is_mapping, "a mapping of jobs to GPUs by number"),
    ("others_keep", lambda value: type(value) is bool, "True or False"),
    ("outdated_by", lambda value: isinstance(value, Change), "Change.ARRIVAL and the like, joined by |"),
    ("explain", lambda value: value is None or callable(value), "a function from jobs to reasons, or None"),
    ("rejected", _is_collection, "names of jobs"),
    ("hosts", _is_mapping, "a mapping of jobs to CPUs and memory"),
    ("batch_sizes", _is_mapping, "a mapping of jobs to batch sizes"),
    ("delays", _is_mapping, "a mapping of jobs to seconds"),
)
"""Fields of a decision: name, check of the type, and type in words."""


def _with_plain_values(decision: Decision, state: State) -> Decision:
    """Check the types of all fields, and return a decision with plain numbers. Values in mappings are not checked."""
    for name, is_valid, must_be in FIELDS:
        value = getattr(decision, name)
        if not is_valid(value):
            raise _wrong(name, value, must_be)
    # The values in the mappings are checked later, when the jobs and their GPUs are.
    fitness = _number("fitness", decision.fitness)
    bound = _number("upper_bound", decision.upper_bound)
    if bound is not None and bound <= 0:
        raise _wrong("upper_bound", decision.upper_bound, "> 0")
    if bound is not None and fitness is not None and fitness > bound * (1 + ROUNDING):
        raise _wrong("upper_bound", decision.upper_bound, f"no less than the fitness, {fitness!r}, or None")
    until = real_number(decision.valid_until)
    if until is None or isnan(until):
        raise _wrong("valid_until", decision.valid_until, "a time [s], −inf to be asked at every round")
    num_nodes = None
    if decision.num_nodes is not None:
        num_nodes = _num_nodes(decision.num_nodes, state)
    if decision.rejected:
        decision = replace(decision, rejected=_rejected(decision, state))
    # Most decisions have plain values, and a copy takes time. Equal values of other types, like 1 and True, count as
    # different, because records have plain values.
    values = (decision.fitness, decision.upper_bound, decision.valid_until, decision.num_nodes)
    if all(map(is_, values, (fitness, bound, until, num_nodes))):
        return decision
    return replace(decision, fitness=fitness, upper_bound=bound, valid_until=until, num_nodes=num_nodes)


def _rejected(decision: Decision, state: State) -> tuple[JobId, ...]:
    """Return the rejected jobs, each once, in order of submission.

    Raise InvalidAllocationError if a job is not active, holds GPUs or gets some.
    """
    for job_id in decision.rejected:
        if not isinstance(job_id, str) or job_id not in state.jobs.active:
            raise not_active("rejected", job_id)
        gets_gpus = decision.allocation.get(job_id) or decision.shared.get(job_id)
        if gets_gpus or state.jobs.active[job_id].placement:
            raise InvalidAllocationError(f"rejected job {job_id!r}, which must not hold GPUs or get any")
    return tuple(sorted(set(decision.rejected), key=lambda job_id: state.jobs.active[job_id].order))


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    number = real_number(value)
    if number is None or not isfinite(number):
        raise _wrong(name, value, "a finite number, or None")
    return number


def _num_nodes(wanted: object, state: State) -> int:
    counts = state.nodes.counts
    if counts is None:
        raise InvalidAllocationError(f"asked for {short(wanted)} nodes, but their number cannot change")
    number = whole_number_of(wanted)
    if number is None or not counts.least <= number <= counts.most:
        raise InvalidAllocationError(f"asked for {short(wanted)} nodes, must be {counts.least} to {counts.most}")
    return number


def _wrong(name: str, value: object, must_be: str) -> InvalidAllocationError:
    return InvalidAllocationError(f"returned a Decision with {name}={short(value)}, must be {must_be}")


def _pairs(job_id: JobId, pairs: object, what: str) -> tuple[tuple[int, int], ...]:
    """Return the GPUs given to a job as pairs of whole numbers."""
    try:
        plain: list[Any] = [(whole_number_of(node), whole_number_of(gpus)) for node, gpus in pairs]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        # What is no list of pairs gets the same error as a pair of other values.
        plain = [(None, None)]
    if any(None in pair for pair in plain):
        raise InvalidAllocationError(f"gave job {job_id!r} {short(pairs)}, must be pairs {what} of whole numbers")
    return tuple(plain)


def _moves(decision: Decision, state: State) -> tuple[Mapping[JobId, Move], Mapping[JobId, ChosenBatch]]:
    """Return the changes of GPUs, in order of submission, and the batch sizes that the policy chose."""
    # Only changes are checked and applied: most decisions name many jobs, and change few.
    new = dict(_changed(decision, state))
    shared = _newly_shared(decision, state)
    new |= {job_id: _placement_of(gpus) for job_id, gpus in shared.items()}
    if not decision.others_keep:
        not_named = state.jobs.placed.keys() - decision.allocation.keys()
        if decision.shared:
            not_named -= decision.shared.keys()
        new |= dict.fromkeys(not_named, ())
    # Nodes that the decision releases do not count; those that it requests do not count yet.
    up = state.nodes.present(state.clock.now, decision.num_nodes)
    for job_id, placement in new.items():
        _check_nodes(job_id, placement, len(up))
    if state.scenario.cluster.partitions:
        _check_partitions(new, state)
    if shared or (new and state.nodes.shared.held):
        _check_shared(new, shared, up, state)
    else:
        _check_free(new, up, state)
    if decision.num_nodes is not None:
        # No job may keep GPUs of a node that the decision releases.
        for job in state.jobs.placed.values():
            _check_nodes(job.job_id, new.get(job.job_id, job.placement), len(up))
    batches: Mapping[JobId, ChosenBatch] = {}
    if decision.batch_sizes:
        batches = batches_of(decision, new, state)
    moves = [
        _move(state.jobs.active[job_id], placement, state.nodes, shared.get(job_id, ()), batches.get(job_id))
        for job_id, placement in new.items()
    ]
    if decision.delays:
        delays = _delays(decision, state)
        moves = [move._replace(delay=delays.get(move.job.job_id)) for move in moves]
    return {move.job.job_id: move for move in sorted(moves, key=lambda move: move.job.order)}, batches


def _changed(decision: Decision, state: State) -> Iterator[tuple[JobId, Placement]]:
    """Yield each job whose placement changes, with the new placement. The order of nodes does not count."""
    active = state.jobs.active
    for job_id, placement in decision.allocation.items():
        if not isinstance(job_id, str) or job_id not in active:
            raise not_active("gave GPUs to", job_id)
        present = active[job_id].holding.placement
        if placement is present:  # it was checked when it was new
            continue
        plain = _pairs(job_id, placement, "(node, GPUs)")
        if plain != present and (len(plain) != len(present) or set(plain) != set(present)):
            yield job_id, plain


def _newly_shared(decision: Decision, state: State) -> dict[JobId, Gpus]:
    """Return the new GPUs by number of the jobs whose numbered GPUs change. The order of GPUs does not count."""
    held_by = state.nodes.shared.held
    new = {}
    for job_id, gpus in decision.shared.items():
        if not isinstance(job_id, str) or job_id not in state.jobs.active:
            raise not_active("gave GPUs to", job_id)
        if job_id in decision.allocation:
            raise InvalidAllocationError(f"named job {job_id!r} in allocation and in shared, must be one of them")
        # Checked when they were new.
        if gpus is held_by.get(job_id):
            continue
        plain = _pairs(job_id, gpus, "(node, number)")
        if not plain or len(set(plain)) < len(plain):
            raise InvalidAllocationError(f"gave job {job_id!r} {short(gpus)} in shared, must be GPUs, each once")
        if set(plain) != set(held_by.get(job_id, ())):
            new[job_id] = plain
    return new


def _placement_of(gpus: Gpus) -> Placement:
    """Return the placement with these GPUs by number.

    >>> _placement_of(((0, 1), (2, 0), (0, 3)))
    ((0, 2), (2, 1))
    """
    return tuple(Counter(node for node, _ in gpus).items())


def _check_partitions(new: Mapping[JobId, Placement], state: State) -> None:
    """Raise InvalidAllocationError if a job gets a node outside the group of its partition."""
    cluster = state.scenario.cluster
    for job_id, placement in new.items():
        queue = state.jobs.active[job_id].job.queue or ""
        nodes = set(cluster.group_of_queue(queue).nodes)
        for node, _ in placement:
            if node not in nodes:
                raise InvalidAllocationError(
                    f"gave job {job_id!r} of partition {queue!r} node {node}, which is not in this partition"
                )


def _check_nodes(job_id: JobId, placement: Placement, num_nodes: int) -> None:
    if len(placement) > 1 and len({node for node, _ in placement}) != len(placement):
        raise InvalidAllocationError(f"named a node twice for job {job_id!r}: {placement}")
    for node, gpus in placement:
        if not 0 <= node < num_nodes:
            raise InvalidAllocationError(f"gave job {job_id!r} node {node}, must be 0 to {num_nodes - 1}")
        if gpus < 1:
            raise InvalidAllocationError(f"gave job {job_id!r} {gpus} GPUs of node {node}, must be 1 or more")


def _check_free(new: Mapping[JobId, Placement], up: Sequence[int], state: State) -> None:
    """Raise OverAllocationError if jobs would hold more GPUs than a node has. No job shares GPUs."""
    free = state.nodes.idle(len(up))
    # All GPUs of jobs that change come free first: a job may get the GPUs that another one leaves.
    for job_id in new:
        for node, gpus in state.jobs.active[job_id].placement:
            if node < len(up):
                free[node] += gpus
    for job_id, placement in new.items():
        for node, gpus in placement:
            free[node] -= gpus
            if free[node] < 0:
                raise over_allocated(node, f"{up[node] - free[node]} GPUs", f"{up[node]}", f"with job {job_id!r} ")


def _check_shared(
    new: Mapping[JobId, Placement], shared: Mapping[JobId, Gpus], up: Sequence[int], state: State
) -> None:
    """Check that the nodes have all GPUs that jobs will hold, and that jobs on one GPU fit together.

    `new` has all changes as placements, and `shared` the new GPUs by number. `up` contains the number of GPUs of each
    node, 0 for a node that is down.
    """
    users: defaultdict[Gpu, list[Tenant]] = defaultdict(list)
    used = Counter[int]()
    for tenant in _tenants(new, shared, state):
        for gpu in tenant.gpus:
            users[gpu].append(tenant)
        # Jobs without numbers hold whole GPUs, of which only the number per node counts.
        if not tenant.gpus:
            used.update(dict(tenant.placement))
    used.update(node for node, _ in users)
    for node, gpus in used.items():
        if gpus > up[node]:
            raise over_allocated(node, f"{gpus} GPUs", f"{up[node]}")
    for (node, number), tenants in users.items():
        size = state.scenario.cluster.gpus_per_node[node]
        if not 0 <= number < size:
            job_id = tenants[0].job.job_id
            raise InvalidAllocationError(f"gave job {job_id!r} GPU {number} of node {node}, must be 0 to {size - 1}")
    _check_fit(users, state.scenario.settings.sharing)


def _tenants(new: Mapping[JobId, Placement], shared: Mapping[JobId, Gpus], state: State) -> Iterable[Tenant]:
    """Yield the jobs that will hold GPUs."""
    held_by = state.nodes.shared.held
    types = state.nodes.node_types
    for job in state.jobs.running:
        if job.job_id not in new:
            yield tenant_of(job, held_by.get(job.job_id, ()), types)
    for job_id, placement in new.items():
        if placement:
            tenant = tenant_of(state.jobs.active[job_id], shared.get(job_id, ()), types)
            yield tenant._replace(placement=placement)


def _check_fit(users: Mapping[Gpu, Sequence[Tenant]], sharing: Sharing | None) -> None:
    """Raise InvalidAllocationError if jobs are on one GPU that do not fit together."""
    # Most groups of jobs share several GPUs. Each group is checked once, at its first GPU.
    checked = set[tuple[JobId, ...]]()
    for (node, number), tenants in users.items():
        names = tuple(tenant.job.job_id for tenant in tenants)
        if len(tenants) == 1 or names in checked:
            continue
        checked.add(names)
        if sharing is not None and sharing.fits(tenants):
            continue
        reason = "engine.sharing is null"
        if sharing is not None:
            reason = f"{type(sharing).__name__} does not let them share it"
        jobs = " and ".join(map(repr, names))
        raise InvalidAllocationError(f"put jobs {jobs} on GPU {number} of node {node}, but {reason}")


def _delays(decision: Decision, state: State) -> dict[JobId, float]:
    """Return the restart delays that a decision names [s]."""
    delays = {}
    for job_id, delay in decision.delays.items():
        if not isinstance(job_id, str) or job_id not in state.jobs.active:
            raise not_active("named a delay of", job_id)
        seconds = real_number(delay)
        if seconds is None or not 0 <= seconds <= LONGEST_DELAY:
            raise _wrong(f"delays[{job_id!r}]", delay, f"a number of seconds from 0 to {LONGEST_DELAY:g}")
        delays[job_id] = seconds
    return delays


def _move(job: ActiveJob, placement: Placement, nodes: Nodes, numbered: Gpus, batch: ChosenBatch | None = None) -> Move:
    """Return a change of GPUs, with the speed of the job on the new GPUs at the batch size of the policy or agent.

    Raise InvalidAllocationError, or a class based on it, if the job cannot use the GPUs.
    """
    if not placement:
        return Move(job, placement, None)
    types = nodes.node_types.names_of(placement)
    usable = job.job.gpu_types
    if usable:
        for gpu_type in types:
            if gpu_type not in usable and gpu_type != ANY.name:
                raise InvalidAllocationError(
                    f"gave job {job.job_id!r} GPUs of {gpu_type}: {placement}, must be of {' or '.join(usable)}"
                )
    _, shape, gpus = spread(placement)
    largest = _most_replicas(job, policy_chooses=batch is not None)
    if gpus > largest:
        raise InvalidAllocationError(f"gave job {job.job_id!r} {gpus} GPUs, must be at most {largest}")
    fewest = job.job.min_replicas or 1
    if gpus < fewest:
        reason = f"its min_replicas is {fewest}: give it none, or {fewest} or more"
        raise TooFewReplicasError(f"gave job {job.job_id!r} {gpus} GPUs, but {reason}")
    try:
        if len(types) > 1:
            return Move(job, placement, _mixed_speed(job, placement, nodes, numbered))
        truth = job.truth.for_gpu_type(types[0])
        if batch is None:
            choice = job.agent.choose(len(placement), gpus, types[0], job.segment.epoch)
        else:
            choice = batch.choice
        return Move(job, placement, truth.speed_at(shape, choice), numbered)
    except FixedReplicasError as error:
        raise BrokenGangError(f"gave job {job.job_id!r} {placement}: {error}") from error
    except ProfileRangeError as error:
        raise InvalidAllocationError(f"gave job {job.job_id!r} {placement}: {error}") from error


def move_of(job: ActiveJob, placement: Placement, nodes: Nodes) -> Move:
    """Return the change that gives a job the GPUs of a placement.

    Raise InvalidAllocationError if the job cannot use them.
    """
    return _move(job, placement, nodes, ())


def _mixed_speed(job: ActiveJob, placement: Placement, nodes: Nodes, numbered: Gpus) -> TrainingSpeed:
    """Return the speed on GPUs of several types. Raise InvalidAllocationError if the agent cannot divide a batch."""
    if job.agent.divide is None or numbered:
        mixed = " and ".join(nodes.node_types.names_of(placement))
        raise InvalidAllocationError(f"gave job {job.job_id!r} GPUs of {mixed}: {placement}, must be of one type")
    crew = nodes.node_types.crew(placement)
    first = nodes.node_types[placement[0][0]].name
    for name, _ in crew:
        job.truth.for_gpu_type(name)  # raises ProfileRangeError for a type without a profile
    _, shape, _ = spread(placement)
    return MixedTrainingSpeed(job.truth, shape, crew, job.agent.divide(crew, job.segment.epoch), first)


def _most_replicas(job: ActiveJob, *, policy_chooses: bool) -> int:
    """Return the largest number of GPUs by the application and the user of a job, at least the requested number."""
    application = job.truth.application
    request = job.job
    batch_size = request.batch_size
    # A batch size that can change does not limit the GPUs by its present value.
    if policy_chooses or job.agent.learns:
        batch_size = application.largest_batch
    largest = max(application.most_replicas(batch_size), request.num_replicas)
    if request.max_replicas is None:
        return largest
    return min(largest, request.max_replicas)
