"""The GPUs that a job holds, what it has had so far, and what checkpoints and failures took from it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.types import gpus_by_node

if TYPE_CHECKING:
    from polluxsim.engine.rhythm import Rhythm
    from polluxsim.types import Placement


class Losses(NamedTuple):
    """What checkpoints and failures took from a job up to now."""

    num_failures: int = 0  # how often it lost its GPUs
    num_crashes: int = 0  # how often by its own failure
    checkpoint_time: float = 0.0  # in checkpoints [s]
    checkpoint_service: float = 0.0  # the same times GPUs [GPU s]
    lost_time: float = 0.0  # of training that was for nothing [s]
    lost_service: float = 0.0  # the same times GPUs [GPU s]
    lost_work: float = 0.0  # what was trained then [M0-steps]

    def with_checkpoints(self, rhythm: Rhythm, gpus: int) -> Losses:
        """Return them with the checkpoints on GPUs that are given up."""
        time, service = self.checkpoint_time + rhythm.paused, self.checkpoint_service + rhythm.paused * gpus
        return self._replace(checkpoint_time=time, checkpoint_service=service)

    def with_failure(self, rhythm: Rhythm, gpus: int, progress: float) -> Losses:
        """Return them with a failure, at a progress [M0-steps], that leaves what the rhythm says."""
        return self._replace(
            num_failures=self.num_failures + 1,
            lost_time=self.lost_time + rhythm.since,
            lost_service=self.lost_service + rhythm.since * gpus,
            lost_work=self.lost_work + (progress - rhythm.kept),
        )


NO_LOSSES = Losses()


@lru_cache(maxsize=1 << 14)
def spread(placement: Placement) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the nodes of a placement, the GPUs on each, and those on all; records of like placements share them."""
    nodes, shape = tuple(node for node, _ in placement), gpus_by_node(placement)
    return nodes, shape, sum(shape)


class Tenure:
    """The GPUs that a job holds, and what it has had so far."""

    __slots__ = (
        "_ceded_since", "_cedes", "ceded", "delay", "is_lost", "losses", "nodes", "num_replicas", "num_restarts",
        "placement", "restart_service", "restart_time", "run_time", "service", "shape", "since", "start_time",
    )  # fmt: skip

    def __init__(self) -> None:
        self.placement: Placement = ()
        self.nodes: tuple[int, ...] = ()
        self.shape: tuple[int, ...] = ()
        self.num_replicas = 0
        self.since = self.delay = 0.0  # when it was given its GPUs, and how long from then on it does not train yet [s]
        self.service = self.run_time = self.restart_time = self.restart_service = 0.0
        # GPU time that others had on GPUs that it shared, up to the last change of that [GPU s].
        self.ceded = self._cedes = self._ceded_since = 0.0
        self.num_restarts = 0  # re-allocations since the first start that a policy ordered
        self.losses = NO_LOSSES  # but for those on the GPUs it holds
        self.is_lost = False  # whether a failure took its last GPUs
        self.start_time: float | None = None

    def attained_service(self, now: float) -> float:
        """Return time held × GPUs so far [GPU s]."""
        return self.service + (now - self.since) * self.num_replicas

    def ceded_until(self, now: float) -> float:
        """Return the GPU time that others had so far on GPUs that it shared [GPU s]."""
        return self.ceded + self._cedes * (now - self._ceded_since)

    def cede(self, gpus: float, now: float) -> None:
        """Leave so many of its GPUs to others from now on."""
        if gpus != self._cedes:
            self.ceded, self._cedes, self._ceded_since = self.ceded_until(now), gpus, now

    def times(self, now: float) -> tuple[float, float, float]:
        """Return how long it has held GPUs, and how much of that went into starts and restarts [s; s; GPU s]."""
        held = now - self.since if self.num_replicas else 0.0
        restart = min(held, self.delay)
        return self.run_time + held, self.restart_time + restart, self.restart_service + restart * self.num_replicas

    def hold(self, placement: Placement, now: float, restart_delay: float) -> None:
        """Let go of the GPUs held so far, and hold others, or none."""
        self.run_time, self.restart_time, self.restart_service = self.times(now)
        self.service = self.attained_service(now)
        self.since, self.delay = now, restart_delay
        self.cede(0.0, now)
        self.placement = placement
        self.nodes, self.shape, self.num_replicas = spread(placement)
        if not placement:
            return
        if self.start_time is None:
            self.start_time = now
        elif not self.is_lost:
            self.num_restarts += 1
        self.is_lost = False
