"""Fit the time of a pass, and the time to synchronise and its overlap, by nonlinear least squares."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from polluxsim.applications.card_fitting.knots import hats, knots_over, log_hats
from polluxsim.applications.card_fitting.steps import GPUS_PER_NODE
from polluxsim.applications.card_parts import GradTimes, SyncTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polluxsim.applications.card import CardSize
    from polluxsim.applications.card_fitting.steps import Step

NODE_KNOTS = (2, 3, 4, 6, 8, 12, 16)
"""Node counts of which the constant part of the time to synchronise is fitted: those that were measured."""

GAMMA_STARTS = (1.1, 1.5, 2.5, 5.0)
"""Overlaps from which the search starts; the best end is kept."""


def fit_grad(steps: list[Step], size: CardSize) -> GradTimes:
    """Fit the time of a pass: on full nodes, then its factors for a lone GPU and for partly filled nodes."""
    sizes = {step.atomic_batch_size for step in steps}
    knots, alone_knots = (knots_over(sizes, size.grad_knots), knots_over(sizes, min(size.alone_knots, len(sizes) - 1)))
    full = [step for step in steps if step.num_replicas > 1 and min(step.gpus_by_node) == GPUS_PER_NODE]
    lone = [step for step in steps if step.num_replicas == 1]
    full_hats = hats(knots, [step.atomic_batch_size for step in full])
    lone_hats = hats(knots, [step.atomic_batch_size for step in lone])
    alone_hats = log_hats(alone_knots, [step.atomic_batch_size for step in lone])
    full_logs, lone_logs = (np.log([step.grad_time for step in some]) for some in (full, lone))
    full_weights = np.sqrt([step.weight for step in full] / np.sum([step.weight for step in full]))

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        times, factors = np.exp(x[: len(knots)]), x[len(knots) :]
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
    factors = []
    for fewest in range(1, GPUS_PER_NODE):
        some = [step for step in steps if step.num_replicas > 1 and min(step.gpus_by_node) == fewest]
        logs = [log(step.grad_time / grad(step.num_replicas, fewest, step.atomic_batch_size)) for step in some]
        factors.append(float(np.exp(np.mean(logs))) if logs else 1.0)
    return tuple(factors)


def fit_sync(steps: list[Step], grad: GradTimes, alone: float) -> SyncTimes:
    """Fit the time to synchronise and its overlap to the step times of several GPUs."""
    logs = np.log([step.step_time for step in steps])
    grads = np.array([grad(s.num_replicas, min(s.gpus_by_node), s.atomic_batch_size) for s in steps])
    nodes = np.array([len(step.gpus_by_node) for step in steps])
    replicas = np.array([step.num_replicas for step in steps])
    node_knots = tuple(knot for knot in NODE_KNOTS if knot <= nodes.max()) or NODE_KNOTS[:1]
    columns = np.zeros((len(steps), 3 + len(node_knots)))
    one, several = nodes == 1, nodes > 1
    columns[one, 0], columns[one, 1] = 1.0, replicas[one] - 2.0
    columns[:, 2] = np.where(several, (replicas - nodes) / nodes, 0.0)
    columns[:, 3:] = hats(node_knots, nodes) * several[:, None]
    weights = np.sqrt([step.weight for step in steps])

    def residuals(x: NDArray[np.float64]) -> NDArray[np.float64]:
        sync, gamma = columns @ np.exp(x[:-1]), 1.0 + np.exp(x[-1])
        larger, smaller = np.maximum(grads, sync), np.minimum(grads, sync)
        step_logs = np.log(larger) + np.log1p((smaller / larger) ** gamma) / gamma
        off: NDArray[np.float64] = weights * (step_logs - logs)
        return off

    # Times to synchronise are looked for around what is left of the step beside the pass.
    scale = log(float(np.mean(np.clip(np.exp(logs) - grads, 1e-5, None))))
    lower = np.append(np.full(columns.shape[1], scale - 9.0), log(1e-3))
    upper = np.append(np.full(columns.shape[1], scale + 5.0), log(9.0))
    solutions = []
    for gamma in GAMMA_STARTS:
        start = np.append(np.full(columns.shape[1], scale), log(gamma - 1.0))
        start[1:3] -= 2.0
        solutions.append(least_squares(residuals, start, bounds=(lower, upper)))
    x = min(solutions, key=lambda solution: float(solution.cost)).x
    alpha_local, beta_local, beta_node, *alpha_node = np.exp(x[:-1]).tolist()
    gamma = 1.0 + float(np.exp(x[-1]))
    return SyncTimes(alone, alpha_local, beta_local, node_knots, tuple(alpha_node), beta_node, gamma)
