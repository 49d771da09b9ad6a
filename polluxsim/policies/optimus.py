"""Optimus+Oracle: GPUs go one by one to the job whose exact remaining time they shorten the most."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.elastic import placements
from polluxsim.policies.view import Decision, Reason, Traits
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


class _Dealt(NamedTuple):
    """How many GPUs each job gets, and who won the last one beyond everybody's first, by how much [s].

    `remaining` are the optimiser steps that the jobs with GPUs have left, in order of submission.
    """

    counts: dict[JobId, int]
    remaining: list[float]
    winner: JobId | None
    winning_gain: float


@dataclass
class Optimus:
    """Greedy marginal gains by the true remaining iterations and the true throughput, at a fixed batch size.

    Source: Peng et al., "Optimus" (EuroSys '18), with the oracle of Pollux (OSDI '21), §5.2, and its artifact.
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True)
    # Time by which one GPU more shortens an optimiser step [s], by application, batch size and GPUs.
    _saved: dict[tuple[str, int, int], float] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Choose GPU counts greedily; jobs whose count is unchanged keep their GPUs, the others are packed."""
        dealt = self._deal(view)
        # Remaining iterations are counted by whole epochs, so that nothing changes before the next one.
        return Decision(
            placements(view, dealt.counts), valid_until=inf, explain=lambda jobs: self._reasons(view, dealt, jobs)
        )

    def _deal(self, view: ClusterView) -> _Dealt:
        """Return each job's number of GPUs: one each while there are any, the rest by largest gain."""
        served = view.jobs[: view.num_gpus]
        counts = {job.job_id: int(order < len(served)) for order, job in enumerate(view.jobs)}
        node_size = max(view.gpus_per_node)
        remaining = [job.oracle.remaining_iterations(job.batch_size) for job in served]
        heap = [(-self._gain(job, 1, remaining[order], node_size), order) for order, job in enumerate(served)]
        heapify(heap)
        winner, winning_gain = None, 0.0
        for _ in range(view.num_gpus - len(served)):
            if not heap or heap[0][0] >= 0:
                break
            order = heap[0][1]
            job = served[order]
            winner, winning_gain = job.job_id, -heap[0][0]
            counts[job.job_id] += 1
            gain = self._gain(job, counts[job.job_id], remaining[order], node_size)
            heapreplace(heap, (-gain, order)) if gain > 0 else heappop(heap)
        return _Dealt(counts, remaining, winner, winning_gain)

    def _reasons(self, view: ClusterView, dealt: _Dealt, asked: Sequence[JobId]) -> dict[JobId, Reason]:
        """Say of some jobs why they get as many GPUs as they do.

        Kinds: `no-gpu-left`, where there are more jobs than GPUs; `at-limit` of its GPUs; `no-gain` from another GPU;
        `gain-too-small`, where the other is the job that won the last GPU.
        """
        wanted = set(asked)
        node_size = max(view.gpus_per_node)
        return {
            job.job_id: self._reason(job, position, view.num_gpus, dealt, node_size)
            for position, job in enumerate(view.jobs, start=1)
            if job.job_id in wanted
        }

    def _reason(self, job: JobView, position: int, num_gpus: int, dealt: _Dealt, node_size: int) -> Reason:
        gpus = dealt.counts[job.job_id]
        if not gpus:
            return Reason("no-gpu-left", {"position": position, "num_gpus": num_gpus})
        remaining = dealt.remaining[position - 1]
        next_gain = self._gain(job, gpus, remaining, node_size)
        numbers = {"gpus": gpus, "max_replicas": job.max_replicas, "next_gain": next_gain}
        if gpus > 1:
            numbers["last_gain"] = self._gain(job, gpus - 1, remaining, node_size)
        if gpus >= job.max_replicas:
            return Reason("at-limit", numbers)
        if next_gain <= 0:
            return Reason("no-gain", numbers)
        if dealt.winner is None:
            return Reason("gain-too-small", numbers)
        return Reason("gain-too-small", {**numbers, "winning_gain": dealt.winning_gain}, (dealt.winner,))

    def _gain(self, job: JobView, replicas: int, remaining: float, node_size: int) -> float:
        """Return by how much one GPU more than `replicas` shortens the job [s], 0 at its limit."""
        if replicas >= job.max_replicas:
            return 0.0
        key = (job.oracle.application.name, job.batch_size, replicas)
        if (saved := self._saved.get(key)) is None:
            now, then = (_step_time(job, count, node_size) for count in (replicas, replicas + 1))
            saved = self._saved[key] = now - then
        return saved * remaining


def _step_time(job: JobView, replicas: int, node_size: int) -> float:
    choice = split_batch_size(job.oracle.application, job.batch_size, replicas, accumulate_alone=True)
    return job.oracle.optimiser_step_time(packed(replicas, node_size), choice)
