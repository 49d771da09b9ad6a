"""Published values beside a table or figure, and how near ours have to be: read from CSV and judged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.files import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from polluxsim.files import Row

COLUMNS = ("metric", "arm", "against", "value", "unit", "tolerance", "embedded", "workloads", "source")

UNITS: Mapping[str, float] = {"h": 3600.0, "min": 60.0, "s": 1.0, "%": 0.01, "change": 1.0, "1": 1.0}
"""What a published value is multiplied with: ours are in seconds and shares. A change is mean/mean − 1."""

EXACT = 1e-9
"""Sums of whole seconds that were divided in another order [share]."""


class Kind(StrEnum):
    """The ways in which our value can be held against a published one."""

    EXACT = "exact"
    RELATIVE = "relative"
    SIGN = "sign"
    ORDER = "order"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    INTERVAL = "interval"
    NONE = "none"


class Tolerance(NamedTuple):
    """How near our value has to be.

    Attributes
    ----------
    kind
        In which way.
    width
        Largest relative difference [1], where the kind is relative.
    """

    kind: Kind
    width: float = 0.0

    def __str__(self) -> str:
        return f"±{100 * self.width:g} %" if self.kind is Kind.RELATIVE else self.kind.value


class Verdict(NamedTuple):
    """What the comparison says; `passed` is None where nothing was asked."""

    words: str
    passed: bool | None


@dataclass(frozen=True)
class Published:
    """One published number.

    Parameters
    ----------
    metric
        What was measured, as experiments name it.
    arm
        On what: an arm of the experiment.
    against
        The arm that it is compared with, "" for the value itself.
    value
        In the unit it was published in.
    unit
        One of `UNITS`.
    tolerance
        How near ours has to be on the measured data.
    embedded
        How near on profile cards and generated workloads, or on workloads other than the published number's.
    workloads
        The workloads it is a mean over, "" for any.
    source
        Who published it: "paper", or "simulator" for the published runs, and where.
    """

    metric: str
    arm: str
    against: str
    value: float
    unit: str
    tolerance: Tolerance
    embedded: Tolerance
    workloads: str
    source: str

    @property
    def quantity(self) -> tuple[str, str, str]:
        """Return what the number is of."""
        return self.metric, self.arm, self.against

    @property
    def by_simulator(self) -> bool:
        """Return whether it comes from the published runs, and not from the paper's testbed or text."""
        return self.source.startswith("simulator")

    @property
    def in_base_units(self) -> float:
        """Return the value as ours are counted [s, or 1]."""
        return self.value * UNITS[self.unit]


def read_published(path: Path) -> list[Published]:
    """Read published values from CSV.

    Raises
    ------
    InvalidInputError
        If a row is not what it should be.
    """
    return [_published(row) for row in read_rows(path, COLUMNS)]


def _published(row: Row) -> Published:
    unit = row.text("unit")
    if unit not in UNITS:
        raise row.error("unit", ", ".join(UNITS))
    texts = {name: str(row.values[name]).strip() for name in ("against", "workloads")}
    return Published(
        metric=row.text("metric"),
        arm=row.text("arm"),
        value=row.number("value"),
        unit=unit,
        tolerance=_tolerance(row, "tolerance"),
        embedded=_tolerance(row, "embedded"),
        source=row.text("source"),
        **texts,
    )


def _tolerance(row: Row, column: str) -> Tolerance:
    text = row.text(column)
    if found := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text):
        return Tolerance(Kind.RELATIVE, float(found[1]) / 100)
    try:
        if text != Kind.RELATIVE:
            return Tolerance(Kind(text))
    except ValueError:
        pass
    words = ", ".join(kind for kind in Kind if kind is not Kind.RELATIVE)
    raise row.error(column, f"a share like '3 %', or one of {words}")


def judge(ours: float, published: float, tolerance: Tolerance, *, is_change: bool = False) -> Verdict:
    """Return how our value stands to a published one, both in base units.

    A change is held against a tolerance as the ratio that it is: −50 % and −51 % are 2 % apart. Orders are judged by
    `judge_order`.
    """
    off = difference(ours, published, is_change=is_change)
    match tolerance.kind:
        case Kind.EXACT | Kind.RELATIVE:
            return _near(off, max(tolerance.width, EXACT))
        case Kind.SIGN:
            same = (ours > 0) == (published > 0) and ours != 0
            return Verdict("same sign" if same else "other sign", same)
        case Kind.AT_LEAST:
            return Verdict("holds" if ours >= published else "does not hold", ours >= published)
        case Kind.AT_MOST:
            return Verdict("holds" if ours <= published else "does not hold", ours <= published)
    return Verdict("–", None)


def difference(ours: float, published: float, *, is_change: bool = False) -> float:
    """Return the relative difference; of changes, that of the ratios."""
    shift = 1.0 if is_change else 0.0
    if published + shift == 0:
        return 0.0 if ours == published else float("inf")
    return (ours + shift) / (published + shift) - 1


def _near(off: float, width: float) -> Verdict:
    if abs(off) <= EXACT:
        return Verdict("equal", True)
    if width <= EXACT:
        return Verdict("not equal", False)
    passed = abs(off) <= width
    return Verdict(f"{'within' if passed else 'outside'} {100 * width:g} %", passed)


def judge_order(arm: str, ours: Mapping[str, float], published: Mapping[str, float]) -> Verdict:
    """Return whether an arm stands to every other as published; equal published values say nothing, equal ours fail.

    Parameters
    ----------
    arm
        The arm in question.
    ours, published
        The metric's values by arm.
    """
    wrong = [
        other
        for other in published
        if published[arm] != published[other] and (published[arm] - published[other]) * (ours[arm] - ours[other]) <= 0
    ]
    if wrong:
        return Verdict(f"other order: {', '.join(wrong)}", False)
    return Verdict("same order", True)
