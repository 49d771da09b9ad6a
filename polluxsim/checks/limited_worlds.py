"""Random worlds with limits on the GPUs and running jobs of users, qualities of service and queues."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from polluxsim.checks.worlds import World
from polluxsim.workloads.job import Job

NAMES = {"qos": ("normal", "high"), "queue": ("vision", "speech")}  # values of the attributes that limits name


def limited(world: World, number: int) -> World:
    """Return a world in which limits hold. A number always gives the same world.

    Each limit allows each job alone.
    """
    rng = Random(f"limited {number}")
    jobs = [_of_owner(job, rng) for job in world.jobs]
    limits: dict[str, int] = {}
    for name in ("user_gpus", "user_jobs"):
        if rng.random() < 0.5:
            limits[f"all.{name}"] = _drawn_limit(name, jobs, world, rng)
    for attribute, names in NAMES.items():
        for value in names:
            for name in ("user_gpus", "user_jobs", "gpus", "jobs"):
                if rng.random() < 0.2:
                    jobs_of_value = [job for job in jobs if getattr(job, attribute) == value]
                    limits[f"{attribute}.{value}.{name}"] = _drawn_limit(name, jobs_of_value, world, rng)
    return replace(world, jobs=tuple(jobs), limits=tuple(limits.items()))


def _of_owner(job: Job, rng: Random) -> Job:
    """Return a job with a drawn user, quality of service and queue."""
    return replace(
        job,
        user=rng.choice(["ada", "bob", None]),
        qos=rng.choice([*NAMES["qos"], None]),
        queue=rng.choice([*NAMES["queue"], None]),
    )


def _drawn_limit(name: str, jobs: list[Job], world: World, rng: Random) -> int:
    """Return a limit that allows each of some jobs alone."""
    if name.endswith("jobs"):
        return rng.randint(1, 3)
    largest = max((job.num_replicas for job in jobs), default=1)
    return largest + rng.randint(0, max(sum(world.nodes) - largest, 0))
