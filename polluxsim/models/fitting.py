"""Fit the throughput model θ_sys to observed step times, as Pollux does, in compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import helper, kernel
from polluxsim.hardware.placements import packed
from polluxsim.models import goodput, line_search
from polluxsim.models.lbfgsb import (
    EPSILON,
    add_scaled,
    cauchy_point,
    difference,
    dot,
    longest_step,
    projected_gradient_norm,
    remember,
    subspace_minimum,
)
from polluxsim.models.profile import Profile, ProfileRangeError
from polluxsim.models.throughput import TINY, ThroughputParams

# Start and bounds of the fit, by parameter. Source: artifact of Pollux (OSDI '21).
START = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
LOWER = (TINY, TINY, TINY, TINY, TINY, TINY, 1.0)
UPPER = (inf, inf, inf, inf, inf, inf, 10.0)
ALPHA_GRAD, BETA_GRAD, ALPHA_NODE, BETA_NODE, ALPHA_LOCAL, BETA_LOCAL, GAMMA = range(7)

# Weights of the regularising terms, which favour little overlap and constant synchronisation times. Source: artifact of
# Pollux (OSDI '21).
GAMMA_WEIGHT = 1e-3
RETROGRESSION_WEIGHT = 1e-2

# Network parameters over several nodes are at least this many times those within one, until there are data.
NODE_OVER_LOCAL = 1.1

# SciPy's defaults for its L-BFGS-B.
MEMORY = 10  # remembered steps
LEAST_DECREASE = 2.220446049250313e-09  # relative decrease of the error at which the search ends
GRADIENT_TOLERANCE = 1e-5  # largest component of the projected gradient at which the search ends
MAX_TRIALS = 20  # evaluations in one line search
MAX_ITERATIONS = 15000  # steps of the search


def fit_throughput(
    num_nodes: Sequence[int],
    num_replicas: Sequence[int],
    atomic_batch_size: Sequence[int],
    grad_time: Sequence[float],
    step_time: Sequence[float],
) -> ThroughputParams:
    """Fit θ_sys to observations, which are sequences of equal length n ≥ 1.

    The search has one fixed start. Parameters that the observations do not determine keep optimistic values
    ("prior-driven exploration").

    Parameters
    ----------
    num_nodes, num_replicas, atomic_batch_size
        Where and how each observation was made [1; 1; examples].
    grad_time
        Time of its pass without synchronisation [s].
    step_time
        Time of its pass with synchronisation [s].

    Source: Pollux (OSDI '21), §4.1, and its artifact.
    """
    return fitted(*map(tuple, (num_nodes, num_replicas, atomic_batch_size, grad_time, step_time)))


@lru_cache(maxsize=1 << 12)
def fitted(*columns: tuple[float, ...]) -> ThroughputParams:
    """Return θ_sys as `fit_throughput` does. Jobs of one application often begin with the same observations."""
    data = observation_array(*columns)
    start, lower, upper = explored_bounds(data)
    x, _ = minimise(data, start, lower, upper)
    x = np.clip(x, lower, upper)  # a step to a bound may overshoot it by a rounding error
    # Without observations on several nodes, a placement on several nodes must not seem faster than one on a node.
    if not (data[0] > 1).any():
        x[ALPHA_NODE] = max(x[ALPHA_NODE], NODE_OVER_LOCAL * x[ALPHA_LOCAL])
        x[BETA_NODE] = max(x[BETA_NODE], NODE_OVER_LOCAL * x[BETA_LOCAL])
    return ThroughputParams(*x.tolist())


def warm_up() -> None:
    """Compile the fit, and the goodput of a fitted model."""
    fit_throughput((1,), (1,), (1,), (1.0,), (1.0,))
    goodput.warm_up()


def observation_array(*columns: Sequence[float]) -> NDArray[np.float64]:
    """Return the observations for the compiled code, shape (5, n): nodes, GPUs, m [examples], and logs of times [s]."""
    *counts, grad_time, step_time = columns
    # One by one, because the last bits of NumPy's logarithms of arrays depend on the processor.
    return np.array([*counts, list(map(log, grad_time)), list(map(log, step_time))], dtype=np.float64)


def explored_bounds(data: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return start, lower and upper bounds, shape (7,) each. They are equal for parameters that are held.

    These are the parameters that the observations do not determine.
    """
    nodes, replicas, atomic, log_grad, _ = data
    held = dict[int, float]()
    if (atomic == atomic[0]).all():  # half of the mean time is constant, and half is in proportion to m
        held[ALPHA_GRAD] = sum(exp(log_time) for log_time in log_grad.tolist()) / len(log_grad) / 2
    if not (nodes > 1).any():
        held |= {ALPHA_NODE: TINY, BETA_NODE: TINY}
    if not ((nodes == 1) & (replicas > 1)).any():
        held |= {ALPHA_LOCAL: TINY, BETA_LOCAL: TINY}
    if not (replicas > 2).any():
        held |= {BETA_NODE: TINY, BETA_LOCAL: TINY}
    start = np.array(START)
    lower = np.array(LOWER)
    upper = np.array(UPPER)
    for parameter, value in held.items():
        start[parameter] = lower[parameter] = upper[parameter] = value
    return start, lower, upper


@kernel
def objective(x: NDArray[np.float64], data: NDArray[np.float64], gradient: NDArray[np.float64]) -> float:
    """Return the error of θ_sys and write its gradient.

    RMSE(log T_grad) + RMSE(log T_step) + 1e-3·(γ − 1)² + 1e-2·((β_node/α_node)² + (β_local/α_local)²).

    Parameters
    ----------
    x
        θ_sys in the order of `ThroughputParams`, shape (7,).
    data
        Observations as `observation_array` gives them, shape (5, n).
    gradient
        Written: derivative by each parameter, shape (7,).
    """
    gamma = x[6]
    n = data.shape[1]
    grad_errors = np.zeros(8)  # sum of squares, then half of its derivatives
    step_errors = np.zeros(8)
    for k in range(n):
        several = data[0, k] > 1.5
        replicas = data[1, k]
        atomic = data[2, k]
        grad = x[0] + x[1] * atomic
        extra = max(replicas - 2.0, TINY)
        alpha = 2 if several else 4
        sync = x[alpha] + x[alpha + 1] * extra if replicas > 1.5 else TINY
        log_grad = np.log(grad)
        log_sync = np.log(sync)
        error = log_grad - data[3, k]
        grad_errors[0] += error * error
        grad_errors[1] += error / grad
        grad_errors[2] += error / grad * atomic
        # log of (grad^γ + sync^γ)^(1/γ), and the shares of grad and sync in it, without overflow
        larger = max(log_grad, log_sync)
        grad_term = np.exp(gamma * (log_grad - larger))
        sync_term = np.exp(gamma * (log_sync - larger))
        total = grad_term + sync_term
        log_step = larger + np.log(total) / gamma
        grad_share = grad_term / total
        sync_share = sync_term / total
        error = log_step - data[4, k]
        step_errors[0] += error * error
        step_errors[1] += error * grad_share / grad
        step_errors[2] += error * grad_share / grad * atomic
        if replicas > 1.5:
            step_errors[alpha + 1] += error * sync_share / sync
            step_errors[alpha + 2] += error * sync_share / sync * extra
        step_errors[7] += error * (grad_share * log_grad + sync_share * log_sync - log_step) / gamma
    grad_rmse = np.sqrt(grad_errors[0] / n)
    step_rmse = np.sqrt(step_errors[0] / n)
    for i in range(7):
        gradient[i] = 0.0
        # At a perfect fit the root has no derivative; a derivative of 0 stops the search there.
        if grad_rmse > 0.0:
            gradient[i] += grad_errors[i + 1] / n / grad_rmse
        if step_rmse > 0.0:
            gradient[i] += step_errors[i + 1] / n / step_rmse
    node = x[3] / x[2]
    local = x[5] / x[4]
    gradient[2] -= 2.0 * RETROGRESSION_WEIGHT * node * node / x[2]
    gradient[3] += 2.0 * RETROGRESSION_WEIGHT * node / x[2]
    gradient[4] -= 2.0 * RETROGRESSION_WEIGHT * local * local / x[4]
    gradient[5] += 2.0 * RETROGRESSION_WEIGHT * local / x[4]
    gradient[6] += 2.0 * GAMMA_WEIGHT * (gamma - 1.0)
    penalty = GAMMA_WEIGHT * (gamma - 1.0) ** 2 + RETROGRESSION_WEIGHT * (node * node + local * local)
    return float(grad_rmse + step_rmse + penalty)


@kernel
def minimise(
    data: NDArray[np.float64], start: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Minimise `objective` by L-BFGS-B from a start within bounds; return the parameters, shape (7,), and the value."""
    n = start.size
    x = start.copy()
    gradient = np.empty(n)
    new_gradient = np.empty(n)
    value = objective(x, data, gradient)
    steps = np.empty((MEMORY, n))
    changes = np.empty((MEMORY, n))
    count = 0
    theta = 1.0
    iteration = 0
    if projected_gradient_norm(x, gradient, lower, upper) <= GRADIENT_TOLERANCE:
        return x, value
    while iteration < MAX_ITERATIONS:
        memory, definite = remember(steps[:count], changes[:count], theta)
        target = x
        if definite:
            cauchy = cauchy_point(x, gradient, lower, upper, memory)
            target = cauchy.point
            if count:
                target, definite = subspace_minimum(x, gradient, lower, upper, memory, cauchy)
        direction = difference(target, x)
        slope0 = dot(gradient, direction)
        has_step = False
        # Otherwise the direction does not lead down, because the approximate Hessian is wrong.
        if definite and slope0 < 0.0:
            # The first step, along the gradient, has no scale and is not longer than 1.
            longest = 1.0 if iteration == 0 else longest_step(x, direction, lower, upper)
            step = min(1.0 / np.sqrt(dot(direction, direction)), longest) if iteration == 0 else 1.0
            has_step, trial, new_value, slope, step = _along(
                x, target, direction, value, slope0, step, longest, data, new_gradient
            )
        if not has_step:
            # Along the gradient itself there is no better point: this is the minimum, as far as rounding allows.
            if not count:
                return x, value
            # Discard the approximate Hessian, and begin again from here.
            count = 0
            theta = 1.0
            continue
        iteration += 1
        decrease = value - new_value
        scale = max(abs(value), abs(new_value), 1.0)
        change = difference(new_gradient, gradient)
        curvature = (slope - slope0) * step
        moved = np.zeros(n)
        add_scaled(moved, step, direction)
        x = trial
        value = new_value
        gradient, new_gradient = new_gradient, gradient  # the next search overwrites the old one
        if projected_gradient_norm(x, gradient, lower, upper) <= GRADIENT_TOLERANCE:
            return x, value
        if decrease <= LEAST_DECREASE * scale:
            return x, value
        # A step along which the slope does not rise would make the approximate Hessian indefinite.
        if curvature > EPSILON * -slope0 * step:
            _push(steps, count, moved)
            _push(changes, count, change)
            count = min(count + 1, MEMORY)
            theta = dot(change, change) / curvature
    return x, value


@helper
def _along(  # type: ignore[no-untyped-def]
    x, target, direction, value0, slope0, step, longest, data, gradient
):
    """Search along a direction; return whether a step was found, the new point, its value and slope, and the step.

    Write the gradient at the new point to `gradient`, shape (7,).
    """
    bracket = line_search.start(value0, slope0, step, longest)
    trial = x
    value = value0
    slope = slope0
    for _ in range(MAX_TRIALS):
        # The sum of `x` and the direction would differ from the target by rounding, and could leave the bounds.
        if step == 1.0:
            trial = target.copy()
        else:
            trial = x.copy()
            add_scaled(trial, step, direction)
        value = objective(trial, data, gradient)
        slope = dot(gradient, direction)
        if line_search.is_over(bracket, step, value, slope, value0, slope0, longest):
            return True, trial, value, slope, step
        bracket, step = line_search.advance(bracket, step, value, slope, value0, slope0, longest)
    return False, trial, value, slope, step


@helper
def _push(rows: NDArray[np.float64], count: int, row: NDArray[np.float64]) -> None:
    """Add a row after the first `count`. If the cache is full, remove the oldest entry."""
    if count == rows.shape[0]:
        for k in range(count - 1):
            for i in range(rows.shape[1]):
                rows[k, i] = rows[k + 1, i]
        count -= 1
    for i in range(rows.shape[1]):
        rows[count, i] = row[i]


MOST_GPUS = 64  # GPUs of the largest measured job


def known_throughput(profile: Profile, gpus_per_node: int) -> ThroughputParams:
    """Fit θ_sys to the step times of an application on packed placements, as if earlier jobs had observed them.

    Atomic batch sizes double from the smallest to the largest, and numbers of GPUs from 1 to the largest of a job, at
    most 64. Points outside the profile are left out.
    """
    application = profile.application
    most_gpus = min(application.most_replicas(application.max_batch_size), MOST_GPUS)
    observations = []
    for gpus in _doubling(1, most_gpus):
        placement = packed(gpus, gpus_per_node)
        for atomic in _doubling(application.min_atomic_batch_size, application.max_atomic_batch_size):
            try:
                step = profile.step_time(placement, atomic)
            except ProfileRangeError:
                continue
            observations.append((len(placement), gpus, atomic, step.step_time - step.sync_time, step.step_time))
    return fit_throughput(*zip(*observations, strict=True))


def _doubling(first: int, last: int) -> list[int]:
    """Return first, 2·first, 4·first, …, and the last.

    >>> _doubling(3, 20)
    [3, 6, 12, 20]
    """
    values = [first]
    while values[-1] * 2 < last:
        values.append(values[-1] * 2)
    if values[-1] < last:
        values.append(last)
    return values
