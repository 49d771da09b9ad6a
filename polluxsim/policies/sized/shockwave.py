"""Shockwave: a market over the rounds of a window, by the expected future of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, exp, floor, log
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from polluxsim.common.instants import has_come, sort_key
from polluxsim.common.values import NonNegativeFloat, OneOf, PositiveFloat, PositiveInt
from polluxsim.common.written import takes_settings
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, ReasonKind, Traits
from polluxsim.policies.tools.free_gpus import place_gangs
from polluxsim.policies.tools.solver_output import without_chatter
from polluxsim.policies.typed.linear_programmes import gpus_by_type


class Prospect(NamedTuple):
    """The expected course of a job."""

    width: int  # GPUs of the gang
    epochs: int  # number of epochs
    done: int  # number of completed epochs, fewer than all
    spent: float  # planned time of the completed epochs [s]
    epoch_time: float  # mean planned time of the completed epochs and the present one [s]
    left: float  # expected remaining time of training, at least 1 s [s]


def prospect(view: ClusterView, job: JobView) -> Prospect:
    """Return the expected epochs of a job, by its plan or, without a plan, by its true remaining time."""
    plan = job.plan
    if plan is None:
        remaining_time = max(job.oracle.time_left(job.num_replicas), 1.0)
        return Prospect(job.num_replicas, 1, 0, 0.0, remaining_time, remaining_time)
    epochs = len(plan.expected_sizes)
    times = [max(round(plan.expected_time(size)), 1) for size in plan.expected_sizes]
    done = min(int(job.oracle.progress / plan.steps(plan.sizes[0])), epochs - 1)
    spent = float(sum(times[:done]))
    observed_times = times[: done + 1]
    remaining_time = max(time_left(plan.expected_sizes, times, done), 1.0)
    return Prospect(job.num_replicas, epochs, done, spent, sum(observed_times) / len(observed_times), remaining_time)


def time_left(sizes: Sequence[int], times: Sequence[float], done: int) -> float:
    """Return the expected time of the remaining epochs if batch sizes are drawn by unknown shares [s].

    The shares have a Dirichlet distribution: before any epoch is seen, all planned sizes are equally likely. `sizes`
    and `times` are the planned values of each epoch [examples; s]; the job has seen the completed epochs and the
    present one. Source: Zheng et al., Shockwave (NSDI '23), §5.

    >>> time_left([32, 32, 32, 32], [10.0, 10.0, 10.0, 10.0], 1)
    20.0
    """
    epochs = len(sizes)
    planned = Counter(sizes)
    observed_sizes = Counter(sizes[: done + 1])
    weights = {size: epochs / len(planned) + observed_sizes[size] for size in planned}
    scale = epochs / sum(weights.values())
    scaled = {size: weight * scale for size, weight in weights.items()}
    # One less for each epoch seen, down to 0.
    remaining = {size: weight - min(observed_sizes[size], floor(weight)) for size, weight in scaled.items()}
    means = {size: sum(t for s, t in zip(sizes, times, strict=True) if s == size) / planned[size] for size in planned}
    expected = sum(remaining[size] * means[size] for size in planned)
    return expected * (epochs - done) / max(floor(sum(remaining.values()) + 1), epochs - done)


@dataclass
class FairTime:
    """Fair time of a job from its submission to its end: the mean of its estimates, weighted by rounds of validity.

    An estimate is valid from the round in which it is made to the round of the next estimate.
    """

    newest: float = 0.0  # newest estimate [s]
    total: float = 0.0  # sum over all rounds of the estimates that were valid [s]
    rounds: int = 0  # number of these rounds

    def keep_for_a_round(self) -> None:
        """Count the newest estimate for one more round."""
        self.total += self.newest
        self.rounds += 1

    @property
    def time(self) -> float:
        """Return the target, after the first round [s since the submission of the job]."""
        return 0.9 * (self.total / self.rounds) + 0.1 * self.newest


# Shares of the epochs between which straight lines approximate the logarithm, and the share whose logarithm stands for
# that of 0. Both as in the published code.
BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LOG_OF_NOTHING = 1e-6

MIP_GAP = 1e-3  # relative optimality gap of the solver, also as published


class Window(NamedTuple):
    """A plan for several rounds."""

    rounds: int  # number of rounds
    length: float  # length of a round [s]
    gpus: int  # GPUs of the cluster
    weight_of_longest: float  # weight of a second of the longest remaining time against mean utility [1/s]


def planned_rounds(
    jobs: Sequence[Prospect], weights: Sequence[float], least: Sequence[int], window: Window
) -> list[int]:
    """Return the number of rounds of the window that each job gets.

    The counts maximise the mean over jobs of weight × log (share of its epochs that a job has done after the window),
    minus the time that the longest job then has left. Each job gets at least its `least` rounds.

    The published programme has a binary variable for each job and round. A count for each job is a relaxation of it:
    the GPU rounds of all jobs fit into the window, and so do the gangs of each width and more, but not all of these
    counts can be packed into rounds. On 2 GPUs, for example, 1 round of a job of 2 GPUs and 3 rounds of a job of 1 GPU
    fit into 3 rounds by their counts, and need 4 rounds. The policy then runs fewer gangs than planned, and plans again
    after `resolve` rounds.

    Raise an `ArithmeticError` if HiGHS finds no plan. Source: Zheng et al., Shockwave (NSDI '23), §4.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (slow to load, and only for Shockwave)

    count = len(jobs)
    # Unknowns: rounds n, epochs e, utilities u, rests (in rounds) of all jobs, then the longest rest.
    n, e, u, slack = (np.eye(count, 4 * count + 1, k=part * count) for part in range(4))
    longest = np.eye(1, 4 * count + 1, k=4 * count)
    # Without differences by rounding, which the solver would enlarge.
    epoch = np.array([[sort_key(job.epoch_time / window.length)] for job in jobs])
    epochs = np.array([job.epochs for job in jobs])
    done = np.array([sort_key(job.done) for job in jobs])
    rounds_left = np.array([sort_key(job.left / window.length) for job in jobs])
    rows = [epoch * e - n, -epoch * e - slack, slack - longest, np.array([[job.width for job in jobs]]) @ n]
    limits = [np.zeros(count), -rounds_left, np.zeros(count), np.array([float(window.rounds * window.gpus)])]
    for slope, start in _lines():
        rows.append(u - slope * e / epochs[:, None])
        limits.append(start + slope * done / epochs)
    for at_least, gangs in _gangs_at_once([job.width for job in jobs], window.gpus):
        rows.append(np.array([[float(job.width >= at_least) for job in jobs]]) @ n)
        limits.append(np.array([float(window.rounds * gangs)]))
    welfare = np.array([sort_key(weight) for weight in weights]) @ u / (count * window.rounds)
    lower = np.concatenate([least, np.zeros(count), np.full(count, -np.inf), np.zeros(count + 1)])
    upper = np.concatenate([np.full(count, float(window.rounds)), epochs - done, np.full(2 * count + 1, np.inf)])
    with without_chatter():
        solution = milp(
            sort_key(window.weight_of_longest * window.length) * longest[0] - welfare,
            integrality=np.arange(4 * count + 1) < count,
            bounds=Bounds(lower, upper),
            constraints=LinearConstraint(np.vstack(rows), ub=np.concatenate(limits)),
            options={"mip_rel_gap": MIP_GAP},
        )
    if solution.x is None:
        raise ArithmeticError(f"no plan: {solution.message}")
    return [round(rounds) for rounds in solution.x[:count]]


def _gangs_at_once(widths: Sequence[int], gpus: int) -> list[tuple[int, int]]:
    """Return pairs (width, number of gangs of at least this width that fit at once).

    A width that divides the number of GPUs is left out, because the limit of GPU rounds implies its limit.

    >>> _gangs_at_once([3, 2, 3], 4)
    [(3, 1)]
    """
    return [(width, gpus // width) for width in sorted(set(widths)) if gpus % width]


def _lines() -> list[tuple[float, float]]:
    """Return slopes and intercepts of the straight lines between `BASES` that approximate the logarithm."""
    points = [(base, log(base or LOG_OF_NOTHING)) for base in BASES]
    slopes = [((y1 - y0) / (x1 - x0), x0, y0) for (x0, y0), (x1, y1) in pairwise(points)]
    return [(slope, y - slope * x) for slope, x, y in slopes]


def fair_rounds(jobs: Sequence[Prospect], spare: Sequence[float], window: Window) -> list[int] | None:
    """Return the rounds that each job needs so that at most `spare` time of training remains after the window [s].

    None if the jobs do not fit into the window.
    """
    needed = [
        max(ceil((job.left - spare_time) / window.length - 1e-9), 0)
        for job, spare_time in zip(jobs, spare, strict=True)
    ]
    gpus = sum(job.width * rounds for job, rounds in zip(jobs, needed, strict=True))
    possible = min(spare, default=0.0) >= -1e-9 * window.length and max(needed, default=0) <= window.rounds
    for width, gangs in _gangs_at_once([job.width for job in jobs], window.gpus):
        wide = sum(rounds for job, rounds in zip(jobs, needed, strict=True) if job.width >= width)
        possible = possible and wide <= window.rounds * gangs
    return needed if possible and gpus <= window.rounds * window.gpus else None


_DUE = (
    "It is expected to train for another {remaining_time:clock}[weight>1?. By its last plan, it ends at {lateness:.5g} "
    "times its fair time, so its utility counts [weight>=1000?{weight:.0f}|{weight:.3g}] times "
    "([weight>=1000000?the most possible|{lateness:.5g} to the power {power}])]. In this round, "
    "[needs_all=1?the job comes early, because its plan takes all {rounds_left:round} left of the window"
    "|jobs whose plans take all {rounds_left:round} left of the window come first. Then comes the largest weight over "
    "planned GPU rounds, [rank>=1000?{rank:.0f}|{rank:.3g}] for this job]"
)
_LEFT = (
    "[gpus_left=0?no GPU is|gpus_left=1?1 GPU is|{gpus_left:GPU} are] left[left_type? of type {left_type:label}], and "
    "it needs {gpus_needed}"
)
_UNITS = {"remaining_time": "s", **dict.fromkeys(("gpus_left", "left_type", "gpus_needed"), "GPUs")}

MARKET_PLANNED = ReasonKind(
    "market-planned",
    f"The plan for this window gives the job {{rounds:more round}}, and this round is one of them. {_DUE}. "
    f"At its turn, {_LEFT}.",
    _UNITS,
    "A job runs in a round of the plan.",
)
MARKET_SPARE = ReasonKind(
    "market-spare",
    "The plan gives the job no more round in this window. The job takes GPUs that the planned jobs leave, after jobs "
    f"that are expected to train longer than {{remaining_time:clock}}. At its turn, {_LEFT}.",
    _UNITS,
    "A job runs on GPUs that the plan leaves over.",
)
MARKET_LATER = ReasonKind(
    "market-later",
    f"[rounds=0?The plan gives the job no more round in this window, and too few GPUs are left in this round"
    "|The plan for this window gives the job {rounds:more round}, but in this round other jobs come first]. "
    f"[rounds>0?{_DUE}|It is expected to train for another {{remaining_time:clock}}]. At its turn, {_LEFT}.",
    _UNITS,
    "A job waits for a later round of the plan.",
)


SUBMISSION, TIME_ZERO = "submission", "time-zero"  # values of the setting `times_since`

MOST_WEIGHT = 1e6  # largest weight of a late job, so that the solver's numbers stay in range


@takes_settings("policy")
@dataclass
class Shockwave(Policy):
    """Gang-schedule jobs by a market over a window of rounds, so that no job is late by its estimated fair completion.

    Parameters
    ----------
    window
        Rounds of a plan.
    resolve
        Rounds after which the policy plans again, even if no job has arrived or ended.
    weight_of_longest
        Weight of a second of the longest remaining time against mean utility, k ≥ 0 [1/s].
    exponent
        Power of the lateness of a job that weights its utility, λ.
    most_unfairness
        Expected finish-time fairness above which a job is late: its expected time until its end, over that time on an
        equal share of the GPUs.
    times_since
        Start of both times of this ratio: "submission", as in the paper, or "time-zero", as in the published code. From
        time zero the ratio tends to 1 late in a workload, and the schedule depends on where time zero is.

    Source: Zheng et al., Shockwave (NSDI '23), with counts instead of binaries and HiGHS instead of Gurobi.
    """

    window: PositiveInt = 20
    resolve: PositiveInt = 8
    weight_of_longest: NonNegativeFloat = 1e-3
    exponent: PositiveFloat = 12.0
    most_unfairness: PositiveFloat = 1.0
    times_since: Annotated[str, OneOf(SUBMISSION, TIME_ZERO)] = SUBMISSION
    traits: ClassVar[Traits] = Traits(slices_time=True)
    _targets: dict[JobId, FairTime] = field(default_factory=dict, init=False, repr=False)
    # Weight of each job in the present plan, and the unfairness and the power of which the weight is made.
    _weights: dict[JobId, float] = field(default_factory=dict, init=False, repr=False)
    _lateness: dict[JobId, tuple[float, float]] = field(default_factory=dict, init=False, repr=False)
    # Rounds of each job that are left in the present plan, and those of the window.
    _planned: dict[JobId, int] = field(default_factory=dict, init=False, repr=False)
    _rounds_left: int = field(default=0, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Make a new plan if necessary, and run the next round of the plan."""
        if not view.jobs:
            return Decision({})
        jobs = {job.job_id: job for job in view.jobs}
        prospects = {name: prospect(view, job) for name, job in jobs.items()}
        has_changed = view.changes.jobs_or_nodes
        self._estimate(view, prospects, has_changed=has_changed)
        if has_changed or self._rounds_left <= self.window - self.resolve:
            self._plan(view, prospects)
        order = sorted(jobs.values(), key=self._rank)
        by_length = sorted(order, key=lambda job: -sort_key(prospects[job.job_id].left, view.time))
        planned = [job for job in order if self._planned[job.job_id]]
        running, left_at_turn = _fitting(view, [*planned, *(job for job in by_length if not self._planned[job.job_id])])
        rounds = self._planned
        weights = self._weights
        lateness = self._lateness
        rounds_left = self._rounds_left

        def reason(name: JobId) -> Reason:
            """Return the planned rounds of a job."""
            kind = MARKET_LATER
            if name in running:
                kind = MARKET_PLANNED if rounds[name] else MARKET_SPARE
            gpu_type, gpus_left = left_at_turn[name]
            numbers = {
                "rounds": rounds[name],
                "remaining_time": prospects[name].left,
                "weight": weights[name],
                "lateness": lateness[name][0],
                "power": lateness[name][1],
                "rank": weights[name] / (max(rounds[name], 1) * jobs[name].num_replicas),
                "needs_all": float(rounds[name] >= rounds_left),
                "rounds_left": rounds_left,
                "gpus_needed": jobs[name].num_replicas,
                "gpus_left": gpus_left,
            }
            if len(view.types) > 1:
                numbers[f"left_type {gpu_type}"] = gpus_left
            return Reason(kind, numbers)

        self._rounds_left -= 1
        self._planned = {name: max(rounds_left - (name in running), 0) for name, rounds_left in rounds.items()}
        return Decision(place_gangs(view, running, jobs), explain=lambda asked: {name: reason(name) for name in asked})

    def _estimate(self, view: ClusterView, prospects: Mapping[JobId, Prospect], *, has_changed: bool) -> None:
        """Estimate the time from submission to completion of each job on an equal share of the GPUs."""
        share = min(1.0, view.num_gpus / len(prospects))
        self._targets = {name: self._targets.get(name) or FairTime() for name in prospects}
        if has_changed:
            for job in view.jobs:
                prospect = prospects[job.job_id]
                self._targets[job.job_id].newest = (prospect.spent + prospect.left) / share
        for target in self._targets.values():
            target.keep_for_a_round()

    def _plan(self, view: ClusterView, prospects: Mapping[JobId, Prospect]) -> None:
        """Plan the next window: fairly if possible, otherwise with weights by lateness."""
        jobs = list(prospects.values())
        share = min(1.0, view.num_gpus / len(prospects))
        window = Window(self.window, view.round_interval or 60.0, view.num_gpus, self.weight_of_longest)
        end_of_window = view.time + window.rounds * window.length
        spare = []
        expected_unfairness = []
        for job in view.jobs:
            counted_from = job.submit_time if self.times_since == SUBMISSION else 0.0
            fair_time = self._targets[job.job_id].time + (job.submit_time - counted_from)
            expected_time = prospects[job.job_id].left / share + (view.time - counted_from)
            spare.append((fair_time * self.most_unfairness + (counted_from - end_of_window)) * share)
            expected_unfairness.append(expected_time / fair_time)
        least_rounds = fair_rounds(jobs, spare, window)
        weights = [1.0] * len(jobs)
        if least_rounds is None:
            least_rounds = [0] * len(jobs)
            weights = [self._weight(rho, job, window) for rho, job in zip(expected_unfairness, jobs, strict=True)]
        powers = [self._power(job, window) for job in jobs]
        self._lateness = dict(zip(prospects, zip(expected_unfairness, powers, strict=True), strict=True))
        self._weights = dict(zip(prospects, weights, strict=True))
        self._planned = dict(zip(prospects, planned_rounds(jobs, weights, least_rounds, window), strict=True))
        self._rounds_left = self.window

    def _weight(self, rho: float, job: Prospect, window: Window) -> float:
        """Return the weight of a job by its expected fairness ρ, ≥ 1. Jobs that end in a round weigh most."""
        power = self._power(job, window)
        # By logarithms, because powers of 100 may be too large for a number.
        exponent = min(max(power * log(rho), 0.0), log(MOST_WEIGHT)) if rho > self.most_unfairness else 0.0
        return min(exp(exponent), MOST_WEIGHT)

    def _power(self, job: Prospect, window: Window) -> float:
        """Return the power of the unfairness of a job. Jobs that end in a round have the largest."""
        return self.exponent if has_come(window.length, job.left) else 100.0

    def _rank(self, job: JobView) -> tuple[bool, float, bool]:
        """Return the sort key of a job: jobs that need all rounds first, then by weight over GPU rounds."""
        rounds = self._planned[job.job_id]
        priority = self._weights[job.job_id] / (max(rounds, 1) * job.num_replicas)
        return rounds < self._rounds_left, -sort_key(priority), not job.placement


def _fitting(view: ClusterView, order: Sequence[JobView]) -> tuple[dict[JobId, str], dict[JobId, tuple[str, int]]]:
    """Return the GPU types of the jobs that fit, in order. Each job takes the first type that it can use and fits.

    The second value is the type that each job takes, or otherwise the one with the most GPUs left at its turn, with
    these GPUs.
    """
    free = dict(gpus_by_type(view))
    running = dict[str, str]()
    left_at_turn: dict[JobId, tuple[str, int]] = {}
    for job in order:
        usable = [name for name in free if name in job.speeds]
        types = [name for name in usable if free[name] >= job.num_replicas]
        shown = types[0] if types else max(usable or free, key=free.__getitem__)
        left_at_turn[job.job_id] = (shown, free[shown] if usable else 0)
        if types:
            running[job.job_id] = types[0]
            free[types[0]] -= job.num_replicas
    return running, left_at_turn
