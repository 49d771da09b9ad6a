"""The Sia policy: values configurations, solves the programme, and places what it chose."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.errors import check_choice, check_number
from polluxsim.policies.pollux.problem import restart_factor
from polluxsim.policies.sia.configurations import configurations, present
from polluxsim.policies.sia.matrix import Matrix
from polluxsim.policies.sia.placing import place
from polluxsim.policies.sia.programme import Programme
from polluxsim.policies.view import Decision, Reason, Traits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polluxsim.policies.sia.configurations import Configuration
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId, Placement

BOOTSTRAPS = ("ratio", "none", "oracle")
"""What a job's goodput is on a type that it never ran on."""

NEAREST = 3
"""Jobs that are named as those to which a configuration was lost."""


@dataclass
class Sia:
    """Goodput-optimised allocation of GPUs of several types.

    Parameters
    ----------
    p
        Fairness power: with p < 0 the sum of all jobs' worth^p is made least, with p > 0 largest. Not 0.
    waiting_cost
        Cost λ of a job without GPUs, above 1: one GPU of its slowest type costs a job 1.
    bootstrap
        Goodput on a type that a job never ran on: `ratio`, guessed by speeds on one GPU; `none`, not known until it ran
        there, on one GPU at first; `oracle`, as its profile says on every type from the start.

    Source: Sia (SOSP '23), §3.
    """

    p: float = -0.5
    waiting_cost: float = 1.1
    bootstrap: str = "ratio"
    _matrix: Matrix = field(init=False, repr=False)
    _last: tuple[Programme, tuple[NDArray[np.int64], float]] | None = field(default=None, init=False, repr=False)
    # Since when each job has the GPUs that it has.
    _since: dict[JobId, tuple[Placement, float]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("policy.p", self.p, self.p != 0, "a finite number other than 0")
        check_number("policy.waiting_cost", self.waiting_cost, self.waiting_cost > 1, "a finite number > 1")
        check_choice("policy.bootstrap", self.bootstrap, BOOTSTRAPS)
        self._matrix = Matrix(guesses=self.bootstrap != "none")

    @property
    def traits(self) -> Traits:
        """Return what it is."""
        return Traits(adaptive=True, known_throughput=self.bootstrap == "oracle")

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the optimal allocation. Its fitness is how much less it costs than to give nobody anything."""
        jobs = list(view.jobs)
        known = configurations(view, {_least_gpus(job) for job in jobs})
        programme = self._programme(view, jobs, known)
        chosen, bound = self._solved(programme)
        none = self.waiting_cost * len(jobs)
        fitness = none - programme.value(chosen)
        placements = _placements(view, jobs, known, chosen)
        self._since = {
            job: before if (before := self._since.get(job, ((), 0.0)))[0] == placement else (placement, view.time)
            for job, placement in placements.items()
        }
        return Decision(
            placements,
            fitness=fitness,
            upper_bound=max(fitness, none - bound) if fitness > 0 else None,
            explain=partial(_reasons, programme, jobs, known, chosen),
        )

    def _solved(self, programme: Programme) -> tuple[NDArray[np.int64], float]:
        """Return the answer, that of the round before if it was asked the same."""
        if self._last is None or not programme.is_like(self._last[0]):
            self._last = programme, programme.solve()
        return self._last[1]

    def _programme(self, view: ClusterView, jobs: Sequence[JobView], known: Sequence[Configuration]) -> Programme:
        now = [present(view, job, known) for job in jobs]
        numbers = {name: number for number, name in enumerate(view.types)}
        return Programme(
            worths=self._worths(view, jobs, known, now),
            gpus=np.array([each.gpus for each in known], dtype=np.int64),
            types=np.array([numbers[each.gpu_type] for each in known], dtype=np.int64),
            capacities=np.array([view.gpus_of(name) for name in view.types], dtype=np.int64),
            kept=np.array([self._kept(view, job, here) for job, here in zip(jobs, now, strict=True)], dtype=np.int64),
            power=self.p,
            waiting_cost=self.waiting_cost,
        )

    def _worths(
        self, view: ClusterView, jobs: Sequence[JobView], known: Sequence[Configuration], now: Sequence[int | None]
    ) -> NDArray[np.float64]:
        """Return the worth of each job in each configuration, shape (J, C), with what a restart would take of it."""
        worths = self._matrix.fill(jobs, known)
        factors = np.ones_like(worths)
        for number, (job, here) in enumerate(zip(jobs, now, strict=True)):
            if here is not None:
                factors[number] = self._restart_factor(job, view)
                factors[number, here] = 1.0
        return worths * factors

    def _kept(self, view: ClusterView, job: JobView, here: int | None) -> int:
        """Return the configuration that a job keeps as it is still loading its checkpoint there, −1 for none."""
        since = self._since.get(job.job_id, ((), -np.inf))[1]
        return here if here is not None and view.time - since < view.delay_of(job) else -1

    def _restart_factor(self, job: JobView, view: ClusterView) -> float:
        """Return what is left of a job's worth if it is re-allocated now; a job that is young loses nothing."""
        age = job.attained_service if job.oracle.application.gang_size else view.time - job.submit_time
        delay = view.delay_of(job)
        return 1.0 if age < delay else restart_factor(view.time - job.submit_time, job.num_restarts, delay)


def _least_gpus(job: JobView) -> int:
    """Return the smallest number of GPUs that a job can run on."""
    return job.num_replicas if job.oracle.application.gang_size else job.min_replicas or 1


def _placements(
    view: ClusterView, jobs: Sequence[JobView], known: Sequence[Configuration], chosen: NDArray[np.int64]
) -> dict[JobId, Placement]:
    """Return the placements of the jobs that were given a configuration."""
    placements: dict[JobId, Placement] = {}
    pairs = [(job, known[column]) for job, column in zip(jobs, chosen.tolist(), strict=True) if column >= 0]
    for name in view.types:
        here = [(job, each) for job, each in pairs if each.gpu_type == name]
        held = {job.job_id: job.placement for job, each in here if present(view, job, [each]) is not None}
        sizes = {node: view.gpus_per_node[node] for node in view.nodes_of(name)}
        placements |= place(sizes, {job.job_id: (each.nodes, each.gpus) for job, each in here}, held)
    return placements


def _reasons(
    programme: Programme,
    jobs: Sequence[JobView],
    known: Sequence[Configuration],
    chosen: NDArray[np.int64],
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Say of the jobs asked about which configuration won, and which would be worth most to them.

    Kinds: `best-configuration`, where nothing is worth more; `lost-configuration`, where a better one lost to the
    others, who hold most of its type; `no-configuration`, where none is allowed. Figures name configurations: `has 8
    t4` is worth in the one chosen, `best 2 a100-40` in the one worth most.
    """
    rows = {job.job_id: row for row, job in enumerate(jobs)}
    return {job_id: _reason(programme, jobs, known, chosen, rows[job_id]) for job_id in asked}


def _reason(
    programme: Programme, jobs: Sequence[JobView], known: Sequence[Configuration], chosen: NDArray[np.int64], row: int
) -> Reason:
    costs, worths, now = programme.costs[row], programme.worths[row], int(chosen[row])
    if np.isnan(costs).all():
        return Reason("no-configuration", {})
    best = int(np.nanargmin(costs))
    numbers = {} if now < 0 else {f"has {known[now]}": float(worths[now])}
    if now >= 0 and costs[best] >= costs[now]:
        return Reason("best-configuration", numbers)
    numbers[f"best {known[best]}"] = float(worths[best])
    numbers["saving"] = float((costs[now] if now >= 0 else 0.0) - costs[best])
    others = [other for other in np.flatnonzero(chosen >= 0).tolist() if other != row]
    holders = [other for other in others if programme.types[chosen[other]] == programme.types[best]]
    holders.sort(key=lambda other: -int(programme.gpus[chosen[other]]))
    return Reason("lost-configuration", numbers, tuple(jobs[other].job_id for other in holders[:NEAREST]))
