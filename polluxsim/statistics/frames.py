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
from polluxsim.common.parquet import read_parquet
from polluxsim.metrics.declared import Metric, declare, declared_in, frame_of_table, values_in
from polluxsim.metrics.summary import Summary, summarise
from polluxsim.records.folders import POLICY_ENTRY, policy_name, run_folders
from polluxsim.records.storage import Run, flat, read_info, read_run
from polluxsim.statistics.groups import settings_in_info

Row = Mapping[str, Any]

SETTINGS = ("agent.", "cluster.", "engine.", "policy.", "profiles.", "workload.")
"""Beginnings of the names of columns with settings. The column `seed` is a setting too."""


def frame_of(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each run with its settings and metrics [s; GPU h], like `sweep.parquet`.

    A run without jobs has no metrics.
    """
    names_and_infos = []
    metrics: list[dict[str, Any]] = []
    for run in runs:
        names_and_infos.append((run.name, run.info))
        summary = summarise(run.result)
        if summary is None:
            metrics.append({})
        else:
            metrics.append(columns_of(summary))
    return _frame(names_and_infos, metrics)


def _frame(runs: Sequence[tuple[str, Mapping[str, Any]]], metrics: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a row for each run, given its name, the content of its run.json, and its metrics by column."""
    rows = []
    declared = dict[str, Metric]()
    for (name, info), columns in zip(runs, metrics, strict=True):
        settings = settings_in_info(info, name)
        row: dict[str, Any] = {"folder": name, "policy": policy_name(settings)}
        if POLICY_ENTRY in info:
            row[POLICY_ENTRY] = info[POLICY_ENTRY]
        row |= settings
        row |= columns
        for metric_name, (metric, value) in values_in(info).items():
            row[metric_name] = value
            declared[metric_name] = metric
        rows.append(row)
    frame = pd.DataFrame(rows)
    declare(frame, declared)
    return frame


NOT_ALWAYS_STATED = ("earlier_gpu_hours",)  # metrics that only runs with jobs from before the run have


def stated_columns(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the metrics that a run.json states, as `columns_of` does; None if one of them is missing or no number."""
    summary = info.get("summary")
    if not isinstance(summary, Mapping):
        return None
    # A newer version may state metrics without a field here, which are left out.
    stated = {}
    for field in fields(Summary):
        if field.name in summary:
            stated[field.name] = summary[field.name]
        elif field.name not in NOT_ALWAYS_STATED:
            return None
    columns = flat(stated)
    for name, value in columns.items():
        if isinstance(value, list):
            columns[name] = len(value)
        elif isinstance(value, bool) or not isinstance(value, int | float | None):
            return None
    return columns


def columns_of(summary: Summary) -> dict[str, Any]:
    """Return metrics by dotted name, in the units of `Summary`; lists of names as their length."""
    columns = flat(summary.values())
    for name, value in columns.items():
        if isinstance(value, tuple):
            columns[name] = len(value)
    return columns


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the distinct rows of a table, without empty cells."""
    return list({repr(row): row for row in every_row_of(frame)}.values())


def every_row_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, without empty cells."""
    rows = []
    # A table has a cell for each setting of any of its runs. A setting that a run lacks is not None for this run.
    for row in frame.to_dict("records"):
        rows.append({str(key): value for key, value in row.items() if _is_there(value)})
    return rows


def _is_there(value: Any) -> bool:
    """Return whether a cell is not empty. An empty list counts as empty."""
    if hasattr(value, "__len__") and not isinstance(value, str):
        return len(value) > 0
    return bool(pd.notna(value))


def settings_in(row: Row) -> dict[str, Any]:
    """Return the settings among the columns of a run, without the name of the policy, which follows from them."""
    settings = {}
    for key, value in row.items():
        if is_setting(key) and key != "policy":
            settings[key] = value
    return settings


def is_setting(column: str) -> bool:
    """Return whether a column contains a setting."""
    return column in {"seed", "run", "policy"} or column.startswith(SETTINGS)


def check_column(frame: pd.DataFrame, name: str, kind: str) -> None:
    """Raise InvalidInputError if no run has a column of this kind, or if a metric is not a number in some run.

    `kind` is "setting" or "metric".
    """
    if name not in frame or frame[name].isna().all() or (kind == "metric" and is_setting(name)):
        names = []
        for column in map(str, frame):
            is_of_kind = is_setting(column) == (kind == "setting")
            if is_of_kind and column != "folder" and frame[column].notna().any():
                names.append(column)
        names.sort()
        raise InvalidInputError(
            f"the runs have no {kind} {name!r}; give one of {', '.join(names)}{did_you_mean(name, names)}"
        )
    is_no_number = frame[name].notna() & pd.to_numeric(frame[name], errors="coerce").isna()
    if kind == "metric" and is_no_number.any():
        first_value = frame.loc[is_no_number, name].iloc[0]
        raise InvalidInputError(f"{name} is {first_value!r} in a run; give a metric that has numbers")


def parts_by_value(frame: pd.DataFrame, setting: str) -> list[tuple[Any, pd.DataFrame]]:
    """Return the values of a setting, or the names of policies for `policy`, each with its runs, in order of the runs.

    A value is None for runs without the setting. Raise InvalidInputError if no run has the setting.
    """
    values: list[Any]
    if setting == "policy":
        values = list(map(policy_name, every_row_of(frame)))
    else:
        check_column(frame, setting, "setting")
        values = [row.get(setting) for row in every_row_of(frame)]
    # Values can be lists, which are no keys.
    positions: dict[str, list[int]] = {}
    for position, value in enumerate(values):
        positions.setdefault(repr(value), []).append(position)
    return [(values[places[0]], frame.iloc[places]) for places in positions.values()]


PARQUET = ".parquet"  # end of the names of datasets


def runs_at(folders: Sequence[Path]) -> list[Run]:
    """Read the runs in folders of runs and sweeps, each once.

    If a folder is that of a sweep, only the first of equal runs counts. Raise InvalidInputError if a run is unreadable
    or has no jobs.
    """
    paths = list(dict.fromkeys(path.resolve() for path in run_folders(folders)))
    runs = [read_run(path) for path in paths]
    for run in runs:
        run.must_have_jobs()
    # As many runs as folders: none of the folders is a sweep, and the user wants each of these runs.
    if len(paths) == len(folders):
        return runs
    infos = [run.info for run in runs]
    return [runs[place] for place in _distinct(infos)]


def _distinct(infos: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of the runs without those that equal an earlier run, given the contents of their run.json."""
    places: dict[object, int] = {}
    for place, info in enumerate(infos):
        # Runs of old versions have no key, and each of them counts.
        key = info.get("key") or ("no key", place)
        places.setdefault(key, place)
    return list(places.values())


def _frame_of_folders(folders: Sequence[Path]) -> pd.DataFrame:
    """Return a row for each run that `runs_at` returns.

    Only run.json of each run is read, which has its metrics, and not its records: reading these takes 20 times as long.
    """
    paths = list(dict.fromkeys(path.resolve() for path in run_folders(folders)))
    infos = [read_info(path) for path in paths]
    metrics = [stated_columns(info) for info in infos]
    if None in metrics:
        return frame_of(runs_at(folders))  # a run has no jobs, or an older version wrote it
    # As in `runs_at`, the user wants each of the runs whose own folders are named.
    places = list(range(len(paths)))
    if len(paths) != len(folders):
        places = _distinct(infos)
    runs = [(printable(paths[place].name), infos[place]) for place in places]
    return _frame(runs, [metrics[place] or {} for place in places])


def frame_at(paths: Sequence[Path]) -> pd.DataFrame:
    """Read a row for each run, from folders and Parquet datasets.

    If a folder is that of a sweep, only the first of equal runs in the folders counts. Raise InvalidInputError if a
    folder or a dataset is unreadable, or if a run in a folder has no jobs.
    """
    frames: list[pd.DataFrame] = []
    folders: list[Path] = []
    for path in paths:
        if path.suffix == PARQUET:
            frames.append(_dataset(path))
        else:
            folders.append(path)
    # The folders together, because a run can be in several of them.
    if folders:
        frames.append(_frame_of_folders(folders))
    joined = pd.concat(frames, ignore_index=True)
    # `concat` keeps no declarations.
    declared = dict[str, Metric]()
    for frame in frames:
        declared |= declared_in(frame)
    declare(joined, declared)
    return joined


def _dataset(path: Path) -> pd.DataFrame:
    """Read a Parquet dataset. Raise InvalidInputError if it does not exist or is unreadable."""
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file; check the path")
    try:
        return frame_of_table(read_parquet(path))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(
            f"{path}: not a Parquet dataset ({str(error).splitlines()[0]}); give another file"
        ) from None
