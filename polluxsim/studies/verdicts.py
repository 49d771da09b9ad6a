"""How much of the waits in a log a replay explains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.durations import HOUR, length
from polluxsim.logs.trace_table import TraceJob
from polluxsim.metrics.outcomes import number_of
from polluxsim.studies.causes import Cause

PERIOD = 6 * HOUR  # length of the periods of submission whose mean waits are compared [s]
MOST = 0.75  # share of the waits from which on a replay explains most of them [1]
HALF = 0.5  # share of the waits below which a replay explains little of them [1]
SMALL = 60.0  # smaller differences of mean waits do not matter [s]
SIZE_CLASSES = (1, 2, 8, 9)
"""Least GPUs of each size class of jobs: 1, 2 to 7, 8, and more."""


class Grade(StrEnum):
    """How much of the waits a replay explains."""

    MOST = "explains most of"
    HALF = "explains about half of"
    LITTLE = "explains little of"


class Agreement(NamedTuple):
    """The agreement of the waits in a replay with the recorded waits of some jobs.

    `period_error` is Σ|d| / n. The sum is over periods of `PERIOD` by submission, d is the difference between the total
    waits in the replay and in the log, and n is the number of jobs. Total waits of periods hardly depend on the order
    of single jobs, which changes under the right policy too if a job starts some seconds later.
    """

    name: str  # of the jobs, like "all jobs", "partition gpu" or "2 to 7 GPUs"
    num_jobs: int
    recorded: float  # mean wait in the log [s]
    replayed: float  # mean wait in the replay [s]
    error: float  # mean absolute difference of the waits of a job [s]
    period_error: float  # mean absolute difference of the mean waits of the periods, weighted by jobs [s]

    @property
    def explained(self) -> float:
        """Return the share of the waits that the replay explains: 1 − `period_error` over the mean wait in the log.

        The share is 1 for equal waits, 0 for a replay without any wait, and negative for much longer waits.
        """
        if self.recorded > 0:
            return 1 - self.period_error / self.recorded
        if self.period_error:
            return -inf  # waits in the replay, and none in the log
        return 1.0

    @property
    def grade(self) -> Grade:
        """Return how much the replay explains. It explains waits from which it differs by less than `SMALL`."""
        if self.explained >= MOST or self.period_error < SMALL:
            return Grade.MOST
        if self.explained >= HALF:
            return Grade.HALF
        return Grade.LITTLE


class ReplayVerdict(NamedTuple):
    """How much of the waits in a log the nearest replay explains."""

    policy: str
    gpus: int  # of the cluster
    whole: Agreement  # over all jobs
    by_partition: Sequence[Agreement]  # empty if the log has fewer than two partitions
    by_size: Sequence[Agreement]  # by class of GPUs; empty if the jobs are in one class
    causes: Sequence[Cause]  # of waits that the replay does not explain; empty unless the grade is little
    notes: Sequence[str] = ()  # sentences on what limits the answer

    @property
    def is_credible(self) -> bool:
        """Return whether the replay explains enough for sentences on the effects of changes."""
        return self.whole.grade is not Grade.LITTLE

    def sentences(self) -> Iterator[str]:
        """Yield the verdict in words: the grade, what limits the answer, and the likely causes of other waits."""
        whole = self.whole
        grade = self.whole.grade
        yield (
            f"{self.policy} on {self.gpus} GPUs {grade} the waits in the log: {share_in_words(whole)} of a mean wait "
            f"of {length(whole.recorded)} over {number_of(whole.num_jobs, 'job')}, and is off by {length(whole.error)} "
            "a job"
        )
        yield from self.notes
        if grade is Grade.HALF:
            yield "the effects of changes below are rough, because half of the waits have another cause"
        if not self.is_credible:
            yield "not explained: do not rely on effects of nodes, policies or loads; no sentence on them follows"
            yield from self._causes()

    def _causes(self) -> Iterator[str]:
        """Yield the likely causes that the log shows."""
        if not self.causes:
            yield "the log shows no likely cause; try other policies, other numbers of GPUs, or limits of users"
            return
        yield "likely causes that the log shows:"
        for cause in self.causes:
            yield f"  {cause.sentence}"


def share_in_words(agreement: Agreement) -> str:
    """Return the share of the waits that a replay explains, in words.

    >>> share_in_words(Agreement("all jobs", 2, 60.0, 54.0, 6.0, 6.0))
    '90 %'
    >>> share_in_words(Agreement("all jobs", 2, 60.0, 180.0, 120.0, 120.0))
    'less than 0 %'
    """
    if agreement.explained < 0:
        return "less than 0 %"
    return f"{100 * agreement.explained:.0f} %"


def agreement(
    name: str, submissions: NDArray[np.float64], recorded: NDArray[np.float64], replayed: NDArray[np.float64]
) -> Agreement:
    """Return the agreement of replayed and recorded waits, shape (jobs,) [s], of jobs with submissions [s]."""
    differences = replayed - recorded
    # Periods are numbered without gaps, because a log may have long pauses.
    _, period = np.unique(np.floor(submissions / PERIOD), return_inverse=True)
    # Within a period, waits that are too long make up for waits that are too short.
    error_of_periods = float(np.abs(np.bincount(period, differences)).sum())
    count = len(recorded)
    return Agreement(
        name,
        num_jobs=count,
        recorded=float(recorded.mean()),
        replayed=float(replayed.mean()),
        error=float(np.abs(differences).mean()),
        period_error=error_of_periods / count,
    )


def agreements(
    jobs: Mapping[str, TraceJob], recorded: Mapping[str, float], replayed: Mapping[str, float]
) -> tuple[Agreement, list[Agreement], list[Agreement]]:
    """Return the agreement of the waits [s] of all jobs, and the agreements by partition and by size class.

    The jobs are those of `recorded`; the other mappings have their names too. A list with a single group is empty.
    """
    submissions = np.array([jobs[name].submit_time for name in recorded])
    recorded_waits = np.array(list(recorded.values()))
    replayed_waits = np.array([replayed[name] for name in recorded])

    def agreements_by(group_of: Callable[[TraceJob], str]) -> list[Agreement]:
        groups = np.array([group_of(jobs[name]) for name in recorded])
        agreements_of_groups = []
        for group in dict.fromkeys(groups.tolist()):
            is_own = groups == group
            agreements_of_groups.append(
                agreement(group, submissions[is_own], recorded_waits[is_own], replayed_waits[is_own])
            )
        return agreements_of_groups

    whole = agreement("all jobs", submissions, recorded_waits, replayed_waits)
    partitions = sorted(agreements_by(lambda job: f"partition {job.partition or 'unknown'}"))
    sizes = agreements_by(lambda job: size_class(job.num_gpus))
    sizes.sort(key=lambda group: ORDER.index(group.name))
    # With one group, its agreement is that of all jobs.
    if len(partitions) < 2:
        partitions = []
    if len(sizes) < 2:
        sizes = []
    return whole, partitions, sizes


def size_class(gpus: float) -> str:
    """Return the name of the size class of a job.

    >>> [size_class(gpus) for gpus in (0.5, 2, 8, 64)]
    ['1 GPU', '2 to 7 GPUs', '8 GPUs', 'more than 8 GPUs']
    """
    largest_class = ORDER[0]  # a job with a part of a GPU is below the least size
    for smallest, name in zip(SIZE_CLASSES, ORDER, strict=True):
        if gpus >= smallest:
            largest_class = name
    return largest_class


ORDER = ("1 GPU", "2 to 7 GPUs", "8 GPUs", "more than 8 GPUs")
"""Names of the size classes, by rising size."""
