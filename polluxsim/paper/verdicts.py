"""Compare our values with the published ones: a verdict for each published number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING

import pandas as pd

from polluxsim.look.intervals import Estimate
from polluxsim.look.samples import Measured
from polluxsim.paper.published import BOUNDS, NOT_JUDGED, UNITS, Kind, Verdict, difference, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.look.samples import Samples
    from polluxsim.paper.published import Published, Rule

EQUAL, KNOWN = "jobs at their published time", "jobs with a published time"
"""Metrics behind the rule `every job`: the jobs with equal times, and the jobs with a published time."""


@dataclass(frozen=True)
class Finding:
    """One published number and ours."""

    published: Published
    ours: Measured | None  # None where nothing was measured
    rule: Rule  # the rule of the verdict
    verdict: Verdict

    @property
    def off(self) -> float | None:
        """Return the difference from the published value; None for bounds, counts and unmeasured values."""
        if self.ours is None or self.rule.kind in {*BOUNDS, Kind.EVERY_JOB}:
            return None
        return difference(self.ours.estimate.value, self.published)


def compare(samples: Samples, published: Sequence[Published], *, must_match: bool) -> list[Finding]:
    """Judge measured values by published ones, with the rules for measured data if `must_match`."""
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
    """Return whether the times of all jobs are the published ones, over all workloads."""
    equal, known = (samples.total(metric, row.arm) for metric in (EQUAL, KNOWN))
    counted = Measured(Estimate(float(equal), None, None), known, "jobs")
    verdict = Verdict(f"{equal} of {known} equal", equal == known) if known else NOT_JUDGED
    return Finding(replace(row, value=float(known)), counted, rule, verdict)


def relative_half_width(finding: Finding) -> float | None:
    """Return half the width of a difference's interval, relative to the difference.

    It is infinite if there are too few units for an interval. It is None if the number is not a difference, was not
    measured, or if jobs were cut off.
    """
    if not finding.published.against or finding.ours is None or not isfinite(finding.ours.estimate.value):
        return None
    ours = finding.ours.estimate
    if ours.half_width is None:
        return float("inf")
    return 0.0 if ours.half_width == 0 else ours.half_width / abs(ours.value) if ours.value else float("inf")


def to_frame(findings: Sequence[Finding]) -> pd.DataFrame:
    """Return a table with one row per finding, in the published units."""
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
