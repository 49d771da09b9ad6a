"""Measured values by metric and setting, and the means and changes with intervals that follow from them."""

from __future__ import annotations

from collections import defaultdict
from math import inf, isnan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from polluxsim.look import intervals
from polluxsim.look.intervals import LEAST_FOR_VERDICT, Estimate, independent, log_ratios

if TYPE_CHECKING:
    from collections.abc import Iterable

Quantity = tuple[str, str, str]
"""Metric, arm, and the arm it is compared with, which is "" for a mean."""


class Sample(NamedTuple):
    """One measured value in base units [s, or 1], with the workload and seed of its run.

    Metric and arm are named as in the rows of published values. Samples of two arms with equal workload and seed are
    a pair.
    """

    metric: str
    arm: str
    value: float
    workload: str = ""
    seed: int = 0


class Measured(NamedTuple):
    """A mean or a change with its interval, and the independent units that it is computed from.

    The value of a change is nan if some pairs have a value of 0 on one side only. `units` is "workloads", or "seeds" if
    there are too few workloads. `zeros` is the number of pairs of runs with a value of 0 on one side only.
    """

    estimate: Estimate
    num_units: int
    units: str
    zeros: int = 0

    @property
    def is_known(self) -> bool:
        """Return whether there is a value."""
        return not isnan(self.estimate.value)

    @property
    def is_judged(self) -> bool:
        """Return whether there are enough units for a verdict, and an interval."""
        return self.num_units >= LEAST_FOR_VERDICT and self.estimate.low is not None

    @property
    def is_real(self) -> bool:
        """Return whether a change is a difference by its interval, which needs enough units for a verdict."""
        _, low, high = self.estimate
        return self.is_judged and low is not None and high is not None and not low <= 0 <= high


class Samples:
    """Measured values by metric and arm."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        values = defaultdict[tuple[str, str], dict[tuple[str, int], float]](dict)
        for sample in samples:
            values[sample.metric, sample.arm][sample.workload, sample.seed] = sample.value
        self._series = {key: pd.Series(found) for key, found in values.items()}

    def total(self, metric: str, arm: str) -> int:
        """Return the sum over all runs, or 0 if nothing was measured."""
        return int(self._series[metric, arm].sum()) if (metric, arm) in self._series else 0

    def mean(self, metric: str, arm: str, least: float = 0.0, most: float = inf) -> Measured | None:
        """Return the mean of a metric that lies between `least` and `most`, or None if it was not measured."""
        runs = self._runs(metric, arm)
        if runs is None:
            return None
        units = independent(runs.to_numpy(dtype=float), _workloads(runs))[:, 0]
        is_finite = np.isfinite(units).all()
        return _measured(intervals.mean(units, least, most) if is_finite else Estimate(inf, None, None), units, runs)

    def change(self, metric: str, arm: str, baseline: str) -> Measured | None:
        """Return the ratio of the geometric means of an arm and a baseline over pairs of runs, minus 1.

        Returns None without pairs.
        """
        runs = self._runs(metric, arm, baseline)
        if runs is None:
            return None
        values = runs.to_numpy(dtype=float)
        logs = log_ratios(values[:, 0], values[:, 1])
        with np.errstate(invalid="ignore"):  # -inf and inf in one workload have no mean
            units = independent(np.column_stack([values, logs]), _workloads(runs))[:, 2]
        change = _measured(intervals.ratio_of_geometric_means(units).scaled(1.0, -1.0), units, runs)
        return change._replace(zeros=int((~np.isfinite(logs)).sum()))

    def measured(self, quantity: Quantity) -> Measured | None:
        """Return a quantity of a published table: a mean, or the ratio of two means minus 1.

        The interval is for a verdict, so fewer than six units have none. Returns None if nothing was measured.
        """
        metric, arm, baseline = quantity
        found = self._change_of_means(metric, arm, baseline) if baseline else self.mean(metric, arm)
        if found is None or found.num_units >= LEAST_FOR_VERDICT:
            return found
        return found._replace(estimate=Estimate(found.estimate.value, None, None))

    def _change_of_means(self, metric: str, arm: str, baseline: str) -> Measured | None:
        runs = self._runs(metric, arm, baseline)
        if runs is None:
            return None
        units = independent(runs.to_numpy(dtype=float), _workloads(runs))
        if not np.isfinite(units).all():
            return _measured(Estimate(inf, None, None), units, runs)
        return _measured(intervals.ratio_of_means(units[:, 0], units[:, 1]).scaled(1.0, -1.0), units, runs)

    def _runs(self, metric: str, *arms: str) -> pd.DataFrame | None:
        """Return the values of the runs that all arms have in common, a column for each arm, or None without any."""
        series = [self._series.get((metric, arm)) for arm in arms]
        if any(values is None for values in series):
            return None
        runs = pd.concat([values for values in series if values is not None], axis=1, join="inner", keys=arms)
        return runs.sort_index() if len(runs) else None


def _workloads(runs: pd.DataFrame) -> list[str]:
    return runs.index.get_level_values(0).tolist()


def _measured(estimate: Estimate, units: np.ndarray, runs: pd.DataFrame) -> Measured:
    kind = "workloads" if len(units) == len(set(_workloads(runs))) else "seeds"
    return Measured(estimate, len(units), kind)
