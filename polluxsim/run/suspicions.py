"""Report values that are probably given in another unit than their user meant, and times since 1970."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from polluxsim.common.durations import DAY, HOUR, MINUTE
from polluxsim.common.written import UNIT_OF, declared_by, duration_in
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import Workload

YEAR = 365 * DAY  # [s]

MOST_HOURS = YEAR / HOUR  # longest plausible setting in hours [h]

MAY_BE_SHORT = (
    "cost",
    "costs",
    "decision_limit",
    "duration",
    "horizon",
    "lag",
    "min_duration",
    "restart_delay",
    "restart_delays",
    "resume_time",
)
"""Settings for which any short time is plausible: costs, properties of jobs, and wall-clock time.

`_of_horizon` judges the horizon.
"""

LESS = 60  # a value is suspicious if it is this many times less than its default: seconds in place of minutes
MORE = 1000  # a value is suspicious if it is this many times more than its default: milliseconds in place of seconds

UNUSUAL = 10.0  # a shorter time is suspicious for a setting without a default [s]

WITH_DELAYS = ("cluster", "engine")  # groups in which a very long time is suspicious


class _Duration(NamedTuple):
    """A number of a setting that is a duration."""

    setting: str  # dotted name, like engine.round_interval
    kind: str  # a key of `UNIT_OF`
    value: float
    default: float | None  # smallest number of the default; None without a number as default

    @property
    def text(self) -> str:
        return f"{self.setting} is {self.value:g} {UNIT_OF[self.kind].name}"


def suspicious(config: Mapping[str, Any], workload: Workload) -> list[str]:
    """Return a sentence for each value of a run that is probably a mistake.

    The run is valid, and its results are right for these values, so no error is raised. `config` is the resolved
    configuration of the run.
    """
    interval = config.get("engine", {}).get("round_interval")
    durations = list(_durations_in(config))
    sentences = []
    for duration in durations:
        sentence = _suspicion(duration, interval)
        if sentence:
            sentences.append(sentence)
    horizon = config.get("engine", {}).get("horizon")
    if isinstance(horizon, int | float):
        sentences += _of_horizon(horizon, interval, workload.jobs)
    return [*sentences, *_of_times(workload)]


def _durations_in(settings: Any, name: str = "") -> Iterator[_Duration]:
    """Yield the durations of a part of a configuration, and of the parts within it."""
    if isinstance(settings, list):
        for item in settings:
            yield from _durations_in(item, name)
    if not isinstance(settings, Mapping):
        return
    # Only the signature of the class tells which numbers are durations.
    declared = declared_by(str(settings.get("_target_")))
    for key, value in settings.items():
        setting = f"{name}.{key}" if name else str(key)
        kind = duration_in(declared.annotations.get(key, ""))
        if kind is None:
            yield from _durations_in(value, setting)
            continue
        default = min((number for _, number in _numbers("", declared.defaults.get(key))), default=None)
        for inner, number in _numbers(setting, value):
            yield _Duration(inner, kind, number, default)


def _numbers(name: str, value: object) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a value, a list or a mapping, each with its dotted name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _numbers(f"{name}[{number}]", item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value


def _suspicion(given: _Duration, interval: object) -> str:
    """Return a sentence about a duration, given the time between rounds; "" if the duration is plausible."""
    # A user who gives seconds for a setting in hours gives a number 3,600 times too large.
    if given.kind in ("Hours", "WholeHours"):
        if given.value <= MOST_HOURS:
            return ""
        return f"{given.text}, {given.value / MOST_HOURS:.3g} years; for seconds, write {given.value:g}s"
    parts = given.setting.partition("[")[0].split(".")
    if _is_short(given, interval) and not set(parts) & set(MAY_BE_SHORT):
        unit = _meant(given)
        return (
            f"{given.text}, less than a round ({interval:g} s); for {given.value:g} {unit}, write {given.value:g}{unit}"
        )
    if given.default and given.value >= MORE * given.default and parts[0] in WITH_DELAYS:
        times = f"{given.value / given.default:g} times its default"
        return f"{given.text}, {times}; for milliseconds, write {given.value / 1000:g}s"
    return ""


def _is_short(given: _Duration, interval: object) -> bool:
    """Return whether a duration is shorter than a round, and `LESS` times shorter than its default.

    Without a default, it must be shorter than `UNUSUAL`. Zero counts as deliberate.
    """
    if not isinstance(interval, int | float) or not 0 < given.value < interval:
        return False
    if given.default is None:
        return given.value < UNUSUAL
    return given.value * LESS <= given.default


def _meant(given: _Duration) -> str:
    """Return the unit with which a value is most similar to its default; min without a default."""
    default = given.default
    if default is None:
        return "min"
    sizes = {"min": MINUTE, "h": HOUR, "d": DAY}

    def ratio(unit: str) -> float:
        one = given.value * sizes[unit] / default
        return max(one, 1 / one)

    return min(sizes, key=ratio)


def _of_horizon(horizon: float, interval: object, jobs: Sequence[Job]) -> Iterator[str]:
    """Yield a sentence if the end of a run is so early that it is probably given in hours.

    It is less than an hour, and before the first round or the end of any job. The duration of a job with a profile is
    unknown here and counts as 0.
    """
    if horizon >= HOUR or not jobs:
        return
    if isinstance(interval, int | float) and horizon <= interval:
        reason = f"the first round is at {interval:g} s"
    elif all(job.submit_time + (job.duration or 0.0) >= horizon for job in jobs):
        reason = "no job can complete before it"
    else:
        return
    yield f"engine.horizon is {horizon:g} s, and {reason}; for {horizon:g} h, write {horizon:g}h"


def _of_times(workload: Workload) -> Iterator[str]:
    """Yield a sentence about the longest time without a submission if it is a year or more."""
    last = 0.0  # the last submission
    longest = 0.0
    next_job = 0  # number of the job at the end of the longest time
    for number, job in enumerate(workload.jobs):
        gap = job.submit_time - last
        if gap > longest:
            longest = gap
            next_job = number
        last = job.submit_time
    if longest < YEAR:
        return
    source = PurePath(workload.source).name
    years = "a year" if longest < 1.5 * YEAR else f"{longest / YEAR:.0f} years"
    if next_job == 0:
        yield (
            f"{source}: the first job is submitted {years} after the start of the run; if times count from 1970, "
            "subtract the time of the first submission from all times"
        )
    else:
        names = f"{workload.jobs[next_job - 1].job_id!r} and {workload.jobs[next_job].job_id!r}"
        where = f"between jobs {names} no job is submitted for {years}"
        yield f"{source}: {where}; check that all times count from the same time"
