"""Numbers of GPUs with the largest sum of values over jobs, and the reasons that compare them.

`best_counts` is the programme of `EffectiveScaling`, and of the auction of `Themis`. Values of jobs are compared at one
unit, so that equal sums are equal, and the choice among them does not depend on rounding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, Reason
from polluxsim.policies.elastic.reason_kinds import LARGEST_SUM
from polluxsim.policies.tools.gangs import NEAREST
from polluxsim.policies.tools.gpu_counts import counts_of, fewest_gpus
from polluxsim.policies.tools.reason_kinds import BEHIND_HEAD_OF_LINE, NO_LEAST_LEFT


class Head(NamedTuple):
    """The first job that does not fit. No job may overtake it."""

    job_id: JobId
    fewest_gpus: int
    gpus_left: int  # GPUs that earlier jobs leave


def best_counts(values: Sequence[Mapping[int, float]], num_gpus: int) -> list[int]:
    """Return the number of GPUs of each job that maximises the sum of values.

    `values` contains the value of each number of GPUs that a job can get. There must be enough GPUs for the smallest
    number of each job.
    """
    # Dynamic programming over the jobs: the arrays have an entry for each number of GPUs that the jobs so far take.
    best_sums = np.zeros(num_gpus + 1)
    choices = []  # GPUs of each job in the best sum
    for values_of_job in values:
        sums = np.full(num_gpus + 1, -np.inf)
        chosen = np.zeros(num_gpus + 1, dtype=int)
        for gpus, exact in values_of_job.items():
            value = sort_key(exact, now=1.0)  # multiples of one unit: their sums are exact, and so are ties
            with_these = np.full(num_gpus + 1, -np.inf)
            with_these[gpus:] = best_sums[: max(num_gpus + 1 - gpus, 0)] + value
            # At a tie, the smaller number of GPUs stays, which came first.
            is_better = with_these > sums
            sums[is_better] = with_these[is_better]
            chosen[is_better] = gpus
        best_sums = sums
        choices.append(chosen)
    # The choices are read backwards, from the number of GPUs with the largest sum.
    counts = []
    # The first maximum is the one with the fewest GPUs, so GPUs without effect stay free.
    gpus_left = int(best_sums.argmax())
    for chosen in reversed(choices):
        gpus = int(chosen[gpus_left])
        counts.append(gpus)
        gpus_left -= gpus
    return counts[::-1]


def reasons_by_speedup(
    view: ClusterView,
    speedups: Mapping[JobId, Mapping[int, float]],
    counts: Mapping[JobId, int],
    head: Head | None,
    asked: Sequence[JobId],
) -> dict[JobId, Reason]:
    """Return the reasons of the jobs in `asked`.

    `speedups` and `counts` contain the admitted jobs, with their speedups by numbers of GPUs and their GPUs.
    """
    wanted = set(asked)
    gpus_left = view.num_gpus - sum(counts.values())
    is_behind_head = False
    ahead = deque[JobId](maxlen=NEAREST)  # the last admitted jobs
    losses: list[tuple[float, JobId]] = []  # loss of speedup of each job by one GPU fewer
    for job_id, gpus in counts.items():
        speedups_of_job = speedups[job_id]
        if gpus - 1 in speedups_of_job:
            losses.append((speedups_of_job[gpus] - speedups_of_job[gpus - 1], job_id))
    # Two are enough: a job is compared with another one.
    least_losses = nsmallest(2, losses)
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(view.jobs, start=1):
        job_id = job.job_id
        if job_id in counts:
            if job_id in wanted:
                gpus = counts[job_id]
                reasons[job_id] = _reason_in_sum(job_id, gpus, speedups, least_losses, view.num_gpus, gpus_left)
            ahead.append(job_id)
        elif job_id in wanted and is_behind_head and head is not None:
            numbers = {
                "position": position,
                "arrived": job.submit_time,
                "gpus_needed": min(counts_of(job, view.num_gpus), default=fewest_gpus(job)),
                "gpus_left": head.gpus_left,
                "head_gpus_needed": head.fewest_gpus,
            }
            reasons[job_id] = Reason(BEHIND_HEAD_OF_LINE, numbers, (head.job_id,))
        elif job_id in wanted:
            numbers = {
                "gpus_left": view.num_gpus if head is None else head.gpus_left,
                "fewest_gpus": job.gang_size or fewest_gpus(job),
                "num_gpus": view.num_gpus,
            }
            reasons[job_id] = Reason(NO_LEAST_LEFT, numbers, tuple(ahead)[::-1])
        if head is not None and job_id == head.job_id:
            is_behind_head = True
    return reasons


def _reason_in_sum(
    job_id: JobId,
    gpus: int,
    speedups: Mapping[JobId, Mapping[int, float]],
    least_losses: Sequence[tuple[float, JobId]],
    num_gpus: int,
    gpus_left: int,
) -> Reason:
    """Return the speedup of a job on its GPUs and on one more, and the other job that would lose least by one fewer.

    `speedups` are those of each job by GPUs. `least_losses` are at least the two least losses, with their jobs.
    `gpus_left` are the GPUs that no job gets.
    """
    speedups_of_job = speedups[job_id]
    numbers = {
        "num_gpus": num_gpus,
        "gpus": gpus,
        "speedup": speedups_of_job[gpus],
        "gpus_left": gpus_left,
        "fewest_gpus": min(speedups_of_job),
        "most_gpus": max(speedups_of_job),
    }
    if gpus + 1 not in speedups_of_job:
        return Reason(LARGEST_SUM, numbers)
    numbers["speedup_more"] = speedups_of_job[gpus + 1]
    for loss, other in least_losses:
        if other != job_id:
            return Reason(LARGEST_SUM, {**numbers, "loss_other": loss}, (other,))
    return Reason(LARGEST_SUM, numbers)
