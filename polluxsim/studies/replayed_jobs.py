"""Times of the jobs of replays of a log, and the jobs that several replays have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polluxsim.metrics.outcomes import outcome
from polluxsim.metrics.summary import of_run, queueing_delay, waiting_time
from polluxsim.records.results import JobRecord, Status
from polluxsim.records.storage import read_run

MEAN = "mean"
PERCENTILES = ("p50", "p90", "p95", "p99")  # of times, linear between ranks


class Replay(NamedTuple):
    """The jobs of one replay of a log."""

    waits: Mapping[str, float]  # time without GPUs from submission to completion, by name of complete jobs [s]
    first_waits: Mapping[str, float]  # part of it up to the first GPU [s]
    jcts: Mapping[str, float]  # from submission to completion [s]
    unserved: Mapping[str, str]  # what happened to the jobs that did not complete, like "cut off", by name
    sizes: Mapping[str, int]  # GPUs of every job of the replay, by name
    gpus: int  # of the cluster
    # Number of times that the policy took the GPUs of each job, and the job started again, by name of complete jobs.
    preemptions: Mapping[str, int]
    preemptions_before: int  # the same of all jobs from before the start of the run, which are in no other value
    outages: int  # of nodes
    notes: Sequence[str]  # on the jobs of the log that the replay left out or changed
    engine: Mapping[str, Any]  # engine settings

    def num_preemptions(self, jobs: Iterable[str]) -> int:
        """Return the number of preemptions of some complete jobs."""
        return sum(self.preemptions[job] for job in jobs)


def read_replay(folder: Path, gpus: int) -> Replay:
    """Return the jobs of a replay on a cluster of a number of GPUs, from its folder.

    Jobs from before the start of the run are left out, except from `preemptions_before`.
    """
    run = read_run(folder)
    records = of_run(run.result)
    end = run.result.end_time
    complete: list[JobRecord] = []
    unserved: dict[str, str] = {}
    for job in records:
        if job.status is Status.COMPLETED:
            complete.append(job)
        else:
            unserved[job.job] = outcome(job, end)
    return Replay(
        waits={job.job: waiting_time(job, end) for job in complete},
        first_waits={job.job: queueing_delay(job, end) for job in complete},
        jcts={job.job: job.jct for job in complete if job.jct is not None},
        unserved=unserved,
        sizes={job.job: job.num_replicas for job in records},
        gpus=gpus,
        preemptions={job.job: job.num_restarts for job in complete},
        preemptions_before=sum(job.num_restarts for job in run.result.job_records if not job.is_counted),
        outages=len(run.result.outage_records),
        notes=tuple(run.info.get("notes", ())),
        engine=run.info["config"]["engine"],
    )


def in_common(replays: Iterable[Replay]) -> list[str]:
    """Return the jobs that complete in all of some replays, in the order of their names. There must be a replay."""
    complete = [set(replay.waits) for replay in replays]
    # Sorted, because the order of a set of texts differs from process to process, and resamples depend on the order.
    return sorted(set.intersection(*complete))


def left_out(replay: Replay, common: Iterable[str], replays: Iterable[Replay]) -> Counter[str]:
    """Return the number of jobs of some replays that are not in common, by what this replay does with them.

    The replay does not serve a job, has no room for it, or lacks it for another reason. Jobs that complete in this
    replay, but not in another one, are not counted.
    """
    gpus_of_jobs: dict[str, int] = {}  # of all replays, because this one may lack the job
    for other in replays:
        gpus_of_jobs |= other.sizes
    counts = Counter[str]()
    for job in gpus_of_jobs.keys() - set(common):
        if job in replay.unserved:
            counts[replay.unserved[job]] += 1
        elif job in replay.sizes:  # it completes in this replay
            continue
        elif gpus_of_jobs[job] > replay.gpus:
            counts[f"too large for {replay.gpus} GPUs"] += 1
        else:
            counts["not in the replay"] += 1
    return counts


def statistic(name: str, values: Mapping[str, float], jobs: Sequence[str]) -> float:
    """Return the mean or a percentile of the values of jobs, in the unit of the values; nan without jobs.

    `name` is `MEAN` or one of `PERCENTILES`.
    """
    chosen = [values[job] for job in jobs]
    # There may be no job that completes in every replay, and NumPy has no percentile of nothing.
    if not chosen:
        return nan
    if name == MEAN:
        return float(np.mean(chosen))
    return float(np.percentile(chosen, int(name.removeprefix("p"))))
