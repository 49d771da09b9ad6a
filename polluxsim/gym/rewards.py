"""What an agent is rewarded for: a score that the run has at any time, of which each step earns the difference."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from polluxsim.errors import check_choice
from polluxsim.gym.layout import time_left
from polluxsim.records import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.engine.simulation import Simulation
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


@dataclass(slots=True)
class Stay:
    """A job in the system.

    Parameters
    ----------
    job
        What it is.
    alone
        Time to completion on the GPUs asked for, from its submission on [s]; ∞ where nobody needs it.
    done
        Share of its work that is done; nothing is worth anything of a job that ends otherwise than complete.
    """

    job: JobView
    alone: float
    done: float = 0.0


REWARDS: Mapping[str, Callable[[Stay, float], float]] = {
    "jobs": lambda stay, now: stay.job.submit_time - now,
    "slowdown": lambda stay, now: (stay.job.submit_time - now) / stay.alone,
    "goodput": lambda stay, now: stay.done * stay.alone * stay.job.num_replicas,
}
"""What a stay is worth up to now [s], by the name of the reward."""


class Ledger:
    """The score of one run.

    Parameters
    ----------
    reward
        `jobs`: minus the time that jobs spent in the system [job s]; in the end minus the sum of all JCTs.
        `slowdown`: the same, each job's over its time on the GPUs asked for [1]: minus the sum of all slowdowns.
        `goodput`: work that is done, as the time it takes on the GPUs asked for times these [GPU s].

    Raises
    ------
    InvalidConfigError
        If there is no such reward.
    """

    def __init__(self, reward: str) -> None:
        check_choice("reward", reward, REWARDS)
        self._worth = REWARDS[reward]
        self._follows_work, self._needs_times = reward == "goodput", reward != "jobs"
        self._open: dict[JobId, Stay] = {}
        self._closed = self._last = 0.0
        self._num_ended = 0

    def earned(self, run: Simulation, view: ClusterView | None) -> float:
        """Return by how much the score rose since this was last asked for; `view` is the run's, None at its end."""
        if view is not None:
            for job in view.changes.arrived:
                self._open[job.job_id] = Stay(job, time_left(view, job) if self._needs_times else inf)
        self._close(run)
        if view is not None and self._follows_work:
            for stay in self._open.values():
                stay.done = 1.0 - time_left(view, stay.job) / stay.alone
        worth, now = self._worth, run.time
        score = self._closed + sum([worth(stay, now) for stay in self._open.values()])
        earned, self._last = score - self._last, score
        return earned

    def _close(self, run: Simulation) -> None:
        for record in run.ended(self._num_ended):
            self._num_ended += 1
            if (stay := self._open.pop(record.job, None)) is not None and record.end_time is not None:
                stay.done = float(record.status is Status.COMPLETED)
                self._closed += self._worth(stay, record.end_time)
