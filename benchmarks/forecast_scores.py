"""Calibration and sharpness of the forecasts of `polluxsim when`, beside those of naive forecasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import CensoredData, ecdf

from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.phrases import percent
from polluxsim.hardware.placements import JobId
from polluxsim.metrics.summary import of_run
from polluxsim.models.known_duration import RIGID
from polluxsim.records.results import JobRecord
from polluxsim.records.storage import Run
from polluxsim.run.forecasts import FORKS, QUANTILES, Forecast, forecast, quantile
from polluxsim.run.moment import RunMoment
from polluxsim.run.resampling import FutureArrivals

LEAST_ALIKE = 9  # a naive forecast needs this many jobs: the least and the greatest of nine values enclose 80 %


class Score(NamedTuple):
    """The 80 % interval of a time, its naive interval, and the actual time [s]."""

    what: str  # "starts" or "completions"
    is_known: bool  # whether all futures have this time, to the second
    interval: tuple[float, float]
    naive: tuple[float, float] | None  # None if too few jobs of the class have ended
    actual: float


class Check(NamedTuple):
    """Calibration and sharpness of the forecasts of one kind of time."""

    what: str  # "starts" or "completions"
    known: int  # number of times that all futures share
    uncertain: int  # number of the other times
    held: int  # number of uncertain times inside their interval
    compared: int  # number of times with a naive forecast
    width: float  # median width of the intervals of the compared times [s]
    naive_width: float  # median width of their naive intervals [s]
    naive_held: int  # number of compared times inside their naive interval
    naive_scale: float  # factor for naive intervals to contain as many times as the intervals of the forecast


def forecast_checks(scores: Iterable[Score]) -> list[Check]:
    """Return calibration and sharpness of each kind of time."""
    scores = list(scores)
    return [_check(what, [each for each in scores if each.what == what]) for what in ("starts", "completions")]


def _check(what: str, scores: Sequence[Score]) -> Check:
    uncertain = [each for each in scores if not each.is_known]
    held = sum(_is_in(each.actual, each.interval) for each in uncertain)
    pairs = [(each, each.naive) for each in scores if each.naive is not None]
    width = _median_width([each.interval for each, _ in pairs])
    naive_width = _median_width([naive for _, naive in pairs])
    naive_held = sum(_is_in(each.actual, naive) for each, naive in pairs)
    # The distance of the actual time from the middle of the naive interval, divided by half of its width.
    distances = [abs(2 * each.actual - low - high) / max(high - low, 1.0) for each, (low, high) in pairs]
    share = sum(_is_in(each.actual, each.interval) for each, _ in pairs) / max(len(pairs), 1)
    scale = float(np.quantile(distances, share)) if pairs else 1.0
    known = len(scores) - len(uncertain)
    return Check(what, known, len(uncertain), held, len(pairs), width, naive_width, naive_held, scale)


def _median_width(intervals: Sequence[tuple[float, float]]) -> float:
    return float(np.median([high - low if low < inf else inf for low, high in intervals])) if intervals else 0.0


def _is_in(time: float, interval: tuple[float, float]) -> bool:
    return interval[0] <= time <= interval[1]


def scored(found: Forecast, run: Run) -> Iterator[Score]:
    """Yield the intervals of a forecast beside the actual times in the run. Events that never happened are left out."""
    records = {record.job: record for record in run.result.job_records}
    begins: dict[JobId, float] = {}
    for change in run.result.allocation_records:
        if change.time >= found.time and change.nodes:
            begins.setdefault(change.job, change.time)
    past = _Past(run.result.job_records, found.time)
    for each in found.outlooks:
        record = records[each.job]
        has_started = record.start_time is not None and record.start_time < found.time
        if each.waits and each.job in begins:
            naive = None if has_started else past.interval(record, past.waits)
            yield _score("starts", each.starts, naive, begins[each.job])
        if record.completion_time is not None:
            naive = past.interval(record, past.completion_times)
            yield _score("completions", each.completions, naive, record.completion_time)


def _score(what: str, times: Sequence[float], naive: tuple[float, float] | None, actual: float) -> Score:
    is_known = len(set(times)) == 1 or max(times) - min(times) < 1
    return Score(what, is_known, (quantile(times, QUANTILES[0]), quantile(times, QUANTILES[-1])), naive, actual)


class _Past:
    """Naive forecasts from the jobs of the same class that have been submitted by a time.

    The sample contains the times from submission to completion (or to the start) of these jobs, if they are longer than
    the time that the job in question has already been in the system. A job that has not completed (or started) counts
    as censored. The 10 % and 90 % quantiles of the Kaplan-Meier estimate, added to the submission of the job in
    question, are the interval. Classes are, the narrowest first: user (or queue) and GPUs, user, GPUs, all jobs; of a
    job with a profile its application, all jobs. The first class with nine times that are not censored counts.
    """

    def __init__(self, records: Iterable[JobRecord], time: float) -> None:
        self._time = time
        self.waits: dict[object, list[tuple[float, bool]]] = {}
        self.completion_times: dict[object, list[tuple[float, bool]]] = {}
        for record in records:
            if record.submit_time >= time:
                continue
            for times, end in ((self.waits, record.start_time), (self.completion_times, record.completion_time)):
                is_over = end is not None and end < time
                length = (end if end is not None and is_over else time) - record.submit_time
                for kind in _classes(record):
                    times.setdefault(kind, []).append((length, is_over))

    def interval(
        self, record: JobRecord, times: Mapping[object, Sequence[tuple[float, bool]]]
    ) -> tuple[float, float] | None:
        """Return the naive 80 % interval of a job [s], None if no class has enough times."""
        age = self._time - record.submit_time
        for kind in _classes(record):
            over = [length for length, is_over in times.get(kind, ()) if is_over and length > age]
            if len(over) >= LEAST_ALIKE:
                censored = [length for length, is_over in times[kind] if not is_over and length > age]
                is_censored = [False] * len(over) + [True] * len(censored)
                estimate = ecdf(CensoredData.right_censored([*over, *censored], is_censored))
                low, high = (_first_reaching(estimate.cdf, share) for share in (QUANTILES[0], QUANTILES[-1]))
                return record.submit_time + low, record.submit_time + high
        return None


def _first_reaching(cdf: Any, share: float) -> float:
    """Return the first time at which a distribution function reaches a share, or its last time [s]."""
    reached = cdf.quantiles[cdf.probabilities >= share - 1e-9]
    return float(reached[0] if len(reached) else cdf.quantiles[-1])


def _classes(record: JobRecord) -> tuple[object, ...]:
    """Return the classes of a job, the narrowest first."""
    if record.application != RIGID:
        return record.application, None
    owner = record.user or record.queue
    return (*(((owner, record.num_replicas), owner) if owner else ()), record.num_replicas, None)


def calibration(
    run: Run,
    moments: int,
    forks: int = FORKS,
    report: Callable[[int], None] = lambda number: None,
    processes: int = 1,
    arrivals: FutureArrivals | None = None,
) -> list[Score]:
    """Return the scores of forecasts at times of a run, from a quarter to three quarters of its arrivals.

    Of a fork, only the arrivals after the fork count. `report` is called with the number of times done; the other
    parameters are those of `forecast`. Raise InvalidInputError if no job arrived.
    """
    found: list[Score] = []
    # A job that waits for another job, or that comes after the horizon, may never have arrived.
    arrivals_of_run = [job.submit_time for job in of_run(run.result) if job.submit_time < run.result.end_time]
    if not arrivals_of_run:
        raise InvalidInputError(f"{run.name} has no job that arrived, so no forecast can be scored; choose another run")
    first, last = min(arrivals_of_run), max(arrivals_of_run)
    first = max(first, run.info.get("descent", {}).get("time", first))
    last = max(first, last)
    for number in range(moments):
        moment = RunMoment(run, first + (last - first) * (0.25 + 0.5 * number / moments))
        found += scored(forecast(moment, None, forks, processes=processes, arrivals=arrivals), run)
        report(number + 1)
    return found


def calibration_lines(check: Check) -> list[str]:
    """Return a line about the calibration, and one about the widths of intervals if there are naive forecasts."""
    share = f", {percent(check.held / check.uncertain)}" if check.uncertain else ""
    lines = [
        f"{check.what}: {check.held} of {check.uncertain} in their 80 % interval{share}; "
        f"{check.known} equal in every future"
    ]
    if check.compared:
        naive_held = f"{percent(check.naive_held / check.compared)} of {check.compared}"
        lines.append(
            f"{check.what}: median width of the interval {length(check.width)}; of the naive one from jobs of the same "
            f"class {length(check.naive_width)}, with {naive_held} in it; widened to hold as often "
            f"{length(check.naive_width * check.naive_scale)}"
        )
    return lines
