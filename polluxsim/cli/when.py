"""`polluxsim when`: forecast when jobs that wait or run at a time start and complete."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help
from polluxsim.cli.finished_run import add_allowing, read_to_make_again, tell_classes
from polluxsim.durations import instant, length
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    import pandas as pd

    from polluxsim.run.outlook import Check
    from polluxsim.run.redrawn import Arrivals
    from polluxsim.storage import Run

MOMENTS = 8


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Forecast when waiting and running jobs start and complete. The forecast is a median and an 80 % interval over "
        "futures in which everything that was unknown at the time is drawn again. Durations of jobs without a profile "
        "are drawn from the jobs that completed before. Failures are drawn from their rates. The work of a job with a "
        "profile is known."
    )
    parser.epilog = "Example: polluxsim when RUN --at 3h"
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="names of jobs (default: all waiting and running jobs)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--at", metavar="TIME", help=f"time of the forecast: {option_help.TIME}")
    what.add_argument("--calibrate", type=int, nargs="?", const=MOMENTS, metavar="N",
                      help="forecast at N times of the run, and print how many recorded times were inside their "
                      "intervals and how wide the intervals are (default: %(const)s)")  # fmt: skip
    parser.add_argument("--arrivals", default="recent", metavar="none|recent|FILE",
                        help="later jobs: none; drawn from the arrivals so far, during the same time and at most three "
                        "days; or the jobs of a workload file (default: %(default)s)",
                        )  # fmt: skip
    parser.add_argument("--forks", type=int, default=29, metavar="N",
                        help="number of futures to draw (default: %(default)s)")  # fmt: skip
    forms = parser.add_mutually_exclusive_group()
    for form, words in {"csv": "CSV, in seconds", "json": "JSON, in seconds"}.items():
        forms.add_argument(f"--{form}", action="store_const", const=form, dest="form", help=f"write {words}")
    add_allowing(parser)
    parser.set_defaults(action=_when)


def _when(options: Namespace) -> None:
    run = read_to_make_again(options)
    tell_classes(run)
    if options.calibrate is None:
        _print(_forecast(run, options), options.form)
    else:
        _calibrate(run, options)


def _arrivals(name: str) -> Arrivals:
    from polluxsim.run.redrawn import NONE, RECENT, Arrivals
    from polluxsim.workloads.workload import read_workload

    return Arrivals(name) if name in (NONE, RECENT) else Arrivals(name, read_workload(Path(name)).jobs)


def _forecast(run: Run, options: Namespace) -> pd.DataFrame:
    from polluxsim.run.moment import Moment
    from polluxsim.run.outlook import as_frame, forecast
    from polluxsim.run.workers import num_cores

    arrivals, told = _arrivals(options.arrivals), _progress("futures", options.forks)
    moment = Moment(run, instant(options.at))
    return as_frame(forecast(moment, options.jobs or None, options.forks, told, num_cores(), arrivals))


def _print(frame: pd.DataFrame, form: str | None) -> None:
    """Print the forecasts; beside CSV and JSON, the assumed arrivals go to standard error."""
    if form == "csv":
        print(frame.to_csv(index=False), end="")
    elif form == "json":
        print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))
    else:
        _print_table(frame)
    print(frame.attrs["arrivals"], file=sys.stderr if form else sys.stdout)


def _print_table(frame: pd.DataFrame) -> None:
    from rich.table import Table

    from polluxsim.durations import clock
    from polluxsim.look.console import console

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
    """Return the median and the interval in words; a time after the end of the futures has no number."""
    from polluxsim.durations import clock

    if not times:
        return "", ""
    low, median, high = (clock(time) if time < float("inf") else None for time in times)
    return median or "unknown", f"{low} to {high}" if high else f"{low} or later"


def _calibrate(run: Run, options: Namespace) -> None:
    from polluxsim.run.outlook import calibration, checks
    from polluxsim.run.workers import num_cores

    if options.jobs:
        raise InvalidConfigError(f"--calibrate takes all jobs; leave out {options.jobs[0]!r}")
    if options.calibrate < 1:
        raise InvalidConfigError(f"--calibrate is {options.calibrate}, must be a whole number of at least 1")
    arrivals, told = _arrivals(options.arrivals), _progress("times", options.calibrate)
    for check in checks(calibration(run, options.calibrate, options.forks, told, num_cores(), arrivals)):
        print("\n".join(in_words(check)))


def in_words(check: Check) -> list[str]:
    """Return a line about calibration, and one about sharpness if there are naive forecasts to compare with."""
    share = f", {check.held / check.uncertain:.0%}" if check.uncertain else ""
    lines = [
        f"{check.what}: {check.held} of {check.uncertain} in their 80 % interval{share}; "
        f"{check.known} the same in every future"
    ]
    if check.compared:
        naive_held = f"{check.naive_held / check.compared:.0%} of {check.compared}"
        lines.append(
            f"{check.what}: median width of the interval {length(check.width)}; of the naive one from jobs of the same "
            f"class {length(check.naive_width)}, with {naive_held} in it; widened to hold as often "
            f"{length(check.naive_width * check.naive_scale)}"
        )
    return lines


def _progress(what: str, number: int) -> Callable[[int], None]:
    """Return a function that shows the progress and the time left, on a terminal only."""
    from time import monotonic

    started = monotonic()

    def told(done: int) -> None:
        left = (monotonic() - started) / done * (number - done)
        print(f"\r{done} of {number} {what}, {length(left)} left\x1b[K", end="", file=sys.stderr, flush=True)
        if done == number:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return told if sys.stderr.isatty() else lambda done: None
