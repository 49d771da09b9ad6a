"""`polluxsim plot`: reads runs, has a figure drawn, writes it."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from polluxsim.analysis.figures.applications import jct_by_application
from polluxsim.analysis.figures.cdf import fairness_cdf, jct_cdf
from polluxsim.analysis.figures.groups import grouped, policy_name, settings_of
from polluxsim.analysis.figures.job import job_life, lives_of
from polluxsim.analysis.figures.scaling import decision_labels, decision_times, read_times, scaling
from polluxsim.analysis.figures.style import check_ending, save
from polluxsim.analysis.figures.sweep import sweep
from polluxsim.analysis.figures.usage import usage
from polluxsim.analysis.replication import frame_of
from polluxsim.app.folders import run_folders
from polluxsim.app.own_profiles import own_profiles
from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.storage import read_run, read_timings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from polluxsim.analysis.figures.groups import Group
    from polluxsim.models.profile import Profile
    from polluxsim.storage import Run

WIDTHS = (5.0, 60.0)
"""The least and the most that can be drawn legibly [cm]."""


def plot(options: Namespace) -> int:
    """Draw a figure and write it.

    Raises
    ------
    PolluxSimError
        If an option or a run is not what it should be; nothing is written then.
    """
    check_ending(options.output)
    if not WIDTHS[0] <= options.width <= WIDTHS[1]:
        raise InvalidConfigError(f"--width is {options.width:g}, allowed are {WIDTHS[0]:g} to {WIDTHS[1]:g} cm")
    save(_DRAW[options.kind](options), options.output)
    print(f"wrote {options.output}")
    return 0


def _groups(options: Namespace) -> tuple[Group, ...]:
    return grouped(_read(options.runs), each=options.each)


def _read(folders: Sequence[Path]) -> list[Run]:
    runs = [read_run(folder) for folder in dict.fromkeys(path.resolve() for path in run_folders(folders))]
    for run in runs:
        if not run.result.job_records:
            raise InvalidInputError(f"{run.name}: a run without jobs has nothing to show")
    return runs


def _usage(options: Namespace) -> Figure:
    if not (math.isfinite(options.bin) and options.bin >= 1):
        raise InvalidConfigError(f"--bin is {options.bin:g}, allowed are minutes ≥ 1")
    return usage(_groups(options), 60.0 * options.bin, options.width)


def _job(options: Namespace) -> Figure:
    groups = grouped(_read(options.runs), each=True)
    profiles = [_profiles_of(group.runs[0], options.profiles) for group in groups]
    lives, contention = lives_of(groups, options.job, profiles)
    return job_life(lives, contention, options.width)


def _profiles_of(run: Run, folder: Path | None) -> Mapping[str, Profile] | None:
    """Return the profiles a run was made with; None, and a note, where they cannot tell a job's efficiency."""
    try:
        return own_profiles(run, folder).profiles
    except InvalidInputError as error:
        if folder is not None:
            raise
        note = f"no panel of the efficiency: {error}; --profiles FOLDER says where they are now"
        print(f"polluxsim: {run.name}: {note}", file=sys.stderr)
        return None


def _sweep(options: Namespace) -> Figure:
    return sweep(_frame(options.runs), options.x, options.metric, options.by, options.width)


def _frame(paths: Sequence[Path]) -> pd.DataFrame:
    tables = [path for path in paths if path.suffix == ".parquet"]
    frames = [_table(path) for path in tables]
    if folders := [path for path in paths if path not in tables]:
        frames.append(frame_of(_read(folders)))
    return pd.concat(frames, ignore_index=True)


def _table(path: Path) -> pd.DataFrame:
    if not path.exists():
        raise InvalidInputError(f"{path}: no such file")
    try:
        return pd.read_parquet(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"{path}: not a Parquet dataset ({str(error).splitlines()[0]})") from None


def _throughput(options: Namespace) -> Figure:
    from polluxsim.app.plot_profiles import draw_throughput

    return draw_throughput(options)


def _batch_size(options: Namespace) -> Figure:
    from polluxsim.app.plot_profiles import draw_batch_size

    return draw_batch_size(options)


def _training(options: Namespace) -> Figure:
    from polluxsim.app.plot_profiles import draw_training

    return draw_training(options)


def _scaling(options: Namespace) -> Figure:
    tables = [path for path in options.runs if path.suffix == ".csv"]
    frames = [read_times(path) for path in tables]
    folders = run_folders([path for path in options.runs if path not in tables])
    runs = [read_run(folder) for folder in folders]
    labels = decision_labels(runs)
    frames += [decision_times(*row) for row in zip(labels, runs, map(read_timings, folders), strict=True)]
    policies = {label: policy_name(settings_of(run)) for label, run in zip(labels, runs, strict=True)}
    return scaling(pd.concat(frames, ignore_index=True), policies, options.width)


_DRAW: Mapping[str, Callable[[Namespace], Figure]] = {
    "jct-cdf": lambda options: jct_cdf(_groups(options), options.width),
    "jct-by-application": lambda options: jct_by_application(_groups(options), options.width),
    "usage": _usage,
    "job": _job,
    "fairness-cdf": lambda options: fairness_cdf(_groups(options), options.width),
    "sweep": _sweep,
    "throughput": _throughput,
    "scaling": _scaling,
    "batch-size": _batch_size,
    "training": _training,
}
