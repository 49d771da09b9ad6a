"""Forks of runs: the fork that made the changes of a run, and the part of a run after a fork."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from polluxsim.records.results import AllocationRecord, Result
from polluxsim.records.storage import Run

CHANGES = {"lost_nodes": "cluster.lost_nodes", "without": "workload.without", "added": "workload.added"}
"""Names of changes of a fork: in run.json, and among the settings."""

FROM_FORK = (
    "num_jobs", "avg_jct", "p50_jct", "p99_jct", "jct_by_application", "avg_queueing_delay", "avg_waiting_time",
    "restarts", "max_fairness", "gpu_hours",
)  # fmt: skip
"""Metrics of a run after a fork; metrics of jobs cover the jobs that are not complete at the fork."""


def fork_of(info: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the last fork with changes, given the content of a run.json; None if the run is not a fork.

    A fork that changes only the seed continues its parent.
    """
    descent = info.get("descent")
    if not descent:
        return None
    before = descent.get("before")
    is_changed = before is None or _config(info) != _config(before) or descent.get("new_policy")
    if is_changed or any(descent.get(name) for name in CHANGES):
        return dict(descent)
    return fork_of(before)


def _config(info: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in (info.get("config") or {}).items() if name not in ("seed", "metrics")}


def fork_times(runs: Sequence[Run]) -> list[float]:
    """Return the times of the forks of runs, in order, each once [s]."""
    found = (fork_of(run.info) for run in runs)
    return sorted({float(fork["time"]) for fork in found if fork is not None})


def parts_from_fork(runs: Sequence[Run], time: float) -> list[Run]:
    """Return the parts from a time on [s] of the runs whose last fork was at this time, and of runs without a fork."""
    forks = [fork_of(run.info) for run in runs]
    kept = [run for run, fork in zip(runs, forks, strict=True) if fork is None or fork["time"] == time]
    return [replace(run, result=from_fork(run.result, time)) for run in kept]


def from_fork(result: Result, time: float) -> Result:
    """Return a result with the jobs not complete at a time [s].

    Restarts and GPU time are counted from this time on. The other values of jobs cover their whole lives.
    """
    restarts, gpu_seconds = _before(result, time)
    jobs = tuple(
        job._replace(
            num_restarts=job.num_restarts - restarts[job.job],
            gpu_seconds=max(job.gpu_seconds - gpu_seconds[job.job], 0.0),
        )
        for job in result.job_records
        if job.left_at is None or job.left_at > time
    )
    return replace(result, job_records=jobs)


def _before(result: Result, time: float) -> tuple[Counter[str], defaultdict[str, float]]:
    """Return the restarts and the GPU time [GPU s] of each job before a time [s]."""
    from polluxsim.statistics.series import failures  # noqa: PLC0415  (a plain run does not need it)

    restarts, gpu_seconds = Counter[str](), defaultdict[str, float](float)
    last: dict[str, AllocationRecord] = {}
    failed = {(job, lost_at) for (job, _), lost_at in failures(result)}
    for record in result.allocation_records:
        if record.time >= time:
            break
        before = last.get(record.job)
        last[record.job] = record
        if before is None:
            continue
        gpu_seconds[record.job] += sum(before.gpus) * (record.time - before.time)
        is_moved = record.nodes and (before.nodes, before.gpus) != (record.nodes, record.gpus)
        restarts[record.job] += bool(is_moved and (record.job, before.time) not in failed)
    for name, record in last.items():
        gpu_seconds[name] += sum(record.gpus) * (time - record.time)
    return restarts, gpu_seconds
