"""Search the smallest cluster, or the highest load, that meets a target: runs at one level after another."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import OmegaConf

from polluxsim.common.errors import PolluxSimError
from polluxsim.records.storage import read_run
from polluxsim.run.execution import Execution
from polluxsim.studies.driver import complete
from polluxsim.studies.launching import LocalWorkers, perform
from polluxsim.studies.plan import composer, entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from polluxsim.metrics.target import Target
    from polluxsim.studies.launching import Workers
    from polluxsim.studies.plan import Entry

PLACE = "{}"
"""Placeholder for the level in overrides."""

NEIGHBOURS = 2
"""Number of levels on either side of an answer that are run too."""


class Levels:
    """The metric of a target at each level, simulated when it is first asked for.

    Parameters
    ----------
    target
        The target whose metric is computed.
    overrides
        As `polluxsim run` takes them, with `{}` for the level.
    seeds
        The same seeds are run at each level. None leaves the seed that the overrides set.
    folder
        Folder for the runs; finished runs in it are reused.
    workers
        Number of processes for the seeds of a level; 1 is this process.

    Attributes
    ----------
    measured
        The metric by level, one value for each seed [s; 1 for ρ].
    """

    def __init__(
        self, target: Target, overrides: Sequence[str], seeds: Sequence[int | None], folder: Path, workers: int = 1
    ) -> None:
        self.measured: dict[float, NDArray[np.float64]] = {}
        self._target, self._overrides, self._seeds, self._folder = target, overrides, seeds, folder
        self._composer, processes = composer(), LocalWorkers(workers)
        self._workers: Workers = _InThisProcess() if 1 in (workers, len(seeds)) else processes

    def values(self, level: float) -> NDArray[np.float64]:
        """Return the metric at a level under each seed, shape (seeds,)."""
        if level not in self.measured:
            entries = self._entries(level)
            self.measured[level] = np.array([self._target.value(read_run(path).result) for path in self._run(entries)])
        return self.measured[level]

    def write_table(self) -> None:
        """Write one table of all runs, as a sweep does."""
        self._run([entry for level in sorted(self.measured) for entry in self._entries(level)])

    @property
    def engine(self) -> Mapping[str, Any]:
        """Return the engine settings of the runs, which do not depend on the level."""
        return dict(self._entry(min(self.measured), self._seeds[0]).config["engine"])

    def first_possible(self, levels: Sequence[float]) -> int:
        """Return the index of the first level with room for the largest job. The last level must be valid."""
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


class _InThisProcess:
    """Simulates in this process, which has loaded the workload; starting processes for each level takes seconds."""

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make all runs; return the failed runs with their errors."""
        failed: list[tuple[Entry, Exception]] = []
        for entry in entries:
            try:
                perform(entry.config, entry.folder)
            except (PolluxSimError, OSError) as error:
                failed.append((entry, error))
        return failed


def hardest(levels: Sequence[float], meets: Callable[[float], bool], *, easier_upwards: bool) -> float | None:
    """Return the hardest of rising levels that meets a target; None if the search finds none.

    The search gallops from the first level and then bisects. It then tries the neighbours, because metrics are not
    always monotone. With `easier_upwards`, higher levels are easier, as more nodes are; otherwise they are harder.
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


def reversals(curve: Mapping[float, float], *, easier_upwards: bool) -> dict[float, float]:
    """Return the levels with a worse (greater) value than the next harder level, each with that harder level.

    >>> reversals({43: 9.0, 44: 5.0, 45: 7.0}, easier_upwards=True)
    {45: 44}
    """
    harder_first = sorted(curve, reverse=not easier_upwards)
    return {easier: harder for harder, easier in pairwise(harder_first) if curve[easier] > curve[harder]}
