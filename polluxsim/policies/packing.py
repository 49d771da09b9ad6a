"""Finding GPUs for one job on nodes with free GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.types import Placement


def fits(free: Sequence[int], placement: Placement) -> bool:
    """Return whether the free GPUs of each node include the placement."""
    return all(gpus <= free[node] for node, gpus in placement)


def pack(free: Sequence[int], num_replicas: int, keep: Placement = ()) -> Placement | None:
    """Find GPUs for one job: those it holds if they still fit, else the emptiest nodes first.

    Parameters
    ----------
    free
        Free GPUs of each node.
    num_replicas
        GPUs to find.
    keep
        The job's present placement, kept if it has this many GPUs and is free.

    Returns
    -------
    Placement or None
        Repeatedly as many GPUs as needed of the node with the most free ones (the lowest number at a tie);
        None if there are too few.
    """
    if keep and sum(gpus for _, gpus in keep) == num_replicas and fits(free, keep):
        return keep
    if num_replicas > sum(free):
        return None
    placement = []
    for node in sorted(range(len(free)), key=lambda node: -free[node]):
        if not num_replicas:
            break
        taken = min(free[node], num_replicas)
        placement.append((node, taken))
        num_replicas -= taken
    return tuple(placement)


def remove(free: Sequence[int], placement: Placement) -> tuple[int, ...]:
    """Return the GPUs of each node that are free once the placement is taken."""
    left = list(free)
    for node, gpus in placement:
        left[node] -= gpus
    return tuple(left)
