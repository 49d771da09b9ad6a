"""What `polluxsim plot` draws, by kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from polluxsim.common.errors import InvalidInputError
from polluxsim.look.job_progress import own_profiles, why_unknown
from polluxsim.look.plot.cluster_views import failures, gpu_map, queue
from polluxsim.look.plot.distributions import fairness_cdf, jct_by_application, jct_cdf, slowdown_by_size
from polluxsim.look.plot.job_life import job_life, lives_of
from polluxsim.look.plot.request import OF_PROFILES, PlotRequest
from polluxsim.look.plot.scaling import decision_labels, decision_times, read_times, scaling
from polluxsim.look.plot.style import Drawing, darkened
from polluxsim.look.plot.sweep import sweep
from polluxsim.look.plot.usage import usage
from polluxsim.models.profile import Profile
from polluxsim.records.folders import policy_name, run_folders
from polluxsim.records.results import TimingRecord
from polluxsim.records.storage import Run, read_run, read_timings
from polluxsim.statistics.frames import frame_at, frame_of, runs_at
from polluxsim.statistics.groups import RunGroup, grouped, settings_of


class FigureSubject(NamedTuple):
    """Subject of a figure."""

    paths: Sequence[Path] = ()  # folders of runs or sweeps
    runs: Sequence[Run] = ()  # runs in memory
    names: Sequence[str] | None = None  # of the runs in memory
    frame: pd.DataFrame | None = None  # a row for each run

    def read(self) -> Sequence[Run]:
        """Return the runs. Raise InvalidInputError if there are neither runs nor folders."""
        if not self.runs and not self.paths:
            raise InvalidInputError(
                "the folders of the sweep's runs are missing, so only the figure `sweep` can be drawn"
            )
        return self.runs or runs_at(self.paths)

    def groups(self, *, each: bool) -> tuple[RunGroup, ...]:
        """Return the groups that are drawn as one line each."""
        runs = self.read()
        if self.names is None:
            return grouped(runs, each=each)
        groups = []
        for name, run in zip(self.names, runs, strict=True):
            groups.append(RunGroup(name, policy_name(settings_of(run)), (run,)))
        return tuple(groups)

    def metrics(self) -> pd.DataFrame:
        """Return a table with a row for each run."""
        if self.frame is not None:
            return self.frame
        if self.runs:
            return frame_of(self.runs)
        return frame_at(self.paths)

    def times(self) -> tuple[Sequence[Run], list[Sequence[TimingRecord]], list[pd.DataFrame]]:
        """Return runs, the wall-clock times of each, and the tables of benchmarks."""
        if self.runs:
            return self.runs, [run.result.timing_records for run in self.runs], []
        folders: list[Path] = []
        benchmarks: list[pd.DataFrame] = []
        for path in self.paths:
            if path.suffix == ".csv":
                benchmarks.append(read_times(path))
            else:
                folders.append(path)
        folders_of_runs = run_folders(folders)
        return list(map(read_run, folders_of_runs)), list(map(read_timings, folders_of_runs)), benchmarks


def draw(options: PlotRequest, subject: FigureSubject) -> Drawing:
    """Draw a figure. Raise InvalidInputError if the subject does not have the data that the figure needs."""
    figure = _DRAW[options.kind](options, subject)
    if options.dark:
        return darkened(figure)
    return figure


def _job(options: PlotRequest, subject: FigureSubject) -> Drawing:
    groups = subject.groups(each=True)
    profiles = [_profiles_of(group.runs[0], options.profiles) for group in groups]
    lives, contention = lives_of(groups, options.job, profiles)
    return job_life(lives, contention, options.width_in_cm, groups)


def _profiles_of(run: Run, folder: Path | None) -> Mapping[str, Profile] | None:
    """Return the profiles of a run; None if the efficiency of its jobs does not follow from them, which a note states.

    If the user named the folder of the profiles, raise InvalidInputError in place of the note.
    """
    try:
        return own_profiles(run, folder).profiles
    except InvalidInputError as error:
        if folder is not None:
            raise
        message = f"polluxsim: {run.name}: no panel of the efficiency: {error}"
        # Other profiles do not help if the efficiency does not follow from the records at all.
        if not why_unknown(run):
            message += "; --profiles FOLDER says where they are now"
        print(message, file=sys.stderr)
        return None


def _sweep(options: PlotRequest, subject: FigureSubject) -> Drawing:
    frame = subject.metrics()
    return sweep(frame, options.x or "", options.metric, options.by, options.width_in_cm, options.baseline)


def _of_profiles(options: PlotRequest, _: FigureSubject) -> Drawing:
    from polluxsim.look.plot.profiles import DRAW_PROFILES

    return DRAW_PROFILES[options.kind](options)


def _scaling(options: PlotRequest, subject: FigureSubject) -> Drawing:
    runs, timings, frames = subject.times()
    labels = decision_labels(runs)
    policies = {}
    for label, run, records in zip(labels, runs, timings, strict=True):
        frames.append(decision_times(label, run, records))
        policies[label] = policy_name(settings_of(run))
    return scaling(pd.concat(frames, ignore_index=True), policies, options.width_in_cm)


def _of_jobs(figure: Callable[[Sequence[RunGroup], float], Drawing]) -> Callable[[PlotRequest, FigureSubject], Drawing]:
    """Return the function that draws a figure of the distributions over jobs of runs."""
    return lambda options, subject: figure(subject.groups(each=options.each), options.width_in_cm)


def _in_bins(
    figure: Callable[[Sequence[RunGroup], float, float], Drawing],
) -> Callable[[PlotRequest, FigureSubject], Drawing]:
    return lambda options, subject: figure(subject.groups(each=options.each), 60.0 * options.bin, options.width_in_cm)


_DRAW: Mapping[str, Callable[[PlotRequest, FigureSubject], Drawing]] = {
    "jct-cdf": _of_jobs(jct_cdf),
    "jct-by-application": _of_jobs(jct_by_application),
    "usage": _in_bins(usage),
    "queue": _in_bins(queue),
    "gpu-map": _of_jobs(gpu_map),
    "failures": _of_jobs(failures),
    "slowdown-by-size": _of_jobs(slowdown_by_size),
    "job": _job,
    "fairness-cdf": _of_jobs(fairness_cdf),
    "sweep": _sweep,
    "scaling": _scaling,
    **dict.fromkeys(OF_PROFILES, _of_profiles),
}
"""Functions that draw a figure, by kind."""
