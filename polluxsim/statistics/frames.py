"""Data frames with the settings and metrics of each run, and the runs and datasets that a user names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from polluxsim.common.errors import InvalidInputError, did_you_mean
from polluxsim.common.files import printable
from polluxsim.metrics.declared import Metric, declare, declared_in, values_in
from polluxsim.metrics.summary import Summary, summarise
from polluxsim.records.folders import POLICY_ENTRY, policy_name, run_folders
from polluxsim.records.storage import Run, flat, read_info, read_run
from polluxsim.statistics.groups import settings_in_info

Row = Mapping[str, Any]

SETTINGS = ("agent.", "cluster.", "engine.", "policy.", "profiles.", "workload.")
"""Beginnings of the names of columns with settings. The column `seed` is a setting too."""


def frame_of(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each run with its settings and metrics [s; GPU h], like `sweep.parquet`."""
    summaries = [summarise(run.result) for run in runs]
    metrics = [columns_of(summary) if summary else {} for summary in summaries]
    return _frame([(run.name, run.info) for run in runs], metrics)


def _frame(runs: Sequence[tuple[str, Mapping[str, Any]]], metrics: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a row for each run, given its name, the content of its run.json, and its metrics by column."""
    rows, declared = [], dict[str, Metric]()
    for (name, info), columns in zip(runs, metrics, strict=True):
        settings, values = settings_in_info(info, name), values_in(info)
        named = {"folder": name, "policy": policy_name(settings)}
        if POLICY_ENTRY in info:
            named[POLICY_ENTRY] = info[POLICY_ENTRY]
        user_values = {name: value for name, (_, value) in values.items()}
        rows.append(named | settings | dict(columns) | user_values)
        declared |= {name: metric for name, (metric, _) in values.items()}
    frame = pd.DataFrame(rows)
    declare(frame, declared)
    return frame


NOT_ALWAYS_STATED = ("earlier_gpu_hours",)  # metrics that only runs with jobs from before the run have


def stated_columns(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the metrics that a run.json states, as `columns_of` does; None if it does not state all of them."""
    summary = info.get("summary")
    names = [field.name for field in fields(Summary)]
    if not isinstance(summary, Mapping) or not summary.keys() >= {*names} - {*NOT_ALWAYS_STATED}:
        return None
    columns = flat({name: summary[name] for name in names if name in summary})
    for name, value in columns.items():
        if isinstance(value, list):
            columns[name] = len(value)
        elif isinstance(value, bool) or not isinstance(value, int | float | None):
            return None
    return columns


def columns_of(summary: Summary) -> dict[str, Any]:
    """Return metrics by dotted name, in the units of `Summary`; lists of names as their length."""
    return {name: len(value) if isinstance(value, tuple) else value for name, value in flat(summary.values()).items()}


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the distinct rows of a table, without empty cells."""
    return list({repr(row): row for row in every_row_of(frame)}.values())


def every_row_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, without empty cells."""
    return [{str(key): value for key, value in row.items() if _is_there(value)} for row in frame.to_dict("records")]


def _is_there(value: Any) -> bool:
    return len(value) > 0 if hasattr(value, "__len__") and not isinstance(value, str) else bool(pd.notna(value))


def settings_in(row: Row) -> dict[str, Any]:
    """Return the settings among the columns of a run, without the name of the policy, which follows from them."""
    return {key: value for key, value in row.items() if is_setting(key) and key != "policy"}


def is_setting(column: str) -> bool:
    """Return whether a column contains a setting."""
    return column in {"seed", "run", "policy"} or column.startswith(SETTINGS)


def check_column(frame: pd.DataFrame, name: str, kind: str) -> None:
    """Raise InvalidInputError if no run has a column of this kind, or if a metric is not a number in some run.

    `kind` is "setting" or "metric".
    """
    if name not in frame or frame[name].isna().all() or (kind == "metric" and is_setting(name)):
        columns = [str(column) for column in frame if is_setting(str(column)) == (kind == "setting")]
        known = sorted(column for column in columns if column != "folder" and frame[column].notna().any())
        raise InvalidInputError(
            f"the runs have no {kind} {name!r}; give one of {', '.join(known)}{did_you_mean(name, known)}"
        )
    wrong = frame[name].notna() & pd.to_numeric(frame[name], errors="coerce").isna()
    if kind == "metric" and wrong.any():
        raise InvalidInputError(
            f"{name} is {frame.loc[wrong, name].iloc[0]!r} in a run; give a metric that has numbers"
        )


PARQUET = ".parquet"  # end of the names of datasets


def runs_at(folders: Sequence[Path]) -> list[Run]:
    """Read the runs in folders of runs and sweeps, each once. Of equal runs in several sweeps, only the first counts.

    Raise InvalidInputError if a run is unreadable or has no jobs.
    """
    found = list(dict.fromkeys(path.resolve() for path in run_folders(folders)))
    runs = [read_run(folder) for folder in found]
    for run in runs:
        run.must_have_jobs()
    if len(found) == len(folders):
        return runs
    return [runs[place] for place in _distinct([run.info for run in runs])]


def _distinct(infos: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of the runs without those that equal an earlier run, given the contents of their run.json."""
    places: dict[object, int] = {}
    for place, info in enumerate(infos):
        places.setdefault(info.get("key") or ("no key", place), place)
    return list(places.values())


def _frame_of_folders(folders: Sequence[Path]) -> pd.DataFrame:
    """Return a row for each run that `runs_at` returns.

    Only run.json of each run is read, which has its metrics, and not its records: reading these takes 20 times as long.
    """
    found = list(dict.fromkeys(path.resolve() for path in run_folders(folders)))
    infos = [read_info(folder) for folder in found]
    metrics = [stated_columns(info) for info in infos]
    if None in metrics:
        return frame_of(runs_at(folders))  # a run has no jobs, or an older version wrote it
    places = range(len(found)) if len(found) == len(folders) else _distinct(infos)
    runs = [(printable(found[place].name), infos[place]) for place in places]
    return _frame(runs, [metrics[place] or {} for place in places])


def frame_at(paths: Sequence[Path]) -> pd.DataFrame:
    """Read a row for each run, from folders and Parquet datasets. Raise InvalidInputError if one is unreadable."""
    tables = [path for path in paths if path.suffix == PARQUET]
    frames = [_dataset(path) for path in tables]
    if folders := [path for path in paths if path not in tables]:
        frames.append(_frame_of_folders(folders))
    found = pd.concat(frames, ignore_index=True)
    declare(found, {name: metric for frame in frames for name, metric in declared_in(frame).items()})
    return found


def _dataset(path: Path) -> pd.DataFrame:
    """Read a Parquet dataset. Raise InvalidInputError if it does not exist or is unreadable."""
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file; check the path")
    try:
        with path.open("rb") as file:  # pyarrow takes only names in UTF-8
            return pd.read_parquet(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path}: not a Parquet dataset ({str(error).splitlines()[0]}); give another file"
        ) from None
