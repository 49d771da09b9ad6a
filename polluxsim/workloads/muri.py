"""Job lists of Muri's simulator: rigid jobs that last as long as their iterations take alone, times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.errors import bad_line
from polluxsim.models.stages import Stages
from polluxsim.tables import read_rows
from polluxsim.workloads.workload import InvalidJobError, Job, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.tables import Row

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "iteration_time")
MILLISECOND = 1e-3
STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
PROFILED_TO_REAL = 1.015
"""An iteration takes so many times as long as it was profiled. Source: Muri's simulator."""


@dataclass(frozen=True)
class MuriJobs:
    """Jobs of a file of Muri's simulator, as that runs them alone.

    Its columns are those of Tiresias' job lists and more, but in milliseconds, and `duration` is not how long a
    job runs: that is `iterations` × `iteration_time` × 1.015. Guaranteed jobs (`priority` 0) have priority 0 here,
    opportunistic ones less. With `resource_time_0` to `_2`, the stages of an iteration, they can share GPUs.

    Parameters
    ----------
    path
        The file (.csv).

    Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (SIGCOMM '22), and its simulator.
    """

    path: str

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the jobs."""
        path = Path(self.path)
        return Workload(tuple(_job(row) for row in read_rows(path, COLUMNS)), source=self.path)


def _job(row: Row) -> Job:
    iterations = row.integer("iterations", at_least=1)
    seconds = row.number("iteration_time", above=0) * PROFILED_TO_REAL * MILLISECOND
    try:
        return Job.rigid(
            row.text("job_id"),
            row.number("submit_time", at_least=0) * MILLISECOND,
            row.integer("num_gpu", at_least=1),
            iterations * seconds,
            row.line,
            stages=_stages(row, seconds),
            priority=-row.number("priority") if row.has("priority") else 0.0,
        )
    except InvalidJobError as error:
        raise bad_line(row.path, row.line, str(error)) from None


def _stages(row: Row, step: float) -> Stages | None:
    """Return the stages of a step, None if the file does not tell."""
    if not all(map(row.has, STAGES)):
        return None
    return Stages(step, *(row.number(name, at_least=0) * MILLISECOND for name in STAGES))
