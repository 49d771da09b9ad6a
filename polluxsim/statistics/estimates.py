"""Means and changes with confidence intervals, from few independent runs.

A unit is one independent observation. All runs of a workload have its jobs, so runs with other seeds say little about
other workloads. Where seeds change nothing, the runs of a workload are copies. So the units are workloads if there are
enough of them, and otherwise runs whose seeds change something (`independent`). The trap is to count copies as units,
which makes an interval too narrow.

A change is over pairs of runs with the same workload and seed under two settings, because workloads differ more than
settings do. It is a ratio of geometric means, in which twice and half the time cancel out. A ratio with one 0 has no
logarithm, and `Measured.zeros` counts these pairs. The change is then unknown, unless the values of a setting are 0 in
all pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from math import inf, isnan, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

Array = NDArray[np.float64]

LEVEL = 0.95  # of the confidence intervals

LEAST_UNITS = 3  # fewer units have no interval
LEAST_FOR_VERDICT = 6  # fewer units support no verdict, and their intervals assume normal values
ROUNDING = 1e-12  # log ratios below this size, and spreads below this share of the mean, are rounding errors


class Estimate(NamedTuple):
    """A value with its 95 % interval, in one unit."""

    value: float
    low: float | None  # end of the interval; None without an interval, for example with too few units
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Return half the interval's width, or None without an interval."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2

    def as_change(self) -> Estimate:
        """Return a ratio minus 1."""
        change = self.value - 1.0
        if self.low is None or self.high is None:
            return Estimate(change, None, None)
        return Estimate(change, self.low - 1.0, self.high - 1.0)


def mean(values: ArrayLike, least: float = 0.0, most: float = inf) -> Estimate:
    """Return the mean of independent units, shape (units,), with an interval inside the possible values.

    `least` and `most` are the smallest and largest possible values, for example 0 and 1 for shares. A `least` above a
    value counts as −∞. If it is 0, `interval_of_positive_mean` gives the interval. Raise ValueError without values.

    >>> value, low, high = mean([0.25, 1.0, 1.0], most=1.0)
    >>> value, round(low, 3), high
    (0.75, 0.086, 1.0)
    """
    values = _units(values)
    value = float(values.mean())
    if len(values) < LEAST_UNITS:
        return Estimate(value, None, None)
    # A metric of the user can have values that its declaration rules out. The limit would cut them off.
    lower_limit = -inf if values.min() < least else least
    if lower_limit == 0:
        low, high = interval_of_positive_mean(values)
    else:
        low, high = interval_of_mean(values)
    return Estimate(value, max(float(low), lower_limit), min(float(high), most))


def ratio_of_means(values: ArrayLike, baseline: ArrayLike) -> Estimate:
    """Return mean(values) / mean(baseline) of pairs of non-negative values, shape (units,), with its interval.

    Published tables state this ratio. Its interval is that of the mean of the linearised ratios. If the baseline is 0,
    the ratio is infinite, or 1 if the values are 0 too, without an interval. Raise ValueError if the shapes differ.

    >>> ratio_of_means([2, 4, 6], [1, 2, 3])
    Estimate(value=2.0, low=2.0, high=2.0)
    """
    values, baseline = _pairs(values, baseline)
    if not baseline.any():
        ratio_to_0 = inf if values.any() else 1.0
        return Estimate(ratio_to_0, None, None)
    ratio = float(values.mean() / baseline.mean())
    linearised = ratio + (values - ratio * baseline) / baseline.mean()
    return mean(linearised)._replace(value=ratio)


def log_ratios(values: ArrayLike, baseline: ArrayLike) -> Array:
    """Return the logarithms of the ratios of pairs, shape (units,).

    Equal values have the ratio 1, also if both are 0. The logarithm is -inf or inf if only the value or only the
    baseline is 0, and nan if the signs differ or both are negative. Raise ValueError if the shapes differ.

    >>> log_ratios([1.0, 0.0, 0.0, 2.0], [1.0, 0.0, 5.0, 0.0])
    array([  0.,   0., -inf,  inf])
    """
    values, baseline = _pairs(values, baseline)
    # The logarithms of 0 and of negative values are the documented -inf and nan, and need no warning.
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(values == baseline, 0.0, np.log(values) - np.log(baseline))
    return np.where(np.abs(logs) < ROUNDING, 0.0, logs)


def ratio_of_geometric_means(logs: ArrayLike) -> Estimate:
    """Return the ratio of the geometric means of pairs from their log ratios, shape (units,), with its interval.

    The ratio is nan without an interval if a log ratio is not finite: a geometric mean with one 0 is 0 whatever the
    other values are. But if all log ratios are -inf, every value is 0 and so is the ratio.

    >>> ratio_of_geometric_means(log_ratios([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]))
    Estimate(value=2.0, low=2.0, high=2.0)
    """
    logs = _units(logs)
    if (logs == -inf).all():
        if len(logs) < LEAST_UNITS:
            return Estimate(0.0, None, None)
        return Estimate(0.0, 0.0, 0.0)
    if not np.isfinite(logs).all():
        return Estimate(nan, None, None)
    value, low, high = mean(logs, -inf)
    with np.errstate(over="ignore"):  # the end of a wide interval can be larger than any float, and is then infinite
        ratio = float(np.exp(value))
        if low is None or high is None:
            return Estimate(ratio, None, None)
        return Estimate(ratio, float(np.exp(low)), float(np.exp(high)))


def interval_of_mean(values: ArrayLike) -> tuple[Array, Array]:
    """Return the ends of the 95 % intervals of the means of samples, shape (..., units) to two of shape (...).

    With less than six units this is Student's interval, which assumes normal values. From six units on it also contains
    the interval by Hall's transformation of the t statistic, which corrects for the skewness of the sample.

    Source: Hall, "On the Removal of Skewness by Transformation" (Journal of the Royal Statistical Society B, 1992).
    `benchmarks/interval_coverage.py` prints how often the intervals contain the true mean.

    >>> low, high = interval_of_mean([1.0, 2.0, 3.0])
    >>> round(float(low), 3), round(float(high), 3)
    (-0.484, 4.484)
    """
    values = np.asarray(values, dtype=float)
    units = values.shape[-1]
    mean = values.mean(axis=-1)
    deviations = values - mean[..., None]
    spread = np.sqrt((deviations**2).sum(axis=-1) / (units - 1))
    # Equal values can have a spread of rounding errors, whose skewness would be noise.
    spread = np.where(spread <= ROUNDING * np.abs(mean), 0.0, spread)
    quantile = float(stdtrit(units - 1, (1 + LEVEL) / 2))
    lowest = np.full_like(mean, -quantile)
    highest = np.full_like(mean, quantile)
    if units >= LEAST_FOR_VERDICT:
        with np.errstate(invalid="ignore", divide="ignore"):
            skewness = np.nan_to_num((deviations**3).mean(axis=-1) / spread**3, posinf=0.0, neginf=0.0)
        lowest = np.minimum(lowest, _hall_quantile(-quantile, skewness, units))
        highest = np.maximum(highest, _hall_quantile(quantile, skewness, units))
    error = spread / np.sqrt(units)
    return mean - highest * error, mean - lowest * error


def interval_of_positive_mean(values: ArrayLike) -> tuple[Array, Array]:
    """Return the ends of `interval_of_mean` for values that are not negative, so that no end is negative.

    If the lower end would not be positive, it is the lower end for the geometric mean, which is at most the mean, or 0
    if a value of the sample is 0.
    """
    values = np.asarray(values, dtype=float)
    low, high = interval_of_mean(values)
    are_positive = (values > 0).all(axis=-1)
    # The logarithm of 1 stands in for values of 0, whose result is not used.
    logs = np.log(np.where(values > 0, values, 1.0))
    with np.errstate(over="ignore"):
        low_of_geometric_mean = np.exp(interval_of_mean(logs)[0])
    positive_low = np.where(are_positive, low_of_geometric_mean, 0.0)
    return np.where(low > 0, low, positive_low), np.maximum(high, 0.0)


def _hall_quantile(quantile: float, skewness: Array, units: int) -> Array:
    """Return the quantile of the t statistic of samples with some skewness, from Student's quantile."""
    slope = skewness / np.sqrt(units)
    # Without skewness, the formula is 0 / 0, and its limit is Student's quantile.
    is_skewed = np.abs(slope) > ROUNDING
    divisor = np.where(is_skewed, slope, 1.0)
    transformed = 3 / divisor * (np.cbrt(1 + divisor * (quantile - divisor / 6)) - 1)
    return np.where(is_skewed, transformed, quantile)


def independent(values: Array, workloads: Sequence[object], *, seeds_matter: bool = False) -> Array:
    """Return the independent units among runs: means over the first axis of the values, shape (units, ...).

    The units are workloads if there are at least six of them or if seeds change nothing. Otherwise each run is a unit,
    and an interval says little about workloads that were not run. Values have shape (runs, ...), workloads (runs,).
    With `seeds_matter`, seeds change other values of these runs, although they may leave these values equal.
    """
    keys = np.array([str(workload) for workload in workloads])
    by_workload = [values[keys == key] for key in dict.fromkeys(keys.tolist())]
    if not by_workload:
        return values
    # If the runs of a workload are equal, they are copies of one run, and not independent.
    seeds_matter = seeds_matter or any((runs != runs[0]).any() for runs in by_workload)
    if len(by_workload) < LEAST_FOR_VERDICT and seeds_matter:
        return values
    return np.stack([runs.mean(axis=0) for runs in by_workload])


def _units(values: ArrayLike) -> Array:
    """Return values as an array. Raise ValueError unless it has shape (units,) with at least one unit."""
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"the values have shape {values.shape}, but an estimate needs one axis and at least one value")
    return values


def _pairs(values: ArrayLike, baseline: ArrayLike) -> tuple[Array, Array]:
    """Return values as two arrays. Raise ValueError unless both have the shape (units,) with at least one unit."""
    values = np.asarray(values, dtype=float)
    baseline = np.asarray(baseline, dtype=float)
    if values.ndim != 1 or values.shape != baseline.shape or not len(values):
        shapes = f"values of shape {values.shape} and a baseline of shape {baseline.shape}"
        raise ValueError(f"{shapes} are no pairs: both need the same shape (units,) with at least one unit")
    return values, baseline


Quantity = tuple[str, str, str]  # metric, arm, and the arm it is compared with, which is "" for a mean


class Sample(NamedTuple):
    """One measured value. Samples of two arms with equal workload and seed are a pair."""

    metric: str
    arm: str  # setting that is compared, like a policy
    value: float  # in the unit of the metric
    workload: str = ""
    seed: int = 0


class Measured(NamedTuple):
    """A mean or a change, and the independent units that it is computed from."""

    estimate: Estimate  # the value of a change is nan if `zeros` is not 0, unless all values are 0
    num_units: int  # number of units
    units: str  # "workloads", or "seeds" if there are too few workloads
    zeros: int = 0  # number of pairs of runs without a finite log ratio
    num_runs: int = 0  # number of runs, or of pairs of runs, that the units are means of

    @property
    def is_known(self) -> bool:
        """Return whether there is a value, which may be ∞."""
        return not isnan(self.estimate.value)

    @property
    def is_judged(self) -> bool:
        """Return whether there are enough units for a verdict, and an interval."""
        return self.num_units >= LEAST_FOR_VERDICT and self.estimate.low is not None

    @property
    def is_real(self) -> bool:
        """Return whether there are enough units for a verdict on a change, and its interval excludes 0."""
        _, low, high = self.estimate
        return self.is_judged and low is not None and high is not None and not low <= 0 <= high


class _Runs(NamedTuple):
    """Runs that several arms have in common, in order of workload and seed."""

    values: Array  # shape (runs, arms)
    workloads: list[str]  # of each run


class Samples:
    """Measured values by metric and arm.

    `random_arms` are arms whose seeds change some metric of their runs. Their runs are independent also for a metric
    that is equal in all of them.
    """

    def __init__(self, samples: Iterable[Sample], random_arms: Collection[str] = ()) -> None:
        self._random_arms = random_arms
        values = defaultdict[tuple[str, str], dict[tuple[str, int], float]](dict)
        for sample in samples:
            values[sample.metric, sample.arm][sample.workload, sample.seed] = sample.value
        self._values = dict(values)

    def total(self, metric: str, arm: str) -> int:
        """Return the sum of a count over all runs, or 0 if nothing was measured."""
        return int(sum(self._values.get((metric, arm), {}).values()))

    def mean(self, metric: str, arm: str, least: float = 0.0, most: float = inf) -> Measured | None:
        """Return the mean of a metric with values from `least` to `most`, or None if nothing was measured.

        It is ∞ without an interval if a value is not finite.
        """
        runs = self._runs(metric, arm)
        if runs is None:
            return None
        is_random = arm in self._random_arms
        units = independent(runs.values, runs.workloads, seeds_matter=is_random)[:, 0]
        estimate = Estimate(inf, None, None)
        if np.isfinite(units).all():
            estimate = mean(units, least, most)
        return _measured(estimate, units, runs)

    def change(self, metric: str, arm: str, baseline: str) -> Measured | None:
        """Return the ratio of the geometric means of an arm and a baseline over pairs, minus 1; None without pairs.

        The change is nan if a value is 0 in only one run of a pair, unless all values of the arm are 0.
        """
        runs = self._runs(metric, arm, baseline)
        if runs is None:
            return None
        values = runs.values
        logs = log_ratios(values[:, 0], values[:, 1])
        is_random = arm in self._random_arms or baseline in self._random_arms
        # The values decide with the ratios whether seeds matter: they can differ where all ratios are equal.
        columns = np.column_stack([values, logs])
        with np.errstate(invalid="ignore"):  # -inf and inf in one workload have no mean
            units = independent(columns, runs.workloads, seeds_matter=is_random)[:, 2]
        zeros = int((~np.isfinite(logs)).sum())
        is_mixed = zeros and not (logs == -inf).all()
        if is_mixed:
            # A unit would hide the mixture, because the mean of -inf and a number is -inf.
            ratio = ratio_of_geometric_means(logs)
        else:
            ratio = ratio_of_geometric_means(units)
        return _measured(ratio.as_change(), units, runs)._replace(zeros=zeros)

    def measured(self, quantity: Quantity) -> Measured | None:
        """Return a quantity of a published table: a mean, or the ratio of two means minus 1.

        The interval serves a verdict, for which fewer than six units have no interval. Return None if nothing was
        measured.
        """
        metric, arm, baseline = quantity
        if baseline:
            measured = self._change_of_means(metric, arm, baseline)
        else:
            measured = self.mean(metric, arm)
        if measured is None or measured.num_units >= LEAST_FOR_VERDICT:
            return measured
        return measured._replace(estimate=Estimate(measured.estimate.value, None, None))

    def _change_of_means(self, metric: str, arm: str, baseline: str) -> Measured | None:
        """Return the ratio of the means of an arm and a baseline over pairs, minus 1; None without pairs.

        It is ∞ without an interval if a value is not finite.
        """
        runs = self._runs(metric, arm, baseline)
        if runs is None:
            return None
        units = independent(runs.values, runs.workloads)
        if not np.isfinite(units).all():
            return _measured(Estimate(inf, None, None), units, runs)
        return _measured(ratio_of_means(units[:, 0], units[:, 1]).as_change(), units, runs)

    def _runs(self, metric: str, *arms: str) -> _Runs | None:
        """Return the values of the runs that all arms have in common, a column for each arm, or None without any."""
        values_by_arm = [self._values.get((metric, arm), {}) for arm in arms]
        common = set.intersection(*map(set, values_by_arm))
        if not common:
            return None
        rows = []
        workloads = []
        for workload, seed in sorted(common):
            rows.append([values[workload, seed] for values in values_by_arm])
            workloads.append(workload)
        return _Runs(np.array(rows, dtype=float), workloads)


def _measured(estimate: Estimate, units: np.ndarray, runs: _Runs) -> Measured:
    """Return an estimate with the number and the kind of its units, which are means of `runs`."""
    kind = "workloads" if len(units) == len(set(runs.workloads)) else "seeds"
    return Measured(estimate, len(units), kind, num_runs=len(runs.workloads))
