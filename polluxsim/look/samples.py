"""Measured values by metric and arm, and what follows from pairs of them: means and changes with their intervals."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from polluxsim.look.bootstrap import Estimate, independent, mean, ratio_of_means

if TYPE_CHECKING:
    from collections.abc import Iterable

Quantity = tuple[str, str, str]
"""Metric, arm, and the arm it is compared with ("" for none)."""


class Sample(NamedTuple):
    """One measured value in base units [s, or 1]: of what, on what, and with what workload and seed.

    Metric and arm are named as in the rows of the published values. Samples of two arms with equal workload and seed
    are a pair.
    """

    metric: str
    arm: str
    value: float
    workload: str = ""
    seed: int = 0


class Measured(NamedTuple):
    """Our value of a quantity and its interval [s, or 1], and the independent units behind it.

    `units` says what these are: workloads, or seeds where the workloads are too few.
    """

    estimate: Estimate
    num_units: int
    units: str


class Samples:
    """Measured values by metric and arm."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        values = defaultdict[tuple[str, str], dict[tuple[str, int], float]](dict)
        for sample in samples:
            values[sample.metric, sample.arm][sample.workload, sample.seed] = sample.value
        self._series = {key: pd.Series(found) for key, found in values.items()}

    def total(self, metric: str, arm: str) -> int:
        """Return the sum over all units, 0 where nothing was measured."""
        return int(self._series[metric, arm].sum()) if (metric, arm) in self._series else 0

    def measured(self, quantity: Quantity) -> Measured | None:
        """Return our value of a quantity; a change is counted from 0. None if it was not measured."""
        metric, arm, against = quantity
        values, baseline = self._series.get((metric, arm)), self._series.get((metric, against))
        if values is None or (against and baseline is None):
            return None
        pairs = pd.concat([values, values if baseline is None else baseline], axis=1, join="inner", keys=("a", "b"))
        pairs = pairs.sort_index()
        workloads = pairs.index.get_level_values(0).tolist()
        units = independent(pairs.to_numpy(dtype=float), workloads)
        if not len(units):
            return None
        kind = "workloads" if len(units) == len(set(workloads)) else "seeds"
        return Measured(_estimate(units, is_change=bool(against)), len(units), kind)


def _estimate(units: np.ndarray, *, is_change: bool) -> Estimate:
    """Return the estimate of the first column's mean, or of its change against the second's."""
    if not np.isfinite(units).all():
        return Estimate(float("inf"), None, None)
    # Drawn by a generator of its own, so that an estimate does not depend on what else was asked.
    rng = np.random.default_rng(0)
    if not is_change:
        return mean(units[:, 0], rng)
    value, *ends = ratio_of_means(units[:, 0], units[:, 1], rng)
    low, high = (None if end is None else end - 1 for end in ends)
    return Estimate(value - 1, low, high)
