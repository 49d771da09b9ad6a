"""`polluxsim bound`: how far finished runs are from the best possible schedule."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.cli.options import DATASET, add_forms, add_option, add_runs

if TYPE_CHECKING:
    from polluxsim.records.bounds import MetricBound, RunBound
    from polluxsim.records.storage import Run

NO = 1  # exit status if a run is better than its bound


def add_bound(parser: ArgumentParser) -> None:
    parser.description = (
        "Compute numbers that no schedule of the same jobs on the same GPUs can beat: lower bounds on the mean JCT and "
        "the makespan, and an upper bound on the deadlines met. The gap is the distance of a run from such a number. "
        "The bounds are stored in the folders of the runs, where 'table', 'compare' and 'report' find them. Runs of "
        "one workload, cluster and seed share their bounds."
    )
    parser.epilog = "Example: polluxsim bound RUN --metric avg_jct --at-rounds"
    add_runs(parser, DATASET)
    add_option(parser, "metric", note="(default: all metrics with a bound)")
    add_option(parser, "time-limit", note="(default: 30s)")
    add_option(parser, "at-rounds")
    add_option(parser, "allow-classes", default=[])
    add_forms(parser, "csv", "json")
    parser.set_defaults(action=_bound)


def _bound(options: Namespace) -> int:
    from polluxsim.common.progress_line import progress_line
    from polluxsim.run.bounds import BoundRequest, bounds_of_runs, store
    from polluxsim.statistics.bounds.bounding import METRICS, TIME_LIMIT

    request = BoundRequest(options.metric or METRICS, options.time_limit or TIME_LIMIT, options.at_rounds)
    runs = _runs(options.runs, options.allow_classes)
    with progress_line("bounds", len(runs)) as show_progress:

        def show(number: int, count: int) -> None:
            show_progress(number - 1, count, "")

        bounds = bounds_of_runs(runs, request, show)
    for run, bound in zip(runs, bounds, strict=True):
        store(run, bound)
    if options.form == "json":
        print(json.dumps([_as_json(run, bound) for run, bound in zip(runs, bounds, strict=True)], indent=2))
    elif options.form == "csv":
        _print_csv(runs, bounds)
    else:
        _print_table(runs, bounds)
    return _report_broken(runs, bounds)


def _runs(folders: Sequence[Path], modules: Sequence[str]) -> list[Run]:
    """Return the finished runs in folders of runs and sweeps, and in tables of sweeps. Each run has jobs."""
    from polluxsim.cli.past_run import read_past_run
    from polluxsim.records.folders import run_folders, runs_in_table, without_sweep_files
    from polluxsim.statistics.frames import PARQUET

    of_runs: list[Path] = []
    for path in without_sweep_files(folders):
        of_runs += runs_in_table(path) if path.suffix == PARQUET else run_folders([path])
    runs = [read_past_run(folder, modules) for folder in of_runs]
    for run in runs:
        run.must_have_metrics()
    return runs


def _print_table(runs: Sequence[Run], bounds: Sequence[RunBound]) -> None:
    """Print the bounds of runs as a table, and the sentences on what they do not cover."""
    from polluxsim.look.best_possible import bounds_table
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import distinct_names

    names = distinct_names(runs)
    bounds_by_name = {name: [bound] for name, bound in zip(names, bounds, strict=True)}
    table = bounds_table(bounds_by_name, is_named=len(runs) > 1)
    if table is not None:
        console().print(table)
    sentences: dict[str, list[str]] = {}
    for name, bound in zip(names, bounds, strict=True):
        for sentence in bound.sentences:
            sentences.setdefault(sentence, []).append(name)
    for sentence, named in sentences.items():
        print(sentence if len(named) == len(runs) else f"{', '.join(named)}: {sentence}")


def _as_json(run: Run, bound: RunBound) -> dict[str, Any]:
    """Return the bounds of a run as plain values; times are in seconds."""
    metrics = {}
    for name, of_metric in bound.metrics.items():
        metrics[name] = _metric_as_json(of_metric, bound.values.get(name))
    at_rounds = {}
    for name, of_metric in bound.at_rounds.items():
        at_rounds[name] = _metric_as_json(of_metric, bound.values.get(name))
    return {"run": run.name, "metrics": metrics, "at_rounds": at_rounds, "sentences": list(bound.sentences)}


def _metric_as_json(bound: MetricBound, value: float | None) -> dict[str, Any]:
    return {
        "value": value,
        "bound": bound.value,
        "is_upper": bound.is_upper,
        "gap": None if value is None else bound.gap(value),
        "part": bound.part,
        "parts": dict(bound.parts),
    }


def _print_csv(runs: Sequence[Run], bounds: Sequence[RunBound]) -> None:
    """Print a row for each run and metric; the sentences go to standard error."""
    import pandas as pd

    rows = []
    for run, bound in zip(runs, bounds, strict=True):
        for start, of_metrics in (("any time", bound.metrics), ("rounds", bound.at_rounds)):
            for name, of_metric in of_metrics.items():
                about = _metric_as_json(of_metric, bound.values.get(name))
                del about["parts"]
                rows.append({"run": run.name, "metric": name, "starts_at": start, **about})
    columns = ["run", "metric", "starts_at", "value", "bound", "is_upper", "gap", "part"]
    print(pd.DataFrame(rows, columns=columns).to_csv(index=False), end="")
    for sentence in dict.fromkeys(sentence for bound in bounds for sentence in bound.sentences):
        print(sentence, file=sys.stderr)


def _report_broken(runs: Sequence[Run], bounds: Sequence[RunBound]) -> int:
    """Print a line for each run that is better than its bound, and return the exit status."""
    status = 0
    for run, bound in zip(runs, bounds, strict=True):
        if bound.broken:
            metrics = ", ".join(bound.broken)
            print(
                f"polluxsim: {run.name} is better than its bound ({metrics}), which no schedule can be: polluxsim, or "
                "a profile of the run, has a defect; please report it",
                file=sys.stderr,
            )
            status = NO
    return status
