"""Time limits of jobs, and the times at which running jobs release their GPUs by these limits.

Policies that reserve GPUs plan with these releases. A limit is fixed when it is first needed, so that reservations do
not move as the estimate of a job's run time changes.

Trap: a limit can be wrong. A job that is still running after its planned release is expected to end before the next
round, at each round anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import NamedTuple

from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView


class Release(NamedTuple):
    """The round at which a running job reaches its time limit [s], and the GPUs that it then releases."""

    time: float
    job_id: JobId
    placement: Placement


@dataclass
class Limits:
    """Time limits of jobs, and the planned releases of the GPUs of running jobs."""

    overestimate: float = 1.0  # limit of a job without a time limit, as a multiple of its true run time
    _limits: dict[JobId, float] = field(default_factory=dict)  # [s]
    _releases: list[Release] = field(default_factory=list)  # in order of time
    _by_job: dict[JobId, Release] = field(default_factory=dict)

    def limit(self, view: ClusterView, job: JobView) -> float:
        """Return the longest time for which a waiting job will hold its GPUs, according to its limit [s]."""
        if job.job_id not in self._limits:
            self._limits[job.job_id] = self.expected(view, job)
        return self._limits[job.job_id]

    def expected(self, view: ClusterView, job: JobView) -> float:
        """Return the limit of a job as `limit` does, but do not record it: a reason changes no later decision [s]."""
        if job.job_id in self._limits:
            return self._limits[job.job_id]
        run_time = view.delay_of(job) + job.oracle.time_left(job.num_replicas)
        return job.time_limit or self.overestimate * run_time

    def start(self, view: ClusterView, job: JobView, placement: Placement) -> None:
        """Plan the release of the GPUs that a job has, or is about to get."""
        time_left = self.limit(view, job)
        # A limit of the user also counts the time for which the job has had GPUs. An estimate is of the time left.
        if job.placement and job.time_limit:
            time_left = max(time_left - job.attained_service / job.num_replicas, 0.0)
        release = Release(view.round_at(view.time + time_left), job.job_id, placement)
        self._by_job[job.job_id] = release
        insort(self._releases, release)

    def take_note(self, view: ClusterView) -> None:
        """Remove the limits and planned releases of jobs that ended, were evicted or were altered.

        An evicted job gets a new limit, because it may have lost work. An altered job that runs gets a new release, and
        so does a running job that another policy started before a fork.
        """
        changes = view.changes
        for job_id in chain(changes.ended, changes.evicted, changes.altered):
            self._limits.pop(job_id, None)
            release = self._by_job.pop(job_id, None)
            if release is not None:
                del self._releases[bisect_left(self._releases, release)]
        # Jobs that arrive with GPUs were placed by another policy before a fork.
        unplanned = view.running if changes.altered else changes.arrived
        for job in unplanned:
            if job.placement and job.job_id not in self._by_job:
                self.start(view, job, job.placement)

    def all_ends_were_on_time(self, view: ClusterView) -> bool:
        """Return whether all ended jobs had GPUs and ended no earlier than planned, and no job exceeds its limit.

        Call this method before `take_note` removes the ended jobs.
        """
        ended = view.changes.ended
        for job_id in ended:
            release = self._by_job.get(job_id)
            if release is None or not view.has_come(release.time):
                return False
        # The releases are in order of time, so the first one in the future ends the search.
        for release in self._releases:
            if not view.has_come(release.time):
                break
            if release.job_id not in ended:
                return False
        return True

    def releases(self, view: ClusterView) -> Iterator[tuple[float, Placement]]:
        """Yield the planned releases as pairs (time [s], GPUs by node), in order of time.

        At each round, a job that exceeds its limit is expected to end before the next round. The last job of those that
        share a GPU since before a fork releases it.
        """
        next_round = view.round_at(view.time + view.round_interval)
        shared_gpus = view.sharing.held
        freed = self._freed_shared_gpus(shared_gpus) if shared_gpus else {}
        for release in self._releases:
            placement = release.placement
            if release.job_id in shared_gpus:
                placement = freed[release.job_id]
            yield max(release.time, next_round), placement

    def _freed_shared_gpus(self, shared_gpus: Mapping[JobId, Gpus]) -> dict[JobId, Placement]:
        """Return, for each job that shares GPUs, those that no other job uses after its planned release."""
        last_user: dict[Gpu, JobId] = {}
        for release in self._releases:
            for gpu in shared_gpus.get(release.job_id, ()):
                last_user[gpu] = release.job_id
        counts = Counter((job_id, node) for (node, _), job_id in last_user.items())
        freed: dict[JobId, Placement] = {}
        for job_id, gpus in shared_gpus.items():
            nodes = dict.fromkeys(node for node, _ in gpus)
            freed[job_id] = tuple((node, counts[job_id, node]) for node in nodes)
        return freed

    def releases_at(self, time: float) -> JobId | None:
        """Return a running job whose GPUs are planned to be released at a time [s], or None."""
        index = bisect_left(self._releases, time, key=lambda release: release.time)
        is_at_time = index < len(self._releases) and self._releases[index].time == time
        return self._releases[index].job_id if is_at_time else None

    def next_release(self, view: ClusterView) -> float:
        """Return the time of the next planned release, or ∞ [s]."""
        return next((time for time, _ in self.releases(view)), inf)
