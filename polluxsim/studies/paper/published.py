"""Published numbers, the rules for judging our numbers by them, and the verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from polluxsim.common.durations import HOUR, MINUTE
from polluxsim.common.tables import Row, read_rows
from polluxsim.statistics.estimates import Estimate, Measured, Samples

COLUMNS = ("metric", "arm", "against", "value", "unit", "measured", "embedded", "workloads", "source", "note")
"""Columns of a file of published values; `Published` explains them."""

UNITS: Mapping[str, float] = {"h": HOUR, "min": MINUTE, "s": 1.0, "%": 0.01, "jobs": 1.0, "1": 1.0}
"""Factors that convert published values to seconds and shares. A change is mean / mean − 1."""

ROUNDING = 1e-9  # relative difference that counts as rounding: the order of additions and divisions [1]


class RuleKind(StrEnum):
    """The rules for judging our value by a published value."""

    EXACT = "exact"
    EVERY_JOB = "every job"
    WITHIN = "within"
    POINTS = "points"
    INTERVAL = "interval"
    ABOVE = "above"
    BELOW = "below"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    NONE = "none"


SHARES = {RuleKind.WITHIN, RuleKind.POINTS}  # kinds that files write as a number

BOUNDS = {RuleKind.ABOVE: "> ", RuleKind.BELOW: "< ", RuleKind.AT_LEAST: "≥ ", RuleKind.AT_MOST: "≤ "}
"""The kinds with a bound as published value, and the sign in front of it."""


class VerdictRule(NamedTuple):
    """The required closeness of our value."""

    kind: RuleKind
    width: float = 0.0  # largest difference, relative or (for points) absolute; 0 if the kind has none [1]

    def __str__(self) -> str:
        """Return the rule as files write it."""
        share = f"{100 * self.width:g} %"
        if self.kind is RuleKind.WITHIN:
            return share
        if self.kind is RuleKind.POINTS:
            noun = "point" if self.width == 0.01 else "points"
            return f"{100 * self.width:g} {noun}"
        if self.width:
            return f"{self.kind} or {share}"
        return self.kind.value


class Verdict(NamedTuple):
    """The result of a comparison; `passed` is None if the number is not judged."""

    words: str
    passed: bool | None


NOT_JUDGED = Verdict("–", None)  # for rules that judge nothing


@dataclass(frozen=True)
class Published:
    """One published number."""

    metric: str  # name of the measured quantity
    arm: str  # the arm of the experiment
    against: str  # the arm for comparison, "" for the value itself
    value: float  # in `unit`
    unit: str
    measured: VerdictRule  # the rule on measured data
    embedded: VerdictRule  # the rule on profile cards or generated workloads
    workloads: str  # the workloads of the mean, "" for any
    source: str  # begins with "paper", "simulator" (published runs) or "rerun" (our run of the artifact)
    note: str = ""  # explanation if the number is not met
    step: float = 0.0  # size of the last published digit, in `unit`; 0 if the value is not rounded

    @property
    def quantity(self) -> tuple[str, str, str]:
        """Return metric, arm and arm for comparison."""
        return self.metric, self.arm, self.against

    def __str__(self) -> str:
        if self.against:
            return f"{self.metric}, {self.arm} against {self.against}"
        return f"{self.metric}, {self.arm}"

    @property
    def by_simulator(self) -> bool:
        """Return whether the number comes from runs of the artifact, not from the paper's testbed or text."""
        return not self.source.startswith("paper")

    @property
    def is_rerun(self) -> bool:
        """Return whether the number comes from our own run of the artifact, which contains only the inputs."""
        return self.source.startswith("rerun")

    @property
    def in_base_units(self) -> float:
        """Return the value [s, or 1]."""
        return self.value * UNITS[self.unit]


def read_published(path: Path) -> list[Published]:
    """Read published values from CSV. Raise InvalidInputError for an invalid row."""
    return [_published(row) for row in read_rows(path, COLUMNS)]


def _published(row: Row) -> Published:
    """Return the published number of a row."""
    unit = row.text("unit")
    if unit not in UNITS:
        raise row.error("unit", ", ".join(UNITS))
    # These cells may be empty, which `row.text` refuses.
    texts = {name: str(row.values[name]).strip() for name in ("against", "workloads", "note")}
    # The digits are those of the text: 0.50 has two decimals, and its number has one.
    decimals = row.text("value").partition(".")[2]
    return Published(
        metric=row.text("metric"),
        arm=row.text("arm"),
        value=row.number("value"),
        unit=unit,
        measured=_rule(row, "measured"),
        embedded=_rule(row, "embedded"),
        source=row.text("source"),
        step=10.0 ** -len(decimals),
        **texts,
    )


def _rule(row: Row, column: str) -> VerdictRule:
    """Return the rule that a cell states, like "3 %", "2 points", "interval or 25 %" or "at most"."""
    text = row.text(column)
    points = re.fullmatch(r"(\d+(?:\.\d+)?) points?", text)
    if points:
        return VerdictRule(RuleKind.POINTS, float(points[1]) / 100)
    # The pattern also reads a share alone, which is the rule `within`.
    match = re.fullmatch(r"(interval(?: or |$))?(?:(\d+(?:\.\d+)?) ?%)?", text)
    if match:
        kind = RuleKind.INTERVAL if match[1] else RuleKind.WITHIN
        width = float(match[2] or 0) / 100
        return VerdictRule(kind, width)
    if text in {kind.value for kind in RuleKind} - SHARES:
        return VerdictRule(RuleKind(text))
    words = ", ".join(kind for kind in RuleKind if kind not in SHARES)
    raise row.error(column, f"a share like '3 %', '3 points', 'interval or 25 %', or one of {words}")


def judge(ours: Estimate, published: Published, rule: VerdictRule) -> Verdict:
    """Return the verdict on our value by a rule, except for `every job`, which needs the times of all jobs."""
    match rule.kind:
        case RuleKind.EXACT:
            return _as_exact(ours, published)
        case RuleKind.WITHIN | RuleKind.POINTS:
            return _within(ours, published, rule)
        case RuleKind.INTERVAL:
            return _in_interval(ours, published) or _within(ours, published, rule)
        case RuleKind.ABOVE | RuleKind.BELOW | RuleKind.AT_LEAST | RuleKind.AT_MOST:
            return _by_bound(ours, published, rule)
    return NOT_JUDGED


def _as_exact(ours: Estimate, published: Published) -> Verdict:
    """Return the verdict on a value that must round to the published digits."""
    bound = published.in_base_units
    half_digit = 0.5 * published.step * UNITS[published.unit]
    tolerance = max(half_digit, ROUNDING * abs(bound))
    # A value in the middle between two digits may be published as either of them.
    if abs(ours.value - bound) <= tolerance * (1 + ROUNDING):
        return Verdict("equal", True)
    return Verdict("not equal", False)


def _by_bound(ours: Estimate, published: Published, rule: VerdictRule) -> Verdict:
    """Return the verdict on a value whose published number is a bound."""
    value = ours.value
    bound = published.in_base_units
    is_at_bound = abs(value - bound) <= ROUNDING * max(abs(value), abs(bound), ROUNDING)
    if is_at_bound:  # rounding must not decide on which side the value is
        passed = rule.kind in (RuleKind.AT_LEAST, RuleKind.AT_MOST)
    elif rule.kind in (RuleKind.ABOVE, RuleKind.AT_LEAST):
        passed = value > bound
    else:
        passed = value < bound
    words = "holds" if passed else "does not hold"
    return Verdict(words, passed)


def _within(ours: Estimate, published: Published, rule: VerdictRule) -> Verdict:
    """Return the verdict on a published number by the largest difference that a rule allows.

    A rule `interval` that allows none has failed already: the number is outside our interval, or there is no interval,
    and the number is not judged.
    """
    if rule.kind is RuleKind.INTERVAL and not rule.width:
        if ours.low is None:
            return NOT_JUDGED._replace(words="no interval")
        return Verdict("outside our interval", False)
    bound = published.in_base_units
    tolerance = rule.width * abs(bound)
    if rule.kind is RuleKind.POINTS:
        tolerance = rule.width
    passed = abs(ours.value - bound) <= tolerance
    width = rule
    if rule.kind is RuleKind.INTERVAL:  # the interval has been tried before, so the sentence is about the share only
        width = VerdictRule(RuleKind.WITHIN, rule.width)
    words = "within" if passed else "outside"
    return Verdict(f"{words} {width}", passed)


def _in_interval(ours: Estimate, published: Published) -> Verdict | None:
    """Return a passing verdict if the published value lies in our interval, None otherwise.

    The interval of a change must not include 0.
    """
    if ours.low is None or ours.high is None or not ours.low <= published.in_base_units <= ours.high:
        return None
    # An interval around 0 is so wide that it would confirm any small change, in either direction.
    if published.against and ours.low <= 0 <= ours.high:
        return None
    return Verdict("in our interval", True)


def in_points(published: Published) -> bool:
    """Return whether a difference is in points: for a change, and for a share judged in points."""
    return bool(published.against) or published.measured.kind is RuleKind.POINTS


def difference(ours: float, published: Published) -> float:
    """Return the difference of our value from the published one [1]: absolute (points) or relative."""
    bound = published.in_base_units
    if in_points(published):
        return ours - bound
    if not bound:
        return float("inf")
    return ours / bound - 1


EQUAL = "jobs at their published time"
KNOWN = "jobs with a published time"
"""Metrics behind the rule `every job`: the jobs with equal times, and the jobs with a published time."""


@dataclass(frozen=True)
class PublishedFinding:
    """One published number and ours."""

    published: Published
    ours: Measured | None  # None where nothing was measured
    rule: VerdictRule  # the rule of the verdict
    verdict: Verdict

    @property
    def off(self) -> float | None:
        """Return the difference from the published value [1]; None for bounds, counts and unmeasured values."""
        if self.ours is None or self.rule.kind in {*BOUNDS, RuleKind.EVERY_JOB}:
            return None
        return difference(self.ours.estimate.value, self.published)


def compare(samples: Samples, published: Sequence[Published], *, must_match: bool) -> list[PublishedFinding]:
    """Judge measured values by published ones, by the rules for measured data if `must_match`."""
    findings = []
    for row in published:
        rule = row.measured if must_match else row.embedded
        findings.append(_finding(samples, row, rule))
    return findings


def _finding(samples: Samples, row: Published, rule: VerdictRule) -> PublishedFinding:
    """Judge one published number."""
    ours = samples.measured(row.quantity)
    if ours is None:
        return PublishedFinding(row, None, rule, Verdict("not run", None))
    # An infinite value is a mean over jobs of which one never completed.
    if not isfinite(ours.estimate.value):
        return PublishedFinding(row, ours, rule, Verdict("jobs cut off", False))
    if rule.kind is RuleKind.EVERY_JOB:
        return _of_every_job(samples, row, rule)
    return PublishedFinding(row, ours, rule, judge(ours.estimate, row, rule))


def _of_every_job(samples: Samples, row: Published, rule: VerdictRule) -> PublishedFinding:
    """Return whether the times of all jobs equal the published ones, over all workloads."""
    num_equal = samples.total(EQUAL, row.arm)
    num_known = samples.total(KNOWN, row.arm)
    counted = Measured(Estimate(float(num_equal), None, None), num_known, "jobs")
    verdict = NOT_JUDGED
    if num_known:
        verdict = Verdict(f"{num_equal} of {num_known} equal", num_equal == num_known)
    # The published number is the number of jobs with a published time in the workloads that ran.
    return PublishedFinding(replace(row, value=float(num_known)), counted, rule, verdict)


def relative_half_width(finding: PublishedFinding) -> float | None:
    """Return half the width of a difference's interval, relative to the difference.

    It is infinite if there are too few units for an interval. It is None if the number is not a difference, if it was
    not measured, or if jobs were cut off.
    """
    if not finding.published.against or finding.ours is None or not isfinite(finding.ours.estimate.value):
        return None
    ours = finding.ours.estimate
    if ours.half_width is None:
        return float("inf")
    if ours.half_width == 0:
        return 0.0
    if ours.value == 0:
        return float("inf")  # no number of seeds makes an interval narrow beside a difference of 0
    return ours.half_width / abs(ours.value)


def findings_frame(findings: Sequence[PublishedFinding]) -> pd.DataFrame:
    """Return a table with one row per finding, in the published units."""
    return pd.DataFrame([_row(finding) for finding in findings])


def _in_unit(value: float | None, unit: str) -> float | None:
    """Return a value [s, or 1] in a published unit; None without a value."""
    if value is None:
        return None
    return value / UNITS[unit]


def _row(finding: PublishedFinding) -> dict[str, object]:
    """Return the row of a finding, with values in the published unit."""
    row = finding.published
    estimate = Estimate(float("nan"), None, None)
    units = ""
    if finding.ours is not None:
        estimate = finding.ours.estimate
        units = f"{finding.ours.num_units} {finding.ours.units}"
    return {
        "metric": row.metric,
        "arm": row.arm,
        "against": row.against,
        "ours": _in_unit(estimate.value, row.unit),
        "low": _in_unit(estimate.low, row.unit),
        "high": _in_unit(estimate.high, row.unit),
        "units": units,
        "published": row.value,
        "unit": row.unit,
        "difference": finding.off,
        "rule": str(finding.rule),
        "verdict": finding.verdict.words,
        "passed": finding.verdict.passed,
        "source": row.source,
        "note": row.note,
    }
