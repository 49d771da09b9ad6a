"""What a policy saw and decided at a round, the kinds of faults, and the test that shows a fault."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from traceback import walk_tb
from typing import NamedTuple, cast

from polluxsim.checks.worlds import World
from polluxsim.common.errors import BrokenGangError, InvalidAllocationError, OverAllocationError, TooFewReplicasError
from polluxsim.hardware.placements import Allocation, JobId, Placement, num_replicas
from polluxsim.policies.contract.view import Change, Changes, ClusterView, Decision, Reason


class SeenJob(NamedTuple):
    """One job at a round."""

    job_id: JobId
    num_replicas: int
    min_replicas: int  # smallest number of GPUs that the job can run on
    max_replicas: int
    is_gang: bool  # whether the job runs on `num_replicas` GPUs only
    queue: str | None
    priority: float
    deadline: float | None  # [s]
    time_limit: float | None  # [s]
    submit_time: float  # [s]
    placement: Placement  # GPUs before the decision
    speeds: Mapping[str, float]  # speed as the user submitted the job, by GPU type [optimiser steps/s]
    time_left: float  # true time to completion on packed nodes, with the restart delay [s]; 0 with several GPU types
    delay: float  # restart delay [s]
    num_restarts: int
    service: float  # GPUs times the time for which the job held them before the decision [GPU s]
    reason: Reason | None  # the policy's reason for its decision about the job


@dataclass(frozen=True)
class Seen:
    """One round: the cluster, the jobs, and the decision of the policy."""

    time: float  # [s]
    round_interval: float  # time between rounds [s]
    gpus_per_node: Sequence[int]  # GPUs that each node offers, 0 if it is about to go down
    types: Sequence[str]  # GPU type of each node
    up: Mapping[str, int]  # GPUs of each type on nodes that are up and not about to go down
    jobs: Sequence[SeenJob]  # jobs that the policy did not reject, in order of submission
    held: Mapping[JobId, int]  # GPUs of each job after the decision
    free: Mapping[str, int]  # GPUs of each type that no job holds after the decision
    most_free: int  # free GPUs of the node with the most free GPUs
    evicted: frozenset[JobId]  # jobs that lost their GPUs since the last decision
    by_node: Mapping[JobId, Mapping[int, int]]  # GPUs of each job by node after the decision
    sharing: frozenset[JobId]  # jobs that could share their GPUs before the decision
    events: Change  # kinds of events since the last decision; a fork that altered jobs counts as an arrival
    outdated_by: Change  # kinds of events that end the validity of the decision

    def waits(self, job: SeenJob) -> bool:
        """Return whether a job has no GPUs after the decision."""
        return not self.held[job.job_id]


def observer(view: ClusterView, answer: object, ask: Callable[[Callable[[], object]], object]) -> Callable[[], Seen]:
    """Read the state that laws need from a view, and return a function that returns the round.

    Call the returned function after the engine has accepted the answer, because the answer is then well formed. `ask`
    calls a function of the policy, and reports its errors.
    """
    reasons: object = {}
    if isinstance(answer, Decision) and callable(answer.explain):
        explain, names = answer.explain, [job.job_id for job in view.jobs]
        reasons = ask(lambda: explain(names))
    known = reasons if isinstance(reasons, Mapping) else {}
    is_one = len(view.types) == 1
    jobs = []
    for job in view.jobs:
        gang = job.gang_size
        delay = view.delay_of(job)
        time_left = delay + job.oracle.time_left(job.num_replicas) if is_one else 0.0
        jobs.append(
            SeenJob(
                job.job_id, job.num_replicas, job.min_replicas or 1, job.max_replicas, gang is not None,
                job.queue, job.priority, job.deadline, job.time_limit, job.submit_time, job.placement,
                dict(job.speeds), time_left, delay, job.num_restarts, job.attained_service,
                known.get(job.job_id),
            )
        )  # fmt: skip
    going = {node for node, _ in view.health.coming}
    nodes = [0 if node in going else gpus for node, gpus in enumerate(view.gpus_per_node)]
    type_of = [view.type_of(((node, 1),)) for node in range(len(nodes))]
    time, interval, evicted = view.time, view.round_interval, frozenset(view.changes.evicted)
    sharing, events = frozenset(view.sharing.held), _events(view.changes)

    def seen() -> Seen:
        decision = answer if isinstance(answer, Decision) else Decision(cast("Allocation", answer))
        used = _used(decision, jobs)
        held = {job.job_id: sum(used.get(job.job_id, {}).values()) for job in jobs}
        stay = nodes if decision.num_nodes is None else nodes[: decision.num_nodes]
        free = Counter(dict.fromkeys(type_of, 0))
        taken = _taken(decision, used)
        most_free = 0
        for node, gpus in enumerate(stay):
            idle = max(gpus - taken[node], 0)
            free[type_of[node]] += idle
            most_free = max(most_free, idle)
        up = Counter(dict.fromkeys(type_of, 0))
        for node, gpus in enumerate(nodes):
            up[type_of[node]] += gpus
        here = [job for job in jobs if job.job_id not in decision.rejected]
        by_node: dict[JobId, Mapping[int, int]] = {job.job_id: used.get(job.job_id, {}) for job in here}
        return Seen(
            time, interval, nodes, type_of, up, here, held, free, most_free, evicted,
            by_node, sharing, events, decision.outdated_by,
        )  # fmt: skip

    return seen


def _events(changes: Changes) -> Change:
    """Return the kinds of the events since the last decision."""
    happened = {
        Change.ARRIVAL: changes.arrived or changes.altered,
        Change.COMPLETION: changes.ended,
        Change.NODES: changes.nodes,
        Change.EVICTION: changes.evicted,
        Change.EPOCH: changes.passed_epoch,
        Change.LEARNING: changes.learnt,
    }
    kinds = Change(0)
    for kind, jobs in happened.items():
        if jobs:
            kinds |= kind
    return kinds


def _used(decision: Decision, jobs: Sequence[SeenJob]) -> dict[JobId, Counter[int]]:
    """Return the GPUs of each job by node after a decision."""
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
    counts = Counter[int]()
    for node, gpus in placement:
        counts[int(node)] += int(gpus)
    return counts


def _taken(decision: Decision, used: Mapping[JobId, Counter[int]]) -> Counter[int]:
    """Return the GPUs of each node that are in use; jobs may share GPUs."""
    taken = Counter(node for node, _ in {gpu for gpus in decision.shared.values() for gpu in gpus})
    for job_id, counts in used.items():
        if job_id not in decision.shared:
            taken.update(counts)
    return taken


def gpus_of(job: SeenJob) -> int:
    """Return the GPUs of a job before the decision."""
    return num_replicas(job.placement)


class Fault(StrEnum):
    """Kinds of faults."""

    ERROR = "it fails"
    OVER_ALLOCATION = "over-allocation"
    GANG = "a broken gang"
    ANSWER = "an invalid answer"
    HANG = "it does not decide"
    EMPTY = "an empty cluster"
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
    PREEMPTION = "a preemption in spite of the promise"


@dataclass(frozen=True)
class Finding:
    """A fault of a policy in a world."""

    fault: Fault
    message: str
    world: World | None = None  # the world that shows the fault; None if the fault needs no world
    origin: tuple[str, int] | None = None  # file and line that raised an error; None if there is no error

    @property
    def kind(self) -> tuple[Fault, tuple[str, int] | None]:
        """Return the common key of findings with one cause."""
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
    raised = error if cause is None or cause.__traceback__ is None else cause  # a cause need not have been raised
    *_, (frame, line) = walk_tb(raised.__traceback__)
    return Finding(fault, message, origin=(frame.f_code.co_filename, line))


def as_test(finding: Finding, policy: str) -> str:
    """Return the code of a test that fails while the policy has the fault. `policy` is its name or file."""
    name = re.sub(r"\W+", "_", str(finding.fault))
    if finding.world is None:
        return (
            f"from polluxsim.checks import check\n\n\ndef test_{name}() -> None:\n    assert not check({policy!r}, 0)\n"
        )
    with_a_line_for_each_job = re.sub(r"(?<=\() ?(?=Job\()|(?<=,) (?=Job\()", "\n        ", repr(finding.world))
    past = "from polluxsim.workloads.past import Past\n" if "past=Past(" in with_a_line_for_each_job else ""
    return (
        "from polluxsim.checks import World, checked_world\n"
        f"{past}from polluxsim.workloads.workload import Job\n\n\n"
        f"def test_{name}() -> None:\n"
        f"    world = {with_a_line_for_each_job}\n"
        f"    assert not checked_world({policy!r}, world)\n"
    )
