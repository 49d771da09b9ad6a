"""How sure a mean, or a paired comparison of two means, is: studentised bootstrap intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
NUM_RESAMPLES = 4000
LEAST_UNITS = 6
"""With fewer units intervals are often many times too wide."""

LEAST_SPREAD = 1e-9
"""Standard errors below this share of the sample's own are rounding."""


class Estimate(NamedTuple):
    """A value and the ends of its 95 % interval, None where there are too few units for one."""

    value: float
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Return half the interval's width, None where there is no interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def mean(values: ArrayLike, rng: np.random.Generator) -> Estimate:
    """Return the mean of independent units, shape (units,), and its interval."""
    values = np.asarray(values, dtype=float)
    return ratio_of_means(values, np.ones_like(values), rng)


def ratio_of_means(values: ArrayLike, baseline: ArrayLike, rng: np.random.Generator) -> Estimate:
    """Return mean(values) / mean(baseline) of units that were measured twice, and its interval.

    Both have shape (units,), in the same order; the baseline's mean is not 0. The interval is the point itself where
    the ratio is the same for every unit.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 12.5, with the ratio's
    standard error by its linearisation. Percentile intervals cover too seldom with as few units as there are workloads.

    >>> ratio_of_means([2, 4, 6, 8, 10, 12], [1, 2, 3, 4, 5, 6], np.random.default_rng(0))
    Estimate(value=2.0, low=2.0, high=2.0)
    """
    values, baseline = np.asarray(values, dtype=float), np.asarray(baseline, dtype=float)
    if values.ndim != 1 or values.shape != baseline.shape or not len(values):
        raise ValueError(f"values of shape {values.shape}, baseline {baseline.shape}; allowed are two equal (units,)")
    ratio, error = _ratio(values[None], baseline[None])
    value = float(ratio[0])
    if len(values) < LEAST_UNITS:
        return Estimate(value, None, None)
    drawn = rng.integers(len(values), size=(NUM_RESAMPLES, len(values)))
    ratios, errors = _ratio(values[drawn], baseline[drawn])
    # A resample that repeats units of one ratio only has no spread to be studentised by.
    spread = errors > LEAST_SPREAD * max(float(error[0]), LEAST_SPREAD * abs(value))
    if not spread.any():
        return Estimate(value, value, value)
    studentised = (ratios[spread] - value) / errors[spread]
    below, above = np.quantile(studentised, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, value - float(above * error[0]), value - float(below * error[0]))


def independent(values: NDArray[np.float64], workloads: Sequence[object]) -> NDArray[np.float64]:
    """Return the independent units among runs, by the mean over their first axis, shape (units, ...).

    Runs of one workload with several seeds are alike, so that workloads are the units where there are enough of them.
    Else every run is one, and the interval says little of other workloads than these. Seeds that change nothing are
    no units: then there are as many as there are workloads. Values have shape (runs, ...), workloads (runs,).
    """
    keys = np.array([str(workload) for workload in workloads])
    of_each = [values[keys == key] for key in dict.fromkeys(keys.tolist())]
    seeds_matter = any((runs != runs[0]).any() for runs in of_each)
    if len(of_each) < LEAST_UNITS and seeds_matter:
        return values
    return np.stack([runs.mean(axis=0) for runs in of_each]) if of_each else values


def _ratio(values: NDArray[np.float64], baseline: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return the ratio of means and its standard error for each sample, shapes (samples, units) to (samples,)."""
    means = baseline.mean(axis=1)
    ratios = values.mean(axis=1) / means
    residuals = (values - ratios[:, None] * baseline) / means[:, None]
    units = values.shape[1]
    return ratios, np.sqrt((residuals**2).sum(axis=1) / max(units - 1, 1) / units)
