"""Gang scheduling: whole jobs of the size their users asked for, in a given order or by a key."""

from __future__ import annotations

from collections import deque
from copy import copy
from functools import partial
from itertools import chain, islice, tee
from math import inf
from typing import TYPE_CHECKING, Any

from polluxsim.common.errors import check_number
from polluxsim.policies.contract.view import Change, Decision, Reason
from polluxsim.policies.tools.free_gpus import FreeGpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from polluxsim.hardware.placements import Crew, JobId, Placement
    from polluxsim.policies.contract.view import ClusterView, JobView

    Describe = Callable[[JobView], Mapping[str, float]]


class Budget:
    """The GPUs of each type that are left, as one job after the other takes some of a cluster's.

    `mixes` says whether jobs that can have GPUs of several types at once take these where no type has enough. `left`
    are the GPUs that are left of all types, `mixed` says of which types those jobs took GPUs that took several.
    """

    def __init__(self, view: ClusterView, *, mixes: bool = False) -> None:
        self._view = view
        self._mixes = mixes
        self.mixed: dict[JobId, Crew] = {}
        self._left = {name: view.gpus_of(name) for name in view.types}
        self._only = next(iter(self._left)) if len(self._left) == 1 else None
        self.left = sum(self._left.values())

    def take(self, job: JobView) -> str | None:
        """Take the GPUs of a job: of the type it runs on, else of the fastest that it can use; None if none fits.

        Of several types at once, it is that of most speed.
        """
        if (asked := job.num_replicas) > self.left:
            return None
        if self._only is None and self._mixes and job.mixes_types:
            return self._take_mixed(job)
        name = self._only or next((name for name in self._wanted(job) if asked <= self._left[name]), None)
        if name is not None:
            self._left[name] -= asked
            self.left -= asked
        return name

    def _take_mixed(self, job: JobView) -> str | None:
        """Take what a job has, else GPUs of one type if one has enough, else those that are left of several."""
        asked, order = job.num_replicas, self._wanted(job)
        crew = self._view.node_types.crew(job.placement)
        if sum(gpus for _, gpus in crew) != asked or any(gpus > self._left[name] for name, gpus in crew):
            if (one := next((name for name in order if asked <= self._left[name]), None)) is not None:
                crew = ((one, asked),)
            else:
                crew = _filled(asked, {name: self._left[name] for name in self._view.types if name in order}, order)
        for name, gpus in crew:
            self._left[name] -= gpus
            self.left -= gpus
        if len(crew) > 1:
            self.mixed[job.job_id] = crew
        return crew[0][0] if crew else None

    def _wanted(self, job: JobView) -> Sequence[str]:
        speeds, here = job.speeds, self._view.type_of(job.placement) if job.placement else None
        return sorted(speeds, key=lambda name: (name != here, -speeds[name]))


def _filled(asked: int, left: Mapping[str, int], order: Sequence[str]) -> Crew:
    """Return GPUs of types in an order, all of each until there are enough, as a crew; none if there are too few."""
    taken = dict.fromkeys(left, 0)
    for name in order:
        taken[name] = min(left[name], asked)
        asked -= taken[name]
    return () if asked else tuple((name, gpus) for name, gpus in taken.items() if gpus)


NEAREST = 3
"""Jobs just ahead of one that are named to explain why it waits."""


def schedule_gangs(
    view: ClusterView,
    order: Iterable[JobView],
    *,
    overtaking: bool = True,
    order_lasts_until: float = -inf,
    describe: Describe = lambda job: {},
) -> Decision:
    """Give GPUs to as many whole jobs as fit, in order. The policy is asked again at the next round, by default.

    Parameters
    ----------
    view
        The cluster now.
    order
        The active jobs by precedence; no further than needed is gone through.
    overtaking
        Whether a job that fits may go ahead of one that does not.
    order_lasts_until
        Time until which no job that has GPUs by this decision falls behind another one, unless one arrives [s]; that
        they rise changes nothing. So long the policy is not asked, unless GPUs become free that somebody waits for.
    describe
        Figures that say why a job stands where it does in the order.

    Returns
    -------
    Decision
        Jobs that run on keep their GPUs; the others take the emptiest nodes first.
    """
    order, again = tee(order)  # so that each job is asked for once, and not before it is needed
    if view.demand <= view.num_gpus and len(view.types) == 1:
        # Everybody fits, so that nothing but the order of those who get GPUs anew matters.
        free, waiting = FreeGpus(view.free), _first_of(order, view.waiting)
        new = {job.job_id: free.pack(job.num_replicas) or () for job in waiting}
        return Decision(
            new,
            others_keep=True,
            valid_until=order_lasts_until,
            outdated_by=Change.ARRIVAL,
            explain=lambda jobs: _all_fit(view, list(copy(again)), describe, jobs),
        )
    budget = Budget(view, mixes=True)
    admitted = _admitted(order, budget, overtaking=overtaking)
    some_wait = len(admitted) < len(view.jobs)
    tell = partial(_reasons, gpus=view.num_gpus, overtaking=overtaking, describe=describe)
    return Decision(
        _placements(view, admitted, budget.mixed),
        valid_until=order_lasts_until,
        outdated_by=Change.ARRIVAL | Change.COMPLETION | Change.NODES if some_wait else Change.ARRIVAL,
        explain=lambda jobs: tell(copy(again), {job.job_id for job, _ in admitted}, jobs),
    )


def _first_of(order: Iterable[JobView], few: Sequence[JobView]) -> Iterable[JobView]:
    """Return a few jobs in an order of all, of which no more is gone through than it takes."""
    if len(few) < 2:
        return few
    wanted = {job.job_id for job in few}
    return islice((job for job in order if job.job_id in wanted), len(wanted))


def _placements(
    view: ClusterView, admitted: Iterable[tuple[JobView, str]], mixed: Mapping[JobId, Crew]
) -> dict[JobId, Placement]:
    """Return the placements of the jobs that are to run: those who do so already first, the others packed in order."""
    placements = {}
    new = []
    is_one = len(view.types) == 1
    for job, gpu_type in admitted:
        if (placement := job.placement) and (is_one or _stays(view, job, gpu_type, mixed)):
            placements[job.job_id] = placement
        else:
            new.append((job, gpu_type))
    free = FreeGpus(view.free)
    for job in view.running if len(placements) < len(view.running) else ():
        if job.job_id not in placements:
            free.give_back(job.placement)
    nodes = {name: view.nodes_of(name) for name in view.types} if len(view.types) > 1 else {}
    for job, gpu_type in new:
        if crew := mixed.get(job.job_id):
            parts = (free.pack(gpus, nodes[name]) or () for name, gpus in crew)
            placements[job.job_id] = tuple(chain.from_iterable(parts))
        elif found := free.pack(job.num_replicas, nodes.get(gpu_type, ())):
            placements[job.job_id] = found
    return placements


def _stays(view: ClusterView, job: JobView, gpu_type: str, mixed: Mapping[JobId, Crew]) -> bool:
    """Return whether a job that runs has its GPUs on the type, or types, that it is to have."""
    if job.mixes_types:
        return view.node_types.crew(job.placement) == mixed.get(job.job_id, ((gpu_type, job.num_replicas),))
    return view.type_of(job.placement) == gpu_type


def _admitted(order: Iterable[JobView], budget: Budget, *, overtaking: bool) -> list[tuple[JobView, str]]:
    admitted = []
    for job in order:
        if (gpu_type := budget.take(job)) is not None:
            admitted.append((job, gpu_type))
            if not budget.left:
                break
        elif not overtaking:
            break
    return admitted


def _all_fit(
    view: ClusterView, everybody: Sequence[JobView], describe: Describe, jobs: Sequence[JobId]
) -> dict[JobId, Reason]:
    """Say of the jobs asked about what they met when their turn came, where everybody fits.

    Those that something happens to are most often the last: the order is gone through from behind.
    """
    asked, left, reasons = set(jobs), view.num_gpus - view.demand, {}
    for position, job in zip(range(len(everybody), 0, -1), reversed(everybody), strict=True):
        left += job.num_replicas
        if job.job_id in asked:
            numbers = {"position": position, "gpus_needed": job.num_replicas, "gpus_left": left, **describe(job)}
            reasons[job.job_id] = Reason("gang-fits", numbers)
            if len(reasons) == len(asked):
                break
    return reasons


def _reasons(
    order: Iterable[JobView],
    admitted: Set[JobId],
    jobs: Sequence[JobId],
    *,
    gpus: int,
    overtaking: bool,
    describe: Describe,
) -> dict[JobId, Reason]:
    """Go through the order again, and say of the jobs asked about what they met when their turn came.

    Kinds: `gang-fits`; `gang-does-not-fit`, where the others are the nearest jobs ahead that got GPUs; and
    `behind-head-of-line`, where the other is the first job that does not fit and lets nobody past.
    """
    asked, left, head = set(jobs), gpus, None
    ahead = deque[str](maxlen=NEAREST)
    reasons: dict[JobId, Reason] = {}
    for position, job in enumerate(order, start=1):
        fits = job.job_id in admitted
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
            left -= job.num_replicas
            ahead.append(job.job_id)
        elif head is None and not overtaking:
            head = job
    return reasons


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
