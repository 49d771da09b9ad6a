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
        gpus, goodput, weighted = part
        if goodput.is_integer() and weighted.is_integer():
            before = self._whole
            self._whole = Part(
                before.gpus + sign * gpus, before.goodput + sign * goodput, before.weighted + sign * weighted
            )
        else:
            self._fractions += sign

    def of(self, running: Iterable[ActiveJob]) -> Part:
        """Return the totals of all jobs that hold GPUs, given in order of submission."""
        if not self._fractions:
            return self._whole
        gpus, goodput, weighted = 0, 0.0, 0.0
        for job in running:
            its_gpus, its_goodput, its_weighted = self._parts[job.job_id]
            gpus += its_gpus
            goodput += its_goodput
            weighted += its_weighted
        return Part(gpus, goodput, weighted)
