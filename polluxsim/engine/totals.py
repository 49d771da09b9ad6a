"""What all jobs together make of their GPUs, without going through them all where the sums are exact anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.engine.job import ActiveJob
    from polluxsim.types import JobId


class Part(NamedTuple):
    """What one job has in the totals: GPUs, goodput [M0-equivalent examples/s], and GPUs × efficiency."""

    gpus: int
    goodput: float
    weighted: float

    @property
    def is_whole(self) -> bool:
        """Return whether its numbers are whole, so that they can be added in any order."""
        return self.goodput.is_integer() and self.weighted.is_integer()


NOTHING = Part(0, 0.0, 0.0)


class Totals:
    """GPUs in use, goodput and efficiency of all jobs that hold GPUs.

    Whole numbers, as rigid jobs have, are added up as jobs come and go. Sums of others depend on the order of their
    terms in floating point: they are taken anew, in order of submission.
    """

    def __init__(self) -> None:
        self._parts: dict[JobId, Part] = {}
        self._fractions = 0
        # Of the parts that are whole.
        self._whole = NOTHING

    def update(self, job: ActiveJob) -> None:
        """Take note of what a job makes of its GPUs now."""
        old, gpus = self._parts.pop(job.job_id, None), job.tenure.num_replicas
        if old is not None:
            self._add(old, -1)
        if gpus:
            new = self._parts[job.job_id] = Part(gpus, job.segment.goodput, gpus * job.segment.efficiency)
            self._add(new, 1)

    def _add(self, part: Part, sign: int) -> None:
        if part.is_whole:
            gpus, goodput, weighted = self._whole
            whole = (gpus + sign * part.gpus, goodput + sign * part.goodput, weighted + sign * part.weighted)
            self._whole = Part(*whole)
        else:
            self._fractions += sign

    def of(self, running: Iterable[ActiveJob]) -> Part:
        """Return the totals of all jobs that hold GPUs, given in order of submission."""
        if not self._fractions:
            return self._whole
        gpus, goodput, weighted = NOTHING
        for job in running:
            part = self._parts[job.job_id]
            gpus += part.gpus
            goodput += part.goodput
            weighted += part.weighted
        return Part(gpus, goodput, weighted)
