"""`polluxsim when`: when jobs that wait or run at a time may start and complete."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli.finished_run import add_allowing, read_to_make_again, tell_classes
from polluxsim.durations import instant
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    import pandas as pd

    from polluxsim.storage import Run

MOMENTS = 8


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Say when jobs that wait or run at a time may start and complete: the median, and an interval that holds with "
        "80 %, of futures in which all that was not known then is drawn anew. Arrivals, and durations of jobs without "
        "a profile, come from the run's past, failures from their rates; a job with a profile does its profile's work."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="names of jobs (default: all that wait or run)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--at", metavar="TIME", help="when: seconds since the start, 1.5h or H:MM:SS")
    what.add_argument("--calibrate", type=int, nargs="?", const=MOMENTS, metavar="N",
                      help="say instead how often intervals hold that are said at N times of the run "
                      "(default: %(const)s)")  # fmt: skip
    parser.add_argument("--forks", type=int, default=29, metavar="N", help="futures to draw (default: %(default)s)")
    forms = parser.add_mutually_exclusive_group()
    for form, words in {"csv": "CSV, in seconds", "json": "JSON, in seconds"}.items():
        forms.add_argument(f"--{form}", action="store_const", const=form, dest="form", help=f"write {words}")
    add_allowing(parser)
    parser.set_defaults(action=_when)


def _when(options: Namespace) -> None:
    run = read_to_make_again(options)
    tell_classes(run)
    if options.calibrate is None:
        _tell(_found(run, options), options.form)
    else:
        _calibrate(run, options)


def _found(run: Run, options: Namespace) -> pd.DataFrame:
    from polluxsim.run.moment import Moment
    from polluxsim.run.outlook import as_frame, outlooks
    from polluxsim.run.workers import num_cores

    moment, told = Moment(run, instant(options.at)), _progress("futures", options.forks)
    found = outlooks(moment, options.jobs or None, options.forks, told, num_cores())
    return as_frame(found, moment.time)


def _tell(frame: pd.DataFrame, form: str | None) -> None:
    from rich.table import Table

    from polluxsim.durations import clock
    from polluxsim.look.console import console

    if form == "csv":
        print(frame.to_csv(index=False), end="")
    elif form == "json":
        print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))
    else:
        table = Table(title=f"at {clock(frame.attrs['time'])}", title_justify="left")
        headings = ("job", "", "starts", "80 % interval", "completes", "80 % interval")
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="left" if number < 2 else "right")
        for row in frame.to_dict("records"):
            starts, ends = ([row[f"{what}_p{share}"] for share in (10, 50, 90)] for what in ("start", "completion"))
            waits = row["waits"]
            table.add_row(row["job"], "waits" if waits else "runs", *_cells(starts if waits else ()), *_cells(ends))
        console().print(table)


def _cells(times: Sequence[float]) -> tuple[str, str]:
    from polluxsim.durations import clock

    if not times:
        return "", ""
    low, median, high = (clock(time) if time < float("inf") else "> 3 days" for time in times)
    return median, f"{low} to {high}"


def _calibrate(run: Run, options: Namespace) -> None:
    from polluxsim.run.outlook import calibration
    from polluxsim.run.workers import num_cores

    if options.jobs or options.calibrate < 1:
        raise InvalidConfigError(f"--calibrate {options.calibrate}, allowed is a whole number ≥ 1, of all jobs")
    told = _progress("times", options.calibrate)
    for check in calibration(run, options.calibrate, options.forks, told, num_cores()):
        share = f", {check.held / check.uncertain:.0%}" if check.uncertain else ""
        print(f"{check.what}: {check.held} of {check.uncertain} in their 80 % interval{share}; "
              f"{check.known} the same in every future")  # fmt: skip


def _progress(what: str, number: int) -> Callable[[int], None]:
    """Return what tells how far it is, with the time left, on a terminal."""
    from time import monotonic

    from polluxsim.durations import length

    started = monotonic()

    def told(done: int) -> None:
        left = (monotonic() - started) / done * (number - done)
        print(f"\r{done} of {number} {what}, {length(left)} left\x1b[K", end="", file=sys.stderr, flush=True)
        if done == number:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return told if sys.stderr.isatty() else lambda done: None
