"""Reservations: which nodes a job may use at which time.

On the nodes of a reservation, a job outside it has to end before it begins. A job in a reservation uses only its nodes,
from its beginning. Jobs in a reservation go first, and close no partition. (Specification, "The queue", "Main
scheduler" and "Preemption, reservations, QOS"; scontrol(1). Measured on slurmctld 22.05.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from polluxsim.policies.slurm.values import NodeSet, PendingJob, SlurmReservation


class Opening(NamedTuple):
    """The nodes that reservations leave to a job that would run from a time on."""

    nodes: NodeSet
    later: int | None  # next time from which reservations may leave more nodes [s]; None if there is none


def opening(job: PendingJob, start: int, up: NodeSet, reservations: Iterable[SlurmReservation]) -> Opening:
    """Return which of the nodes that are up reservations leave to a job in [start, start + limit).

    >>> from polluxsim.policies.slurm.values import Request
    >>> maintenance = SlurmReservation("m", 0b01, start=100, end=200)
    >>> opening(PendingJob("a", Request(), 60), 50, 0b11, [maintenance])
    Opening(nodes=2, later=201)
    >>> opening(PendingJob("a", Request(), 60, reservation="m"), 50, 0b11, [maintenance])
    Opening(nodes=0, later=None)
    """
    later: int | None = None
    for reservation in reservations:
        if job.reservation:
            if reservation.name != job.reservation:
                continue
            # A job whose reservation has not begun gets no plan. (Measured.)
            is_open = reservation.start <= start < reservation.end
            return Opening(up & reservation.nodes if is_open else 0, None)
        if reservation.start < start + job.limit and start < reservation.end:
            up &= ~reservation.nodes
            # The next attempt is after the first reservation that stands in the way.
            later = reservation.end + 1 if later is None else min(later, reservation.end + 1)
    return Opening(0 if job.reservation else up, later)
