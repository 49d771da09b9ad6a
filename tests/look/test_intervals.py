"""Intervals contain the true value as often as they should, scale with their values, and have possible ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interval_coverage import LOG_RATIOS, VALUES, coverage, main, relative_width

from polluxsim.statistics.estimates import (
    LEAST_FOR_VERDICT,
    LEAST_UNITS,
    Estimate,
    interval_of_mean,
    interval_of_positive_mean,
    log_ratios,
    mean,
    ratio_of_geometric_means,
    ratio_of_means,
)

POSITIVE = st.floats(0.01, 100)


def ends(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


@pytest.mark.parametrize("units", [3, 4, 5, 6, 8, 12, 30])
def test_intervals_of_normal_log_ratios_contain_the_mean_95_times_of_100(units: int) -> None:
    """Of 20,000 intervals the share has a standard error of 0.15 %."""
    assert 0.93 <= coverage(*LOG_RATIOS["normal"], units, 20_000) <= 0.97


@pytest.mark.parametrize("units", [6, 7, 8, 10, 15])
@pytest.mark.parametrize("name", list(LOG_RATIOS))
def test_from_six_pairs_on_intervals_of_others_contain_the_mean_90_times_of_100(name: str, units: int) -> None:
    assert coverage(*LOG_RATIOS[name], units, 20_000) >= 0.90


def test_intervals_of_six_normal_log_ratios_are_at_most_half_as_wide_again_as_student_s() -> None:
    assert 1 <= relative_width(6, 20_000) <= 1.5


@pytest.mark.parametrize("name", ["normal, deviation 0.2", "lognormal, 0.3", "lognormal, 0.6"])
def test_intervals_of_means_of_positive_values_contain_the_mean_90_times_of_100(name: str) -> None:
    assert coverage(*VALUES[name], 6, 20_000, interval_of_positive_mean) >= 0.90


@given(st.lists(POSITIVE, min_size=LEAST_UNITS, max_size=12))
@settings(max_examples=25)
def test_the_ends_of_the_mean_of_positive_values_are_positive(values: list[float]) -> None:
    low, high = ends(mean(values))
    assert 0 < low <= high


def test_the_script_prints_a_line_for_each_distribution(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["interval_coverage.py", "--samples", "10"])
    main()
    printed = capsys.readouterr().out
    assert [name for name in (*LOG_RATIOS, *VALUES) if name not in printed] == []


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=LEAST_UNITS, max_size=12))
@settings(max_examples=25)
def test_a_ratio_lies_in_its_interval_scales_and_turns_over(pairs: list[tuple[float, float]]) -> None:
    values, baseline = np.array(pairs).T
    one, three = (ratio_of_geometric_means(log_ratios(factor * values, baseline)) for factor in (1, 3))
    inverse = ratio_of_geometric_means(log_ratios(baseline, values))
    low, high = ends(one)
    assert 0 <= low <= one.value * (1 + 1e-9)
    assert high >= one.value * (1 - 1e-9)
    assert three.value == pytest.approx(3 * one.value)
    assert ends(three) == (pytest.approx(3 * low, rel=1e-4), pytest.approx(3 * high, rel=1e-4))
    assert ends(inverse) == (pytest.approx(1 / high, rel=1e-4), pytest.approx(1 / low, rel=1e-4))


@given(st.lists(st.floats(0, 1), min_size=LEAST_UNITS, max_size=12))
@settings(max_examples=25)
def test_ends_of_the_interval_of_a_share_are_shares(values: list[float]) -> None:
    estimate = mean(values, 0.0, 1.0)
    low, high = ends(estimate)
    assert 0 <= low <= estimate.value + 1e-9
    assert estimate.value - 1e-9 <= high <= 1


def test_three_values_have_student_s_interval_and_six_are_corrected_for_skewness() -> None:
    assert ends(mean([1.0, 2.0, 3.0], -np.inf)) == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), rel=1e-5)
    low, high = interval_of_mean([0.0, 0.0, 0.0, 0.1, 0.2, 3.0])
    assert high - 0.55 > 0.55 - low  # the tail of large values is on the right


def test_equal_ratios_have_no_width_however_different_the_pairs_are() -> None:
    baseline = np.array([1.0, 10.0, 100.0, 1000.0, 2.0, 3.0])
    assert ratio_of_geometric_means(log_ratios(0.5 * baseline, baseline)) == (
        pytest.approx(0.5), pytest.approx(0.5), pytest.approx(0.5)
    )  # fmt: skip
    assert ratio_of_means(0.5 * baseline, baseline) == (0.5, 0.5, 0.5)
    rounded = log_ratios(baseline * (1 + 1e-15), baseline)
    assert ratio_of_geometric_means(rounded) == (1.0, 1.0, 1.0)


def test_a_ratio_with_zeros_is_known_only_if_both_or_all_values_are_zero() -> None:
    both = log_ratios([0.0, 0.0, 2.0, 4.0], [0.0, 0.0, 2.0, 4.0])
    assert ratio_of_geometric_means(both) == (1.0, 1.0, 1.0)
    all_values = log_ratios([0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    assert ratio_of_geometric_means(all_values) == (0.0, 0.0, 0.0)
    for values, baseline in (
        ([0.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        ([1.0, 2.0, 3.0], [0.0] * 3),
        ([0.0, 1.0], [1.0, 0.0]),
    ):
        estimate = ratio_of_geometric_means(log_ratios(values, baseline))
        assert np.isnan(estimate.value)
        assert estimate[1:] == (None, None)


def test_values_below_the_least_possible_value_have_an_interval_around_their_mean() -> None:
    assert mean([-2.0, -1.0, -3.0]) == mean([-2.0, -1.0, -3.0], -np.inf)


def test_a_ratio_to_a_baseline_of_zeros_has_no_interval() -> None:
    assert ratio_of_means([1.0, 2.0, 3.0], [0.0] * 3) == (np.inf, None, None)
    assert ratio_of_means([0.0] * 3, [0.0] * 3) == (1.0, None, None)


def test_fewer_than_three_units_have_no_interval_and_none_are_an_error() -> None:
    assert mean([1.0, 5.0]) == (3.0, None, None)
    assert mean([1.0, 5.0, 3.0]).low is not None
    assert LEAST_FOR_VERDICT == 6
    with pytest.raises(ValueError, match="at least one unit"):
        ratio_of_means([], [])
    with pytest.raises(ValueError, match="at least one unit"):
        ratio_of_means([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least one value"):
        mean([])
