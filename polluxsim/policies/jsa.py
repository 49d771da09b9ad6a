"""Effective elastic scaling: the GPUs that make the sum of speedups largest, by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.policies.elastic import AtEvents, TrueTimes, counts_of, dealt
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


@pool_per_type
@dataclass
class EffectiveScaling(AtEvents):
    """Admit jobs in order of submission as long as all have their least GPUs, and share all for the most speedup.

    The speedup of a job is over its least GPUs, by true speeds. GPUs change at arrivals and ends only.

    Source: JSA in Saxena et al., "Effective Elastic Scaling of Deep Learning Workloads" (MASCOTS '20), at the batch
    sizes that users asked for.
    """

    _times: TrueTimes = field(default_factory=TrueTimes, init=False, repr=False)

    def decide(self, view: ClusterView) -> Decision:
        """Solve the programme."""
        self._times.forget(view.changes.ended)
        values, left = dict[str, dict[int, float]](), view.num_gpus
        for job in view.jobs:
            times = self._times.on(view, job, counts_of(job, view.num_gpus))
            least = min(times, default=left + 1)
            if least <= left:
                left -= least
                values[job.job_id] = {gpus: times[least] / time for gpus, time in times.items()}
        counts = dict(zip(values, best_counts(list(values.values()), view.num_gpus), strict=True))
        return dealt(view, counts, lambda asked: {name: _reason(name, values, counts, left) for name in asked})


def _reason(
    job_id: JobId, values: Mapping[JobId, Mapping[int, float]], counts: Mapping[JobId, int], left: int
) -> Reason:
    """Say what a job got. Kinds: `largest-sum`, and `no-least-left`."""
    if job_id not in counts:
        return Reason("no-least-left", {"gpus_left": left})
    gpus = counts[job_id]
    more = values[job_id].get(gpus + 1)
    numbers = {"gpus": gpus, "speedup": values[job_id][gpus]}
    return Reason("largest-sum", numbers if more is None else {**numbers, "speedup_more": more})
