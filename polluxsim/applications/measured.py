"""Measured profiles: tables of step times, of validation curves and of gradient statistics, interpolated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from typing import NamedTuple

import numpy as np

from polluxsim.applications.interpolation import bracket
from polluxsim.hardware.placements import packed
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, ProfileRangeError, StepTime

MAX_MEASURED_NODES = 16  # more nodes count as this number
LEAST_LOSS = 1e-9  # loss of a perfect metric, because losses are > 0


class PlacementRow(NamedTuple):
    """One measured step time on an exact placement."""

    gpus_by_node: tuple[int, ...]  # GPUs on each node
    atomic_batch_size: int  # [examples]
    step_time: float  # time of a pass that synchronises [s]
    sync_time: float  # part of it in which the synchronisation does not overlap with computing [s]


class ScalabilityRow(NamedTuple):
    """One measured step time on a number of nodes and GPUs; the other figures are those of `PlacementRow`."""

    num_nodes: int
    num_replicas: int
    atomic_batch_size: int  # [examples]
    step_time: float  # [s]
    sync_time: float  # [s]


class EpochRow(NamedTuple):
    """The end of an epoch of a training at a fixed batch size."""

    progress: float  # [M0-steps]
    iteration: float  # [optimiser steps]
    metric: float  # result of the validation, in any unit
    grad_sqr: float  # `GradientStatistics.sqr`
    grad_var: float  # `GradientStatistics.var`


def canonical(gpus_by_node: tuple[int, ...]) -> tuple[int, ...]:
    """Return the lexicographically smallest rotation, the key of placements in tables.

    >>> canonical((4, 1, 2))
    (1, 2, 4)
    """
    return min(gpus_by_node[i:] + gpus_by_node[:i] for i in range(len(gpus_by_node)))


@dataclass(frozen=True)
class MeasuredProfile:
    """A profile that interpolates measurements.

    Source: the interpolation rules are those of the artifact of Pollux (OSDI '21).
    """

    application: Application
    placements: Sequence[PlacementRow]  # in the order of the file
    scalability: Sequence[ScalabilityRow]  # in the order of the file, which matters where a triangulation is degenerate
    validations: Mapping[int, Sequence[EpochRow]]  # ends of the epochs 0, 1, …, by validated batch size [examples]
    best_metric: float | None = None  # metric of a perfect model, in the unit of the metric; None if unknown
    # Policies ask for the same values in every round, and an interpolation takes long.
    _known_step_times: dict[tuple[tuple[int, ...], int], StepTime] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _known_statistics: dict[tuple[int, int], GradientStatistics] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _known_neighbours: dict[int, tuple[Sequence[EpochRow], Sequence[EpochRow], float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time: linear in m on a measured placement, otherwise by numbers of nodes and GPUs.

        A node larger than the measured nodes counts as several nodes, full but for the last, because its inner network
        is unknown. Where numbers of nodes decide, more than 16 count as 16. Raise ProfileRangeError outside the
        measurements.
        """
        key = (gpus_by_node, atomic_batch_size)
        step_time = self._known_step_times.get(key)
        if step_time is None:
            if max(gpus_by_node) > self._largest_node:
                measured_nodes: list[int] = []
                for gpus in gpus_by_node:
                    measured_nodes += packed(gpus, self._largest_node)
                gpus_by_node = tuple(measured_nodes)
            # A placement was measured in one order of its nodes, and is equal in all rotations.
            table = self._tables.get(canonical(gpus_by_node))
            if table is None:
                step_time = self._interpolated(gpus_by_node, atomic_batch_size)
            else:
                step_time = self._between_rows(table, gpus_by_node, atomic_batch_size)
            self._known_step_times[key] = step_time
        return step_time

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return the statistics of the epoch, linear in the batch size between validated batch sizes.

        Raise ProfileRangeError if the batch size is outside the validated batch sizes.
        """
        key = (batch_size, epoch)
        statistics = self._known_statistics.get(key)
        if statistics is None:
            low, high, weight = self._neighbours(batch_size, epoch)
            statistics = self._known_statistics[key] = GradientStatistics(
                _linear(low.grad_sqr, high.grad_sqr, weight), _linear(low.grad_var, high.grad_var, weight)
            )
        return statistics

    def epoch_end(self, epoch: int) -> float:
        """Return the smallest progress at the end of the epoch over all validated batch sizes [M0-steps]."""
        return self._epoch_ends[epoch]

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps from the end of `epoch` to the end of training; 1 if the epoch is the last one.

        Raise ProfileRangeError if the batch size is outside the validated batch sizes.
        """
        last = self.application.num_epochs - 1
        if epoch >= last:
            return 1.0
        low, high, weight = self._neighbours(batch_size, epoch)
        return self.total_iterations(batch_size) - _linear(low.iteration, high.iteration, weight)

    @cached_property
    def losses(self) -> Sequence[float]:
        """Return the distance of the metric from its best after each epoch, as the loss; empty if the best is unknown.

        It is the mean over the validated batch sizes, because an epoch makes the same progress at each of them.
        """
        best = self.best_metric
        if best is None:
            return ()
        runs = self.validations.values()
        losses = []
        for epoch in range(self.application.num_epochs):
            distance = sum(abs(run[epoch].metric - best) for run in runs) / len(runs)
            losses.append(max(distance, LEAST_LOSS))
        return losses

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the validated batch sizes, rising [examples]."""
        return tuple(sorted(self.validations))

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of a whole training, linear in the batch size between validated batch sizes.

        Raise ProfileRangeError outside them.
        """
        low, high, weight = self._neighbours(batch_size, self.application.num_epochs - 1)
        return _linear(low.iteration, high.iteration, weight)

    @cached_property
    def _tables(self) -> dict[tuple[int, ...], list[PlacementRow]]:
        """Return the rows of each measured placement, by rising atomic batch size."""
        tables = defaultdict[tuple[int, ...], list[PlacementRow]](list)
        for row in self.placements:
            tables[row.gpus_by_node].append(row)
        return {key: sorted(rows, key=lambda row: row.atomic_batch_size) for key, rows in tables.items()}

    @cached_property
    def _epoch_ends(self) -> list[float]:
        """Return the progress at the end of each epoch, the least of all trainings [M0-steps]."""
        runs = self.validations.values()
        ends = []
        for epoch in range(self.application.num_epochs):
            ends.append(min(run[epoch].progress for run in runs))
        return ends

    @cached_property
    def _largest_node(self) -> int:
        """Return the GPUs of the largest measured node."""
        return max(max(row.gpus_by_node) for row in self.placements)

    def _neighbours(self, batch_size: int, epoch: int) -> tuple[EpochRow, EpochRow, float]:
        """Return the epoch at the two neighbouring validated batch sizes, and the weight of the larger.

        Raise ProfileRangeError if the batch size is outside them.
        """
        neighbours = self._known_neighbours.get(batch_size)
        if neighbours is None:
            sizes = self.batch_sizes
            if not sizes[0] <= batch_size <= sizes[-1]:
                raise ProfileRangeError(
                    f"{self.application.name}: batch size is {batch_size}, must be {sizes[0]} to {sizes[-1]}"
                )
            low, high, weight = bracket(sizes, batch_size)
            neighbours = self.validations[sizes[low]], self.validations[sizes[high]], weight
            self._known_neighbours[batch_size] = neighbours
        smaller, larger, weight = neighbours
        return smaller[epoch], larger[epoch], weight

    def _between_rows(
        self, rows: list[PlacementRow], gpus_by_node: tuple[int, ...], atomic_batch_size: int
    ) -> StepTime:
        """Return the step time on a measured placement, linear between its rows.

        Raise ProfileRangeError outside its rows.
        """
        sizes = [row.atomic_batch_size for row in rows]
        if not sizes[0] <= atomic_batch_size <= sizes[-1]:
            raise self._unmeasured(gpus_by_node, atomic_batch_size, f"{sizes[0]} to {sizes[-1]}")
        x = float(atomic_batch_size)
        return StepTime(
            float(np.interp(x, sizes, [row.step_time for row in rows])),
            float(np.interp(x, sizes, [row.sync_time for row in rows])),
        )

    def _interpolated(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the step time by numbers of nodes and GPUs. Raise ProfileRangeError outside the measured points."""
        point = (min(len(gpus_by_node), MAX_MEASURED_NODES), sum(gpus_by_node), atomic_batch_size)
        step, sync = map(float, self._interpolator(point).reshape(2))
        if isnan(step):
            raise self._unmeasured(gpus_by_node, atomic_batch_size, "between measured points")
        return StepTime(step, sync)

    @cached_property
    def _interpolator(self):  # type: ignore[no-untyped-def]  # scipy ships no types
        """Return a function from nodes, GPUs and m to step and synchronisation times [s].

        It is NaN outside the hull of the points, and everywhere if the points span no volume.
        """
        # Slow to load, and rarely needed.
        from scipy.interpolate import LinearNDInterpolator  # noqa: PLC0415
        from scipy.spatial import QhullError  # noqa: PLC0415
        from threadpoolctl import threadpool_limits  # noqa: PLC0415

        groups = defaultdict[tuple[int, int, int], list[tuple[float, float]]](list)
        for row in self.placements:
            key = (len(row.gpus_by_node), sum(row.gpus_by_node), row.atomic_batch_size)
            groups[key].append((row.step_time, row.sync_time))
        points = []
        values = []
        for key, times in sorted(groups.items()):
            points.append(key)
            mean_step_time = float(np.mean([step_time for step_time, _ in times]))
            mean_sync_time = float(np.mean([sync_time for _, sync_time in times]))
            values.append((mean_step_time, mean_sync_time))
        # Exact placements first, in a fixed order: the order matters where the triangulation is degenerate.
        for scalability in self.scalability:
            points.append((scalability.num_nodes, scalability.num_replicas, scalability.atomic_batch_size))
            values.append((scalability.step_time, scalability.sync_time))
        try:
            interpolator = LinearNDInterpolator(np.array(points, dtype=float), np.array(values, dtype=float))
        except QhullError:  # triangulation fails if the points span no volume, for example if all are on one node
            return lambda _: np.full(2, np.nan)
        # The first call inverts a small matrix for every simplex, which is much slower in several threads.
        with threadpool_limits(limits=1, user_api="blas"):
            interpolator(points[0])
        return interpolator

    def _unmeasured(self, gpus_by_node: tuple[int, ...], atomic: int, allowed: str) -> ProfileRangeError:
        """Return the error about a placement or a batch size without a step time."""
        return ProfileRangeError(
            f"{self.application.name}: no step time for {atomic} examples per GPU on "
            f"{len(gpus_by_node)} nodes with {gpus_by_node} GPUs, must be {allowed}"
        )


def _linear(low: float, high: float, weight: float) -> float:
    """Return the value between two others; the upper one has the weight."""
    return low + (high - low) * weight
