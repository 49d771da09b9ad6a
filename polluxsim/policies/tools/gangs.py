"""Gang scheduling: whole jobs of the size their users asked for, in a given order or by a key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, islice, tee
from math import inf
from typing import Any

from polluxsim.common.errors import check_range
from polluxsim.hardware.placements import Crew, JobId
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus, place

Describe = Callable[[JobView], Mapping[str, float]]  # returns the sort key of a job, as numbers of a reason by name


class Budget:
    """The GPUs of each type of a cluster that are left while jobs take GPUs one after the other.

    With `mixes`, jobs that can use several types at once take GPUs of several types if no type has enough.
    """

    def __init__(self, view: ClusterView, *, mixes: bool = False) -> None:
        self._view = view
        self._mixes = mixes
        self._left = {name: view.gpus_of(name) for name in view.types}
        self._only = next(iter(self._left)) if len(self._left) == 1 else None
        self.left = sum(self._left.values())  # GPUs of all types that are left

    def take(self, job: JobView, gpus: int | None = None) -> Crew:
        """Take GPUs for a job, by default as many as it requests; return their types, or nothing if they do not fit.

        The GPUs are of the type on which the job runs, otherwise of its fastest type with enough GPUs.
        """
        wanted = job.num_replicas if gpus is None else gpus
        if wanted > self.left:
            return ()
        if self._only is None and self._mixes and job.mixes_types:
            crew = self._mixed(job, wanted)
        else:
            crew = self._of_one_type(wanted, [self._only] if self._only else self._by_preference(job))
        for name, count in crew:
            self._left[name] -= count
            self.left -= count
        return crew

    def left_for(self, job: JobView) -> int:
        """Return the most GPUs that a job can take now."""
        if self._only is not None:
            return self.left
        usable = [self._left[name] for name in job.speeds]
        return sum(usable) if self._mixes and job.mixes_types else max(usable, default=0)

    def take_one_more(self, gpu_type: str) -> bool:
        """Take one GPU of a type; return False if none is left."""
        if not self._left[gpu_type]:
            return False
        self._left[gpu_type] -= 1
        self.left -= 1
        return True

    def _of_one_type(self, wanted: int, order: Sequence[str]) -> Crew:
        for name in order:
            if wanted <= self._left[name]:
                return ((name, wanted),)
        return ()

    def _mixed(self, job: JobView, wanted: int) -> Crew:
        """Return the GPUs that a job holds, else GPUs of one type, else of several types; nothing if too few."""
        held = self._view.node_types.crew(job.placement)
        if sum(gpus for _, gpus in held) == wanted and all(gpus <= self._left[name] for name, gpus in held):
            return held
        order = self._by_preference(job)
        if crew := self._of_one_type(wanted, order):
            return crew
        taken = {name: 0 for name in self._view.types if name in order}
        for name in order:
            taken[name] = min(self._left[name], wanted)
            wanted -= taken[name]
        return () if wanted else tuple((name, gpus) for name, gpus in taken.items() if gpus)

    def _by_preference(self, job: JobView) -> Sequence[str]:
        """Return the types that a job can use: first the type on which it runs, then the fastest."""
        speeds, here = job.speeds, self._view.type_of(job.placement) if job.placement else None
        return sorted(speeds, key=lambda name: (name != here, -speeds[name]))


NEAREST = 3  # largest number of jobs just ahead of a waiting job that a reason names


def schedule_gangs(
    view: ClusterView,
    order: Iterable[JobView],
    *,
    overtaking: bool = True,
    order_lasts_until: float = -inf,
    describe: Describe = lambda job: {},
) -> Decision:
    """Give GPUs to as many whole jobs as fit, in order.

    The order decides for running jobs too: if the GPUs do not suffice, a running job that comes later in the order is
    paused, and a job before it gets the GPUs. `[*view.running, *view.waiting]` as the order never pauses a job. A
    running job that still gets GPUs stays on its own. Jobs that start get GPUs of the nodes with the most free GPUs. By
    default the policy decides again at the next round.

    Parameters
    ----------
    order
        All jobs by precedence. The order is read only as far as needed.
    overtaking
        Whether a job that fits may start before a job that does not fit.
    order_lasts_until
        Time until which no job that gets GPUs falls behind another job, unless a job arrives [s]. The policy does not
        decide again before this time, unless GPUs become free while jobs wait.
    describe
        Function that returns the sort key of a job.
    """
    # Another iterable than a list may be long, and slow to compute.
    order, again = (order, order) if isinstance(order, list) else tee(order)
    if view.demand <= view.num_gpus and len(view.types) == 1 and not view.sharing.held:
        # All jobs fit, so only the order of the jobs that start matters.
        free = FreeGpus(view.free)
        started = {job.job_id: free.pack(job.num_replicas) or () for job in _in_order(view.waiting, order)}
        # Jobs hold more GPUs than they request if an elastic policy ran before a fork. They give back GPUs below.
        if all(started.values()):
            return Decision(
                started,
                others_keep=True,
                valid_until=order_lasts_until,
                outdated_by=Change.ARRIVAL,
                explain=lambda jobs: _all_fit(view, list(copy(again)), describe, jobs),
            )
        order = copy(again)
    budget = Budget(view, mixes=True)
    admitted: list[tuple[JobView, Crew]] = []
    for job in order:
        if crew := budget.take(job):
            admitted.append((job, crew))
            if not budget.left:
                break
        elif not overtaking:
            break
    some_wait = len(admitted) < len(view.jobs)
    return Decision(
        place(view, admitted),
        valid_until=order_lasts_until,
        outdated_by=Change.JOBS_OR_NODES if some_wait else Change.ARRIVAL,
        explain=lambda jobs: _reasons(view, copy(again), jobs, overtaking=overtaking, describe=describe),
    )


def _in_order(jobs: Sequence[JobView], order: Iterable[JobView]) -> Iterable[JobView]:
    """Return some jobs in the order of all jobs. The order is read only as far as needed."""
    if len(jobs) < 2:
        return jobs
    wanted = {job.job_id for job in jobs}
    return islice((job for job in order if job.job_id in wanted), len(wanted))


def _all_fit(
    view: ClusterView, ordered: Sequence[JobView], describe: Describe, jobs: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons of some jobs if all jobs fit.

    Most often these jobs are the last ones, so the order is read from its end.
    """
    asked, left, reasons = set(jobs), view.num_gpus - view.demand, {}
    for position, job in zip(range(len(ordered), 0, -1), reversed(ordered), strict=True):
        left += job.num_replicas
        if job.job_id in asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": left, **describe(job)}
            reasons[job.job_id] = Reason("gang-fits", numbers)
            if len(reasons) == len(asked):
                break
    return reasons


def _reasons(
    view: ClusterView, order: Iterable[JobView], jobs: Sequence[JobId], *, overtaking: bool, describe: Describe
) -> dict[JobId, Reason]:
    """Return the reasons of some jobs, by the same steps as `schedule_gangs`.

    Kinds: `gang-fits`; `gang-does-not-fit` with the nearest earlier jobs that got GPUs; and `behind-head-of-line` with
    the first job that does not fit, which no job may overtake. The GPUs left are those that the job could get: on
    several GPU types those of one type, unless the job mixes types.
    """
    asked, budget, head = set(jobs), Budget(view, mixes=True), None
    ahead = deque[str](maxlen=NEAREST)
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(order, start=1):
        left = budget.left_for(head or job)
        fits = head is None and bool(budget.take(job))
        if job.job_id in asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": left, **describe(job)}
            if head is not None:
                numbers["head_gpus_needed"] = head.num_replicas
                reasons[job.job_id] = Reason("behind-head-of-line", numbers, (head.job_id,))
            else:
                kind = "gang-fits" if fits else "gang-does-not-fit"
                reasons[job.job_id] = Reason(kind, numbers, () if fits else tuple(ahead)[::-1])
            if len(reasons) == len(asked):
                break
        if fits:
            ahead.append(job.job_id)
        elif head is None and not overtaking:
            head = job
    return reasons


def gangs_by(
    view: ClusterView,
    key: Callable[[JobView], Any],
    describe: Describe,
    *,
    preemptive: bool = True,
    lasts_until: float = inf,
) -> Decision:
    """Give GPUs to whole jobs in ascending order of a key; jobs with equal keys stay in order of submission.

    A job that fits may start before a job that does not fit.

    Parameters
    ----------
    key
        Sort key of a job. The key may only fall while the job runs, unless an event happens.
    describe
        As in `schedule_gangs`.
    preemptive
        Whether running jobs are sorted with the waiting jobs, instead of before them.
    lasts_until
        Time until which no running job falls behind a waiting job [s].
    """
    all_fit = view.demand <= view.num_gpus
    running_first = all_fit or not preemptive
    first, others = (view.running, view.waiting) if running_first else ((), view.jobs)
    order = chain(first, sorted(others, key=key))
    return schedule_gangs(view, order, order_lasts_until=inf if running_first else lasts_until, describe=describe)


def newcomers(view: ClusterView, known: Collection[JobId]) -> Sequence[JobView]:
    """Return the jobs that arrived since the last decision, and those of a run that the policy has just taken over.

    `known` are the jobs that the policy knows; it may still contain jobs that have ended.
    """
    ended = view.changes.ended
    num_known = len(known) - sum(job_id in known for job_id in ended)
    arrived = view.changes.arrived
    if num_known + len(arrived) >= len(view.jobs):
        return arrived
    return [job for job in view.jobs if job.job_id not in known]


def check_above_zero(**values: float) -> None:
    """Raise an `InvalidConfigError` unless these parameters of a policy are finite numbers above 0."""
    for name, value in values.items():
        check_range(f"policy.{name}", value, above=0)
