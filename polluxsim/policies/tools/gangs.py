"""Gang scheduling: whole jobs of the size their users asked for, in a given order or by a key.

`schedule_gangs` goes through the jobs in an order and gives GPUs to each job that fits; `gangs_by` sorts the jobs by a
key first. Every job takes GPUs of a `Budget`, or of `GangPlaces` if its GPUs must be spread over nodes in its shape.

Invariants: a job gets all GPUs that it requests, or none; the reasons follow from a second pass by the same steps, so
that they are true of the first.

The trap: an order may be slow to compute, and most decisions need only its beginning. It is therefore an iterator, and
the second pass reads a copy of it.
"""

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

# Function that returns what orders a job, as numbers of a reason by name.
Describe = Callable[[JobView], Mapping[str, float]]

# Largest number of jobs just ahead of a waiting job that a reason names.
NEAREST = 3


# Numbers that order jobs alone, which a reason states of the nearest job ahead too.
VALUES_AHEAD = frozenset(("remaining_time", "remaining_service", "expected_service", "attained_service", "deadline"))


class Budget:
    """The GPUs of each type of a cluster that are left while jobs take GPUs one after the other.

    With `mixes`, jobs that can use several types at once take GPUs of several types if no type has enough.
    """

    def __init__(self, view: ClusterView, *, mixes: bool = False) -> None:
        self._view = view
        self._mixes = mixes
        self._left = {name: view.gpus_of(name) for name in view.types}
        self._has_one_type = len(self._left) == 1
        self.heads = Heads(view)
        self.left = sum(self._left.values())  # GPUs of all types that are left

    def take(self, job: JobView, gpus: int | None = None) -> Crew:
        """Take GPUs for a job, by default as many as it requests; return their types, or nothing if they do not fit.

        The GPUs are of the type on which the job runs, otherwise of its fastest type with enough GPUs.
        """
        wanted = job.num_replicas if gpus is None else gpus
        # Most jobs of a long queue stop here, before their types are read.
        if wanted > self.left:
            return ()
        if self._may_mix(job):
            crew = self._mixed(job, wanted)
        else:
            crew = self._of_one_type(wanted, self.heads.open_to(job))
        for name, count in crew:
            self._left[name] -= count
            self.left -= count
        return crew

    def pass_over(self, job: JobView) -> None:
        """Take no GPUs for a job. `GangPlaces` has the same method, in which the job loses its GPUs."""

    def left_for(self, job: JobView) -> int:
        """Return the most GPUs that a job can take now."""
        if self._has_one_type:
            return self.left
        usable = [self._left[name] for name in job.speeds]
        if self._may_mix(job):
            return sum(usable)
        return max(usable, default=0)

    def types_left(self, job: JobView) -> Mapping[str, int]:
        """Return the GPUs that are left of each type that a job can use; empty if their type does not matter."""
        if self._has_one_type or self._may_mix(job):
            return {}
        return {name: self._left[name] for name in job.speeds}

    def take_one_more(self, gpu_type: str) -> bool:
        """Take one GPU of a type; return False if none is left."""
        if not self._left[gpu_type]:
            return False
        self._left[gpu_type] -= 1
        self.left -= 1
        return True

    def _may_mix(self, job: JobView) -> bool:
        """Return whether a job may get GPUs of several types at once."""
        return self._mixes and not self._has_one_type and job.mixes_types

    def _of_one_type(self, wanted: int, order: Sequence[str]) -> Crew:
        """Return GPUs of the first type with enough GPUs; nothing if no type has enough."""
        for name in order:
            if wanted <= self._left[name]:
                return ((name, wanted),)
        return ()

    def _mixed(self, job: JobView, wanted: int) -> Crew:
        """Return the GPUs that a job holds, else GPUs of one type, else of several types; nothing if too few."""
        present_types = self._view.node_types.crew(job.placement)
        present_gpus = sum(gpus for _, gpus in present_types)
        if present_gpus == wanted and self._has(present_types):
            return present_types
        order = self.heads.open_to(job)
        crew = self._of_one_type(wanted, order)
        if crew:
            return crew
        return self._of_several_types(wanted, order)

    def _has(self, crew: Crew) -> bool:
        """Return whether the GPUs of a crew are left."""
        return all(gpus <= self._left[name] for name, gpus in crew)

    def _of_several_types(self, wanted: int, order: Sequence[str]) -> Crew:
        """Return GPUs of types in an order, as many of each type as are left; nothing if they are too few."""
        missing = wanted
        taken: dict[str, int] = {}
        for name in order:
            taken[name] = min(self._left[name], missing)
            missing -= taken[name]
        if missing:
            return ()
        # In the order of the types of the cluster, as `NodeTypes.crew` names the GPUs that a job holds.
        return tuple((name, taken[name]) for name in self._view.types if taken.get(name))


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
    unread: Iterable[JobView]
    if isinstance(order, list):
        unread = order
    else:
        # Another iterable than a list may be long, and slow to compute. It is read once, and only as far as needed.
        order, unread = tee(order)

    def order_again() -> Iterable[JobView]:
        # A copy of an iterator of `tee` reads all jobs, because nothing reads `unread` itself.
        return copy(unread)

    has_equal_gpus = len(view.types) == 1 and not view.sharing.held
    if has_equal_gpus and may_all_fit(view):
        # All jobs fit, so only the order of the jobs that start matters.
        started = start_all(view, _in_order(view.waiting, order))
        if started is not None:
            view.limits.take_note(view.jobs, started, others_keep=True)
            return Decision(
                started,
                others_keep=True,
                valid_until=order_lasts_until,
                outdated_by=Change.ARRIVAL,
                explain=lambda jobs: _reasons_if_all_fit(view, list(order_again()), describe, jobs),
            )
        order = order_again()
    at_limits = HeldByLimit(view)
    # The reasons count again from here, after the jobs below are counted.
    held_before = at_limits.copy()
    if view.shape_rule.anywhere:
        placements = _placed_anywhere(view, order, at_limits, overtaking=overtaking)
    else:
        placements = _placed_in_shape(view, order, order_again, at_limits, overtaking=overtaking)
    view.limits.take_note(view.jobs, placements)
    some_wait = len(placements) < len(view.jobs)
    # If no job waits, GPUs that become free are of no use.
    outdated_by = Change.JOBS_OR_NODES if some_wait else Change.ARRIVAL
    return Decision(
        placements,
        valid_until=order_lasts_until,
        outdated_by=outdated_by,
        explain=lambda jobs: _reasons(view, order_again, held_before, jobs, overtaking=overtaking, describe=describe),
    )


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
    if preemptive:
        running_first = _none_is_preempted(view, key)
        why_running_first = {"all_fit": 1.0}
    else:
        running_first = True
        why_running_first = {"keeps_running": 1.0}
    order: Iterable[JobView]
    if running_first:
        order = chain(view.running, sorted(view.waiting, key=key))
        order_lasts_until = inf
    else:
        order = sorted(view.jobs, key=key)
        order_lasts_until = lasts_until
    if not (running_first and view.running):
        why_running_first = {}

    def describe_in_order(job: JobView) -> dict[str, float]:
        return {**why_running_first, **describe(job)}

    return schedule_gangs(view, order, order_lasts_until=order_lasts_until, describe=describe_in_order)


def _none_is_preempted(view: ClusterView, key: Callable[[JobView], Any]) -> bool:
    """Return whether no job preempts another one, because the cluster has enough GPUs for all jobs.

    With one GPU type, all jobs must also fit on the nodes and within the limits. With several types and no limits, the
    total number of GPUs decides, so a job may still wait for GPUs of a type.
    """
    if not may_all_fit(view):
        return False
    is_limited = bool(view.limits.limits)
    may_not_start = is_limited or not view.shape_rule.anywhere
    if may_not_start and len(view.types) == 1:
        # If some nodes are too full for a waiting job, or a limit stops it, it may preempt running jobs.
        return start_all(view, sorted(view.waiting, key=key)) is not None
    return not is_limited


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
    # One job needs no order, and is the usual case.
    if len(jobs) < 2:
        return jobs
    wanted = {job.job_id for job in jobs}
    wanted_in_order = (job for job in order if job.job_id in wanted)
    # Without the slice, the order would be read to its end after the last wanted job.
    return islice(wanted_in_order, len(wanted))


def _reasons_if_all_fit(
    view: ClusterView, ordered: Sequence[JobView], describe: Describe, jobs: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Return the reasons of some jobs if all jobs fit. `ordered` contains all jobs by precedence."""
    asked = set(jobs)
    gpus_left = view.num_gpus - view.demand
    available = gpus_up(view)
    position = len(ordered)
    reasons: dict[JobId, Reason] = {}
    # Most often the jobs are the last ones, so the order is read from its end.
    for job in reversed(ordered):
        gpus_left += job.num_replicas
        if job.job_id in asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": gpus_left, **describe(job)}
            reasons[job.job_id] = Reason(GANG_FITS, numbers | available)
            if len(reasons) == len(asked):
                break
        position -= 1
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
    budget: Budget | GangPlaces
    if view.shape_rule.anywhere:
        budget = Budget(view, mixes=True)
    else:
        budget = GangPlaces(view, order)
    just_ahead = deque[JobView](maxlen=NEAREST)
    at_limits = held_before.copy()
    available = gpus_up(view)
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(order(), start=1):
        is_asked = job.job_id in asked
        stop = at_limits.stop(job)
        if stop is not None:
            budget.pass_over(job)
            if is_asked:
                reasons[job.job_id] = stop.reason(job)
            continue
        head = budget.heads.of(job)
        # A job behind a head gets GPUs after the head, so its reason states what is left for the head.
        next_job = job if head is None else head
        gpus_left = budget.left_for(next_job)
        types_before = budget.types_left(next_job) if is_asked else {}
        fits = head is None and bool(budget.take(job))
        if is_asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": gpus_left, **describe(job)}
            numbers |= available | none_up(view, next_job)
            if types_before:
                numbers |= _numbers_of_type(types_before, budget.types_left(next_job))
            if not fits and isinstance(budget, GangPlaces):
                numbers |= budget.node_numbers(next_job)
            if just_ahead and not fits:
                numbers |= numbers_ahead(describe(just_ahead[-1]))
            reasons[job.job_id] = _reason(numbers, head, just_ahead, fits=fits)
            if len(reasons) == len(asked):
                break
        if fits:
            at_limits.add([job])
            just_ahead.append(job)
        elif head is None and not overtaking:
            budget.heads.block(job)
    return reasons


def _reason(numbers: Mapping[str, float], head: JobView | None, just_ahead: Iterable[JobView], *, fits: bool) -> Reason:
    """Return the reason of a job with a head that blocks it, or None, and the nearest jobs ahead, the nearest last."""
    if head is not None:
        return Reason(BEHIND_HEAD_OF_LINE, {**numbers, "head_gpus_needed": head.num_replicas}, (head.job_id,))
    if fits:
        return Reason(GANG_FITS, numbers)
    farthest_first = [job.job_id for job in just_ahead]
    return Reason(GANG_DOES_NOT_FIT, numbers, tuple(farthest_first[::-1]))


def numbers_ahead(described: Mapping[str, float]) -> dict[str, float]:
    """Return the value that orders the nearest job ahead, as a number of the reason of a job that does not fit.

    `described` contains what orders the job ahead. The value is left out if running jobs go first, because it does not
    decide then, and if a policy orders jobs by several values.
    """
    if "all_fit" in described or "keeps_running" in described:
        return {}
    if not described.get("learnt_jobs", 1.0):
        return {}
    names = described.keys() - {"learnt_jobs", "submission_next"}
    if len(names) != 1 or not names <= VALUES_AHEAD:
        return {}
    (name,) = names
    return {f"ahead_{name}": described[name]}


def _numbers_of_type(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, float]:
    """Return the GPUs left of the type that a job took, by the GPUs of each type before and after its turn.

    If it took none, they are those of the type with the most GPUs left.
    """
    type_of_reason = max(before, key=before.__getitem__)
    for name in before:
        if after[name] < before[name]:
            type_of_reason = name
            break
    gpus_left = before[type_of_reason]
    # The type is the label of the number, which sentences print by `{left_type:label}`.
    return {"gpus_left": gpus_left, f"left_type {type_of_reason}": gpus_left}


def newcomers(view: ClusterView, known: Collection[JobId]) -> Sequence[JobView]:
    """Return the jobs that arrived since the last decision, and those of a run that the policy has just taken over.

    `known` are the jobs that the policy knows; it may still contain jobs that have ended.
    """
    num_ended = sum(job_id in known for job_id in view.changes.ended)
    num_known = len(known) - num_ended
    arrived = view.changes.arrived
    # The usual case: to read all jobs at each decision would be slow.
    if num_known + len(arrived) >= len(view.jobs):
        return arrived
    return [job for job in view.jobs if job.job_id not in known]
