"""A cohort of queues with quotas: borrowing, lending, and the choice of jobs to preempt, as in Kueue.

Why a decision ends, and why no set of running jobs recurs without an event
---------------------------------------------------------------------------
The *jobs within the quota* of a queue follow from its jobs with GPUs. Take these jobs by priority, then submission.
Each job that fits into the rest of the quota is within the quota, and the other jobs are beyond it.

A decision makes these moves until none is left:

1. A job starts on free GPUs.
2. A job preempts *by right*. It may preempt jobs beyond the quotas of other queues if its own queue then holds no more
   than its quota; this is a reclaim. It may preempt jobs of its own queue with lower priorities if the job is then
   within the quota, or if these jobs are beyond the quota.
3. A job preempts *to borrow*: it is beyond the quota, and preempts jobs of its own queue within the quota.
4. With fair sharing, a job preempts jobs beyond the quotas of other queues, to borrow a fairer share.

Moves 1 and 2 end. Write for each queue, by priority and submission of its jobs, a row of ones for jobs within the quota
and zeros for all other jobs. Compare rows of a queue at the first place where they differ. A job that starts within the
quota puts a one in its place, and affects later places only. A job that starts beyond the quota changes no row, nor
does preemption of jobs beyond the quota. Thus no move lowers a row, and each reclaim raises one. After the last
reclaim, a job loses its GPUs only to a job before it in its own queue. The rows of all jobs with GPUs then rise at each
move. There are finitely many rows.

Moves 3 and 4 are judged by the whole exchange, after the moves that they cause. They are taken back if there is a
reclaim among these moves. There is thus no reclaim after the first exchange, and moves 1 to 3 end as above. Move 4 is
also taken back unless the shares of the queues become fairer: sorted from the largest, they must be smaller at the
first place where they differ. They fall from one move 4 to the next, and there are finitely many sets of running jobs.

At a later decision without an event, the state is that in which no move was left. The jobs keep their GPUs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from heapq import heappop, heappush
from itertools import chain
from typing import Any

from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import ClusterView, JobView, Reason, ReasonKind
from polluxsim.policies.tenants.reason_kinds import BORROWS, NO_QUOTA_LEFT, PREEMPTED, RECLAIMED, WITHIN_QUOTA
from polluxsim.policies.tenants.terms import LOWER_PRIORITY, NEVER, Kind, Rules, Terms, held_gpus, jobs_within, kind_of
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gang_places import node_numbers
from polluxsim.policies.tools.ledger import queue_of
from polluxsim.policies.tools.reason_kinds import RUNS_ON


class Cohort:
    """The GPUs of all queues during one decision.

    `terms` are the terms of queues by name, and `other` those of all other queues. `start_of` returns the time at which
    a running job got its GPUs [s].
    """

    def __init__(
        self,
        terms: Mapping[str, Terms],
        other: Terms,
        rules: Rules,
        view: ClusterView,
        start_of: Callable[[JobView], float],
    ) -> None:
        self._terms = terms
        self._other = other
        self._rules = rules
        self._view = view
        self._start_of = start_of
        # All jobs by priority, then submission, and the place of each job in this order.
        self._order = sorted(view.jobs, key=lambda job: -job.priority)
        self._place = {job.job_id: place for place, job in enumerate(self._order)}
        self._by_queue: dict[str, list[JobView]] = {}
        for job in self._order:
            self._by_queue.setdefault(queue_of(job), []).append(job)
        self._queues = sorted({*terms, *self._by_queue})
        self._kind = {job.job_id: kind_of(job, view) for job in view.jobs}
        self._waiting = Counter(self._kind[job.job_id] for job in view.waiting)  # number of waiting jobs of each kind
        self._ran_before = {job.job_id for job in view.running}
        self._free = sum(view.free)
        # The free GPUs of each node. None if GPUs may be anywhere: then their number suffices until the end.
        self._nodes = None if view.shape_rule.anywhere else FreeGpus(view.free)
        self._placements = {job.job_id: job.placement for job in view.running}
        self._last_placements = dict(self._placements)  # also of jobs that lost their GPUs
        self._holding = {job.job_id: job for job in view.running}
        self._used = Counter[str]()  # GPUs of each queue
        self._used_at = Counter[tuple[str, float]]()  # GPUs of each queue for jobs of a priority
        for job in view.running:
            self._used[queue_of(job)] += held_gpus(job)
            self._used_at[queue_of(job), job.priority] += held_gpus(job)
        self._priorities = {job.priority for job in view.jobs}
        self._within: dict[str, set[JobId]] = {}  # jobs within the quota of a queue, until its jobs change
        # GPUs that each queue may borrow and that no queue has borrowed. GPUs without an owner are among these GPUs.
        self._pool = float(max(view.nominal_gpus, sum(terms_of_queue.quota for terms_of_queue in terms.values())))
        for queue in self._queues:
            self._pool -= max(self._of(queue).reserved, self._used[queue])
        self._reason_kinds: dict[JobId, ReasonKind] = {}  # kinds of the reasons of started jobs
        self._takers: dict[JobId, JobView] = {}  # the job for which each preempted job lost its GPUs last
        self._num_reclaims = 0

    @property
    def started(self) -> dict[JobId, JobView]:
        """Return the waiting jobs that get GPUs, in the order of their starts."""
        return {name: job for name, job in self._holding.items() if name not in self._ran_before}

    @property
    def preempted(self) -> dict[JobId, JobView]:
        """Return, for each running job that loses its GPUs, the job that gets GPUs instead."""
        lost = [job.job_id for job in self._view.running if job.job_id not in self._holding]
        return {job_id: self._taker_of(job_id) for job_id in lost}

    def _taker_of(self, job_id: JobId) -> JobView:
        """Return the job with GPUs for which a job, or the job that preempted it in this decision, lost its GPUs."""
        taker = self._takers[job_id]
        while taker.job_id not in self._holding:
            taker = self._takers[taker.job_id]
        return taker

    def admit(self) -> None:
        """Start waiting jobs, with preemption, until no further job can start."""
        if len(self._holding) == len(self._order):
            return
        self._settle(with_borrowers=True)
        if self._rules.fair_sharing:
            while self._has_made_fairer():
                pass

    def placements(self) -> dict[JobId, Placement]:
        """Return the changed placements. They are empty for preempted jobs, and in shape for started jobs."""
        view = self._view
        changed: dict[JobId, Placement] = dict.fromkeys(self.preempted, ())
        if self._nodes is not None:
            before = {job.job_id: job.placement for job in view.running}
            for name in self._holding:
                if self._placements[name] != before.get(name):
                    changed[name] = self._placements[name]
            return changed
        free = FreeGpus(view.free)
        if changed:
            in_use = view.sharing.in_use(job for job in view.running if job.job_id not in changed)
            free = FreeGpus([gpus - in_use[node] for node, gpus in enumerate(view.gpus_per_node)])
        for job in self.started.values():
            changed[job.job_id] = free.pack(job.num_replicas) or ()
        return changed

    def reasons(self, asked: Iterable[JobId]) -> dict[JobId, Reason]:
        """Return the reasons for jobs, with the use of their queues' quotas."""
        wanted = set(asked)
        lost = self.preempted
        return {job.job_id: self._reason(job, lost) for job in self._view.jobs if job.job_id in wanted}

    def _reason(self, job: JobView, lost: Mapping[JobId, JobView]) -> Reason:
        queue = queue_of(job)
        numbers: dict[str, float] = {
            "gpus_needed": job.num_replicas,
            "quota": self._of(queue).quota,
            "queue_gpus": self._used[queue],
            "gpus_free": self._free,
            "gpus_available": self._available(queue),
        }
        if job.placement and (taker := lost.get(job.job_id)) is not None:
            return Reason(PREEMPTED if queue_of(taker) == queue else RECLAIMED, numbers, (taker.job_id,))
        if job.job_id in self._holding and not job.placement:
            return Reason(self._reason_kinds[job.job_id], numbers | self._rules.turn_numbers(job))
        if job.placement:
            return Reason(RUNS_ON, numbers)
        if self._nodes is not None and job.num_replicas <= self._available(queue):
            numbers |= node_numbers(self._kind[job.job_id].shape, self._nodes.gpus)
        return Reason(NO_QUOTA_LEFT, numbers)

    def _of(self, queue: str) -> Terms:
        return self._terms.get(queue, self._other)

    def _settle(self, *, with_borrowers: bool) -> None:
        """Make moves until none is left: starts, preemption by right and, with `with_borrowers`, to borrow."""
        failed: set[Kind] = set()  # kinds of jobs that have no move since the last preemption
        is_settled = False
        while not is_settled:
            is_settled = True
            preempts = bool(self._terms) or any(map(self._lower_gpus, self._waiting))
            if not (self._free or preempts):
                return
            for job in self._in_turn(failed):
                if self._fits(job):
                    self._start(job)
                elif preempts and (self._preempts_by_right(job) or (with_borrowers and self._preempts_to_borrow(job))):
                    is_settled = False
                    failed.clear()
                else:
                    failed.add(self._kind[job.job_id])
                if not (self._free or preempts):
                    return

    def _preempts_by_right(self, job: JobView) -> bool:
        """Start a job with preemption by right, if that makes room for it."""
        queue = queue_of(job)
        if not self._may_make_room(job):
            return False
        of_queue, of_others = self._candidates(job)
        if self._used[queue] < self._of(queue).quota and of_others:
            first_others = self._by_share(of_others) if self._rules.fair_sharing else of_others
            victims = self._fewest(job, chain(first_others, of_queue), borrowing=False)
            if victims:
                self._num_reclaims += any(queue_of(victim) != queue for victim in victims)
                self._exchange(job, victims)
                return True
        within = self._within_quota(queue)
        victims = self._fewest(job, of_queue, borrowing=True)
        if not victims:
            return False
        takes_quota = not within.isdisjoint(victim.job_id for victim in victims)
        self._add(job)
        is_within = job.job_id in self._within_quota(queue)
        self._remove(job)
        if takes_quota and not is_within:
            self._put_back(victims)
            return False
        self._exchange(job, victims)
        return True

    def _preempts_to_borrow(self, job: JobView) -> bool:
        """Start a job beyond the quota with preemption of its own queue, unless a job then reclaims GPUs."""
        kind = self._kind[job.job_id]
        lower_gpus = self._lower_gpus(kind)
        if not lower_gpus or kind.gpus > self._free + lower_gpus:
            return False
        before = self._copied()
        of_queue, _ = self._candidates(job)
        victims = self._fewest(job, of_queue, borrowing=True)
        if not victims:
            return False
        self._exchange(job, victims)
        self._settle(with_borrowers=False)
        if self._num_reclaims > before["_num_reclaims"]:
            self._restore(before)
            return False
        return True

    def _has_made_fairer(self) -> bool:
        """Start a job with preemption of queues with larger shares, if the shares are then fairer; return whether."""
        shares = self._shares()
        failed: set[Kind] = set()
        for job in self._in_turn(failed):
            if self._makes_fairer(job, shares):
                return True
            failed.add(self._kind[job.job_id])
        return False

    def _makes_fairer(self, job: JobView, shares: list[float]) -> bool:
        """Start a job with preemption of queues with larger shares, if the shares are then fairer than some shares."""
        of_queue, of_others = self._candidates(job)
        if not of_others:
            return False
        before = self._copied()
        victims = self._fewest(job, self._by_fair_sharing(job, [*of_others, *of_queue]), borrowing=True)
        if not victims:
            return False
        self._exchange(job, victims)
        if self._shares() < shares:  # otherwise the moves that follow are not worth a look
            self._settle(with_borrowers=True)
            if self._num_reclaims == before["_num_reclaims"] and self._shares() < shares:
                return True
        self._restore(before)
        return False

    def _shares(self) -> list[float]:
        """Return the shares of all queues, the largest first."""
        return sorted(map(self._share, self._queues), reverse=True)

    def _lower_gpus(self, kind: Kind) -> int:
        """Return the GPUs of the jobs of its own queue that a job of a kind may preempt."""
        if self._rules.within_queue == NEVER:
            return 0
        return sum(self._used_at[kind.queue, priority] for priority in self._priorities if priority < kind.priority)

    def _may_make_room(self, job: JobView) -> bool:
        """Return whether preemption by right may make room for a job: a quick test before the exact one."""
        kind = self._kind[job.job_id]
        room = self._free + self._lower_gpus(kind)
        if self._used[kind.queue] < self._of(kind.queue).quota and self._rules.reclaim != NEVER:
            room += sum(self._used[name] for name in self._queues if name != kind.queue and self._share(name))
        return self._free < room and kind.gpus <= room

    def _copied(self) -> dict[str, Any]:
        """Return a copy of the state that moves change."""
        return {name: copy(getattr(self, name)) for name in CHANGED}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take moves back."""
        self._within.clear()
        for name, value in state.items():
            setattr(self, name, value)

    def _in_turn(self, left_out: set[Kind]) -> Iterator[JobView]:
        """Yield the waiting jobs, without jobs of some kinds. The caller may start jobs, and leave out further kinds.

        In a queue, jobs are in order of priority, then submission. Among the first jobs of the queues, those within
        quotas come first; with fair sharing, the job whose queue would have the smallest share. Then jobs come in order
        of priority and submission.
        """
        jobs = {queue: iter(mine) for queue, mine in self._by_queue.items()}
        heads: list[tuple[float, int, str]] = []

        def push_next(queue: str) -> None:
            for job in jobs[queue]:
                if job.job_id not in self._holding and self._kind[job.job_id] not in left_out:
                    heappush(heads, (self._rank(queue, job), self._place[job.job_id], queue))
                    return

        for queue in jobs:
            push_next(queue)
        while heads and len(left_out) < len(self._waiting):
            _, place, queue = heappop(heads)
            job = self._order[place]
            if job.job_id not in self._holding and self._kind[job.job_id] not in left_out:
                yield job
            push_next(queue)

    def _rank(self, queue: str, job: JobView) -> float:
        """Return the sort key of a queue whose next job this is."""
        share = self._share(queue, job.num_replicas)
        return share if self._rules.fair_sharing else float(share > 0)

    def _share(self, queue: str, more: int = 0) -> float:
        """Return the GPUs of a queue beyond its quota, over its weight, if the queue gets `more` GPUs."""
        return self._of(queue).share(self._used[queue] + more)

    def _available(self, queue: str) -> float:
        """Return the GPUs that a queue may get, including the GPUs that it may borrow."""
        return self._of(queue).available(self._used[queue], self._pool)

    def _fits(self, job: JobView, *, borrowing: bool = True) -> bool:
        """Return whether a job fits now, with `borrowing` also beyond the quota of its queue."""
        queue = queue_of(job)
        gpus = held_gpus(job)
        if gpus > self._free or gpus > self._available(queue):
            return False
        if self._nodes is not None and not self._nodes.fits(self._kind[job.job_id].shape):
            return False
        return borrowing or not self._share(queue, gpus)

    def _add(self, job: JobView) -> None:
        kind = self._kind[job.job_id]
        self._change(kind, kind.gpus)
        self._holding[job.job_id] = job
        if self._nodes is not None:
            self._placements[job.job_id] = self._placed(job, self._nodes)
        self._waiting[kind] -= 1
        if not self._waiting[kind]:
            del self._waiting[kind]

    def _remove(self, job: JobView) -> None:
        kind = self._kind[job.job_id]
        self._change(kind, -kind.gpus)
        self._waiting[kind] += 1
        del self._holding[job.job_id]
        if self._nodes is not None:
            placement = self._placements.pop(job.job_id)
            self._last_placements[job.job_id] = placement
            self._nodes.give_back(placement)

    def _placed(self, job: JobView, nodes: FreeGpus) -> Placement:
        """Take GPUs for a job, those that it held last if they are free, and return them."""
        last = self._last_placements.get(job.job_id, ())
        if last and nodes.has(last):
            nodes.take(last)
            return last
        return nodes.pack_shape(self._kind[job.job_id].shape) or ()

    def _change(self, kind: Kind, gpus: int) -> None:
        """Give GPUs to the queue of a job of a kind, or take them from the queue if the number is negative."""
        queue = kind.queue
        self._within.pop(queue, None)
        self._used_at[queue, kind.priority] += gpus
        reserved = self._of(queue).reserved
        before = max(self._used[queue] - reserved, 0)
        self._used[queue] += gpus
        self._free -= gpus
        self._pool -= max(self._used[queue] - reserved, 0) - before

    def _start(self, job: JobView) -> None:
        self._add(job)
        self._reason_kinds[job.job_id] = BORROWS if self._share(queue_of(job)) else WITHIN_QUOTA

    def _exchange(self, job: JobView, victims: Iterable[JobView]) -> None:
        """Start a job for which some jobs, which are removed, lose their GPUs."""
        for victim in victims:
            self._takers[victim.job_id] = job
        self._start(job)

    def _put_back(self, removed: Sequence[JobView]) -> None:
        for victim in reversed(removed):
            self._add(victim)

    def _within_quota(self, queue: str) -> set[JobId]:
        """Return the jobs with GPUs within the quota of a queue."""
        if queue not in self._within:
            holders = [job for job in self._holding.values() if queue_of(job) == queue]
            holders.sort(key=lambda job: self._place[job.job_id])
            self._within[queue] = jobs_within(self._of(queue).quota, holders)
        return self._within[queue]

    def _candidates(self, job: JobView) -> tuple[list[JobView], list[JobView]]:
        """Return the jobs of the same queue and of other queues that may be preempted, in the order of preemption.

        Jobs of other queues must be beyond the quotas of their queues. The job with the lowest priority comes first;
        among equal priorities, the job that was admitted last.
        """
        rules = self._rules
        queue = queue_of(job)
        of_queue: list[JobView] = []
        of_others: list[JobView] = []
        may_reclaim = rules.fair_sharing or self._used[queue] < self._of(queue).quota
        within = {name: self._within_quota(name) for name in self._queues if may_reclaim and self._share(name) > 0}
        for victim in self._holding.values():
            name = queue_of(victim)
            rule = rules.within_queue if name == queue else rules.reclaim
            if rule == NEVER or (rule == LOWER_PRIORITY and victim.priority >= job.priority):
                continue
            if name == queue:
                of_queue.append(victim)
            elif name in within and victim.job_id not in within[name]:
                of_others.append(victim)

        def order(victim: JobView) -> tuple[float, float, int]:
            start = self._start_of(victim) if victim.placement else self._view.time
            return victim.priority, -start, -self._place[victim.job_id]

        return sorted(of_queue, key=order), sorted(of_others, key=order)

    def _fewest(self, job: JobView, candidates: Iterable[JobView], *, borrowing: bool) -> list[JobView]:
        """Remove candidates in order until a job fits, then put back those whose removal is not needed.

        Return the removed jobs. Remove no job if the new job cannot fit.
        """
        removed: list[JobView] = []
        for victim in candidates:
            if queue_of(victim) != queue_of(job) and not self._share(queue_of(victim)):
                continue
            self._remove(victim)
            removed.append(victim)
            if self._fits(job, borrowing=borrowing):
                return self._filled_back(job, removed, borrowing=borrowing)
        self._put_back(removed)
        return []

    def _filled_back(self, job: JobView, removed: Sequence[JobView], *, borrowing: bool) -> list[JobView]:
        """Put back each removed job whose removal is not needed; return the jobs that stay removed."""
        victims = [removed[-1]]  # without its removal the job did not fit
        for victim in reversed(removed[:-1]):
            self._add(victim)
            if not self._fits(job, borrowing=borrowing):
                self._remove(victim)
                victims.append(victim)
        return victims

    def _by_share(self, candidates: Iterable[JobView]) -> Iterator[JobView]:
        """Yield candidates, each time one of the queue with the largest share. The caller removes each job."""
        queues: dict[str, deque[JobView]] = {}
        for victim in candidates:
            queues.setdefault(queue_of(victim), deque()).append(victim)
        while queues:
            name = max(queues, key=self._share)
            yield queues[name].popleft()
            if not queues[name]:
                del queues[name]

    def _by_fair_sharing(self, job: JobView, candidates: Iterable[JobView]) -> Iterator[JobView]:
        """Yield candidates in the order of Kueue's fair sharing. The caller removes each before it asks for the next.

        First come jobs whose queue keeps at least the share that the queue of the new job will have, then one job of
        each queue whose share now exceeds the share that the other will have.
        """
        queue = queue_of(job)
        queues: dict[str, list[JobView]] = {}
        for victim in candidates:
            queues.setdefault(queue_of(victim), []).append(victim)
        refused: dict[str, JobView] = {}
        while queues:
            name = max(queues, key=self._share)
            victim = queues[name].pop(0)
            share = self._of(name).share(self._used[name] - held_gpus(victim))
            if name == queue or self._share(queue, job.num_replicas) <= share:
                yield victim
            else:
                refused.setdefault(name, victim)
            if not queues[name] or (name != queue and not self._share(name)):
                del queues[name]
        for name in sorted(refused, key=self._share, reverse=True):
            if self._share(queue, job.num_replicas) < self._share(name):
                yield refused[name]


# Attributes of a cohort that moves change. Copies of them take moves back.
CHANGED = (
    "_free", "_nodes", "_placements", "_last_placements", "_pool", "_used", "_used_at", "_holding", "_waiting",
    "_reason_kinds", "_takers", "_num_reclaims",
)  # fmt: skip
