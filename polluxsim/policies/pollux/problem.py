"""The optimisation problem of one round: the gain of each job from each number of GPUs, and the limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import kernel
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.models.goodput import GoodputModel, KnownGoodputs
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.gpu_counts import fewest_gpus, most_gpus

# Added to every speedup, so that a job without GPUs has a finite cost. Source: artifact of Pollux (OSDI '21).
SPEEDUP_FLOOR = 1e-3


@dataclass(frozen=True)
class Problem:
    """Choose GPUs per node for J jobs on N nodes, so that the fitness is largest."""

    job_ids: tuple[JobId, ...]  # the jobs, in order of precedence, length J
    # Speedup over the fair share, scaled by nodes per GPU, shape (J, 2, K + 1): [job, whether on several nodes, GPUs].
    speedups: NDArray[np.float64]
    # Factor of a job's speedup in a round that changes its placement, shape (J,).
    restart_factors: NDArray[np.float64]
    max_replicas: NDArray[np.int64]  # most GPUs of each job, shape (J,)
    placements: NDArray[np.int64]  # GPUs held on each node before the round, shape (J, N)
    gpus_per_node: NDArray[np.int64]  # GPUs of each node, shape (N,)
    fairness_power: float  # the exponent p of the power mean, any real number
    avoid_interference: bool = True  # whether a node may have one multi-node job at most
    # Terms added to the logarithm of each job's speedup, shape (J,), or None. At power p, log(w)/p gives weight w.
    shifts: NDArray[np.float64] | None = None
    # Fewest GPUs of each job that gets GPUs, shape (J,), or None if it is 1 for all jobs.
    min_replicas: NDArray[np.int64] | None = None

    @property
    def fewest(self) -> NDArray[np.int64]:
        """Return the fewest GPUs of each job that gets GPUs, shape (J,)."""
        return np.ones(len(self.job_ids), dtype=np.int64) if self.min_replicas is None else self.min_replicas

    def log_values(self) -> NDArray[np.float64]:
        """Return log(speedup + floor) by [job, whether its placement changes, on several nodes, GPUs].

        Shape (J, 2, 2, K + 1); with a change, the speedup is multiplied by the restart factor. Shifts are added.
        """
        logs: NDArray[np.float64] = log_values(self.speedups, self.restart_factors)
        return logs if self.shifts is None else logs + self.shifts[:, None, None, None]

    def fitness(self, allocation: NDArray[np.int64]) -> float:
        """Return the fitness of an allocation, shape (J, N): the power mean of all jobs' speedups.

        Source: Pollux (OSDI '21), §4.2, eqs. 13 and 14.
        """
        return float(power_mean(self.logs_in(allocation), self.fairness_power))

    def logs_in(self, allocation: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the logarithm of the speedup of each job in an allocation, shape (J,), as in the fitness."""
        several = ((allocation > 0).sum(axis=1) > 1).astype(int)
        speedups = self.speedups[np.arange(len(allocation)), several, allocation.sum(axis=1)]
        changed = (allocation != self.placements).any(axis=1)
        return self.logs_of(speedups * np.where(changed, self.restart_factors, 1.0))

    def logs_of(self, speedups: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each job's log(speedup + floor), shifted, shape (J,). NumPy's log depends on the processor."""
        logs = np.array([math.log(speedup + SPEEDUP_FLOOR) for speedup in speedups.tolist()])
        return logs if self.shifts is None else logs + self.shifts

    def unchanged(self) -> Answer:
        """Return the allocation before the round, marked as an optimum."""
        fitness = self.fitness(self.placements)
        return Answer(self.placements, fitness, fitness)


class Answer(NamedTuple):
    """An allocation, and how good it is."""

    allocation: NDArray[np.int64]  # GPUs of each job on each node, shape (J, N), within all limits of the problem
    fitness: float  # of the allocation
    upper_bound: float | None = None  # a fitness that no allocation exceeds; None if the search computes no bound


@runtime_checkable
class Search(Protocol):
    """Finds a good allocation. A search may have a state for the rounds of a run."""

    def solve(self, problem: Problem, rng: np.random.Generator) -> Answer:
        """Return a good allocation; the generator is the only source of chance."""

    def stands_still(self, problem: Problem) -> bool:
        """Return whether the search would change no placement, with these restart factors and with smaller ones."""


@kernel
def log_values(speedups, factors):  # type: ignore[no-untyped-def]
    """Return the value of `Problem.log_values` for speedups (J, 2, K + 1) and restart factors (J,)."""
    num_jobs, kinds, counts = speedups.shape
    logs = np.empty((num_jobs, 2, kinds, counts))
    for j in range(num_jobs):
        for changed in range(2):
            factor = factors[j] if changed else 1.0
            for several in range(kinds):
                before = -1.0
                log = 0.0
                for k in range(counts):
                    value = speedups[j, several, k] * factor + SPEEDUP_FLOOR
                    if value != before:  # beyond the limit of a job, all counts have equal values
                        before = value
                        log = np.log(value)
                    logs[j, changed, several, k] = log
    return logs


@kernel
def power_mean(logs: NDArray[np.float64], power: float) -> float:
    """Return the power mean of the numbers with these logarithms, shape (n,), without overflow for any power.

    >>> [round(power_mean(np.log(np.array([1.0, 4.0])), power), 6) for power in (1.0, 0.0, -1.0)]
    [2.5, 2.0, 1.6]
    """
    # Relative to the mean of the logarithms, so that values near 1 keep their digits if the power is small.
    middle = logs.sum() / logs.size
    farthest = 0.0
    largest = -np.inf
    for log in logs:
        exponent = power * (log - middle)
        farthest = max(farthest, abs(exponent))
        largest = max(largest, exponent)
    total = 0.0
    if farthest < 1.0:
        for log in logs:
            total += np.expm1(power * (log - middle))
        return float(np.exp(middle + (np.log1p(total / logs.size) / power if power != 0.0 else 0.0)))
    for log in logs:
        total += np.exp(power * (log - middle) - largest)
    return float(np.exp(middle + (largest + np.log(total / logs.size)) / power))


def restart_factor(age: float, num_restarts: int, restart_delay: float) -> float:
    """Return the share of a job's speedup that remains if it is re-allocated now; 1 for a new job without a delay.

    Parameters
    ----------
    age
        Time since submission [s].
    num_restarts
        Re-allocations so far.
    restart_delay
        Time that the job loses by a re-allocation [s].

    Source: Pollux (OSDI '21), §4.2, REALLOC_FACTOR.
    """
    if age + restart_delay <= 0:
        return 1.0
    return max(age - num_restarts * restart_delay, 0.0) / (age + restart_delay)


class SpeedupTables:
    """Builds the speedups of a round. The times of the throughput model of a job are computed once."""

    def __init__(self) -> None:
        self._goodputs: dict[JobId, _Speedups] = {}

    def build(self, view: ClusterView, jobs: Sequence[JobView]) -> NDArray[np.float64]:
        """Return the speedups of jobs, shape (J, 2, K + 1), as in `Problem.speedups`; K is the largest limit of a job.

        The fair share is ceil(GPUs/jobs) GPUs, priced as if on one node; speedups are scaled by nodes per GPU. Until
        its first fit a job's speedup is linear in its GPUs. Beyond the limit of a job, speedups are 0.
        Source: artifact of Pollux (OSDI '21).
        """
        num_gpus = view.num_gpus
        num_nodes = len(view.gpus_per_node)
        share = math.ceil(num_gpus / len(jobs))
        present = {job.job_id for job in jobs}
        self._goodputs = {job_id: remembered for job_id, remembered in self._goodputs.items() if job_id in present}
        limits = [min(most_gpus(job), num_gpus) for job in jobs]
        # The present GPUs of a job count too, because its limit may have fallen below them.
        widest = max(*limits, *(num_replicas(job.placement) for job in jobs))
        speedups = np.zeros((len(jobs), 2, widest + 1))
        for row, job, limit in zip(speedups, jobs, limits, strict=True):
            if job.goodput is None:
                row[:, : limit + 1] = np.arange(limit + 1) / share
                continue
            remembered = self._goodputs.get(job.job_id)
            if remembered is None or remembered.model is not job.goodput:
                remembered = self._goodputs[job.job_id] = _Speedups(job.goodput, remembered)
            row[:, : limit + 1] = remembered.over(share, limit)
        speedups *= num_nodes / num_gpus
        return speedups

    def fair_goodput(self, job_id: JobId) -> float | None:
        """Return a job's goodput on its fair share when last built [M0-equivalent examples/s]; None before its fit."""
        remembered = self._goodputs.get(job_id)
        return None if remembered is None else remembered.fair


class _Speedups(KnownGoodputs):
    """Speedups of one job over its fair share, by its present model."""

    def __init__(self, model: GoodputModel, before: KnownGoodputs | None) -> None:
        super().__init__(model, before)
        limits = model.application
        self._most = limits.max_batch_size // limits.min_atomic_batch_size
        # GPUs of the fair share at the last call of `over`, and the goodput on them [M0-equivalent examples/s].
        self._share = 0
        self.fair = 0.0

    def over(self, share: int, max_replicas: int) -> NDArray[np.float64]:
        """Return the speedups over `share` GPUs, shape (2, max_replicas + 1)."""
        if self._share != share:
            self._share = share
            self.fair = self.model.best(1, min(share, self._most))[0]
        return self.up_to(max_replicas) / self.fair


def build_problem(
    view: ClusterView, tables: SpeedupTables, fairness_power: float, *, avoid_interference: bool
) -> Problem:
    """Return the problem of a round: its jobs in order of attained service, then submission."""
    jobs = sorted(view.jobs, key=lambda job: job.attained_service)
    placements = np.zeros((len(jobs), len(view.gpus_per_node)), dtype=np.int64)
    for row, job in zip(placements, jobs, strict=True):
        for node, gpus in job.placement:
            row[node] = gpus
    return Problem(
        job_ids=tuple(job.job_id for job in jobs),
        speedups=tables.build(view, jobs),
        restart_factors=_restart_factors(view, jobs, view.time),
        max_replicas=np.array([min(most_gpus(job), view.num_gpus) for job in jobs], dtype=np.int64),
        min_replicas=np.array([fewest_gpus(job) for job in jobs], dtype=np.int64),
        placements=placements,
        gpus_per_node=np.array(view.gpus_per_node, dtype=np.int64),
        fairness_power=fairness_power,
        avoid_interference=avoid_interference,
    )


def placements_of(allocation: NDArray[np.int64]) -> list[Placement]:
    """Return each job's placement, by rising node, of an allocation, shape (J, N).

    >>> placements_of(np.array([[0, 2, 1], [0, 0, 0]]))
    [((1, 2), (2, 1)), ()]
    """
    placements: list[list[tuple[int, int]]] = [[] for _ in allocation]
    rows, nodes = np.nonzero(allocation)
    for row, node, gpus in zip(rows.tolist(), nodes.tolist(), allocation[rows, nodes].tolist(), strict=True):
        placements[row].append((node, gpus))
    return [tuple(placement) for placement in placements]


def as_of(problem: Problem, view: ClusterView, time: float) -> Problem:
    """Return the problem of a round as it would be at a later time [s] if nothing happened until then."""
    by_name = {job.job_id: job for job in view.jobs}
    jobs = [by_name[job_id] for job_id in problem.job_ids]
    return replace(problem, restart_factors=_restart_factors(view, jobs, time))


def _restart_factors(view: ClusterView, jobs: Sequence[JobView], time: float) -> NDArray[np.float64]:
    """Return the restart factor of each job at a time [s], shape (J,)."""
    return np.array([restart_factor(time - job.submit_time, job.num_restarts, view.delay_of(job)) for job in jobs])


def with_idle_gpus(problem: Problem, allocation: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return an allocation, shape (J, N), in which waiting jobs have idle GPUs wherever that changes no fitness.

    The restart factor is 0 at age 0, and after too many restarts for the age of a job. The objective then does not
    depend on the GPUs of the job in this round. Jobs come in their order of precedence; each gets GPUs of one node, the
    fewest with the largest speedup, where they fit best. A job that needs more GPUs than one node has idle gets the
    fewest that it needs, on the nodes with the most idle GPUs.
    """
    indifferent = (problem.restart_factors == 0.0) & _waits(problem, allocation)
    if not indifferent.any():
        return allocation
    filled = allocation.copy()
    free = problem.gpus_per_node - filled.sum(axis=0)
    for row in np.flatnonzero(indifferent).tolist():
        fewest = int(problem.fewest[row])
        limit = int(problem.max_replicas[row])
        most_gpus = min(limit, int(free.max()))
        speedups = problem.speedups[row, 0, : most_gpus + 1].copy()
        speedups[1:fewest] = 0.0
        gpus = int(speedups.argmax())
        if gpus:
            node = int(np.where(free >= gpus, free, free.max() + 1).argmin())
            filled[row, node] = gpus
        elif most_gpus < fewest <= limit and problem.speedups[row, 1, fewest] > 0.0:
            filled[row] = _on_several_nodes(problem, filled, free, fewest)
        free -= filled[row]
    return filled


def _on_several_nodes(
    problem: Problem, allocation: NDArray[np.int64], free: NDArray[np.int64], gpus: int
) -> NDArray[np.int64]:
    """Return a row of `gpus` idle GPUs on the nodes with the most of them, shape (N,); zeros if they do not suffice."""
    several = (allocation > 0).sum(axis=1) > 1
    is_closed = (allocation[several] > 0).any(axis=0) & problem.avoid_interference
    usable = np.where(is_closed, 0, free)
    row = np.zeros_like(free)
    if usable.sum() < gpus:
        return row
    for node in np.argsort(-usable, kind="stable").tolist():
        row[node] = min(int(usable[node]), gpus - int(row.sum()))
    return row


def could_start(problem: Problem) -> bool:
    """Return whether enough GPUs for a waiting job are idle before the round."""
    idle = problem.gpus_per_node.sum() - problem.placements.sum()
    fits = (problem.fewest <= idle) & (problem.max_replicas > 0)
    return bool((_waits(problem, problem.placements) & fits).any())


def _waits(problem: Problem, allocation: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which jobs have no GPU before the round and in an allocation, shape (J,)."""
    waits: NDArray[np.bool_] = (problem.placements.sum(axis=1) == 0) & (allocation.sum(axis=1) == 0)
    return waits
