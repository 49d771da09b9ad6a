"""The searches that the Pollux policy knows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.policies.pollux.exact import ExactSearch
from polluxsim.policies.pollux.genetic import GeneticSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.policies.pollux.problem import Search

# Each by the threads it may use.
SEARCHES: Mapping[str, Callable[[int], Search]] = {
    "exact": lambda threads: ExactSearch(),
    "genetic": lambda threads: GeneticSearch(threads=threads),
}


def search_named(name: str, threads: int = 1) -> Search:
    """Return a new search.

    Raises
    ------
    InvalidConfigError
        If there is none of that name.
    """
    if name not in SEARCHES:
        raise InvalidConfigError(f"policy.search is {name!r}, allowed are {', '.join(SEARCHES)}")
    return SEARCHES[name](threads)
