"""The life of one job: placed, restarting, progressing epoch by epoch, complete. Knows nothing of events."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from polluxsim.agent.agent import Observation
from polluxsim.engine.time_rules import Milestone
from polluxsim.models.efficiency import efficiency, gain
from polluxsim.types import BatchChoice, gpus_by_node

if TYPE_CHECKING:
    from polluxsim.agent.agent import Agent
    from polluxsim.engine.oracle import Truth
    from polluxsim.engine.time_rules import TimeRule
    from polluxsim.models.profile import StepTime
    from polluxsim.types import Placement
    from polluxsim.workloads.workload import Job

NO_BATCH = BatchChoice(0, 0)
NEVER = Milestone(inf)


class RunningJob:
    """State and dynamics of one submitted job.

    Between two changes a job progresses at a constant rate; such a stretch is a segment. `milestone` is when the
    present segment reaches the end of the epoch if nothing changes before, and `segment` counts the segments. Within a
    segment nothing has to be done for a job once it is settled: its progress is computed where it is asked for.

    Parameters
    ----------
    job
        What was submitted.
    truth
        The truth about its application.
    agent
        What runs beside it.
    time_rule
        How progress becomes time.
    order
        How many were submitted before it.
    """

    def __init__(self, job: Job, truth: Truth, agent: Agent, time_rule: TimeRule, order: int = 0) -> None:
        self.job = job
        self.order = order
        self.truth = truth
        self.profile = truth.profile
        self.agent = agent
        self.placement: Placement = ()
        self.num_replicas = 0
        self.choice = NO_BATCH
        self.epoch = 0
        self.is_settled = False
        self.milestone = NEVER
        self.segment = 0
        # Of the present segment: M0-steps/s, M0-equivalent examples/s, and what a larger batch is worth.
        self.rate = 0.0
        self.goodput = 0.0
        self.efficiency = 0.0
        self.interference = 0.0
        self.num_starts = 0
        self.start_time: float | None = None
        self.completion_time: float | None = None
        self._time_rule = time_rule
        self._gpus_by_node: tuple[int, ...] = ()
        self._progress = 0.0
        self._segment_start = 0.0
        self._observed = False
        self._held_since = 0.0
        self._service = 0.0
        self._step: StepTime

    @property
    def num_restarts(self) -> int:
        """Return the re-allocations since the first start."""
        return max(self.num_starts - 1, 0)

    @property
    def batch_size(self) -> int:
        """Return the total batch size trained at [examples], 0 without GPUs."""
        return self.choice.batch_size(self.num_replicas)

    def attained_service(self, now: float) -> float:
        """Return time held × GPUs so far [GPU s]."""
        return self._service + (now - self._held_since) * self.num_replicas

    def is_at_work(self, now: float) -> bool:
        """Return whether the job has GPUs and is past its restart delay."""
        return bool(self.placement) and now > self._segment_start

    def progress_at(self, now: float) -> float:
        """Return the work done by a scheduling round [M0-steps]."""
        if not self.is_at_work(now):
            return self._progress
        self._progress, self._segment_start = self._time_rule.advance(
            self._progress, self.rate, self._segment_start, now
        )
        return self._time_rule.progress_at(self._progress, self.rate, self._segment_start, now)

    def place(self, placement: Placement, now: float, restart_delay: float) -> None:
        """Give the job another placement, or none; `begin_segment` must follow where it has one."""
        self._progress = self.progress_at(now)
        self._service = self.attained_service(now)
        self._held_since = now
        self.placement = placement
        self._gpus_by_node = gpus_by_node(placement)
        self.num_replicas = sum(self._gpus_by_node)
        self._segment_start = now + restart_delay
        self._end_segment()
        if not placement:
            self.choice = NO_BATCH
            return
        self.num_starts += 1
        if self.start_time is None:
            self.start_time = now
        self.choice = self.agent.choose(len(placement), self.num_replicas)

    def begin_segment(self, now: float) -> None:
        """Fix rate and milestone from here on; work that waits for a restart starts when that is over."""
        application = self.profile.application
        self.segment += 1
        self._progress = self.progress_at(now)
        self._segment_start = max(self._segment_start, now)
        self._observed = False
        self.is_settled = not self.agent.learns
        self._step = self.profile.step_time(self._gpus_by_node, self.choice.atomic_batch_size)
        scale = self.batch_size / application.init_batch_size
        statistics = self.profile.gradient_statistics(self.batch_size, self.epoch)
        step_time = self._step.optimiser_step(self.choice.accumulation_steps)
        self.rate = gain(statistics, scale) / step_time * (1 - self.interference)
        self.goodput = self.rate * application.init_batch_size
        self.efficiency = efficiency(statistics, scale)
        boundary = self.profile.epoch_end(self.epoch)
        self.milestone = self._time_rule.reach(self._progress, self.rate, self._segment_start, boundary)

    def end_interval(self, now: float) -> bool:
        """Let the agent observe and choose again at a scheduling round, unless it is settled.

        Returns
        -------
        bool
            Whether the batch size changed, so that a new segment must begin.
        """
        if self.is_settled or not self.is_at_work(now):
            return False
        self._observe()
        # The same choice after the same observation stays the same until the epoch or the placement changes.
        self.is_settled = not self._choose_again()
        return not self.is_settled

    def end_epoch(self) -> bool:
        """Pass the milestone.

        Returns
        -------
        bool
            Whether the job is complete; if not, a new segment must begin.
        """
        self._observe()
        self._segment_start = self.milestone.time
        self._progress = self.profile.epoch_end(self.epoch)
        self.epoch += 1
        if self.epoch == self.profile.application.num_epochs:
            self._complete()
            return True
        self._choose_again()
        return False

    def _complete(self) -> None:
        self.completion_time = now = self.milestone.time
        self._service = self.attained_service(now)
        self._held_since = now
        self.num_replicas = 0
        self.choice = NO_BATCH
        self._end_segment()

    def _end_segment(self) -> None:
        self.segment += 1
        self.milestone = NEVER
        self.rate = self.goodput = self.efficiency = 0.0

    def _choose_again(self) -> bool:
        before, self.choice = self.choice, self.agent.choose(len(self.placement), self.num_replicas)
        return self.choice != before

    def _observe(self) -> None:
        if self._observed:
            return
        self._observed = True
        self.agent.observe(
            Observation(
                len(self.placement),
                self.num_replicas,
                self.choice.atomic_batch_size,
                self._step,
                self.profile.gradient_statistics(self.batch_size, self.epoch),
            )
        )
