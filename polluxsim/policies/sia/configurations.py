"""The configurations of jobs: GPUs of one type, on part of a node or on whole nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from polluxsim.types import num_replicas

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from polluxsim.policies.view import ClusterView, JobView


class Configuration(NamedTuple):
    """A number of GPUs of one type on a number of nodes."""

    gpu_type: str
    nodes: int
    gpus: int

    def __str__(self) -> str:
        return f"{self.gpus} {self.gpu_type}"


def configurations(view: ClusterView, gangs: Collection[int] = ()) -> list[Configuration]:
    """Return all configurations: powers of two on a node, a whole node, several whole nodes, and those of `gangs`.

    The largest nodes of a type count as its nodes. `gangs` are the smallest numbers of GPUs that jobs can run on. A job
    without a configuration would wait for ever.
    Source: Sia (SOSP '23), §3.2.
    """
    found = []
    for gpu_type in view.types:
        sizes = [view.gpus_per_node[node] for node in view.nodes_of(gpu_type)]
        if (size := max(sizes, default=0)) > 0:
            whole = sizes.count(size)
            found += [Configuration(gpu_type, 1, gpus) for gpus in _parts(size)]
            found += [Configuration(gpu_type, nodes, nodes * size) for nodes in range(2, whole + 1)]
            known = {each.gpus for each in found if each.gpu_type == gpu_type}
            odd = sorted({gpus for gpus in gangs if gpus <= sum(sizes)} - known)
            found += [Configuration(gpu_type, -(-gpus // size), gpus) for gpus in odd]
    return found


def _parts(size: int) -> list[int]:
    """Return the powers of two below a number, and the number itself.

    >>> _parts(6)
    [1, 2, 4, 6]
    """
    return [2**power for power in range((size - 1).bit_length())] + [size]


def present(view: ClusterView, job: JobView, known: Sequence[Configuration]) -> int | None:
    """Return the index of the present configuration of a job, or None."""
    if not job.placement:
        return None
    now = Configuration(view.type_of(job.placement), len(job.placement), num_replicas(job.placement))
    return known.index(now) if now in known else None
