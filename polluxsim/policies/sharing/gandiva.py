"""Gandiva: jobs take turns on GPUs by time slices, and pairs of equal gangs share GPUs while that is faster.

Source: Xiao et al., "Gandiva" (OSDI '18). A pack is one job, or two jobs that share their GPUs. At each decision:

1. Pairs that are slow or no longer fit are separated, and new pairs are made while the jobs request too many GPUs.
2. The packs are sorted: those that run in the present time slice first, then those with the least time on GPUs.
3. Packs get GPUs in this order, each where it runs or was suspended if possible (`Suspension`).
4. If no job waits, jobs grow on GPUs of their nodes that were idle for some time (`Growth`).

Invariants: a pair that was separated is never made again; a job that loses its turn can resume quickly on the nodes
that hold its state.

The trap: step 3 makes a view in which only the packs that can be where they were hold GPUs. The placement then leaves
these packs where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from typing import Annotated

import numpy as np

from polluxsim.common.instants import sort_key
from polluxsim.common.values import Range
from polluxsim.common.written import Seconds, takes_settings
from polluxsim.hardware.placements import Gpus, JobId, Placement
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import (
    Change,
    ClusterView,
    Decision,
    JobView,
    Reason,
    ReasonKind,
    Traits,
)
from polluxsim.policies.sharing.growth import Growth
from polluxsim.policies.sharing.suspension import Pack, Suspension
from polluxsim.policies.tools.free_gpus import place_gangs, place_packs
from polluxsim.policies.tools.gangs import Budget
from polluxsim.policies.tools.ledger import Ledger

# `common.templates.filled` explains the brackets and braces of a sentence.
_PLACE = (
    "[slice_end?Until this time slice ends at {slice_end:clock}, the running jobs go first. Of the others, the job with"
    "|At the start of a time slice, the job with] the least time on GPUs goes first, of equal ones "
    "the first submitted. A pair takes one turn, by the lesser time of the two. This job has turn {position}, and "
    "counts as having had {time_had:clock} on GPUs (a new job begins with the least time of the others)"
    "[partner_had?. Its partner {partner_had:label} has had {partner_had:clock}]. "
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

# Smallest progress of two packed jobs together, relative to one job alone, before they are separated.
MIN_GAIN = 1.0


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
        if self.packing:
            some_separated = self._part(view, jobs)
            if some_separated or view.changes.jobs_or_nodes:
                self._pack(view, jobs, rng)
        is_over = view.has_come(self._slice_end)
        present_slice = {} if is_over else {"slice_end": self._slice_end}
        time_had = {job_id: self._had.balance(job_id, view.time) for job_id in jobs}
        rounded_times = {job_id: sort_key(time, view.time) for job_id, time in time_had.items()}
        order = sorted(self._packs(jobs), key=lambda pack: self._rank(pack, rounded_times, is_over=is_over))
        self._suspension.take_note(view, jobs, self._growth.extra)
        chosen, view_at_home, jobs_at_home = self._suspension.chosen(view, order, jobs)
        running = list(chain.from_iterable(chosen))
        self._running = dict.fromkeys(job.job_id for job in running)
        self._had.hold(view.time, {job_id: (jobs_at_home[job_id], job_id) for job_id in self._running})
        waits = len(self._running) < len(jobs)
        if not waits:
            # The next job that arrives begins a time slice.
            self._slice_end = -inf
        elif is_over:
            self._slice_end = view.time + self.time_slice
        if self._partner:
            # Decide at the next round, when the speeds of the pairs are measured.
            valid_until = view.time
        elif waits:
            valid_until = self._slice_end
        else:
            valid_until = inf
        shared: dict[JobId, Gpus] = {}
        placed: dict[JobId, Placement] = {}
        if self.packing:
            shared = place_packs(view_at_home, chosen)
        else:
            types = {pack[0].job_id: gpu_type for pack, gpu_type in chosen.items()}
            placed = place_gangs(view_at_home, types, jobs_at_home)
        alone = [jobs_at_home[pack[0].job_id] for pack in chosen if len(pack) == 1]
        shared, placed = self._growth.grown(view, alone, shared, placed, waits=waits)

        def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
            idle = {gpu_type: view.gpus_of(gpu_type) for gpu_type in view.types}
            for pack, gpu_type in chosen.items():
                idle[gpu_type] -= pack[0].num_replicas
            asked_jobs = [jobs_at_home[job_id] for job_id in asked]
            return self._reasons(view, asked_jobs, order, time_had, idle, present_slice)

        return Decision(
            placed,
            shared=shared,
            valid_until=min(valid_until, self._growth.due),
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
        times = [self._had.balance(job_id, view.time) for job_id in in_turn or known]
        return min(times, default=0.0)

    def _part(self, view: ClusterView, jobs: Mapping[JobId, JobView]) -> bool:
        """Separate pairs that no longer fit or do less than one job alone. Return whether there were any."""
        num_before = len(self._partner)
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
        # Each pair is in the mapping twice; remove the other half of a pair that was separated.
        self._partner = {one: other for one, other in self._partner.items() if self._partner.get(other) == one}
        return len(self._partner) < num_before

    def _pack(self, view: ClusterView, jobs: Mapping[JobId, JobView], rng: np.random.Generator) -> None:
        """Make pairs at random until all jobs have room or no two jobs fit together."""
        needed_gpus = sum(pack[0].num_replicas for pack in self._packs(jobs))
        # No random number is drawn if all jobs have room.
        if needed_gpus <= view.num_gpus:
            return
        singles = [job for job in jobs.values() if job.job_id not in self._partner]
        singles = [singles[index] for index in rng.permutation(len(singles))]
        for index, one in enumerate(singles):
            if needed_gpus <= view.num_gpus:
                return
            if one.job_id in self._partner:
                continue
            for other in islice(singles, index + 1, None):
                if self._may_pack(view, one, other):
                    self._partner[one.job_id] = other.job_id
                    self._partner[other.job_id] = one.job_id
                    needed_gpus -= one.num_replicas
                    break

    def _may_pack(self, view: ClusterView, one: JobView, other: JobView) -> bool:
        """Return whether two jobs without partners can share GPUs, and were not separated before."""
        if one.num_replicas != other.num_replicas or other.job_id in self._partner:
            return False
        # A pack gets GPUs of a type that its first job can use.
        if one.speeds.keys() != other.speeds.keys():
            return False
        were_separated = frozenset((one.job_id, other.job_id)) in self._parted
        return not were_separated and _fit(view, one, other)

    def _packs(self, jobs: Mapping[JobId, JobView]) -> list[Pack]:
        """Return all jobs, alone or with their partners, in order of submission."""
        packs: dict[JobId, Pack] = {}
        for job_id, job in jobs.items():
            other = self._partner.get(job_id)
            if other is None:
                packs[job_id] = (job,)
            elif other not in packs:
                packs[job_id] = (job, jobs[other])
        return list(packs.values())

    def _rank(self, pack: Sequence[JobView], had: Mapping[JobId, float], *, is_over: bool) -> tuple[bool, float]:
        """Return the sort key of a pack. During a time slice, running packs come first. `had` are times on GPUs [s]."""
        runs = any(job.job_id in self._running for job in pack)
        comes_later = is_over or not runs
        return comes_later, min(had[job.job_id] for job in pack)

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

        `idle` are the GPUs of each type that no chosen job holds in this slice.
        """
        positions: dict[JobId, int] = {}
        for position, pack in enumerate(order, start=1):
            positions |= dict.fromkeys((job.job_id for job in pack), position)
        last_ahead = self._last_ahead(order)
        singles_by_size = Counter(pack[0].num_replicas for pack in order if len(pack) == 1)
        may_share = self.packing and view.sharing.fit_together is not None
        reasons: dict[JobId, Reason] = {}
        for job in asked:
            name = job.job_id
            idle_of_usable_types = [idle[gpu_type] for gpu_type in job.speeds]
            numbers = {
                "position": float(positions[name]),
                "time_had": had[name],
                "gpus_needed": float(job.num_replicas),
                "gpus_left": float(max(idle_of_usable_types, default=0)),
                **present_slice,
            }
            if name in self._growth.extra:
                numbers["gpus_free"] = float(self._growth.extra[name])
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
                numbers["equal_jobs"] = float(singles_by_size[job.num_replicas] - 1)  # without the job itself
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


def _fit(view: ClusterView, one: JobView, other: JobView) -> bool:
    """Return whether the sharing model of the engine lets two jobs share GPUs; no jobs fit without a model."""
    fit_together = view.sharing.fit_together
    return fit_together is not None and fit_together(one, other)
