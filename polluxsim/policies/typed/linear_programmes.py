"""The linear programmes of shares: jobs and GPU types as arrays, and the centre of all optima.

`TypedDemand` contains what the rules of `polluxsim.policies.typed.rules` know of jobs and types. `Solver` has a method
for each kind of programme that a rule needs. The variables are the shares of jobs on the types where they can run.

Invariants: all shares of a job are at least 0, and at most 1 in sum. The jobs on a type need at most its GPUs.

Trap: optima are not unique, and the choice among them determines the schedule. The published numbers come from an
interior-point solver. Its answer is the analytic centre of the optimal face. A simplex method gives a corner of it. The
centre needs an interior, so all programmes are relaxed by `NEARLY_OPTIMAL`.

Source: Narayanan et al., "Gavel" (OSDI '20), §4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from polluxsim.hardware.placements import BatchChoice, JobId, packed
from polluxsim.models.profile import ProfileRangeError
from polluxsim.policies.contract.view import ClusterView, JobView, Oracle

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"
Flags: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]"


SOLVERS = ("centre", "vertex")
NEARLY_OPTIMAL = 1e-6  # distance of the centre from the optimum, as a share of the optimum

EXACT_UNIT = 2.0**40
"""Number of units in 1 to which the solver's ratios are rounded."""

# Newton's method ends after this number of steps, or if the decrement is this small.
MOST_STEPS = 200
SMALL_DECREMENT = 1e-9


class TypedDemand(NamedTuple):
    """Jobs in order of submission, and GPU types, as arrays. A job that can run on no type now is left out."""

    # Names of the jobs and of the types.
    jobs: Sequence[JobId]
    types: Sequence[str]
    # True speed of each job on each type, 0 where it cannot run, of shape (jobs, types) [optimiser steps/s].
    speeds: Array
    widths: Array  # GPUs of each gang, shape (jobs,)
    gpus: Array  # GPUs of each type, shape (types,)
    prices: Array  # rent of a GPU of each type, 0 if unknown, shape (types,) [$/h]
    steps_left: Array  # remaining optimiser steps of each job at its present batch size, shape (jobs,)
    ages: Array  # time since submission of each job, shape (jobs,) [s]

    @classmethod
    def of(cls, view: ClusterView) -> TypedDemand:
        """Return the demand of the jobs in a view."""
        gpus = gpus_by_type(view)
        speeds_by_type = [speeds_on(view, gpu_type) for gpu_type in gpus]
        jobs: list[JobView] = []
        rows: list[tuple[float, ...]] = []  # speeds of each of these jobs on all types
        steps: list[float] = []
        for job, speeds in zip(view.jobs, zip(*speeds_by_type, strict=True), strict=True):
            if any(speeds):
                # Of equally fast types the last by name.
                _, fastest_type = max(zip(speeds, gpus, strict=True))
                jobs.append(job)
                rows.append(speeds)
                steps.append(steps_left(view, job, fastest_type))
        return cls(
            jobs=[job.job_id for job in jobs],
            types=list(gpus),
            # Without jobs, the array still needs a column for each type.
            speeds=np.array(rows).reshape(len(jobs), len(gpus)),
            widths=np.array([float(job.num_replicas) for job in jobs]),
            gpus=np.array([float(count) for count in gpus.values()]),
            prices=np.array([float(gpu.price) for gpu in view.types.values()]),
            steps_left=np.array(steps),
            ages=np.array([view.time - job.submit_time for job in jobs]),
        )

    def named(self, shares: Array) -> dict[JobId, dict[str, float]]:
        """Return shares, of shape (jobs, types), by name, rounded to 9 digits."""
        # Shares of equal jobs differ in the last digits of the solver.
        rows = np.round(np.clip(shares, 0.0, 1.0), 9).tolist()
        by_name: dict[JobId, dict[str, float]] = {}
        for job, row in zip(self.jobs, rows, strict=True):
            by_name[job] = dict(zip(self.types, row, strict=True))
        return by_name


def gpus_by_type(view: ClusterView) -> Mapping[str, int]:
    """Return the GPUs of each type that are up."""
    return {name: view.gpus_of(name) for name in view.types}


def speeds_on(view: ClusterView, gpu_type: str) -> list[float]:
    """Return the true speed of each job on its requested GPUs of a type, 0 where it cannot run [steps/s]."""
    num_gpus = view.gpus_of(gpu_type)
    node_size = _node_size(view, gpu_type)
    speeds: list[float] = []
    for job in view.jobs:
        has_enough_gpus = job.num_replicas <= num_gpus
        speeds.append(_speed(job, gpu_type, node_size) if has_enough_gpus else 0.0)
    return speeds


def _speed(job: JobView, gpu_type: str, node_size: int) -> float:
    """Return the true speed of a job on nodes of a size, 0 where it cannot run [steps/s]."""
    if gpu_type not in job.speeds:
        return 0.0
    try:
        oracle = job.oracle.on(gpu_type)
        shape = packed(job.num_replicas, node_size)
        return 1 / oracle.optimiser_step_time(shape, _batch_choice(job, oracle))
    except ProfileRangeError:  # the profile does not know this number of GPUs, or the batch does not fit in memory
        return 0.0


def steps_left(view: ClusterView, job: JobView, gpu_type: str) -> float:
    """Return the remaining optimiser steps of a job on a GPU type, at its present batch size."""
    oracle = job.oracle.on(gpu_type)
    shape = packed(job.num_replicas, _node_size(view, gpu_type))
    choice = _batch_choice(job, oracle)
    return oracle.remaining_time(shape, choice) / oracle.optimiser_step_time(shape, choice)


def _batch_choice(job: JobView, oracle: Oracle) -> BatchChoice:
    """Return the batch of a job on the GPU type of an oracle.

    A job with a plan has the batch size of its plan, also on a type on which this batch size does not fit. Its speed
    there is 0, as in Gavel's simulator, although the job could train with a smaller batch.
    """
    if job.plan is None:
        return oracle.batch_choice
    return job.oracle.batch_choice


def _node_size(view: ClusterView, gpu_type: str) -> int:
    """Return the GPUs of the largest node of a type that is up, or `view.node_size` if all nodes of it are down."""
    return max(view.gpus_per_node[node] for node in view.nodes_of(gpu_type)) or view.node_size


class Polytope(NamedTuple):
    """All points x with `rows` · x ≤ `limits`."""

    rows: Array  # shape (constraints, variables)
    limits: Array  # shape (constraints,)

    def within(self, rows: Array, limits: Array) -> Polytope:
        """Return the points that also fulfil these constraints."""
        return Polytope(np.vstack([self.rows, rows]), np.concatenate([self.limits, limits]))


class Solver:
    """Finds shares of one demand. A method of `SOLVERS` chooses among the optima.

    Its methods raise an `ArithmeticError` if HiGHS finds no optimum.
    """

    def __init__(self, demand: TypedDemand, method: str = "centre") -> None:
        self._demand = demand
        self._method = method
        # A job has a share only where it can run.
        self._jobs, self._types = np.nonzero(demand.speeds > 0)
        self._base = self._constraints()

    def least(self, rows: Array) -> float:
        """Return the largest possible minimum over jobs of Σ rows·x.

        `rows` contains the value of a share for each job on each type, shape (jobs, types).
        """
        return self.raised(rows, np.zeros(len(rows)), np.zeros(len(rows), dtype=bool))[0]

    def raised(self, rows: Array, levels: Array, is_full: Flags) -> tuple[float, Flags]:
        """Return the largest common value of Σ rows·x of all jobs that are not full, and which jobs limit it.

        Jobs that are full, shape (jobs,), keep their values of Σ rows·x, `levels`, shape (jobs,).
        """
        scale = float(rows.max())
        rises = np.where(is_full, 0.0, 1.0)
        # The last variable is the common value, which the value of each job that is not full must reach.
        of_jobs = np.hstack([-self._of_jobs(_exact(rows / scale)), rises[:, None]])
        limits = np.where(is_full, -_exact(levels / scale) * (1 - NEARLY_OPTIMAL), 0.0)
        base_rows = np.hstack([self._base.rows, np.zeros((len(self._base.limits), 1))])
        allowed = Polytope(base_rows, self._base.limits).within(of_jobs, limits)
        costs = np.append(np.zeros(len(self._jobs)), -1.0)  # HiGHS minimises
        solution = _solved(costs, allowed)
        prices_of_jobs = np.asarray(solution.ineqlin.marginals)[len(base_rows) :]
        # The marginal of a limit that costs something is negative. Smaller values are rounding errors.
        limits_the_value = (prices_of_jobs < -NEARLY_OPTIMAL) & ~is_full
        return float(solution.x[-1]) * scale, limits_the_value

    def greatest_least(self, rows: Array) -> Array:
        """Return shares with the largest minimum of Σ rows·x over all jobs."""
        nearly_best = self.least(rows) * (1 - NEARLY_OPTIMAL)
        return self.with_at_least(rows, np.full(len(rows), nearly_best))

    def greatest_sum(self, rows: Array) -> Array:
        """Return shares with the largest sum of Σ rows·x over all jobs."""
        values = _exact(rows[self._jobs, self._types] / float(rows.max()))
        best = _optimum(-values, self._base)
        total = float(values @ best)
        # The published results were reproduced with this tolerance for sums, ten times that of the other rules.
        floor = np.array([-total * (1 - 10 * NEARLY_OPTIMAL)])
        return self._middle(self._base.within(-values[None, :], floor), best)

    def with_at_least(self, rows: Array, needs: Array) -> Array:
        """Return shares at which Σ rows·x of each job is at least its need, shape (jobs,); this must be possible."""
        # Each job has its own scale here, because the rows of jobs are not compared with each other.
        scale = rows.max(axis=1)
        values = self._of_jobs(_exact(rows / scale[:, None]))
        optima = self._base.within(-values, -_exact(needs / scale))
        any_point = _optimum(np.zeros(len(self._jobs)), optima)
        return self._middle(optima, any_point)

    def _middle(self, optima: Polytope, corner: Array) -> Array:
        """Return the shares at a corner, or in the centre, of the optima; shape (jobs, types)."""
        point = corner if self._method == "vertex" else centre(optima, corner)
        shares = np.zeros_like(self._demand.speeds)
        shares[self._jobs, self._types] = point
        return shares

    def _constraints(self) -> Polytope:
        """Return the constraints of all shares: at least 0, at most 1 for a job, and at most the GPUs of each type."""
        demand = self._demand
        count = len(self._jobs)
        of_types = np.zeros((len(demand.types), count))
        of_types[self._types, np.arange(count)] = demand.widths[self._jobs]
        sums_of_jobs = self._of_jobs(np.ones_like(demand.speeds))
        # No job can run on a type whose nodes are all down. The row of such a type is 0, and must stay 0.
        gpus = np.maximum(demand.gpus, 1.0)
        rows = np.vstack([-np.eye(count), sums_of_jobs, of_types / gpus[:, None]])
        limits = np.concatenate([np.zeros(count), np.ones(len(sums_of_jobs)), np.ones(len(of_types))])
        return Polytope(rows, limits)

    def _of_jobs(self, rows: Array) -> Array:
        """Return Σ rows·x of each job as rows over the variables, shape (jobs, variables)."""
        spread = np.zeros((len(self._demand.jobs), len(self._jobs)))
        spread[self._jobs, np.arange(len(self._jobs))] = rows[self._jobs, self._types]
        return spread


def _exact(ratios: Array) -> Array:
    """Return ratios without differences by rounding. The solver would enlarge them where several optima exist."""
    exact: Array = np.round(ratios * EXACT_UNIT) / EXACT_UNIT
    return exact


def _optimum(costs: Array, allowed: Polytope) -> Array:
    """Return an optimal point, shape (variables,)."""
    return np.asarray(_solved(costs, allowed).x)


def _solved(costs: Array, allowed: Polytope) -> OptimizeResult:
    """Return an optimal point and the prices of the limits."""
    from scipy.optimize import linprog  # noqa: PLC0415  (slow to load, and only for policies with shares)

    solution = linprog(costs, allowed.rows, allowed.limits, bounds=(None, None), method="highs")
    if solution.x is None:
        raise ArithmeticError(f"no shares: {solution.message}")
    return solution


def centre(polytope: Polytope, corner: Array) -> Array:
    """Return the analytic centre: the point with the largest product of the distances to all constraints.

    If the polytope has no interior, this function returns `corner`. Otherwise Newton's method starts in the centre of
    the largest ball. A step is damped while the decrement exceeds 1/4.
    """
    rows, limits = polytope
    # The last variable is the radius of a ball around the point: each constraint must hold at this distance, too.
    lengths = np.linalg.norm(rows, axis=1)
    ball = Polytope(np.hstack([rows, lengths[:, None]]), limits)
    largest_ball = _optimum(np.append(np.zeros(len(corner)), -1.0), ball)
    point = largest_ball[:-1]
    radius = float(largest_ball[-1])
    is_inside = bool((limits - rows @ point > 0).all())
    if radius <= 0 or not is_inside:
        return corner
    for _ in range(MOST_STEPS):
        inverse = 1 / (limits - rows @ point)
        gradient = rows.T @ inverse
        scaled = rows * inverse[:, None]
        step = np.linalg.solve(scaled.T @ scaled, -gradient)
        decrement = sqrt(max(-float(gradient @ step), 0.0))
        # Near the centre, only whole steps converge quadratically. Far from it, they may leave the polytope.
        damping = 1 + decrement if decrement > 0.25 else 1
        point = point + step / damping
        if decrement < SMALL_DECREMENT:
            break
    return point
