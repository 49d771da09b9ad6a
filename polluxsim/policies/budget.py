"""GPUs by type, as one job after the other takes those it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import Crew, JobId


class Budget:
    """The GPUs of each type that are left, as one job after the other takes some of a cluster's.

    `mixes` says whether jobs that can have GPUs of several types at once take these where no type has enough. `left`
    are the GPUs that are left of all types, `mixed` says of which types those jobs took GPUs that took several.
    """

    def __init__(self, view: ClusterView, *, mixes: bool = False) -> None:
        self._view = view
        self._mixes = mixes
        self.mixed: dict[JobId, Crew] = {}
        self._left = {name: view.gpus_of(name) for name in view.types}
        self._only = next(iter(self._left)) if len(self._left) == 1 else None
        self.left = sum(self._left.values())

    def take(self, job: JobView) -> str | None:
        """Take the GPUs of a job: of the type it runs on, else of the fastest that it can use; None if none fits.

        Of several types at once, it is that of most speed.
        """
        if (asked := job.num_replicas) > self.left:
            return None
        if self._only is None and self._mixes and job.mixes_types:
            return self._take_mixed(job)
        name = self._only or next((name for name in self._wanted(job) if asked <= self._left[name]), None)
        if name is not None:
            self._left[name] -= asked
            self.left -= asked
        return name

    def _take_mixed(self, job: JobView) -> str | None:
        """Take what a job has, else GPUs of one type if one has enough, else those that are left of several."""
        asked, order = job.num_replicas, self._wanted(job)
        crew = self._view.node_types.crew(job.placement)
        if sum(gpus for _, gpus in crew) != asked or any(gpus > self._left[name] for name, gpus in crew):
            if (one := next((name for name in order if asked <= self._left[name]), None)) is not None:
                crew = ((one, asked),)
            else:
                crew = _filled(asked, {name: self._left[name] for name in self._view.types if name in order}, order)
        for name, gpus in crew:
            self._left[name] -= gpus
            self.left -= gpus
        if len(crew) > 1:
            self.mixed[job.job_id] = crew
        return crew[0][0] if crew else None

    def _wanted(self, job: JobView) -> Sequence[str]:
        speeds, here = job.speeds, self._view.type_of(job.placement) if job.placement else None
        return sorted(speeds, key=lambda name: (name != here, -speeds[name]))


def _filled(asked: int, left: Mapping[str, int], order: Sequence[str]) -> Crew:
    """Return GPUs of types in an order, all of each until there are enough, as a crew; none if there are too few."""
    taken = dict.fromkeys(left, 0)
    for name in order:
        taken[name] = min(left[name], asked)
        asked -= taken[name]
    return () if asked else tuple((name, gpus) for name, gpus in taken.items() if gpus)
