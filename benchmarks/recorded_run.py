"""A run of the published simulator, recorded round by round, and how to feed its allocations to ours."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.hardware.placements import placement_from_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from polluxsim.hardware.placements import Placement


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
    """Return the placements of each round, as `policies.replay.Replay` takes them."""
    rounds = defaultdict[float, dict[str, "Placement"]](dict)
    for row in rows:
        if row.completion_time is None and row.placement:
            rounds[row.time][row.job] = row.placement
    return dict(rounds)
