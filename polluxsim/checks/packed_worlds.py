"""Random worlds in which jobs request nodes, for policies that place whole jobs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

from polluxsim.checks.worlds import World
from polluxsim.hardware.node_shapes import NodeRequest, fits_empty, shape_of
from polluxsim.workloads.job import Job


def packed(world: World, number: int) -> World:
    """Return a world in which jobs keep their nodes, and some request a number of nodes or GPUs for each task.

    A number always gives the same world. A job whose request would fit on no nodes of some GPU type has no request.
    """
    rng = Random(f"packed {number}")
    jobs = tuple(_with_request(job, world, rng) for job in world.jobs)
    return replace(world, jobs=jobs, placement="consolidated")


def _with_request(job: Job, world: World, rng: Random) -> Job:
    """Return a job with a random request, or without a request if the job would then fit on no nodes of some type."""
    gpus = job.num_replicas
    choice = rng.choice(["gpus", "gpus", "nodes", "tasks"])
    if choice == "nodes":
        job = replace(job, num_nodes=rng.randint(1, min(gpus, 3)))
    if choice == "tasks":
        divisors = [number for number in range(1, gpus + 1) if gpus % number == 0]
        job = replace(job, gpus_per_task=rng.choice(divisors))
    request = NodeRequest(gpus, job.num_nodes, job.gpus_per_task)
    sizes_by_type = defaultdict[str, list[int]](list)
    for size, name in zip(world.nodes, world.types or ("",) * len(world.nodes), strict=True):
        sizes_by_type[name].append(size)
    for sizes in sizes_by_type.values():
        falling_sizes = sorted(sizes, reverse=True)
        if not fits_empty(shape_of(request, falling_sizes), falling_sizes):
            return replace(job, num_nodes=None, gpus_per_task=1)
    return job
