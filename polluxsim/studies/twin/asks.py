"""What a job of a live cluster asks for."""

from __future__ import annotations

from typing import NamedTuple

from polluxsim.logs.live.jobs import StateJob


class NodeNeeds(NamedTuple):
    """What decides which nodes suit a job."""

    partitions: tuple[str, ...] = ()
    gpu_type: str = ""
    features: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


class Ask(NamedTuple):
    """What a job asks for."""

    num_nodes: int
    gpus: int  # on each node
    cpus: int  # on each node; −1 for all
    states_tasks: bool
    limit: int  # [s]
    user: str
    kind: NodeNeeds


def ask_of(job: StateJob) -> Ask:
    """Return what a job of the state asks for."""
    kind = NodeNeeds(job.partitions, job.gpu_type, job.features, job.required, job.excluded)
    return Ask(job.num_nodes, job.gpus, job.cpus, job.states_tasks, job.limit, job.user, kind)
