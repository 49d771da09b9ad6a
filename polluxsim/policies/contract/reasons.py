"""Reasons of decisions: their kinds, and the rounds that the tests of reasons see.

A policy gives a `Reason` for what it decides about a job: a kind, and numbers by name. The kind has the sentence about
the numbers, as a template in the small language of `polluxsim.common.templates`. It is read like this:

- `{gpus}` is the number `gpus`. `{gpus:GPU}` counts: "1 GPU", "2 GPUs". `{end:clock}` is a time, `{share:%}` a share.
- `{first}` and `{others}` are the names of other jobs.
- `[a|b|c]` becomes the first part whose numbers are all known, or nothing.
- `[gpus=0?a|b]` becomes `a` if the number is 0, otherwise `b`. `[end?a|b]` becomes `a` if the number `end` is known.

>>> from polluxsim.common.templates import Values, filled
>>> text = "It needs {gpus:GPU}. [left=0?No GPU is|{left:GPU} [left=1?is|are]] free[, and it starts at {start:clock}]."
>>> filled(text, Values({"gpus": 2.0, "left": 0.0, "start": 3600.0}))
'It needs 2 GPUs. No GPU is free, and it starts at 1:00:00.'
>>> filled(text, Values({"gpus": 2.0, "left": 1.0}))
'It needs 2 GPUs. 1 GPU is free.'

A policy leaves a number out where the sentence shall leave out its part. Long sentences share parts, which are
constants in upper case. Such a sentence is an f-string, so the braces of its own numbers are doubled: `{{gpus}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

    Two kinds of one run must not have the same name. `ReasonKind("because")` is a kind without a sentence. Raise
    PolicyError if the name is empty, or the sentence or the units are malformed.

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
        if not isinstance(units, Mapping) or not _are_texts([*units.keys(), *units.values()]):
            raise PolicyError(f"the units of the ReasonKind {self.name!r} are {short(units)}, must be texts by name")
        # By `__setattr__`, because the class is frozen. A copy, because the mapping of the caller may change.
        object.__setattr__(self, "units", dict(units))
        if not isinstance(self.sentence, str):
            raise PolicyError(f"the sentence of the ReasonKind {self.name!r} is {short(self.sentence)}, must be a text")
        try:
            check_template(self.sentence)
        except TemplateError as error:
            raise PolicyError(f"the sentence of the ReasonKind {self.name!r} is malformed: {error}") from None

    def __str__(self) -> str:
        return self.name


def _are_texts(values: Iterable[object]) -> bool:
    """Return whether all values are texts."""
    return all(isinstance(value, str) for value in values)


class Reason(NamedTuple):
    """The reason for the allocation of a job in a round."""

    kind: ReasonKind
    numbers: Mapping[str, float]  # by name
    others: tuple[JobId, ...] = ()  # Jobs that caused the decision. Their role depends on `kind`.


class JobSeen(NamedTuple):
    """One job at a round."""

    job_id: JobId
    num_replicas: int  # GPUs that the user requests
    min_replicas: int  # fewest GPUs that the user allows, 1 if the user states none
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
    num_restarts: int  # changes of its GPUs since its first start
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
    gpus_per_node: Sequence[int]  # GPUs that each node offers, 0 if it is down or about to go down
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
        """Return the GPUs that jobs like `job` hold after the decision, or the number of these jobs.

        Jobs are alike if they have equal values of `attributes`. With `counts_gpus`, the result is in GPUs.
        """
        total = 0
        for other in self.jobs:
            gpus = self.held[other.job_id]
            is_counted_together = all(getattr(other, name) == getattr(job, name) for name in attributes)
            if gpus and is_counted_together:
                total += gpus if counts_gpus else 1
        return total

    def waits(self, job: JobSeen) -> bool:
        """Return whether a job has no GPUs after the decision."""
        return not self.held[job.job_id]

    def another_does_not_fit(self, job: JobSeen) -> bool:
        """Return whether another job waits, and its requested GPUs do not fit on the free GPUs of any type."""
        return any(other is not job and self.waits(other) and not self.fits_somewhere(other) for other in self.jobs)
