"""Goodput, throughput times statistical efficiency, and the batch size that makes the most of a placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from polluxsim.models.batch_size import ROUNDING_SLACK, capped, split_batch_size
from polluxsim.models.throughput import ThroughputParams, grad_time, overlapped, sync_time
from polluxsim.types import BatchChoice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polluxsim.models.efficiency import GradientStatistics
    from polluxsim.models.profile import Application

NUM_CANDIDATES = 50
"""Total batch sizes tried for a placement. Source: artifact of Pollux (OSDI '21)."""

SINGLE_NODE, SEVERAL_NODES = 0, 1
"""Rows of a goodput table."""


@dataclass(frozen=True)
class GoodputModel:
    """What an agent has learnt of its job: enough to predict its goodput on any placement.

    Parameters
    ----------
    application
        Limits of the batch size.
    params
        The fitted throughput model.
    statistics
        The gradient statistics observed last.
    """

    application: Application
    params: ThroughputParams
    statistics: GradientStatistics

    def best(self, num_nodes: int, num_replicas: int) -> tuple[float, BatchChoice]:
        """Return the largest goodput on a placement and the batch choice that reaches it.

        Parameters
        ----------
        num_nodes, num_replicas
            The placement; only whether it spans nodes and how many GPUs it has counts.

        Returns
        -------
        tuple
            Goodput [M0-equivalent examples/s], and the choice. An application with a fixed batch size has one choice;
            else the first best of 50 batch sizes in geometric steps.

        Source: Pollux (OSDI '21), §4.1, and its artifact.
        """
        application = self.application
        if application.fixed_batch_size is not None:
            choice = split_batch_size(application, application.fixed_batch_size, num_replicas)
            goodput = evaluate(
                self.params, *self.statistics, application.init_batch_size, num_nodes, num_replicas, *choice
            )
            return float(goodput), choice
        goodput, atomic, steps = best_choice(self.params, *self.statistics, *self._limits, num_nodes, num_replicas)
        return float(goodput), capped(application, BatchChoice(int(atomic), int(steps)), num_replicas)

    def table(self, max_replicas: int) -> NDArray[np.float64]:
        """Return the largest goodput by placement, shape (2, max_replicas + 1) [M0-equivalent examples/s].

        The first row is for one node, the second for several; columns are GPU counts. No GPU has no goodput.
        """
        if self.application.fixed_batch_size is None:
            table: NDArray[np.float64] = goodput_table(self.params, *self.statistics, *self._limits, max_replicas)
            return table
        table = np.zeros((2, max_replicas + 1))
        for nodes in (1, 2):
            for replicas in range(nodes, max_replicas + 1):
                table[nodes - 1, replicas] = self.best(nodes, replicas)[0]
        return table

    @property
    def _limits(self) -> tuple[int, int, int, int]:
        limits = self.application
        return (
            limits.init_batch_size,
            limits.max_batch_size,
            limits.min_atomic_batch_size,
            limits.max_atomic_batch_size,
        )


@njit(cache=True)
def evaluate(  # type: ignore[no-untyped-def]
    params, sqr, var, init_batch_size, num_nodes, num_replicas, atomic_batch_size, accumulation_steps
):
    """Return the goodput [M0-equivalent examples/s] of one placement and batch choice."""
    grad = grad_time(params, atomic_batch_size)
    sync = sync_time(params, num_nodes, num_replicas)
    iteration = accumulation_steps * grad + overlapped(grad, sync, params.gamma)
    batch_size = num_replicas * atomic_batch_size * (accumulation_steps + 1)
    denominator = var / (batch_size / init_batch_size) + sqr
    gain = (var + sqr) / denominator if denominator > 0.0 else 1.0
    return gain * init_batch_size / iteration


@njit(cache=True)
def best_choice(  # type: ignore[no-untyped-def]
    params, sqr, var, init_batch_size, max_batch_size, min_atomic, max_atomic, num_nodes, num_replicas
):
    """Return the largest goodput of the candidate batch sizes and its atomic batch size and accumulation steps."""
    smallest = max(init_batch_size, min_atomic * num_replicas)
    log_smallest = np.log10(smallest)
    log_step = (np.log10(max_batch_size) - log_smallest) / (NUM_CANDIDATES - 1)
    best, best_atomic, best_steps = -1.0, 0, 0
    last_atomic, last_steps = -1, -1
    for index in range(NUM_CANDIDATES):
        if index == 0:
            local = smallest / num_replicas
        elif index == NUM_CANDIDATES - 1:
            local = max_batch_size / num_replicas
        else:
            local = 10.0 ** (log_smallest + index * log_step) / num_replicas
        steps = int(np.ceil(local / max_atomic - ROUNDING_SLACK)) - 1
        if num_replicas == 1 and local > init_batch_size + ROUNDING_SLACK:
            steps = max(steps, 1)
        atomic = int(np.ceil(local / (steps + 1) - ROUNDING_SLACK))
        if atomic == last_atomic and steps == last_steps:
            continue
        last_atomic, last_steps = atomic, steps
        goodput = 0.0
        if min_atomic <= atomic <= max_atomic:
            goodput = evaluate(params, sqr, var, init_batch_size, num_nodes, num_replicas, float(atomic), float(steps))
        if goodput > best:
            best, best_atomic, best_steps = goodput, atomic, steps
    return best, best_atomic, best_steps


@njit(cache=True)
def goodput_table(  # type: ignore[no-untyped-def]
    params, sqr, var, init_batch_size, max_batch_size, min_atomic, max_atomic, max_replicas
):
    """Return the largest goodput on one node and on several, by GPU count, shape (2, max_replicas + 1)."""
    table = np.zeros((2, max_replicas + 1))
    for nodes in (1, 2):
        for replicas in range(nodes, max_replicas + 1):
            table[nodes - 1, replicas] = best_choice(
                params, sqr, var, init_batch_size, max_batch_size, min_atomic, max_atomic, nodes, replicas
            )[0]
    return table
