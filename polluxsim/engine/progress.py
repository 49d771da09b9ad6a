"""The progress of one job: segments of constant speed, checkpoints, GPUs and losses."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, inf
from typing import NamedTuple

from polluxsim.common.instants import slack, whole_number
from polluxsim.engine.clock import NEVER, Milestone
from polluxsim.hardware.placements import Placement, gpus_by_node
from polluxsim.workloads.past import Past


class CheckpointCycle(NamedTuple):
    """Training with periodic checkpoints. All fields except the first two describe the start of a segment."""

    interval: float = inf  # training between two checkpoints; ∞ means no checkpoints [s]
    cost: float = 0.0  # time of a checkpoint, without training [s]
    due: float = inf  # training until the next checkpoint; below 0, the time since the present one began [s]
    since: float = 0.0  # training since the last complete checkpoint, or since the job got its GPUs [s]
    kept: float = 0.0  # progress that remains after a failure [M0-steps]
    paused: float = 0.0  # time in checkpoints since the job got its GPUs [s]
    at_epochs: bool = False  # whether each epoch ends with a checkpoint

    def without(self, start: float, now: float) -> float:
        """Return the time at which a job without checkpoints has the same progress [s]."""
        passed = now - start
        if passed <= self.due:
            return now
        return start + self._trained(passed)

    def delayed(self, milestone: Milestone, start: float) -> Milestone:
        """Return a milestone of training from `start`, delayed by the checkpoints before it.

        >>> CheckpointCycle(interval=10.0, cost=1.0, due=10.0).delayed((125.0, False), 100.0)
        (127.0, False)
        """
        time, _ = milestone
        # Training that ends when a checkpoint is due needs no checkpoint.
        beyond = time - start - max(self.due, 0.0) - slack(time)
        if beyond <= 0:
            return milestone
        return time + max(ceil(beyond / self.interval), 1) * self.cost + min(self.due, 0.0), False

    def last_end(self, passed: float, error: float = 0.0) -> float | None:
        """Return the training up to the last checkpoint that was complete after `passed` [s], or None.

        `error` is the possible error of `passed` by rounding [s].
        """
        if passed <= self.due + error:
            return None
        cycles, remainder = self._cycles(passed, error)
        num_complete = cycles
        if remainder >= self.cost - error:
            num_complete += 1  # the last checkpoint, after which training goes on
        if num_complete == 0:
            return None
        return max(self.due, 0.0) + _times(num_complete - 1, self.interval)

    def after(self, passed: float, kept: float, error: float = 0.0) -> CheckpointCycle:
        """Return the cycle `passed` seconds later; `kept` is the progress at the last complete checkpoint.

        `error` is the possible error of `passed` by rounding [s].
        """
        if passed <= self.due + error:
            return self._replace(due=max(self.due - passed, 0.0), since=self.since + passed)
        trained = self._trained(passed, error)
        last = self.last_end(passed, error)
        _, remainder = self._cycles(passed, error)
        due = -remainder  # in a checkpoint, which began this long ago
        if remainder >= self.cost - error:
            due = self.interval - max(remainder - self.cost, 0.0)
        since = self.since + trained
        if last is not None:
            since = trained - last
        return self._replace(due=due, since=since, kept=kept, paused=self.paused + (passed - trained))

    def at_epoch_end(self) -> CheckpointCycle:
        """Return the cycle at the end of an epoch, at which a checkpoint begins if `at_epochs` is True."""
        if not self.at_epochs:
            return self
        return self._replace(due=0.0)

    def _trained(self, passed: float, error: float = 0.0) -> float:
        """Return the training within a time longer than `due` [s]."""
        cycles, remainder = self._cycles(passed, error)
        return max(self.due, 0.0) + _times(cycles, self.interval) + max(remainder - self.cost, 0.0)

    def _cycles(self, passed: float, error: float) -> tuple[int, float]:
        """Return the number of complete cycles, and the time since the last checkpoint began [s]."""
        cycle = self.interval + self.cost
        number = whole_number((passed - self.due) / cycle, error / cycle)
        return number, max(passed - self.due - _times(number, cycle), 0.0)


def _times(number: int, length: float) -> float:
    """Return number · length, where 0 · ∞ is 0."""
    return number * length if number else 0.0


class Segment(NamedTuple):
    """A stretch of constant progress, from one change to the next."""

    epoch: int = 0  # number of the present epoch, from 0
    progress: float = 0.0  # work done at the start [M0-steps]
    start: float = 0.0  # start of the training; before it, the job restarts [s]
    rate: float = 0.0  # progress per second, 0 without GPUs [M0-steps/s]
    goodput: float = 0.0  # the same [M0-equivalent examples/s]
    efficiency: float = 0.0  # statistical efficiency at the batch size
    milestone: Milestone = NEVER  # end of the epoch if nothing changes before
    checkpoints: CheckpointCycle | None = None  # None if no work can be lost


class Losses(NamedTuple):
    """Time and work that checkpoints and failures cost a job so far."""

    num_failures: int = 0  # times it lost its GPUs
    checkpoint_time: float = 0.0  # time in checkpoints [s]
    checkpoint_gpu_seconds: float = 0.0  # the same times GPUs [GPU s]
    lost_time: float = 0.0  # training that was lost [s]
    lost_gpu_seconds: float = 0.0  # the same times GPUs [GPU s]
    lost_work: float = 0.0  # work that was lost [M0-steps]

    def with_checkpoints(self, cycle: CheckpointCycle, gpus: int) -> Losses:
        """Return the losses with the checkpoints on GPUs that are released."""
        time = self.checkpoint_time + cycle.paused
        service = self.checkpoint_gpu_seconds + cycle.paused * gpus
        return self._replace(checkpoint_time=time, checkpoint_gpu_seconds=service)

    def with_failure(self, cycle: CheckpointCycle, gpus: int, progress: float) -> Losses:
        """Return the losses with a failure at a progress [M0-steps]."""
        return self._replace(
            num_failures=self.num_failures + 1,
            lost_time=self.lost_time + cycle.since,
            lost_gpu_seconds=self.lost_gpu_seconds + cycle.since * gpus,
            lost_work=self.lost_work + (progress - cycle.kept),
        )


NO_LOSSES = Losses()


@lru_cache(maxsize=1 << 14)
def spread(placement: Placement) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the nodes of a placement, the GPUs on each, and their sum. Equal placements share these tuples."""
    nodes = tuple(node for node, _ in placement)
    shape = gpus_by_node(placement)
    return nodes, shape, sum(shape)


class Holding:
    """The GPUs that a job holds, and its service so far."""

    __slots__ = (
        "_ceded_since", "_cedes", "ceded", "delay", "is_lost", "losses", "nodes", "num_crashes", "num_replicas",
        "num_restarts", "past_service", "placement", "restart_service", "restart_time", "run_time", "service", "shape",
        "since", "start_time",
    )  # fmt: skip

    def __init__(self) -> None:
        self.placement: Placement = ()
        self.nodes: tuple[int, ...] = ()
        self.shape: tuple[int, ...] = ()
        self.num_replicas = 0
        self.since = self.delay = 0.0  # when it got these GPUs, and restart delay from then on [s]
        self.service = self.run_time = self.restart_time = self.restart_service = 0.0  # on GPUs that it held before
        self.ceded = 0.0  # service of other jobs on its shared GPUs, up to the last change of their number [GPU s]
        self._cedes = self._ceded_since = 0.0
        self.num_restarts = 0  # changes of its GPUs by the policy since the first start
        self.losses = NO_LOSSES  # on GPUs that it held before
        self.num_crashes = 0  # failures of the job itself
        self.is_lost = False  # whether a failure took its last GPUs
        self.start_time: float | None = None  # of the first start [s]
        self.past_service = 0.0  # part of `service` that the job attained before the run [GPU s]

    def continue_from(self, past: Past) -> None:
        """Take the state that the job had at the start of the run. If it runs on, `hold` must follow."""
        self.start_time = past.started
        self.service = self.past_service = past.service
        self.is_lost = past.is_running  # so that its GPUs at the start of the run are no restart

    def attained_service(self, now: float) -> float:
        """Return the GPU time so far: time held × GPUs [GPU s]."""
        return self.service + (now - self.since) * self.num_replicas

    def ceded_until(self, now: float) -> float:
        """Return the service of other jobs so far on GPUs that it shared [GPU s]."""
        return self.ceded + self._cedes * (now - self._ceded_since)

    def times(self, now: float) -> tuple[float, float, float]:
        """Return the time with GPUs, the part of it in starts and restarts, and its GPU time [s; s; GPU s]."""
        held_time = 0.0
        if self.num_replicas:
            held_time = now - self.since
        # A job can lose its GPUs before its restart is over.
        restart = min(held_time, self.delay)
        return (
            self.run_time + held_time,
            self.restart_time + restart,
            self.restart_service + restart * self.num_replicas,
        )

    def cede(self, gpus: float, now: float) -> None:
        """Count this many GPUs of the job, or parts of GPUs, as those of other jobs from `now` on [s]."""
        if gpus != self._cedes:
            self.ceded = self.ceded_until(now)
            self._cedes = gpus
            self._ceded_since = now

    def hold(self, placement: Placement, now: float, restart_delay: float) -> None:
        """Release the present GPUs, and hold the GPUs of a placement, which can be empty."""
        if self.num_replicas:
            self.run_time, self.restart_time, self.restart_service = self.times(now)
            self.service = self.attained_service(now)
        # The sums above need the old values.
        self.since = now
        self.delay = restart_delay
        self.cede(0.0, now)
        self.placement = placement
        self.nodes, self.shape, self.num_replicas = spread(placement)
        if not placement:
            return
        if self.start_time is None:
            self.start_time = now
        # Only the policy's changes count as restarts, and not a start after a failure.
        elif not self.is_lost:
            self.num_restarts += 1
        self.is_lost = False
