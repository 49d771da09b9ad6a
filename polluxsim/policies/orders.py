"""Gangs by a key: what all policies share that are no more than an order of the queue."""

from __future__ import annotations

from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from polluxsim.errors import check_number
from polluxsim.policies.gangs import schedule_gangs

if TYPE_CHECKING:
    from collections.abc import Callable

    from polluxsim.policies.gangs import Describe
    from polluxsim.policies.view import ClusterView, Decision, JobView

NEARLY = 1 - 1e-9
"""Asking early is free; asking late, after rounding, is not."""


def gangs_by(
    view: ClusterView,
    key: Callable[[JobView], Any],
    describe: Describe,
    *,
    preemptive: bool = True,
    lasts_until: float = inf,
) -> Decision:
    """Give GPUs to whole jobs by rising key, ties in order of submission; one that fits may overtake one that does not.

    Parameters
    ----------
    view
        The cluster now.
    key
        What a job is ordered by, for as long as nothing happens or to its advantage while it runs.
    describe
        Figures that say why a job stands where it does.
    preemptive
        Whether jobs that run stand in the queue like all others, or before them all.
    lasts_until
        Time until which no job that runs falls behind one that waits [s].
    """
    everybody_fits = view.demand <= view.num_gpus
    stay = everybody_fits or not preemptive
    first, others = (view.running, view.waiting) if stay else ((), view.jobs)
    order = chain(first, sorted(others, key=key))
    return schedule_gangs(view, order, order_lasts_until=inf if stay else lasts_until, describe=describe)


def check_above_zero(**values: float) -> None:
    """Check parameters of a policy.

    Raises
    ------
    InvalidConfigError
        If one is not a finite number above 0.
    """
    for name, value in values.items():
        check_number(f"policy.{name}", value, value > 0, "a finite number > 0")
