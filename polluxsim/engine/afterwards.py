"""What is known of the jobs only when a run is over: those cut off, and everybody's finish-time fairness."""

from __future__ import annotations

from copy import copy, deepcopy
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.engine.alone import TimesAlone
from polluxsim.engine.recorder import job_record
from polluxsim.metrics.fairness import mean_contention
from polluxsim.records import Result, Status, TimingRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polluxsim.columns import Records
    from polluxsim.engine.state import State
    from polluxsim.records import JobRecord
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Job


def finished(
    state: State, jobs: Mapping[JobId, Job], seconds: float, standstill: str | None, *, is_over: bool
) -> Result:
    """Return the result of a run of these jobs, which took so much wall-clock time [s].

    Where the run is over, and nothing more will happen in it, the result shares its records.
    """
    started = perf_counter()
    now, records = state.agenda.now, state.records if is_over else deepcopy(state.records)
    job_records = _all_jobs(state, jobs, is_over=is_over)
    job_records = job_records.with_column("finish_time_fairness", _fairness(state, jobs, job_records))
    timings = copy(records.timings)
    timings.append(TimingRecord("simulate", None, seconds))
    timings.append(TimingRecord("fairness", None, perf_counter() - started))
    return Result(
        job_records,
        records.rounds,
        records.allocations,
        now,
        timings,
        records.reasons,
        standstill,
        state.nodes.all_outages(),
        state.nodes.mean_gpus(now) * now,
        records.checkpoints,
        records.sharing,
        records.hosts,
    )


def so_far(state: State, jobs: Mapping[JobId, Job]) -> Result:
    """Return the jobs of a run that goes on as if it ended now, and its nodes' outages; it has no other records."""
    now, records = state.agenda.now, _all_jobs(state, jobs, is_over=False)
    gpu_seconds = state.nodes.mean_gpus(now) * now
    return Result(records, (), (), now, outage_records=state.nodes.all_outages(), gpu_seconds=gpu_seconds)


def _all_jobs(state: State, jobs: Mapping[JobId, Job], *, is_over: bool) -> Records[JobRecord]:
    """Return the records of all jobs in order of submission, those cut off included."""
    now, settings, records = state.agenda.now, state.scenario.settings, state.records.jobs
    if not is_over or len(records) < len(jobs):
        records = copy(records)
    if len(records) < len(jobs):
        ended = set(records.column("job"))
        for active in state.jobs.active.values():
            still = deepcopy(active) if active.placement else active
            still.pass_epochs(now)
            records.append(job_record(active.job, still, Status.CUT_OFF, now, settings))
        for name, job in jobs.items():
            if name not in ended and name not in state.jobs.active:
                records.append(job_record(job, None, Status.CUT_OFF, now, settings))
    places = {name: place for place, name in enumerate(jobs)}
    order = np.lexsort(([places[name] for name in records.column("job")], records.column("submit_time")))
    records.put_in_order(order.tolist())
    return records


def _fairness(state: State, jobs: Mapping[JobId, Job], records: Records[JobRecord]) -> Iterator[float | None]:
    """Yield every complete job's finish-time fairness ρ, None where it is not complete or its time alone is not known.

    Source: Themis (NSDI '20); an equal share is that among the jobs that were unfinished on average over its life.
    """
    now = state.agenda.now
    submit_times = np.asarray(records.column("submit_time"))
    ends = np.array([now if time is None else time for time in records.column("end_time")])
    contention, submitted = np.ones(len(records)), submit_times <= now
    contention[submitted] = mean_contention(submit_times[submitted], ends[submitted])
    alone, gpus = TimesAlone(state.scenario), state.nodes.mean_gpus(now)
    columns = (records.column(name) for name in ("job", "submit_time", "jct"))
    for name, submit_time, jct, crowd in zip(*columns, contention.tolist(), strict=True):
        time = None if jct is None else alone.time(jobs[name], gpus / crowd, submit_time)
        yield None if time is None or jct is None else jct / time
