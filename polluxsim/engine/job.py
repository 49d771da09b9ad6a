"""The life of one job: placed, restarting, progressing epoch by epoch, complete. Knows nothing of events."""

from __future__ import annotations

from bisect import bisect_right
from copy import deepcopy
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from polluxsim.engine.rhythm import Rhythm
from polluxsim.engine.segment import NEVER, Segment
from polluxsim.engine.tenure import Tenure
from polluxsim.engine.time_rules import Milestone

if TYPE_CHECKING:
    from polluxsim.agent.agent import Agent
    from polluxsim.engine.tenure import Losses
    from polluxsim.engine.time_rules import TimeRule
    from polluxsim.engine.truth import Pace, Truth
    from polluxsim.types import Placement
    from polluxsim.workloads.workload import Job

SlottedT = TypeVar("SlottedT", bound=Any)


class ActiveJob:
    """State and dynamics of one job that is submitted and has not ended, `order` of them before it.

    Attributes
    ----------
    pace
        How it trains on them; None without any.
    segment
        How it progresses now.
    serial
        How many segments it has had; an event about an earlier one is out of date.
    interference
        Share of its speed that it loses to others, or to few CPUs and little memory; below 0 where it gains by more.
    agent_is_steady
        Whether its agent would choose the same again until the epoch or the placement changes.
    """

    __slots__ = (
        "_ahead", "_has_observed", "_trained", "agent", "agent_is_steady", "interference", "job", "job_id", "order",
        "pace", "segment", "serial", "tenure", "truth",
    )  # fmt: skip

    def __init__(self, job: Job, truth: Truth, agent: Agent, order: int = 0) -> None:
        self.job = job
        self.job_id = job.job_id
        self.truth = truth
        self.agent = agent
        self.order = order
        self.tenure = Tenure()
        self.pace: Pace | None = None
        self.segment = Segment()
        self.serial, self.interference = 0, 0.0
        self.agent_is_steady = False
        self._has_observed = False
        self._trained = 0.0  # time that it has trained before it was given its GPUs [s]
        # When the epochs after the present one end if nothing changes, the last first.
        self._ahead: list[tuple[float, bool]] = []

    @property
    def placement(self) -> Placement:
        """Return the GPUs it holds."""
        return self.tenure.placement

    @property
    def max_replicas(self) -> int:
        """Return the most GPUs it may be given now, by its agent and its user."""
        most, asked = self.agent.max_replicas, self.job.max_replicas
        return most if asked is None else min(most, asked)

    def is_training(self, now: float) -> bool:
        """Return whether the job has GPUs and is past its restart delay."""
        return self.pace is not None and now > self.segment.start

    @property
    def goes_by_epochs(self) -> bool:
        """Return whether something has to be done for it at the end of every epoch: else all its course is known."""
        return self.agent.learns or self.agent.plans or self.segment.rhythm is not None

    def losses_at(self, now: float, rule: TimeRule) -> Losses:
        """Return what checkpoints and failures took from it up to now."""
        rhythm, losses = self.segment.rhythm_at(now, rule), self.tenure.losses
        return losses if rhythm is None else losses.with_checkpoints(rhythm, self.tenure.num_replicas)

    def place(self, placement: Placement, pace: Pace | None, now: float, restart_delay: float, rule: TimeRule) -> None:
        """Give the job another placement and its pace there, or none; `begin_segment` must follow where it has one."""
        progress = self.segment.progress_at(now, rule)
        self.tenure.losses = self.losses_at(now, rule)
        self._trained = self._time_trained(now)
        self.tenure.hold(placement, now, restart_delay)
        self.pace = pace
        self.serial += 1
        self.segment = Segment(self.segment.epoch, progress, now + restart_delay)

    def lose(self, now: float, restart_delay: float, rule: TimeRule, saving: float | None = None) -> None:
        """Lose all GPUs, and the work that was not kept; none where so many seconds went into saving it at last."""
        before, gpus = self.segment, self.tenure.num_replicas
        until = now if saving is None else self.saves_from(now, saving)
        progress, rhythm = before.progress_at(until, rule), before.rhythm_at(until, rule) or Rhythm()
        if saving is not None:
            rhythm = rhythm._replace(kept=progress, since=0.0, paused=rhythm.paused + (now - until))
        self.segment = Segment(before.epoch, progress, now, rhythm=rhythm)
        self.place((), None, now, restart_delay, rule)
        self.tenure.losses = self.tenure.losses.with_failure(rhythm, gpus, progress)
        self.tenure.is_lost = True
        epoch = min(bisect_right(self.truth.epoch_ends, rhythm.kept), before.epoch)
        self.segment = Segment(epoch, rhythm.kept)

    def saves_from(self, now: float, seconds: float) -> float:
        """Return when it begins to save its work so as to be ready now, which takes it so long [s]."""
        return max(now - seconds, min(self.segment.start, now))

    def go_by(self, rhythm: Rhythm) -> None:
        """Stop for checkpoints on the GPUs it was just given; all that it did before is kept."""
        self.segment = self.segment._replace(rhythm=rhythm._replace(kept=self.segment.progress))

    def begin_segment(self, now: float, rule: TimeRule) -> Milestone:
        """Fix rate and milestones from here on; return when an epoch, or all work, has to be seen to.

        Work that waits for a restart starts when that is over.
        """
        before = self.segment
        epoch, progress, start = before.epoch, before.progress_at(now, rule), max(before.start, now)
        last = epoch + 1 if self.goes_by_epochs else len(self.truth.epoch_ends)
        self.serial += 1
        self._has_observed = False
        self.agent_is_steady = not self.agent.learns
        rates = self._pace.rates(epoch, last)
        if self.interference:
            rates = [rate * (1 - self.interference) for rate in rates]
        self._ahead = rule.course(progress, start, rates, self.truth.epoch_ends[epoch:last])[::-1]
        if (rhythm := before.rhythm_at(now, rule)) is not None:
            self._ahead = [rhythm.delayed(Milestone(*each), start) for each in self._ahead]
        if self._time_up < self._ahead[0][0]:
            self._ahead[0] = Milestone(max(self._time_up, start))
        end = Milestone(*self._ahead[0])
        self._train(epoch, progress, start, Milestone(*self._ahead.pop()), rhythm)
        return end

    def _train(self, epoch: int, progress: float, start: float, end: Milestone, rhythm: Rhythm | None = None) -> None:
        rate, efficiency = self._pace.at(epoch)
        rate *= 1 - self.interference
        goodput = rate * self.truth.init_batch_size
        self.segment = Segment(epoch, progress, start, rate, goodput, efficiency, end, rhythm)

    @property
    def next_epoch(self) -> Milestone:
        """Return when the next epoch begins within this course; never if its end comes first."""
        return self.segment.milestone if self._ahead else NEVER

    def pass_epochs(self, now: float) -> bool:
        """Go on to the epoch that the job is in at a scheduling round; return whether it is another one."""
        epoch, passed = self.segment.epoch, self.segment.milestone
        milestone = passed
        while self._ahead and (milestone.time < now or (milestone.time == now and not milestone.after_round)):
            epoch, passed, milestone = epoch + 1, milestone, Milestone(*self._ahead.pop())
        if epoch == self.segment.epoch:
            return False
        self._train(epoch, self.truth.epoch_ends[epoch - 1], passed.time, milestone)
        return True

    def take_agent(self, agent: Agent, now: float) -> None:
        """Go on with another agent, which observes the job if it trains; `begin_segment` must follow if it has GPUs."""
        self.agent, self._has_observed = agent, False
        if self.is_training(now):
            self._observe()
        if self.pace is not None:
            self._choose_again()

    def end_interval(self) -> bool:
        """Let the agent of a job that trains observe and choose again, at a scheduling round.

        Return whether the batch size changed, so that a new segment must begin.
        """
        self._observe()
        # The same choice after the same observation stays the same until the epoch or the placement changes.
        self.agent_is_steady = not self._choose_again()
        return not self.agent_is_steady

    def end_epoch(self, rule: TimeRule) -> bool:
        """Pass the milestone of a job that goes by epochs; return whether all work is done, or a segment must begin."""
        self._observe()
        epoch, now = self.segment.epoch, self.segment.milestone.time
        rhythm = self.segment.rhythm_at(now, rule)
        if now >= self._time_up:
            self.segment = Segment(epoch, self.segment.progress_at(now, rule), now, rhythm=rhythm)
            return True
        self.segment = Segment(epoch + 1, self.truth.epoch_ends[epoch], now, rhythm=rhythm and rhythm.at_epoch_end())
        if epoch + 1 == len(self.truth.epoch_ends):
            return True
        self._choose_again()
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> ActiveJob:
        new = twin(self)
        new.tenure = twin(self.tenure)
        new.agent = deepcopy(self.agent, memo)
        new._ahead = self._ahead[:]
        return new

    def _time_trained(self, now: float) -> float:
        here = now - self.tenure.since - self.tenure.delay
        return self._trained + (max(here, 0.0) if self.placement else 0.0)

    @property
    def _time_up(self) -> float:
        """Return when it has trained for as long as it may, if it keeps its GPUs [s]."""
        if self.job.plan is None:
            return inf
        return self.tenure.since + self.tenure.delay + self.job.plan.most_time - self._trained

    @property
    def _pace(self) -> Pace:
        if self.pace is None:
            raise RuntimeError(f"job {self.job_id!r} has no GPUs to train on")
        return self.pace

    def _choose_again(self) -> bool:
        before = self._pace
        self.pace = before.chosen_by(self.agent, self.truth, self.segment.epoch)
        return self.pace is not before

    def _observe(self) -> None:
        if self._has_observed or not self.agent.learns:
            return
        self._has_observed = True
        self.agent.observe(self._pace.observation(self.segment.epoch))


def twin(original: SlottedT) -> SlottedT:
    """Return an object with the same in its slots: `copy.copy`, in a third of its time."""
    new = object.__new__(type(original))
    for name in original.__slots__:
        setattr(new, name, getattr(original, name))
    return new
