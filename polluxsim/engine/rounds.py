"""When the policy is called: scheduling rounds at multiples of the interval.

A run has a round at each multiple of the interval in principle. In most of them nothing would change, so a round is an
event on the clock only if one of these needs it: a change (a job arrived, ended, entered an epoch or lost its GPUs, an
agent observed, nodes changed), the end of the validity of the last decision, or agents that observe at every interval.

`Rounds` is told of each change by `State`. It keeps the changes by kind until the policy decides, and answers two
questions in a round: is the round still needed (`begin`), and must the policy decide in it (`policy_is_due`)? If not,
the last decision stays.

- At most one round at a multiple of the interval is due: the one with the number `_due`. A change can call for an
  earlier round. The later one stays in the queue of the clock, and `begin` passes over it, as its number is not `_due`.
- Rounds have rising numbers. `_last` is the number of the last round that is over; no round has its number again.
- A round at once, after a failure, has no number (`AT_ONCE`). It is needed unless a round since then has finished.

The order at one instant: all changes of the instant, then the round (`Rank.ROUND`), then ends of epochs that belong to
the next interval (`Rank.AFTER_ROUND`). The trap: when such an epoch ends, the round of this instant is over, even if no
round took place. `pass_over` notes this; without it, the epoch's end would call for a round at this instant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf

from polluxsim.common.instants import first_round, has_come
from polluxsim.engine.clock import Action, Clock, Rank, check_range
from polluxsim.engine.job import Transition
from polluxsim.engine.views import JobWindow
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import Change, Changes, Decision

AT_ONCE = 0  # replaces the number of a round that is not at a multiple of the interval
# Values of the kinds of changes: the attribute `value` of an enumeration is slow to read, and its hash to compute.
ARRIVAL = Change.ARRIVAL.value
EPOCH = Change.EPOCH.value
COMPLETION = Change.COMPLETION.value
LEARNING = Change.LEARNING.value
NODES = Change.NODES.value
EVICTION = Change.EVICTION.value
FAILURES = NODES | EVICTION  # changes that do not let a job progress


class Rounds:
    """Schedule the rounds, and collect the changes since the policy was last called.

    A round is needed after a change, when a decision is no longer valid, or when agents observe. All other rounds would
    change nothing, so they are left out. `action` is called at each round. With `ask_at_failures`, a round takes place
    immediately after a job lost its GPUs.
    """

    def __init__(self, clock: Clock, interval: float, action: Action, *, ask_at_failures: bool = False) -> None:
        self.has_changed = True
        self.has_hope = False  # whether a change since the last round may let jobs progress, or stopped their progress
        self._clock = clock
        self._interval = interval
        self._action = action
        self._ask_at_failures = ask_at_failures
        self._due: int | None = None
        self._last = 0
        self._valid_until = -inf
        self._decided = -inf  # time of the last decision [s]
        self._outdated_by = Change.ANY.value
        self._altered: tuple[JobId, ...] = ()
        self._named: defaultdict[int, dict[JobId, float]] = defaultdict(dict)

    def submit(self, transition: Transition) -> None:
        """Take note of an arrival."""
        self._note(ARRIVAL, transition.job.job_id)

    def end(self, transition: Transition) -> None:
        """Take note of the end of a job."""
        self._note(COMPLETION, transition.job.job_id)

    def enter_epoch(self, transition: Transition) -> None:
        """Take note of the end of an epoch."""
        self._note(EPOCH, transition.job.job_id)

    def learn(self, transition: Transition) -> None:
        """Take note of the observation of an agent."""
        self._note(LEARNING, transition.job.job_id)

    def evict(self, transition: Transition) -> None:
        """Record that a job lost its GPUs."""
        self.has_hope |= transition.was_training
        self._note(EVICTION, transition.job.job_id)
        if self._ask_at_failures:
            self._clock.at(transition.time, Rank.ROUND, self._action, AT_ONCE)

    def note_altered(self, job_ids: Iterable[JobId]) -> None:
        """Record the jobs that a fork altered."""
        self._altered += tuple(job_ids)

    def change_nodes(self) -> None:
        """Take note of a change of nodes."""
        self._note(NODES)

    def _note(self, change: int, job_id: JobId = "") -> None:
        """Record a change, by its value. It needs a round and may outdate the present decision."""
        now = self._clock.now
        self._named[change][job_id] = now
        self.has_changed = True
        # A failure does not let jobs progress, or a run without progress would never end.
        self.has_hope |= not change & FAILURES
        if change & self._outdated_by:
            self._valid_until = -inf
        self.call(now)

    def call(self, time: float) -> None:
        """Schedule a round at the first multiple of the interval at or after `time` that is not over, or earlier."""
        due = self._due
        # The first test is quick, and true for most calls: no round can come before the next one.
        if due is not None and (due == self._last + 1 or first_round(time, self._interval) >= due):
            return
        check_range(time, self._interval, "the simulation")
        # A round that is over does not take place again, even if something changes at its instant.
        index = max(first_round(time, self._interval), self._last + 1)
        self._due = index
        self._clock.at(index * self._interval, Rank.ROUND, self._action, index)

    def pass_over(self, transition: Transition) -> None:
        """Note that the round of this instant is over, even if no round took place."""
        self._last = max(self._last, first_round(transition.time, self._interval))

    def begin(self, index: int) -> bool:
        """Return whether a scheduled round is still needed: no other round has taken its place."""
        if index == AT_ONCE:
            return self.has_changed
        if index != self._due:
            return False
        self._due = None
        self._last = index
        return True

    @property
    def policy_is_due(self) -> bool:
        """Return whether the present decision is no longer valid."""
        return has_come(self._valid_until, self._clock.now)

    @property
    def announced_wait(self) -> float:
        """Return the time for which the policy said, at its last decision, that it would not decide again [s].

        It is 0 if the policy did not name a time, or if an event has ended the validity of the decision.
        """
        # ∞ means until an event, which names no time.
        if self._valid_until == inf:
            return 0.0
        return max(self._valid_until - self._decided, 0.0)

    def changes(self, views: Mapping[JobId, JobWindow]) -> Changes:
        """Return the changes since the last decision of the policy.

        Jobs that have arrived and ended since the last decision are left out.
        """
        names_by_change = self._named
        arrived = names_by_change.get(ARRIVAL, {})
        ended = names_by_change.get(COMPLETION, {})
        return Changes(
            arrived=[views[job_id] for job_id in arrived if job_id in views],
            ended={job_id: time for job_id, time in ended.items() if job_id not in arrived},
            passed_epoch=tuple(names_by_change.get(EPOCH, ())),
            learnt=tuple(names_by_change.get(LEARNING, ())),
            nodes=NODES in names_by_change,
            evicted=tuple(names_by_change.get(EVICTION, ())),
            altered=self._altered,
        )

    def decide(self, decision: Decision) -> None:
        """Keep the validity of a decision. The policy is not told about jobs that it rejects."""
        self._valid_until = decision.valid_until
        self._decided = self._clock.now
        # A decision cannot outlive the loss of GPUs: it gave the job GPUs that are gone.
        self._outdated_by = decision.outdated_by.value | EVICTION
        self._altered = ()
        self._named = defaultdict(dict)

    def ask_anew(self) -> None:
        """Call the policy at the next round, whatever its last decision says."""
        self.has_changed = True
        self.has_hope = True
        self._valid_until = -inf
        self.call(self._clock.now)

    def announce_all(self, jobs: Mapping[JobId, object]) -> None:
        """Announce all active jobs again, for a policy that has not seen the run."""
        self._named = defaultdict(dict, {ARRIVAL: dict.fromkeys(jobs, self._clock.now)})

    def finish(self, next_needed: float) -> None:
        """End a round, and schedule the next round: when the decision ends, or at `next_needed` [s]; ∞ means never."""
        self.has_changed = False
        self.has_hope = False
        # A decision without validity, −∞, leads to the next round.
        first = min(self._valid_until, next_needed)
        if first < inf:
            self.call(max(first, self._clock.now))
