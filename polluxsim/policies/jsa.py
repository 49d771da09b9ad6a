"""Effective elastic scaling: the GPUs that make the sum of speedups largest, by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.policies.elastic import AtEvents, TrueTimes, counts_of, dealt, fewest_gpus
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.policies.view import ClusterView, Decision
    from polluxsim.types import JobId


def best_counts(values: Sequence[Mapping[int, float]], num_gpus: int) -> list[int]:
    """Return the number of GPUs of each job that makes the sum of values largest.

    Every job gets one of the numbers that have a value for it; the GPUs must be enough for the least of all of them.
    """
    best = np.zeros(num_gpus + 1)
    choices = []
    for worth in values:
        reached, chosen = np.full(num_gpus + 1, -np.inf), np.zeros(num_gpus + 1, dtype=int)
        for gpus, value in worth.items():
            with_these = np.full(num_gpus + 1, -np.inf)
            with_these[gpus:] = best[: max(num_gpus + 1 - gpus, 0)] + value
            better = with_these > reached
            reached[better], chosen[better] = with_these[better], gpus
        best = reached
        choices.append(chosen)
    counts, left = [], int(best.argmax())
    for chosen in reversed(choices):
        counts.append(int(chosen[left]))
        left -= counts[-1]
    return counts[::-1]


class Head(NamedTuple):
    """The first job that does not fit."""

    job_id: JobId
    gpus: int  # its fewest GPUs
    left: int  # GPUs that earlier jobs leave


@pool_per_type
@dataclass
class EffectiveScaling(AtEvents):
    """Admit jobs in order of submission while all have their fewest GPUs, and share the GPUs for the largest speedup.

    No job overtakes: the first job that does not fit holds up the later ones. A job that cannot run on the GPUs that
    are up is passed over. The speedup of a job is relative to its fewest GPUs, by true speeds. GPUs change at arrivals
    and completions only.

    Source: JSA in Saxena et al., "Effective Elastic Scaling of Deep Learning Workloads" (MASCOTS '20), at the batch
    sizes of the users.
    """

    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Admit jobs, and solve the programme."""
        self._times.forget(view.changes.ended)
        values, left, head = dict[str, dict[int, float]](), view.num_gpus, None
        for job in view.jobs:
            times = self._times.on(view, job, counts_of(job, view.num_gpus))
            fewest = min(times, default=0)
            if left < fewest <= view.num_gpus:
                head = Head(job.job_id, fewest, left)
                break
            if 0 < fewest <= left:
                left -= fewest
                values[job.job_id] = {gpus: times[fewest] / time for gpus, time in times.items()}
        counts = dict(zip(values, best_counts(list(values.values()), view.num_gpus), strict=True))
        return dealt(view, counts, lambda asked: _reasons(view, values, counts, head, asked))


def _reasons(
    view: ClusterView,
    values: Mapping[JobId, Mapping[int, float]],
    counts: Mapping[JobId, int],
    head: Head | None,
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Return why jobs get their GPUs. Kinds: `largest-sum`, `no-least-left`, and `behind-head-of-line`."""
    wanted, is_behind = set(asked), False
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(view.jobs, start=1):
        if job.job_id not in wanted:
            pass
        elif job.job_id in counts:
            reasons[job.job_id] = _admitted(counts[job.job_id], values[job.job_id])
        elif head is None or not is_behind:
            reasons[job.job_id] = Reason("no-least-left", {"gpus_left": view.num_gpus if head is None else head.left})
        else:
            needed = min(counts_of(job, view.num_gpus), default=fewest_gpus(job))
            numbers = {"position": position, "gpus_needed": needed}
            numbers |= {"gpus_left": head.left, "head_gpus_needed": head.gpus}
            reasons[job.job_id] = Reason("behind-head-of-line", numbers, (head.job_id,))
        is_behind = is_behind or (head is not None and job.job_id == head.job_id)
    return reasons


def _admitted(gpus: int, speedups: Mapping[int, float]) -> Reason:
    numbers = {"gpus": gpus, "speedup": speedups[gpus]}
    if (more := speedups.get(gpus + 1)) is not None:
        numbers["speedup_more"] = more
    return Reason("largest-sum", numbers)
