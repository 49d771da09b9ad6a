"""The life of one job: it is placed, restarts, trains epoch by epoch, and completes. It does not use events."""

from __future__ import annotations

from bisect import bisect_right
from copy import deepcopy
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from polluxsim.agent.agent import Agent
from polluxsim.common.instants import ROUNDING, has_come, slack
from polluxsim.engine.clock import NEVER, Milestone, TimeRule
from polluxsim.engine.progress import CheckpointCycle, Holding, Losses, Segment
from polluxsim.engine.truth import GroundTruth, TrainingSpeed
from polluxsim.hardware.placements import BatchChoice, Gpus, Placement
from polluxsim.records.results import Status
from polluxsim.workloads.past import Past
from polluxsim.workloads.workload import Job

SlottedT = TypeVar("SlottedT", bound=Any)


class ChosenBatch(NamedTuple):
    """A batch size that the policy chose for a job."""

    choice: BatchChoice
    this_epoch_only: bool  # whether the agent chooses again from the end of the present epoch on


class ActiveJob:
    """A job that is submitted and has not ended.

    Properties, `is_training`, `saves_from` and the methods that end with `_at` only read the job. All other methods
    change it. In a run, only `State` calls them.
    """

    __slots__ = (
        "_ahead", "_has_observed", "_reached", "_trained", "agent", "agent_is_steady", "batch", "holding", "job",
        "job_id", "order", "rule", "segment", "serial", "slowdown", "training_speed", "truth",
    )  # fmt: skip

    def __init__(self, job: Job, truth: GroundTruth, agent: Agent, rule: TimeRule, order: int = 0) -> None:
        self.job = job
        self.job_id = job.job_id
        self.truth = truth
        self.agent = agent
        self.rule = rule
        self.order = order  # position in the order of submission
        self.holding = Holding()
        self.training_speed: TrainingSpeed | None = None  # speed on its GPUs; None without GPUs
        self.batch: ChosenBatch | None = None  # choice of the policy until its next decision; None if the agent chooses
        self.segment = Segment()  # progress since the last change
        self.serial = 0  # number of segments so far; an event of an earlier segment is void
        self.slowdown = 0.0  # share of its speed lost to other jobs, or to few CPUs or little memory; < 0 if it gains
        self.agent_is_steady = False  # whether its agent chooses the same until the epoch or the placement changes
        self._has_observed = False
        self._trained = 0.0  # training before it got its present GPUs [s]
        # Ends of the epochs after the present one if nothing changes, the last one first.
        self._ahead: list[Milestone] = []
        # A segment, and progress and time of its last boundary of an interval that was asked for.
        self._reached: tuple[Segment, float, float] = (self.segment, 0.0, 0.0)

    if TYPE_CHECKING:
        placement: Placement
    else:  # a Python function takes twice as long
        placement = property(attrgetter("holding.placement"), doc="GPUs that the job holds.")

    @property
    def max_replicas(self) -> int:
        """Return the largest number of GPUs that its agent and its user allow now."""
        largest = self.agent.max_replicas
        requested = self.job.max_replicas
        if requested is None:
            return largest
        return min(largest, requested)

    @property
    def ends_epochs_by_events(self) -> bool:
        """Return whether each end of an epoch is an event; otherwise all ends are known when the job is placed."""
        if self.agent.learns or self.agent.plans or self.segment.checkpoints is not None:
            return True
        return self.batch is not None and self.batch.this_epoch_only

    @property
    def next_epoch(self) -> Milestone:
        """Return when the job enters its next epoch by its known course; `NEVER` in the last epoch of the course."""
        return self.segment.milestone if self._ahead else NEVER

    def is_training(self, now: float) -> bool:
        """Return whether the job has trained in its present segment: it has GPUs, and its restart delay is over."""
        return self.training_speed is not None and not has_come(now, self.segment.start)

    def segment_at(self, now: float) -> Segment:
        """Return the segment at a time [s], in the epoch of that time."""
        ahead = self._ahead
        start, after_round = self.segment.milestone
        # A boundary at this very instant is passed, unless the round of the instant comes before it.
        # All times from `earliest` to `latest` are the same instant as `now`.
        earliest = now - slack(now)
        latest = now + slack(now)
        if not ahead or start > latest or (start >= earliest and after_round):
            return self.segment
        count = 1
        while count < len(ahead):
            time, after_round = ahead[-count]
            if time > latest or (time >= earliest and after_round):
                break
            start = time
            count += 1
        epoch = self.segment.epoch + count
        return self._trained_segment(epoch, self.truth.epoch_ends[epoch - 1], start, ahead[-count])

    def progress_at(self, now: float) -> float:
        """Return the work done by a time [M0-steps].

        All readings of a segment together take time linear in the number of its intervals.
        """
        segment = self.segment_at(now) if self._ahead else self.segment
        if now <= segment.start or not segment.rate:
            return segment.progress
        if segment.checkpoints is not None:
            now = segment.checkpoints.without(segment.start, now)
        if self.rule.has_intervals:
            return self._trained_until(segment, now)
        return self.rule.progress_at(segment.progress, segment.rate, segment.start, now)

    def losses_at(self, now: float) -> Losses:
        """Return the losses by checkpoints and failures up to a time [s]."""
        cycle = self.checkpoints_at(now)
        losses = self.holding.losses
        if cycle is None:
            return losses
        return losses.with_checkpoints(cycle, self.holding.num_replicas)

    def checkpoints_at(self, now: float) -> CheckpointCycle | None:
        """Return the cycle of checkpoints as of a time within the present segment [s]."""
        segment = self.segment
        cycle = segment.checkpoints
        if cycle is None or now <= segment.start:
            return cycle
        passed = now - segment.start
        error = slack(now)
        last = cycle.last_end(passed, error)
        if last is None:
            return cycle.after(passed, cycle.kept, error)
        # The last checkpoint saved the progress of its beginning, in training time without checkpoints.
        saved = self.rule.progress_at(segment.progress, segment.rate, segment.start, segment.start + last)
        return cycle.after(passed, saved, error)

    def saves_from(self, now: float, seconds: float) -> float:
        """Return when a checkpoint of this length must begin to be complete now [s], not before its segment."""
        return max(now - seconds, min(self.segment.start, now))

    def continue_from(self, past: Past) -> None:
        """Begin with the work and the service that the job had at the start of the run."""
        self.segment = Segment(bisect_right(self.truth.epoch_ends, past.progress), past.progress)
        self.holding.continue_from(past)

    def place(self, placement: Placement, speed: TrainingSpeed | None, now: float, restart_delay: float) -> None:
        """Change the GPUs of the job, and its speed. With GPUs, `begin_segment` must follow."""
        # What depends on the old GPUs is read before the job holds others.
        progress = self.progress_at(now)
        if self.segment.checkpoints is not None:
            self.holding.losses = self.losses_at(now)
        if self.placement:
            self._trained += max(now - self.holding.since - self.holding.delay, 0.0)
        self.holding.hold(placement, now, restart_delay)
        self.training_speed = speed
        # Another serial number makes the event at the end of the last segment void.
        self.serial += 1
        self.segment = Segment(self.segment.epoch, progress, now + restart_delay)
        self._ahead = []

    def lose(self, now: float, restart_delay: float, saving: float | None = None) -> None:
        """Lose all GPUs and the work since the last checkpoint, unless a checkpoint of `saving` [s] is complete now."""
        before = self.segment
        gpus = self.holding.num_replicas
        until = now
        if saving is not None:
            until = self.saves_from(now, saving)  # the job does not train while it saves
        progress = self.progress_at(until)
        cycle = self.checkpoints_at(until) or CheckpointCycle()
        if saving is not None:
            cycle = cycle._replace(kept=progress, since=0.0, paused=cycle.paused + (now - until))
        self.segment = Segment(before.epoch, progress, now, checkpoints=cycle)
        self._ahead = []
        # `place` adds the losses by checkpoints up to here, so the loss by the failure follows it.
        self.place((), None, now, restart_delay)
        self.batch = None
        self.holding.losses = self.holding.losses.with_failure(cycle, gpus, progress)
        self.holding.is_lost = True
        # Work that was saved at the end of an epoch counts as the whole epoch, whatever the rounding of its sum.
        reached = cycle.kept * (1 + ROUNDING)
        epoch = min(bisect_right(self.truth.epoch_ends, reached), before.epoch)
        self.segment = Segment(epoch, cycle.kept)

    def leave_failed_node(self) -> None:
        """Count the loss of the GPUs that the job has just given up as one by a failure, which cost no work."""
        losses = self.holding.losses
        self.holding.losses = losses._replace(num_failures=losses.num_failures + 1)
        self.holding.is_lost = True

    def save_by(self, cycle: CheckpointCycle) -> None:
        """Make checkpoints on the GPUs that the job has just got; all earlier work is saved."""
        self.segment = self.segment._replace(checkpoints=cycle._replace(kept=self.segment.progress))

    def begin_segment(self, now: float) -> Milestone:
        """Begin a segment with the present speed, and return the milestone that is an event: the end of its course."""
        before = self.segment
        epoch = before.epoch
        progress = self.progress_at(now)
        start = max(before.start, now)
        last = len(self.truth.epoch_ends)
        if self.ends_epochs_by_events:
            last = epoch + 1  # what follows is decided at the end of the epoch
        cycle = self.checkpoints_at(now)
        self.serial += 1
        self._has_observed = False
        self.agent_is_steady = not self.agent.learns
        rates = self._present_speed.rates(epoch, last)
        if self.slowdown:
            rates = [rate * (1 - self.slowdown) for rate in rates]
        course = self.rule.course(progress, start, rates, self.truth.epoch_ends[epoch:last])
        self._ahead = course[::-1]  # the next one last, because `pop` takes the last item
        if cycle is not None:
            self._ahead = [cycle.delayed(ahead, start) for ahead in self._ahead]
        # The plan's limit ends the job before its course does.
        if self._time_up < self._ahead[0][0]:
            self._ahead[0] = max(self._time_up, start), False
        # Read before `pop`, which can take this last milestone.
        end = self._ahead[0]
        self.segment = self._trained_segment(epoch, progress, start, self._ahead.pop(), cycle)
        return end

    def pass_epochs(self, now: float) -> bool:
        """Enter the epoch of a time [s] within a known course, and return whether the epoch changed."""
        segment = self.segment_at(now)
        if segment is self.segment:
            return False
        del self._ahead[self.segment.epoch - segment.epoch :]
        self.segment = segment
        return True

    def take_agent(self, agent: Agent, now: float) -> None:
        """Replace the agent, which observes the job if it trains. With GPUs, `begin_segment` must follow."""
        self.agent = agent
        # The new agent has seen nothing, also of the present segment.
        self._has_observed = False
        self.batch = None
        if self.is_training(now):
            self._observe()
        if self.training_speed is not None:
            self._choose_again()

    def choose_batch(self, batch: ChosenBatch | None, *, is_moved: bool) -> bool:
        """Use the choice of the policy, or of the agent if it is None, until the next decision.

        A job that `is_moved` gets its new speed with its new GPUs. Return whether a segment must begin: the batch size
        changed, or the ends of epochs became events or no events.
        """
        had_events = self.ends_epochs_by_events
        self.batch = batch
        if is_moved or self.training_speed is None:
            return False
        before = self.training_speed
        if batch is None:
            self._choose_again()
        else:
            self.training_speed = self.truth.for_gpu_type(before.gpu_type).speed_at(before.shape, batch.choice)
        return self.training_speed is not before or self.ends_epochs_by_events != had_events

    def end_interval(self) -> bool:
        """Let the agent observe and choose again. Return whether its choice is another than the present batch size.

        A segment must then begin, unless the policy has chosen the batch size.
        """
        self._observe()
        if self.batch is not None:
            # The agent observes nothing new until the epoch, the placement or the batch size changes.
            self.agent_is_steady = True
            chosen_by_agent = self._present_speed.with_batch_of(self.agent, self.truth, self.segment.epoch)
            return chosen_by_agent is not self.training_speed
        # The same choice after the same observation stays the same until the epoch or the placement changes.
        self.agent_is_steady = not self._choose_again()
        return not self.agent_is_steady

    def end_epoch(self) -> bool:
        """End an epoch that is an event. Return whether the job is over; otherwise a new segment must begin.

        It is over when all work is done, or at the time limit of its plan.
        """
        # Before the epoch changes: the agent observes the epoch that ends.
        self._observe()
        epoch = self.segment.epoch
        now, _ = self.segment.milestone
        cycle = self.checkpoints_at(now)
        if has_come(self._time_up, now):
            self.segment = Segment(epoch, self.progress_at(now), now, checkpoints=cycle)
            return True
        # The exact boundary, and not the sum of the progress, so that rounding does not add up over epochs.
        self.segment = Segment(epoch + 1, self.truth.epoch_ends[epoch], now, checkpoints=cycle and cycle.at_epoch_end())
        if epoch + 1 == len(self.truth.epoch_ends):
            return True
        if self.batch is not None and self.batch.this_epoch_only:
            self.batch = None
        if self.batch is None:
            self._choose_again()
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> ActiveJob:
        # Requests, truths and segments never change, so copies share them.
        new = twin(self)
        new.holding = twin(self.holding)
        new.agent = deepcopy(self.agent, memo)
        new._ahead = self._ahead[:]
        return new

    @property
    def _time_up(self) -> float:
        """Return when the time limit of the job's plan is over if it keeps its GPUs, ∞ without a plan [s]."""
        if self.job.plan is None:
            return inf
        return self.holding.since + self.holding.delay + self.job.plan.most_time - self._trained

    @property
    def _present_speed(self) -> TrainingSpeed:
        if self.training_speed is None:
            raise RuntimeError(f"job {self.job_id!r} has no GPUs to train on")
        return self.training_speed

    def _trained_segment(
        self, epoch: int, progress: float, start: float, end: Milestone, cycle: CheckpointCycle | None = None
    ) -> Segment:
        """Return the segment of a job that trains from `start` to `end` [s] within an epoch."""
        rate, efficiency = self._present_speed.in_epoch(epoch)
        rate *= 1 - self.slowdown
        return Segment(epoch, progress, start, rate, rate * self.truth.init_batch_size, efficiency, end, cycle)

    def _trained_until(self, segment: Segment, time: float) -> float:
        """Return the progress at a time of training within a segment [M0-steps]."""
        reached_segment, progress, start = self._reached
        if reached_segment is not segment or start > time:
            progress = segment.progress
            start = segment.start
        progress, start = self.rule.last_boundary(progress, segment.rate, start, time)
        if segment is self.segment:
            self._reached = segment, progress, start
        if time <= start:
            return progress
        return progress + segment.rate * (time - start)

    def _choose_again(self) -> bool:
        """Let the agent choose the batch size, and return whether it is another one."""
        before = self._present_speed
        self.training_speed = before.with_batch_of(self.agent, self.truth, self.segment.epoch)
        return self.training_speed is not before

    def _observe(self) -> None:
        """Let an agent that learns observe the present segment, once."""
        if self._has_observed or not self.agent.learns:
            return
        self._has_observed = True
        self.agent.observe(self._present_speed.observation(self.segment.epoch))


class Move(NamedTuple):
    """A change of a job's GPUs. Without GPUs, `training_speed` is None.

    `gpus` are the numbered GPUs if jobs can share them.

    `delay` is the restart delay that the policy named, or None for the delay of the settings [s].
    """

    job: ActiveJob
    placement: Placement
    training_speed: TrainingSpeed | None
    gpus: Gpus = ()
    delay: float | None = None


class Transition(NamedTuple):
    """A change of one job, for observers."""

    time: float
    job: ActiveJob  # in its state after the change
    status: Status = Status.CUT_OFF  # of a job that has ended
    checkpoint: tuple[float, float] | None = None  # start and end of a checkpoint that the change made [s]
    was_training: bool = False  # before the job lost its GPUs
    delay: float | None = None  # restart delay that the policy named for the change [s]


def twin(original: SlottedT) -> SlottedT:
    """Return an object with equal slots; `copy.copy` takes three times as long."""
    new = object.__new__(type(original))
    for name in original.__slots__:
        setattr(new, name, getattr(original, name))
    return new
