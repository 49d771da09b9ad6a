"""Forks of runs: the fork that made the changes of a run, and the part of a run after a fork."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from polluxsim.hardware.placements import Gpu, Gpus
from polluxsim.records.results import AllocationRecord, Result
from polluxsim.records.storage import Run

CHANGES = {
    "lost_nodes": "cluster.lost_nodes",
    "down_nodes": "cluster.down_nodes",
    "without": "workload.without",
    "added": "workload.added",
}
"""Names of changes of a fork: in run.json, and among the settings."""

FROM_FORK = (
    "num_jobs", "avg_jct", "p50_jct", "p99_jct", "jct_by_application", "avg_queueing_delay", "avg_waiting_time",
    "p50_waiting_time", "p90_waiting_time", "p95_waiting_time", "p99_waiting_time", "restarts", "max_fairness",
    "gpu_hours",
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
    has_new_settings = before is None or _config(info) != _config(before) or descent.get("new_policy")
    if has_new_settings or any(descent.get(name) for name in CHANGES):
        return dict(descent)
    # The parent can be a fork with changes itself.
    return fork_of(before)


def _config(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run.json that decide its results, without the seed."""
    config = info.get("config") or {}
    return {name: part for name, part in config.items() if name not in ("seed", "metrics")}


def fork_times(runs: Sequence[Run]) -> list[float]:
    """Return the times of the forks of runs, in order, each once [s]."""
    times: set[float] = set()
    for run in runs:
        fork = fork_of(run.info)
        if fork is not None:
            times.add(float(fork["time"]))
    return sorted(times)


def parts_from_fork(runs: Sequence[Run], time: float) -> list[Run]:
    """Return the parts from a time on [s] of the runs whose last fork was at this time, and of runs without a fork.

    Jobs that one of these forks cancelled or added are in no part, so that the means are over the same jobs.
    """
    chosen_runs = []
    changed_jobs = set[str]()
    for run in runs:
        fork = fork_of(run.info)
        if fork is not None and fork["time"] != time:
            continue
        chosen_runs.append(run)
        if fork is not None:
            changed_jobs.update(fork.get("without", ()), fork.get("added", ()))
    # After all forks are known, because each part also leaves out the changed jobs of the other runs.
    parts = []
    for run in chosen_runs:
        part = from_fork(run.result, time, run.round_interval, changed_jobs)
        parts.append(replace(run, result=part))
    return parts


def from_fork(result: Result, time: float, interval: float | None, without: Collection[str] = ()) -> Result:
    """Return a result with the jobs not complete at a time [s], without some jobs, given by name.

    Restarts and GPU time are counted from this time on. The other values of jobs cover their whole lives. `interval` is
    the round interval [s], as for `failures`.
    """
    restarts, gpu_seconds = _before(result, time, interval)
    jobs = []
    for job in result.job_records:
        has_ended = job.left_at is not None and job.left_at <= time
        if has_ended or job.job in without:
            continue
        num_restarts = job.num_restarts - restarts[job.job]
        # Rounding must not make the GPU time negative.
        seconds = max(job.gpu_seconds - gpu_seconds[job.job], 0.0)
        jobs.append(job._replace(num_restarts=num_restarts, gpu_seconds=seconds))
    return replace(result, job_records=tuple(jobs))


def _before(result: Result, time: float, interval: float | None) -> tuple[Counter[str], defaultdict[str, float]]:
    """Return the restarts and the GPU time [GPU s] of each job before a time [s]."""
    from polluxsim.statistics.series import failures  # noqa: PLC0415  (a plain run does not need it)

    restarts = Counter[str]()
    gpu_seconds = defaultdict[str, float](float)
    latest: dict[str, AllocationRecord] = {}  # the last allocation so far, by job
    failed = {(job, lost_at) for (job, _), lost_at in failures(result, interval)}
    for record in result.allocation_records:
        if record.time >= time:
            break
        before = latest.get(record.job)
        latest[record.job] = record
        if before is None:
            continue
        gpu_seconds[record.job] += sum(before.gpus) * (record.time - before.time)
        is_moved = bool(record.nodes) and (before.nodes, before.gpus) != (record.nodes, record.gpus)
        # The policy did not order the restart after a failure.
        if is_moved and (record.job, before.time) not in failed:
            restarts[record.job] += 1
    # The last allocation of a job before the time lasts until then.
    for name, record in latest.items():
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
    shares_at = {}
    for instant in instants(result.allocation_records, result.sharing_records):
        shares_at[instant.time] = instant.shares
    rounds = {record.time for record in result.round_records}
    gpus_of = dict[str, Gpus]()
    num_users = Counter[Gpu]()
    since = 0.0
    # Between two of these times, no job gets or loses a GPU.
    for now in sorted({*shares_at, *rounds, time}):
        for name, gpus in gpus_of.items():
            share_of_others = sum(1 - 1 / num_users[gpu] for gpu in gpus)
            ceded[name] += (now - since) * share_of_others
        if now == time:
            break
        for name, share in shares_at.get(now, {}).items():
            gpus_of[name] = share.gpus
        if now in rounds:
            num_users = Counter[Gpu]()
            for gpus in gpus_of.values():
                num_users.update(gpus)
        since = now
    return ceded
