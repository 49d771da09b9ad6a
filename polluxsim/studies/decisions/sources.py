"""Read a record from the files of a site: a recorded run, an output of sacct, or the log of Philly."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats.base import BadRowError, LogJob
from polluxsim.logs.formats.json_rows import JsonRow, json_rows
from polluxsim.logs.formats.log_rows import LogRow, read_rows
from polluxsim.logs.formats.slurm import SLURM
from polluxsim.logs.formats.slurm_jobs import parse_job
from polluxsim.logs.site.hostlist import expanded
from polluxsim.studies.decisions.record import COLUMNS, RawJob, Record, read_run, record_of

PHILLY_FILE = "cluster_job_log"

UNLIMITED = 365 * 86_400  # time limit of a job without one: slurmctld plans with a year [s]

NOT_IMPLEMENTED = {
    "Reservation": "in a reservation",
    "Licenses": "with licences",
}
"""Columns of sacct whose value names a part of Slurm that the policy does not have."""


class RecordSource(NamedTuple):
    """A record, and sentences on the jobs that it leaves out or shows in a simpler form."""

    record: Record
    notes: Sequence[str]


def read_record(path: Path) -> RecordSource:
    """Return the record of a file, or of a folder with the log of Philly. The format is that of the content.

    Raise InvalidInputError if the file has none of the formats, or a row is invalid.
    """
    if path.is_dir() and (path / PHILLY_FILE).is_file():
        path /= PHILLY_FILE
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; give a recorded run, an output of sacct or {PHILLY_FILE}")
    if path.name.startswith(PHILLY_FILE):
        return _philly(path)
    header = _header(path)
    if {"JobID", "JobIDRaw"} & set(header):
        return _sacct(path)
    if set(COLUMNS) <= set(header):
        return RecordSource(read_run(path), ())
    raise InvalidInputError(
        f"{path}: neither a recorded run with the columns {', '.join(COLUMNS)} nor an output of sacct --parsable2; "
        "give one of them, or the folder of a run"
    )


def _header(path: Path) -> list[str]:
    """Return the names of the columns of a text file; empty if it cannot be read as text."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline().strip()
    except (OSError, UnicodeDecodeError):
        return []
    if "|" in first:
        return first.split("|")
    return next(csv.reader([first]), [])


def _sacct(path: Path) -> RecordSource:
    """Return the record of an output of sacct. Raise InvalidInputError if a row is invalid.

    A job that still runs gets an end after all other ones. If a job has no nodes, none are compared.
    """
    raw: list[RawJob] = []
    left_out = Counter[str]()
    special: dict[str, list[str]] = {}
    # The zone of the times is unknown, but it is a multiple of 30 s, which is all that decisions depend on.
    for row in read_rows(path, SLURM.layout, UTC):
        if isinstance(row, BadRowError):
            raise row
        job = parse_job(row)
        if not isinstance(job, LogJob):
            left_out[job.reason] += 1
            continue
        _note_special(row, job, special)
        entry = _of_sacct(row, job)
        if entry is None:
            left_out["a fraction of a GPU"] += 1
        else:
            raw.append(entry)
    notes = [f"{count} rows are left out: {reason}" for reason, count in left_out.items()]
    for what, names in special.items():
        notes.append(f"{len(names)} jobs {what}, which is not implemented: {', '.join(names[:5])}")
    last = max((max(run.start, run.end) for run in raw), default=0.0)
    jobs = []
    for run in raw:
        # `_of_sacct` marks a job that still runs.
        end = last + 1 if run.end < run.start else run.end
        jobs.append(run._replace(end=end))
    if len({bool(run.nodes) for run in jobs}) > 1:
        notes.append("some jobs have no NodeList, so only jobs are compared, not nodes")
        jobs = [run._replace(nodes=()) for run in jobs]
    record = record_of(path, _unique(jobs), 0.0)
    return RecordSource(record, notes)


def _of_sacct(row: LogRow, job: LogJob) -> RawJob | None:
    """Return a job of sacct; None if it has a fraction of a GPU. The end of a job that still runs is before its start.

    The duration of a job without a recorded one is 0 s.
    """
    # The policy gives whole GPUs only.
    if job.num_gpus % 1:
        return None
    values = dict(zip(SLURM.extras, job.extras, strict=True))
    start = job.submitted + (_number(values["queueing_delay"]) or 0.0)
    end = start - 1
    if row.has("End"):
        end = start + (job.duration or 0.0)
    nodes: Sequence[str] = ()
    if row.has("NodeList"):
        # Text that is no list of hosts, like `None assigned`, gives None.
        nodes = expanded(row.values["NodeList"]) or ()
    limit = _number(values["time_limit"])
    num_nodes = _number(values["num_nodes"])
    return RawJob(
        name=job.job,
        submitted=job.submitted,
        start=start,
        end=end,
        gpus=int(job.num_gpus),
        nodes=tuple(nodes),
        limit=UNLIMITED if limit is None else int(limit),
        user=job.user or "",
        partition=str(values["partition"] or ""),
        priority=_number(values["priority"]),
        num_nodes=1 if num_nodes is None else int(num_nodes),
    )


def _number(value: object) -> float | None:
    """Return a value of a log that is a number; None if the log states none."""
    if not isinstance(value, int | float):
        return None
    return float(value)


def _note_special(row: LogRow, job: LogJob, special: dict[str, list[str]]) -> None:
    """Note the name of a job that uses a part of Slurm that the policy does not have, under what it is."""
    if "+" in job.job:
        special.setdefault("are parts of a heterogeneous job", []).append(job.job)
    for column, what in NOT_IMPLEMENTED.items():
        if row.has(column):
            special.setdefault(f"are {what}", []).append(job.job)


def _unique(jobs: Sequence[RawJob]) -> list[RawJob]:
    """Return jobs with different names: a requeued job has several rows, which become JOB, JOB#2 and so on."""
    counts = Counter[str]()
    renamed = []
    for job in jobs:
        counts[job.name] += 1
        number = counts[job.name]
        renamed.append(job if number == 1 else job._replace(name=f"{job.name}#{number}"))
    return renamed


def _philly(path: Path) -> RecordSource:
    """Return the record of the log of Philly. Each attempt of a job is a job of the record; none has a time limit.

    Raise InvalidInputError if a row is invalid.
    """
    jobs: list[RawJob] = []
    num_incomplete = 0
    for row in json_rows(path, None, UTC):
        if isinstance(row, BadRowError):
            raise row
        attempts = list(_attempts(row))
        complete = [attempt for attempt in attempts if attempt is not None]
        num_incomplete += len(attempts) - len(complete)
        jobs += complete
    notes = ["no job has a time limit; policies plan with a year"]
    if num_incomplete:
        notes.append(f"{num_incomplete} attempts are left out: without start, end or GPUs")
    return RecordSource(record_of(path, _unique(jobs)), notes)


def _attempts(row: JsonRow) -> Iterator[RawJob | None]:
    """Yield each attempt of a job; None for one that is not complete.

    The first attempt was submitted with the job, and each later one at the end of the one before.
    """
    submitted = row.time("submitted_time")
    for attempt in row.children("attempts"):
        start = attempt.time("start_time")
        end = attempt.time("end_time")
        servers = attempt.children("detail", is_required=True)
        gpus = 0
        for server in servers:
            of_server = server.values.get("gpus")
            gpus += len(of_server) if isinstance(of_server, list) else 0
        if start is None or end is None or end < start or submitted is None or not gpus:
            yield None
            continue
        # An attempt may name a server twice, and a file may show a start before the submission.
        nodes = tuple(dict.fromkeys(server.text("ip") for server in servers))
        yield RawJob(row.text("jobid"), min(submitted, start), start, end, gpus, nodes, UNLIMITED)
        submitted = end
