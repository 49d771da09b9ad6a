"""What every job is worth in every configuration: its goodput over that of its slowest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.models.goodput import KnownGoodputs, ScaledGoodput
from polluxsim.policies.elastic import fewest_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from polluxsim.models.goodput import Goodput
    from polluxsim.policies.sia.configurations import Configuration
    from polluxsim.policies.view import JobView
    from polluxsim.types import JobId


class Matrix:
    """Fills the matrix of a round; what a job's models say is computed once.

    Goodput on a type that a job never ran on is guessed from others, or else it may have one GPU of it.
    """

    def __init__(self, *, guesses: bool) -> None:
        self._guesses = guesses
        self._known: dict[tuple[JobId, str], KnownGoodputs] = {}

    def fill(self, jobs: Sequence[JobView], configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return the worth of each job in each configuration, shape (J, C), 1 in its slowest one; NaN where it cannot.

        Source: Sia (SOSP '23), §3.3 and 3.4.
        """
        names = {job.job_id for job in jobs}
        self._known = {key: known for key, known in self._known.items() if key[0] in names}
        gpus = np.array([each.gpus for each in configurations])
        several = np.array([each.nodes > 1 for each in configurations], dtype=int)
        types = np.array([each.gpu_type for each in configurations])
        matrix = np.full((len(jobs), len(configurations)), np.nan)
        for row, job in zip(matrix, jobs, strict=True):
            if job.oracle.application.gang_size is not None:
                _fill_gang(row, job, gpus, types)
            else:
                self._fill(row, job, gpus, several, types)
        slowest: NDArray[np.float64] = np.fmin.reduce(matrix, axis=1, initial=np.inf)
        return matrix / slowest[:, None]

    def _fill(
        self,
        row: NDArray[np.float64],
        job: JobView,
        gpus: NDArray[np.int64],
        several: NDArray[np.int64],
        types: NDArray[np.str_],
    ) -> None:
        """Fill the row of a job that can have several numbers of GPUs."""
        for name, model in job.goodputs.items():
            enough = (types == name) & (gpus >= fewest_gpus(job))
            # The agent of a job that has not run allows one GPU, and no configuration may have just the minimum.
            least = int(gpus[enough].min(initial=max(job.max_replicas, job.num_replicas)))
            if model is None or (isinstance(model, ScaledGoodput) and not self._guesses):
                row[enough & (gpus == least)] = least
            else:
                here = enough & (gpus <= max(job.max_replicas, least))
                row[here] = self._goodputs(job.job_id, name, model, gpus[here], several[here])

    def _goodputs(
        self, job_id: JobId, gpu_type: str, model: Goodput, gpus: NDArray[np.int64], several: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the goodputs of configurations; guessed ones as on the nodes of the type that was tried."""
        learnt, ratio = model, 1.0
        if isinstance(model, ScaledGoodput):
            learnt, ratio, several = model.model, model.ratio, (gpus > model.gpus_per_node).astype(int)
        known = self._known.get((job_id, gpu_type))
        if known is None or known.model is not learnt:
            known = self._known[job_id, gpu_type] = KnownGoodputs(learnt, known)  # type: ignore[arg-type]
        goodputs: NDArray[np.float64] = known.up_to(int(gpus.max(initial=0)))[several, gpus] * ratio
        return goodputs


def _fill_gang(row: NDArray[np.float64], job: JobView, gpus: NDArray[np.int64], types: NDArray[np.str_]) -> None:
    """Fill the row of a job that runs on as many GPUs as it asks for, at known speeds."""
    for name, speed in job.speeds.items():
        row[(types == name) & (gpus == job.num_replicas)] = speed * job.num_replicas
