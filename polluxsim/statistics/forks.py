"""Forks of runs: the fork that made the changes of a run, and the part of a run after a fork."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from polluxsim.hardware.placements import Gpu, Gpus
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
    """Return the parts from a time on [s] of the runs whose last fork was at this time, and of runs without a fork.

    Jobs that one of these forks cancelled or added are in no part, so that the means are over the same jobs.
    """
    forks = [fork_of(run.info) for run in runs]
    kept = [(run, fork or {}) for run, fork in zip(runs, forks, strict=True) if fork is None or fork["time"] == time]
    others = {name for _, fork in kept for change in ("without", "added") for name in fork.get(change, ())}
    return [replace(run, result=from_fork(run.result, time, run.round_interval, others)) for run, _ in kept]


def from_fork(result: Result, time: float, interval: float | None, others: Collection[str] = ()) -> Result:
    """Return a result with the jobs not complete at a time [s], without other jobs, given by name.

    Restarts and GPU time are counted from this time on. The other values of jobs cover their whole lives. `interval` is
    the round interval [s], as for `failures`.
    """
    restarts, gpu_seconds = _before(result, time, interval)
    jobs = tuple(
        job._replace(
            num_restarts=job.num_restarts - restarts[job.job],
            gpu_seconds=max(job.gpu_seconds - gpu_seconds[job.job], 0.0),
        )
        for job in result.job_records
        if (job.left_at is None or job.left_at > time) and job.job not in others
    )
    return replace(result, job_records=jobs)


def _before(result: Result, time: float, interval: float | None) -> tuple[Counter[str], defaultdict[str, float]]:
    """Return the restarts and the GPU time [GPU s] of each job before a time [s]."""
    from polluxsim.statistics.series import failures  # noqa: PLC0415  (a plain run does not need it)

    restarts, gpu_seconds = Counter[str](), defaultdict[str, float](float)
    last: dict[str, AllocationRecord] = {}
    failed = {(job, lost_at) for (job, _), lost_at in failures(result, interval)}
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
    for name, seconds in _ceded_before(result, time).items():
        gpu_seconds[name] -= seconds
    return restarts, gpu_seconds


def _ceded_before(result: Result, time: float) -> defaultdict[str, float]:
    """Return the GPU time of other jobs on the shared GPUs of each job before a time [s].

    Of a GPU with n jobs, each has 1/n. The end of a job changes n at the next round.
    """
    from polluxsim.statistics.series import instants  # noqa: PLC0415  (a plain run does not need it)

    ceded = defaultdict[str, float](float)
    if not result.sharing_records:
        return ceded
    shares = {each.time: each.shares for each in instants(result.allocation_records, result.sharing_records)}
    rounds = {record.time for record in result.round_records}
    held, users = dict[str, Gpus](), Counter[Gpu]()
    since = 0.0
    for now in sorted({*shares, *rounds, time}):
        for name, gpus in held.items():
            ceded[name] += (now - since) * sum(1 - 1 / users[gpu] for gpu in gpus)
        if now == time:
            break
        held |= {name: share.gpus for name, share in shares.get(now, {}).items()}
        if now in rounds:
            users = Counter(gpu for gpus in held.values() for gpu in gpus)
        since = now
    return ceded
