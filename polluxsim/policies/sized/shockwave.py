"""Shockwave: a market over the rounds of a window, by the expected future of jobs.

The policy decides in how many rounds of the next window each job runs. An integer programme (`planned_rounds`)
maximises a sum of logarithms, which is the outcome of a market in which all jobs have the same budget. In each round
the policy then starts the planned jobs that fit, and fills the other GPUs with jobs that have no planned round left.

Invariants: a job holds all GPUs that its user requests or none. A plan of `fair_rounds`, if there is one, makes no job
late by its estimate, so all weights are then 1.

Trap: the programme counts rounds and does not assign them. Not all counts can be packed into rounds, so a job can get
fewer rounds than planned.

Source: Zheng et al., "Shockwave" (NSDI '23), §4 and §5, and its published code.
"""

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
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.sized.reason_kinds import MARKET_LATER, MARKET_PLANNED, MARKET_SPARE
from polluxsim.policies.tools.free_gpus import place_gangs
from polluxsim.policies.tools.solver_output import without_chatter
from polluxsim.policies.typed.linear_programmes import gpus_by_type

# Shares of the epochs between which straight lines approximate the logarithm, and the share whose logarithm stands for
# that of 0. Both as in the published code.
BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LOG_OF_NOTHING = 1e-6

MIP_GAP = 1e-3  # relative optimality gap of the solver, as in the published code

SUBMISSION = "submission"  # values of the setting `times_since`
TIME_ZERO = "time-zero"

MOST_WEIGHT = 1e6  # largest weight of a late job, so that the solver's numbers stay in range

POWER_OF_LAST_ROUND = 100.0  # power of the unfairness of a job that can end within one round, as in the published code

ROUNDING_OF_ROUNDS = 1e-9  # smaller differences, in rounds, are rounding errors


class Prospect(NamedTuple):
    """The expected course of a job."""

    width: int  # GPUs of the gang
    epochs: int  # number of epochs
    done: int  # number of completed epochs, fewer than all
    spent: float  # planned time of the completed epochs [s]
    epoch_time: float  # mean planned time of the completed epochs and the present one [s]
    remaining_time: float  # expected remaining time of training, at least 1 s [s]


class Window(NamedTuple):
    """A plan for several rounds."""

    rounds: int  # number of rounds
    length: float  # length of a round [s]
    gpus: int  # GPUs of the cluster
    weight_of_longest: float  # weight of a second of the longest remaining time against mean utility [1/s]


@dataclass
class FairTime:
    """Fair time of a job from its submission to its end, by all estimates and, for a tenth, by the newest one.

    An estimate is valid from the round in which it is made to the round of the next estimate. The estimates are
    weighted by their rounds of validity.
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


def prospect(view: ClusterView, job: JobView) -> Prospect:
    """Return the expected epochs of a job, by its plan or, without a plan, by its true remaining time.

    A job without a plan is one epoch that begins now and lasts until its end.
    """
    plan = job.plan
    if plan is None:
        remaining_time = max(job.oracle.time_left(job.num_replicas), 1.0)
        return Prospect(
            job.num_replicas, epochs=1, done=0, spent=0.0, epoch_time=remaining_time, remaining_time=remaining_time
        )
    epochs = len(plan.expected_sizes)
    # Whole seconds, one at least, as in the published code.
    times = [max(round(plan.expected_time(size)), 1) for size in plan.expected_sizes]
    # Changes of the batch size skip parts of epochs, so a job can do the steps of all its epochs before its end.
    done = min(int(job.oracle.progress / plan.steps(plan.sizes[0])), epochs - 1)
    observed_times = times[: done + 1]
    return Prospect(
        job.num_replicas,
        epochs=epochs,
        done=done,
        spent=float(sum(times[:done])),
        epoch_time=sum(observed_times) / len(observed_times),
        remaining_time=max(time_left(plan.expected_sizes, times, done), 1.0),
    )


def time_left(sizes: Sequence[int], times: Sequence[float], done: int) -> float:
    """Return the expected time of the remaining epochs if batch sizes are drawn by unknown shares [s].

    The shares have a Dirichlet distribution: before any epoch is seen, all planned sizes are equally likely. `sizes`
    and `times` are the planned values of each epoch [examples; s]. The job has seen the `done` completed epochs and the
    present one. Source: Zheng et al., Shockwave (NSDI '23), §5.

    >>> time_left([32, 32, 32, 32], [10.0, 10.0, 10.0, 10.0], 1)
    20.0
    """
    epochs = len(sizes)
    planned = Counter(sizes)
    observed = Counter(sizes[: done + 1])
    prior_weight = epochs / len(planned)
    scale = epochs / sum(prior_weight + observed[size] for size in planned)
    remaining_epochs: list[float] = []  # expected number by size
    remaining_times: list[float] = []  # expected time of these epochs by size [s]
    for size in planned:
        expected_epochs = (prior_weight + observed[size]) * scale
        # One less for each epoch seen, down to 0.
        remaining = expected_epochs - min(observed[size], floor(expected_epochs))
        times_of_size = [time for size_of_epoch, time in zip(sizes, times, strict=True) if size_of_epoch == size]
        mean_time = sum(times_of_size) / planned[size]
        remaining_epochs.append(remaining)
        remaining_times.append(remaining * mean_time)
    # The expected numbers can add up to more than the true number, because none of them is below 0.
    true_remaining = epochs - done
    return sum(remaining_times) * true_remaining / max(floor(sum(remaining_epochs) + 1), true_remaining)


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
    # The unknowns of all jobs: rounds n, epochs e, utilities u, and rests after the window [rounds]. The last unknown
    # is the longest rest. `n[i] @ unknowns` is the n of job i, and likewise for the other matrices.
    num_unknowns = 4 * count + 1
    n = np.eye(count, num_unknowns)
    e = np.eye(count, num_unknowns, k=count)
    u = np.eye(count, num_unknowns, k=2 * count)
    rests = np.eye(count, num_unknowns, k=3 * count)
    longest = np.eye(1, num_unknowns, k=4 * count)
    # `sort_key` removes differences by rounding, which the solver would enlarge.
    rounds_of_epoch = np.array([[sort_key(job.epoch_time / window.length)] for job in jobs])
    epochs = np.array([job.epochs for job in jobs])
    done = np.array([sort_key(job.done) for job in jobs])
    rounds_left = np.array([sort_key(job.remaining_time / window.length) for job in jobs])
    widths = [job.width for job in jobs]
    # Each row times the unknowns is at most its limit.
    rows = [
        rounds_of_epoch * e - n,  # a job trains only in its rounds
        -rounds_of_epoch * e - rests,  # the rest is at least the rounds left without those of the window
        rests - longest,
        np.array([widths]) @ n,  # GPU rounds of all jobs
    ]
    limits = [np.zeros(count), -rounds_left, np.zeros(count), np.array([float(window.rounds * window.gpus)])]
    # The utility is below each of the lines, because the logarithm is concave.
    for slope, intercept in _lines():
        rows.append(u - slope * e / epochs[:, None])
        limits.append(intercept + slope * done / epochs)
    for width, gangs in _gangs_at_once(widths, window.gpus):
        is_this_wide = np.array([[float(width_of_job >= width) for width_of_job in widths]])
        rows.append(is_this_wide @ n)
        limits.append(np.array([float(window.rounds * gangs)]))
    welfare = np.array([sort_key(weight) for weight in weights]) @ u / (count * window.rounds)
    lower = np.concatenate([least, np.zeros(count), np.full(count, -np.inf), np.zeros(count + 1)])
    upper = np.concatenate([np.full(count, float(window.rounds)), epochs - done, np.full(2 * count + 1, np.inf)])
    is_integer = np.arange(num_unknowns) < count  # only the rounds n
    with without_chatter():
        solution = milp(
            sort_key(window.weight_of_longest * window.length) * longest[0] - welfare,
            integrality=is_integer,
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
    lines: list[tuple[float, float]] = []
    for start, end in pairwise(BASES):
        log_at_start = log(start or LOG_OF_NOTHING)
        slope = (log(end) - log_at_start) / (end - start)
        lines.append((slope, log_at_start - slope * start))
    return lines


def fair_rounds(jobs: Sequence[Prospect], spare: Sequence[float], window: Window) -> list[int] | None:
    """Return the rounds that each job needs so that at most `spare` time of training remains after the window [s].

    Return None if the jobs do not fit into the window, or a job is late whatever it gets.
    """
    needed: list[int] = []
    gpu_rounds = 0
    for job, spare_time in zip(jobs, spare, strict=True):
        if spare_time < -ROUNDING_OF_ROUNDS * window.length:
            return None
        rounds = max(ceil((job.remaining_time - spare_time) / window.length - ROUNDING_OF_ROUNDS), 0)
        if rounds > window.rounds:
            return None
        needed.append(rounds)
        gpu_rounds += job.width * rounds
    if gpu_rounds > window.rounds * window.gpus:
        return None
    for width, gangs in _gangs_at_once([job.width for job in jobs], window.gpus):
        rounds_of_wide_jobs = sum(rounds for job, rounds in zip(jobs, needed, strict=True) if job.width >= width)
        if rounds_of_wide_jobs > window.rounds * gangs:
            return None
    return needed


class MarketTurn(NamedTuple):
    """What a job meets in a round when its turn comes."""

    gpu_type: str  # type that the job takes; if it does not run, the type with the most GPUs left that it can use
    gpus_left: int  # GPUs of this type that earlier jobs leave; 0 if the job can use no type
    runs: bool  # whether the job gets GPUs


@dataclass(frozen=True)
class MarketRound:
    """A round of a plan, as the reasons of its jobs state it."""

    view: ClusterView
    prospects: Mapping[JobId, Prospect]
    order: Sequence[JobView]
    turns: Mapping[JobId, MarketTurn]
    # Rounds of each job that are left in the plan before this round, its weight, and its unfairness with the power.
    planned: Mapping[JobId, int]
    weights: Mapping[JobId, float]
    lateness: Mapping[JobId, tuple[float, float]]
    rounds_left: int  # rounds of the window before this round

    def explain(self, asked: Sequence[JobId]) -> dict[JobId, Reason]:
        """Return the reasons of some jobs."""
        wanted = set(asked)
        reasons: dict[JobId, Reason] = {}
        ahead: JobView | None = None
        for job in self.order:
            if job.job_id in wanted:
                reasons[job.job_id] = self._reason(job, ahead)
            if self.turns[job.job_id].runs:
                ahead = job
        return reasons

    def _rank(self, job: JobView) -> float:
        """Return the weight of a job over its planned GPU rounds."""
        return self.weights[job.job_id] / (max(self.planned[job.job_id], 1) * job.num_replicas)

    def _reason(self, job: JobView, ahead: JobView | None) -> Reason:
        """Return the planned rounds of a job. `ahead` is the nearest job ahead that gets GPUs in this round."""
        name = job.job_id
        gpu_type, gpus_left, runs = self.turns[name]
        rounds = self.planned[name]
        if not runs:
            kind = MARKET_LATER
        elif rounds:
            kind = MARKET_PLANNED
        else:
            kind = MARKET_SPARE
        expected_unfairness, power = self.lateness[name]
        remaining_time = self.prospects[name].remaining_time
        numbers = {
            "rounds": rounds,
            "remaining_time": remaining_time,
            "rounds_needed": ceil(remaining_time / _round_length(self.view) - ROUNDING_OF_ROUNDS),
            "weight": self.weights[name],
            "lateness": expected_unfairness,
            "power": power,
            "rank": self._rank(job),
            "needs_all": float(rounds >= self.rounds_left),
            "rounds_left": self.rounds_left,
            "gpus_needed": job.num_replicas,
            "gpus_left": gpus_left,
        }
        if len(self.view.types) > 1:
            numbers[f"left_type {gpu_type}"] = gpus_left
        if runs or ahead is None:
            return Reason(kind, numbers)
        numbers["ahead_rank"] = self._rank(ahead)
        numbers["ahead_needs_all"] = float(self.planned[ahead.job_id] >= self.rounds_left)
        return Reason(kind, numbers, (ahead.job_id,))


def _round_length(view: ClusterView) -> float:
    """Return the length of a round [s]. A policy that is asked at events only has none, so a minute stands for it."""
    return view.round_interval or 60.0


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
    # Fair time of each job.
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
        by_rank = sorted(jobs.values(), key=self._rank)
        planned = [job for job in by_rank if self._planned[job.job_id]]
        # Jobs without a planned round only fill GPUs, the longest first, because it decides when the workload ends.
        spare = [job for job in by_rank if not self._planned[job.job_id]]
        spare.sort(key=lambda job: -sort_key(prospects[job.job_id].remaining_time, view.time))
        order = [*planned, *spare]
        turns = _turns(view, order)
        running = {name: turn.gpu_type for name, turn in turns.items() if turn.runs}
        # The mappings are replaced, not changed, by later rounds, so the reasons can be asked for later.
        of_round = MarketRound(
            view, prospects, order, turns, self._planned, self._weights, self._lateness, self._rounds_left
        )
        self._rounds_left -= 1
        self._planned = {name: max(count - (name in running), 0) for name, count in self._planned.items()}
        return Decision(place_gangs(view, running, jobs), explain=of_round.explain)

    def _estimate(self, view: ClusterView, prospects: Mapping[JobId, Prospect], *, has_changed: bool) -> None:
        """Estimate the time from submission to completion of each job on an equal share of the GPUs.

        A new estimate is made only if jobs or nodes have changed. Otherwise the last one is valid for one more round.
        """
        share = min(1.0, view.num_gpus / len(prospects))
        self._targets = {name: self._targets.get(name) or FairTime() for name in prospects}
        if has_changed:
            for job in view.jobs:
                prospect = prospects[job.job_id]
                self._targets[job.job_id].newest = (prospect.spent + prospect.remaining_time) / share
        for target in self._targets.values():
            target.keep_for_a_round()

    def _plan(self, view: ClusterView, prospects: Mapping[JobId, Prospect]) -> None:
        """Plan the next window: fairly if possible, otherwise with weights by lateness."""
        jobs = list(prospects.values())
        share = min(1.0, view.num_gpus / len(prospects))
        window = Window(self.window, _round_length(view), view.num_gpus, self.weight_of_longest)
        end_of_window = view.time + window.rounds * window.length
        spare = []
        expected_unfairness = []
        for job in view.jobs:
            counted_from = job.submit_time if self.times_since == SUBMISSION else 0.0
            fair_time = self._targets[job.job_id].time + (job.submit_time - counted_from)
            expected_time = prospects[job.job_id].remaining_time / share + (view.time - counted_from)
            # Time of training on the share between the end of the window and the latest end that is not late.
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
        if rho <= self.most_unfairness:
            return 1.0
        # By logarithms, because powers of 100 may be too large for a number.
        log_of_weight = max(self._power(job, window) * log(rho), 0.0)
        # Rounding can lift the exponential of the largest logarithm above the largest weight.
        return min(exp(min(log_of_weight, log(MOST_WEIGHT))), MOST_WEIGHT)

    def _power(self, job: Prospect, window: Window) -> float:
        """Return the power of the unfairness of a job. Jobs that end in a round have the largest."""
        lasts_a_round = has_come(window.length, job.remaining_time)
        return self.exponent if lasts_a_round else POWER_OF_LAST_ROUND

    def _rank(self, job: JobView) -> tuple[bool, float, bool]:
        """Return the sort key of a job: jobs that need all rounds first, then by weight over GPU rounds.

        Of equal jobs, those with GPUs come first, which saves restarts.
        """
        rounds = self._planned[job.job_id]
        can_wait = rounds < self._rounds_left
        priority = self._weights[job.job_id] / (max(rounds, 1) * job.num_replicas)
        return can_wait, -sort_key(priority), not job.placement


def _turns(view: ClusterView, order: Sequence[JobView]) -> dict[JobId, MarketTurn]:
    """Return the turn of each job, in order. Each job takes the first GPU type that it can use and on which it fits."""
    free = dict(gpus_by_type(view))
    turns: dict[JobId, MarketTurn] = {}
    for job in order:
        usable = [gpu_type for gpu_type in free if gpu_type in job.speeds]
        fitting = [gpu_type for gpu_type in usable if free[gpu_type] >= job.num_replicas]
        if fitting:
            gpu_type = fitting[0]
            turns[job.job_id] = MarketTurn(gpu_type, free[gpu_type], runs=True)
            free[gpu_type] -= job.num_replicas
        elif usable:
            largest = max(usable, key=free.__getitem__)
            turns[job.job_id] = MarketTurn(largest, free[largest], runs=False)
        else:
            # The types that are up are of no use to the job. The reason still needs the name of one.
            largest = max(free, key=free.__getitem__)
            turns[job.job_id] = MarketTurn(largest, 0, runs=False)
    return turns
