"""A sweep's results as one Parquet table: a row per run with its settings and metrics, in the order of the plan."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.files import appearing_whole
from polluxsim.folders import SWEEP_FILE, info_of, policy_name
from polluxsim.metrics.declared import as_metadata, values_in
from polluxsim.metrics.summary import Summary
from polluxsim.run.building import declared_types
from polluxsim.storage import flat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from polluxsim.sweeps.plan import Entry

DATASET = SWEEP_FILE
TIMING = "sweep-timing.parquet"


def write_dataset(entries: Sequence[Entry], folder: Path) -> pa.Table:
    """Write and return the results of finished runs, in their order; wall-clock times go into a file apart."""
    infos = [info_of(entry.folder) for entry in entries]
    rows = [_row(entry, folder, info) for entry, info in zip(entries, infos, strict=True)]
    declared = {field.name: pa.float64() for field in fields(Summary) if field.type in ("float", "float | None")}
    declared |= {name: kind for entry in entries for name, kind in declared_types(entry.config).items()}
    metrics = {name: metric for info in infos for name, (metric, _) in values_in(info).items()}
    declared |= dict.fromkeys(metrics, pa.float64())
    table = table_of(rows, declared).replace_schema_metadata(as_metadata(metrics) or None)
    names = [{name: row[name] for name in ("folder", "key")} for row in rows]
    times = [name | _times(entry) for name, entry in zip(names, entries, strict=True)]
    _write(table_of(times, {}), folder / TIMING)
    _write(table, folder / DATASET)
    return table


def table_of(rows: Sequence[Mapping[str, Any]], declared: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as a table with the columns of all rows. Missing values are null.

    Declared types make the type of a column independent of its values.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pa.table({name: _array(values, declared.get(name)) for name, values in columns.items()})


def _row(entry: Entry, folder: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    summary = info["summary"] or {}
    metrics = {field.name: summary[field.name] for field in fields(Summary) if field.name in summary}
    user_values = {name: value for name, (_, value) in values_in(info).items()}
    settings = flat({name: part for name, part in entry.config.items() if name != "metrics"})
    named = {"folder": entry.folder.relative_to(folder).as_posix(), "policy": policy_name(settings)}
    return {**named, **settings, **flat(metrics), **user_values, "key": entry.key}


def _times(entry: Entry) -> dict[str, float]:
    """Return how long each phase of a run took in all [s of wall-clock time]."""
    table = pq.read_table(entry.folder / "timing.parquet", columns=["phase", "seconds"])
    totals = table.group_by("phase").aggregate([("seconds", "sum")]).to_pylist()
    return {row["phase"]: row["seconds_sum"] for row in sorted(totals, key=lambda row: row["phase"])}


def _array(values: Sequence[Any], declared: pa.DataType | None) -> pa.Array:
    """Return a column; values of several kinds become text, as do lists of anything but text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, float}:
        whole = kinds == {int} and declared != pa.float64()
        return pa.array(values, pa.int64() if whole else pa.float64())
    if kinds == {list} and all(isinstance(item, str) for items in values for item in items or ()):
        return pa.array(values, pa.list_(pa.string()))
    if len(kinds) == 1 and kinds <= {bool, str}:
        return pa.array(values, pa.bool_() if kinds == {bool} else pa.string())
    if not kinds:
        return pa.array(values, declared or pa.string())
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _write(table: pa.Table, path: Path) -> None:
    with appearing_whole(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
