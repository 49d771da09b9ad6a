"""Names of a log's jobs and of their owners: each job's its own, each owner's kept once."""

from __future__ import annotations

from collections import Counter
from sys import intern
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class UniqueNames:
    """Names for jobs of a log, in which some logs use a name again: the first job keeps it, the others get a number."""

    def __init__(self, names: Iterable[str]) -> None:
        self._given = set(names)
        self._seen = Counter[str]()

    def next_of(self, name: str) -> str:
        """Return the name of the next job that the log calls so."""
        self._seen[name] += 1
        if self._seen[name] == 1:
            return name
        while (numbered := f"{name}#{self._seen[name]}") in self._given:
            self._seen[name] += 1
        self._given.add(numbered)
        return numbered


def shared(name: str | None) -> str | None:
    """Return a name such that many jobs share one copy of it; None if it says nothing."""
    return intern(name) if name and name.strip() else None
