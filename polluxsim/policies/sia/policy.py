"""The Sia policy: values configurations, solves the integer programme, and places the chosen configurations.

Source: Jayaram Subramanya et al., "Sia" (SOSP '23), §3. In each round:

1. `Matrix.fill` values each configuration (GPUs of one type) for each job. The worth of another configuration than the
   present one is multiplied by the restart factor of the job.
2. `Programme` chooses at most one configuration for each job, so that the sum of costs is as small as possible and the
   GPUs of each type suffice.
3. `place` finds nodes for the chosen configurations of each type.

Arrays by job have J rows, arrays by configuration have C columns, and there are T types.

Invariants: a job that is still restarting keeps its configuration; equal programmes get equal solutions, because the
last solution is used again.

The trap: costs are relative to a job without a configuration, so that a cost below 0 is a saving.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.values import OneOf, OtherThan, Range
from polluxsim.common.written import takes_settings
from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.pollux.problem import restart_factor
from polluxsim.policies.sia.configurations import GpuConfiguration, Matrix, configurations, place, present_configuration
from polluxsim.policies.sia.reason_kinds import (
    BEST_CONFIGURATION,
    LOST_CONFIGURATION,
    NO_CONFIGURATION,
    RESTART_NOT_WORTH,
)
from polluxsim.policies.tools.gpu_counts import fewest_gpus
from polluxsim.policies.tools.solver_output import without_chatter

# Largest cost of a configuration. Source: the published code of Sia (SOSP '23).
LARGEST_COST = 3000.0

# Beyond this logarithm a cost exceeds the largest one, and its power may be too large for a float.
LARGEST_LOG = log(10 * LARGEST_COST)

# Relative optimality gap of the solver. Source: the published code of Sia.
GAP = 1e-4

# Largest distance from an integer. Source: the default of HiGHS.
INTEGRALITY = 1e-6

# Sources of the goodput of a job on a type where it never ran.
BOOTSTRAPS = ("ratio", "none", "oracle")

# Largest number of other jobs that a reason names.
MOST_HOLDERS = 3


@dataclass(frozen=True)
class Programme:
    """Choose configurations with the least sum of costs; a job without a configuration also has a cost."""

    # Worth of each job in each configuration, restarts counted, shape (J, C); NaN where the configuration is not
    # allowed.
    worths: NDArray[np.float64]
    gpus: NDArray[np.int64]  # GPUs of each configuration, shape (C,)
    types: NDArray[np.int64]  # index of the type of each configuration, shape (C,)
    capacities: NDArray[np.int64]  # GPUs of each type, shape (T,)
    kept: NDArray[np.int64]  # configuration that a job must keep, −1 if it may change, shape (J,)
    power: float  # the exponent p: the sum of worth^p is minimised if p < 0, else maximised
    waiting_cost: float  # cost of a job without GPUs; one replica of the slowest configuration costs 1
    # Share of the worth that a restart leaves, shape (J, C), 1 where no restart is needed. Only reasons need it.
    factors: NDArray[np.float64] | None = None

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """Return the cost of each configuration relative to no configuration, shape (J, C).

        NaN where the configuration is not allowed.

        Source: Sia (SOSP '23), §3.4, eq. 1; rounding and limit by its published code.
        """
        costs = np.full(self.worths.shape, np.nan)
        allowed = np.nonzero(self.worths > 0)
        terms = []
        # One by one, because the powers of NumPy depend on the processor.
        for worth_of_choice in self.worths[allowed].tolist():
            term = LARGEST_COST
            if self.power * log(worth_of_choice) < LARGEST_LOG:
                term = min(round(worth_of_choice**self.power, 2), LARGEST_COST)
            terms.append(term)
        # For p > 0 the sum of worth^p is maximised, so its terms are negative costs.
        sign = 1 if self.power < 0 else -1
        costs[allowed] = np.array(terms) * sign - self.waiting_cost
        return costs

    def is_like(self, other: Programme) -> bool:
        """Return whether another programme of this policy has equal costs and limits, and so an equal solution."""
        for name in ("costs", "kept", "gpus", "types", "capacities"):
            if not np.array_equal(getattr(self, name), getattr(other, name), equal_nan=True):
                return False
        return True

    def _worth_trying(self) -> NDArray[np.bool_]:
        """Return the configurations that an optimum can have, shape (J, C): cheaper than all smaller ones."""
        needed = np.zeros(self.costs.shape, dtype=bool)
        for gpu_type in range(len(self.capacities)):
            of_type = np.flatnonzero(self.types == gpu_type)
            of_type = of_type[np.argsort(self.gpus[of_type], kind="stable")]
            # The cost 0 of no configuration comes first, so that a configuration with a cost above it is not tried.
            costs_from_none = np.insert(self.costs[:, of_type], 0, 0.0, axis=1)
            lowest_costs = np.fmin.accumulate(costs_from_none, axis=1)
            needed[:, of_type] = self.costs[:, of_type] < lowest_costs[:, :-1]
        keeping_jobs = np.flatnonzero(self.kept >= 0)
        needed[keeping_jobs, self.kept[keeping_jobs]] = True
        return needed & ~np.isnan(self.costs)

    def value(self, chosen: NDArray[np.int64]) -> float:
        """Return the sum of the costs of a choice: the configuration of each job, shape (J,), −1 for none."""
        jobs = np.flatnonzero(chosen >= 0)
        return float(self.costs[jobs, chosen[jobs]].sum()) + self.waiting_cost * len(chosen)

    def solve(self) -> tuple[NDArray[np.int64], float]:
        """Return the configuration of each job, shape (J,), −1 for none, and a lower bound of the sum of costs.

        Raise a `RuntimeError` if HiGHS, through SciPy, finds no solution.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (takes a while to load)
        from scipy.sparse import csr_array, vstack  # noqa: PLC0415

        costs = self.costs
        # The job and the configuration of each variable, which is 1 if the job gets the configuration.
        jobs, columns = np.nonzero(self._worth_trying())
        num_jobs = len(costs)
        num_types = len(self.capacities)
        size = len(jobs)
        chosen = np.full(num_jobs, -1)
        cost_if_all_wait = self.waiting_cost * num_jobs
        if not size:
            return chosen, cost_if_all_wait
        indices = np.arange(size)
        # The rows of the limits: at most one configuration for each job, and at most all GPUs of each type.
        one_for_job = csr_array((np.ones(size), (jobs, indices)), (num_jobs, size))
        gpus_by_type = csr_array((self.gpus[columns].astype(float), (self.types[columns], indices)), (num_types, size))
        upper_limits = np.append(np.ones(num_jobs), self.capacities)
        limits = LinearConstraint(vstack([one_for_job, gpus_by_type]), -np.inf, upper_limits)
        is_kept = (self.kept[jobs] == columns).astype(float)
        # Solve the relaxed programme first: in half of the rounds its solution is integer, in a tenth of the time.
        for is_integer in (0, 1):
            with without_chatter() if is_integer else nullcontext():
                solution = milp(
                    costs[jobs, columns],
                    integrality=np.full(size, is_integer),
                    bounds=Bounds(is_kept, 1),
                    constraints=limits,
                    options={"mip_rel_gap": GAP},
                )
            if solution.x is None:
                raise RuntimeError(f"HiGHS found no solution: {solution.message}")
            if np.abs(solution.x - solution.x.round()).max() < INTEGRALITY:
                break
        taken = np.flatnonzero(solution.x > 0.5)
        chosen[jobs[taken]] = columns[taken]
        # The optimum of the relaxed programme is a lower bound itself.
        bound = solution.mip_dual_bound if is_integer else solution.fun
        return chosen, bound + cost_if_all_wait


@takes_settings("policy")
@dataclass
class Sia(Policy):
    """Goodput-optimised allocation of GPUs of several types.

    Parameters
    ----------
    p
        Fairness power, not 0: the sum of all jobs' worth^p is minimised if p < 0, and maximised if p > 0.
    waiting_cost
        Cost λ of a job without GPUs, above 1, in units of the cost of one GPU of its slowest type.
    bootstrap
        Source of the goodput on a type that a job never ran on. `ratio`: the ratio of speeds on one GPU; `none`: the
        goodput is unknown; `oracle`: the job's profile, on every type from the start.

    Source: Sia (SOSP '23), §3.
    """

    p: Annotated[float, OtherThan(0)] = -0.5
    waiting_cost: Annotated[float, Range(above=1)] = 1.1
    bootstrap: Annotated[str, OneOf(*BOOTSTRAPS)] = "ratio"
    _matrix: Matrix = field(init=False, repr=False)
    _last: tuple[Programme, tuple[NDArray[np.int64], float]] | None = field(default=None, init=False, repr=False)
    # Present GPUs of each job, and the time since which the job has them [s].
    _since: dict[JobId, tuple[Placement, float]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._matrix = Matrix(guesses=self.bootstrap != "none")

    @property
    def traits(self) -> Traits:
        """Return the traits of the policy."""
        return Traits(adaptive=True, known_throughput=self.bootstrap == "oracle")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the optimal allocation. Its fitness is the saving over an allocation without GPUs."""
        jobs = list(view.jobs)
        choices = configurations(view, {_smallest_count(job) for job in jobs})
        programme = self._programme(view, jobs, choices)
        chosen, bound = self._solved(programme)
        cost_if_all_wait = self.waiting_cost * len(jobs)
        fitness = cost_if_all_wait - programme.value(chosen)
        placements = _placements(view, jobs, choices, chosen)
        self._record_starts(placements, view.time)
        rows = {job.job_id: row for row, job in enumerate(jobs)}

        def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
            reasons: dict[JobId, Reason] = {}
            for job_id in asked:
                reason = _reason(programme, jobs, choices, chosen, rows[job_id])
                if self.bootstrap != "oracle":
                    # The agents of jobs, which do not know their throughput, let them grow by doubling only.
                    reason = reason._replace(numbers={**reason.numbers, "doubles": 1.0})
                reasons[job_id] = reason
            return reasons

        upper_bound = None
        # The engine accepts only upper bounds above 0.
        if fitness > 0:
            upper_bound = max(fitness, cost_if_all_wait - bound)
        return Decision(placements, fitness=fitness, upper_bound=upper_bound, explain=explain)

    def _record_starts(self, placements: Mapping[JobId, Placement], now: float) -> None:
        """Record the time since which each job has its GPUs, `now` if they change [s]."""
        since: dict[JobId, tuple[Placement, float]] = {}
        for job_id, placement in placements.items():
            last_placement, start = self._since.get(job_id, ((), now))
            if placement != last_placement:
                start = now
            since[job_id] = (placement, start)
        self._since = since

    def _solved(self, programme: Programme) -> tuple[NDArray[np.int64], float]:
        """Return the solution, or the last one for the same programme."""
        if self._last is None or not programme.is_like(self._last[0]):
            self._last = programme, programme.solve()
        return self._last[1]

    def _programme(self, view: ClusterView, jobs: Sequence[JobView], known: Sequence[GpuConfiguration]) -> Programme:
        """Return the programme of a round, with the `known` configurations as its columns."""
        type_names = list(view.types)
        worths = self._matrix.fill(jobs, known)
        factors = np.ones_like(worths)
        kept = np.full(len(jobs), -1, dtype=np.int64)
        for row, job in enumerate(jobs):
            present = present_configuration(view, job, known)
            if present is None:
                continue
            factors[row] = self._restart_factor(job, view)
            factors[row, present] = 1.0
            if self._is_restarting(view, job):
                kept[row] = present
        return Programme(
            worths=worths * factors,
            gpus=np.array([configuration.gpus for configuration in known], dtype=np.int64),
            types=np.array([type_names.index(configuration.gpu_type) for configuration in known], dtype=np.int64),
            capacities=np.array([view.gpus_of(name) for name in type_names], dtype=np.int64),
            kept=kept,
            power=self.p,
            waiting_cost=self.waiting_cost,
            factors=factors,
        )

    def _is_restarting(self, view: ClusterView, job: JobView) -> bool:
        """Return whether the restart delay of a job on its present GPUs is not over."""
        since = self._since.get(job.job_id, ((), -np.inf))[1]
        return not view.has_come(since + view.delay_of(job))

    def _restart_factor(self, job: JobView, view: ClusterView) -> float:
        """Return the restart factor: the share of its worth that a job keeps after a restart.

        A job younger than its restart delay keeps its whole worth. For a gang, the attained service is compared with
        the delay, and not the age.
        """
        age = job.attained_service if job.gang_size else view.time - job.submit_time
        delay = view.delay_of(job)
        if age < delay:
            return 1.0
        return restart_factor(view.time - job.submit_time, job.num_restarts, delay)


def _placements(
    view: ClusterView, jobs: Sequence[JobView], known: Sequence[GpuConfiguration], chosen: NDArray[np.int64]
) -> dict[JobId, Placement]:
    """Return placements of jobs in their chosen configurations, shape (J,), −1 for none."""
    # For each type: the numbers of nodes and GPUs of each job, and the placements of jobs that have them already.
    wanted: dict[str, dict[JobId, tuple[int, int]]] = {name: {} for name in view.types}
    held: dict[str, dict[JobId, Placement]] = {name: {} for name in view.types}
    for job, column in zip(jobs, chosen.tolist(), strict=True):
        if column < 0:
            continue
        configuration = known[column]
        gpu_type = configuration.gpu_type
        wanted[gpu_type][job.job_id] = (configuration.nodes, configuration.gpus)
        has_it_now = present_configuration(view, job, [configuration]) is not None
        if has_it_now:
            held[gpu_type][job.job_id] = job.placement
    placements: dict[JobId, Placement] = {}
    for name in view.types:
        sizes = {node: view.gpus_per_node[node] for node in view.nodes_of(name)}
        placements |= place(sizes, wanted[name], held[name])
    return placements


def _smallest_count(job: JobView) -> int:
    """Return the smallest number of GPUs on which a job can run."""
    return job.num_replicas if job.gang_size else fewest_gpus(job)


def _reason(
    programme: Programme,
    jobs: Sequence[JobView],
    known: Sequence[GpuConfiguration],
    chosen: NDArray[np.int64],
    row: int,
) -> Reason:
    """Return the reason of the job in a row. It names jobs with GPUs of the type that it lost, the least saving first.

    The names of numbers contain configurations: `has 8 t4` is the worth of the
    chosen configuration, `best 2 a100-40` the worth of the best one, and `idle 1 t4` the worth, before the restart, of
    the best larger one that fits on idle GPUs and those of the job.
    """
    costs = programme.costs[row]
    worths = programme.worths[row]
    present = int(chosen[row])
    has_gpus = present >= 0
    if np.isnan(costs).all():
        needed_gpus = jobs[row].gang_size or fewest_gpus(jobs[row])
        gpus_up = int(programme.capacities.max(initial=0))
        return Reason(NO_CONFIGURATION, {"gpus_needed": float(needed_gpus), "gpus_up": float(gpus_up)})
    numbers: dict[str, float] = {}
    present_cost = 0.0
    if has_gpus:
        numbers[f"has {known[present]}"] = float(worths[present])
        present_cost = costs[present]
    numbers |= _numbers_of_limit(programme, jobs[row], known, costs)
    best = int(np.nanargmin(costs))
    factors = np.ones_like(worths) if programme.factors is None else programme.factors[row]
    # A restart factor is 0 if a job was restarted too often for its age.
    without_restart = np.divide(worths, factors, out=np.full_like(worths, np.nan), where=factors > 0)
    if costs[best] >= present_cost:
        best_without_restart = int(np.nanargmax(without_restart))
        rival_numbers, rivals = _rival(programme, known, chosen, row)
        rival_jobs = tuple(jobs[rival].job_id for rival in rivals)
        if has_gpus and without_restart[best_without_restart] <= worths[present]:
            return Reason(BEST_CONFIGURATION, numbers | rival_numbers, rival_jobs)
        numbers[f"best {known[best_without_restart]}"] = float(without_restart[best_without_restart])
        numbers["restart_factor"] = float(factors[best_without_restart])
        if best_without_restart == present:
            numbers["is_best"] = 1.0
        return Reason(RESTART_NOT_WORTH, numbers | rival_numbers, rival_jobs)
    numbers[f"best {known[best]}"] = float(worths[best])
    numbers["saving"] = float(present_cost - costs[best])
    # By configuration: the GPUs of its type that are idle or held by this job.
    usable_gpus = _idle(programme, np.delete(chosen, row))
    present_gpus = programme.gpus[present] if has_gpus else 0
    is_larger = programme.gpus > present_gpus
    saves_nothing = costs >= present_cost
    fitting = np.flatnonzero(is_larger & (programme.gpus <= usable_gpus) & saves_nothing)
    if len(fitting):
        idle = int(fitting[np.argmax(without_restart[fitting])])
        numbers[f"idle {known[idle]}"] = float(without_restart[idle])
        numbers["restart_factor"] = float(factors[idle])
    numbers["gpus_free"] = float(usable_gpus[best])
    if has_gpus and programme.types[present] == programme.types[best]:
        numbers["gpus_free"] -= present_gpus
    if len(programme.capacities) > 1:
        numbers[f"free_type {known[best].gpu_type}"] = numbers["gpus_free"]
    holders = _holders(programme, chosen, programme.types[best], row)
    if holders:
        first_column = chosen[holders[0]]
        numbers["holder_saving"] = -float(programme.costs[holders[0], first_column])
        numbers["holder_gpus"] = float(programme.gpus[first_column])
    return Reason(LOST_CONFIGURATION, numbers, tuple(jobs[holder].job_id for holder in holders[:MOST_HOLDERS]))


def _numbers_of_limit(
    programme: Programme, job: JobView, known: Sequence[GpuConfiguration], costs: NDArray[np.float64]
) -> dict[str, float]:
    """Return the most GPUs that a job may have and that nodes offer. `costs` are NaN where the job may not run."""
    usable = [index for index, configuration in enumerate(known) if configuration.gpu_type in job.speeds]
    return {
        "most_gpus": float(programme.gpus[~np.isnan(costs)].max()),
        "gang": float(job.gang_size is not None),
        "fewest_gpus": float(fewest_gpus(job)),
        "limit": float(max(job.max_replicas, fewest_gpus(job))),
        "largest": float(programme.gpus[usable].max(initial=0)),
    }


def _rival(
    programme: Programme, known: Sequence[GpuConfiguration], chosen: NDArray[np.int64], row: int
) -> tuple[dict[str, float], tuple[int, ...]]:
    """Return numbers of a reason, and the waiting job that would save most with the GPUs of the job in a row.

    The job in the row saves at least as much, unless it must keep its GPUs. If no waiting job could use these GPUs, it
    is the one that would save most with more GPUs of their type. No job is returned if there is none either.
    """
    present = int(chosen[row])
    if present < 0:
        return {}, ()
    numbers = {"saving": -float(programme.costs[row, present])}
    if programme.kept[row] >= 0:
        return {**numbers, "must_stay": 1.0}, ()
    waiting = np.flatnonzero(chosen < 0)
    of_type = np.flatnonzero(programme.types == programme.types[present])
    savings = np.nan_to_num(-programme.costs[np.ix_(waiting, of_type)], nan=0.0)
    is_small_enough = programme.gpus[of_type] <= programme.gpus[present]
    for columns in (np.flatnonzero(is_small_enough), np.arange(len(of_type))):
        of_columns = savings[:, columns]
        if of_columns.max(initial=0.0) > 0:
            place, column = np.unravel_index(int(of_columns.argmax()), of_columns.shape)
            rival_gpus = float(programme.gpus[of_type[columns[column]]])
            rival_saving = float(of_columns[place, column])
            numbers |= {"rival_saving": rival_saving, "rival_gpus": rival_gpus}
            if len(programme.capacities) > 1:
                numbers[f"rival_type {known[present].gpu_type}"] = rival_gpus
            return numbers, (int(waiting[place]),)
    return numbers, ()


def _holders(programme: Programme, chosen: NDArray[np.int64], gpu_type: int, row: int) -> list[int]:
    """Return the rows of the jobs other than `row` with GPUs of a type, by their savings per GPU, the least first.

    The first one would lose least by giving up its GPUs.
    """
    saving_per_gpu: dict[int, float] = {}
    for holder in np.flatnonzero(chosen >= 0).tolist():
        column = chosen[holder]
        if holder != row and programme.types[column] == gpu_type:
            saving_per_gpu[holder] = -float(programme.costs[holder, column]) / int(programme.gpus[column])
    return sorted(saving_per_gpu, key=saving_per_gpu.__getitem__)


def _idle(programme: Programme, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the idle GPUs of the type of each configuration, shape (C,)."""
    columns = chosen[chosen >= 0]
    idle = programme.capacities.copy()
    np.subtract.at(idle, programme.types[columns], programme.gpus[columns])
    return idle[programme.types]
