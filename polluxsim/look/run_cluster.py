"""The cluster of a finished run, as far as its folder tells."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from polluxsim.gpu_types import NOBODY_SAYS
from polluxsim.look.groups import settings_of
from polluxsim.types import Cluster

if TYPE_CHECKING:
    from polluxsim.storage import Run


def cluster_of(run: Run) -> Cluster:
    """Return the cluster of a run: as run.json says, and as large as its records show where it grew, or is not said."""
    known = Cluster.of_groups(run.info["nodes"]) if "nodes" in run.info else None
    sizes = {} if known is None else dict(enumerate(known.gpus_per_node))
    for held in set(map(attrgetter("nodes", "gpus"), run.result.allocation_records)):
        for node, gpus in zip(*held, strict=True):
            sizes[node] = max(sizes.get(node, 1), gpus)
    for outage in run.result.outage_records:
        sizes[outage.node] = max(sizes.get(outage.node, 1), outage.gpus)
    # A run in which nobody ever held a GPU still had a node.
    nodes = tuple(sizes.get(node, 1) for node in range(max(sizes, default=0) + 1))
    return Cluster(nodes, node_types=known.node_types if known and known.num_nodes == len(nodes) else NOBODY_SAYS)


def num_gpus(run: Run) -> int | None:
    """Return the GPUs of a run's cluster, None of a run of before they were recorded, if its settings do not tell."""
    settings = settings_of(run)
    for groups in (run.info.get("nodes"), settings.get("cluster.groups")):
        if isinstance(groups, list):
            return sum(int(count) * int(gpus) for count, gpus, *_ in groups)
    nodes, gpus = settings.get("cluster.num_nodes"), settings.get("cluster.gpus_per_node")
    return nodes * gpus if isinstance(nodes, int) and isinstance(gpus, int) else None


def steady_gpus(run: Run) -> int | None:
    """Return the GPUs of a run's cluster, None where a policy rents nodes as it needs them, and where nobody knows."""
    return None if is_rented(run) else num_gpus(run)


def is_rented(run: Run) -> bool:
    """Return whether a policy rents the nodes of a run's cluster as it needs them."""
    return "cluster.least_nodes" in settings_of(run)
