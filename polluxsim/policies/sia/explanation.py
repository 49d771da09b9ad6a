"""Why a job got the configuration that it has: what it is worth, and which better one lost to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.policies.view import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from polluxsim.policies.sia.configurations import Configuration
    from polluxsim.policies.sia.programme import Programme
    from polluxsim.policies.view import JobView
    from polluxsim.types import JobId

NEAREST = 3
"""Jobs that are named as those to which a configuration was lost."""


def reasons(
    programme: Programme,
    jobs: Sequence[JobView],
    known: Sequence[Configuration],
    chosen: NDArray[np.int64],
    asked: Sequence[JobId],
) -> Mapping[JobId, Reason]:
    """Say of the jobs asked about which configuration won, and which would be worth most to them.

    Kinds: `best-configuration`, where nothing is worth more; `lost-configuration`, where a better one lost to the
    others, who hold most of its type; `no-configuration`, where none is allowed. Figures name configurations: `had 8
    t4` is worth in the one chosen, `best 2 a100-40` in the one worth most.
    """
    rows = {job.job_id: row for row, job in enumerate(jobs)}
    return {job_id: _reason(programme, jobs, known, chosen, rows[job_id]) for job_id in asked}


def _reason(
    programme: Programme, jobs: Sequence[JobView], known: Sequence[Configuration], chosen: NDArray[np.int64], row: int
) -> Reason:
    costs, worths, now = programme.costs[row], programme.worths[row], int(chosen[row])
    if np.isnan(costs).all():
        return Reason("no-configuration", {})
    best = int(np.nanargmin(costs))
    numbers = {} if now < 0 else {f"has {_name(known[now])}": float(worths[now])}
    if now >= 0 and costs[best] >= costs[now]:
        return Reason("best-configuration", numbers)
    numbers[f"best {_name(known[best])}"] = float(worths[best])
    numbers["saving"] = float((costs[now] if now >= 0 else 0.0) - costs[best])
    holders = [
        other
        for other in np.flatnonzero(chosen >= 0).tolist()
        if other != row and programme.types[chosen[other]] == programme.types[best]
    ]
    holders.sort(key=lambda other: -int(programme.gpus[chosen[other]]))
    return Reason("lost-configuration", numbers, tuple(jobs[other].job_id for other in holders[:NEAREST]))


def _name(configuration: Configuration) -> str:
    return f"{configuration.gpus} {configuration.gpu_type}"
