"""When Slurm's schedulers run, in a simulation in which a run takes no time.

The main scheduler runs soon after each event over the first jobs of the queue, and once in each `sched_interval` over
all of it. The backfill runs every `bf_interval`, if something has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf

from polluxsim.common.instants import has_come
from polluxsim.policies.slurm.parameters import Parameters


@dataclass
class Turns:
    """What changed since the last run of each scheduler, and the times of these runs [s]."""

    parameters: Parameters
    _main_is_due: bool = False
    _backfill_is_due: bool = False
    _rest_is_due: bool = False  # whether jobs behind `default_queue_depth` wait for a run over the whole queue
    _last_main: float = -inf  # −∞ before the first run
    _last_backfill: float = -inf

    def note_change(self) -> None:
        """Note a submission, an end, or a change of nodes."""
        self._main_is_due = True
        self._backfill_is_due = True

    def main_runs(self, now: float) -> bool:
        """Return whether the main scheduler runs: after events, which it gathers, or over the whole queue.

        (Source: slurm.conf(5), `batch_sched_delay`, `sched_min_interval` and `sched_interval`.)
        """
        if self._main_is_due and has_come(self._last_main + self._pause, now):
            return True
        return self._rest_is_due and self._is_turn_of_whole_queue(now)

    def backfill_runs(self, now: float) -> bool:
        """Return whether a cycle runs: `bf_interval` after the last one, if something changed.

        (Source: slurm.conf(5), `bf_interval`.)
        """
        is_due = self.parameters.has_backfill and self._backfill_is_due
        return is_due and has_come(self._last_backfill + self.parameters.bf_interval, now)

    def depth(self, now: float) -> int:
        """Return the number of jobs that the main scheduler considers now; 0 for the whole queue."""
        return 0 if self._is_turn_of_whole_queue(now) else self.parameters.default_queue_depth

    def note_main(self, now: float, *, is_whole_queue: bool) -> None:
        """Note a run of the main scheduler."""
        self._last_main = now
        self._main_is_due = False
        self._rest_is_due = not is_whole_queue

    def note_backfill(self, now: float) -> None:
        """Note a cycle of the backfill."""
        self._last_backfill = now
        self._backfill_is_due = False

    def note_starts(self) -> None:
        """Note that a scheduler started a job: this is a change, after which the next cycle runs."""
        self._backfill_is_due = True

    def next_run(self, now: float) -> float:
        """Return when a scheduler runs next if nothing happens [s]; ∞ if none does."""
        times = [inf]
        if self._main_is_due:
            times.append(self._last_main + self._pause)
        if self.parameters.has_backfill and self._backfill_is_due:
            times.append(self._last_backfill + self.parameters.bf_interval)
        if self._rest_is_due:
            # The rest is due only after a run, so the last run has a time.
            next_interval = self._interval_of(self._last_main) + 1
            times.append(float(next_interval * self.parameters.sched_interval))
        # A run that is overdue can take place now.
        return max(min(times), now)

    @property
    def _pause(self) -> float:
        """Return the least time between two runs of the main scheduler after events [s]."""
        min_interval = self.parameters.sched_min_interval * 1e-6  # from µs
        return max(self.parameters.batch_sched_delay, min_interval)

    def _is_turn_of_whole_queue(self, now: float) -> bool:
        """Return whether a multiple of `sched_interval` has passed since the last run; true before the first run."""
        return self._last_main == -inf or self._interval_of(now) > self._interval_of(self._last_main)

    def _interval_of(self, time: float) -> int:
        """Return the number of the `sched_interval` that has a time [s]."""
        return floor(time) // self.parameters.sched_interval
