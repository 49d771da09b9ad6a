"""Results of simulations: tables, metrics, figures, a summary for notebooks, and a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.simulation import Simulation
from polluxsim.look.descriptions import loss_noun
from polluxsim.look.plot.kinds import FigureSubject
from polluxsim.look.plot.request import OF_PROFILES, PlotRequest
from polluxsim.look.plot.style import Drawing
from polluxsim.look.run_facts import steady_gpus
from polluxsim.look.side_by_side import SideBySide, crowd_html
from polluxsim.look.why.story import at, find_job
from polluxsim.metrics.declared import values_in
from polluxsim.metrics.summary import Summary, summarise
from polluxsim.records.bounds import RunBound
from polluxsim.records.results import Result as Records
from polluxsim.records.storage import Run, located, read_reasons, read_run, read_timings, write_run
from polluxsim.run.claim import claimed, recorded_settings
from polluxsim.statistics.bounds.bounding import METRICS, TIME_LIMIT
from polluxsim.statistics.comparisons import compared, frame_of_comparisons
from polluxsim.statistics.frames import columns_of
from polluxsim.statistics.groups import settings_of
from polluxsim.statistics.metric_lines import first_of_same_jobs

if TYPE_CHECKING:
    from polluxsim.api.futures import Moment


def figure_of(kind: str, subject: FigureSubject, options: Mapping[str, object]) -> Drawing:
    """Draw a figure of runs. The kinds and options are those of `polluxsim plot`.

    Raise InvalidConfigError for an unknown kind or an invalid option, and InvalidInputError if the runs lack the data
    of the figure.
    """
    from polluxsim.look.plot.kinds import draw  # noqa: PLC0415  (matplotlib is slow to load)

    request = PlotRequest.of(kind, options)
    if kind in OF_PROFILES and request.profiles is None:
        first_run = subject.read()[0]
        folder = settings_of(first_run).get("profiles.path")
        # A run made from profiles in memory names no folder. The figure then reports what is missing.
        if folder is not None:
            request = replace(request, profiles=Path(located(folder, first_run.folder)))
    return draw(request, subject)


class Result(Run):
    """A finished run with its results as tables.

    A result is a `Run` with the attributes `name`, `info` (the content of run.json: configuration, seed, versions and
    summary) and `result` (the records).
    """

    @property
    def jobs(self) -> pd.DataFrame:
        """Return a table with a row for each job: submit_time, start_time, completion_time, jct [s] and more."""
        return self.result.jobs

    @property
    def rounds(self) -> pd.DataFrame:
        """Return a table with a row for each round that changed something: time [s], active_jobs, gpus_in_use and more.

        Until the next row, a run stays as it is in a row.
        """
        return self.result.rounds

    @property
    def allocations(self) -> pd.DataFrame:
        """Return a table with a row for each change of the GPUs or the batch size of a job.

        The columns are time [s], job, nodes, gpus, batch_size and accumulation_steps.
        """
        return self.result.allocations

    @cached_property
    def metrics(self) -> Summary | None:
        """Return the metrics; None if the run has no jobs, or only jobs from before its start."""
        return summarise(self.result)

    def summary(self) -> pd.DataFrame:
        """Return the metrics as a table with one row and the columns of `Comparison.summary`.

        Raise InvalidInputError if the run has no jobs, or only jobs from before its start.
        """
        return compare({self.name: self}).summary()

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write the folder that `polluxsim run` writes, and return its path.

        The folder is written completely or not at all.

        Raises
        ------
        InvalidConfigError
            If the folder has a finished run of other settings. A run of the same settings is replaced.
        """
        with claimed(Path(folder), lambda: recorded_settings(self.info)) as path:
            write_run(path, self.result, self.info)
        return Path(folder)

    def at(self, time: float | str) -> Moment[Result]:
        """Return the run at its first round at a time or later, from which it can be forked.

        Times are seconds, `3h` or `3:00:00`, or, in the replay of a log with dates, a date like `2026-03-04T14:00`.

        Raise InvalidInputError if the text is not a time, or the run ends earlier, was forked later or cannot be
        repeated.
        """
        # The two modules need each other: a fork of a moment is a result.
        from polluxsim.api.futures import Moment  # noqa: PLC0415

        return Moment(self, self.seconds(time))

    def why(self, job: str, time: float | str) -> str:
        """Return the state of a job at a time, as in `at`, and the reason for it, as `polluxsim why` prints them.

        Raise InvalidInputError if there is no such job, or the text is not a time.
        """
        return at(self, self.result.reason_records, find_job(self, job), self.seconds(time))

    def bound(
        self, metrics: Sequence[str] | None = None, *, time_limit: float = TIME_LIMIT, at_rounds: bool = False
    ) -> RunBound:
        """Return bounds on the best possible schedule, as `polluxsim bound` prints them.

        For a run that was read from a folder, they are stored there as well.

        Parameters
        ----------
        metrics
            Metrics to bound, like `avg_jct`; by default all that have a bound.
        time_limit
            Longest search for prices [s].
        at_rounds
            Whether to return also tighter bounds, for schedules in which jobs start at rounds only.

        Raises
        ------
        InvalidConfigError
            If a metric has no bound.
        InvalidInputError
            If the jobs of the run cannot be loaded again.

        Examples
        --------
        >>> import polluxsim
        >>> run = polluxsim.simulate(policy="srsf", workload="philly-like-rigid", progress=False)
        >>> bound = run.bound(["avg_jct"], time_limit=1.0)
        >>> bound.metrics["avg_jct"].value <= run.metrics.avg_jct
        True
        """
        from polluxsim.run.bounds import BoundRequest, bounds_of_runs, store  # noqa: PLC0415  (few scripts need it)

        request = BoundRequest(METRICS if metrics is None else metrics, time_limit, at_rounds)
        (bound,) = bounds_of_runs([self], request)
        store(self, bound)
        return bound

    def plot(self, kind: str, **options: object) -> Drawing:
        """Draw a figure, as `polluxsim plot KIND` with its options by name: `run.plot("usage", bin=10)`.

        A notebook displays the figure. Its `axes` can be changed, and `save(path)` writes it to a file.

        Raise InvalidConfigError for an unknown kind or an invalid option, and InvalidInputError if the run lacks the
        data of the figure.
        """
        return figure_of(kind, FigureSubject(runs=[self]), options)

    def report(self, path: str | PathLike[str] = "report.html") -> Path:
        """Write the run as one interactive HTML file, as `polluxsim report` does, and return its path."""
        return _report([self], path)

    def __repr__(self) -> str:
        if self.metrics is None:
            return f"Result({self.name!r}, no jobs)"
        mean = self.metrics.avg_jct
        jct = "–" if mean is None else f"{mean / HOUR:.3f} h"  # no job completed or was cut off
        return f"Result({self.name!r}, {self.metrics.num_jobs} jobs, average JCT {jct})"

    def _repr_html_(self) -> str:
        if self.metrics is None:
            return "<p>a run without jobs</p>"
        table = SideBySide(
            {self.name: self.metrics},
            [steady_gpus(self)],
            user_values=[values_in(self.info)],
            losses=loss_noun([self]),
        )
        return table.html() + crowd_html(self.result.round_records)


def read(folder: str | PathLike[str], *, allow_classes: Sequence[str] = ()) -> Result:
    """Read a finished run of `polluxsim run` or `Result.save`.

    Parameters
    ----------
    folder
        The run's folder.
    allow_classes
        Modules outside polluxsim whose classes may be loaded. Only `Result.at` loads the classes that the settings of
        the run name, because it repeats the run.

    Raises
    ------
    InvalidInputError
        If the folder does not hold a finished run.
    """
    run = read_run(Path(folder))
    # Older versions wrote runs without reasons.
    reasons = read_reasons(Path(folder)) or ()
    result = replace(run.result, timing_records=read_timings(Path(folder)), reason_records=reasons)
    return Result(run.name, run.info, result, tuple(allow_classes), run.folder)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several runs, compared in a table. `summary` returns the table as a DataFrame.

    Parameters
    ----------
    runs
        Runs by name. The first run is the baseline.
    """

    runs: Mapping[str, Run]

    @cached_property
    def metrics(self) -> dict[str, Summary]:
        """Return the metrics of each run. Raise InvalidInputError if no metric counts a job of a run."""
        summaries = {}
        for name, run in self.runs.items():
            replace(run, name=name).must_have_metrics()  # its error has the name that the caller gave
            summary = summarise(run.result)
            if summary is not None:
                summaries[name] = summary
        return summaries

    def _side_by_side(self) -> SideBySide:
        """Return the table of the runs. Raise InvalidInputError as `metrics`."""
        runs = self.runs.values()
        gpus = [steady_gpus(run) for run in runs]
        # Each run is compared with the first run of the same jobs.
        bases = first_of_same_jobs([run.result for run in runs])
        user_values = [values_in(run.info) for run in runs]
        return SideBySide(self.metrics, gpus, bases, user_values, losses=loss_noun(runs))

    def summary(self) -> pd.DataFrame:
        """Return a table with a row for each run.

        The columns are the fields of `Summary` with its units [s; GPU h], names of jobs as their number, the mean JCT
        of each application as `jct_by_application.NAME`, and the user's metrics. Raise InvalidInputError if no metric
        counts a job of a run.
        """
        rows = {}
        for name, summary in self.metrics.items():
            user_metrics = values_in(self.runs[name].info)
            values_by_name = {metric: value for metric, (_, value) in user_metrics.items()}
            rows[name] = columns_of(summary) | values_by_name
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")

    def changes(self, by: str | None = None) -> pd.DataFrame:
        """Return the change of each setting against that of the first run, as `polluxsim compare` prints it.

        The table has a row for each setting and metric: the baseline, the ratio of geometric means over pairs minus 1,
        its 95 % interval (nan for fewer than three pairs), and the number of pairs. Runs of the same workload and seed
        are a pair. `by` is the setting to compare, like `policy`; by default all settings are compared. Raise
        InvalidInputError if the runs have only one setting, or not the setting `by`.
        """
        return frame_of_comparisons(compared(tuple(self.runs.values()), by))

    def report(self, path: str | PathLike[str] = "report.html") -> Path:
        """Write the runs as one interactive HTML file, as `polluxsim report` does, and return its path."""
        return _report(list(self.runs.values()), path)

    def plot(self, kind: str, **options: object) -> Drawing:
        """Draw a figure of the runs, as `polluxsim plot KIND` with its options by name."""
        return figure_of(kind, FigureSubject(runs=tuple(self.runs.values()), names=tuple(self.runs)), options)

    def __repr__(self) -> str:
        from rich.console import Console  # noqa: PLC0415  (a notebook never prints)

        screen = Console(highlight=False, width=120)
        with screen.capture() as captured:
            screen.print(self._side_by_side())
        return captured.get().rstrip()

    def _repr_html_(self) -> str:
        return self._side_by_side().html()


def _report(runs: Sequence[Run], path: str | PathLike[str]) -> Path:
    """Write the report of runs as one HTML file, and return its path."""
    from polluxsim.look.report.page import subject_of, write_subjects  # noqa: PLC0415  (few scripts need it)

    write_subjects([subject_of(run, run.result.reason_records) for run in runs], Path(path))
    return Path(path)


def compare(runs: Mapping[str, Run | Records], baseline: str | None = None) -> Comparison:
    """Compare runs.

    Parameters
    ----------
    runs
        Results of `simulate`, of `read`, or of the method `result` of a run that was stepped by hand, by name.
    baseline
        Name of the baseline. The default is the first run.

    Raises
    ------
    InvalidInputError
        If there is no run, or the baseline is not the name of a run.
    TypeError
        If the runs are not given by name, or one of them is no result.

    Examples
    --------
    >>> import polluxsim
    >>> runs = {name: polluxsim.simulate(policy=name, progress=False) for name in ("fifo", "tiresias")}
    >>> table = polluxsim.compare(runs).summary()
    >>> bool(table.avg_jct["tiresias"] < table.avg_jct["fifo"])
    True
    """
    if not isinstance(runs, Mapping):
        raise TypeError(f"compare takes runs by name, {{'fifo': result, ...}}, not {type(runs).__name__}")
    if not runs:
        raise InvalidInputError("there is no run to compare; give runs by name, {'fifo': result, ...}")
    runs_by_name = {name: _as_run(name, run) for name, run in runs.items()}
    if baseline is None:
        return Comparison(runs_by_name)
    if baseline not in runs_by_name:
        raise InvalidInputError(f"no run is the baseline {baseline!r}; give one of {', '.join(runs_by_name)}")
    # The first run is the baseline. A mapping keeps the place of its first entry of a name.
    return Comparison({baseline: runs_by_name[baseline], **runs_by_name})


def _as_run(name: str, given: object) -> Run:
    """Return a run. The records of a run that was stepped by hand become a run that states no settings.

    Raise TypeError if the value is neither a run nor the records of one.
    """
    if isinstance(given, Run):
        return given
    if isinstance(given, Records):
        return Result(name, {}, given)
    problem = f"compare takes results, and {name!r} is of type {type(given).__name__}"
    # `start` returns a simulation, which is easily taken for its result.
    if isinstance(given, Simulation):
        raise TypeError(f"{problem}; step it to its end, and pass its result()")
    raise TypeError(f"{problem}; pass what simulate, read or the result() of a run returns")
