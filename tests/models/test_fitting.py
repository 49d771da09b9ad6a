from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench_fit import observation_sets
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import approx_fprime
from scipy.optimize import minimize as scipy_minimize

from polluxsim.models.fitting import TINY, explored_bounds, fit_throughput, minimise, objective, observation_array
from polluxsim.models.throughput import ThroughputParams

TRUE = ThroughputParams(0.05, 0.002, 0.2, 0.01, 0.03, 0.002, 1.6)


def observe(params: ThroughputParams, ways: list[tuple[int, int, int]]) -> NDArray[np.float64]:
    """Return noiseless observations of (nodes, GPUs, m)."""
    grad = [params.alpha_grad + params.beta_grad * m for *_, m in ways]
    steps = []
    for (nodes, replicas, _), time in zip(ways, grad, strict=True):
        alpha, beta = (params.alpha_local, params.beta_local) if nodes == 1 else (params.alpha_node, params.beta_node)
        sync = TINY if replicas == 1 else alpha + beta * max(replicas - 2, TINY)
        steps.append((time**params.gamma + sync**params.gamma) ** (1 / params.gamma))
    nodes, replicas, atomic = (list(column) for column in zip(*ways, strict=True))
    return observation_array(nodes, replicas, atomic, grad, steps)


ways_strategy = st.lists(
    st.integers(1, 32).flatmap(
        lambda replicas: st.tuples(st.integers(1, min(replicas, 8)), st.just(replicas), st.integers(8, 512))
    ),
    min_size=1,
    max_size=30,
    unique=True,
)
vectors = st.tuples(*[st.floats(0.01, 1.0)] * 6, st.floats(1.01, 9.0)).map(np.array)


def value_and_gradient(x: NDArray[np.float64], data: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    gradient = np.empty(7)
    return objective(np.asarray(x, dtype=float), data, gradient), gradient.copy()


@given(ways_strategy, vectors)
def test_the_gradient_is_the_derivative(ways: list[tuple[int, int, int]], x: NDArray[np.float64]) -> None:
    data = observe(TRUE, ways)
    _, gradient = value_and_gradient(x, data)
    numeric = approx_fprime(x, lambda x: value_and_gradient(x, data)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3)


@given(ways_strategy)
@settings(max_examples=25)
def test_the_fit_stays_within_bounds_and_improves_on_its_start(ways: list[tuple[int, int, int]]) -> None:
    data = observe(TRUE, ways)
    start, lower, upper = explored_bounds(data)
    x, value = minimise(data, start, lower, upper)
    assert (x >= lower - 1e-15).all()
    assert (x <= upper + 1e-15).all()
    assert value <= value_and_gradient(start, data)[0]
    assert value == value_and_gradient(x, data)[0]


def test_a_fit_to_many_observations_predicts_them() -> None:
    ways = [(n, k, m) for n, k in [(1, 1), (1, 2), (1, 4), (2, 8), (4, 16)] for m in (16, 32, 64, 128)]
    data = observe(TRUE, ways)
    start, lower, upper = explored_bounds(data)
    _, value = minimise(data, start, lower, upper)
    assert value < 0.05  # the regularising terms alone are 0.0005 at the truth


def test_what_was_not_observed_is_held_at_optimistic_values() -> None:
    alone = fit_throughput([1], [1], [64], [0.2], [0.2])
    assert alone.alpha_grad == pytest.approx(0.1)  # half of the time: only one atomic batch size was seen
    assert alone.alpha_local == alone.beta_local == TINY
    assert (alone.alpha_node, alone.beta_node) == (1.1 * TINY, 1.1 * TINY)
    pair = fit_throughput([1, 1], [1, 2], [64, 32], [0.2, 0.12], [0.2, 0.2])
    assert pair.beta_local == TINY  # two GPUs say nothing of a third
    assert pair.alpha_node == pytest.approx(1.1 * pair.alpha_local)
    several = fit_throughput([1, 2], [1, 2], [64, 32], [0.2, 0.12], [0.2, 0.3])
    assert several.alpha_local == TINY


def compare_with_scipy(problems: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return our objective over SciPy's for each set of observations, from the same start and within like bounds."""
    ratios = []
    for data in problems:
        start, lower, upper = explored_bounds(data)
        _, ours = minimise(data, start, lower, upper)
        bounds = list(zip(lower, upper, strict=True))
        theirs = scipy_minimize(value_and_gradient, start, args=(data,), jac=True, method="L-BFGS-B", bounds=bounds).fun
        ratios.append(ours / theirs)
    return np.array(ratios)


def test_fits_are_as_good_as_scipys() -> None:
    """The objective has kinks and plateaus, on which two roundings part; neither may be the better one on average."""
    rng = np.random.default_rng(0)
    problems = []
    for _ in range(300):
        replicas = rng.integers(1, 33, rng.integers(1, 25))
        ways = [(int(rng.integers(1, min(k, 8) + 1)), int(k), int(rng.integers(8, 512))) for k in replicas]
        data = observe(TRUE, ways)
        data[3:] += 0.05 * rng.standard_normal(data[3:].shape)
        problems.append(data)
    ratios = compare_with_scipy(problems)
    assert np.median(ratios) == pytest.approx(1, abs=1e-7)
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1, abs=0.02)
    assert (ratios > 1 + 1e-4).mean() < 0.15


def test_fits_of_a_recorded_run_are_as_good_as_scipys(osdi21: Path) -> None:
    """A fifth of the 1,428 sets.

    SciPy itself ends higher on 5 % of all sets if the data move by one unit in the last place.
    """
    sets = observation_sets(osdi21)[::5]
    assert len(sets) > 200
    ratios = compare_with_scipy(sets)
    assert np.median(ratios) == pytest.approx(1, abs=1e-6)
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1, abs=0.02)
    assert (ratios > 1 + 1e-4).mean() < 0.08
