"""A run of the published simulator, recorded round by round, and how to feed its allocations to ours."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.hardware.placements import placement_from_nodes
from polluxsim.policies.contract.view import Traits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np

    from polluxsim.hardware.placements import Allocation, Placement
    from polluxsim.policies.contract.view import ClusterView


class Recorded(NamedTuple):
    """One job after one round; a row with a completion time says only that."""

    time: float
    job: str
    placement: Placement
    batch_size: int
    accumulation_steps: int
    epoch: int
    num_restarts: int | None
    completion_time: float | None


def read_run(osdi21: Path) -> list[Recorded]:
    """Read osdi21/replay/pollux-workload-6.csv.gz."""
    with gzip.open(osdi21 / "replay" / "pollux-workload-6.csv.gz", "rt") as file:
        return [
            Recorded(
                float(row["time"]),
                row["job"],
                placement_from_nodes(map(int, row["allocation"].split())),
                int(row["batch_size"]),
                int(row["accumulation_steps"] or 0),
                int(row["epoch"]),
                int(row["num_restarts"]) if row["num_restarts"] else None,
                float(row["completion_time"]) if row["completion_time"] else None,
            )
            for row in csv.DictReader(file)
        ]


def allocations(rows: Iterable[Recorded]) -> dict[float, dict[str, Placement]]:
    """Return the placements of each round, as `Replay` takes them."""
    rounds = defaultdict[float, dict[str, "Placement"]](dict)
    for row in rows:
        if row.completion_time is None and row.placement:
            rounds[row.time][row.job] = row.placement
    return dict(rounds)


class Replay:
    """Repeats allocations. Tests of agents and of the engine use it in place of a policy.

    Parameters
    ----------
    allocations
        The allocation of each round, by the round's time [s]; in missing rounds no job gets a GPU.
    adaptive
        Whether jobs choose their own batch size, instead of keeping that of the user.
    """

    def __init__(self, allocations: Mapping[float, Allocation], *, adaptive: bool = True) -> None:
        self.traits = Traits(adaptive=adaptive)
        self._allocations = allocations

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        """Return the recorded GPUs of the active jobs at this time."""
        active = {job.job_id for job in view.jobs}
        recorded = self._allocations.get(view.time, {})
        return {job_id: placement for job_id, placement in recorded.items() if job_id in active}
