"""Search for the smallest world that still shows a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from time import monotonic
from typing import Any

from polluxsim.checks.findings import Finding
from polluxsim.checks.worlds import World
from polluxsim.common.errors import PolluxSimError
from polluxsim.models.known_duration import RIGID
from polluxsim.workloads.workload import Job

MOST_TRIES = 80  # largest number of worlds that are tried
MOST_SECONDS = 30.0  # longest time of the search [s]

# Optional fields of a job, and settings of a world, that shrinking sets to their defaults.
OPTIONAL_FIELDS = (
    "user", "queue", "priority", "deadline", "time_limit", "cancel_time", "min_replicas", "max_replicas", "gpu_types",
    "type_speeds", "cpus", "cpu_speeds",
)  # fmt: skip
SETTINGS = ("least_nodes", "interference", "types", "has_hosts", "checkpoint_interval", "agent", "is_scaled")


def smallest(finding: Finding, world: World, checked: Callable[[World], Iterable[Finding]]) -> Finding:
    """Return a finding of the same kind in the smallest world that the search finds.

    `checked` returns the findings in a world.
    """
    tries = 0
    has_shrunk = True
    started = monotonic()
    while has_shrunk:
        has_shrunk = False
        for steps in STEPS:
            candidates = steps(world)
            while (smaller := next(candidates, None)) is not None:
                tries += 1
                if tries > MOST_TRIES or monotonic() - started > MOST_SECONDS:
                    return finding
                try:
                    same = [other for other in checked(smaller) if other.kind == finding.kind]
                except PolluxSimError:  # no job may be left that can run
                    continue
                if same:
                    finding = same[0]
                    world = smaller
                    has_shrunk = True
                    candidates = steps(world)
    return finding


def _fewer_jobs(world: World) -> Iterator[World]:
    """Yield worlds without half of the jobs, and worlds without one job."""
    jobs = world.jobs
    for count in sorted({len(jobs) // 2, 1} - {0}, reverse=True):
        for start in range(0, len(jobs), count):
            other_jobs = jobs[:start] + jobs[start + count :]
            if other_jobs:
                yield replace(world, jobs=other_jobs)


def _fewer_outages(world: World) -> Iterator[World]:
    """Yield worlds without one outage."""
    for outage in world.outages:
        yield replace(world, outages=tuple(other for other in world.outages if other != outage))
    for reclaim in world.reclaims:
        yield replace(world, reclaims=tuple(other for other in world.reclaims if other != reclaim))


def _simpler_settings(world: World) -> Iterator[World]:
    """Yield worlds from which one setting is removed."""
    for field in fields(world):
        if field.name in SETTINGS and getattr(world, field.name) != field.default:
            simpler: dict[str, Any] = {field.name: field.default}
            if field.name == "least_nodes":  # an autoscaler needs a cluster that can change
                simpler["is_scaled"] = False
            yield replace(world, **simpler)
    for parameter in world.parameters:
        yield replace(world, parameters=tuple(other for other in world.parameters if other != parameter))


def _simpler_jobs(world: World) -> Iterator[World]:
    """Yield worlds in which one job is simpler."""
    for index, job in enumerate(world.jobs):
        for simpler in _simpler(job):
            jobs = list(world.jobs)
            jobs[index] = simpler
            yield replace(world, jobs=tuple(jobs))


def _smaller_cluster(world: World) -> Iterator[World]:
    """Yield worlds without the last node, and worlds with one GPU less."""
    nodes = world.nodes
    # An outage names its node, so the node must stay.
    is_last_sound = all(node < len(nodes) - 1 for node, *_ in (*world.outages, *world.reclaims))
    if len(nodes) > 1 and is_last_sound and world.least_nodes is None:
        yield replace(world, nodes=nodes[:-1], types=world.types[:-1])
    for node, gpus in enumerate(nodes):
        if gpus > 1:
            fewer = list(nodes)
            fewer[node] = gpus - 1
            yield replace(world, nodes=tuple(fewer))


def _plainer(world: World) -> Iterator[World]:
    """Yield worlds whose jobs arrive at once, or have no optional fields."""
    if any(job.submit_time for job in world.jobs):
        yield replace(world, jobs=tuple(replace(job, submit_time=0.0, past=None) for job in world.jobs))
    plain = tuple(replace(job, **_set_optional_fields(job)) for job in world.jobs)
    if plain != world.jobs:
        yield replace(world, jobs=plain)


# Ways to make a world smaller, in order.
STEPS = (_plainer, _fewer_jobs, _fewer_outages, _smaller_cluster, _simpler_settings, _simpler_jobs, _smaller_cluster)


def _simpler(job: Job) -> Iterator[Job]:
    """Yield the job without its optional fields, then without one of them, then with simpler values."""
    defaults = _set_optional_fields(job)
    if len(defaults) > 1:
        yield replace(job, **defaults)
    for name, default in defaults.items():
        yield replace(job, **{name: default})
    if job.submit_time:
        yield replace(job, submit_time=0.0, past=None)
    if job.past is not None:  # its work and its nodes may not suit the changes below
        return
    if job.speeds and job.duration is not None:
        yield replace(job, speeds=(), application=RIGID, batch_size=job.num_replicas)
    if job.duration is not None and job.duration > 60.0:
        yield replace(job, duration=60.0)
    if job.num_replicas > 1 and not job.speeds:
        batch_size = job.batch_size // job.num_replicas
        yield replace(job, num_replicas=1, batch_size=batch_size, min_replicas=None, max_replicas=None)


def _set_optional_fields(job: Job) -> dict[str, Any]:
    """Return the default values of the optional fields that a job sets."""
    return {
        field.name: field.default
        for field in fields(job)
        if field.name in OPTIONAL_FIELDS and getattr(job, field.name) != field.default
    }
