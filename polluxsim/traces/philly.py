"""The jobs of Microsoft's Philly cluster that succeeded, as the artifact of Pollux lists them (philly.csv)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.files import read_rows

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


class PhillyJob(NamedTuple):
    """One job of the trace.

    Attributes
    ----------
    submitted
        When it was submitted (UTC; the file names no zone).
    duration
        Sum over its attempts [s].
    num_gpus
        GPUs.
    gpu_time
        Duration times GPUs [GPU s].
    tenant
        The virtual cluster it ran in.
    """

    submitted: datetime
    duration: float
    num_gpus: int
    gpu_time: float
    tenant: str


def read_philly(path: Path) -> list[PhillyJob]:
    """Read the trace in the order of the file.

    Raises
    ------
    InvalidInputError
        If the file or a row of it is not what it should be.

    Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters" (ATC '19), data under CC-BY-4.0.
    """
    jobs = []
    for row in read_rows(path, COLUMNS):
        try:
            submitted = datetime.fromisoformat(row.text("timestamp"))
        except ValueError:
            raise row.error("timestamp", "YYYY-MM-DD HH:MM:SS") from None
        jobs.append(
            PhillyJob(
                submitted,
                row.number("duration", at_least=0),
                row.integer("num_gpus", at_least=1),
                row.number("gpu_time", at_least=0),
                row.text("cluster"),
            )
        )
    return jobs
