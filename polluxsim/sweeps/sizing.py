"""How small a cluster, or how high a load: runs at one level after another, up to the hardest that meets a target."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np
from omegaconf import OmegaConf

from polluxsim.errors import PolluxSimError
from polluxsim.run.execution import Execution
from polluxsim.storage import read_run
from polluxsim.sweeps.complete import complete
from polluxsim.sweeps.local import LocalWorkers
from polluxsim.sweeps.plan import composer, entry_of
from polluxsim.sweeps.working import perform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from polluxsim.metrics.target import Target
    from polluxsim.sweeps.launchers import Workers
    from polluxsim.sweeps.plan import Entry

PLACE = "{}"
"""What stands for the level in overrides."""

NEIGHBOURS = 2
"""Levels on either side of an answer that are tried too."""


class Levels:
    """What a target's metric is at each level, `measured` when it is asked for: shape (seeds,) [s; 1 for ρ].

    Overrides are as `polluxsim run` takes them, with `{}` for the level. The seeds are the same at each level; None
    leaves the one that the overrides say. Finished runs in the folder are not made again. So many `workers` do the
    seeds of a level; 1 is this process.
    """

    def __init__(
        self, target: Target, overrides: Sequence[str], seeds: Sequence[int | None], folder: Path, workers: int = 1
    ) -> None:
        self.measured: dict[float, NDArray[np.float64]] = {}
        self._target, self._overrides, self._seeds, self._folder = target, overrides, seeds, folder
        self._composer, processes = composer(), LocalWorkers(workers)
        self._workers: Workers = _Here() if 1 in (workers, len(seeds)) else processes

    def values(self, level: float) -> NDArray[np.float64]:
        """Return the metric at a level under each seed, shape (seeds,)."""
        if level not in self.measured:
            entries = self._entries(level)
            self.measured[level] = np.array([self._target.value(read_run(path).result) for path in self._run(entries)])
        return self.measured[level]

    def write_table(self) -> None:
        """Write one table of all runs, as a sweep's."""
        self._run([entry for level in sorted(self.measured) for entry in self._entries(level)])

    def first_possible(self, levels: Sequence[float]) -> int:
        """Return the place of the first level with room for the largest job; at the last, nothing may be wrong."""
        self._begin(levels[-1])
        return bisect_left(range(len(levels) - 1), True, key=lambda place: self._has_room(levels[place]))

    def _has_room(self, level: float) -> bool:
        try:
            self._begin(level)
        except PolluxSimError:
            return False
        return True

    def _begin(self, level: float) -> None:
        Execution(OmegaConf.create(dict(self._entry(level, self._seeds[0]).config))).start()

    def _entries(self, level: float) -> list[Entry]:
        return [self._entry(level, seed) for seed in self._seeds]

    def _entry(self, level: float, seed: int | None) -> Entry:
        overrides = [word.replace(PLACE, f"{level:.10g}") for word in self._overrides]
        overrides += [] if seed is None else [f"seed={seed}"]
        return entry_of(overrides, self._composer.compose(overrides), self._folder)

    def _run(self, entries: Sequence[Entry]) -> list[Path]:
        return [entry.folder for entry in complete(entries, self._folder, self._workers).entries]


class _Here:
    """Does runs in this process, which knows the workload already; starting others for each level takes seconds."""

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Do all runs; return those that failed."""
        failed: list[tuple[Entry, Exception]] = []
        for entry in entries:
            try:
                perform(entry.config, entry.folder)
            except (PolluxSimError, OSError) as error:
                failed.append((entry, error))
        return failed


def hardest(levels: Sequence[float], meets: Callable[[float], bool], *, easier_upwards: bool) -> float | None:
    """Return the hardest of rising levels that meets a target, None if none was found.

    It is looked for by galloping from the first level and by bisection. Then its neighbours are tried, as metrics are
    not always monotone. With `easier_upwards`, higher levels are easier, as with more nodes; else harder.
    """

    def turned(place: int) -> bool:
        return meets(levels[place]) is easier_upwards

    before, place, last = -1, 0, len(levels) - 1
    while not turned(place) and place < last:
        before, place = place, min(2 * place + 1, last)
    turn = before + 1 + bisect_left(range(before + 1, place + 1), True, key=turned)
    found = turn if easier_upwards else turn - 1
    while 0 <= found <= last:
        near = range(max(found - NEIGHBOURS, 0), min(found + NEIGHBOURS, last) + 1)
        meeting = [place for place in near if meets(levels[place])]
        if found == (best := meeting[0 if easier_upwards else -1]):
            return levels[found]
        found = best
    return None
