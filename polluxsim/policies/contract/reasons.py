"""Reasons of decisions: their kinds, and the rounds that the tests of reasons see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from polluxsim.common.errors import PolicyError, short
from polluxsim.common.templates import TemplateError, check_template
from polluxsim.hardware.node_shapes import Shape
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.models.batch_size import BatchSize
from polluxsim.policies.contract.changes import Change

Excuse = Callable[["JobSeen", "Reason", "RoundSeen"], bool]
"""A test whether the reason of a job is true at a round, and explains why the job does not use idle GPUs."""


@dataclass(frozen=True)
class ReasonKind:
    """A kind of reasons that a policy gives: everything that polluxsim knows about them.

    Two kinds of one run must not have the same name. `ReasonKind("because")` is a kind without a sentence.

    Attributes
    ----------
    name
        Word that identifies the kind in the records of a run.
    sentence
        Template of the sentence that `polluxsim why` and the report print, in the language of
        `polluxsim.common.templates.filled`. If it is empty, they print the name and the numbers.
    units
        Units of numbers, by name. A number without a unit is left out.
    meaning
        What the kind means, in one line of documentation.
    excuses_waiting
        Test of a job that waits beside idle GPUs that it could use. `polluxsim check` accepts the wait if the test
        returns True. Without a test, no reason of the kind excuses a wait.
    excuses_running
        The same for a running job that would gain from more GPUs.
    promises_start
        Name of the number that is the latest start of the job [s]. `polluxsim check` then tests this promise. Empty if
        the kind promises no start. A promise without the number holds for an unknown time.
    yields_to
        Kinds of the jobs that may start ahead of a promise. The promise is void after such a start, and as soon as
        another job gets a promise with a kind that yields. Empty for promises that stay.
    promises_deadline
        Whether a job with this reason must end by its deadline. `polluxsim check` then tests this promise.
    """

    name: str
    sentence: str = ""
    units: Mapping[str, str] = field(default_factory=dict, hash=False)
    meaning: str = ""
    excuses_waiting: Excuse | None = field(default=None, hash=False)
    excuses_running: Excuse | None = field(default=None, hash=False)
    promises_start: str = ""
    yields_to: tuple[ReasonKind, ...] = ()
    promises_deadline: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise PolicyError(f"the name of a ReasonKind is {self.name!r}, must be a text that is not empty")
        units = self.units
        if not isinstance(units, Mapping) or not all(isinstance(text, str) for pair in units.items() for text in pair):
            raise PolicyError(f"the units of the ReasonKind {self.name!r} are {short(units)}, must be texts by name")
        object.__setattr__(self, "units", dict(units))  # the mapping of the caller may change
        if not isinstance(self.sentence, str):
            raise PolicyError(f"the sentence of the ReasonKind {self.name!r} is {short(self.sentence)}, must be a text")
        try:
            check_template(self.sentence)
        except TemplateError as error:
            raise PolicyError(f"the sentence of the ReasonKind {self.name!r} is malformed: {error}") from None

    def __str__(self) -> str:
        return self.name


class Reason(NamedTuple):
    """The reason for the allocation of a job in a round."""

    kind: ReasonKind
    numbers: Mapping[str, float]  # by name
    others: tuple[JobId, ...] = ()  # Jobs that caused the decision. Their role depends on `kind`.


class JobSeen(NamedTuple):
    """One job at a round."""

    job_id: JobId
    num_replicas: int  # GPUs that the user requests
    min_replicas: int  # smallest number of GPUs that the job can run on
    max_replicas: int  # largest number of GPUs that the job can use
    is_gang: bool  # whether the job runs on `num_replicas` GPUs only
    queue: str | None
    priority: float
    deadline: float | None  # [s]
    time_limit: float | None  # [s]
    submit_time: float  # [s]
    placement: Placement  # GPUs before the decision
    speeds: Mapping[str, float]  # speed as the user submitted the job, by GPU type [optimiser steps/s]
    time_left: float  # true time to completion on packed nodes, with the restart delay [s]; 0 with several GPU types
    delay: float  # restart delay [s]
    num_restarts: int
    service: float  # GPUs times the time for which the job held them before the decision [GPU s]
    reason: Reason | None  # the policy's reason for its decision about the job
    user: str | None
    qos: str | None
    shapes: Mapping[str, Shape]  # how its requested GPUs must be spread over nodes, by GPU type

    @property
    def gpus_before(self) -> int:
        """Return the GPUs of the job before the decision."""
        return num_replicas(self.placement)


@dataclass(frozen=True)
class RoundSeen:
    """One round: the cluster, the jobs, and the decision of the policy."""

    time: float  # [s]
    round_interval: float  # time between rounds [s]
    gpus_per_node: Sequence[int]  # GPUs that each node offers, 0 if it is about to go down
    types: Sequence[str]  # GPU type of each node
    up: Mapping[str, int]  # GPUs of each type on nodes that are up and not about to go down
    jobs: Sequence[JobSeen]  # jobs that the policy did not reject, in order of submission
    held: Mapping[JobId, int]  # GPUs of each job after the decision
    free: Mapping[str, int]  # GPUs of each type that no job holds after the decision
    free_by_node: Sequence[int]  # GPUs of each node that no job holds after the decision
    evicted: frozenset[JobId]  # jobs that lost their GPUs since the last decision
    by_node: Mapping[JobId, Mapping[int, int]]  # GPUs of each job by node after the decision
    sharing: frozenset[JobId]  # jobs that could share their GPUs before the decision
    events: Change  # kinds of events since the last decision; a fork that altered jobs counts as an arrival
    outdated_by: Change  # kinds of events that end the validity of the decision
    batch_sizes: Mapping[JobId, BatchSize]  # that the policy chose, by job

    # Whether the requested GPUs of a job fit on the free GPUs of a type after the decision.
    fits: Callable[[JobSeen, str], bool]

    @property
    def most_free(self) -> int:
        """Return the free GPUs of the node with the most free GPUs."""
        return max(self.free_by_node, default=0)

    def fits_somewhere(self, job: JobSeen) -> bool:
        """Return whether the requested GPUs of a job fit on the free GPUs of one of the types that it can use."""
        return any(self.fits(job, name) for name in job.speeds)

    def held_with(self, job: JobSeen, attributes: Sequence[str], *, counts_gpus: bool) -> int:
        """Return the GPUs, or the number, of the jobs that hold GPUs after the decision and have equal attributes."""
        total = 0
        for other in self.jobs:
            gpus = self.held[other.job_id]
            if gpus and all(getattr(other, name) == getattr(job, name) for name in attributes):
                total += gpus if counts_gpus else 1
        return total

    def waits(self, job: JobSeen) -> bool:
        """Return whether a job has no GPUs after the decision."""
        return not self.held[job.job_id]

    def another_does_not_fit(self, job: JobSeen) -> bool:
        """Return whether another job waits, and its requested GPUs do not fit on the free GPUs of any type."""
        return any(other is not job and self.waits(other) and not self.fits_somewhere(other) for other in self.jobs)
