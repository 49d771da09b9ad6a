"""The Pollux policy: builds the round's problem, has it searched, and hands out what was found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from polluxsim.errors import check_number
from polluxsim.policies.pollux.explanation import Explanation
from polluxsim.policies.pollux.problem import Problem, SpeedupTables, as_of, build_problem, placements_of
from polluxsim.policies.pollux.searches import search_named
from polluxsim.policies.pollux.several_types import cut_to_one_type, with_like_nodes
from polluxsim.policies.view import Decision, Traits

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.pollux.problem import Search
    from polluxsim.policies.view import ClusterView


FORESIGHT = 600.0
"""How far ahead it is tried to prove that nothing is worth a change [s]."""


@dataclass
class Pollux:
    """Co-adaptive, goodput-optimised allocation.

    Parameters
    ----------
    search
        How an allocation is searched for: a name that `searches` knows, or a search.
    p
        Fairness power of the mean over all jobs' speedups: 1 is their plain mean, 0 the geometric, −∞ the least.
    avoid_interference
        Whether a node may have one multi-node job at most.
    threads
        Threads of a search by name that can use them, `genetic`; no answer depends on it.
    known_throughput
        Whether agents start with the θ_sys of their application instead of exploring it.

    Source: Pollux (OSDI '21), §4.2; known θ_sys, §5.3.
    """

    search: str | Search = "annealing"
    p: float = -1.0
    avoid_interference: bool = True
    threads: int = 1
    known_throughput: bool = False
    _tables: SpeedupTables = field(default_factory=SpeedupTables, init=False, repr=False)
    _search: Search = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("policy.p", self.p, holds=True, allowed="a finite number")
        self._search = search_named(self.search, self.threads) if isinstance(self.search, str) else self.search

    @property
    def traits(self) -> Traits:
        """Return what it is."""
        return Traits(adaptive=True, needs_profiles=True, known_throughput=self.known_throughput)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the best allocation found; of several GPU types it knows nothing, and jobs that mix them are cut."""
        if not view.jobs:
            return Decision({})
        if len(view.types) == 1:
            return self._allocate(view, rng)
        like, owners = with_like_nodes(view)
        decision = self._allocate(like, rng)
        return replace(decision, allocation=cut_to_one_type(view, decision.allocation, owners))

    def _problem(self, view: ClusterView) -> Problem:
        return build_problem(view, self._tables, self.p, avoid_interference=self.avoid_interference)

    def _allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        problem = self._problem(view)
        # A restart costs a job the less the older it is: where nothing is worth a change later, nothing is now.
        stands_until = view.time + FORESIGHT
        stands = self._search.stands_still(as_of(problem, view, stands_until))
        answer = problem.unchanged() if stands else self._search.solve(problem, rng)
        return Decision(
            dict(zip(problem.job_ids, placements_of(answer.allocation), strict=True)),
            fitness=answer.fitness,
            upper_bound=answer.upper_bound,
            valid_until=stands_until if stands else -inf,
            explain=lambda jobs: Explanation(view, problem, answer).reasons(jobs),
        )
