"""The view of the cluster: times of rounds."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.common.durations import first_round
from polluxsim.policies.contract.view import ClusterView


def view(interval: float) -> ClusterView:
    return ClusterView(interval, (4,), (), round_interval=interval)


@given(st.floats(0.01, 1e4), st.integers(1, 100_000))
def test_the_time_of_a_round_is_its_own_round(interval: float, number: int) -> None:
    assert view(interval).round_at(number * interval) == number * interval


@given(st.floats(0.01, 1e4), st.floats(1e-3, 1e8))
def test_it_is_the_first_round_that_is_not_earlier(interval: float, time: float) -> None:
    found = view(interval).round_at(time)
    assert found == first_round(time, interval) * interval
    assert found >= time
    number = round(found / interval)
    assert number == 1 or (number - 1) * interval < time


def test_with_fractional_intervals_rounding_skips_no_round() -> None:
    assert view(0.71).round_at(52 * 0.71) == 52 * 0.71
    intervals = [0.71, 0.3, 0.1, 1.1, 7.7, 59.9]
    assert [
        number for each in intervals for number in range(1, 2000) if view(each).round_at(number * each) != number * each
    ] == []


@pytest.mark.parametrize("interval", [0.0, 60.0])
def test_never_is_never(interval: float) -> None:
    assert view(interval).round_at(inf) == inf
    assert view(0.0).round_at(61.5) == 61.5
