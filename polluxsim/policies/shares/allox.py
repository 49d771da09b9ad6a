"""AlloX: a matching of jobs with places in the queues of GPUs that minimises the mean completion time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from polluxsim.errors import check_number
from polluxsim.policies.shares.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.policies.shares.demand import Array, Demand
    from polluxsim.policies.shares.solving import Solver
    from polluxsim.types import JobId


@dataclass
class AlloX(Rule):
    """Give each free GPU to the job that goes first in the schedule with the least mean completion time.

    On unrelated machines Σ completion times is a matching: a job that is the k-th from last on a machine delays k jobs,
    itself included, by its time there (Horn, 1973; Bruno, Coffman and Sethi, 1974). That holds for jobs of one GPU.
    A gang of g has a share of 1/g, as Gavel has it. A job with all of the time keeps it to its end.

    Parameters
    ----------
    oldest
        α: share of the waiting jobs that the matching takes, the oldest first; in (0, 1]. It takes at least as many
        jobs as GPUs are free.

    Source: Le et al., AlloX (EuroSys '20), as in Gavel (OSDI '20).
    """

    oldest: float = 0.2
    _last: dict[JobId, Array] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_number("policy.shares.oldest", self.oldest, 0 < self.oldest <= 1, "a number above 0, up to 1")

    def of(self, demand: Demand, solve: Solver) -> Array:
        shares = np.array([self._last.get(job, np.zeros(len(demand.types))) for job in demand.jobs])
        free = demand.gpus - (shares == 1).sum(axis=0)
        waiting = np.flatnonzero(shares.sum(axis=1) != 1)
        oldest = waiting[np.argsort(-demand.ages[waiting], kind="stable")]
        some = oldest[: max(int(self.oldest * len(waiting)), int(free.sum()))]
        left, speeds, ages = demand.left[some, None], demand.speeds[some], demand.ages[some]
        for job, gpu_type in matched(left, speeds, ages, free, demand.types):
            shares[some[job], gpu_type] = 1 / demand.widths[some[job]]
        self._last = dict(zip(demand.jobs, shares, strict=True))
        return shares.copy()


def matched(left: Array, speeds: Array, ages: Array, free: Array, types: Sequence[str]) -> list[tuple[int, int]]:
    """Return which job goes first on each GPU, as pairs of a job and a type.

    Steps left have shape (jobs, 1); speeds (jobs, types) [steps/s], 0 where a job cannot run. Ages [s] only order what
    is equal but for rounding. GPUs are ordered by the names of their types.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  (slow to load)

    order = sorted(range(len(types)), key=types.__getitem__)
    gpus = [name for name in order for _ in range(int(free[name]))]
    if not gpus or not len(left):
        return []
    with np.errstate(divide="ignore"):
        times = (left / speeds)[:, gpus]
    times = np.where(np.isinf(times), 1e6 * times[np.isfinite(times)].max(), times)
    places = np.arange(1, len(left) + 1)
    costs = (places[None, :, None] * times[:, None, :]).reshape(len(left), -1) + ages[:, None]
    first: dict[int, tuple[int, int]] = {}
    for job, column in zip(*linear_sum_assignment(costs), strict=True):
        place, gpu = divmod(int(column), len(gpus))
        first[gpu] = max(first.get(gpu, (-1, -1)), (place, int(job)))
    return [(job, gpus[gpu]) for gpu, (_, job) in first.items() if speeds[job, gpus[gpu]] > 0]
