"""Forecast when jobs start and complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import floor
from numbers import Integral
from typing import Any, NamedTuple

import pandas as pd

from polluxsim.common.errors import InvalidInputError, short
from polluxsim.hardware.placements import JobId
from polluxsim.run.moment import RunMoment
from polluxsim.run.resampling import HORIZON, FutureArrivals, KnownRun, KnownState, Times, futures

FORKS = 29  # default number of futures: the 3rd and the 27th value are then exactly the ends of an 80 % interval

QUANTILES = (0.1, 0.5, 0.9)


class Outlook(NamedTuple):
    """The start and completion times of one job, in each future."""

    job: JobId
    waits: bool  # whether the job holds no GPUs at the time of the forecast
    # In each future [s]; equal places belong to one future. ∞ means: not until the end of the simulated future. A job
    # that runs at the time of the forecast started before it.
    starts: tuple[float, ...]
    completions: tuple[float, ...]


class Forecast(NamedTuple):
    """The forecasts at one time."""

    time: float  # [s]
    arrivals: str  # the line that states the assumed arrivals
    outlooks: list[Outlook]


def forecast(
    moment: RunMoment[Any],
    jobs: Collection[JobId] | None = None,
    forks: int = FORKS,
    report: Callable[[int], None] = lambda number: None,
    processes: int = 1,
    arrivals: FutureArrivals | None = None,
) -> Forecast:
    """Return when jobs that wait or run may start and complete, in order of submission.

    `jobs` are names; None means all jobs that wait or run. `forks` is the number of futures; the first futures are the
    same for every number. `report` is called after each future with the number of futures so far. More than one of the
    `processes` is used if the futures take long. With None, recent `arrivals` are resampled.

    Raise InvalidInputError if `forks` is not a whole number of at least 1, or a job neither waits nor runs.
    """
    return forecast_of(KnownRun(moment, arrivals or FutureArrivals()), jobs, forks, report, processes)


def forecast_of(
    known: KnownState,
    jobs: Collection[JobId] | None = None,
    forks: int = FORKS,
    report: Callable[[int], None] = lambda number: None,
    processes: int = 1,
) -> Forecast:
    """Return when jobs that wait or run may start and complete, given what is known. `forecast` has the parameters."""
    if not isinstance(forks, Integral) or forks < 1:
        raise InvalidInputError(f"{short(forks)} futures cannot give a forecast; ask for 1 or more")
    known.check(jobs or ())
    asked = [name for name in known.names if jobs is None or name in jobs]
    drawn_times: list[Times] = []
    for times in futures(known, asked, forks, processes):
        drawn_times.append(times)
        report(len(drawn_times))
    outlooks = []
    for name in asked:
        starts, completions = zip(*(times[name] for times in drawn_times), strict=True)
        outlooks.append(Outlook(name, name in known.waiting, starts, completions))
    return Forecast(known.time, known.assumption, outlooks)


def quantile(times: Sequence[float], share: float) -> float:
    """Return the time [s] below which a new draw falls with the probability `share`, at most the largest time.

    At least one time is needed. Times may be ∞.

    >>> quantile([3.0, 1.0, 2.0, 7.0], 0.5)
    2.5
    """
    ordered = sorted(times)
    # A new draw falls into each of the n + 1 gaps around n times with equal probability.
    place = share * (len(ordered) + 1) - 1
    place = min(max(place, 0.0), len(ordered) - 1.0)
    below = floor(place + 1e-9)
    weight = place - below  # of the next larger time
    # At a whole place there may be no next time, and 0 times ∞ would be NaN.
    if weight < 1e-9:
        return ordered[below]
    return (1 - weight) * ordered[below] + weight * ordered[below + 1]


def forecast_frame(forecast: Forecast) -> pd.DataFrame:
    """Return a row for each job: whether it waits, and the 10 %, 50 % and 90 % quantiles of both times [s].

    A quantile after the end of the simulated futures is ∞; the 10 % quantile is then that end, as a lower bound.
    `attrs` has the time of the forecast and the line that states the assumed arrivals.
    """
    end = forecast.time + HORIZON
    rows = []
    for outlook in forecast.outlooks:
        row: dict[str, object] = {"job": outlook.job, "waits": outlook.waits}
        for event, times in (("start", outlook.starts), ("completion", outlook.completions)):
            for share in QUANTILES:
                time = quantile(times, share)
                if share == QUANTILES[0]:
                    time = min(time, end)
                row[f"{event}_p{round(100 * share)}"] = time
        rows.append(row)
    # Named, so that a table without jobs has its columns too.
    names = [f"{event}_p{round(100 * share)}" for event in ("start", "completion") for share in QUANTILES]
    frame = pd.DataFrame(rows, columns=["job", "waits", *names])
    frame.attrs.update(time=forecast.time, arrivals=forecast.arrivals)
    return frame
