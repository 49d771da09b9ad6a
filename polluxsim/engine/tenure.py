"""The GPUs that a job holds, and what it has had so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from polluxsim.types import Placement


class Tenure:
    """The GPUs that a job holds, and what it has had so far."""

    __slots__ = (
        "num_replicas", "num_starts", "placement", "restart_time", "run_time", "service", "shape", "since",
        "start_time",
    )  # fmt: skip

    def __init__(self) -> None:
        self.placement: Placement = ()
        self.shape: tuple[int, ...] = ()
        self.num_replicas = 0
        self.since = 0.0
        self.service = self.run_time = self.restart_time = 0.0
        self.num_starts = 0
        self.start_time: float | None = None

    @property
    def num_restarts(self) -> int:
        """Return the re-allocations since the first start."""
        return max(self.num_starts - 1, 0)

    def attained_service(self, now: float) -> float:
        """Return time held × GPUs so far [GPU s]."""
        return self.service + (now - self.since) * self.num_replicas

    def times(self, now: float, restart_delay: float) -> tuple[float, float]:
        """Return how long it has held GPUs, and how much of that went into starts and restarts [s]."""
        held = now - self.since if self.num_replicas else 0.0
        return self.run_time + held, self.restart_time + min(held, restart_delay)

    def hold(self, placement: Placement, now: float, restart_delay: float) -> None:
        """Let go of the GPUs held so far, and hold others, or none."""
        self.run_time, self.restart_time = self.times(now, restart_delay)
        self.service = self.attained_service(now)
        self.since = now
        self.placement = placement
        self.shape = gpus_by_node(placement)
        self.num_replicas = sum(self.shape)
        if placement:
            self.num_starts += 1
            if self.start_time is None:
                self.start_time = now
