"""The bootstrap's laws: it covers as often as it says, follows its scale, and cannot tell pairs from their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polluxsim.look.bootstrap import LEAST_UNITS, Estimate, mean, ratio_of_means


def ends(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def intervals(num_units: int, samples: int = 300) -> np.ndarray:
    """Return whether each interval of many synthetic comparisons covers the true ratio 0.5."""
    rng = np.random.default_rng(7)
    covered = []
    for _ in range(samples):
        sizes = np.exp(rng.normal(0, 0.3, num_units))
        values = 0.5 * sizes * np.exp(rng.normal(-0.005, 0.1, num_units))
        estimate = ratio_of_means(values, sizes, rng)
        low, high = ends(estimate)
        covered.append(low <= 0.5 <= high)
    return np.array(covered)


@pytest.mark.parametrize("num_units", [6, 8, 20])
def test_intervals_cover_the_truth_as_often_as_they_say(num_units: int) -> None:
    """Of 300 intervals at 95 %, 285 ± 11 (3 standard errors) cover; of 6 units, percentile intervals cover 270."""
    assert 0.91 <= intervals(num_units).mean() <= 0.99


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=LEAST_UNITS, max_size=12))
@settings(max_examples=50)
def test_an_interval_holds_its_estimate_and_scales_with_it(pairs: list[tuple[float, float]]) -> None:
    values, baseline = np.array(pairs).T
    one = ratio_of_means(values, baseline, np.random.default_rng(1))
    three = ratio_of_means(3 * values, baseline, np.random.default_rng(1))
    (low, high), (low_3, high_3) = ends(one), ends(three)
    assert low <= one.value * (1 + 1e-6)
    assert high >= one.value * (1 - 1e-6)
    assert three.value == pytest.approx(3 * one.value)
    assert (low_3, high_3) == (pytest.approx(3 * low, rel=1e-4), pytest.approx(3 * high, rel=1e-4))


def test_pairs_of_equal_ratio_leave_no_doubt_however_different_they_are() -> None:
    baseline = np.array([1.0, 10.0, 100.0, 1000.0, 2.0, 3.0])
    estimate = ratio_of_means(0.5 * baseline, baseline, np.random.default_rng(0))
    assert estimate == (0.5, 0.5, 0.5)
    assert mean(baseline, np.random.default_rng(0)).half_width > 100  # type: ignore[operator]


def test_the_same_generator_gives_the_same_interval() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
    assert mean(values, np.random.default_rng(3)) == mean(values, np.random.default_rng(3))


def test_few_units_have_no_interval_and_none_are_an_error() -> None:
    assert mean([1.0, 2.0, 6.0, 1.0, 5.0], np.random.default_rng(0)) == (3.0, None, None)
    with pytest.raises(ValueError, match="two equal"):
        ratio_of_means([], [], np.random.default_rng(0))
    with pytest.raises(ValueError, match="two equal"):
        ratio_of_means([1.0, 2.0], [1.0], np.random.default_rng(0))
