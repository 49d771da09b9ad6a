"""Optimus+Oracle: GPUs go one by one to the job whose exact remaining time they shorten the most."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.elastic import deal, placements
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Decision, Reason, Traits
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from polluxsim.policies.elastic import Dealt
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


class Remaining(NamedTuple):
    """A job that has a GPU, and gains time by others.

    `time_saved` are the times by which one GPU more than none, 1, 2, … shortens an optimiser step [s], as far as known,
    and `step_time` says how long one takes [s], as it is or as is estimated.
    """

    job: JobView
    limit: int
    steps: float
    time_saved: list[float]
    step_time: Callable[[int], float]

    def gain(self, replicas: int) -> float:
        """Return by how much one GPU more than `replicas` shortens the job [s], 0 at its limit."""
        if replicas >= self.limit:
            return 0.0
        known = self.time_saved
        while len(known) <= replicas:
            now, then = (self.step_time(count) for count in (len(known), len(known) + 1))
            known.append(now - then)
        return known[replicas] * self.steps


@pool_per_type
@dataclass
class Optimus:
    """Greedy marginal gains by the true remaining iterations and the true throughput, at a fixed batch size.

    Source: Peng et al., "Optimus" (EuroSys '18), with the oracle of Pollux (OSDI '21), §5.2, and its artifact.
    """

    traits: ClassVar[Traits] = Traits(needs_profiles=True)
    # Times saved in an optimiser step, by application and batch size.
    _time_saved: dict[tuple[str, int], list[float]] = field(default_factory=dict, init=False, repr=False)
    # Optimiser steps left, by application, batch size and epoch.
    _remaining: dict[tuple[str, int, int], float] = field(default_factory=dict, init=False, repr=False)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Choose GPU counts greedily; jobs whose count is unchanged keep their GPUs, the others are packed."""
        node_size, num_gpus = view.node_size, view.num_gpus
        candidates = [self._candidate(job, node_size) for job in islice(view.jobs, num_gpus)]
        dealt = deal(view.jobs, candidates, num_gpus)
        placed = placements(view, dealt.counts)
        # Remaining iterations are counted by whole epochs, so that nothing changes before the next one.
        return Decision(placed, valid_until=inf, explain=lambda jobs: reasons(view, dealt, jobs))

    def _candidate(self, job: JobView, node_size: int) -> Remaining:
        name, batch_size, oracle = job.oracle.application.name, job.batch_size, job.oracle
        key = (name, batch_size, oracle.epoch)
        if (remaining := self._remaining.get(key)) is None:
            remaining = self._remaining[key] = oracle.remaining_iterations(batch_size)
        # What the first GPU saves is never asked for.
        time_saved = self._time_saved.setdefault((name, batch_size), [inf])
        return Remaining(job, job.max_replicas, remaining, time_saved, partial(_step_time, job, node_size=node_size))


def reasons(view: ClusterView, dealt: Dealt, asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Say of some jobs why they get as many GPUs as they do.

    Kinds: `no-gpu-left`, where there are more jobs than GPUs; `at-limit` of its GPUs; `no-gain` from another GPU;
    `gain-too-small`, where the other is the job that won the last GPU.
    """
    wanted = set(asked)
    return {
        job.job_id: _reason(job, position, view.num_gpus, dealt)
        for position, job in enumerate(view.jobs, start=1)
        if job.job_id in wanted
    }


def _reason(job: JobView, position: int, num_gpus: int, dealt: Dealt) -> Reason:
    gpus = dealt.counts[job.job_id]
    if not gpus:
        return Reason("no-gpu-left", {"position": position, "num_gpus": num_gpus})
    candidate = dealt.candidates[position - 1]
    next_gain = candidate.gain(gpus)
    numbers = {"gpus": gpus, "max_replicas": candidate.limit, "next_gain": next_gain}
    if gpus > 1:
        numbers["last_gain"] = candidate.gain(gpus - 1)
    if gpus >= candidate.limit:
        return Reason("at-limit", numbers)
    if next_gain <= 0:
        return Reason("no-gain", numbers)
    if dealt.winner is None:
        return Reason("gain-too-small", numbers)
    return Reason("gain-too-small", {**numbers, "winning_gain": dealt.winning_gain}, (dealt.winner,))


def _step_time(job: JobView, replicas: int, node_size: int) -> float:
    choice = split_batch_size(job.oracle.application, job.batch_size, replicas, accumulate_alone=True)
    return job.oracle.optimiser_step_time(packed(replicas, node_size), choice)
