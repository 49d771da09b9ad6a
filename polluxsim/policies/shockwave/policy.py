"""Shockwave as a policy: a plan for a window of rounds, made anew as jobs come and go, carried out round by round."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import exp, log
from typing import TYPE_CHECKING

from polluxsim.policies.orders import check_above_zero
from polluxsim.policies.shares.demand import gpus_by_type
from polluxsim.policies.shares.rounds import placements_by_type
from polluxsim.policies.shockwave.market import Window, fair_rounds, planned_rounds
from polluxsim.policies.shockwave.prospects import Target, prospect
from polluxsim.policies.view import Decision, Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np

    from polluxsim.policies.shockwave.prospects import Prospect
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId

MOST_WEIGHT = 1e6


@dataclass
class Shockwave:
    """Gang-schedule jobs by a market over a window of rounds, such that none is late by what is expected of it.

    Parameters
    ----------
    window
        Rounds that are planned at a time.
    resolve
        Rounds after which a plan is made anew though nobody came or left.
    weight_of_longest
        What a second that the longest job has left counts against mean utility; k [1/s].
    exponent
        Power of its lateness by which a late job's utility is weighed; λ.
    most_unfairness
        Expected finish-time fairness above which a job is late.

    Source: Zheng et al., Shockwave (NSDI '23); counts in place of binaries, and HiGHS in place of Gurobi.
    """

    window: int = 20
    resolve: int = 8
    weight_of_longest: float = 1e-3
    exponent: float = 12.0
    most_unfairness: float = 1.0
    _targets: dict[JobId, Target] = field(default_factory=dict, init=False, repr=False)
    _weights: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _planned: dict[JobId, int] = field(default_factory=dict, init=False, repr=False)
    _rounds_left: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        check_above_zero(
            window=self.window, resolve=self.resolve, exponent=self.exponent, most_unfairness=self.most_unfairness
        )

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Carry out the next round of the plan, which is made anew where it is time."""
        if not view.jobs:
            return Decision({})
        jobs = {job.job_id: job for job in view.jobs}
        prospects = {name: prospect(view, job) for name, job in jobs.items()}
        has_changed = bool(view.changes.arrived or view.changes.ended or view.changes.nodes)
        self._estimate(view, prospects, has_changed=has_changed)
        if has_changed or self._rounds_left <= self.window - self.resolve:
            self._plan(view, prospects)
        order = sorted(jobs.values(), key=self._rank)
        by_length = sorted(order, key=lambda job: -prospects[job.job_id].left)
        planned = [job for job in order if self._planned[job.job_id]]
        running = _fitting(view, [*planned, *(job for job in by_length if not self._planned[job.job_id])])
        explain = partial(_reasons, running, self._planned, prospects, self._weights)
        self._rounds_left -= 1
        self._planned = {name: max(rounds - (name in running), 0) for name, rounds in self._planned.items()}
        return Decision(placements_by_type(view, running, jobs), explain=explain)

    def _estimate(self, view: ClusterView, prospects: Mapping[JobId, Prospect], *, has_changed: bool) -> None:
        """Say when each job should be complete on an equal share of the GPUs."""
        share = min(1.0, view.num_gpus / len(prospects))
        self._targets = {name: self._targets.get(name) or Target() for name in prospects}
        if has_changed:
            for job in view.jobs:
                seen = prospects[job.job_id]
                self._targets[job.job_id].estimate(job.submit_time + (seen.spent + seen.left) / share)
        for target in self._targets.values():
            target.stand()

    def _plan(self, view: ClusterView, prospects: Mapping[JobId, Prospect]) -> None:
        """Plan the next window: fairly if that can be, else with late jobs weighed by their lateness."""
        jobs, share = list(prospects.values()), min(1.0, view.num_gpus / len(prospects))
        window = Window(self.window, view.round_interval or 60.0, view.num_gpus, self.weight_of_longest)
        end = view.time + window.rounds * window.length
        due = [self._targets[name].time * self.most_unfairness for name in prospects]
        least = fair_rounds(jobs, [(time - end) * share for time in due], window)
        weights = [1.0] * len(jobs)
        if least is None:
            least = [0] * len(jobs)
            finish = (view.time + job.left / share for job in jobs)
            late = [time / self._targets[name].time for time, name in zip(finish, prospects, strict=True)]
            weights = [self._weight(rho, job, window) for rho, job in zip(late, jobs, strict=True)]
        self._weights = dict(zip(prospects, weights, strict=True))
        self._planned = dict(zip(prospects, planned_rounds(jobs, weights, least, window), strict=True))
        self._rounds_left = self.window

    def _weight(self, rho: float, job: Prospect, window: Window) -> float:
        power = 100.0 if job.left < window.length else self.exponent
        # By logarithms, as powers of 100 may be too large for a number.
        return min(exp(min(power * log(rho), log(MOST_WEIGHT))), MOST_WEIGHT) if rho > self.most_unfairness else 1.0

    def _rank(self, job: JobView) -> tuple[bool, float, bool]:
        """Return who goes first: who needs every round that is left, by weight for GPUs, and who runs."""
        rounds = self._planned[job.job_id]
        worth = self._weights[job.job_id] / (max(rounds, 1) * job.num_replicas)
        return rounds < self._rounds_left, -worth, not job.placement


def _fitting(view: ClusterView, order: Sequence[JobView]) -> dict[JobId, str]:
    """Return the types of the jobs that fit, in order; each takes the first type that it can use and that has room."""
    free, running = dict(gpus_by_type(view)), dict[str, str]()
    for job in order:
        types = [name for name in free if name in job.speeds and free[name] >= job.num_replicas]
        if types:
            running[job.job_id] = types[0]
            free[types[0]] -= job.num_replicas
    return running


def _reasons(
    running: Collection[JobId],
    planned: Mapping[JobId, int],
    prospects: Mapping[JobId, Prospect],
    weights: Mapping[JobId, float],
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Say what the plan has for the jobs asked about. Kinds: `planned`, `spare`, and `later`."""
    reasons = {}
    for job in asked:
        kind = ("planned" if planned[job] else "spare") if job in running else "later"
        numbers = {"rounds": planned[job], "remaining_time": prospects[job].left, "weight": weights[job]}
        reasons[job] = Reason(f"market-{kind}", numbers)
    return reasons
