"""Microsoft Philly: `philly.csv` of the artifact of Pollux, and `cluster_job_log` as published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from polluxsim.logs.formats.base import Dropped, JobStatus, LogClock, LogJob, RowReason
from polluxsim.logs.formats.json_rows import JsonFormat, JsonRow
from polluxsim.logs.formats.log_rows import LogRow, TableFormat, TableLayout, counts_beside

PHILLY_GPUS = 2490  # GPUs of the 552 machines in Philly's machine list (Jeon et al., ATC '19) [GPUs]


def _parse_csv(row: LogRow) -> LogJob:
    """Return the job of a row of philly.csv, which has only jobs that passed."""
    duration = row.seconds("duration")
    num_gpus = row.within("num_gpus", 1, 1e6)
    gpu_time = row.within("gpu_time", 0, 1e17)
    oddities: tuple[str, ...] = ()
    if not math.isclose(gpu_time, duration * num_gpus, abs_tol=1.0):
        oddities = ("gpu_time is not duration · num_gpus",)
    return LogJob(
        place=row.place,
        # The file has no job names.
        job=f"philly-{row.line}",
        submitted=row.time("timestamp"),
        duration=duration,
        num_gpus=num_gpus,
        tenant=row.word("cluster"),
        status=JobStatus.COMPLETED,
        oddities=oddities,
    )


PHILLY = TableFormat(
    name="philly",
    citation="Microsoft Philly, Jeon et al., ATC '19, CC-BY-4.0; philly.csv of Pollux's artifact, OSDI '21",
    caveat="only jobs that passed: the load of failed and killed jobs is missing",
    layout=TableLayout(("timestamp", "duration", "num_gpus", "gpu_time", "cluster")),
    parse=_parse_csv,
    clock=LogClock.LOCAL,
    time_zone="UTC",
    files="philly.csv",
    cluster_gpus=lambda _: PHILLY_GPUS,
)


STATUSES = {"Pass": JobStatus.COMPLETED, "Killed": JobStatus.CANCELLED, "Failed": JobStatus.FAILED}


class _Attempt(NamedTuple):
    """One try of a job."""

    start: float | None  # [s since 1970-01-01 UTC]; None if it is missing
    end: float | None  # [s since 1970-01-01 UTC]; None if it is missing
    num_gpus: int
    num_servers: int

    @property
    def duration(self) -> float | None:
        """Return the run time [s]: None if a time is missing, negative if the attempt ended before it started."""
        if self.start is None or self.end is None:
            return None
        return self.end - self.start


def _attempt(row: JsonRow) -> _Attempt:
    """Return an attempt, with the GPUs of all its servers."""
    num_gpus = 0
    servers = set[str]()  # an attempt may list a server twice
    for server in row.children("detail", is_required=True):
        servers.add(server.text("ip"))
        num_gpus += _length(server, "gpus")
    return _Attempt(row.time("start_time"), row.time("end_time"), num_gpus, len(servers))


def _length(row: JsonRow, key: str) -> int:
    value = row.value(key)
    if not isinstance(value, list):
        raise row.error(key, "a list")
    return len(value)


def _parse_raw(row: JsonRow) -> LogJob | Dropped:
    """Return the job of an object, with the figures that studies of Philly derive from its attempts."""
    # These cells are read before a row is dropped, so that a broken row counts as bad.
    job_id = row.text("jobid")
    user = row.text("user")
    tenant = row.text("vc")
    status = row.one_of("status", STATUSES)
    submitted = row.time("submitted_time")
    attempts = list(map(_attempt, row.children("attempts", is_required=True)))
    if submitted is None:
        return row.dropped("no submission time")
    gpus_of_usable = []  # of the attempts that held GPUs for a known time
    durations_of_usable = []  # [s]
    for attempt in attempts:
        duration = attempt.duration
        if attempt.num_gpus > 0 and duration is not None and duration > 0:
            gpus_of_usable.append(attempt.num_gpus)
            durations_of_usable.append(duration)
    if not durations_of_usable:
        return row.dropped(_why_unusable(attempts))
    # Of all attempts, also unusable ones: the wait ends with the first, and the job with the last.
    start = attempts[0].start
    end = attempts[-1].end
    delay = None
    if start is not None:
        delay = start - submitted
    elapsed = None
    if start is not None and end is not None:
        elapsed = end - start
    has_hole = any(attempt.duration is None for attempt in attempts)
    oddities = _oddities(attempts, delay)
    if len(set(gpus_of_usable)) > 1:
        oddities.append("attempts with different numbers of GPUs")
    return LogJob(
        place=row.place,
        job=job_id,
        submitted=submitted,
        duration=sum(durations_of_usable),  # without the pauses between attempts, in which the job held no GPUs
        num_gpus=gpus_of_usable[0],
        user=user,
        tenant=tenant,
        status=status,
        attempts=len(attempts),
        extras=(
            len(durations_of_usable),
            attempts[0].num_gpus,
            max(attempt.num_gpus for attempt in attempts),
            attempts[0].num_servers,
            elapsed,
            sum(gpus * duration for gpus, duration in zip(gpus_of_usable, durations_of_usable, strict=True)),
            delay,
            has_hole,
            # The artifact's `philly.csv` has the passed jobs without a hole.
            status is JobStatus.COMPLETED and not has_hole,
        ),
        oddities=tuple(oddities),
    )


def _oddities(attempts: Sequence[_Attempt], delay: float | None) -> list[str]:
    """Return the suspicious times of the attempts of a job; `delay` is its wait [s], None if it is unknown."""
    durations = [attempt.duration for attempt in attempts]
    oddities = list[str]()
    if any(duration is not None and duration < 0 for duration in durations):
        oddities.append(RowReason.END_BEFORE_START)
    if delay is not None and delay < 0:
        oddities.append(RowReason.START_BEFORE_SUBMISSION)
    if None in durations:
        oddities.append("an attempt without start or end, not counted in the duration")
    return oddities


def _why_unusable(attempts: Sequence[_Attempt]) -> str:
    """Return why no attempt held GPUs for a known time above 0 s."""
    if not attempts:
        return "no attempt"
    if all(attempt.duration is None for attempt in attempts):
        return "no attempt with both start and end"
    return "no attempt with GPUs for more than 0 s"


PHILLY_RAW = JsonFormat(
    name="philly-raw",
    key=None,
    parse=_parse_raw,
    citation="Microsoft Philly, Jeon et al., ATC '19, CC-BY-4.0",
    caveat="num_gpus is from the first usable attempt, because the log has no requested GPUs",
    clock=LogClock.LOCAL,
    extras=(
        "usable_attempts", "gpus_first", "gpus_max", "num_nodes",
        "elapsed", "gpu_time", "queueing_delay", "has_hole", "in_philly_csv",
    ),
    files="cluster_job_log",
    cluster_gpus=lambda log: sum(counts_beside(log, "cluster_machine_list", ("machineId", "number of GPUs"))) or None,
)  # fmt: skip
