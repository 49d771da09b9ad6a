"""The observation of a round, the kinds of faults, and the test that shows a fault."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from traceback import walk_tb
from typing import cast

from polluxsim.checks.worlds import World
from polluxsim.common.errors import BrokenGangError, InvalidAllocationError, OverAllocationError, TooFewReplicasError
from polluxsim.hardware.placements import Allocation, JobId, Placement
from polluxsim.policies.contract.reasons import JobSeen, Reason, RoundSeen
from polluxsim.policies.contract.view import Change, Changes, ClusterView, Decision, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus


def observer(
    view: ClusterView, answer: object, ask: Callable[[Callable[[], object]], object]
) -> Callable[[], RoundSeen]:
    """Read the state that laws need from a view, and return a function that returns the snapshot of the round.

    Everything is read from the view at once, because the view is out of date after the engine applies the answer. Call
    the returned function after the engine has accepted the answer, because the answer is then well formed. `ask` calls
    a function of the policy, and turns its errors into findings.
    """
    reasons = _reasons_of(view, answer, ask)
    jobs = [_job_seen(view, job, reasons.get(job.job_id)) for job in view.jobs]
    # Nodes that will go down soon count as nodes without GPUs, because the policy need not use them.
    going_down = {node for node, _ in view.health.coming}
    nodes = [0 if node in going_down else gpus for node, gpus in enumerate(view.gpus_per_node)]
    type_of = [view.type_of(((node, 1),)) for node in range(len(nodes))]
    time = view.time
    interval = view.round_interval
    evicted = frozenset(view.changes.evicted)
    sharing = frozenset(view.sharing.held)
    events = _events(view.changes)

    def snapshot() -> RoundSeen:
        decision = answer if isinstance(answer, Decision) else Decision(cast("Allocation", answer))
        used = _used(decision, jobs)
        gpus_of = {job.job_id: sum(used[job.job_id].values()) for job in jobs}
        staying_nodes = nodes if decision.num_nodes is None else nodes[: decision.num_nodes]
        taken = _taken(decision, used)
        free_by_node = [max(gpus - taken[node], 0) for node, gpus in enumerate(staying_nodes)]

        def fits(job: JobSeen, gpu_type: str) -> bool:
            # The policy may release the last nodes, so that there are fewer nodes than types.
            of_type = [gpus if name == gpu_type else 0 for gpus, name in zip(free_by_node, type_of, strict=False)]
            return FreeGpus(of_type).fits(job.shapes[gpu_type])

        accepted = [job for job in jobs if job.job_id not in decision.rejected]
        by_node: dict[JobId, Mapping[int, int]] = {job.job_id: used[job.job_id] for job in accepted}
        return RoundSeen(
            time=time,
            round_interval=interval,
            gpus_per_node=nodes,
            types=type_of,
            up=_sum_by_type(nodes, type_of),
            jobs=accepted,
            held=gpus_of,
            free=_sum_by_type(free_by_node, type_of),
            free_by_node=free_by_node,
            evicted=evicted,
            by_node=by_node,
            sharing=sharing,
            events=events,
            outdated_by=decision.outdated_by,
            batch_sizes=decision.batch_sizes,
            fits=fits,
        )

    return snapshot


def _reasons_of(
    view: ClusterView, answer: object, ask: Callable[[Callable[[], object]], object]
) -> dict[JobId, Reason]:
    """Return the reasons in an answer for the jobs of a view. A value that is no `Reason` is left out."""
    if not isinstance(answer, Decision) or not callable(answer.explain):
        return {}
    explain = answer.explain
    names = [job.job_id for job in view.jobs]
    reasons = ask(lambda: explain(names))
    if not isinstance(reasons, Mapping):
        return {}
    return {job: reason for job, reason in reasons.items() if isinstance(reason, Reason)}


def _job_seen(view: ClusterView, job: JobView, reason: Reason | None) -> JobSeen:
    """Return a job of a view with its reason."""
    delay = view.delay_of(job)
    # The time left depends on the type of the GPUs. The laws use it on clusters of one type only.
    time_left = 0.0
    if len(view.types) == 1:
        time_left = delay + job.oracle.time_left(job.num_replicas)
    shapes = {name: view.shape_of(job, name) for name in job.speeds}
    return JobSeen(
        job_id=job.job_id,
        num_replicas=job.num_replicas,
        min_replicas=job.min_replicas or 1,
        max_replicas=job.max_replicas,
        is_gang=job.gang_size is not None,
        queue=job.queue,
        priority=job.priority,
        deadline=job.deadline,
        time_limit=job.time_limit,
        submit_time=job.submit_time,
        placement=job.placement,
        speeds=dict(job.speeds),
        time_left=time_left,
        delay=delay,
        num_restarts=job.num_restarts,
        service=job.attained_service,
        reason=reason,
        user=job.user,
        qos=job.qos,
        shapes=shapes,
    )


def _sum_by_type(gpus_by_node: Sequence[int], type_of: Sequence[str]) -> Counter[str]:
    """Return the GPUs of each type; 0 for a type whose nodes have none. `type_of` has the type of each node."""
    by_type = Counter(dict.fromkeys(type_of, 0))
    for node, gpus in enumerate(gpus_by_node):
        by_type[type_of[node]] += gpus
    return by_type


def _events(changes: Changes) -> Change:
    """Return the kinds of the events since the last decision."""
    jobs_or_nodes = {
        Change.ARRIVAL: changes.arrived or changes.altered,
        Change.COMPLETION: changes.ended,
        Change.NODES: changes.nodes,
        Change.EVICTION: changes.evicted,
        Change.EPOCH: changes.passed_epoch,
        Change.LEARNING: changes.learnt,
    }
    kinds = Change(0)
    for kind, jobs in jobs_or_nodes.items():
        if jobs:
            kinds |= kind
    return kinds


def _used(decision: Decision, jobs: Sequence[JobSeen]) -> dict[JobId, Counter[int]]:
    """Return the GPUs of each job by node after a decision. With `others_keep`, jobs without a mention keep theirs."""
    used = {}
    for job in jobs:
        if job.job_id in decision.shared:
            used[job.job_id] = Counter(node for node, _ in decision.shared[job.job_id])
        elif job.job_id in decision.allocation or not decision.others_keep:
            used[job.job_id] = _by_node(decision.allocation.get(job.job_id) or ())
        else:
            used[job.job_id] = _by_node(job.placement)
    return used


def _by_node(placement: Placement) -> Counter[int]:
    """Return the GPUs of each node. A policy may name a node twice, or give NumPy numbers."""
    counts = Counter[int]()
    for node, gpus in placement:
        counts[int(node)] += int(gpus)
    return counts


def _taken(decision: Decision, used: Mapping[JobId, Counter[int]]) -> Counter[int]:
    """Return the number of GPUs of each node that are in use. A GPU that several jobs share counts once."""
    shared_gpus = set[tuple[int, int]]()  # as (node, number of the GPU)
    for gpus in decision.shared.values():
        shared_gpus.update(gpus)
    taken = Counter(node for node, _ in shared_gpus)
    for job_id, counts in used.items():
        if job_id not in decision.shared:
            taken.update(counts)
    return taken


class Fault(StrEnum):
    """Kinds of faults."""

    ERROR = "it fails"
    OVER_ALLOCATION = "over-allocation"
    GANG = "a broken gang"
    ANSWER = "an invalid answer"
    HANG = "it does not decide"
    EMPTY = "an empty cluster"
    MEMBER = "an attribute without effect"
    CHANCE = "chance outside rng"
    ORDER = "the order of a set"
    MEMORY = "memory of other runs"
    STARVATION = "starvation"
    STANDING = "a decision that does not stand"
    GROWTH = "decisions that become slow"
    IDLE = "idle GPUs"
    RESERVATION = "a broken reservation"
    QUOTA = "a job that waits within its quota"
    DEADLINE = "an admitted job that is late"
    ORIGIN = "times that count from time 0"
    MIN_REPLICAS = "fewer GPUs than a job can run on"
    CLOCK = "decisions that depend on the unit of time"
    CYCLE = "a cycle without an event"
    SHAPE = "a job on other nodes than it needs"
    LIMIT = "a start beyond a limit"
    PREEMPTION = "a preemption in spite of the promise"
    BATCH_SIZE = "another batch size than the policy chose"
    BOUND = "a run that is better than any schedule can be"


@dataclass(frozen=True)
class Finding:
    """A fault of a policy in a world."""

    fault: Fault
    message: str
    world: World | None = None  # the world that shows the fault; None if the fault needs no world
    origin: tuple[str, int] | None = None  # file and line that raised an error; None if there is no error

    @property
    def kind(self) -> tuple[Fault, tuple[str, int] | None]:
        """Return the key that findings with one cause have in common."""
        return self.fault, self.origin


FAULTS: dict[type, Fault] = {
    OverAllocationError: Fault.OVER_ALLOCATION,
    BrokenGangError: Fault.GANG,
    TooFewReplicasError: Fault.MIN_REPLICAS,
    InvalidAllocationError: Fault.ANSWER,
}
"""Faults of invalid answers by the type of the error."""


def of_error(error: BaseException, message: str) -> Finding:
    """Return the finding for an error of a policy, or for its invalid answer."""
    fault = FAULTS.get(type(error), Fault.ERROR)
    if fault not in (Fault.ANSWER, Fault.ERROR):
        return Finding(fault, message)
    cause = error.__cause__
    # A cause that was never raised has no traceback.
    has_raised_cause = cause is not None and cause.__traceback__ is not None
    raised = cause if cause is not None and has_raised_cause else error
    # The innermost frame is the place in the policy's code.
    *_, (frame, line) = walk_tb(raised.__traceback__)
    return Finding(fault, message, origin=(frame.f_code.co_filename, line))


def as_test(finding: Finding, policy: str) -> str:
    """Return the code of a test that fails while the policy has the fault. `policy` is its name or file."""
    name = re.sub(r"\W+", "_", str(finding.fault))
    if finding.world is None:
        return (
            f"from polluxsim.checks import check\n\n\ndef test_{name}() -> None:\n    assert not check({policy!r}, 0)\n"
        )
    # A world has up to eight jobs, too many for one line.
    with_a_line_for_each_job = re.sub(r"(?<=\() ?(?=Job\()|(?<=,) (?=Job\()", "\n        ", repr(finding.world))
    past_import = ""
    if "past=Past(" in with_a_line_for_each_job:
        past_import = "from polluxsim.workloads.past import Past\n"
    return (
        "from polluxsim.checks import World, checked_world\n"
        f"{past_import}from polluxsim.workloads.workload import Job\n\n\n"
        f"def test_{name}() -> None:\n"
        f"    world = {with_a_line_for_each_job}\n"
        f"    assert not checked_world({policy!r}, world)\n"
    )
