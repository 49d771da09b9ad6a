"""Check a policy's decision, and turn it into one frozen plan of plain values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan
from numbers import Real
from operator import index, is_
from typing import Any, NamedTuple, TypeGuard

from polluxsim.common.errors import (
    BrokenGangError,
    InvalidAllocationError,
    OverAllocationError,
    TooFewReplicasError,
    short,
)
from polluxsim.engine.batch_sizes import batches_of
from polluxsim.engine.job import ActiveJob, ChosenBatch, Move
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.progress import spread
from polluxsim.engine.sharing import Sharing, Tenant, ceded_gpus, tenant_of
from polluxsim.engine.state import State
from polluxsim.engine.truth import MixedTrainingSpeed, TrainingSpeed
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.hosts import ROUNDING as HOST_ROUNDING
from polluxsim.hardware.hosts import Host, with_gpus
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


def plan_of(answer: object, state: State) -> Plan:
    """Return the plan of a policy's answer, which is a mapping or a `Decision`. An error names the policy."""
    try:
        if not isinstance(answer, Decision) and not _is_mapping(answer):
            kinds = "a mapping of jobs to placements, or a Decision"
            raise InvalidAllocationError(f"answered {short(answer)}, must be {kinds}")
        decision = _with_plain_values(answer if isinstance(answer, Decision) else Decision(answer), state)
        moves, batches = _moves(decision, state)
        return Plan(decision, moves, _granted(decision, moves, state) if decision.hosts else {}, batches)
    except InvalidAllocationError as error:
        raise type(error)(f"policy {state.scenario.policy_name} {error}") from error


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
    """Return a decision with plain values in all fields other than its allocation."""
    for name, is_valid, must_be in FIELDS:
        value = getattr(decision, name)
        if not is_valid(value):
            raise _wrong(name, value, must_be)
    fitness = _number("fitness", decision.fitness)
    bound = _number("upper_bound", decision.upper_bound)
    if bound is not None and bound <= 0:
        raise _wrong("upper_bound", decision.upper_bound, "> 0")
    if bound is not None and fitness is not None and fitness > bound * (1 + ROUNDING):
        raise _wrong("upper_bound", decision.upper_bound, f"no less than the fitness, {fitness!r}, or None")
    until = _real(decision.valid_until)
    if until is None or isnan(until):
        raise _wrong("valid_until", decision.valid_until, "a time [s], −inf to be asked at every round")
    num_nodes = None
    if decision.num_nodes is not None:
        num_nodes = _num_nodes(decision.num_nodes, state)
    if decision.rejected:
        decision = replace(decision, rejected=_rejected(decision, state))
    # Most decisions have plain values, and a copy takes time.
    values = (decision.fitness, decision.upper_bound, decision.valid_until, decision.num_nodes)
    if all(map(is_, values, (fitness, bound, until, num_nodes))):
        return decision
    return replace(decision, fitness=fitness, upper_bound=bound, valid_until=until, num_nodes=num_nodes)


def _rejected(decision: Decision, state: State) -> tuple[JobId, ...]:
    """Return the rejected jobs, each once, in order of submission."""
    for job_id in decision.rejected:
        if not isinstance(job_id, str) or job_id not in state.jobs.active:
            raise _not_active("rejected", job_id)
        if state.jobs.active[job_id].placement or decision.allocation.get(job_id):
            raise InvalidAllocationError(f"rejected job {job_id!r}, which must not hold GPUs or get any")
    return tuple(sorted(set(decision.rejected), key=lambda job_id: state.jobs.active[job_id].order))


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    number = _real(value)
    if number is None or not isfinite(number):
        raise _wrong(name, value, "a finite number, or None")
    return number


def _real(value: object) -> float | None:
    """Return a real number of any library as a float; None for True and for a number that is too large."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(number: object) -> int | None:
    """Return a whole number of any library as an int; None for 1.5 and True."""
    if type(number) is int:
        return number
    if isinstance(number, bool) or type(number).__name__ in ("bool", "bool_"):
        return None
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        return None


def _num_nodes(wanted: object, state: State) -> int:
    counts = state.nodes.counts
    if counts is None:
        raise InvalidAllocationError(f"asked for {short(wanted)} nodes, but their number cannot change")
    number = _whole(wanted)
    if number is None or not counts.least <= number <= counts.most:
        raise InvalidAllocationError(f"asked for {short(wanted)} nodes, must be {counts.least} to {counts.most}")
    return number


def _wrong(name: str, value: object, must_be: str) -> InvalidAllocationError:
    return InvalidAllocationError(f"returned a Decision with {name}={short(value)}, must be {must_be}")


def _not_active(what: str, job_id: object) -> InvalidAllocationError:
    """Return the error about a value that is not the name of an active job."""
    if isinstance(job_id, str):
        return InvalidAllocationError(f"{what} job {short(job_id)}, which is not active")
    name = getattr(job_id, "job_id", None)
    if isinstance(name, str):
        return InvalidAllocationError(f"{what} the view of job {name!r}, must name the job: use job.job_id")
    return InvalidAllocationError(f"{what} job {short(job_id)}, which is not active; name a job by job.job_id")


def _pairs(job_id: JobId, pairs: object, what: str) -> tuple[tuple[int, int], ...]:
    """Return the GPUs given to a job as pairs of whole numbers."""
    try:
        plain: list[Any] = [(_whole(node), _whole(gpus)) for node, gpus in pairs]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        plain = [(None, None)]
    if any(number is None for pair in plain for number in pair):
        raise InvalidAllocationError(f"gave job {job_id!r} {short(pairs)}, must be pairs {what} of whole numbers")
    return tuple(plain)


def _moves(decision: Decision, state: State) -> tuple[Mapping[JobId, Move], Mapping[JobId, ChosenBatch]]:
    """Return the changes of GPUs, in order of submission, and the batch sizes that the policy chose."""
    new = dict(_changed(decision, state))
    shared = _newly_shared(decision, state)
    new |= {job_id: _placement_of(gpus) for job_id, gpus in shared.items()}
    if not decision.others_keep:
        not_named = state.jobs.placed.keys() - decision.allocation.keys()
        if decision.shared:
            not_named -= decision.shared.keys()
        new |= dict.fromkeys(not_named, ())
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
    """Yield the jobs whose placement changes, ignoring the order of nodes."""
    active = state.jobs.active
    for job_id, placement in decision.allocation.items():
        if not isinstance(job_id, str) or job_id not in active:
            raise _not_active("gave GPUs to", job_id)
        present = active[job_id].holding.placement
        if placement is present:  # it was checked when it was new
            continue
        plain = _pairs(job_id, placement, "(node, GPUs)")
        if plain != present and (len(plain) != len(present) or set(plain) != set(present)):
            yield job_id, plain


def _newly_shared(decision: Decision, state: State) -> dict[JobId, Gpus]:
    """Return the jobs whose numbered GPUs change, ignoring their order."""
    held_by = state.nodes.shared.held
    new = {}
    for job_id, gpus in decision.shared.items():
        if not isinstance(job_id, str) or job_id not in state.jobs.active:
            raise _not_active("gave GPUs to", job_id)
        if job_id in decision.allocation:
            raise InvalidAllocationError(f"named job {job_id!r} in allocation and in shared, must be one of them")
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
    group_of = state.scenario.cluster.group_of_partition
    for job_id, placement in new.items():
        queue = state.jobs.active[job_id].job.queue or ""
        nodes = set(group_of[queue].nodes)
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


def _over(node: int, given: str, size: str, when: str = "") -> OverAllocationError:
    return OverAllocationError(f"over-allocated node {node}: {when}jobs would hold {given}, the node has {size}")


def _check_free(new: Mapping[JobId, Placement], up: Sequence[int], state: State) -> None:
    """Check that no GPU is given twice, if no job shares GPUs."""
    free = state.nodes.idle(len(up))
    for job_id in new:
        for node, gpus in state.jobs.active[job_id].placement:
            if node < len(up):
                free[node] += gpus
    for job_id, placement in new.items():
        for node, gpus in placement:
            free[node] -= gpus
            if free[node] < 0:
                raise _over(node, f"{up[node] - free[node]} GPUs", f"{up[node]}", f"with job {job_id!r} ")


def _check_shared(
    new: Mapping[JobId, Placement], shared: Mapping[JobId, Gpus], up: Sequence[int], state: State
) -> None:
    """Check that the nodes have all GPUs that jobs will hold, and that jobs on one GPU fit together.

    `new` has all changes as placements, and `shared` the new GPUs by number. `up` contains the number of GPUs of each
    node that is up.
    """
    users: defaultdict[Gpu, list[Tenant]] = defaultdict(list)
    used = Counter[int]()
    for tenant in _tenants(new, shared, state):
        for gpu in tenant.gpus:
            users[gpu].append(tenant)
        if not tenant.gpus:
            used.update(dict(tenant.placement))
    used.update(node for node, _ in users)
    for node, gpus in used.items():
        if gpus > up[node]:
            raise _over(node, f"{gpus} GPUs", f"{up[node]}")
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
            raise _not_active("named a delay of", job_id)
        seconds = _real(delay)
        if seconds is None or not 0 <= seconds <= LONGEST_DELAY:
            raise _wrong(f"delays[{job_id!r}]", delay, f"a number of seconds from 0 to {LONGEST_DELAY:g}")
        delays[job_id] = seconds
    return delays


def _move(job: ActiveJob, placement: Placement, nodes: Nodes, numbered: Gpus, batch: ChosenBatch | None = None) -> Move:
    """Return a change of GPUs, with the speed of the job on the new GPUs at the batch size of the policy or agent."""
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
    """Return the speed on GPUs of several types, among which the agent must know how to divide a batch."""
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
    if policy_chooses or job.agent.learns:
        batch_size = application.largest_batch
    largest = max(application.most_replicas(batch_size), request.num_replicas)
    return largest if request.max_replicas is None else min(largest, request.max_replicas)


def _granted(decision: Decision, moves: Mapping[JobId, Move], state: State) -> Mapping[JobId, Host]:
    """Return the granted CPUs and memory for each GPU. The nodes must have them beside the parts of all other jobs."""
    cluster = state.scenario.cluster
    if not cluster.hosts:
        raise InvalidAllocationError("granted CPUs and memory, but the cluster does not say what its nodes have")
    placements = {job_id: job.placement for job_id, job in state.jobs.placed.items()}
    placements |= {job_id: move.placement for job_id, move in moves.items()}
    granted = {job_id: _host(job_id, host, placements) for job_id, host in decision.hosts.items()}
    part = _parts(moves, state)
    free_cpus = [host.cpus for host in cluster.hosts]
    free_memory = [host.memory for host in cluster.hosts]
    for job_id, placement in placements.items():
        if placement:
            cpus, memory = granted.get(job_id) or part(job_id, with_gpus(cluster.host_shares, placement))
            for node, gpus in placement:
                free_cpus[node] -= cpus * gpus
                free_memory[node] -= memory * gpus
    for node, host in enumerate(cluster.hosts):
        if free_cpus[node] < -HOST_ROUNDING * host.cpus or free_memory[node] < -HOST_ROUNDING * host.memory:
            cpus = host.cpus - free_cpus[node]
            memory = host.memory - free_memory[node]
            raise _over(node, f"{cpus:g} CPUs and {memory:g} GB", f"{host.cpus:g} and {host.memory:g}")
    return granted


def _parts(moves: Mapping[JobId, Move], state: State) -> Callable[[JobId, Host], Host]:
    """Return a function from a job and the CPUs and memory of a whole GPU to its part on GPUs that it shares."""
    gpus_by_job = dict(state.nodes.shared.held)
    for job_id, move in moves.items():
        gpus_by_job.pop(job_id, None)
        if move.gpus:
            gpus_by_job[job_id] = move.gpus
    users = Counter[Gpu]()
    for gpus in gpus_by_job.values():
        users.update(gpus)

    def part(job_id: JobId, host: Host) -> Host:
        gpus = gpus_by_job.get(job_id)
        if not gpus:
            return host
        return host.times(1 - ceded_gpus(gpus, users) / len(gpus))

    return part


def _host(job_id: object, host: object, placements: Mapping[JobId, Placement]) -> Host:
    if not isinstance(job_id, str):
        raise _not_active("granted CPUs and memory to", job_id)
    if not placements.get(job_id):
        raise InvalidAllocationError(f"granted CPUs and memory to job {short(job_id)}, which holds no GPUs")
    plain = tuple(map(_real, host)) if isinstance(host, tuple | list) else ()
    if len(plain) != 2 or not all(part is not None and isfinite(part) and part > 0 for part in plain):
        must_be = "numbers > 0 of CPUs and GB for each GPU"
        raise InvalidAllocationError(f"granted job {job_id!r} {short(host)}, must be {must_be}")
    return Host(*plain)  # type: ignore[arg-type]
