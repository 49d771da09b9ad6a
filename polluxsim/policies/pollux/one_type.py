"""Pollux on several GPU types: like nodes for its search, and the cut of its answer to one type for each job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from polluxsim.hardware.gpu_types import UNKNOWN_TYPES
from polluxsim.hardware.placements import Allocation, JobId, Placement, num_replicas
from polluxsim.policies.contract.view import ClusterView, Decision, JobProxy, JobView, Reason, ReasonKind
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gpu_counts import fewest_gpus, most_gpus
from polluxsim.policies.tools.parts import Partition
from polluxsim.policies.tools.reason_kinds import ELASTIC_UNITS

Explain = Callable[[Sequence[JobId]], Mapping[JobId, Reason]]

# `common.templates.filled` explains the brackets and braces of a sentence.
CUT_TO_ONE_TYPE = ReasonKind(
    "cut-to-one-type",
    "The search takes the GPUs of all types as alike. In the best division that it found, with a fitness of "
    "{fitness:.5g}, this job has [searched=0?no GPU"
    "|part_2?{searched:GPU}: {part_1} of type {part_1:label}[part_3?, {part_2} of type {part_2:label} and {part_3} of "
    "type {part_3:label}| and {part_2} of type {part_2:label}]|{searched:GPU} of type {part_1:label}]. "
    "[cut?A job runs on GPUs of one type, so it gets the {cut:GPU} of type {cut:label}. Of the types that it "
    "may use, the one with most of these GPUs counts, at a tie the fastest"
    "|[searched=0?|A job runs on GPUs of one type. This one needs at least {fewest_gpus} of a type that it may use, so "
    "it cannot have these. ]Jobs without GPUs take what is left, first those that lost theirs in this way, then "
    "those with the least GPU time so far, of equal ones the first submitted; this job is number {position} of {jobs}. "
    "[keeps?The {keeps:GPU} that it held before [keeps=1?is|are] left, so it keeps [keeps=1?it|them]"
    "|takes?{gpus_left:GPU} [gpus_left=1?is|are] left of type {takes:label}, its fastest type with enough of them, and "
    "it takes {takes}, the most that it may have now"
    "|At its turn, [gpus_left=0?no GPU that it may use is left|at most {gpus_left:GPU} of one type that it may use "
    "[gpus_left=1?is|are] left]. It needs at least {fewest_gpus}, so it waits]].",
    {**ELASTIC_UNITS, **dict.fromkeys(("searched", "part_1", "part_2", "part_3", "cut", "keeps", "takes"), "GPUs")},
    "What a job gets on a cluster of several GPU types, of which the search knows nothing.",
)


class LikeNodes(Partition):
    """All nodes and jobs as one part, in which nodes are cut to the size of the smallest node and have no types.

    Source: Sia (SOSP '23), §5, and its published simulator.
    """

    def __init__(self) -> None:
        self.owners: Sequence[int] = ()  # the original node of each node of the part

    def parts(self, view: ClusterView) -> dict[str, ClusterView]:
        """Return a view in which nodes are cut to the size of the smallest node that is up."""
        size = min(gpus for gpus in view.gpus_per_node if gpus)
        parts: list[int] = []
        owners: list[int] = []
        for node, gpus in enumerate(view.gpus_per_node):
            sizes = [size] * (gpus // size)
            rest = gpus % size
            # A node that is down is a part too, because jobs may be on it.
            if rest or not gpus:
                sizes.append(rest)
            parts += sizes
            owners += [node] * len(sizes)
        self.owners = owners
        free = list(parts)
        jobs = [JobProxy(job, placement=_on_parts(job.placement, owners, free)) for job in view.jobs]
        like = replace(view, gpus_per_node=tuple(parts), jobs=jobs, standing=None, node_types=UNKNOWN_TYPES)
        return {"like nodes": like}

    def merge(self, view: ClusterView, decisions: Mapping[str, Decision]) -> Decision:
        """Return the decision on whole nodes, in which each job has GPUs of one type."""
        (decision,) = decisions.values()
        cut = cut_to_one_type(view, decision.allocation, self.owners)
        explain = None
        if decision.explain is not None and decision.fitness is not None:
            explain = _explained(view, cut, decision.fitness, decision.explain)
        return replace(decision, allocation=cut.placements, explain=explain)


def _on_parts(placement: Placement, owners: Sequence[int], free: list[int]) -> Placement:
    """Return a placement on the parts of its nodes, and take their GPUs."""
    on_parts = []
    for node, gpus in placement:
        gpus_left = gpus
        for part in range(owners.index(node), len(owners)):
            if owners[part] != node:
                continue
            taken = min(gpus_left, free[part])
            if taken > 0:
                on_parts.append((part, taken))
                free[part] -= taken
                gpus_left -= taken
    return tuple(on_parts)


class IdleTurn(NamedTuple):
    """The turn of a job without GPUs, after the cut."""

    position: int  # from 1
    placement: Placement  # GPUs that the job takes, or () if it waits
    gpu_type: str  # of these GPUs; if the job waits, the type of its own with most GPUs left, or ""
    gpus_left: int  # GPUs of this type that are left at its turn
    keeps: bool  # whether the job keeps the GPUs that it held before


@dataclass(frozen=True)
class Cut:
    """Placements on whole nodes in which each job has GPUs of one type, and how they came about."""

    placements: dict[JobId, Placement]
    searched: Mapping[JobId, Mapping[str, int]]  # GPUs of each type that the search gave each job
    turns: Mapping[JobId, IdleTurn]  # turns of the jobs without GPUs after the cut
    gpus_left: int  # GPUs that no job has in the end


def cut_to_one_type(view: ClusterView, allocation: Allocation, owners: Sequence[int]) -> Cut:
    """Return placements on whole nodes, on which each job has GPUs of one type only.

    Of the types that a job can use, the one with most of its GPUs counts, at a tie the fastest. `owners` contains the
    node of each part. A job whose user named types, or a minimum of GPUs, can lose all GPUs in this way. It then keeps
    its present GPUs if they are free. Otherwise it takes idle GPUs of a type that it can use, at most the number that
    it got: it would else wait until the search, which knows no types, happens to choose nodes of one type. Then all
    other jobs without GPUs do the same.
    """
    jobs: Mapping[JobId, JobView] = {job.job_id: job for job in view.jobs}
    searched: dict[JobId, Mapping[str, int]] = {}
    cut: dict[JobId, Placement] = {}
    for job_id, placement in allocation.items():
        by_type = _by_type(view, placement, owners)
        searched[job_id] = {name: sum(gpus_of_nodes.values()) for name, gpus_of_nodes in by_type.items()}
        cut[job_id] = _cut(jobs[job_id], by_type)
    # GPUs that the cut took from jobs whose users restrict them.
    missed: dict[JobId, int] = {}
    for job, allocated in allocation.items():
        is_restricted = jobs[job].gpu_types or jobs[job].min_replicas
        if allocated and not cut[job] and is_restricted:
            missed[job] = num_replicas(allocated)
    without = [job for job in allocation if not cut[job]]
    free = FreeGpus(view.gpus_per_node)
    for placement in cut.values():
        free.take(placement)
    turns: dict[JobId, IdleTurn] = {}
    # The jobs that lost GPUs by the cut come first, because the search preferred them to the others.
    for position, job in enumerate(sorted(without, key=lambda job: job not in missed), start=1):
        turns[job] = _idle(view, jobs[job], missed.get(job) or most_gpus(jobs[job]), free, position)
        cut[job] = turns[job].placement
    return Cut(cut, searched, turns, free.total)


def _idle(view: ClusterView, job: JobView, most: int, free: FreeGpus, position: int) -> IdleTurn:
    """Return the turn of a job without GPUs. It takes its held GPUs if they are free.

    Otherwise it takes at most `most` GPUs of its fastest type with enough of them; none if no type has enough.
    """
    if job.placement and free.has(job.placement):
        free.take(job.placement)
        gpu_type = view.type_of(job.placement)
        return IdleTurn(position, job.placement, gpu_type, num_replicas(job.placement), keeps=True)
    most_left = 0
    type_with_most = ""
    for name in sorted(job.speeds, key=lambda name: -job.speeds[name]):
        nodes = view.nodes_of(name)
        gpus_left = free.on(nodes)
        gpus = min(most, gpus_left)
        if gpus >= fewest_gpus(job):
            return IdleTurn(position, free.pack(gpus, nodes) or (), name, gpus_left, keeps=False)
        if gpus_left > most_left:
            most_left = gpus_left
            type_with_most = name
    return IdleTurn(position, (), type_with_most, most_left, keeps=False)


def _by_type(view: ClusterView, placement: Placement, owners: Sequence[int]) -> Mapping[str, Mapping[int, int]]:
    """Return the GPUs of a placement on parts of nodes, by type and whole node."""
    by_type: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for part, gpus in placement:
        by_type[view.node_types[owners[part]].name][owners[part]] += gpus
    return by_type


def _cut(job: JobView, by_type: Mapping[str, Mapping[int, int]]) -> Placement:
    """Return the GPUs of one type, by whole nodes.

    The type is the one with most GPUs among those that the job can use, at a tie the fastest. Return no GPUs if they
    are fewer than the job needs.
    """
    usable = [name for name in by_type if name in job.speeds]
    largest_type = max(usable, key=lambda name: (sum(by_type[name].values()), job.speeds[name]), default=None)
    if largest_type is None or sum(by_type[largest_type].values()) < fewest_gpus(job):
        return ()
    return tuple(by_type[largest_type].items())


def _explained(view: ClusterView, cut: Cut, fitness: float, explain: Explain) -> Explain:
    """Return the function that explains the placements after the cut; `explain` explains the answer of the search.

    The reasons of the search are true of a job that keeps what the search gave it. If it has no GPUs, they are true
    only if no GPU is left.
    """
    jobs: Mapping[JobId, JobView] = {job.job_id: job for job in view.jobs}

    def reasons(asked: Sequence[JobId]) -> dict[JobId, Reason]:
        as_searched: list[JobId] = []
        by_job: dict[JobId, Reason] = {}
        for job_id in asked:
            gpus = num_replicas(cut.placements[job_id])
            is_as_searched = gpus == sum(cut.searched[job_id].values()) and len(cut.searched[job_id]) <= 1
            if is_as_searched and (gpus or not cut.gpus_left):
                as_searched.append(job_id)
            else:
                by_job[job_id] = Reason(CUT_TO_ONE_TYPE, _numbers_of_cut(view, cut, jobs[job_id], fitness))
        for job_id, reason in explain(as_searched).items():
            numbers = {**reason.numbers, "types": len(view.types), "left_after_cut": cut.gpus_left}
            by_job[job_id] = reason._replace(numbers=numbers)
        return by_job

    return reasons


def _numbers_of_cut(view: ClusterView, cut: Cut, job: JobView, fitness: float) -> dict[str, float]:
    """Return what the search gave a job, and what the job has after the cut."""
    job_id = job.job_id
    placement = cut.placements[job_id]
    numbers: dict[str, float] = {
        "searched": sum(cut.searched[job_id].values()),
        "fitness": fitness,
        "fewest_gpus": fewest_gpus(job),
    }
    for index, (name, gpus) in enumerate(cut.searched[job_id].items(), start=1):
        numbers[f"part_{index} {name}"] = gpus
    turn = cut.turns.get(job_id)
    if turn is None:
        numbers[f"cut {view.type_of(placement)}"] = num_replicas(placement)
        return numbers
    numbers |= {"position": turn.position, "jobs": len(cut.turns), "gpus_left": turn.gpus_left}
    if turn.keeps:
        numbers["keeps"] = num_replicas(placement)
    elif placement:
        numbers[f"takes {turn.gpu_type}"] = num_replicas(placement)
    return numbers
