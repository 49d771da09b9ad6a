"""Intervals of means and percentiles over the jobs of one log, from resampled blocks of days."""

from __future__ import annotations

from math import ceil, exp, log

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from polluxsim.common.durations import DAY
from polluxsim.common.phrases import number_of
from polluxsim.statistics.estimates import LEVEL, ROUNDING, Estimate

Array = NDArray[np.float64]

LEAST_DAYS = 4  # a log with fewer days has no interval
BLOCKS = 4  # smallest number of blocks in a log
LONGEST_BLOCK = 14  # [days]; a longer block would leave fewer blocks than a long log can have
RESAMPLES = 400  # number of resampled logs
FLOOR = 300.0  # times below this one count as this one in the spread, so that waits of seconds do not widen it [s]
SEED = 1  # of the resampling, so that equal logs have equal intervals


class Blocks:
    """Blocks of days of a log, resampled with replacement.

    Jobs of one day and of the days around it wait for the same reasons, so single jobs are no independent units. A
    resampled log consists of blocks of consecutive days, drawn at random from the log as if its end were followed by
    its beginning. A block is a quarter of the log, and at most two weeks. Jobs belong to the day of their submission.

    The interval of a value is the value divided and multiplied by exp(t·s): s is the deviation of the logarithm over
    the resampled logs, and t is the quantile of Student's t with one degree of freedom less than there are blocks.

    `submissions` has shape (jobs,) [s]. Raise ValueError without jobs.

    Source: Politis and Romano, "A circular block-resampling procedure for stationary data" (1992). We chose the length
    of the blocks; `benchmarks/credible_answers.py` prints how often the intervals contain the value of a longer log.
    """

    def __init__(self, submissions: ArrayLike) -> None:
        times = np.asarray(submissions, dtype=float)
        if not times.size:
            raise ValueError("a log without jobs has no days to resample")
        days = np.floor(times / DAY).astype(int)
        self._day = days - days.min()
        self.num_days = int(self._day.max()) + 1
        self.length = min(ceil(self.num_days / BLOCKS), LONGEST_BLOCK)  # [days]
        # How often each resampled log has each day, shape (resamples, days)
        self._counts = np.ones((0, self.num_days), dtype=np.int64)
        if self.has_interval:
            self._counts = self._resampled()

    @property
    def has_interval(self) -> bool:
        """Return whether the log is long enough for an interval."""
        return self.num_days >= LEAST_DAYS

    def why_no_interval(self) -> str:
        """Return the reason why the log has no interval; "" if it has one."""
        if self.has_interval:
            return ""
        days = number_of(self.num_days, "day")
        return f"the log is too short for an interval: it has jobs of {days}, and an interval needs {LEAST_DAYS}"

    def _resampled(self) -> NDArray[np.int64]:
        """Return how often each resampled log has each day, shape (resamples, days)."""
        rng = np.random.default_rng(SEED)
        blocks_per_log = ceil(self.num_days / self.length)
        first_days = rng.integers(self.num_days, size=(RESAMPLES, blocks_per_log, 1))
        days = (first_days + np.arange(self.length)) % self.num_days
        # The last block is cut, so that each resampled log has as many days as the log.
        days = days.reshape(RESAMPLES, -1)[:, : self.num_days]
        counts = np.zeros((RESAMPLES, self.num_days), dtype=np.int64)
        # A resampled log can have a day several times. `counts[...] += 1` would count it once.
        np.add.at(counts, (np.arange(RESAMPLES)[:, None], days), 1)
        return counts

    def of_resamples(self, values: ArrayLike, statistic: str) -> Array:
        """Return a statistic of the values of the jobs, shape (jobs,), in each resampled log, shape (resamples,).

        `statistic` is "mean", or a percentile like "p95". Resampled logs without jobs are left out.
        """
        values = np.asarray(values, dtype=float)
        if statistic == "mean":
            totals = self._counts @ np.bincount(self._day, values, minlength=self.num_days)
            num_jobs = self._counts @ np.bincount(self._day, minlength=self.num_days)
            has_jobs = num_jobs > 0
            return np.asarray(totals[has_jobs] / num_jobs[has_jobs], dtype=float)
        order = np.argsort(values, kind="stable")
        rising_values = values[order]
        days = self._day[order]
        share = int(statistic.removeprefix("p")) / 100
        percentiles = []
        # One log at a time: the counts of a million jobs in all logs at once would take 3 GB.
        for counts in self._counts:
            # Number of jobs of the resampled log up to each value
            num_up_to = np.cumsum(counts[days])
            if num_up_to[-1]:
                percentiles.append(rising_values[np.searchsorted(num_up_to, share * num_up_to[-1])])
        return np.array(percentiles, dtype=float)

    def interval(self, value: float, resampled: Array) -> Estimate:
        """Return a value [s] with its 95 % interval, from the values of the resampled logs, shape (resamples,) [s]."""
        if not self.has_interval:
            return Estimate(value, None, None)
        factor = self._factor(np.log(np.maximum(resampled, FLOOR)))
        if factor == 1.0:
            return Estimate(value, value, value)
        # The spread is that of times of at least `FLOOR`. So the upper end of a shorter time begins there.
        return Estimate(value, value / factor, max(value, FLOOR) * factor)

    def ratio(self, values: tuple[float, float], resampled: tuple[Array, Array]) -> Estimate:
        """Return the ratio of the second to the first of two paired values [s], with its 95 % interval.

        `resampled` has both values in the resampled logs, each of shape (resamples,) [s].
        """
        before, after = values
        ratio = exp(log(max(after, FLOOR)) - log(max(before, FLOOR)))
        if not self.has_interval:
            return Estimate(ratio, None, None)
        logs_before = np.log(np.maximum(resampled[0], FLOOR))
        logs_after = np.log(np.maximum(resampled[1], FLOOR))
        factor = self._factor(logs_after - logs_before)
        return Estimate(ratio, ratio / factor, ratio * factor)

    def _factor(self, logs: Array) -> float:
        """Return the factor from a value to an end of its interval, from its logarithms in the resampled logs."""
        spread = float(logs.std())
        if spread < ROUNDING:
            return 1.0
        degrees_of_freedom = max(self.num_days / self.length - 1, 1.0)
        quantile = float(stdtrit(degrees_of_freedom, (1 + LEVEL) / 2))
        return exp(quantile * spread)
