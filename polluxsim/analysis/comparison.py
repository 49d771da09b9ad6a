"""Ours beside what was published: estimates from paired samples, and a verdict for every published number."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from polluxsim.analysis.bootstrap import Estimate, independent, mean, ratio_of_means
from polluxsim.analysis.published import UNITS, Kind, Tolerance, Verdict, difference, judge, judge_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polluxsim.analysis.published import Published

Quantity = tuple[str, str, str]
"""Metric, arm, and the arm it is compared with ("" for none)."""


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


@dataclass(frozen=True)
class Finding:
    """One published number and ours.

    Parameters
    ----------
    published
        The published number.
    ours
        Our estimate [s, or 1], None where nothing was measured.
    num_units
        Independent units behind it.
    verdict
        How the two stand to each other.
    """

    published: Published
    ours: Estimate | None
    num_units: int
    verdict: Verdict

    @property
    def off(self) -> float | None:
        """Return the relative difference of ours from the published value."""
        if self.ours is None:
            return None
        return difference(self.ours.value, self.published.in_base_units, is_change=bool(self.published.against))


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

    def estimate(self, quantity: Quantity) -> tuple[Estimate | None, int]:
        """Return an estimate of a quantity and the number of units behind it; a change is counted from 0."""
        metric, arm, against = quantity
        values, baseline = self._series.get((metric, arm)), self._series.get((metric, against))
        if values is None or (against and baseline is None):
            return None, 0
        pairs = pd.concat([values, values if baseline is None else baseline], axis=1, join="inner", keys=("a", "b"))
        pairs = pairs.sort_index()
        units = independent(pairs.to_numpy(dtype=float), pairs.index.get_level_values(0).tolist())
        if not len(units):
            return None, 0
        # Drawn by a generator of its own, so that an estimate does not depend on what else was asked.
        rng = np.random.default_rng(0)
        if not np.isfinite(units).all():
            return Estimate(float("inf"), None, None), len(units)
        if not against:
            return mean(units[:, 0], rng), len(units)
        ratio = ratio_of_means(units[:, 0], units[:, 1], rng)
        ends = (None if end is None else end - 1 for end in ratio[1:])
        return Estimate(ratio.value - 1, *ends), len(units)


def compare(samples: Samples, published: Sequence[Published], *, must_match: bool) -> list[Finding]:
    """Hold measured values against published ones.

    Parameters
    ----------
    samples
        What was measured.
    published
        What was published.
    must_match
        Whether the measured data were used, so that values have to match and not only signs and orders.
    """
    estimates = {row.quantity: samples.estimate(row.quantity) for row in published}
    findings = []
    for row in published:
        ours, num_units = estimates[row.quantity]
        tolerance = row.tolerance if must_match else row.embedded
        verdict = _verdict(row, ours, tolerance, _peers(row, published, estimates))
        findings.append(Finding(row, ours, num_units, verdict))
    return findings


def _verdict(
    row: Published, ours: Estimate | None, tolerance: Tolerance, peers: Mapping[str, tuple[float, float]]
) -> Verdict:
    if ours is None:
        return Verdict("not run", None)
    if not isfinite(ours.value):
        return Verdict("jobs cut off", False)
    if tolerance.kind is Kind.ORDER:
        first, second = ({arm: pair[index] for arm, pair in peers.items()} for index in (0, 1))
        return judge_order(row.arm, first, second)
    if tolerance.kind is Kind.INTERVAL:
        return _inside(ours, row.in_base_units)
    return judge(ours.value, row.in_base_units, tolerance, is_change=bool(row.against))


def _inside(ours: Estimate, published: float) -> Verdict:
    if ours.low is None or ours.high is None:
        return Verdict("no interval", None)
    inside = ours.low <= published <= ours.high
    return Verdict("in our interval" if inside else "outside our interval", inside)


def _peers(
    row: Published, published: Sequence[Published], estimates: Mapping[Quantity, tuple[Estimate | None, int]]
) -> dict[str, tuple[float, float]]:
    """Return ours and the published value of every arm whose order with the row's counts."""
    peers = {}
    for other in published:
        ours, _ = estimates[other.quantity]
        like = (other.metric, other.by_simulator, other.against) == (row.metric, row.by_simulator, row.against)
        if like and ours is not None and {other.tolerance.kind, other.embedded.kind} & {Kind.ORDER}:
            peers[other.arm] = (ours.value, other.in_base_units)
    return peers


def relative_half_width(finding: Finding) -> float | None:
    """Return half the interval of a difference over the difference itself.

    It is infinite where there are too few units for an interval, and None for what is no difference, was not measured
    or was cut off.
    """
    ours = finding.ours
    if not finding.published.against or ours is None or not isfinite(ours.value):
        return None
    if ours.half_width is None:
        return float("inf")
    return 0.0 if ours.half_width == 0 else ours.half_width / abs(ours.value) if ours.value else float("inf")


def to_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return findings as a table, a row for each, values in the unit they were published in."""
    return pd.DataFrame([_row(finding) for finding in findings])


def _row(finding: Finding) -> dict[str, object]:
    row, ours = finding.published, finding.ours or Estimate(float("nan"), None, None)
    scale = UNITS[row.unit]
    ends = (None if end is None else end / scale for end in ours)
    return {
        "metric": row.metric,
        "arm": row.arm,
        "against": row.against,
        **dict(zip(("ours", "low", "high"), ends, strict=True)),
        "units": finding.num_units,
        "published": row.value,
        "unit": row.unit,
        "difference": finding.off,
        "tolerance": str(row.tolerance),
        "verdict": finding.verdict.words,
        "passed": finding.verdict.passed,
        "source": row.source,
    }
