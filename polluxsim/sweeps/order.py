"""Which run comes next: the longest, as far as one can tell, so that no worker is left with it at the end."""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.sweeps.plan import Entry


class Order:
    """Runs in order of how long runs of their kind took so far; kinds of which none is done yet come first.

    Of a kind are runs that differ in nothing but what they draw or read: seed, workload and profiles.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._left: dict[str, deque[Entry]] = defaultdict(deque)
        self._times: dict[str, list[float]] = defaultdict(list)
        self._started: set[str] = set()
        for entry in entries:
            self._left[_kind(entry)].append(entry)

    def __bool__(self) -> bool:
        return bool(self._left)

    def next(self) -> Entry:
        """Return the run to start now."""
        kind = max(self._left, key=self._expected)
        self._started.add(kind)
        entry = self._left[kind].popleft()
        if not self._left[kind]:
            del self._left[kind]
        return entry

    def took(self, entry: Entry, seconds: float) -> None:
        """Note how long a run took."""
        self._times[_kind(entry)].append(seconds)

    def _expected(self, kind: str) -> float:
        if self._times[kind]:
            return fmean(self._times[kind])
        # One that is being tried out for the first time need not be tried out twice.
        return 0.0 if kind in self._started else math.inf


def _kind(entry: Entry) -> str:
    config = {name: value for name, value in entry.config.items() if name not in ("seed", "workload", "profiles")}
    return json.dumps(config, sort_keys=True)
