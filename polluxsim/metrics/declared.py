"""Declarations of metrics: name, unit, direction and function of a result; and the values that run.json keeps."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from numbers import Real
from sys import float_info
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError, short
from polluxsim.records.results import Result

if TYPE_CHECKING:
    import pandas as pd


PER_CENT = 0.01  # one per cent as a share of 1

LESS = "less"
MORE = "more"
NEITHER = ""
ARROWS = {LESS: " ↓", MORE: " ↑", NEITHER: ""}

PLAIN_UNITS = (
    "s", "ms", "percent", "$", "€", "jobs", "GPUs", "nodes", "examples", "steps", "GPU h", "node h", "W", "kW", "J",
    "kJ", "MJ", "Wh", "kWh", "MWh", "g", "kg", "t", "g CO2", "kg CO2", "t CO2", "MB", "GB", "TB",
)  # fmt: skip
"""Units of metrics whose values tables show unchanged. Each of them divided by one of `DIVISORS` is a unit too."""

DIVISORS = (*PLAIN_UNITS, "min", "h", "d", "job", "GPU", "node", "example", "step")
"""Units by which a quotient may divide."""

IN_FILES = ("title", "unit", "better", "can_be_negative")  # parts of a declaration that run.json and sweep.parquet keep

PANDAS_ATTRIBUTES = b"PANDAS_ATTRS"
"""Key under which pandas keeps a frame's attributes in the schema of a Parquet table."""


@dataclass(frozen=True)
class Metric:
    """A metric: its title, its unit, its better direction, and its function.

    Parameters
    ----------
    title
        Name in tables, figures and reports.
    unit
        Unit in tables: "h", whose values are in seconds; "%", whose values are shares of 1; one of `PLAIN_UNITS`, or a
        quotient like "jobs/h", whose values tables show unchanged; or "" for no unit.
    better
        "less", "more", or "" if neither is better.
    can_be_negative
        Whether values can be below 0; otherwise no end of an interval is below 0, unless a value is.
    is_part
        Whether reports list it as a part of the metric before it.
    formula
        Definition of the metric in the glossary of the documentation and in reports.
    value
        Function of a finished run's result that returns the metric in seconds, as a share or in its unit, or None if
        the run has none. Metrics that come with polluxsim are computed by `summarise` instead.

    Raises
    ------
    InvalidInputError
        If a part is not text, the title is empty, or `unit` or `better` is none of the allowed values.

    Examples
    --------
    >>> Metric("mean slowdown", better="less").heading
    'mean slowdown'
    >>> Metric("makespan", "h").heading
    'makespan [h]'
    """

    title: str
    unit: str = ""
    better: str = LESS
    can_be_negative: bool = False
    is_part: bool = False
    formula: str = ""
    value: Callable[[Result], float | None] | None = None

    def __post_init__(self) -> None:
        for name in ("title", "unit", "better", "formula"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInputError(f"a metric's {name} is {short(getattr(self, name))}, but it must be text")
        if not self.title:
            raise InvalidInputError("a metric's title is empty; give the name that tables are to show")
        self._check_unit()
        if self.better not in ARROWS:
            raise InvalidInputError(f"a metric's better is {short(self.better)}; give 'less', 'more' or ''")

    def _check_unit(self) -> None:
        """Raise InvalidInputError if the unit is none of the allowed ones."""
        if not is_unit(self.unit):
            raise InvalidInputError(
                f"a metric's unit is {short(self.unit)}; give 'h' for values in seconds, '%' for shares of 1, '', one "
                f"of {', '.join(PLAIN_UNITS)} for values in this unit, or a quotient like 'jobs/h'"
            )

    @property
    def heading(self) -> str:
        """Return the title with the unit of the column."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title

    @property
    def arrow(self) -> str:
        """Return an arrow down if less is better, up if more is better, with a space before it; "" if neither is."""
        return ARROWS[self.better]

    @property
    def factor(self) -> float:
        """Return the divisor from the metric's values, in seconds or as a share of 1, to its column."""
        if self.unit == "h":
            return HOUR
        if self.unit == "%":
            return PER_CENT
        return 1.0

    @property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and largest possible value in the column."""
        smallest = -inf if self.can_be_negative else 0.0
        largest = 100.0 if self.unit == "%" else inf
        return smallest, largest


def is_unit(unit: str) -> bool:
    """Return whether a metric may have this unit.

    >>> [is_unit(unit) for unit in ("h", "kWh", "kg CO₂/kWh", "minutes")]
    [True, True, True, False]
    """
    above, slash, below = unit.replace("₂", "2").partition("/")
    if not slash:
        return above in ("", "h", "%", *PLAIN_UNITS)
    return above in PLAIN_UNITS and below in DIVISORS


class RecordedMetric(Metric):
    """A metric in a file. Older versions allowed any unit."""

    def _check_unit(self) -> None:
        """Allow any unit, because its values are shown unchanged."""


UserValues = dict[str, tuple[Metric, float | None]]  # the user's metrics of a run and their values, by name


def values_in(info: Mapping[str, Any]) -> UserValues:
    """Return the user's metrics that a run.json has, with their values, by name.

    Raise InvalidInputError if they have another form.
    """
    entries = info.get("metrics", {})
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise InvalidInputError(f"metrics in run.json is {short(entries)}, but polluxsim writes a mapping of mappings")
    values: UserValues = {}
    for name, entry in entries.items():
        value = entry.get("value")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidInputError(f"metric {name!r} in run.json is {short(value)}, but it must be a number or null")
        unit = entry.get("unit", "")
        # An invalid unit is allowed, a unit that is no text is an error.
        kind = RecordedMetric if isinstance(unit, str) and not is_unit(unit) else Metric
        can_be_negative = entry.get("can_be_negative") is True
        values[name] = (kind(entry.get("title", ""), unit, entry.get("better", ""), can_be_negative), value)
    return values


def as_metadata(declared: Mapping[str, Metric]) -> dict[bytes, bytes]:
    """Return metadata of a Parquet table, which pandas reads into the attributes of a frame as `declare` sets them."""
    if not declared:
        return {}
    return {PANDAS_ATTRIBUTES: json.dumps({"metrics": _for_files(declared)}).encode()}


def frame_of_table(table: pa.Table) -> pd.DataFrame:
    """Return a sweep's table as a frame, with the declarations of the user's metrics as pandas would read them."""
    frame: pd.DataFrame = table.to_pandas()
    frame.attrs.update(json.loads((table.schema.metadata or {}).get(PANDAS_ATTRIBUTES, b"{}")))
    return frame


def declare(frame: pd.DataFrame, declared: Mapping[str, Metric]) -> None:
    """Add the declarations of the user's metrics to the attributes of a frame that contains them as columns."""
    if declared:
        frame.attrs["metrics"] = _for_files(declared)


def declared_in(frame: pd.DataFrame) -> dict[str, Metric]:
    """Return the declarations of the user's metrics in the attributes of a frame; none for another frame.

    Raise InvalidInputError if the attributes have another form.
    """
    values = values_in({"metrics": frame.attrs.get("metrics", {})})
    return {name: metric for name, (metric, _) in values.items()}


def _for_files(declared: Mapping[str, Metric]) -> dict[str, dict[str, Any]]:
    """Return the declarations as files keep them, by name."""
    entries = {}
    for name, metric in declared.items():
        entries[name] = {part: getattr(metric, part) for part in IN_FILES}
    return entries


def computed(declared: Mapping[str, Metric], result: Result) -> dict[str, dict[str, Any]]:
    """Return what run.json says of the user's metrics of a run: declaration and value by name.

    Raise InvalidInputError if a metric has no function, or its function fails or returns no number.
    """
    entries = _for_files(declared)
    for name, metric in declared.items():
        entries[name]["value"] = _value(name, metric, result)
    return entries


def _value(name: str, metric: Metric, result: Result) -> float | None:
    """Return the value of a user's metric. Raise InvalidInputError if it is not a finite number or None."""
    if metric.value is None:
        raise InvalidInputError(f"metric {name} has no function: declare it as Metric(..., value=FUNCTION)")
    try:
        value = metric.value(result)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__}: {short(error)} ({where.filename}, line {where.lineno})"
        raise InvalidInputError(f"metric {name} has no value: its function failed with {cause}") from error
    if value is None:
        return None
    if not isinstance(value, Real) or not abs(value) <= float_info.max:  # a whole number may be larger than any float
        raise InvalidInputError(f"metric {name} is {short(value)}: its function must return a finite number or None")
    return float(value)
