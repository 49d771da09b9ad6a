"""Finished runs and sweeps, read as the user names them: folders of runs, folders of sweeps, Parquet datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from polluxsim.errors import InvalidInputError
from polluxsim.folders import run_folders
from polluxsim.look.frames import frame_of
from polluxsim.metrics.declared import declare, declared_in
from polluxsim.storage import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from polluxsim.storage import Run

PARQUET = ".parquet"


def runs_at(folders: Sequence[Path]) -> list[Run]:
    """Read the runs in folders, each once.

    Raises
    ------
    InvalidInputError
        If one is not what a run leaves, or had no jobs.
    """
    runs = [read_run(folder) for folder in dict.fromkeys(path.resolve() for path in run_folders(folders))]
    for run in runs:
        run.must_have_jobs()
    return runs


def frame_at(paths: Sequence[Path]) -> pd.DataFrame:
    """Read a row for each run, from folders and Parquet datasets.

    Raises
    ------
    InvalidInputError
        If one is neither.
    """
    tables = [path for path in paths if path.suffix == PARQUET]
    frames = [_table(path) for path in tables]
    if folders := [path for path in paths if path not in tables]:
        frames.append(frame_of(runs_at(folders)))
    found = pd.concat(frames, ignore_index=True)
    declare(found, {name: metric for frame in frames for name, metric in declared_in(frame).items()})
    return found


def _table(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file")
    try:
        return pd.read_parquet(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"{path}: not a Parquet dataset ({str(error).splitlines()[0]})") from None
