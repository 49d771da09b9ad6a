"""Published values beside a table or figure, and the rule by which ours are judged: read from CSV."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.durations import HOUR, MINUTE
from polluxsim.tables import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from polluxsim.look.bootstrap import Estimate
    from polluxsim.tables import Row

COLUMNS = ("metric", "arm", "against", "value", "unit", "measured", "embedded", "workloads", "source", "note")

UNITS: Mapping[str, float] = {"h": HOUR, "min": MINUTE, "s": 1.0, "%": 0.01, "jobs": 1.0, "1": 1.0}
"""What a published value is multiplied with: ours are in seconds and shares. A change is mean/mean − 1."""

ROUNDING = 1e-9
"""Sums of whole seconds that were divided in another order [share]."""


class Kind(StrEnum):
    """The ways in which our value can be held against a published one."""

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


SHARES = {Kind.WITHIN, Kind.POINTS}
"""Kinds that are written as a number."""

BOUNDS = {Kind.ABOVE: "> ", Kind.BELOW: "< ", Kind.AT_LEAST: "≥ ", Kind.AT_MOST: "≤ "}
"""Kinds for which the published value is a bound, and the sign that says so."""


class Rule(NamedTuple):
    """How near our value has to be."""

    kind: Kind
    # largest difference: a share of the published value, in points the share itself; 0 where the kind has none [1]
    width: float = 0.0

    def __str__(self) -> str:
        share = f"{100 * self.width:g} %"
        if self.kind is Kind.WITHIN:
            return share
        if self.kind is Kind.POINTS:
            return f"{100 * self.width:g} points"
        return f"{self.kind} or {share}" if self.width else self.kind.value


class Verdict(NamedTuple):
    """What the comparison says; `passed` is None where nothing was asked."""

    words: str
    passed: bool | None


NOT_JUDGED = Verdict("–", None)


@dataclass(frozen=True)
class Published:
    """One published number."""

    metric: str  # what was measured, as experiments name it
    arm: str  # on what: an arm of the experiment
    against: str  # the arm that it is compared with, "" for the value itself
    value: float  # in the unit it was published in
    unit: str
    measured: Rule  # on the measured data
    embedded: Rule  # on profile cards or generated workloads
    workloads: str  # the workloads it is a mean over, "" for any
    # who published it: "paper", "simulator" for the published runs, or "rerun" for reruns of the artifact, and where
    source: str
    note: str = ""  # what there is to say where it is not met
    step: float = 0.0  # the last digit that was published, in its unit; 0 if the value is not rounded

    @property
    def quantity(self) -> tuple[str, str, str]:
        """Return what the number is of."""
        return self.metric, self.arm, self.against

    def __str__(self) -> str:
        return f"{self.metric}, {self.arm}" + (f" against {self.against}" if self.against else "")

    @property
    def by_simulator(self) -> bool:
        """Return whether it comes from runs of the artifact, and not from the paper's testbed or text."""
        return not self.source.startswith("paper")

    @property
    def is_rerun(self) -> bool:
        """Return whether it comes from running the artifact again, which has inputs only for these."""
        return self.source.startswith("rerun")

    @property
    def in_base_units(self) -> float:
        """Return the value as ours are counted [s, or 1]."""
        return self.value * UNITS[self.unit]


def read_published(path: Path) -> list[Published]:
    """Read published values from CSV."""
    return [_published(row) for row in read_rows(path, COLUMNS)]


def _published(row: Row) -> Published:
    unit = row.text("unit")
    if unit not in UNITS:
        raise row.error("unit", ", ".join(UNITS))
    texts = {name: str(row.values[name]).strip() for name in ("against", "workloads", "note")}
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


def _rule(row: Row, column: str) -> Rule:
    text = row.text(column)
    if points := re.fullmatch(r"(\d+(?:\.\d+)?) points", text):
        return Rule(Kind.POINTS, float(points[1]) / 100)
    found = re.fullmatch(r"(interval(?: or |$))?(?:(\d+(?:\.\d+)?) ?%)?", text)
    if found:
        width = float(found[2] or 0) / 100
        return Rule(Kind.INTERVAL if found[1] else Kind.WITHIN, width)
    if text in {kind.value for kind in Kind} - SHARES:
        return Rule(Kind(text))
    words = ", ".join(kind for kind in Kind if kind not in SHARES)
    raise row.error(column, f"a share like '3 %', '3 points', 'interval or 25 %', or one of {words}")


def judge(ours: Estimate, published: Published, rule: Rule) -> Verdict:
    """Return how our value stands to a published one by a rule; `every job` is judged by who has counted the jobs."""
    value, bound = ours.value, published.in_base_units
    match rule.kind:
        case Kind.EXACT:
            room = max(0.5 * published.step * UNITS[published.unit], ROUNDING * abs(bound))
            equal = abs(value - bound) <= room * (1 + ROUNDING)
            return Verdict("equal" if equal else "not equal", equal)
        case Kind.WITHIN | Kind.POINTS:
            return _within(ours, published, rule)
        case Kind.INTERVAL:
            return _in_interval(ours, published) or _within(ours, published, rule)
        case Kind.ABOVE | Kind.BELOW | Kind.AT_LEAST | Kind.AT_MOST:
            return _bounded(value, bound, rule.kind)
    return NOT_JUDGED


def _within(ours: Estimate, published: Published, rule: Rule) -> Verdict:
    if rule.kind is Kind.INTERVAL and not rule.width:
        return NOT_JUDGED._replace(words="no interval") if ours.low is None else Verdict("outside our interval", False)
    bound = published.in_base_units
    room = rule.width if rule.kind is Kind.POINTS else rule.width * abs(bound)
    passed = abs(ours.value - bound) <= room
    width = Rule(Kind.WITHIN, rule.width) if rule.kind is Kind.INTERVAL else rule
    return Verdict(f"{'within' if passed else 'outside'} {width}", passed)


def _in_interval(ours: Estimate, published: Published) -> Verdict | None:
    """Return a verdict where the published value lies in our interval; one of a change has to tell it from none."""
    if ours.low is None or ours.high is None or not ours.low <= published.in_base_units <= ours.high:
        return None
    if published.against and ours.low <= 0 <= ours.high:
        return None
    return Verdict("in our interval", True)


def _bounded(value: float, bound: float, kind: Kind) -> Verdict:
    clearly = abs(value - bound) > ROUNDING * max(abs(value), abs(bound), ROUNDING)
    equal = not clearly and kind in (Kind.AT_LEAST, Kind.AT_MOST)
    right = value > bound if kind in (Kind.ABOVE, Kind.AT_LEAST) else value < bound
    passed = equal or (clearly and right)
    return Verdict("holds" if passed else "does not hold", passed)


def in_points(published: Published) -> bool:
    """Return whether a difference is counted in points: of a change, and of a share that is judged so."""
    return bool(published.against) or published.measured.kind is Kind.POINTS


def difference(ours: float, published: Published) -> float:
    """Return the difference, in points or as a share of the published value."""
    bound = published.in_base_units
    if in_points(published):
        return ours - bound
    return ours / bound - 1 if bound else float("inf")
