"""Microsoft Philly: `philly.csv` of the artifact of Pollux, and `cluster_job_log` as published."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from polluxsim.logs.formats.base import Clock, Dropped, JobStatus, LogJob, Reason
from polluxsim.logs.formats.json_rows import JsonFormat, JsonRow
from polluxsim.logs.formats.log_rows import Layout, LogRow, TableFormat, counts_beside

PHILLY_GPUS = 2490  # GPUs of the 552 machines in Philly's machine list (Jeon et al., ATC '19) [GPUs]


def _parse_csv(row: LogRow) -> LogJob:
    duration, num_gpus = row.seconds("duration"), row.within("num_gpus", 1, 1e6)
    same = math.isclose(row.within("gpu_time", 0, 1e17), duration * num_gpus, abs_tol=1.0)
    return LogJob(
        place=row.place,
        # The file has no job names, so only the line number tells two jobs apart.
        job=f"philly-{row.line}",
        submitted=row.time("timestamp"),
        duration=duration,
        num_gpus=num_gpus,
        tenant=row.word("cluster"),
        status=JobStatus.COMPLETED,
        oddities=() if same else ("gpu_time is not duration · num_gpus",),
    )


PHILLY = TableFormat(
    name="philly",
    citation="Microsoft Philly, Jeon et al., ATC '19, CC-BY-4.0; philly.csv of Pollux's artifact, OSDI '21",
    caveat="only jobs that passed: the load of failed and killed jobs is missing",
    layout=Layout(("timestamp", "duration", "num_gpus", "gpu_time", "cluster")),
    parse=_parse_csv,
    clock=Clock.LOCAL,
    time_zone="UTC",
    files="philly.csv",
    cluster_gpus=lambda source: PHILLY_GPUS,
)


STATUSES = {"Pass": JobStatus.COMPLETED, "Killed": JobStatus.CANCELLED, "Failed": JobStatus.FAILED}


class Attempt(NamedTuple):
    """One try of a job: start and end [s since 1970-01-01 UTC; None is a hole], its GPUs and its servers."""

    start: float | None
    end: float | None
    num_gpus: int
    num_servers: int

    @property
    def duration(self) -> float | None:
        """Return the run time of the attempt; it is negative if the attempt ended before it started.

        None if a time is missing [s].
        """
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True)
class PhillyJob:
    """One job of the raw log, and the figures that studies of Philly derive from it."""

    job_id: str
    user: str
    tenant: str  # virtual cluster
    status: JobStatus
    submitted: float | None  # [s since 1970-01-01 UTC]; None if it is missing
    attempts: tuple[Attempt, ...]  # in the order of the log

    @property
    def usable(self) -> tuple[Attempt, ...]:
        """Return the attempts that held GPUs for a known time above 0 s."""
        return tuple(attempt for attempt in self.attempts if attempt.num_gpus > 0 and (attempt.duration or 0) > 0)

    @property
    def gpus_first(self) -> int | None:
        """Return the GPUs of the first attempt [GPUs]."""
        return self.attempts[0].num_gpus if self.attempts else None

    @property
    def gpus_max(self) -> int | None:
        """Return the most GPUs of any attempt [GPUs]."""
        return max((attempt.num_gpus for attempt in self.attempts), default=None)

    @property
    def servers_first(self) -> int | None:
        """Return the servers of the first attempt [1]."""
        return self.attempts[0].num_servers if self.attempts else None

    @property
    def run_time(self) -> float | None:
        """Return the time on GPUs summed over usable attempts [s]."""
        return sum(attempt.duration or 0 for attempt in self.usable) if self.usable else None

    @property
    def elapsed(self) -> float | None:
        """Return the time from the start of the first attempt to the end of the last one [s], as the log's notebook."""
        if not self.attempts:
            return None
        start, end = self.attempts[0].start, self.attempts[-1].end
        return None if start is None or end is None else end - start

    @property
    def gpu_time(self) -> float | None:
        """Return GPUs times seconds, summed over usable attempts [GPU s]."""
        if not self.usable:
            return None
        return sum(attempt.num_gpus * (attempt.duration or 0) for attempt in self.usable)

    @property
    def queueing_delay(self) -> float | None:
        """Return the time from submission to the first attempt's start [s]."""
        if not self.attempts or self.attempts[0].start is None or self.submitted is None:
            return None
        return self.attempts[0].start - self.submitted

    @property
    def has_hole(self) -> bool:
        """Return whether any attempt lacks a time."""
        return any(attempt.duration is None for attempt in self.attempts)

    @property
    def in_philly_csv(self) -> bool:
        """Return whether the artifact's `philly.csv` would have it: passed, no hole, some time on GPUs."""
        return self.status is JobStatus.COMPLETED and not self.has_hole and bool(self.usable)


def read_job(row: JsonRow) -> PhillyJob:
    """Return the job that an object describes; raise BadRowError if a key is missing or has a value of another kind."""
    return PhillyJob(
        job_id=row.text("jobid"),
        user=row.text("user"),
        tenant=row.text("vc"),
        status=row.one_of("status", STATUSES),
        submitted=row.time("submitted_time"),
        attempts=tuple(_attempt(row.part(attempt, "attempts[].")) for attempt in row.objects("attempts")),
    )


def _attempt(row: JsonRow) -> Attempt:
    servers = [row.part(detail, "detail[].") for detail in row.objects("detail")]
    gpus = [(server.text("ip"), _length(server, "gpus")) for server in servers]
    return Attempt(
        start=row.time("start_time"),
        end=row.time("end_time"),
        num_gpus=sum(count for _, count in gpus),
        num_servers=len({server for server, _ in gpus}),
    )


def _length(row: JsonRow, key: str) -> int:
    value = row.value(key)
    if not isinstance(value, list):
        raise row.error(key, "a list")
    return len(value)


def _parse_raw(row: JsonRow) -> LogJob | Dropped:
    job = read_job(row)
    if job.submitted is None:
        return row.dropped("no submission time")
    if not job.usable:
        return row.dropped(_why_unusable(job))
    return LogJob(
        place=row.place,
        job=job.job_id,
        submitted=job.submitted,
        duration=job.run_time,
        num_gpus=job.usable[0].num_gpus,
        user=job.user,
        tenant=job.tenant,
        status=job.status,
        attempts=len(job.attempts),
        extras=(
            len(job.usable), job.gpus_first, job.gpus_max, job.servers_first,
            job.elapsed, job.gpu_time, job.queueing_delay, job.has_hole, job.in_philly_csv,
        ),
        oddities=_oddities(job),
    )  # fmt: skip


def _why_unusable(job: PhillyJob) -> str:
    if not job.attempts:
        return "no attempt"
    if all(attempt.duration is None for attempt in job.attempts):
        return "no attempt with both start and end"
    return "no attempt with GPUs for more than 0 s"


def _oddities(job: PhillyJob) -> tuple[str, ...]:
    found: list[str] = []
    if any((attempt.duration or 0) < 0 for attempt in job.attempts):
        found.append(Reason.END_BEFORE_START)
    if (job.queueing_delay or 0) < 0:
        found.append(Reason.START_BEFORE_SUBMISSION)
    if job.has_hole:
        found.append("an attempt without start or end, not counted in the duration")
    if len({attempt.num_gpus for attempt in job.usable}) > 1:
        found.append("attempts with different numbers of GPUs")
    return tuple(found)


PHILLY_RAW = JsonFormat(
    name="philly-raw",
    key=None,
    parse=_parse_raw,
    citation="Microsoft Philly, Jeon et al., ATC '19, CC-BY-4.0",
    caveat="num_gpus is from the first usable attempt, because the log has no requested GPUs",
    clock=Clock.LOCAL,
    extras=(
        "usable_attempts", "gpus_first", "gpus_max", "num_nodes",
        "elapsed", "gpu_time", "queueing_delay", "has_hole", "in_philly_csv",
    ),
    files="cluster_job_log",
    cluster_gpus=lambda log: sum(counts_beside(log, "cluster_machine_list", ("machineId", "number of GPUs"))) or None,
)  # fmt: skip
