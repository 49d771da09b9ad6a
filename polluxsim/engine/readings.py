"""What can be asked of a run at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.engine.afterwards import so_far
from polluxsim.metrics.gpu_time import shares_of_gpu_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.engine.scenario import Scenario
    from polluxsim.engine.state import State
    from polluxsim.engine.world import World
    from polluxsim.records import JobRecord, RoundRecord
    from polluxsim.types import Gpus, JobId, Placement
    from polluxsim.workloads.workload import Job


class Readings:
    """How far a run is, and how it stands."""

    _state: State
    _world: World

    @property
    def scenario(self) -> Scenario:
        """Return what is simulated."""
        return self._state.scenario

    @property
    def time(self) -> float:
        """Return where the run is [s]."""
        return self._state.agenda.now

    @property
    def num_jobs(self) -> int:
        """Return how many jobs are known so far, submitted or not."""
        return len(self._state.scenario.workload.jobs) + len(self._world.followers)

    @property
    def num_ended(self) -> int:
        """Return how many jobs have ended."""
        return len(self._state.records.jobs)

    def ended(self, start: int = 0) -> Sequence[JobRecord]:
        """Return the records of the jobs that have ended, in this order, from the one with this number on.

        Once the result of a run that is over was taken, they are in order of submission.
        """
        return self._state.records.jobs[start:]

    @property
    def allocation(self) -> dict[JobId, Placement]:
        """Return who holds which GPUs, in order of submission."""
        return {job.job_id: job.placement for job in self._state.jobs.running}

    @property
    def shares(self) -> dict[JobId, tuple[Gpus, float]]:
        """Return who has which GPUs by number, as others may have them too, and how fast over alone each is there."""
        return dict(self._state.records.shares)

    @property
    def waiting(self) -> list[JobId]:
        """Return the jobs that are submitted and hold no GPUs, in order of submission."""
        return [job.job_id for job in self._state.jobs.waiting]

    def active(self, time: float) -> list[tuple[Job, float]]:
        """Return the jobs that have not ended, in order of submission, with the work each has done by then [M0-steps].

        The time [s] is now, or before anything else happens.
        """
        rule = self._state.shutter.rule
        return [(job.job, job.segment.progress_at(time, rule)) for job in self._state.jobs.active.values()]

    @property
    def known(self) -> dict[JobId, Job]:
        """Return all jobs that are known so far, submitted or not."""
        return self._world.known

    @property
    def down(self) -> tuple[int, ...]:
        """Return the numbers of the nodes that are down, rising."""
        return tuple(sorted(self._state.nodes.down))

    @property
    def last_round(self) -> RoundRecord | None:
        """Return the cluster after the last round, None before the first."""
        return self._state.records.last_round

    @property
    def mean_jct(self) -> float | None:
        """Return the mean completion time of the jobs that are complete [s], None if none is."""
        times = [time for time in self._state.records.jobs.column("jct") if time is not None]
        return sum(times) / len(times) if times else None

    @property
    def can_fail(self) -> bool:
        """Return whether nodes or jobs may fail."""
        return bool(self.scenario.cluster.outages or self.scenario.settings.job_failures)

    @property
    def gpu_time(self) -> Mapping[str, float]:
        """Return the shares of the GPU time so far, as `shares_of_gpu_time` names them."""
        return shares_of_gpu_time(so_far(self._state, self._world.known))
