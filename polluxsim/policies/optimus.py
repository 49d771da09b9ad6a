"""Optimus+Oracle: each next GPU goes to the job whose true remaining time it shortens the most."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from polluxsim.models.batch_size import split_batch_size
from polluxsim.policies.elastic import deal, fewest_gpus, most_gpus, placements, reasons_of, served_first
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Decision, Reason, Traits
from polluxsim.types import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from polluxsim.policies.elastic import Candidate, Dealt
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


class Remaining(NamedTuple):
    """A job that has GPUs, and the time that further GPUs save.

    Attributes
    ----------
    job
        The job.
    limit
        Most GPUs of the job.
    steps
        Optimiser steps to completion.
    time_saved
        Times by which the first, second, third … GPU shortens an optimiser step, as far as known [s].
    step_time
        Function that returns the time of an optimiser step by GPUs, true or estimated [s].
    weight
        Factor on the gains of the job.
    """

    job: JobView
    limit: int
    steps: float
    time_saved: list[float]
    step_time: Callable[[int], float]
    weight: float = 1.0

    def gain(self, replicas: int) -> float:
        """Return the time that one GPU more than `replicas` saves, times the weight [s]; 0 at the limit."""
        if replicas >= self.limit:
            return 0.0
        known = self.time_saved
        while len(known) <= replicas:
            now, then = (self.step_time(count) for count in (len(known), len(known) + 1))
            known.append(now - then)
        return known[replicas] * self.steps * self.weight


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
        """Choose numbers of GPUs greedily, and place the jobs whose number changes."""
        node_size, num_gpus = view.node_size, view.num_gpus
        candidates = [self._candidate(job, node_size) for job in served_first(view.jobs, num_gpus)]
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
        step_time = partial(true_step_time, job, node_size=node_size)
        return Remaining(job, most_gpus(job), remaining, time_saved, step_time)


def reasons(view: ClusterView, dealt: Dealt, asked: Sequence[JobId]) -> dict[JobId, Reason]:
    """Return the reasons for the numbers of GPUs of some jobs.

    Kinds: those of `reasons_of`; `at-limit` of the GPUs of the job; `no-gain` from another GPU; `gain-too-small`, with
    the job that won the last GPU.
    """
    return reasons_of(view, dealt, asked, _reason)


def _reason(candidate: Candidate, dealt: Dealt) -> Reason:
    gpus = dealt.counts[candidate.job.job_id]
    next_gain = candidate.gain(gpus)
    numbers = {"gpus": gpus, "max_replicas": candidate.limit, "next_gain": next_gain}
    if gpus > fewest_gpus(candidate.job):
        numbers["last_gain"] = candidate.gain(gpus - 1)
    if gpus >= candidate.limit:
        return Reason("at-limit", numbers)
    if next_gain <= 0:
        return Reason("no-gain", numbers)
    if dealt.winner is None:
        return Reason("gain-too-small", numbers)
    return Reason("gain-too-small", {**numbers, "winning_gain": dealt.winning_gain}, (dealt.winner,))


def true_step_time(job: JobView, replicas: int, node_size: int) -> float:
    """Return the true time of an optimiser step at the user's batch size, on as few nodes as possible [s]."""
    choice = split_batch_size(job.oracle.application, job.batch_size, replicas, accumulate_alone=True)
    return job.oracle.optimiser_step_time(packed(replicas, node_size), choice)
