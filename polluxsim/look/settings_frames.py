"""Tables of settings as numbers: a DataFrame for Python, and CSV and JSON for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from polluxsim.statistics.comparisons import Cell, SettingsTable

PARTS = ("mean", "low", "high", "runs", "change", "change low", "change high", "pairs")
"""Parts of a cell in tables of numbers; `frame_of_settings` explains them."""

MEAN_PARTS = ("mean", "low", "high")  # parts in the unit of the metric
COUNTED_PARTS = ("runs", "pairs")  # parts that are whole numbers


def frame_of_settings(table: SettingsTable) -> pd.DataFrame:
    """Return the table's numbers: a row per setting, columns (metric, part), in the units that the metric names.

    The parts of a metric are the mean, the ends of its 95 % interval (low, high) and the number of independent runs;
    the change as a share of the baseline, the ends of its interval (change low, change high) and the number of
    independent pairs. Unknown numbers are nan. `attrs["baselines"]` contains the baseline of each setting.
    """
    rows = {label: _numbers(table, row) for label, row in table.cells.items()}
    # Not every setting has every metric. A dict keeps the order of the columns.
    keys: dict[tuple[str, str], None] = {}
    for row in rows.values():
        keys |= dict.fromkeys(row)
    columns = pd.MultiIndex.from_tuples(list(keys), names=["metric", "part"])
    values = []
    for row in rows.values():
        values.append([row.get(key) for key in keys])
    # Without a type, a column of unknown numbers only would have None in place of nan.
    frame = pd.DataFrame(values, index=list(rows), columns=columns, dtype=float).rename_axis("setting")
    frame.attrs["baselines"] = dict(table.baselines)
    return frame


def _numbers(table: SettingsTable, row: Mapping[str, Cell]) -> dict[tuple[str, str], float | None]:
    """Return the numbers of a row of the table, by metric and part."""
    numbers: dict[tuple[str, str], float | None] = {}
    for name, cell in row.items():
        changes: tuple[float | None, ...] = (None,) * 4
        if cell.change is not None:
            changes = (*cell.change.estimate, cell.change.num_units)
        heading = table.metrics[name].heading
        for part, number in zip(PARTS, (*cell.mean.estimate, cell.mean.num_units, *changes), strict=True):
            numbers[heading, part] = number
    return numbers


def as_csv(table: SettingsTable) -> str:
    """Return `frame_for_programs` as CSV: a line for each setting, with its baseline.

    The mean has the name of its metric alone, like `avg_jct`; another number has its part after a dot, like
    `avg_jct.change`.
    """
    frame = frame_for_programs(table)
    names = [".".join(column).removesuffix(".mean") for column in frame.columns]
    frame.columns = pd.Index(names)
    frame.insert(0, "baseline", list(table.baselines.values()))
    return str(frame.to_csv()).rstrip("\n")


def as_json(table: SettingsTable) -> str:
    """Return `frame_for_programs` as JSON: by setting, its baseline, and the known numbers by metric and part."""
    rows = {}
    for label, row in frame_for_programs(table).iterrows():
        numbers: dict[Any, Any] = {"baseline": table.baselines[str(label)]}
        for metric, parts in row.groupby(level=0, sort=False):
            numbers[metric] = parts.droplevel(0).dropna().to_dict()
        rows[label] = numbers
    return json.dumps(rows, indent=2, ensure_ascii=False)


def frame_for_programs(table: SettingsTable) -> pd.DataFrame:
    """Return the table's numbers like `frame_of_settings`, by names that do not change and in the units of `Summary`.

    Metrics have the names of the columns of `sweep.parquet`. Times are in seconds, and percentages are shares of 1.
    """
    frame = frame_of_settings(table)
    names_by_heading = {metric.heading: name for name, metric in table.metrics.items()}
    columns = []
    for column in frame.columns:
        heading = str(column[0])
        part = str(column[1])
        name = names_by_heading[heading]
        if part in MEAN_PARTS:
            frame[column] *= table.metrics[name].factor
        columns.append((name, part.replace(" ", "_")))
    frame.columns = pd.MultiIndex.from_tuples(columns, names=["metric", "part"])
    for metric, part in columns:
        if part in COUNTED_PARTS:
            frame[metric, part] = frame[metric, part].astype("Int64")  # unknown numbers stay unknown
    return frame
