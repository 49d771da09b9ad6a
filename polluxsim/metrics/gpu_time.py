"""Where the GPU time of a run went: into useful training, or what else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.records import GpuSeconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polluxsim.records import JobRecord, Result


def shares_of_gpu_time(result: Result) -> Mapping[str, float]:
    """Return the shares of all GPU time of a run, as `shares`; empty if the GPU time is unknown."""
    if not result.gpu_seconds:
        return {}
    jobs, end = result.job_records, result.end_time
    return shares(
        GpuSeconds(
            all=result.gpu_seconds,
            held=sum(job.gpu_seconds for job in jobs),
            checkpoint=sum(job.checkpoint_gpu_seconds for job in jobs),
            restart=sum(job.restart_gpu_seconds for job in jobs),
            lost=sum(job.lost_gpu_seconds for job in jobs),
            down=sum(row.gpus * (min(row.until, end) - min(row.time, end)) for row in result.outage_records),
        )
    )


def shares(spent: GpuSeconds) -> Mapping[str, float]:
    """Return the shares of all GPU time, which add up to 1; empty without GPU time.

    The shares are useful training, checkpoints, starts and restarts, lost training, idle GPUs, and GPUs of nodes that
    were down.
    """
    if not spent.all:
        return {}
    overhead = {"checkpoint": spent.checkpoint, "restart": spent.restart, "lost": spent.lost}
    idle = spent.all - spent.held - spent.down
    parts = {"useful": spent.held - sum(overhead.values()), **overhead, "idle": idle, "down": spent.down}
    return {name: seconds / spent.all for name, seconds in parts.items()}


def effective_time_ratio(jobs: Iterable[JobRecord], end: float) -> float | None:
    """Return the useful training time of jobs over the time since they first started; None if none did.

    Those that were not complete count up to the end of the run [s].

    Source: Kokolis et al. (HPCA '25), ETTR, with the time in the queue before the first start left out.
    """
    useful = passed = 0.0
    for job in jobs:
        if job.start_time is not None:
            useful += job.run_time - job.restart_time - job.checkpoint_time - job.lost_time
            passed += (end if job.left_at is None else job.left_at) - job.start_time
    return useful / passed if passed else None
