"""Training and checkpoints in turn: the formulas against going through them one by one."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.engine.progress import CheckpointCycle

# Quarters of a second add up exactly.
quarters = st.integers(1, 400).map(lambda number: number / 4)
rhythms = st.builds(
    lambda interval, cost, share: CheckpointCycle(
        interval, cost, -cost + share * (interval + cost) if interval < inf else cost
    ),
    quarters | st.just(inf),
    quarters,
    st.integers(1, 16).map(lambda number: number / 16),
)


def gone_through(rhythm: CheckpointCycle, passed: float) -> tuple[float, float | None, float, float]:
    """Return training, training at the last finished checkpoint, training since then, and time in checkpoints."""
    time, due, trained, last, paused = 0.0, rhythm.due, 0.0, None, 0.0
    while True:
        step = min(max(due, 0.0), passed - time)
        time, trained, due = time + step, trained + step, due - step
        if due > 0 or time >= passed:
            return trained, last, (rhythm.since + trained if last is None else trained - last), paused
        step = min(rhythm.cost + min(due, 0.0), passed - time)
        paused, time = paused + step, time + step
        if step < rhythm.cost + min(due, 0.0):
            return trained, last, (rhythm.since + trained if last is None else trained - last), paused
        due, last = rhythm.interval, trained


@given(rhythms, st.integers(0, 4000).map(lambda number: number / 4))
def test_the_formulas_are_those_of_going_through_it(rhythm: CheckpointCycle, passed: float) -> None:
    trained, last, since, paused = gone_through(rhythm, passed)
    assert rhythm.without(100.0, 100.0 + passed) == pytest.approx(100.0 + trained)
    assert rhythm.last_end(passed) == (None if last is None else pytest.approx(last))
    after = rhythm.after(passed, 0.0)
    assert (after.since, after.paused) == (pytest.approx(since), pytest.approx(paused))


@given(
    rhythms, st.integers(0, 2000).map(lambda number: number / 4), st.integers(0, 2000).map(lambda number: number / 4)
)
def test_two_steps_are_as_one(rhythm: CheckpointCycle, first: float, second: float) -> None:
    step = rhythm.after(first, 0.0)
    whole, parts = rhythm.after(first + second, 0.0), step.after(second, 0.0)
    assert parts == pytest.approx(whole)
    assert rhythm.without(0.0, first) + step.without(0.0, second) == pytest.approx(rhythm.without(0.0, first + second))


@given(rhythms, st.integers(0, 4000).map(lambda number: number / 4))
def test_a_milestone_is_reached_when_so_much_is_trained(rhythm: CheckpointCycle, trained: float) -> None:
    time = rhythm.delayed((50.0 + trained, False), 50.0)[0]
    assert rhythm.without(50.0, time) == pytest.approx(50.0 + trained)
    if trained:
        assert rhythm.without(50.0, time - 0.125) < 50.0 + trained
