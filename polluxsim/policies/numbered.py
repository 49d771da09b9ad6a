"""Finding GPUs by number, for jobs that share them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from polluxsim.policies.packing import FreeGpus

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Gpu, Gpus, JobId


def all_gpus(view: ClusterView) -> list[Gpu]:
    """Return the GPUs that are there, by node and number."""
    return [(node, number) for node, gpus in enumerate(view.gpus_per_node) for number in range(gpus)]


def placed_together(
    view: ClusterView, packs: Sequence[Sequence[JobView]], nodes: Collection[int] | None = None
) -> dict[JobId, Gpus]:
    """Return the GPUs of jobs that have all of them in common, pack by pack; no two packs have one in common.

    Parameters
    ----------
    view
        The cluster, all of whose GPUs are given anew.
    packs
        Jobs that ask for equally many GPUs, those first that take theirs first. All of them have room.
    nodes
        The only ones that are given, by number; None is all.

    Returns
    -------
    dict
        A pack stays where the first of its jobs runs that was not taken elsewhere; others take the emptiest nodes
        first.
    """
    free = {gpu for gpu in all_gpus(view) if nodes is None or gpu[0] in nodes}
    found: dict[int, Gpus] = {}
    for place, pack in enumerate(packs):
        held = (view.shared.get(job.job_id, ()) for job in pack)
        if kept := next((gpus for gpus in held if gpus and free.issuperset(gpus)), ()):
            found[place] = kept
            free.difference_update(kept)
    left = Counter(node for node, _ in free)
    emptiest = FreeGpus([left[node] for node in range(len(view.gpus_per_node))])
    by_node = {node: iter(sorted(gpu for gpu in free if gpu[0] == node)) for node in left}
    for place, pack in enumerate(packs):
        if place not in found and (placement := emptiest.pack(pack[0].num_replicas)) is not None:
            found[place] = tuple(gpu for node, gpus in placement for gpu in islice(by_node[node], gpus))
    return {job.job_id: gpus for place, gpus in found.items() for job in packs[place]}
