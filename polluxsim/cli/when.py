"""`polluxsim when`: forecast when the jobs of a run start and complete. `polluxsim.cli.site` forecasts a queue."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.options import RUN, add_forms, add_option, path
from polluxsim.cli.past_run import check_classes_of, read_past_run
from polluxsim.common.durations import clock
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.records.storage import Run

if TYPE_CHECKING:
    import pandas as pd

    from polluxsim.run.resampling import FutureArrivals

PERCENTILES = (10, 50, 90)  # of the forecast times: the interval contains 80 % of them


def add_when(parser: ArgumentParser) -> None:
    parser.description = (
        "Forecast when waiting and running jobs start and complete. The forecast is a median and an 80 % interval over "
        "futures in which everything that was unknown at the time is drawn again. Durations of jobs without a profile "
        "are drawn from the jobs that completed before. Failures are drawn from their rates. The work of a job with a "
        "profile is known. In place of a run, QUEUE is the present state of a real cluster: the output of squeue, "
        "kubectl get pods or kubectl get workloads. --site has its nodes, and --history its log. Without --history, "
        "each job runs until its time limit, and no further jobs arrive."
    )
    parser.epilog = (
        "Example: polluxsim when RUN --at 3h\n"
        "Example: polluxsim when squeue.txt --site nodes.txt --history log.parquet policy=multifactor"
    )
    parser.add_argument("run", type=path, metavar="RUN|QUEUE", help=f"{RUN}, or the output of squeue or kubectl")
    parser.add_argument("names", nargs="*", metavar="JOB|KEY=VALUE",
                        help="names of jobs (default: all; of a queue, those that wait), and settings of a queue, as "
                        "policy=fifo (default: policy=easy)")  # fmt: skip
    add_option(parser, "at", note="the time of the forecast from a run")
    add_option(parser, "arrivals", default="recent")
    add_option(parser, "forks", default=29)
    add_option(parser, "site")
    add_option(parser, "history", note="a log from 'polluxsim log import'")
    add_option(parser, "taken")
    add_option(parser, "time-zone", note="for a queue")
    add_forms(parser, "csv", "json")
    add_option(parser, "allow-classes", default=[])
    parser.set_defaults(action=_when)


def _when(options: Namespace) -> None:
    """Print the forecasts of a run or of a queue."""
    # A file is the output of squeue or kubectl; a run is a folder.
    if options.run.is_file():
        from polluxsim.cli.site import forecast_queue

        forecast_queue(options, arrivals_of(options.arrivals))
        return
    if not options.run.exists():
        raise InvalidInputError(f"{options.run}: no such run or queue; check the path")
    _check_options_of_run(options)
    run = read_past_run(options.run, options.allow_classes)
    time = run.seconds(options.at)
    check_classes_of(run)
    frame = _forecast(run, time, options)
    _print_forecast(run, frame, options.form)


def _check_options_of_run(options: Namespace) -> None:
    """Raise InvalidConfigError if an option is missing, or has no effect on a forecast from a run."""
    for option in ("site", "history", "taken", "time-zone"):
        if getattr(options, option.replace("-", "_")):
            raise InvalidConfigError(f"--{option} needs a queue, the output of squeue or kubectl; leave it out")
    for word in options.names:
        if "=" in word:
            raise InvalidConfigError(f"{word} cannot be changed in a forecast from a run; use polluxsim whatif")
    if options.at is None:
        raise InvalidConfigError("--at is missing; give the time of the forecast as --at TIME")


def arrivals_of(name: str) -> FutureArrivals:
    """Return the arrivals that a forecast assumes: none, recent ones, or the jobs of the workload file `name`."""
    from polluxsim.run.resampling import NONE, RECENT, FutureArrivals
    from polluxsim.workloads.workload import read_workload

    if name in (NONE, RECENT):
        return FutureArrivals(name)
    return FutureArrivals(name, read_workload(Path(name)).jobs)


def _forecast(run: Run, time: float, options: Namespace) -> pd.DataFrame:
    """Return the forecasts of jobs at a time [s] of a run, and show the progress.

    `attrs["left_out"]` of the frame is a sentence on the jobs without a forecast; "" if jobs are named.
    """
    from polluxsim.common.progress_line import progress_line
    from polluxsim.run.forecasts import forecast, forecast_frame
    from polluxsim.run.moment import RunMoment
    from polluxsim.run.workers import num_cores

    arrivals = arrivals_of(options.arrivals)
    moment = RunMoment(run, time)
    jobs = options.names or None
    num_futures = options.forks
    with progress_line("futures", num_futures) as show:

        def report(done: int) -> None:
            show(done, num_futures, "")

        forecasts = forecast(moment, jobs, num_futures, report, num_cores(), arrivals)
    frame = forecast_frame(forecasts)
    frame.attrs["left_out"] = ""
    if jobs is None:
        frame.attrs["left_out"] = _not_forecast(run, moment.time, len(frame))
    return frame


def _not_forecast(run: Run, time: float, num_forecast: int) -> str:
    """Return a sentence on the jobs of a run without a forecast at a time [s]; "" if there are none."""
    from polluxsim.metrics.outcomes import counts_in_words

    records = run.result.job_records
    later = sum(job.submit_time > time for job in records)
    # A job that is in the forecast neither ended before nor is submitted later.
    ended = len(records) - num_forecast - later
    counts = counts_in_words({"ended before": ended, "submitted later": later})
    if not counts:
        return ""
    return f"forecast: {num_forecast} of {len(records)} jobs of the run; the others: {counts}"


def _print_forecast(run: Run, frame: pd.DataFrame, form: str | None) -> None:
    """Print the forecasts; beside CSV and JSON, the assumed arrivals go to standard error."""
    if form == "csv":
        print(frame.to_csv(index=False), end="")
    elif form == "json":
        # `to_json` writes ∞ as null, and only `json.dumps` indents as other commands do.
        print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))
    else:
        _print_table(run, frame)
        if frame.attrs["left_out"]:
            print(frame.attrs["left_out"])
    # A program that reads the table must not meet a sentence in it.
    stream = sys.stdout if form is None else sys.stderr
    print(frame.attrs["arrivals"], file=stream)


def _print_table(run: Run, frame: pd.DataFrame) -> None:
    """Print the forecasts as a table for the terminal, with dates and weekdays if the run has dates."""
    from polluxsim.look.console import console
    from polluxsim.look.tables import boxed

    now = frame.attrs["time"]
    lines = [("job", "", "starts", "80 % interval", "completes", "80 % interval")]
    for row in frame.to_dict("records"):
        completions = [row[f"completion_p{percentile}"] for percentile in PERCENTILES]
        completes, completion_interval = _cells(run, completions, now)
        # A running job has started, so its forecast has no start.
        state = "runs"
        starts = ""
        start_interval = ""
        if row["waits"]:
            state = "waits"
            start_times = [row[f"start_p{percentile}"] for percentile in PERCENTILES]
            starts, start_interval = _cells(run, start_times, now)
        lines.append((row["job"], state, starts, start_interval, completes, completion_interval))
    console().print(boxed(lines, f"at {run.clock(now)}", names=2))


def _cells(run: Run, times: Sequence[float], now: float) -> tuple[str, str]:
    """Return the median and the interval of a time in words, from its 10 %, 50 % and 90 % quantiles [s].

    The times are dates if the run has dates, and clock times otherwise. The quantile of a time after the end of the
    futures is ∞ and has no number. The interval of a time that is equal in all futures is "exact".
    """
    low, median, high = times
    median_text = "unknown" if median == inf else _time_in_words(run, median, now)
    low_text = _time_in_words(run, low, now)  # never ∞: `forecast_frame` bounds this quantile
    if high == inf:
        return median_text, f"{low_text} or later"
    high_text = _time_in_words(run, high, now)
    # The texts are compared, not the times: an interval below a second would read "9:00:00 – 9:00:00".
    if low_text == high_text:
        return median_text, "exact"
    return median_text, f"{low_text} – {high_text}"


def _time_in_words(run: Run, time: float, now: float) -> str:
    """Return a time of the run [s]: its date, shorter on the day of `now` [s], or its clock time without dates."""
    from polluxsim.common.dates import short_date

    origin = run.origin
    if origin is None:
        return clock(time)
    return short_date(origin.date(round(time)), origin.date(now))
