from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.engine.clock import ExactTime, Milestone, TimeRule, WholeSeconds

rates = st.floats(0.01, 100.0)
works = st.floats(0.1, 1e5)
starts = st.integers(0, 1000).map(float)
rules = st.sampled_from([ExactTime(), WholeSeconds(60.0)])


def reached(rule: TimeRule, progress: float, rate: float, start: float, boundary: float) -> Milestone:
    """Return when a job that has `progress` at `start` reaches a boundary."""
    (time,) = rule.course(progress, start, [rate], [boundary])
    return time


@given(rules, works, rates, starts)
def test_a_boundary_is_reached_when_its_work_is_done(rule: TimeRule, work: float, rate: float, start: float) -> None:
    time, _ = reached(rule, 0.0, rate, start, work)
    assert time >= start
    assert time == pytest.approx(start + work / rate, abs=0.5 + 1e-6)  # half a second is what rounding may cost


@given(rules, works, rates, starts)
def test_progress_at_a_round_is_rate_times_time(rule: TimeRule, work: float, rate: float, start: float) -> None:
    boundary = (start // 60 + 3) * 60.0
    assert rule.progress_at(work, rate, start, boundary) == pytest.approx(work + rate * (boundary - start))


@given(works, rates, starts, st.integers(1, 50))
def test_stopping_at_a_round_on_the_way_changes_nothing(work: float, rate: float, start: float, rounds: int) -> None:
    """Exactly: the whole-second rule adds interval by interval in any case."""
    rule = WholeSeconds(60.0)
    whole = reached(rule, 0.0, rate, start, work)
    stop = (start // 60 + rounds) * 60.0
    if stop < whole[0]:
        assert reached(rule, rule.progress_at(0.0, rate, start, stop), rate, stop, work) == whole


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (10.4, (10.0, False)),
        (10.5, (10.0, False)),  # half to even
        (11.5, (12.0, False)),
        (60.0, (60.0, False)),
        (60.4, (60.0, True)),  # in the second interval, whose round is at 60
        (59.7, (60.0, False)),  # in the first, rounded up to its end: before that round
    ],
)
def test_whole_seconds_by_hand(work: float, expected: Milestone) -> None:
    assert reached(WholeSeconds(60.0), 0.0, 1.0, 0.0, work) == expected
