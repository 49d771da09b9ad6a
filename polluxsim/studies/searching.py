"""Search for the settings with the best metric: Optuna proposes the runs of a sweep, a few at a time.

Optuna learns the metrics of its trials in the order in which it proposed them, and its samplers have a seed. So the
same command proposes the same trials, and an interrupted search continues with the first run that is not finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from polluxsim.common.errors import InvalidConfigError, SweepError, did_you_mean
from polluxsim.common.files import atomic_write
from polluxsim.records.folders import info_of
from polluxsim.run.interrupt import SweepInterrupted
from polluxsim.run.spec import Choices, Interval, RunSpec, Search, SearchedRuns
from polluxsim.statistics.metric_lines import METRICS
from polluxsim.studies.driver import (
    DATASET,
    TIMING,
    CompletedSweep,
    complete_sweep,
    make_missing,
    reserved,
    result_row,
)
from polluxsim.studies.launching import RunWorkers
from polluxsim.studies.plan import Entry, arranged, clear_runs, copy_run, entry_of, finished_runs

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import Trial

BEST = "optimization_results.yaml"  # file of the best trial, with the names that Hydra's sweeper of Optuna gives
SAMPLERS = "optuna.samplers."  # the module of samplers


@dataclass(frozen=True)
class BestTrial:
    """The best trial of a search."""

    overrides: Mapping[str, str]  # values that the search chose, by setting
    value: float  # of the metric
    num_equal: int  # number of trials with this value
    num_trials: int


def search_runs(searched: SearchedRuns, workers: RunWorkers) -> tuple[CompletedSweep, BestTrial]:
    """Make the trials of a search that are not finished; return all of them, and the best one.

    The folder of the search gets the table of the trials, and a file with the best one. Raise InvalidConfigError if
    Optuna is not installed or a setting is unknown, and SweepError if a run fails or has no value of the metric.
    """
    study = _new_study(searched.search)
    folder = searched.place.folder
    cache = None if searched.place.cache is None else Path(searched.place.cache)
    with reserved(folder):
        trials = _Trials(searched, workers, cache)
        try:
            while len(trials.entries) < searched.search.num_trials:
                trials.make_group(study)
        except KeyboardInterrupt:
            clear_runs(entry.folder for entry in trials.entries)  # the workers have ended
            counts = f"{trials.num_told} of {searched.search.num_trials}"
            message = f"interrupted, {counts} runs are finished and kept; the same command continues"
            raise SweepInterrupted(message) from None
        sweep = complete_sweep(trials.entries, folder, workers, cache)
        best = _best_of(study)
        _write_best(best, study, folder)
    return sweep._replace(done=trials.num_made), best


class _Trials:
    """The trials of a search so far.

    The folder and the cache are read once, at the start, so that the time of a group of trials does not grow with their
    number. The table of all trials is written when the last one is finished.
    """

    def __init__(self, searched: SearchedRuns, workers: RunWorkers, cache: Path | None) -> None:
        self.entries: list[Entry] = []  # in the order of their proposals
        self.num_made = 0  # number of runs made now; all other ones were finished before
        self.num_told = 0  # number of trials whose metrics the study knows
        self._searched = searched
        self._workers = workers
        self._finished = finished_runs(searched.place.folder)  # folders by key
        self._cached: Mapping[str, Path] = {}
        if cache is not None and cache.is_dir():
            self._cached = finished_runs(cache)
        for name in (DATASET, TIMING):  # a table exists only if its sweep is complete
            (searched.place.folder / name).unlink(missing_ok=True)

    def make_group(self, study: Study) -> None:
        """Make the runs that a study proposes next, and tell it their metrics in the order of the proposals."""
        search = self._searched.search
        distributions = {name: _distribution(values) for name, values in self._searched.space.items()}
        num_proposed = min(search.num_at_once, search.num_trials - len(self.entries))
        trials = [study.ask(distributions) for _ in range(num_proposed)]
        # The fixed settings go first, as on a command line.
        combined = [[*self._searched.fixed, *_overrides_of(trial)] for trial in trials]
        planned = self._searched.plan(combined)
        _check_metric(search.metric, planned[0].spec)
        place = self._searched.place.folder
        proposed = [entry_of(run.overrides, run.spec, place, run.subfolder) for run in planned]
        self.entries += proposed
        self._make_missing(proposed)
        for trial, entry in zip(trials, proposed, strict=True):
            study.tell(trial, _metric_of(entry, self._finished[entry.key], search.metric))
            self.num_told += 1

    def _make_missing(self, proposed: Sequence[Entry]) -> None:
        """Make the proposed runs that are not in the folder of the search; copy those that are in the cache."""
        missing = []
        for entry in arranged(proposed, self._finished):
            if entry.key in self._finished:
                continue
            clear_runs([entry.folder])  # what a killed search may have left
            if entry.key in self._cached:
                copy_run(self._cached[entry.key], entry.folder)
            else:
                missing.append(entry)
            self._finished[entry.key] = entry.folder
        if missing:
            make_missing(missing, self._workers, len(self.entries) - len(missing))
            self.num_made += len(missing)


def _best_of(study: Study) -> BestTrial:
    """Return the best trial of a study; the first one of several."""
    trials = study.get_trials(deepcopy=False)
    num_equal = [trial.value for trial in trials].count(study.best_value)
    overrides = {name: str(value) for name, value in study.best_params.items()}
    return BestTrial(overrides, study.best_value, num_equal, len(trials))


def _new_study(search: Search) -> Study:
    """Return a study of Optuna without trials. Raise InvalidConfigError without Optuna, or if a setting is unknown."""
    try:
        import optuna  # noqa: PLC0415  (installed for searches only)
    except ImportError as error:
        raise InvalidConfigError(
            "hydra/sweeper=optuna is not installed; run pip install 'polluxsim[optuna]'"
        ) from error
    # Optuna would print a line for each trial between those of the progress.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=_sampler(search.sampler), direction=search.direction)


def _sampler(settings: Mapping[str, Any]) -> BaseSampler:
    """Return the sampler of Optuna that settings describe; raise InvalidConfigError if they describe none."""
    from optuna import samplers  # noqa: PLC0415

    parameters = dict(settings)
    target = str(parameters.pop("_target_", None))
    sampler_class: Any = None
    # Only classes of this module, because the settings may come from a file of somebody else.
    if target.startswith(SAMPLERS):
        sampler_class = getattr(samplers, target.removeprefix(SAMPLERS), None)
    if not (isinstance(sampler_class, type) and issubclass(sampler_class, samplers.BaseSampler)):
        raise InvalidConfigError(
            f"hydra.sweeper.sampler._target_ is {target}, must be a sampler of Optuna like {SAMPLERS}TPESampler"
        )
    try:
        sampler: BaseSampler = sampler_class(**parameters)
    except (TypeError, ValueError, ImportError) as error:
        raise InvalidConfigError(f"hydra.sweeper.sampler: {' '.join(str(error).split())}") from error
    return sampler


def _distribution(values: Choices | Interval) -> BaseDistribution:
    """Return the values of a setting as Optuna describes them."""
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(values, Choices):
        return CategoricalDistribution(values.texts)
    if values.is_whole:
        return IntDistribution(int(values.low), int(values.high), log=values.is_logarithmic)
    return FloatDistribution(values.low, values.high, log=values.is_logarithmic)


def _overrides_of(trial: Trial) -> list[str]:
    """Return the values of a trial as overrides."""
    return [f"{name}={value}" for name, value in trial.params.items()]


def _check_metric(metric: str, spec: RunSpec) -> None:
    """Raise InvalidConfigError if no run has a metric of this name, which may end with a dot and an application."""
    names = {*METRICS, *(spec.config.get("metrics") or {})}
    if metric not in names and metric.partition(".")[0] not in names:
        raise InvalidConfigError(
            f"hydra.sweeper.metric is {metric!r}, must be a metric like avg_jct, p99_jct, makespan or gpu_hours"
            f"{did_you_mean(metric, names)}"
        )


def _metric_of(entry: Entry, folder: Path, metric: str) -> float:
    """Return the metric of a finished run in a folder. Raise SweepError if the run has no value of it."""
    row = result_row(replace(entry, folder=folder), folder, info_of(folder))
    value = row.get(metric)
    if value is None or isnan(value):
        raise SweepError(f"{entry}: the run has no {metric}, so that the search cannot compare it with others")
    return float(value)


def _write_best(best: BestTrial, study: Study, folder: Path) -> None:
    """Write the file of the best trial."""
    content = {"name": "optuna", "best_params": dict(study.best_params), "best_value": best.value}
    with atomic_write(folder / BEST) as temporary:
        temporary.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
