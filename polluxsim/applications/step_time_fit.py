"""Fit the step times of a profile card to measured tables: time of a pass, time to synchronise, and their overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from polluxsim.applications.card import CardSize, GradTimes, SyncTimes
from polluxsim.applications.card_profile import FEW_NODES, is_packed
from polluxsim.applications.interpolation import bracket
from polluxsim.applications.measured import MeasuredProfile, PlacementRow
from polluxsim.models.profile import Application


def knots_over(measured: Iterable[int], most: int) -> tuple[int, ...]:
    """Return up to `most` whole knots in geometric steps over the range of the measured values."""
    values = sorted(set(measured))
    steps = np.geomspace(values[0], values[-1], min(most, len(values)))
    # Small steps may round to the same knot.
    return tuple(sorted({round(step) for step in steps}))


def hats(knots: Sequence[float], points: Iterable[float]) -> NDArray[np.float64]:
    """Return the weight of each knot in the linear interpolation at each point, shape (points, knots).

    The columns are the hat functions of the knots. The product with the values at the knots is the interpolation.
    """
    rows = []
    for x in points:
        row = np.zeros(len(knots))
        low, high, weight = bracket(knots, x)
        row[low] += 1.0 - weight
        row[high] += weight
        rows.append(row)
    return np.array(rows)


def log_hats(knots: Sequence[float], points: Iterable[float]) -> NDArray[np.float64]:
    """Return the weight of each knot in the log-linear interpolation at each point, shape (points, knots)."""
    return hats([log(knot) for knot in knots], [log(x) for x in points])


GPUS_PER_NODE = 4  # GPUs per node of the measured cluster
UNPACKED_WEIGHT = 0.5  # weight of a step on scattered GPUs relative to packed GPUs, because schedulers pack
UNUSED_WEIGHT = 0.05  # weight of a step at a total batch size outside the application's limits


class Step(NamedTuple):
    """One measured step time at an atomic batch size within the application's limits, and its weight in the fit."""

    gpus_by_node: tuple[int, ...]
    atomic_batch_size: int  # [examples]
    step_time: float  # time of the whole pass [s]
    sync_time: float  # part of it in which the synchronisation does not overlap with computing [s]
    weight: float  # [1]

    @property
    def grad_time(self) -> float:
        """Return the time of the pass without synchronisation [s]."""
        return self.step_time - self.sync_time

    @property
    def num_replicas(self) -> int:
        """Return the number of GPUs."""
        return sum(self.gpus_by_node)


def measured_steps(measured: MeasuredProfile) -> list[Step]:
    """Return the measured steps at atomic batch sizes within the application's limits.

    A row that states only its numbers of nodes and GPUs becomes a step on evenly filled nodes.
    """
    limits = measured.application
    rows = list(measured.placements)
    for row in measured.scalability:
        gpus_by_node = _spread(row.num_nodes, row.num_replicas)
        rows.append(PlacementRow(gpus_by_node, row.atomic_batch_size, row.step_time, row.sync_time))
    steps = []
    for placed in rows:
        if limits.min_atomic_batch_size <= placed.atomic_batch_size <= limits.max_atomic_batch_size:
            steps.append(Step(*placed, _weight(limits, placed.gpus_by_node, placed.atomic_batch_size)))
    return steps


def _spread(num_nodes: int, num_replicas: int) -> tuple[int, ...]:
    """Return the most even placement.

    >>> _spread(3, 8)
    (2, 3, 3)
    """
    return tuple((num_replicas + node) // num_nodes for node in range(num_nodes))


def _weight(limits: Application, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> float:
    """Return the weight of a measured step: lower on scattered GPUs, and outside the limits of the batch size."""
    weight = 1.0
    if len(gpus_by_node) > FEW_NODES:
        filled = sum(gpus_by_node) / (GPUS_PER_NODE * len(gpus_by_node))
        weight = max(filled**4, UNPACKED_WEIGHT)  # near 1 only if almost all GPUs of the nodes are used
    elif not is_packed(gpus_by_node, GPUS_PER_NODE):
        weight = UNPACKED_WEIGHT
    batch_size = sum(gpus_by_node) * atomic_batch_size
    if not limits.init_batch_size <= batch_size <= limits.max_batch_size:
        weight *= UNUSED_WEIGHT
    return weight


NODE_KNOTS = (2, 3, 4, 6, 8, 12, 16)
"""Measured numbers of nodes, the knots of the constant part of the time to synchronise."""

GAMMA_STARTS = (1.1, 1.5, 2.5, 5.0)  # initial overlaps of the searches; the best result is kept


def fit_grad(steps: list[Step], size: CardSize) -> GradTimes:
    """Return the time of a pass, fitted to steps on full nodes and on one GPU, and then to partly filled nodes."""
    sizes = {step.atomic_batch_size for step in steps}
    knots = knots_over(sizes, size.grad_knots)
    alone_knots = knots_over(sizes, min(size.alone_knots, len(sizes) - 1))
    full = [step for step in steps if step.num_replicas > 1 and min(step.gpus_by_node) == GPUS_PER_NODE]
    lone = [step for step in steps if step.num_replicas == 1]
    full_hats = hats(knots, [step.atomic_batch_size for step in full])
    lone_hats = hats(knots, [step.atomic_batch_size for step in lone])
    alone_hats = log_hats(alone_knots, [step.atomic_batch_size for step in lone])
    full_logs = np.log([step.grad_time for step in full])
    lone_logs = np.log([step.grad_time for step in lone])
    # Weights of squares. Both kinds of steps have the total weight 1, however many of each were measured.
    full_weights = np.sqrt([step.weight for step in full] / np.sum([step.weight for step in full]))

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted errors of the logs of times. `x` has the logs of the values at the knots."""
        times = np.exp(x[: len(knots)])
        factors = x[len(knots) :]
        on_full = np.log(full_hats @ times) - full_logs
        on_lone = np.log(lone_hats @ times) + alone_hats @ factors - lone_logs
        return np.concatenate([full_weights * on_full, on_lone / np.sqrt(len(lone))])

    start = np.concatenate([np.full(len(knots), full_logs.mean()), np.zeros(len(alone_knots))])
    solution = np.exp(least_squares(residuals, start, x_scale=1.0).x)
    grad = GradTimes(
        knots,
        tuple(solution[: len(knots)].tolist()),
        alone_knots,
        tuple(solution[len(knots) :].tolist()),
        (1.0,) * (GPUS_PER_NODE - 1),
    )
    return replace(grad, partial_node=_fit_partial(steps, grad))


def _fit_partial(steps: list[Step], grad: GradTimes) -> tuple[float, ...]:
    """Return the mean time of a pass relative to full nodes, by GPUs on the emptiest node; 1 without measurements."""
    factors = []
    for fewest in range(1, GPUS_PER_NODE):
        logs = []
        for step in steps:
            if step.num_replicas > 1 and min(step.gpus_by_node) == fewest:
                on_full_nodes = grad(step.num_replicas, fewest, step.atomic_batch_size)
                logs.append(log(step.grad_time / on_full_nodes))
        factor = 1.0
        if logs:
            factor = float(np.exp(np.mean(logs)))
        factors.append(factor)
    return tuple(factors)


def fit_sync(steps: list[Step], grad: GradTimes, alone: float) -> SyncTimes:
    """Return the time to synchronise and its overlap, fitted to the step times on several GPUs.

    `alone` is the time to synchronise on one GPU [s]. The search varies the logs of the coefficients and of γ − 1.
    """
    logs = np.log([step.step_time for step in steps])
    grads = np.array([grad(step.num_replicas, min(step.gpus_by_node), step.atomic_batch_size) for step in steps])
    nodes = np.array([len(step.gpus_by_node) for step in steps])
    replicas = np.array([step.num_replicas for step in steps])
    # A card has a knot also if only one node was measured.
    node_knots = tuple(knot for knot in NODE_KNOTS if knot <= nodes.max()) or NODE_KNOTS[:1]
    # Factors of α_local, β_local and β_node, then of α_node at each knot.
    columns = np.zeros((len(steps), 3 + len(node_knots)))
    one = nodes == 1
    several = nodes > 1
    columns[one, 0] = 1.0
    columns[one, 1] = replicas[one] - 2.0
    columns[:, 2] = np.where(several, (replicas - nodes) / nodes, 0.0)
    columns[:, 3:] = hats(node_knots, nodes) * several[:, None]
    weights = np.sqrt([step.weight for step in steps])

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted errors of the logs of step times. `x` has the logs of the coefficients and of γ − 1."""
        sync = columns @ np.exp(x[:-1])
        gamma = 1.0 + np.exp(x[-1])
        # As `overlapped` of `polluxsim.models.profile`, for arrays. Powers of the larger time could overflow.
        larger = np.maximum(grads, sync)
        smaller = np.minimum(grads, sync)
        step_logs = np.log(larger) + np.log1p((smaller / larger) ** gamma) / gamma
        errors: NDArray[np.float64] = weights * (step_logs - logs)
        return errors

    # Start from the mean difference between step and pass, at least 10 µs.
    scale = log(float(np.mean(np.clip(np.exp(logs) - grads, 1e-5, None))))
    # Coefficients may be e⁹ = 8,100 times smaller or e⁵ = 150 times larger than this difference; γ is 1.001 to 10.
    lower = np.append(np.full(columns.shape[1], scale - 9.0), log(1e-3))
    upper = np.append(np.full(columns.shape[1], scale + 5.0), log(9.0))
    solutions = []
    # The errors have several local minima.
    for gamma in GAMMA_STARTS:
        start = np.append(np.full(columns.shape[1], scale), log(gamma - 1.0))
        start[1:3] -= 2.0  # the parts per GPU, β, start at e⁻² of the constant parts
        solutions.append(least_squares(residuals, start, bounds=(lower, upper)))
    x = min(solutions, key=lambda solution: float(solution.cost)).x
    alpha_local, beta_local, beta_node, *alpha_node = np.exp(x[:-1]).tolist()
    gamma = 1.0 + float(np.exp(x[-1]))
    return SyncTimes(alone, alpha_local, beta_local, node_knots, tuple(alpha_node), beta_node, gamma)
