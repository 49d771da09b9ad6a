"""What must hold of any finished run, worked out from its tables alone."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polluxsim.records.results import AllocationRecord, JobRecord, Result


def inconsistencies(result: Result, gpus_per_node: Sequence[int]) -> list[str]:
    """Return what contradicts itself in the records of a run on these nodes; nothing if all is well."""
    changes = defaultdict(list)
    for record in result.allocation_records:
        changes[record.job].append(record)
    found = [f"{name} is no job of the run" for name in changes.keys() - {job.job for job in result.job_records}]
    found += [f"{name} stands {n} times" for name, n in Counter(job.job for job in result.job_records).items() if n > 1]
    for job in result.job_records:
        found += [f"{job.job}: {what}" for what in _of_job(job, changes[job.job], result.end_time)]
    found += [*_of_cluster(result, gpus_per_node), *_of_rounds(result), *_of_outages(result)]
    return found


def _of_job(job: JobRecord, changes: Sequence[AllocationRecord], end: float) -> Iterator[str]:
    times = [job.submit_time, job.start_time, job.completion_time]
    known = [time for time in times if time is not None]
    if known != sorted(known) or (known[-1] > end + 1e-6 and job.start_time is not None):
        yield f"times {times} are not in order, or after the end at {end}"
    if (job.status == "completed") != (job.completion_time is not None):
        yield f"{job.status} with completion_time {job.completion_time}"
    if not _same(job.jct, _minus(job.completion_time, job.submit_time)):
        yield f"jct is {job.jct}"
    if not _same(job.queueing_delay, _minus(job.start_time, job.submit_time)):
        yield f"queueing_delay is {job.queueing_delay}"
    stop = end if job.completion_time is None else job.completion_time
    held = [(sum(row.gpus), _until(row, after, stop) - row.time) for row, after in _with_next(changes)]
    if not _same(job.gpu_seconds, sum(gpus * time for gpus, time in held)):
        yield f"gpu_seconds is {job.gpu_seconds}, its allocations say {sum(gpus * time for gpus, time in held)}"
    if not _same(job.run_time, sum(time for gpus, time in held if gpus)):
        yield f"run_time is {job.run_time}, its allocations say {sum(time for gpus, time in held if gpus)}"
    if job.restart_time < 0 or job.restart_time > job.run_time * (1 + 1e-9):
        yield f"restart_time is {job.restart_time} of {job.run_time}"
    first = next((row.time for row in changes if row.gpus), None)
    ran_before = not job.is_counted and job.start_time is not None and job.start_time <= 0
    if not ran_before and not _same(first, job.start_time):
        yield f"start_time is {job.start_time}, its first GPUs came at {first}"
    placed = [row for row in changes if row.gpus and row.time < stop]
    if any(row.batch_size < 1 or row.accumulation_steps < 0 for row in placed):
        yield "holds GPUs without a batch size"
    if job.completion_time is not None and changes and changes[-1].gpus:
        yield "holds GPUs after its completion"


def _of_cluster(result: Result, gpus_per_node: Sequence[int]) -> Iterator[str]:
    times = [record.time for record in result.allocation_records]
    if times != sorted(times):
        yield "allocations are not in order of time"
    held = dict[str, dict[int, int]]()
    for row, after in _with_next(result.allocation_records):
        if len(set(row.nodes)) != len(row.nodes) or any(gpus < 1 for gpus in row.gpus):
            yield f"{row.job} at {row.time}: nodes {row.nodes}, GPUs {row.gpus}"
        held[row.job] = dict(zip(row.nodes, row.gpus, strict=True))
        if after is not None and after.time == row.time:
            continue  # at one instant, GPUs may be given before they are taken
        used = Counter[int]()
        for placement in held.values():
            used.update(placement)
        for node, gpus in used.items():
            if not 0 <= node < len(gpus_per_node) or gpus > gpus_per_node[node]:
                yield f"{gpus} GPUs of node {node} are held at {row.time}"


def _of_rounds(result: Result) -> Iterator[str]:
    times = [record.time for record in result.round_records]
    if any(later <= sooner for sooner, later in pairwise(times)):
        yield "rounds are not in order of time"
    changes, held, at = result.allocation_records, dict[str, int](), 0
    ends = {(job.job, job.completion_time) for job in result.job_records}
    for record in result.round_records:
        ending = 0  # by whole seconds, a job may end at the very instant of a round, after it
        while at < len(changes) and changes[at].time <= record.time:
            if (changes[at].job, record.time) in ends and not changes[at].gpus:
                ending += held.get(changes[at].job, 0)
            held[changes[at].job] = sum(changes[at].gpus)
            at += 1
        if not 0 <= record.gpus_in_use - sum(held.values()) <= ending:
            yield f"round at {record.time}: {record.gpus_in_use} GPUs in use, allocations say {sum(held.values())}"


def _of_outages(result: Result) -> Iterator[str]:
    """Yield whoever holds GPUs of a node that is down."""
    down = defaultdict(list)
    for outage in result.outage_records:
        down[outage.node].append((outage.time, outage.until))
    changes = defaultdict(list)
    for record in result.allocation_records:
        changes[record.job].append(record)
    for job in result.job_records:
        stop = result.end_time if job.completion_time is None else job.completion_time
        for row, after in _with_next(changes[job.job]):
            for node in row.nodes:
                if any(row.time < until and _until(row, after, stop) > start for start, until in down[node]):
                    yield f"{job.job} holds GPUs of node {node} from {row.time}, which is down"


def _with_next(rows: Sequence[AllocationRecord]) -> Iterator[tuple[AllocationRecord, AllocationRecord | None]]:
    return zip(rows, [*rows[1:], None], strict=False)


def _until(row: AllocationRecord, after: AllocationRecord | None, stop: float) -> float:
    return max(row.time, stop) if after is None else after.time


def _minus(later: float | None, sooner: float) -> float | None:
    return None if later is None else later - sooner


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
