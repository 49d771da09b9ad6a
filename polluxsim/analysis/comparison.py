"""Ours beside what was published: estimates from paired samples, and a verdict for every published number."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from polluxsim.analysis.bootstrap import Estimate, independent, mean, ratio_of_means
from polluxsim.analysis.published import BOUNDS, NOT_JUDGED, UNITS, Kind, Verdict, difference, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polluxsim.analysis.published import Published, Rule

Quantity = tuple[str, str, str]
"""Metric, arm, and the arm it is compared with ("" for none)."""

EQUAL, KNOWN = "jobs at their published time", "jobs with a published time"
"""Metrics that `every job` is judged by: how many jobs are equal, and of how many a time was published."""


class Sample(NamedTuple):
    """One measured value.

    Attributes
    ----------
    metric, arm
        What was measured on what, as the rows of the published values name it.
    value
        In base units [s, or 1].
    workload, seed
        What it was measured with; samples of two arms with equal ones are a pair.
    """

    metric: str
    arm: str
    value: float
    workload: str = ""
    seed: int = 0


class Measured(NamedTuple):
    """Our value of a quantity.

    Attributes
    ----------
    estimate
        Value and interval [s, or 1].
    num_units
        Independent units behind it.
    units
        What these are: workloads, or seeds where the workloads are too few.
    """

    estimate: Estimate
    num_units: int
    units: str


@dataclass(frozen=True)
class Finding:
    """One published number and ours.

    Parameters
    ----------
    published
        The published number.
    ours
        Our value, None where nothing was measured.
    rule
        What it was judged by.
    verdict
        How the two stand to each other.
    """

    published: Published
    ours: Measured | None
    rule: Rule
    verdict: Verdict

    @property
    def off(self) -> float | None:
        """Return how far ours is from the published value; None where that is a bound or a count, or ours misses."""
        if self.ours is None or self.rule.kind in {*BOUNDS, Kind.EVERY_JOB}:
            return None
        return difference(self.ours.estimate.value, self.published)


class Samples:
    """Measured values by metric and arm.

    Parameters
    ----------
    samples
        In any order.
    """

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


def compare(samples: Samples, published: Sequence[Published], *, must_match: bool) -> list[Finding]:
    """Hold measured values against published ones.

    Parameters
    ----------
    samples
        What was measured.
    published
        What was published.
    must_match
        Whether the measured data were used, so that each row's rule for these holds.
    """
    return [_finding(samples, row, row.measured if must_match else row.embedded) for row in published]


def _finding(samples: Samples, row: Published, rule: Rule) -> Finding:
    ours = samples.measured(row.quantity)
    if ours is None:
        return Finding(row, None, rule, Verdict("not run", None))
    if not isfinite(ours.estimate.value):
        return Finding(row, ours, rule, Verdict("jobs cut off", False))
    if rule.kind is Kind.EVERY_JOB:
        return _of_every_job(samples, row, rule)
    return Finding(row, ours, rule, judge(ours.estimate, row, rule))


def _of_every_job(samples: Samples, row: Published, rule: Rule) -> Finding:
    """Return whether all jobs with a published time have it, by their numbers over all workloads."""
    equal, known = (samples.total(metric, row.arm) for metric in (EQUAL, KNOWN))
    counted = Measured(Estimate(float(equal), None, None), known, "jobs")
    verdict = Verdict(f"{equal} of {known} equal", equal == known) if known else NOT_JUDGED
    return Finding(replace(row, value=float(known)), counted, rule, verdict)


def relative_half_width(finding: Finding) -> float | None:
    """Return half the interval of a difference over the difference itself.

    It is infinite where there are too few units for an interval, and None for what is no difference, was not measured
    or was cut off.
    """
    if not finding.published.against or finding.ours is None or not isfinite(finding.ours.estimate.value):
        return None
    ours = finding.ours.estimate
    if ours.half_width is None:
        return float("inf")
    return 0.0 if ours.half_width == 0 else ours.half_width / abs(ours.value) if ours.value else float("inf")


def to_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as a table, a row for each, values in the unit they were published in."""
    return pd.DataFrame([_row(finding) for finding in findings])


def _row(finding: Finding) -> dict[str, object]:
    row, ours = finding.published, finding.ours
    estimate = ours.estimate if ours else Estimate(float("nan"), None, None)
    ends = (None if end is None else end / UNITS[row.unit] for end in estimate)
    return {
        "metric": row.metric,
        "arm": row.arm,
        "against": row.against,
        **dict(zip(("ours", "low", "high"), ends, strict=True)),
        "units": f"{ours.num_units} {ours.units}" if ours else "",
        "published": row.value,
        "unit": row.unit,
        "difference": finding.off,
        "rule": str(finding.rule),
        "verdict": finding.verdict.words,
        "passed": finding.verdict.passed,
        "source": row.source,
        "note": row.note,
    }
