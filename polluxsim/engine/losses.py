"""What checkpoints and failures take from a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from polluxsim.engine.rhythm import Rhythm


class Losses(NamedTuple):
    """What checkpoints and failures took from a job up to now.

    Attributes
    ----------
    num_failures
        How often it lost its GPUs.
    num_crashes
        How often by its own failure.
    checkpoint_time, checkpoint_service
        Time in checkpoints, and times GPUs [s; GPU s].
    lost_time, lost_service
        Time of training that was for nothing, and times GPUs [s; GPU s].
    lost_work
        What was trained then [M0-steps].
    """

    num_failures: int = 0
    num_crashes: int = 0
    checkpoint_time: float = 0.0
    checkpoint_service: float = 0.0
    lost_time: float = 0.0
    lost_service: float = 0.0
    lost_work: float = 0.0

    def with_checkpoints(self, rhythm: Rhythm, gpus: int) -> Losses:
        """Return them with the checkpoints on GPUs that are given up."""
        time, service = self.checkpoint_time + rhythm.paused, self.checkpoint_service + rhythm.paused * gpus
        return self._replace(checkpoint_time=time, checkpoint_service=service)

    def with_crash(self) -> Losses:
        """Return them with the last failure as the job's own."""
        return self._replace(num_crashes=self.num_crashes + 1)

    def with_failure(self, rhythm: Rhythm, gpus: int, progress: float) -> Losses:
        """Return them with a failure, at a progress [M0-steps], that leaves what the rhythm says."""
        return self._replace(
            num_failures=self.num_failures + 1,
            lost_time=self.lost_time + rhythm.since,
            lost_service=self.lost_service + rhythm.since * gpus,
            lost_work=self.lost_work + (progress - rhythm.kept),
        )


NO_LOSSES = Losses()
