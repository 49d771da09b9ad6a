"""Intervals of `log whatif` and `size` on drawn logs; `benchmarks/credible_answers.py` has the whole draw."""

from __future__ import annotations

import pytest
from credible_answers import by_commands, by_small_simulation, covered, steady_world


@pytest.mark.slow
def test_the_commands_answer_as_the_small_simulation() -> None:
    """The late starts of the drawn log, up to 20 s, are in the waits of the small simulation only."""
    world = steady_world(27)
    ours = by_commands(world)
    theirs = by_small_simulation(world)
    assert ours is not None
    assert ours.size == theirs.size
    assert ours.ends == theirs.ends
    for mine, other in ((ours.before, theirs.before), (ours.after, theirs.after)):
        assert mine.value == pytest.approx(other.value, rel=0.1)
        assert mine.low == pytest.approx(other.low, rel=0.2)
        assert mine.high == pytest.approx(other.high, rel=0.2)


@pytest.mark.slow
def test_most_intervals_contain_the_value_of_a_longer_log() -> None:
    """With a coverage of 85 %, at least 6 of 10 are inside with a probability of 99 %."""
    results = [covered(seed, by_command=False) for seed in range(10)]
    for what in ("p95 wait before", "p95 wait after", "ratio", "size"):
        assert sum(result[what] for result in results) >= 6, what
