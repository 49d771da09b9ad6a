"""Sia's integer programme: one configuration a job at most, no more GPUs of a type than there are."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.policies.quiet import without_chatter

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_COST = 3000.0
"""What a configuration costs at most. Source: the published code of Sia (SOSP '23)."""

GAP = 1e-4
"""By this share the solver's answer may cost more than the least. Source: ibid."""

WHOLE = 1e-6
"""By this much a number may differ from a whole one. Source: HiGHS' default."""


@dataclass(frozen=True)
class Programme:
    """Choose configurations so that the sum of costs is least; it costs something, too, to give a job none."""

    # Worth of each job in each configuration, restarts counted, shape (J, C); NaN where it is not allowed.
    worths: NDArray[np.float64]
    gpus: NDArray[np.int64]  # GPUs of each configuration, shape (C,)
    types: NDArray[np.int64]  # type of each configuration as a number from 0, shape (C,)
    capacities: NDArray[np.int64]  # GPUs of each type, shape (T,)
    kept: NDArray[np.int64]  # configuration that a job must keep, −1 where it need not, shape (J,)
    power: float  # the exponent p: with p < 0 the sum of worth^p is made least, else largest
    waiting_cost: float  # cost of a job without GPUs; one replica of the slowest configuration costs 1

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """Return what each configuration costs over giving none, shape (J, C); NaN where it is not allowed.

        Source: Sia (SOSP '23), §3.4, eq. 1; rounding and limit by its published code.
        """
        costs = np.full(self.worths.shape, np.nan)
        allowed = np.nonzero(self.worths > 0)
        # One by one, as NumPy's own powers hang on the processor.
        terms = [min(round(worth**self.power, 2), LARGEST_COST) for worth in self.worths[allowed].tolist()]
        costs[allowed] = np.array(terms) * (1 if self.power < 0 else -1) - self.waiting_cost
        return costs

    def is_like(self, other: Programme) -> bool:
        """Return whether another programme of this policy has the same answers."""
        parts = ((each.costs, each.kept, each.gpus, each.types, each.capacities) for each in (self, other))
        return all(np.array_equal(mine, theirs, equal_nan=True) for mine, theirs in zip(*parts, strict=True))

    def _worth_trying(self) -> NDArray[np.bool_]:
        """Return which configurations an optimum needs, shape (J, C): those that cost less than all smaller ones."""
        needed = np.zeros(self.costs.shape, dtype=bool)
        for number in range(len(self.capacities)):
            here = np.flatnonzero(self.types == number)
            here = here[np.argsort(self.gpus[here], kind="stable")]
            least = np.fmin.accumulate(np.insert(self.costs[:, here], 0, 0.0, axis=1), axis=1)
            needed[:, here] = self.costs[:, here] < least[:, :-1]
        must = np.flatnonzero(self.kept >= 0)
        needed[must, self.kept[must]] = True
        return needed & ~np.isnan(self.costs)

    def value(self, chosen: NDArray[np.int64]) -> float:
        """Return the sum of costs of a choice, shape (J,); −1 is none."""
        jobs = np.flatnonzero(chosen >= 0)
        return float(self.costs[jobs, chosen[jobs]].sum()) + self.waiting_cost * len(chosen)

    def solve(self) -> tuple[NDArray[np.int64], float]:
        """Return the configuration of each job, −1 for none, shape (J,), and what no choice can cost less than.

        Source: HiGHS, through SciPy.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (takes a while to load)
        from scipy.sparse import csr_array, vstack  # noqa: PLC0415

        costs = self.costs
        jobs, columns = np.nonzero(self._worth_trying())
        num_jobs, num_types, size = len(costs), len(self.capacities), len(jobs)
        chosen, none = np.full(num_jobs, -1), self.waiting_cost * num_jobs
        if not size:
            return chosen, none
        each = np.arange(size)
        once = csr_array((np.ones(size), (jobs, each)), (num_jobs, size))
        held = csr_array((self.gpus[columns].astype(float), (self.types[columns], each)), (num_types, size))
        limits = LinearConstraint(vstack([once, held]), -np.inf, np.append(np.ones(num_jobs), self.capacities))
        must = (self.kept[jobs] == columns).astype(float)
        # In half the rounds the programme without whole numbers has them all the same, in a tenth of the time.
        for is_whole in (0, 1):
            with without_chatter() if is_whole else nullcontext():
                found = milp(
                    costs[jobs, columns],
                    integrality=np.full(size, is_whole),
                    bounds=Bounds(must, 1),
                    constraints=limits,
                    options={"mip_rel_gap": GAP},
                )
            if found.x is None:
                raise RuntimeError(f"HiGHS found no answer: {found.message}")
            if np.abs(found.x - found.x.round()).max() < WHOLE:
                break
        taken = np.flatnonzero(found.x > 0.5)
        chosen[jobs[taken]] = columns[taken]
        return chosen, (found.mip_dual_bound if is_whole else found.fun) + none
