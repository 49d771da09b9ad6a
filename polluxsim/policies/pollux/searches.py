"""The searches that the Pollux policy knows by name."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from polluxsim.errors import check_choice
from polluxsim.policies.pollux.annealing import AnnealingSearch
from polluxsim.policies.pollux.genetic import GeneticSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.policies.pollux.problem import Search

# Each by the threads it may use.
SEARCHES: Mapping[str, Callable[[int], Search]] = {
    "annealing": lambda threads: AnnealingSearch(),
    "genetic": lambda threads: GeneticSearch(threads=threads),
}

FORMER_NAMES = {"exact": "annealing"}
"""Names that still work in this release."""


def search_named(name: str, threads: int = 1) -> Search:
    """Return a new search.

    Raises
    ------
    InvalidConfigError
        If there is none of that name.
    """
    if name in FORMER_NAMES:
        present = FORMER_NAMES[name]
        warnings.warn(
            f"policy.search={name} is now called {present}; the old name goes away", FutureWarning, stacklevel=4
        )
        name = present
    check_choice("policy.search", name, SEARCHES)
    return SEARCHES[name](threads)
