from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.hardware.placements import BatchChoice
from polluxsim.models.efficiency import GradientStatistics, efficiency
from polluxsim.models.goodput import GoodputModel, GoodputTable
from polluxsim.models.profile import Application
from polluxsim.models.throughput import ThroughputParams

APPLICATIONS = [
    Application("cifar10", 128, 4096, 32, 1024, 100),
    Application("yolov3", 8, 512, 4, 8, 50),
    Application("bert", 12, 384, 4, 12, 2),
]
times = st.floats(1e-6, 1.0)
params_strategy = st.builds(ThroughputParams, times, times, times, times, times, times, st.floats(1.0, 10.0))
statistics_strategy = st.builds(GradientStatistics, st.floats(0, 100), st.floats(1e-3, 1e4))


def iteration_time(params: ThroughputParams, nodes: int, replicas: int, atomic: float, steps: float) -> float:
    """The formulas of Pollux (OSDI '21), §3.2, as they are written there."""
    grad = params.alpha_grad + params.beta_grad * atomic
    extra = max(replicas - 2, 1e-8)
    if replicas == 1:
        sync = 1e-8
    elif nodes == 1:
        sync = params.alpha_local + params.beta_local * extra
    else:
        sync = params.alpha_node + params.beta_node * extra
    gamma = params.gamma
    return steps * grad + (grad**gamma + sync**gamma) ** (1 / gamma)


def best_by_hand(model: GoodputModel, nodes: int, replicas: int) -> tuple[float, int, int]:
    """The choice of the batch size, spelt out from the definition."""
    limits = model.application
    smallest = max(limits.init_batch_size, limits.min_atomic_batch_size * replicas)
    best = (-1.0, 0, 0)
    for candidate in np.geomspace(smallest, limits.max_batch_size, 50):
        local = candidate / replicas
        steps = ceil(local / limits.max_atomic_batch_size - 1e-8) - 1
        if replicas == 1 and local > limits.init_batch_size + 1e-8:
            steps = max(steps, 1)
        atomic = ceil(local / (steps + 1) - 1e-8)
        if not limits.min_atomic_batch_size <= atomic <= limits.max_atomic_batch_size:
            continue
        batch_size = replicas * atomic * (steps + 1)
        throughput = batch_size / iteration_time(model.params, nodes, replicas, atomic, steps)
        goodput = throughput * efficiency(model.statistics, batch_size / limits.init_batch_size)
        if goodput > best[0] * (1 + 1e-12):
            best = (goodput, atomic, steps)
    return best


@given(st.sampled_from(APPLICATIONS), params_strategy, statistics_strategy, st.integers(1, 64), st.booleans())
def test_the_compiled_choice_is_the_one_by_hand(
    application: Application, params: ThroughputParams, statistics: GradientStatistics, replicas: int, several: bool
) -> None:
    nodes = 2 if several and replicas > 1 else 1
    model = GoodputModel(application, params, statistics)
    goodput, choice = model.best(nodes, replicas)
    expected, *by_hand = best_by_hand(model, nodes, replicas)
    assert goodput == pytest.approx(expected, rel=1e-9)
    batch_size = choice.batch_size(replicas)
    assert batch_size <= application.max_batch_size
    if replicas * by_hand[0] * (by_hand[1] + 1) <= application.max_batch_size:
        # Equal goodputs may be told apart by rounding alone; the value that is reached decides.
        again = batch_size / iteration_time(params, nodes, replicas, *choice)
        assert again * efficiency(statistics, batch_size / application.init_batch_size) == pytest.approx(expected)


@given(st.sampled_from(APPLICATIONS), params_strategy, statistics_strategy)
def test_the_table_is_the_choices(
    application: Application, params: ThroughputParams, statistics: GradientStatistics
) -> None:
    model = GoodputModel(application, params, statistics)
    table = GoodputTable(application, params, 12).best(statistics)
    assert table.shape == (2, 13)
    for nodes in (1, 2):
        for replicas in range(nodes, 13):
            assert table[nodes - 1, replicas] == model.best(nodes, replicas)[0]
    assert (table[:, 0] == 0).all()


def test_an_application_with_a_fixed_batch_size_keeps_it() -> None:
    application = Application("ncf", 256, 32768, 32, 32768, 10, fixed_batch_size=32768, max_replicas=1)
    params = ThroughputParams(0.01, 1e-6, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)
    model = GoodputModel(application, params, GradientStatistics(1e9, 1.0))  # the smallest batch would be best
    goodput, choice = model.best(1, 1)
    assert choice.batch_size(1) == 32768
    assert GoodputTable(application, params, 4).best(model.statistics)[0, 1] == goodput


def test_limits_without_any_candidate_give_the_smallest_batch_and_no_goodput() -> None:
    application = Application("odd", 128, 130, 100, 110, 1)  # one pass has too many examples, and two have too few
    params = ThroughputParams(0.01, 1e-6, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)
    assert GoodputModel(application, params, GradientStatistics(1.0, 1.0)).best(1, 1) == (0.0, BatchChoice(64, 1))
