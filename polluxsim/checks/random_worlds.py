"""Draw small random worlds by number: a cluster, jobs of toy applications, and parts of a run that may fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from polluxsim.checks.worlds import AGENTS, APPLICATIONS, CPUS, TYPE_SPEEDS, World
from polluxsim.policies.contract.view import Traits
from polluxsim.workloads.past import Past
from polluxsim.workloads.workload import Job

STREAM = 0xA7E4A  # number of the random stream of worlds

# In the worlds EARLIER, EARLIER + EARLIER_OF and so on, some jobs are from before the run.
EARLIER = 6
EARLIER_OF = 7

TIES = 5  # every TIES-th world has equal jobs that arrive at once
ONE_GPU = 10  # every ONE_GPU-th world has one GPU


@dataclass(frozen=True)
class Allowed:
    """The features that worlds for a policy may have."""

    rigid: bool = True  # jobs without a profile
    types: bool = True  # several GPU types
    scaled: bool = True  # an autoscaler

    @classmethod
    def under(cls, traits: Traits) -> Allowed:
        """Return what a policy with these traits can schedule."""
        # A policy that chooses the number of nodes itself must not have an autoscaler around it.
        return cls(rigid=not traits.needs_profiles, types=not traits.one_type_as, scaled=not traits.scales)


def random_world(number: int, allowed: Allowed) -> World:
    """Return a world. A number always gives the same world.

    The order of the draws is a part of the function: stored tests and reports name worlds by their numbers. Draw new
    features from a stream of their own, as `_some_from_before` does.
    """
    rng = np.random.default_rng([STREAM, number])
    nodes: tuple[int, ...] = (1,)
    if number % ONE_GPU:
        nodes = tuple(rng.integers(1, 5, size=rng.integers(1, 5)).tolist())
    least_nodes = None
    if rng.random() < 0.15:
        least_nodes = int(rng.integers(1, len(nodes) + 1))
    types: tuple[str, ...] = ()
    if allowed.types and least_nodes is None and len(nodes) > 1 and rng.random() < 0.25:
        types = ("t4", "v100", *rng.choice(["t4", "v100"], size=len(nodes) - 2).tolist())
    has_hosts = rng.random() < 0.15
    jobs = _random_jobs(number, nodes, least_nodes, types, rng, with_rigid=allowed.rigid, has_hosts=has_hosts)
    # A policy that chooses the number of nodes does not know which nodes will fail, so its nodes stay up.
    outages = []
    if least_nodes is None:
        for node in range(len(nodes)):
            if rng.random() < 0.12:
                outages.append(_outage(node, rng))
    interference = float(rng.choice([0.0, 0.0, 0.4]))
    reclaims = []
    if least_nodes is None:
        for node in range(len(nodes)):
            if rng.random() < 0.05:
                reclaims.append((*_outage(node, rng), 120.0))
    checkpoint_interval = [None, 100.0, 300.0][rng.integers(3)]
    agent = None
    if rng.random() < 0.15:
        agent = str(rng.choice(sorted(AGENTS)))
    return World(
        nodes,
        tuple(jobs),
        outages=tuple(outages),
        least_nodes=least_nodes,
        interference=interference,
        types=types,
        has_hosts=has_hosts,
        reclaims=tuple(reclaims),
        checkpoint_interval=checkpoint_interval,
        agent=agent,
        is_scaled=least_nodes is not None and allowed.scaled and rng.random() < 0.5,
    )


def _random_jobs(
    number: int,
    nodes: tuple[int, ...],
    least_nodes: int | None,
    types: tuple[str, ...],
    rng: np.random.Generator,
    *,
    with_rigid: bool,
    has_hosts: bool,
) -> list[Job]:
    """Return the jobs of the world with a number, each of which can start on the smallest cluster of the world."""
    gpus_of_type = _by_type(nodes, types)
    # GPUs of the widest job that can always start.
    if types:
        most_gpus = max(gpus_of_type.values())
    else:
        most_gpus = sum(nodes[:least_nodes])
    job = partial(_job, most=most_gpus, rng=rng, with_rigid=with_rigid, types=gpus_of_type, has_hosts=has_hosts)
    count = int(rng.integers(1, 9))
    if number % TIES == 1:
        first = job(0, 0.0)
        jobs = [replace(first, job_id=f"job-{index}") for index in range(count)]
    else:
        jobs = [job(index, 25.0 * int(rng.integers(0, 41))) for index in range(count)]
    if number % EARLIER_OF == EARLIER:
        # A node of a random number may have a GPU type that the job cannot use.
        usable_nodes = () if types else nodes
        jobs = _some_from_before(jobs, usable_nodes, np.random.default_rng([STREAM, number, EARLIER]))
    return jobs


def _some_from_before(jobs: Sequence[Job], nodes: Sequence[int], rng: np.random.Generator) -> list[Job]:
    """Return jobs of which about two thirds run or wait at the start of the run, some of them on one of the nodes."""
    return [_from_before(job, nodes, rng) if rng.random() < 2 / 3 else job for job in jobs]


def _from_before(job: Job, nodes: Sequence[int], rng: np.random.Generator) -> Job:
    """Return a job that was submitted before the start of the run. It runs, waits, or waits again after it ran."""
    waited = 25.0 * int(rng.integers(1, 20))
    ran = 25.0 * int(rng.integers(1, 20))
    submit_time = -(waited + ran)
    kind = rng.choice(["runs", "runs on a node", "waits", "waits again"], p=[0.4, 0.2, 0.3, 0.1])
    if kind == "waits":
        return replace(job, submit_time=submit_time, past=Past.pending())
    whole = APPLICATIONS[job.application].epochs[-1] if job.duration is None else job.duration
    progress = whole * 0.125 * int(rng.integers(0, 8))
    past = Past.running(-ran, job.num_replicas, progress)
    if kind == "waits again":
        past = replace(past, state="pending")
    if kind == "runs on a node" and nodes:
        node = int(rng.integers(len(nodes)))
        if nodes[node] >= job.num_replicas:
            past = replace(past, placement=((node, job.num_replicas),))
    return replace(job, submit_time=submit_time, past=past)


def _by_type(nodes: Sequence[int], types: Sequence[str]) -> Counter[str]:
    """Return the GPUs of each type; empty on a cluster of one type. `types` is the type of each node."""
    gpus_of_type = Counter[str]()
    if types:
        for gpus, name in zip(nodes, types, strict=True):
            gpus_of_type[name] += gpus
    return gpus_of_type


def _outage(node: int, rng: np.random.Generator) -> tuple[int, float, float]:
    """Return a random outage of a node: node, start and duration [s]."""
    return node, float(rng.integers(0, 1200)), float(rng.integers(1, 900))


def _job(
    index: int,
    time: float,
    *,
    most: int,
    rng: np.random.Generator,
    with_rigid: bool,
    types: Mapping[str, int],
    has_hosts: bool,
) -> Job:
    """Return a random job that arrives at a time [s] and requests at most `most` GPUs."""
    gpus = most
    if rng.random() < 0.7:
        gpus = int(rng.integers(1, most + 1))
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options = _optional_fields(time, gpus, rng)
    if has_hosts and rng.random() < 0.5:
        options |= {"cpus": gpus * 2.0, "cpu_speeds": ((1.0, 0.4), (CPUS, 1.0))}
    wide_enough = [name for name in sorted(types) if gpus <= types[name]]
    if wide_enough and rng.random() < 0.3:
        options |= {"gpu_types": (str(rng.choice(wide_enough)),)}
    if with_rigid and rng.random() < 0.6:
        if rng.random() < 0.3:
            options |= {"speeds": tuple((count, count**0.75) for count in (1, 2, 4, 8, 16)), "max_replicas": None}
        elif types and rng.random() < 0.5:
            options |= {"type_speeds": TYPE_SPEEDS}
        return Job.rigid(f"job-{index}", time, gpus, 12.5 * int(rng.integers(1, 81)), **options)
    return Job(f"job-{index}", time, str(rng.choice(sorted(APPLICATIONS))), gpus, 10 * gpus, **options)


def _optional_fields(time: float, gpus: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return optional fields of a job."""
    choices: dict[str, list[Any]] = {
        "user": ["ada", "bob", None],
        "queue": ["vision", "speech", None],
        "priority": [0.0, 1.0, -2.0],
        "deadline": [time + 400.0, time + 1500.0, None],
        "time_limit": [100.0, 600.0, None],
        "cancel_time": [None, None, time + 5.0, time + 330.0],
        "min_replicas": [None, None, gpus, (gpus + 1) // 2],
        "max_replicas": [None, gpus, gpus + 3],
    }
    return {name: values[rng.integers(len(values))] for name, values in choices.items()}
