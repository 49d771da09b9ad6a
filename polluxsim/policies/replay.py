"""Replay: gives each job the GPUs that a recorded run gave it, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.policies.view import Traits

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from polluxsim.policies.view import ClusterView
    from polluxsim.types import Allocation


class Replay:
    """Answers with recorded allocations, to check agents and engine apart from any search.

    Parameters
    ----------
    allocations
        The allocation of each round, by the round's time [s]; rounds that are missing give nobody a GPU.
    adaptive
        Whether jobs choose their own batch size, as they did in the recorded run.
    """

    def __init__(self, allocations: Mapping[float, Allocation], *, adaptive: bool = True) -> None:
        self.traits = Traits(adaptive=adaptive)
        self._allocations = allocations

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        """Return what was recorded for this time, of the jobs that are still active."""
        active = {job.job_id for job in view.jobs}
        recorded = self._allocations.get(view.time, {})
        return {job_id: placement for job_id, placement in recorded.items() if job_id in active}
