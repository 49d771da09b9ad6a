"""Find the GPU types of a cluster that a job can use, and the reasons against other types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import packed
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import Profile, ProfileRangeError, by_type
from polluxsim.workloads.job import Job


def why_not(job: Job, profile: Profile | None, cluster: Cluster, gpu_type: str, *, shrinks: bool = False) -> str | None:
    """Return the reason against running a job, with its request, on a GPU type of a cluster; None if the job can run.

    `profile` is None for a job with a duration. With `shrinks`, on a cluster of several types, a job with a profile may
    get fewer GPUs than it requests if the type has fewer, but not fewer than its minimum.
    """
    sizes = cluster.by_type[gpu_type]
    if shrinks and profile is not None and len(cluster.types) > 1 and (job.min_replicas or 1) <= sum(sizes):
        job = at_most(job, sum(sizes))
    if job.num_replicas > sum(sizes):
        problem = f"num_replicas is {job.num_replicas}, must be at most {sum(sizes)}, the number of GPUs"
        if len(cluster.types) == 1:  # otherwise, another type may have enough GPUs
            problem += "; use a larger cluster, or leave out larger jobs"
        return problem
    # A cluster that states no types has one, whose name no job and no profile can state.
    if gpu_type == ANY.name:
        return None if profile is None else _why_not_batch(job, profile, max(sizes))
    if job.gpu_types and gpu_type not in job.gpu_types:
        return f"gpu_types are {', '.join(job.gpu_types)}"
    if profile is None:
        return _why_not_type(job, gpu_type)
    types = by_type(profile)
    if gpu_type not in types and (types or len(cluster.types) > 1):
        profiled = f"only for {', '.join(types)}" if types else "only for clusters of one type"
        return f"{job.application} has no profile for this type, {profiled}"
    return _why_not_batch(job, types.get(gpu_type, profile), max(sizes))


def _why_not_type(job: Job, gpu_type: str) -> str | None:
    """Return the reason why a job without a profile cannot run on a GPU type; None if it can.

    A speed of 0 means that the job does not fit in memory.
    """
    if not job.type_speeds:
        return None
    speed = dict(job.type_speeds).get(gpu_type)
    if speed is None:
        return "the job has no speed on this type"
    if speed == 0:
        return "the job does not fit in memory"
    return None


def _why_not_batch(job: Job, profile: Profile, gpus_per_node: int) -> str | None:
    """Return the reason why a profile does not allow the requested batch size or GPUs; None if it does."""
    limits = profile.application
    if not limits.init_batch_size <= job.batch_size <= limits.max_batch_size:
        return (
            f"batch_size is {job.batch_size}, must be {limits.init_batch_size} to {limits.max_batch_size} for "
            f"{job.application}"
        )
    if job.batch_size < limits.min_atomic_batch_size * job.num_replicas:
        return (
            f"batch_size is {job.batch_size} on {job.num_replicas} GPUs, must be at least "
            f"{limits.min_atomic_batch_size} per GPU for {job.application}"
        )
    try:
        step_time_of(job, profile, gpus_per_node)
    except ProfileRangeError as error:
        return str(error)
    return None


def step_time_of(job: Job, profile: Profile, gpus_per_node: int) -> float:
    """Return the time of an optimiser step of a job with its request, on packed nodes [s].

    Raise ProfileRangeError outside the range of the profile.
    """
    choice = split_batch_size(profile.application, job.batch_size, job.num_replicas)
    step = profile.step_time(packed(job.num_replicas, gpus_per_node), choice.atomic_batch_size)
    return step.optimiser_step(choice.accumulation_steps)


def at_most(job: Job, num_gpus: int) -> Job:
    """Return the job with its request limited to a number of GPUs, and without its own minimum if it is limited."""
    if job.num_replicas <= num_gpus:
        return job
    return replace(job, num_replicas=num_gpus, min_replicas=None)


def speeds_of(job: Job, profile: Profile, cluster: Cluster, *, shrinks: bool = False) -> Mapping[str, float]:
    """Return the speed of a job with its request on each GPU type of a cluster that it can use [optimiser steps/s].

    `profile` is the profile of the job, or of its duration (`KnownDuration`). With `shrinks`, the speed on a type with
    fewer GPUs than requested is the speed on all GPUs of this type.
    """
    own_profile = None if job.is_rigid else profile
    types = by_type(profile)
    speeds = {}
    for name, sizes in cluster.by_type.items():
        if why_not(job, own_profile, cluster, name, shrinks=shrinks) is None:
            speeds[name] = 1 / step_time_of(at_most(job, sum(sizes)), types.get(name, profile), max(sizes))
    return speeds
