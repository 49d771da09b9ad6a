"""Read the queue of Slurm: the output of `squeue`, as text with any columns that suffice, or as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.logs.formats.log_rows import MAX_GPUS, LogRow
from polluxsim.logs.formats.slurm_jobs import MAX_PRIORITY
from polluxsim.logs.formats.slurm_resources import GRES
from polluxsim.logs.site.dependencies import dependency, with_dependencies
from polluxsim.logs.site.hostlist import expanded
from polluxsim.logs.site.queue import Queue, QueuedJob
from polluxsim.logs.site.squeue_rows import ADVICE, squeue_rows

RUNNING = ("RUNNING", "R", "CONFIGURING", "CF", "SUSPENDED", "S", "STOPPED", "ST", "RESIZING", "RS", "SIGNALING", "SI")
PENDING = ("PENDING", "PD", "REQUEUED", "RQ", "REQUEUE_FED", "RF", "REQUEUE_HOLD", "RH", "SPECIAL_EXIT", "SE",
           "RESV_DEL_HOLD", "RD")  # fmt: skip
"""States of squeue (slurm.schedmd.com/squeue.html, "JOB STATE CODES"), long and short. Other jobs have ended."""

HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "held", "RequeueHold")
LIMITED = re.compile(r"(?:QOS|Assoc|Max)\w+")
IMPOSSIBLE = (
    "AccountNotAllowed", "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS", "Licenses",
    "PartitionDown", "PartitionInactive", "PartitionNodeLimit", "PartitionTimeLimit", "QOSNotAllowed", "Reservation",
    "ReservationDeleted", "ReservationInvalid",
)  # fmt: skip
"""Reasons of squeue for jobs that cannot start before someone changes something (squeue, "JOB REASON CODES")."""

CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d\d)", re.ASCII)
"""[days-][hours:]minutes:seconds."""

JOB_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\]?))?(?:\+\d+)?", re.ASCII)

MOST_TASKS = 1000  # tasks of one waiting array that are read


def read_squeue(path: Path, zone: tzinfo, time: float | None = None) -> Queue:
    """Return the queue in the output of squeue.

    `zone` is the zone of local times. `time` is that of the state [s since 1970-01-01 UTC]; without it, the file says.
    Raise InvalidInputError if the file lacks a needed column, or a value is invalid.
    """
    # A list, because the time of the state is needed before the first job.
    rows = list(squeue_rows(path, zone))
    moment, time_from = _time_of(path, rows, time)
    jobs = list[QueuedJob]()
    left_out = Counter[str]()
    notes = Counter[str]()
    for row in rows:
        state = row.name("STATE").upper()
        if state not in (*RUNNING, *PENDING):
            left_out["jobs that have ended or are ending"] += 1
            continue
        gpus = _gpus_of(row)
        if not gpus.number:
            left_out["jobs without GPUs"] += 1
            continue
        if state in RUNNING:
            jobs.append(_running(row, gpus, moment))
        else:
            jobs += _pending(row, gpus, moment, notes)
    sentences = [f"{count} {note}" for note, count in notes.items()]
    return Queue(path.name, moment, time_from, tuple(with_dependencies(jobs)), left_out, sentences)


# The time of the state


def _time_of(path: Path, rows: Sequence[LogRow], given: float | None) -> tuple[float, str]:
    """Return the time of the state [s since 1970-01-01 UTC], and how it is known.

    A running job of the text states when it started and how long it has run. In JSON, the scheduler states when it last
    looked at a job, which is a few seconds before. Raise InvalidInputError if the file has no job, or states no time.
    """
    if not rows:
        raise InvalidInputError(f"{path}: the queue is empty; give the output of squeue for all users")
    if given is not None:
        return given, "as --taken says"
    stated = list[float]()
    # The sum of both is the time of the state, except for jobs that were suspended, so the largest one counts.
    for row in rows:
        if row.has("TIME") and row.has("START_TIME") and row.name("STATE").upper() in RUNNING:
            stated.append(row.moment("START_TIME") + _seconds(row, "TIME"))
    if stated:
        return max(stated), "when its running jobs had run for so long"
    for row in rows:
        for column in ("LAST_UPDATE", "EVALUATED", "SUBMIT_TIME"):
            if row.has(column) and row.values[column] != "0":
                stated.append(row.moment(column))
        if row.has("START_TIME") and row.name("STATE").upper() in RUNNING:
            stated.append(row.moment("START_TIME"))
    if not stated:
        raise InvalidInputError(f"{path}: no job states a time; give the time of the queue with --taken")
    return max(stated), "the latest time in the file; --taken gives another"


# The values of a job


class _Gpus(NamedTuple):
    """The GPUs of a job, and what it requests about nodes."""

    number: int
    type: str | None = None
    num_nodes: int | None = None
    gpus_per_task: int | None = None


def _gpus_of(row: LogRow) -> _Gpus:
    """Return the GPUs of a job: those of each node, each task or the job that it requests, else those that it has.

    GPUs that a job requests for the job as a whole may be anywhere.
    """
    # A waiting job has no allocation yet, so its request counts first.
    nodes = _least(row, "NODES")
    for column, kind in (("TRES_PER_NODE", "node"), ("TRES_PER_TASK", "task"), ("TRES_PER_JOB", "job")):
        number, gpu_type = _entry(row, column)
        if number and kind == "node":
            return _checked(row, column, _Gpus(number * nodes, gpu_type, nodes))
        if number and kind == "task":
            return _checked(row, column, _Gpus(number * _least(row, "TASKS"), gpu_type, None, number))
        if number:
            return _checked(row, column, _Gpus(number, gpu_type, None, 1))
    for column in ("TRES_ALLOC", "TRES_REQUESTED"):
        number, gpu_type = _entry(row, column)
        if number and number % nodes == 0:
            return _checked(row, column, _Gpus(number, gpu_type, nodes))
        if number:
            return _checked(row, column, _Gpus(number, gpu_type, None, 1))
    return _Gpus(0)


def _checked(row: LogRow, column: str, gpus: _Gpus) -> _Gpus:
    """Return the GPUs of a job; raise BadRowError if they are too many for any cluster."""
    if gpus.number > MAX_GPUS:
        raise row.error(column, f"a list with at most {MAX_GPUS:g} GPUs")
    return gpus


def _entry(row: LogRow, column: str) -> tuple[int, str | None]:
    """Return the GPUs in a list of resources, and their type if it has one."""
    typed = dict[str, int]()
    untyped = 0
    for text in row.values.get(column, "").split(","):
        entry = text.strip().removeprefix("gres:").removeprefix("gres/")
        match = GRES.fullmatch(entry)
        if match is None or not entry.startswith("gpu"):
            continue
        number = int(match[2] or 1)
        if match[1]:
            typed[match[1]] = typed.get(match[1], 0) + number
        else:
            untyped += number
    gpu_type = None  # also if the job has several types
    if len(typed) == 1:
        (gpu_type,) = typed
    # A list with both states the same GPUs twice.
    return untyped or sum(typed.values()), gpu_type


def _least(row: LogRow, column: str) -> int:
    """Return the number in a cell like 2 or 2-4, the least; 1 if the cell is blank or 0."""
    if not row.has(column):
        return 1
    first = row.values[column].partition("-")[0]
    if not (first.isascii() and first.isdecimal()) or int(first) > MAX_GPUS:
        raise row.error(column, "a whole number")
    return max(int(first), 1)


def _seconds(row: LogRow, column: str) -> float:
    """Return a duration like 1-02:03:04, 02:03:04 or 3:04 [s]."""
    match = CLOCK.fullmatch(row.values[column].strip())
    if match is None:
        raise row.error(column, "a time like 1-02:03:04 (days-hours:minutes:seconds)")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _time(row: LogRow, column: str) -> float | None:
    """Return a time, None if the cell is blank or 0 [s since 1970-01-01 UTC]."""
    if not row.has(column) or row.values[column] == "0":
        return None
    return row.moment(column)


def _common(row: LogRow, gpus: _Gpus, name: str) -> QueuedJob:
    """Return the values that running and waiting jobs have in common."""
    partitions = [part.strip() for part in row.values.get("PARTITION", "").rstrip("*").split(",")]
    limit = 0.0  # no limit
    if row.has("TIME_LIMIT"):
        limit = _seconds(row, "TIME_LIMIT")
    if limit > MOST_SECONDS:
        raise row.error("TIME_LIMIT", f"at most {MOST_SECONDS:g} s")
    return QueuedJob(
        place=row.place,
        name=name,
        submitted=row.moment("SUBMIT_TIME"),
        num_gpus=gpus.number,
        user=row.word("USER"),
        tenant=row.word("ACCOUNT"),
        partitions=tuple(filter(None, partitions)),
        job_name=_readable(row.word("NAME")),
        qos=row.word("QOS"),
        priority=_priority(row),
        time_limit=limit or None,
        num_nodes=gpus.num_nodes,
        gpus_per_task=gpus.gpus_per_task,
        gpu_type=gpus.type,
        reason=(row.word("REASON") or "").strip("()").strip(),
    )


def _priority(row: LogRow) -> float | None:
    """Return the priority of a job; None if the cell is blank."""
    if not row.has("PRIORITY"):
        return None
    return row.within("PRIORITY", 0, MAX_PRIORITY)


def _readable(text: str | None) -> str | None:
    """Return a text with a replacement for each byte that is not UTF-8; None for None."""
    if text is None:
        return None
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _id(row: LogRow) -> str:
    """Return the id of a job, of a task, or of the waiting tasks of an array; raise BadRowError for another text."""
    name = row.name("JOBID")
    if not JOB_ID.fullmatch(name):
        raise row.error("JOBID", "a job id like 12, 12_3 or 12_[4-9]")
    return name


def _running(row: LogRow, gpus: _Gpus, now: float) -> QueuedJob:
    """Return a running job."""
    job = _common(row, gpus, _id(row))
    if row.has("TIME"):
        start: float | None = now - _seconds(row, "TIME")
    else:
        start = _time(row, "START_TIME")
    if start is None:
        raise row.error("START_TIME", f"the start of a running job; {ADVICE}")
    # The start is computed from a run time in whole seconds, and must not be before the submission.
    submitted = min(job.submitted, start)
    nodes = expanded(row.values.get("NODELIST", ""))
    if nodes is None:
        raise row.error("NODELIST", "a list of nodes like a[01-04],b1")
    placement = _placement(row, gpus, nodes)
    started = min(start, now)  # the clocks of the nodes may differ by seconds
    return job._replace(submitted=submitted, started=started, placement=placement, num_nodes=gpus.num_nodes)


def _placement(row: LogRow, gpus: _Gpus, nodes: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return the GPUs of a running job by node; empty if the file does not say.

    Without the GPUs on each node, an equal number is on all nodes.
    """
    if not nodes:
        return ()
    gpus_of_nodes = [_gpus_in(text) for text in row.values.get("GRES_DETAIL", "").split(";") if text]
    if len(gpus_of_nodes) == len(nodes) and sum(gpus_of_nodes) == gpus.number:
        return tuple((node, number) for node, number in zip(nodes, gpus_of_nodes, strict=True) if number)
    if gpus.number % len(nodes) == 0:
        gpus_per_node = gpus.number // len(nodes)
        return tuple((node, gpus_per_node) for node in nodes)
    return ()


def _gpus_in(text: str) -> int:
    """Return the GPUs in a text like gpu:a100:4(IDX:0-3)."""
    without_indices = re.sub(r"\([^)]*\)", "", text)
    matches = (GRES.fullmatch(part.strip()) for part in without_indices.split(","))
    return sum(int(match[2] or 1) for match in matches if match is not None)


# Waiting jobs


def _pending(row: LogRow, gpus: _Gpus, now: float, notes: Counter[str]) -> Iterator[QueuedJob]:
    """Yield a waiting job, or each of the first `MOST_TASKS` waiting tasks of an array; `notes` counts assumptions."""
    name = _id(row)
    job = _common(row, gpus, name)
    if len(job.partitions) > 1:
        notes["jobs may run in several partitions; only the first counts"] += 1
    begin = _time(row, "ELIGIBLE_TIME")
    first_word = re.split(r"[\s,:]", job.reason, maxsplit=1)[0]
    # For such a job, squeue states the earliest start in place of a forecast.
    if begin is None and first_word == "BeginTime":
        begin = _time(row, "START_TIME")
    if begin is not None and begin <= now:  # it keeps the job back no longer
        begin = None
    job = job._replace(submitted=min(job.submitted, now), begin=begin)
    job = job._replace(kept_out=_kept_out(job, first_word), after=dependency(row))
    if first_word == "Dependency" and not job.after and not job.kept_out:
        job = job._replace(kept_out="wait for jobs that the queue does not name")
    array, bracket, tasks_text = name.partition("_[")
    if not bracket:
        yield job
        return
    tasks, limit = _tasks(tasks_text.rstrip("]"))
    if row.has("ARRAY_LIMIT") and row.values["ARRAY_LIMIT"] != "0":
        limit = row.count("ARRAY_LIMIT")
    if len(tasks) > MOST_TASKS:
        notes[f"tasks of the array {array} after the first {MOST_TASKS} left out"] += len(tasks) - MOST_TASKS
    # Each task is a job of its own in the forecast, and a cluster does not start thousands of them soon.
    names = [f"{array}_{task}" for task in tasks[:MOST_TASKS]]
    for index, task in enumerate(names):
        after = list(job.after)
        # The first tasks wait for running tasks of the array. Each later task waits for the task `limit` before it.
        if limit and index < limit:
            after.append(f"{array}_*{limit}")
        elif limit:
            after.append(names[index - limit])
        yield job._replace(name=task, after=tuple(after))


def _tasks(text: str) -> tuple[list[str], int | None]:
    """Return the numbers of the waiting tasks of an array like 4-9,12%2, and how many may run at once.

    Parts without numbers are left out: squeue cuts a long list off.
    """
    numbers, _, limit_text = text.partition("%")
    tasks = list[str]()
    for part in numbers.split(","):
        bounds, _, step_text = part.partition(":")
        first, _, last = bounds.partition("-")
        last = last or first
        if not first.isdecimal() or not last.isdecimal():
            continue
        # Without a step, and with a step of 0, which Slurm does not write, each task counts.
        step = 1
        if step_text.isdecimal():
            step = max(1, int(step_text))
        tasks += map(str, range(int(first), int(last) + 1, step))
    limit = int(limit_text) if limit_text.isdecimal() else None
    return tasks, limit


def _kept_out(job: QueuedJob, reason: str) -> str:
    """Return why a waiting job cannot start for now, whatever is free; "" if it can."""
    if reason in HELD or "held" in job.reason:
        return "are held"
    if reason in IMPOSSIBLE:
        return f"cannot start ({reason})"
    if LIMITED.fullmatch(reason):
        return f"wait because of a limit ({reason})"
    return ""
