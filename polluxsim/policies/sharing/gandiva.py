"""Gandiva: jobs take turns on GPUs by time slices, and pairs of equal gangs share GPUs while that is faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from math import inf
from typing import Annotated, NamedTuple

import numpy as np

from polluxsim.common.instants import has_come, sort_key
from polluxsim.common.values import Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import (
    Change,
    ClusterView,
    Decision,
    JobProxy,
    JobView,
    Reason,
    ReasonKind,
    Traits,
)
from polluxsim.policies.tools.free_gpus import FreeGpus, place_gangs, place_packs
from polluxsim.policies.tools.gangs import Budget
from polluxsim.policies.tools.ledger import Ledger

_PLACE = (
    "[slice_end?Until this time slice ends at {slice_end:clock}, the running jobs go first. Of the others, the job with"
    "|At the start of a time slice, the job with] the least time on GPUs goes first, of equal ones "
    "the first submitted. This job has turn {position}, and {time_had:clock} of time counted (a new job begins with "
    "the least time of the others)[partner_had?. Its partner {partner_had:label} has {partner_had:clock}; of a pair, "
    "the lesser time counts]. "
)
_UNITS = {
    **dict.fromkeys(("time_had", "partner_had", "ahead_had", "slice_end"), "s"),
    **dict.fromkeys(("gpus_free", "gpus_needed", "gpus_left", "gpus_up"), "GPUs"),
    "equal_jobs": "jobs",
}

HAS_ITS_TURN = ReasonKind(
    "has-its-turn",
    f"{_PLACE}It gets the {{gpus_needed:GPU}} that it requests[, packed with {{others}}]"
    "[, and {gpus_free:more idle GPU} of its node].",
    _UNITS,
    "A job runs in the present time slice.",
)
AWAITS_ITS_TURN = ReasonKind(
    "awaits-its-turn",
    f"{_PLACE}It needs {{gpus_needed:GPU}} of one type. [gpus_up<gpus_needed?Now [gpus_up=0?none is|at most "
    "{gpus_up} of a type that it can use are] available, so it waits for more nodes."
    "|[The nearest [ahead_shared=1?jobs ahead of it that run are {others}, which share their GPUs"
    "|job ahead of it that runs is {others}], with {ahead_had:clock} counted. ]The jobs that run in this time slice "
    "leave [gpus_left=0?none|at most {gpus_left}], so it waits for a later one.[equal_jobs? Only two jobs that need "
    "equally many GPUs may share them[equal_jobs=0?, and no other job without a partner needs {gpus_needed}"
    "|. It has no partner now].]]",
    _UNITS,
    "A job waits for a later time slice.",
)


Pack = tuple[JobView, ...]

MIN_GAIN = 1.0  # smallest progress of two packed jobs together, relative to one job alone, before they are separated


@dataclass
class Growth:
    """Additional GPUs of jobs beyond their requests, on the node where they run.

    Source: Xiao et al., Gandiva (OSDI '18). Jobs grow, if their users allow it, on GPUs of their node that are idle for
    some time. They shrink at once if other jobs need the GPUs.
    """

    after: float  # time for which GPUs of a node must be idle before jobs on the node get them [s]
    extra: dict[JobId, int] = field(default_factory=dict)  # GPUs of each job beyond its request
    due: float = inf  # time at which jobs grow next without an event [s]
    # Times since which the idle GPUs of each node are idle, in rising order [s].
    _idle: dict[int, list[float]] = field(default_factory=dict)

    def grown(
        self,
        view: ClusterView,
        alone: Sequence[JobView],
        shared: Mapping[JobId, Gpus],
        placed: Mapping[JobId, Placement],
        *,
        waits: bool,
    ) -> tuple[dict[JobId, Gpus], dict[JobId, Placement]]:
        """Return the numbered GPUs and the placements of jobs, with the additional GPUs of jobs that grow.

        `alone` contains the jobs that share no GPU, in the order of growth. `waits` says whether a job waits; then no
        job grows.
        """
        if self.after == inf:
            return dict(shared), dict(placed)
        taken = set(chain.from_iterable(shared.values()))
        used = Counter(node for node, _ in taken)
        for placement in placed.values():
            used.update(dict(placement))
        idle = {node: 0 if waits else gpus - used[node] for node, gpus in enumerate(view.gpus_per_node)}
        nodes = {name: {node for node, _ in nodes_of_job} for name, nodes_of_job in (*shared.items(), *placed.items())}
        node_of = {name: nodes_of_job.pop() for name, nodes_of_job in nodes.items() if len(nodes_of_job) == 1}
        self._share(view.time, [(job, node_of[job.job_id]) for job in alone if job.job_id in node_of], idle)
        numbered = dict(shared)
        counted = dict(placed)
        for name, more in self.extra.items():
            node = node_of[name]
            if name in placed:
                counted[name] = ((node, placed[name][0][1] + more),)
            else:
                free = [(node, number) for number in range(view.gpus_per_node[node]) if (node, number) not in taken]
                numbered[name] = (*shared[name], *free[:more])
                taken.update(free[:more])
        return numbered, counted

    def _share(self, now: float, jobs: Sequence[tuple[JobView, int]], idle: dict[int, int]) -> None:
        """Give idle GPUs to the jobs that had them before, then long idle GPUs to jobs that may grow.

        `jobs` are pairs of a job and its node, and `idle` are the idle GPUs of each node.
        """
        before = self.extra
        self.extra = {}
        # A job gets more GPUs than it requests only if its user allows it.
        wanted = {job.job_id: max(job.max_replicas - job.num_replicas, 0) if job.may_grow else 0 for job, _ in jobs}
        for job, node in jobs:
            self._give(job, min(wanted[job.job_id], before.get(job.job_id, 0)), idle, node)
        idle_since = {node: self._idle.get(node, [])[:gpus] for node, gpus in idle.items()}
        self._idle = {node: since + [now] * (idle[node] - len(since)) for node, since in idle_since.items()}
        self.due = inf
        for job, node in jobs:
            since = self._idle[node]
            more = wanted[job.job_id] - self.extra.get(job.job_id, 0)
            num_granted = sum(has_come(time + self.after, now) for time in since[: max(more, 0)])
            self._give(job, num_granted, idle, node)
            del since[:num_granted]
            if more > num_granted and since:
                self.due = min(self.due, since[0] + self.after)

    def _give(self, job: JobView, wanted: int, idle: dict[int, int], node: int) -> None:
        """Give a job up to `wanted` of the idle GPUs of a node."""
        gpus = min(wanted, idle[node])
        if gpus:
            self.extra[job.job_id] = self.extra.get(job.job_id, 0) + gpus
            idle[node] -= gpus


class Home(NamedTuple):
    """GPUs where a job runs, or where it was suspended."""

    job_id: JobId
    placement: Placement
    gpus: Gpus  # numbered GPUs; empty if jobs share no GPUs


@dataclass
class Suspension:
    """The GPUs on which jobs were suspended. The memory of these nodes holds the state of the jobs.

    Source: Xiao et al., Gandiva (OSDI '18), §3.1: suspension and resumption take less than a second.
    """

    resume_time: float  # time of a suspension and a resumption on the same nodes [s]
    _homes: dict[JobId, Home] = field(default_factory=dict)
    _failures: tuple[int, ...] = ()  # failures of each node until the last decision

    def take_note(self, view: ClusterView, jobs: Mapping[JobId, JobView], grown: Collection[JobId]) -> None:
        """Record the GPUs of running jobs. Forget jobs that ended or were altered, and states on nodes that went down.

        `grown` contains the jobs with more GPUs than they request. Only the requested GPUs of these jobs are recorded.
        """
        for job_id in (*view.changes.ended, *view.changes.evicted, *view.changes.altered):
            self._homes.pop(job_id, None)
        failures = view.health.num_failures
        num_nodes = len(view.gpus_per_node)
        for node, (before, now) in enumerate(zip_longest(self._failures, failures, fillvalue=0)):
            if now != before or node >= num_nodes or node in view.health.down:
                self._homes = {name: home for name, home in self._homes.items() if node not in dict(home.placement)}
        self._failures = failures
        for name, job in jobs.items():
            placement = job.placement
            if placement:
                gpus = view.sharing.held.get(name, ())
                if name in grown:
                    placement = ((placement[0][0], job.num_replicas),)
                    gpus = gpus[: job.num_replicas]
                self._homes[name] = Home(name, placement, gpus)

    def chosen(
        self, view: ClusterView, order: Sequence[Pack], jobs: Mapping[JobId, JobView]
    ) -> tuple[dict[Pack, str], ClusterView, Mapping[JobId, JobView]]:
        """Choose packs in an order. If an earlier pack takes the home of a pack, the pack gets GPUs that are left.

        Return the GPU type of each chosen pack, and a view, with its jobs, in which only the packs at home hold GPUs.
        """
        free = FreeGpus(view.gpus_per_node)
        taken = set[Gpu]()
        budget = Budget(view)
        types: dict[Pack, str] = {}
        homes: dict[JobId, Home] = {}
        homeless: list[Pack] = []
        for pack in order:
            home = self._home_of(pack, jobs)
            if home is not None and not (free.has(home.placement) and taken.isdisjoint(home.gpus)):
                homeless.append(pack)
                continue
            job = jobs[pack[0].job_id] if home is None else _held_by(jobs[home.job_id], home.placement)
            crew = budget.take(job)
            if not crew:
                continue
            name = types[pack] = crew[0][0]
            if home is not None and name == view.type_of(home.placement):
                homes[home.job_id] = home
                free.take(home.placement)
                taken.update(home.gpus)
        for pack in homeless:
            crew = budget.take(pack[0])
            if crew:
                types[pack] = crew[0][0]
        shown_jobs = {name: _held_by(job, homes[name].placement if name in homes else ()) for name, job in jobs.items()}
        shared = {name: home.gpus for name, home in homes.items() if home.gpus}
        nodes = range(len(view.gpus_per_node))
        sharing = view.sharing._replace(held=shared)
        return types, view.part(view.gpus_per_node, shown_jobs, view.changes, nodes=nodes, sharing=sharing), shown_jobs

    def delays(
        self, view: ClusterView, shared: Mapping[JobId, Gpus], placed: Mapping[JobId, Placement]
    ) -> dict[JobId, float]:
        """Return the delays of the jobs that resume on the nodes on which they were suspended [s]."""
        nodes = {name: Counter(node for node, _ in gpus) for name, gpus in shared.items()}
        nodes |= {name: Counter(dict(placement)) for name, placement in placed.items()}
        return {
            job.job_id: min(self.resume_time, view.delay_of(job))
            for job in view.waiting
            if (home := self._homes.get(job.job_id)) and nodes.get(job.job_id) == Counter(dict(home.placement))
        }

    def _home_of(self, pack: Pack, jobs: Mapping[JobId, JobView]) -> Home | None:
        """Return the home of the first job of a pack that runs or, if no job runs, that was suspended."""
        homes = [self._homes[job.job_id] for job in pack if job.job_id in self._homes]
        return next((home for home in homes if jobs[home.job_id].placement), homes[0] if homes else None)


@takes_settings("policy")
@dataclass
class Gandiva(Policy):
    """Let jobs take turns, jobs with the least time on GPUs first, and pack pairs if jobs request too many GPUs.

    If the gangs do not fit, they get time slices. At the end of each slice, the jobs with the least time run next. With
    packing, two gangs of equal size, drawn at random, share their GPUs if they fit there. Their speeds are measured for
    a round. A pair that makes less progress than one job alone is separated permanently. Packs stay on their nodes.
    Other jobs go to the nodes with the most free GPUs.

    A job that loses its turn is suspended. It resumes on the same nodes if they have room, and restarts on other nodes
    otherwise.

    Parameters
    ----------
    time_slice
        Time on GPUs before the next job gets them [s].
    packing
        Whether jobs are packed. `engine.sharing` must determine which jobs fit together.
    grow_after
        Idle time after which the GPUs of a node go to jobs on it that may grow, while no job waits [s]. The jobs give
        them back when a job waits. With None no job grows.
    resume_time
        Time of a suspension and a resumption on the same nodes [s].

    Source: Xiao et al., "Gandiva" (OSDI '18); packing at random as in Gavel (OSDI '20). Weights of jobs are not
    implemented.
    """

    time_slice: Annotated[Seconds, Range(above=0)] = 60.0
    packing: bool = True
    grow_after: Annotated[Seconds, Range(above=0)] | None = None
    resume_time: Annotated[Seconds, Range(least=0)] = 1.0
    # Time of each job on GPUs. A new job begins at the least time of the jobs that take turns [s].
    _had: Ledger[JobId] = field(default_factory=Ledger, init=False, repr=False)
    # The partner of each packed job, and the pairs that were separated.
    _partner: dict[JobId, JobId] = field(default_factory=dict, init=False, repr=False)
    _parted: set[frozenset[JobId]] = field(default_factory=set, init=False, repr=False)
    _running: dict[JobId, None] = field(default_factory=dict, init=False, repr=False)
    _slice_end: float = field(default=-inf, init=False, repr=False)  # end of the present time slice [s]
    _growth: Growth = field(init=False, repr=False)
    _suspension: Suspension = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._suspension = Suspension(self.resume_time)
        self._growth = Growth(inf if self.grow_after is None else self.grow_after)

    @property
    def traits(self) -> Traits:
        """Return the traits of the policy: jobs take turns, and share GPUs only if the policy packs."""
        return Traits(shares_gpus=self.packing, slices_time=True)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Separate pairs, make pairs, and give GPUs to the packs whose turn it is."""
        jobs: Mapping[JobId, JobView] = {job.job_id: job for job in view.jobs}
        self._take_note(view, jobs)
        if self.packing and (self._part(view, jobs) or view.changes.jobs_or_nodes):
            self._pack(view, jobs, rng)
        packs = self._packs(jobs)
        is_over = view.has_come(self._slice_end)
        present_slice = {} if is_over else {"slice_end": self._slice_end}
        had = {job_id: self._had.balance(job_id, view.time) for job_id in jobs}
        times = {job_id: sort_key(time, view.time) for job_id, time in had.items()}
        order = sorted(packs, key=lambda pack: self._rank(pack, times, is_over=is_over))
        self._suspension.take_note(view, jobs, self._growth.extra)
        chosen, seen_jobs, jobs = self._suspension.chosen(view, order, jobs)
        self._running = dict.fromkeys(job.job_id for pack in chosen for job in pack)
        self._had.hold(view.time, {job_id: (jobs[job_id], job_id) for job_id in self._running})
        waits = len(self._running) < len(jobs)
        if is_over or not waits:
            self._slice_end = view.time + self.time_slice if waits else -inf
        until = inf
        if self._partner:
            until = view.time
        elif waits:
            until = self._slice_end
        running = {pack[0].job_id: name for pack, name in chosen.items()}
        shared = place_packs(seen_jobs, chosen) if self.packing else {}
        placed = {} if self.packing else place_gangs(seen_jobs, running, jobs)
        alone = [jobs[pack[0].job_id] for pack in chosen if len(pack) == 1]
        shared, placed = self._growth.grown(view, alone, shared, placed, waits=waits)

        def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
            idle = {name: view.gpus_of(name) for name in view.types}
            for pack, name in chosen.items():
                idle[name] -= pack[0].num_replicas
            return self._reasons(view, [jobs[name] for name in asked], order, had, idle, present_slice)

        return Decision(
            placed,
            shared=shared,
            valid_until=min(until, self._growth.due),
            outdated_by=Change.JOBS_OR_NODES | Change.EVICTION | Change.EPOCH,
            explain=explain,
            delays=self._suspension.delays(view, shared, placed),
        )

    def _take_note(self, view: ClusterView, jobs: Mapping[JobId, JobView]) -> None:
        """Charge jobs that lost their GPUs, and open and close accounts."""
        self._had.settle(view)
        old_jobs = [job_id for job_id in jobs if self._had.has(job_id)]
        least_time = self._least_time(view, old_jobs, jobs)
        self._had.keep(jobs)
        for job_id in jobs.keys() - set(old_jobs):
            self._had.set_balance(job_id, least_time, view.time)
        self._partner = {one: other for one, other in self._partner.items() if one in jobs and other in jobs}

    def _least_time(self, view: ClusterView, known: Sequence[JobId], jobs: Mapping[JobId, JobView]) -> float:
        """Return the time at which new jobs begin: the least time of the known jobs that can take turns now [s].

        A job that fits on no nodes that are up takes no turns. Its time would give new jobs turns for a time in which
        they were absent. If no job can take turns, the times of all known jobs count.
        """
        cluster = Budget(view)
        in_turn = [job_id for job_id in known if jobs[job_id].num_replicas <= cluster.left_for(jobs[job_id])]
        return min((self._had.balance(job_id, view.time) for job_id in in_turn or known), default=0.0)

    def _part(self, view: ClusterView, jobs: Mapping[JobId, JobView]) -> bool:
        """Separate pairs that no longer fit or do less than one job alone. Return whether there were any."""
        before = len(self._partner)
        changes = view.changes
        # Whether two jobs fit depends on their batch sizes, which are constant during an epoch.
        moved_on = {*changes.passed_epoch, *changes.evicted, *changes.altered}
        gpus_of = view.sharing.held
        speeds = view.sharing.speeds
        for one, other in list(self._partner.items()):
            share_gpus = bool(gpus_of.get(one)) and set(gpus_of[one]) == set(gpus_of.get(other, ()))
            has_speeds = one in speeds and other in speeds
            is_slow = share_gpus and has_speeds and speeds[one] + speeds[other] < MIN_GAIN
            if is_slow:
                self._parted.add(frozenset((one, other)))
            has_changed = one in moved_on or other in moved_on
            if is_slow or (has_changed and not _fit(view, jobs[one], jobs[other])):
                self._partner.pop(one, None)
        self._partner = {one: other for one, other in self._partner.items() if self._partner.get(other) == one}
        return len(self._partner) < before

    def _pack(self, view: ClusterView, jobs: Mapping[JobId, JobView], rng: np.random.Generator) -> None:
        """Make pairs at random until all jobs have room or no two jobs fit together."""
        need = sum(pack[0].num_replicas for pack in self._packs(jobs))
        singles = [job for job in jobs.values() if job.job_id not in self._partner]
        singles = [singles[index] for index in rng.permutation(len(singles))] if need > view.num_gpus else []
        for index, one in enumerate(singles):
            if need <= view.num_gpus:
                return
            if one.job_id in self._partner:
                continue
            later_jobs = (job for job in islice(singles, index + 1, None) if self._may_pack(view, one, job))
            other = next(later_jobs, None)
            if other is not None:
                self._partner |= {one.job_id: other.job_id, other.job_id: one.job_id}
                need -= one.num_replicas

    def _may_pack(self, view: ClusterView, one: JobView, other: JobView) -> bool:
        if one.num_replicas != other.num_replicas or other.job_id in self._partner:
            return False
        if one.speeds.keys() != other.speeds.keys():  # a pack gets GPUs of a type that its first job can use
            return False
        return frozenset((one.job_id, other.job_id)) not in self._parted and _fit(view, one, other)

    def _packs(self, jobs: Mapping[JobId, JobView]) -> list[Pack]:
        """Return all jobs, alone or with their partners, in order of submission."""
        packs: dict[JobId, Pack] = {}
        for job_id, job in jobs.items():
            other = self._partner.get(job_id)
            if other not in packs:
                packs[job_id] = (job,) if other is None else (job, jobs[other])
        return list(packs.values())

    def _rank(self, pack: Sequence[JobView], had: Mapping[JobId, float], *, is_over: bool) -> tuple[bool, float]:
        """Return the sort key of a pack. During a time slice, running packs come first. `had` are times on GPUs [s]."""
        runs = any(job.job_id in self._running for job in pack)
        return is_over or not runs, min(had[job.job_id] for job in pack)

    def _reasons(
        self,
        view: ClusterView,
        asked: Sequence[JobView],
        order: Sequence[Sequence[JobView]],
        had: Mapping[JobId, float],
        idle: Mapping[str, int],
        present_slice: Mapping[str, float],
    ) -> dict[JobId, Reason]:
        """Return the reasons of jobs, with their partners.

        `idle` are the GPUs of each type that no job requested in this slice.
        """
        positions = {job.job_id: position for position, pack in enumerate(order, start=1) for job in pack}
        last_ahead = self._last_ahead(order)
        sizes = Counter(pack[0].num_replicas for pack in order if len(pack) == 1)
        may_share = self.packing and view.sharing.fit_together is not None
        more = {name: {"gpus_free": float(gpus)} for name, gpus in self._growth.extra.items()}
        reasons: dict[JobId, Reason] = {}
        for job in asked:
            name = job.job_id
            numbers = {
                "position": float(positions[name]),
                "time_had": had[name],
                "gpus_needed": float(job.num_replicas),
                "gpus_left": float(max((idle[gpu_type] for gpu_type in job.speeds), default=0)),
                **present_slice,
                **more.get(name, {}),
            }
            partners = (self._partner[name],) if name in self._partner else ()
            for partner in partners:
                numbers[f"partner_had {partner}"] = had[partner]
            if name in self._running:
                reasons[name] = Reason(HAS_ITS_TURN, numbers, partners)
                continue
            ahead = last_ahead[name]
            if ahead:
                numbers["ahead_had"] = min(had[other] for other in ahead)
                numbers["ahead_shared"] = float(len(ahead) > 1)
            if may_share and not partners:
                numbers["equal_jobs"] = float(sizes[job.num_replicas] - 1)
            numbers["gpus_up"] = float(max(map(view.gpus_of, job.speeds), default=0))
            reasons[name] = Reason(AWAITS_ITS_TURN, numbers, ahead)
        return reasons

    def _last_ahead(self, order: Sequence[Sequence[JobView]]) -> dict[JobId, tuple[JobId, ...]]:
        """Return, for each job, the jobs of the last pack before it in the order that runs; () if there is none."""
        last: tuple[JobId, ...] = ()
        last_ahead: dict[JobId, tuple[JobId, ...]] = {}
        for pack in order:
            last_ahead |= dict.fromkeys((job.job_id for job in pack), last)
            if pack[0].job_id in self._running:
                last = tuple(job.job_id for job in pack)
        return last_ahead


def _held_by(job: JobView, placement: Placement) -> JobView:
    return job if job.placement == placement else JobProxy(job, placement=placement)


def _fit(view: ClusterView, one: JobView, other: JobView) -> bool:
    return view.sharing.fit_together is not None and view.sharing.fit_together(one, other)
