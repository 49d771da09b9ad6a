"""Limits on the GPUs and the running jobs of users, qualities of service and queues, as Slurm has them.

A user writes them as `engine.limits`, for example `{qos: {high: {user_gpus: 8}}}`: each user may hold 8 GPUs at most
for jobs of the quality of service `high`. `use_limits` reads the setting, and a `LimitsNow` knows who holds GPUs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, allowed_among, short
from polluxsim.common.values import PositiveInt, check
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.job import JobView
from polluxsim.workloads.job import Job

SETTING = "engine.limits"
GROUPS = ("all", "qos", "queue")  # keys of the setting
NUMBERS = ("user_gpus", "user_jobs", "gpus", "jobs")  # keys of the limits of a group of jobs


class UseLimit(NamedTuple):
    """The most GPUs, or running jobs, that some jobs may have at once.

    >>> limit = use_limits({"qos": {"high": {"user_gpus": 8}}})[0]
    >>> limit.setting, limit.most, limit.attributes
    ('engine.limits.qos.high.user_gpus', 8, ('user', 'qos'))
    """

    attribute: str  # `qos` or `queue`: the limit is for the jobs with a value of this attribute; `all` for all jobs
    name: str  # the value of the attribute; empty for all jobs
    number: str  # key of the limit, one of `NUMBERS`
    most: int  # GPUs or jobs

    @property
    def setting(self) -> str:
        """Return the name of the setting."""
        return ".".join(filter(None, (SETTING, self.attribute, self.name, self.number)))

    @property
    def is_by_user(self) -> bool:
        """Return whether the jobs of each user are counted apart."""
        return self.number.startswith("user_")

    @property
    def counts_gpus(self) -> bool:
        """Return whether the limit is a number of GPUs, not of jobs."""
        return self.number.endswith("gpus")

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the attributes that are equal for all jobs that are counted together."""
        by_user = ("user",) if self.is_by_user else ()
        if self.attribute == "all":
            return by_user
        return (*by_user, self.attribute)

    def group_of(self, job: JobView | Job) -> str | None:
        """Return the user whose jobs are counted with a job, or "" if the jobs of all users are counted together.

        Return None if the limit is not for the job: it is of another group, or a limit by user and the job has no user.
        """
        is_of_group = self.attribute == "all" or getattr(job, self.attribute) == self.name
        if not is_of_group:
            return None
        if self.is_by_user:
            return job.user or None
        return ""

    def amount(self, job: JobView | Job) -> int:
        """Return what a job adds while it runs [GPUs or jobs]."""
        return job.num_replicas if self.counts_gpus else 1


def use_limits(setting: Mapping[str, Any]) -> tuple[UseLimit, ...]:
    """Return the limits that a user writes as `engine.limits`.

    The keys are `all`, with limits for all jobs, and `qos` and `queue`, with limits for each of the named qualities of
    service or queues.

    Raises
    ------
    InvalidConfigError
        If a key is unknown, a mapping is missing, or a number is no whole number from 1.

    >>> [limit.setting for limit in use_limits({"all": {"user_gpus": 8, "user_jobs": 4}})]
    ['engine.limits.all.user_gpus', 'engine.limits.all.user_jobs']
    """
    limits: list[UseLimit] = []
    for attribute, value in _entries(SETTING, setting):
        if attribute not in GROUPS:
            raise InvalidConfigError(f"{SETTING} has the key {attribute!r}, {allowed_among(attribute, GROUPS)}")
        if attribute == "all":
            limits.extend(_limits_of(attribute, "", value))
            continue
        for name, numbers in _entries(f"{SETTING}.{attribute}", value):
            limits.extend(_limits_of(attribute, name, numbers))
    return tuple(limits)


def _entries(setting: str, value: object) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a mapping; raise InvalidConfigError for another value."""
    if not isinstance(value, Mapping):
        raise InvalidConfigError(f"{setting} is {short(value)}, must be a mapping, like {{all: {{user_gpus: 8}}}}")
    for key, entry in value.items():
        yield str(key), entry


def _limits_of(attribute: str, name: str, numbers: object) -> Iterator[UseLimit]:
    """Yield the limits of a group of jobs; raise InvalidConfigError as `use_limits`."""
    setting = ".".join(filter(None, (SETTING, attribute, name)))
    if not isinstance(numbers, Mapping):
        raise InvalidConfigError(f"{setting} is {short(numbers)}, must be a mapping, like {{user_gpus: 8}}")
    for number, most in numbers.items():
        if number not in NUMBERS:
            raise InvalidConfigError(f"{setting} has the key {str(number)!r}, {allowed_among(number, NUMBERS)}")
        check(f"{setting}.{number}", most, PositiveInt)
        yield UseLimit(attribute, name, number, most)


@dataclass(eq=False)
class LimitsNow:
    """The limits at a decision, and the jobs that hold GPUs.

    If several copies of a policy decide about parts of a cluster, one after the other, they share this object, so that
    each of them counts what the earlier ones started.
    """

    limits: Sequence[UseLimit] = ()
    holders: dict[JobId, JobView] = field(default_factory=dict)

    @classmethod
    def of(cls, limits: Sequence[UseLimit], running: Iterable[JobView]) -> LimitsNow:
        """Return the limits, with the running jobs as those that hold GPUs."""
        if not limits:
            return NO_LIMITS  # the jobs need not be counted
        return cls(limits, {job.job_id: job for job in running})

    def take_note(self, jobs: Iterable[JobView], placed: Container[JobId], *, others_keep: bool = False) -> None:
        """Record which of the `jobs` that a decision was about hold GPUs after it.

        They are the `placed` ones and, with `others_keep` as in `Decision`, the other ones that held GPUs before.
        """
        # `NO_LIMITS` is one object for all views, which must not change.
        if not self.limits:
            return
        for job in jobs:
            if job.job_id in placed or (others_keep and job.placement):
                self.holders[job.job_id] = job
            else:
                self.holders.pop(job.job_id, None)


NO_LIMITS = LimitsNow()
