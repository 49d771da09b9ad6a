"""Check the settings of policies and other parts of a run: unknown names, and settings without effect.

A policy, a failure model, a sharing model and a checkpoint rule may each define a method `without_effect(jobs,
cluster)`. The method returns a sentence for each setting, or rule, that has no effect for these jobs on this cluster.
The method raises `InvalidConfigError` if a setting names a queue, user or type that does not exist. The functions of
this module help to write that method.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from polluxsim.common.errors import InvalidConfigError, did_you_mean, listed
from polluxsim.hardware.clusters import Cluster
from polluxsim.workloads.job import Job


def without_effect(part: object, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
    """Return a sentence for each setting of a policy, or of another part of a run, that has no effect here."""
    method = getattr(part, "without_effect", None)
    if method is None:
        return []
    return list(method(jobs, cluster))


def check_names(setting: str, names: Iterable[str], kind: str, known: Collection[str]) -> None:
    """Raise an `InvalidConfigError` if a name in a setting is not one of the `known` names.

    `kind` is the kind of the names: a queue, a user or a GPU type.
    """
    for name in names:
        if name not in known:
            possible_names = sorted(filter(None, known))  # a job without a user has the user ""
            advice = "leave it out"
            if possible_names:
                advice = f"use one of {listed(map(repr, possible_names))}"
            raise InvalidConfigError(
                f"{setting} names {kind} {name!r}, which does not exist here; {advice}{did_you_mean(name, known)}"
            )


def check_owners(setting: str, names: Iterable[str], jobs: Sequence[Job], attribute: str, otherwise: str) -> None:
    """Raise an `InvalidConfigError` if a name in a setting is not the queue, or user, of a job.

    `otherwise` is the name for jobs without a queue or user, which is allowed as well. If no job has a queue or user,
    each name is allowed, because the setting then has no effect.
    """
    owners = values_of(jobs, attribute, otherwise)
    a_job_has_one = bool(owners - {otherwise})
    if a_job_has_one:
        check_names(setting, names, attribute, {*owners, otherwise})


def values_of(jobs: Iterable[Job], attribute: str, otherwise: str) -> set[str]:
    """Return the values of an attribute of jobs; a job without a value has the value `otherwise`."""
    return {getattr(job, attribute) or otherwise for job in jobs}


def unless_jobs_differ(jobs: Sequence[Job], attribute: str, consequence: str) -> list[str]:
    """Return a sentence if an attribute has no effect, because it is equal for all jobs or missing.

    >>> from polluxsim.workloads.job import Job
    >>> unless_jobs_differ([Job.rigid("a", 0.0, 1, 60.0), Job.rigid("b", 0.0, 1, 60.0)], "queue", "it acts like FIFO")
    ['no job has a queue: it acts like FIFO']
    """
    values = {getattr(job, attribute) for job in jobs}
    if len(values) > 1 or not jobs:
        return []
    (value,) = values
    if value in (None, 0.0):  # a priority of 0 is that of a job without one
        cause = f"no job has a {attribute}"
    else:
        cause = f"all jobs have the same {attribute}, {value!r}"
    return [f"{cause}: {consequence}"]


def overestimate_without_effect(overestimate: float, jobs: Sequence[Job]) -> list[str]:
    """Return a sentence if a policy's `overestimate` is set although each job has its own time limit."""
    applies_to_a_job = not all(job.time_limit for job in jobs)
    if overestimate == 1.0 or not jobs or applies_to_a_job:
        return []
    return ["policy.overestimate has no effect: each job has a time limit"]
