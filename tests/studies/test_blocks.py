"""Intervals from resampled days: by hand for simple logs, and their coverage of values with a known mean."""

from __future__ import annotations

import numpy as np
import pytest

from polluxsim.common.durations import DAY
from polluxsim.statistics.blocks import Blocks


def test_a_short_log_has_no_interval_and_says_so() -> None:
    blocks = Blocks([0.0, DAY, 3 * DAY - 1])
    assert not blocks.has_interval
    assert blocks.why_no_interval() == (
        "the log is too short for an interval: it has jobs of 3 days, and an interval needs 4"
    )
    resampled = blocks.of_resamples([1.0, 2.0, 3.0], "mean")
    assert blocks.interval(2.0, resampled) == (2.0, None, None)
    assert blocks.ratio((2000.0, 4000.0), (resampled, resampled)) == (pytest.approx(2.0), None, None)


def test_a_log_without_jobs_is_refused() -> None:
    with pytest.raises(ValueError, match="without jobs"):
        Blocks([])


@pytest.mark.parametrize(("days", "length"), [(4, 1), (10, 3), (28, 7), (84, 14)])
def test_a_block_is_a_quarter_of_the_log_and_at_most_two_weeks(days: int, length: int) -> None:
    blocks = Blocks(np.arange(days) * DAY)
    assert blocks.length == length
    assert blocks.why_no_interval() == ""


def test_equal_waits_have_an_interval_without_width() -> None:
    blocks = Blocks(np.arange(8) * DAY)
    same = blocks.of_resamples(np.full(8, 60.0), "p90")
    assert blocks.interval(60.0, same) == (60.0, 60.0, 60.0)
    assert blocks.ratio((60.0, 60.0), (same, same)) == (1.0, 1.0, 1.0)


def test_resampled_values_are_those_of_whole_days() -> None:
    """Two jobs a day. A block is one day, so the mean of a resampled log is a mean of four daily means."""
    blocks = Blocks(np.repeat(np.arange(4), 2) * DAY)
    means = blocks.of_resamples([0.0, 2.0, 10.0, 12.0, 20.0, 22.0, 30.0, 32.0], "mean")
    assert set(np.round((means - 1) * 4 / 10, 6)) <= set(range(13))
    assert means.min() >= 1
    assert means.max() <= 31


def test_pairs_that_move_together_have_a_narrow_ratio() -> None:
    rng = np.random.default_rng(0)
    before = 100 * rng.lognormal(6, 1, 400)
    blocks = Blocks(np.sort(rng.uniform(0, 28 * DAY, 400)))
    old, new = (blocks.of_resamples(values, "mean") for values in (before, before / 4))
    ratio = blocks.ratio((before.mean(), before.mean() / 4), (old, new))
    assert ratio.low == pytest.approx(0.25, rel=0.02)
    assert ratio.high == pytest.approx(0.25, rel=0.02)
    wait = blocks.interval(before.mean(), old)
    assert wait.high > 1.1 * wait.value > 1.2 * wait.low


def test_intervals_contain_the_true_mean_of_days_that_depend_on_each_other() -> None:
    """Daily levels follow an autoregression with coefficient 0.5; the true mean is the mean of a lognormal value."""
    inside = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        level = np.zeros(28)
        level[0] = rng.normal()
        for day in range(1, 28):
            level[day] = 0.5 * level[day - 1] + rng.normal(0, np.sqrt(0.75))
        waits = 600 * np.exp(np.repeat(level, 20))
        blocks = Blocks(np.repeat(np.arange(28), 20) * DAY)
        interval = blocks.interval(waits.mean(), blocks.of_resamples(waits, "mean"))
        inside += interval.low <= 600 * np.exp(0.5) <= interval.high
    assert 85 <= inside <= 98
