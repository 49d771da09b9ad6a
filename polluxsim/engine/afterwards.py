"""What is known of the jobs only when a run is over: those cut off, and everybody's finish-time fairness."""

from __future__ import annotations

from copy import copy
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.engine.alone import TimesAlone
from polluxsim.engine.recorder import job_record
from polluxsim.metrics.fairness import mean_contention
from polluxsim.records import Result, Status, TimingRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.columns import Records
    from polluxsim.engine.state import State
    from polluxsim.records import JobRecord
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Job


def finished(state: State, followers: Mapping[JobId, Job], seconds: float, standstill: str | None) -> Result:
    """Return the result of a run.

    Parameters
    ----------
    state
        The run.
    followers
        Jobs that its workload did not name.
    seconds
        Wall-clock time that the simulation took [s].
    standstill
        Why it was broken off, if it was.
    """
    started = perf_counter()
    now, records = state.agenda.now, state.records
    jobs = {job.job_id: job for job in chain(state.scenario.workload.jobs, followers.values())}
    job_records = _all_jobs(state, jobs)
    job_records = job_records.with_column("finish_time_fairness", _fairness(state, jobs, job_records))
    timings = copy(records.timings)
    timings.append(TimingRecord("simulate", None, seconds))
    timings.append(TimingRecord("fairness", None, perf_counter() - started))
    # Copies, as the run may go on.
    rounds, allocations, reasons = copy(records.rounds), copy(records.allocations), copy(records.reasons)
    return Result(job_records, rounds, allocations, now, timings, reasons, standstill)


def _all_jobs(state: State, jobs: Mapping[JobId, Job]) -> Records[JobRecord]:
    """Return the records of all jobs in order of submission, those cut off included."""
    now, delay, records = state.agenda.now, state.scenario.settings.restart_delay, copy(state.records.jobs)
    ended = set(records.columns[0])
    for active in state.jobs.active.values():
        records.append(job_record(active.job, active, Status.CUT_OFF, now, delay))
    for job_id, job in jobs.items():
        if job_id not in ended and job_id not in state.jobs.active:
            records.append(job_record(job, None, Status.CUT_OFF, now, delay))
    known = {job_id: place for place, job_id in enumerate(jobs)}
    names, submit_times = records.columns[0], np.asarray(records.columns[2])
    order = np.lexsort((np.array([known[name] for name in names]), submit_times))
    return records.in_order(order.tolist())


def _fairness(state: State, jobs: Mapping[JobId, Job], records: Sequence[JobRecord]) -> Iterator[float | None]:
    """Yield every complete job's finish-time fairness ρ, None where it is not complete or its time alone is not known.

    Source: Themis (NSDI '20); an equal share is that among the jobs that were unfinished on average over its life.
    """
    now = state.agenda.now
    submitted = [record for record in records if record.submit_time <= now]
    ends = [now if record.end_time is None else record.end_time for record in submitted]
    contention = iter(mean_contention([record.submit_time for record in submitted], ends).tolist())
    alone, gpus = TimesAlone(state.scenario), state.nodes.mean_gpus(now)
    for record in records:
        crowd = next(contention) if record.submit_time <= now else None
        if crowd is None or record.jct is None:
            yield None
            continue
        time = alone.time(jobs[record.job], gpus / crowd, record.submit_time)
        yield None if time is None else record.jct / time
