"""The searches that the Pollux policy knows by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.policies.pollux.exact import ExactSearch
from polluxsim.policies.pollux.genetic import GeneticSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polluxsim.policies.pollux.problem import Search

SEARCHES: Mapping[str, Callable[[], Search]] = {"exact": ExactSearch, "genetic": GeneticSearch}


def search_named(name: str) -> Search:
    """Return a new search.

    Raises
    ------
    InvalidConfigError
        If there is none of that name.
    """
    if name not in SEARCHES:
        raise InvalidConfigError(f"policy.search is {name!r}, allowed are {', '.join(SEARCHES)}")
    return SEARCHES[name]()
