"""How long jobs are, by those that completed before them: all jobs of an application do alike work."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.types import num_replicas

if TYPE_CHECKING:
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId

LEAST_SHARE = 0.02
"""Of its application's usual work, what a job that has done all of that is taken to have left."""


class _Look(NamedTuple):
    """A job when it was last looked at."""

    application: str
    trained: float
    rate: float
    time: float


@dataclass
class Lengths:
    """Remembers what jobs had done when they ended.

    A job is gone by the time that a policy is asked, so what it had done is what it had when last looked at, and what
    its goodput then makes of the time to its end.
    """

    _looks: dict[JobId, _Look] = field(default_factory=dict, init=False)
    _totals: dict[str, list[float]] = field(default_factory=dict, init=False)
    _most: dict[str, float] = field(default_factory=dict, init=False)

    def take_note(self, view: ClusterView) -> None:
        """Look at all jobs, and at who is gone."""
        for job_id, end in view.changes.ended.items():
            if (look := self._looks.pop(job_id, None)) is not None:
                done = look.trained + look.rate * (end - look.time)
                self._totals.setdefault(look.application, []).append(done)
        for job in view.jobs:
            look = self._looks[job.job_id] = _Look(job.application, job.trained, _rate(job), view.time)
            self._most[look.application] = max(self._most.get(look.application, 0.0), look.trained)

    def left(self, job: JobView) -> float:
        """Return the work that a job has left [M0-equivalent examples].

        What the median of its application's jobs did, less what it did. Of an application none of whose jobs has ended
        they are taken to do twice what the oldest of them has done, as after a Pareto law.
        """
        totals = self._totals.get(job.application)
        usual = median(totals) if totals else 2 * self._most[job.application]
        return max(usual - job.trained, LEAST_SHARE * usual)


def _rate(job: JobView) -> float:
    """Return the goodput of a job where it runs, as its agent believes [M0-equivalent examples/s]."""
    if not job.placement or job.goodput is None:
        return 0.0
    return job.goodput.best(len(job.placement), num_replicas(job.placement))[0]
