"""Optimus+Oracle: GPUs go one by one to the job whose exact remaining time they shorten the most."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import TYPE_CHECKING, ClassVar

from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.packing import FreeGpus
from polluxsim.policies.view import Decision
from polluxsim.types import num_replicas, packed

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


@dataclass
class Optimus:
    """Greedy marginal gains by the true remaining iterations and the true throughput, at a fixed batch size.

    Source: Peng et al., "Optimus" (EuroSys '18), with the oracle of Pollux (OSDI '21), §5.2, and its artifact.
    """

    needs_profiles: ClassVar[bool] = True
    _step_times: dict[tuple[str, int, int], float] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Choose GPU counts greedily; jobs whose count is unchanged keep their GPUs, the others are packed."""
        counts = self._counts(view)
        kept = {job.job_id: job.placement for job in view.jobs if counts[job.job_id] == num_replicas(job.placement)}
        free = FreeGpus(view.gpus_per_node)
        for placement in kept.values():
            free.take(placement)
        decision = Decision(kept)
        # Remaining iterations are counted by whole epochs, so that nothing changes before the next one.
        decision.valid_until = inf
        moved = [job.job_id for job in view.jobs if job.job_id not in kept]
        for job_id in sorted(moved, key=counts.__getitem__):
            decision[job_id] = free.pack(counts[job_id]) or ()
        return decision

    def _counts(self, view: ClusterView) -> dict[JobId, int]:
        """Return each job's number of GPUs: one each while there are any, the rest by largest gain."""
        served = view.jobs[: view.num_gpus]
        counts = {job.job_id: int(order < len(served)) for order, job in enumerate(view.jobs)}
        node_size = max(view.gpus_per_node)
        remaining = [job.oracle.remaining_iterations(job.batch_size) for job in served]
        heap = [(-self._gain(job, 1, remaining[order], node_size), order) for order, job in enumerate(served)]
        heapify(heap)
        for _ in range(view.num_gpus - len(served)):
            if not heap or heap[0][0] >= 0:
                break
            order = heap[0][1]
            job = served[order]
            counts[job.job_id] += 1
            gain = self._gain(job, counts[job.job_id], remaining[order], node_size)
            heapreplace(heap, (-gain, order)) if gain > 0 else heappop(heap)
        return counts

    def _gain(self, job: JobView, replicas: int, remaining: float, node_size: int) -> float:
        """Return by how much one GPU more than `replicas` shortens the job [s], 0 at its limit."""
        if replicas >= job.max_replicas:
            return 0.0
        now, then = (self._step_time(job, count, node_size) for count in (replicas, replicas + 1))
        return (now - then) * remaining

    def _step_time(self, job: JobView, replicas: int, node_size: int) -> float:
        application = job.oracle.application
        key = (application.name, job.batch_size, replicas)
        if (known := self._step_times.get(key)) is None:
            choice = split_batch_size(application, job.batch_size, replicas, accumulate_alone=True)
            placement = packed(replicas, node_size)
            known = self._step_times[key] = job.oracle.optimiser_step_time(placement, choice)
        return known
