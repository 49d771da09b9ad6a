"""Sweeps: simulate every combination of settings, and show tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd

from polluxsim.api.parts import AgentLike, ClusterLike, PolicyLike, ProfilesLike, SettingsLike, WorkloadLike
from polluxsim.api.results import Result, figure_of, read
from polluxsim.api.simulating import check, counting, simulate, stated
from polluxsim.common.errors import InvalidConfigError
from polluxsim.look.plot.kinds import FigureSubject
from polluxsim.look.plot.style import Drawing
from polluxsim.look.settings_frames import as_csv, frame_of_settings
from polluxsim.look.settings_tables import as_html, as_latex, as_markdown, as_text
from polluxsim.metrics.declared import Metric
from polluxsim.records.folders import SWEEP_FILE, run_folders
from polluxsim.run.swept_values import MOST_RUNS, check_size
from polluxsim.statistics.comparisons import SettingsTable, settings_table
from polluxsim.statistics.frames import PARQUET, frame_at, frame_of
from polluxsim.studies.driver import frame_of_entries
from polluxsim.studies.plan import entry_of


class PlannedRun(NamedTuple):
    """A run of a sweep."""

    arguments: Mapping[str, Any]  # arguments of `simulate` without metrics and seed, by name
    seed: int


@dataclass(frozen=True, repr=False)
class Table:
    """Table of settings and metrics: means over replications, and changes over pairs, with 95 % intervals."""

    settings: SettingsTable

    def frame(self) -> pd.DataFrame:
        """Return the numbers: a row for each setting, and for each metric columns like its mean and its change."""
        return frame_of_settings(self.settings)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        return as_markdown(self.settings)

    def latex(self) -> str:
        """Return the table as LaTeX."""
        return as_latex(self.settings)

    def csv(self) -> str:
        """Return the table as CSV, with a column for each number."""
        return as_csv(self.settings)

    def __repr__(self) -> str:
        return as_text(self.settings)

    def _repr_html_(self) -> str:
        return as_html(self.settings)


@dataclass(frozen=True, repr=False)
class Sweep:
    """Runs of several settings, replicated by seeds and workloads.

    Parameters
    ----------
    frame
        A row for each run: settings by their path, like `policy.p`, and the metrics of `Summary`.
    subject
        The runs, or their folder.
    """

    frame: pd.DataFrame
    subject: FigureSubject

    @property
    def runs(self) -> Sequence[Result]:
        """Return the runs. Runs that are not in memory are read from their folders at each call.

        Raise InvalidInputError if a folder does not hold a finished run.
        """
        if self.subject.runs:
            return [Result(run.name, run.info, run.result, run.allow_classes, run.folder) for run in self.subject.runs]
        return [read(path) for path in self.subject.paths]

    def table(self, metrics: Sequence[str] = (), baseline: str | None = None) -> Table:
        """Return means and changes by setting, as `polluxsim table` prints them.

        Parameters
        ----------
        metrics
            Columns of `frame`. The defaults are those of `polluxsim.statistics.comparisons.SHOWN` and your own metrics,
            as far as a run has a value.
        baseline
            Baseline: a setting like `policy.p=-1` or `policy=pollux`, a row of the table, or the folder of a run. The
            default is the setting of the first run.

        Raises
        ------
        InvalidInputError
            If a column is missing or not a number, or no run is the baseline.
        """
        return Table(settings_table(self.frame, metrics, baseline))

    def plot(self, kind: str = "sweep", **options: object) -> Drawing:
        """Draw a figure of the sweep, as `polluxsim plot KIND` with its options by name; `y` is the metric.

        Raises
        ------
        InvalidConfigError
            If the kind or an option is unknown or invalid. The kind `sweep` needs `x`.
        InvalidInputError
            If the runs lack the data of the figure.

        Examples
        --------
        `sweep.plot(x="policy.p", y="p99_fairness")`, `sweep.plot("jct-cdf")`
        """
        return figure_of(kind, self.subject, options)

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def sweep(  # noqa: PLR0913  (the parts of a run, and how the sweep is made)
    workload: WorkloadLike | list[WorkloadLike] | None = None,
    *,
    policy: PolicyLike | list[PolicyLike] | None = None,
    agent: AgentLike | list[AgentLike] | None = None,
    cluster: ClusterLike | list[ClusterLike] | None = None,
    profiles: ProfilesLike | None = None,
    settings: SettingsLike | list[SettingsLike] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    seeds: Iterable[int] = (0,),
    folder: str | PathLike[str] | None = None,
    workers: int | None = None,
) -> Sweep:
    """Simulate every combination of the listed values with every seed.

    With a folder, the sweep is that of `polluxsim run -m`: several processes make the runs, and a second call makes
    only the runs that are missing. With `workers` and without a folder, several processes make the runs in a temporary
    folder. Without both, this process makes one run after another. It then takes any object, also a policy or a
    metric of a notebook, which another process cannot import.

    Parameters
    ----------
    workload, policy, agent, cluster, profiles, settings, metrics
        The arguments of `simulate`. All but profiles and metrics may be lists of arguments.
    seeds
        Seeds of each combination. A generated workload differs between seeds.
    folder
        Folder for the runs.
    workers
        Number of processes. With a folder, the default is one for each core. Several processes need parts that a
        configuration can describe: choices, files, and objects of classes that a worker can import. A script must call
        `sweep` under `if __name__ == "__main__":`.

    Raises
    ------
    PolluxSimError
        If an argument is invalid, a job does not fit, or no configuration can state a part for other processes.
    SweepError
        If runs in several processes failed. The other runs are complete and stay in `folder`, if it is given.

    Examples
    --------
    >>> import polluxsim
    >>> small = polluxsim.workload("philly-like", num_jobs=10, hours=1)
    >>> sweep = polluxsim.sweep(small, policy=["fifo", "tiresias"], seeds=range(2))
    >>> len(sweep.frame)
    4
    """
    parts = {"workload": workload, "policy": policy, "agent": agent, "cluster": cluster, "settings": settings}
    plan = _plan(parts, profiles, seeds)
    if folder is not None:
        return _in_folder(plan, Path(folder), workers, metrics)
    runs: Sequence[Result]
    if workers is not None:
        with TemporaryDirectory(prefix="polluxsim-sweep-") as temporary:
            # The runs are read before the folder is removed.
            runs = _in_folder(plan, Path(temporary), workers, metrics).runs
    else:
        runs = _one_after_another(plan, metrics)
    frame = frame_of(runs)
    return Sweep(frame, FigureSubject(runs=runs, frame=frame))


def _plan(parts: Mapping[str, object], profiles: ProfilesLike | None, seeds: Iterable[int]) -> list[PlannedRun]:
    """Return the runs of a sweep: all combinations of the listed values, each with every seed.

    Raise InvalidConfigError if a value is none of the allowed kinds, or there are no runs or too many.
    """
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        example = f"range({seeds}), or [{seeds}]" if isinstance(seeds, int) else "range(3)"
        raise InvalidConfigError(f"seeds is {seeds!r}, must be several seeds; write {example}")
    values_by_part: list[list[Any]] = []
    for name, value in parts.items():
        # A tuple of a cluster is one value: its numbers of nodes and of GPUs per node.
        if isinstance(value, tuple) and name != "cluster":
            raise InvalidConfigError(f"{name} is {value!r}, must be one value, or a list of values: {list(value)!r}")
        values_by_part.append(value if isinstance(value, list) else [value])
    # Seeds may be without end. One more than the largest number of runs is enough for the error.
    some_seeds = list(islice(seeds, MOST_RUNS + 1))
    check_size(prod(map(len, values_by_part)) * len(some_seeds))
    plan: list[PlannedRun] = []
    for combination in product(*values_by_part):
        for seed in some_seeds:
            arguments = dict(zip(parts, combination, strict=True))
            arguments["profiles"] = profiles
            plan.append(PlannedRun(arguments, seed))
    if not plan:
        raise InvalidConfigError("the sweep has no runs; give at least one value in each list, and at least one seed")
    return plan


def _one_after_another(plan: Sequence[PlannedRun], metrics: Mapping[str, Metric] | None) -> Sequence[Result]:
    """Make the runs of a sweep in this process, after a check of all settings with the first seed."""
    first_seed = plan[0].seed
    # An invalid value in the last run would otherwise be reported after all others were made. A single run reports its
    # own errors at once.
    if len(plan) > 1:
        for arguments, seed in plan:
            if seed == first_seed:
                check(seed, **arguments)
    runs = list[Result]()
    with counting(len(plan)) as done:
        for arguments, seed in plan:
            runs.append(simulate(**arguments, metrics=metrics, seed=seed, progress=False))
            done(len(runs))
    return runs


def _in_folder(
    plan: Sequence[PlannedRun], folder: Path, workers: int | None, metrics: Mapping[str, Metric] | None
) -> Sweep:
    """Make the missing runs of a sweep in a folder, in several processes, and return the sweep.

    Raise InvalidConfigError for metrics, and for a part that another process cannot make.
    """
    if metrics:
        problem = f"metrics has {next(iter(metrics))!r}, but a sweep in several processes cannot state an object"
        raise InvalidConfigError(
            f"{problem}; leave out folder and workers, or use metrics.NAME=MODULE.ATTRIBUTE of the command"
        )
    runs = [stated(arguments, seed) for arguments, seed in plan]
    frame_of_entries([entry_of(words, spec, folder) for spec, words in runs], folder, workers=workers, check_first=True)
    return read_sweep(folder)


def read_sweep(folder: str | PathLike[str]) -> Sweep:
    """Read a sweep from a folder of runs or a Parquet file. `runs` lacks runs whose folders are missing.

    Raises
    ------
    InvalidInputError
        If there is no finished run.
    """
    path = Path(folder)
    table = path if path.suffix == PARQUET else path / SWEEP_FILE
    if table.exists():
        # The table also has the runs whose folders were removed to save space.
        frame = frame_at([table])
        folders = [table.parent / str(name) for name in frame.get("folder", ())]
    else:
        frame = frame_at([path])
        folders = run_folders([path])
    present_folders = [run for run in folders if run.exists()]
    return Sweep(frame, FigureSubject(paths=present_folders, frame=frame))
