"""Gang scheduling: whole jobs of the size their users asked for, in a given order or by a key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, islice, tee
from math import inf
from typing import Any

from polluxsim.hardware.placements import Crew, JobId, Placement
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus, place
from polluxsim.policies.tools.gang_places import GangPlaces, Heads, gpus_up, none_up
from polluxsim.policies.tools.held_by_limit import HeldByLimit
from polluxsim.policies.tools.reason_kinds import BEHIND_HEAD_OF_LINE, GANG_DOES_NOT_FIT, GANG_FITS

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
        self.heads = Heads(view)
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
            crew = self._of_one_type(wanted, self.heads.open_to(job))
        for name, count in crew:
            self._left[name] -= count
            self.left -= count
        return crew

    def pass_over(self, job: JobView) -> None:
        """Take no GPUs for a job."""

    def left_for(self, job: JobView) -> int:
        """Return the most GPUs that a job can take now."""
        if self._only is not None:
            return self.left
        usable = [self._left[name] for name in job.speeds]
        return sum(usable) if self._mixes and job.mixes_types else max(usable, default=0)

    def types_left(self, job: JobView) -> Mapping[str, int]:
        """Return the GPUs that are left of each type that a job can use; empty if their type does not matter."""
        if self._only is not None or (self._mixes and job.mixes_types):
            return {}
        return {name: self._left[name] for name in job.speeds}

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
        present_types = self._view.node_types.crew(job.placement)
        if sum(gpus for _, gpus in present_types) == wanted and all(
            gpus <= self._left[name] for name, gpus in present_types
        ):
            return present_types
        order = self.heads.open_to(job)
        crew = self._of_one_type(wanted, order)
        if crew:
            return crew
        taken = {name: 0 for name in self._view.types if name in order}
        for name in order:
            taken[name] = min(self._left[name], wanted)
            wanted -= taken[name]
        return () if wanted else tuple((name, gpus) for name, gpus in taken.items() if gpus)


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
    running job that still gets GPUs stays on its own. Jobs that start get GPUs of the nodes with the most free GPUs. A
    job that `view.limits` stops gets none, and blocks no job. By default the policy decides again at the next round.

    Parameters
    ----------
    order
        All jobs by precedence. The order is read only as far as needed.
    overtaking
        Whether a job that fits may start before a job that does not fit. Otherwise a job that does not fit blocks the
        later jobs on the GPU types that it can use.
    order_lasts_until
        Time until which no job that gets GPUs falls behind another job, unless a job arrives [s]. The policy does not
        decide again before this time, unless GPUs become free while jobs wait.
    describe
        Function that returns the sort key of a job.
    """
    # Another iterable than a list may be long, and slow to compute.
    order, again = (order, order) if isinstance(order, list) else tee(order)
    if may_all_fit(view) and len(view.types) == 1 and not view.sharing.held:
        # All jobs fit, so only the order of the jobs that start matters.
        started = start_all(view, _in_order(view.waiting, order))
        if started is not None:
            view.limits.take_note(view.jobs, started, others_keep=True)
            return Decision(
                started,
                others_keep=True,
                valid_until=order_lasts_until,
                outdated_by=Change.ARRIVAL,
                explain=lambda jobs: _all_fit(view, list(copy(again)), describe, jobs),
            )
        order = copy(again)
    at_limits = HeldByLimit(view)
    held_before = at_limits.copy()
    if view.shape_rule.anywhere:
        placements = _placed_anywhere(view, order, at_limits, overtaking=overtaking)
    else:
        placements = _placed_in_shape(view, order, lambda: copy(again), at_limits, overtaking=overtaking)
    view.limits.take_note(view.jobs, placements)
    some_wait = len(placements) < len(view.jobs)
    return Decision(
        placements,
        valid_until=order_lasts_until,
        outdated_by=Change.JOBS_OR_NODES if some_wait else Change.ARRIVAL,
        explain=lambda jobs: _reasons(
            view, lambda: copy(again), held_before, jobs, overtaking=overtaking, describe=describe
        ),
    )


def may_all_fit(view: ClusterView) -> bool:
    """Return whether the cluster has as many GPUs as all jobs request. Nodes may still be too small for a job."""
    return view.demand <= view.num_gpus


def start_all(view: ClusterView, waiting: Iterable[JobView]) -> dict[JobId, Placement] | None:
    """Return the placements of the waiting jobs on free GPUs, in order; None if some do not fit, or a limit stops some.

    Jobs do not fit if nodes are too full for them, or if other jobs hold more GPUs than they request, because an
    elastic policy ran before a fork.
    """
    free = FreeGpus.free_in(view)
    at_limits = HeldByLimit(view)
    at_limits.add(view.running)
    started = {}
    for job in waiting:
        if at_limits.stop(job) is not None:
            return None
        at_limits.add([job])
        placement = free.pack_shape(view.shape_of(job))
        if placement is None:
            return None
        started[job.job_id] = placement
    return started


def _placed_anywhere(
    view: ClusterView, order: Iterable[JobView], held: HeldByLimit, *, overtaking: bool
) -> dict[JobId, Placement]:
    """Return the placements of the jobs that fit, in order, if their GPUs may be anywhere."""
    budget = Budget(view, mixes=True)
    admitted: list[tuple[JobView, Crew]] = []

    def take(job: JobView) -> bool:
        crew = budget.take(job)
        if crew:
            admitted.append((job, crew))
        return bool(crew)

    _admit(budget, take, order, held, overtaking=overtaking)
    return place(view, admitted)


def _placed_in_shape(
    view: ClusterView,
    order: Iterable[JobView],
    again: Callable[[], Iterable[JobView]],
    held: HeldByLimit,
    *,
    overtaking: bool,
) -> dict[JobId, Placement]:
    """Return the placements of the jobs that fit in their shapes, in order. `again` returns the order again."""
    places = GangPlaces(view, again)
    _admit(places, places.take, order, held, overtaking=overtaking)
    return places.placements


def _admit(
    budget: Budget | GangPlaces,
    take: Callable[[JobView], bool],
    order: Iterable[JobView],
    held: HeldByLimit,
    *,
    overtaking: bool,
) -> None:
    """Let jobs take GPUs in order, until none is left or no later job may take any.

    `take` takes the GPUs of a job from the budget, and returns whether the job fits.
    """
    for job in order:
        if held.stop(job) is not None:
            budget.pass_over(job)
            continue
        if take(job):
            held.add([job])
            if not budget.left:
                return
        elif not overtaking:
            budget.heads.block(job)
            if budget.heads.block_all:
                return


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
    asked = set(jobs)
    gpus_left = view.num_gpus - view.demand
    available = gpus_up(view)
    reasons = {}
    for position, job in zip(range(len(ordered), 0, -1), reversed(ordered), strict=True):
        gpus_left += job.num_replicas
        if job.job_id in asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": gpus_left, **describe(job)}
            reasons[job.job_id] = Reason(GANG_FITS, numbers | available)
            if len(reasons) == len(asked):
                break
    return reasons


def _reasons(
    view: ClusterView,
    order: Callable[[], Iterable[JobView]],
    held_before: HeldByLimit,
    jobs: Sequence[JobId],
    *,
    overtaking: bool,
    describe: Describe,
) -> dict[JobId, Reason]:
    """Return the reasons of some jobs, by the same steps as `schedule_gangs`. `order` returns all jobs by precedence.

    `GANG_DOES_NOT_FIT` names the nearest earlier jobs that got GPUs, and `BEHIND_HEAD_OF_LINE` the first job that does
    not fit; a job that a limit stops has the kind of the limit. The GPUs left are those that the job could get: on
    several GPU types those of one type, unless the job mixes types. If they would be enough in all, but no nodes have
    the shape that the job needs, `node_numbers` are among the numbers.
    """
    asked = set(jobs)
    budget = Budget(view, mixes=True) if view.shape_rule.anywhere else GangPlaces(view, order)
    ahead = deque[str](maxlen=NEAREST)
    at_limits = held_before.copy()
    available = gpus_up(view)
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(order(), start=1):
        stop = at_limits.stop(job)
        if stop is not None:
            budget.pass_over(job)
            if job.job_id in asked:
                reasons[job.job_id] = stop.reason(job)
            continue
        head = budget.heads.of(job)
        gpus_left = budget.left_for(head or job)
        of_types = budget.types_left(head or job) if job.job_id in asked else {}
        fits = head is None and bool(budget.take(job))
        if job.job_id in asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": gpus_left, **describe(job)}
            numbers |= available | none_up(view, head or job)
            if of_types:
                numbers |= _numbers_of_type(of_types, budget.types_left(head or job))
            if not fits and isinstance(budget, GangPlaces):
                numbers |= budget.node_numbers(head or job)
            if head is not None:
                numbers["head_gpus_needed"] = head.num_replicas
                reasons[job.job_id] = Reason(BEHIND_HEAD_OF_LINE, numbers, (head.job_id,))
            else:
                kind = GANG_FITS if fits else GANG_DOES_NOT_FIT
                reasons[job.job_id] = Reason(kind, numbers, () if fits else tuple(ahead)[::-1])
            if len(reasons) == len(asked):
                break
        if fits:
            at_limits.add([job])
            ahead.append(job.job_id)
        elif head is None and not overtaking:
            budget.heads.block(job)
    return reasons


def _numbers_of_type(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Return the GPUs left of the type that a job took, by the GPUs of each type before and after its turn.

    If it took none, they are those of the type with the most GPUs left.
    """
    taken = [name for name in before if after[name] < before[name]]
    name = taken[0] if taken else max(before, key=before.__getitem__)
    return {"gpus_left": before[name], f"left_type {name}": before[name]}


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
    is_limited = bool(view.limits.limits)
    may_not_start = is_limited or not view.shape_rule.anywhere
    if may_not_start and preemptive and may_all_fit(view) and len(view.types) == 1:
        # If some nodes are too full for a waiting job, or a limit stops it, it may preempt running jobs.
        starting = sorted(view.waiting, key=key)
        running_first = start_all(view, starting) is not None
    else:
        running_first = not preemptive or (may_all_fit(view) and not is_limited)
    first, later = (view.running, view.waiting) if running_first else ((), view.jobs)
    order = chain(first, sorted(later, key=key))
    why_running_first = {"all_fit" if preemptive else "keeps_running": 1.0} if running_first and first else {}

    def describe_in_order(job: JobView) -> dict[str, float]:
        return {**why_running_first, **describe(job)}

    lasts = inf if running_first else lasts_until
    return schedule_gangs(view, order, order_lasts_until=lasts, describe=describe_in_order)


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
