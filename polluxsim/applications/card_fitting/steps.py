"""The measured step times that a card is fitted to, and how much each counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from polluxsim.applications.measured import PlacementRow
from polluxsim.applications.placement_classes import FEW_NODES, is_packed

if TYPE_CHECKING:
    from polluxsim.applications.measured import MeasuredProfile
    from polluxsim.models.profile import Application

GPUS_PER_NODE = 4
"""GPUs of a node of the cluster the tables come from."""

UNPACKED_WEIGHT = 0.5
"""Schedulers pack: a step on scattered GPUs counts so much of one on packed ones."""

UNUSED_WEIGHT = 0.05
"""The same for total batch sizes outside the application's limits."""


class Step(NamedTuple):
    """One measured step time within the application's limits, and how much it counts."""

    gpus_by_node: tuple[int, ...]
    atomic_batch_size: int
    step_time: float
    sync_time: float
    weight: float

    @property
    def grad_time(self) -> float:
        """Return the time of the pass without synchronisation [s]."""
        return self.step_time - self.sync_time

    @property
    def num_replicas(self) -> int:
        """Return the number of GPUs."""
        return sum(self.gpus_by_node)


def measured_steps(measured: MeasuredProfile) -> list[Step]:
    """Return the measured steps within limits; counts of nodes and GPUs become evenly filled nodes."""
    limits = measured.application
    counted = [PlacementRow(_spread(row.num_nodes, row.num_replicas), *row[2:]) for row in measured.scalability]
    return [
        Step(*row, _weight(limits, row.gpus_by_node, row.atomic_batch_size))
        for row in (*measured.placements, *counted)
        if limits.min_atomic_batch_size <= row.atomic_batch_size <= limits.max_atomic_batch_size
    ]


def _spread(num_nodes: int, num_replicas: int) -> tuple[int, ...]:
    """Return as even a placement as there is.

    >>> _spread(3, 8)
    (2, 3, 3)
    """
    return tuple((num_replicas + node) // num_nodes for node in range(num_nodes))


def _weight(limits: Application, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> float:
    batch_size = sum(gpus_by_node) * atomic_batch_size
    in_use = limits.init_batch_size <= batch_size <= limits.max_batch_size
    return _packed_weight(gpus_by_node) * (1.0 if in_use else UNUSED_WEIGHT)


def _packed_weight(gpus_by_node: tuple[int, ...]) -> float:
    if len(gpus_by_node) > FEW_NODES:
        filled = sum(gpus_by_node) / (GPUS_PER_NODE * len(gpus_by_node))
        return max(filled**4, UNPACKED_WEIGHT)
    return 1.0 if is_packed(gpus_by_node, GPUS_PER_NODE) else UNPACKED_WEIGHT
