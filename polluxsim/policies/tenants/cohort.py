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

Words used here: a *victim* is a job that loses its GPUs in a move. A *candidate* is a job that may become a victim. The
*share* of a queue is its GPUs beyond its quota, over its weight. Source: Kueue's documentation and code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain

from polluxsim.hardware.placements import JobId, Placement
from polluxsim.policies.contract.view import JobView, Reason
from polluxsim.policies.tenants.cohort_gpus import CohortGpus
from polluxsim.policies.tenants.reason_kinds import BORROWS, NO_QUOTA_LEFT, PREEMPTED, RECLAIMED, WITHIN_QUOTA
from polluxsim.policies.tenants.terms import LOWER_PRIORITY, NEVER, Need, held_gpus
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gang_places import node_numbers
from polluxsim.policies.tools.ledger import queue_of
from polluxsim.policies.tools.reason_kinds import RUNS_ON


class Cohort(CohortGpus):
    """The moves of one decision: which waiting jobs start, and which running jobs lose their GPUs for them.

    `admit` makes all moves. The other public members return the result.
    """

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
            is_fairer = True
            while is_fairer:
                is_fairer = self._has_made_fairer()

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
        taker = lost.get(job.job_id)
        if taker is not None:
            kind = PREEMPTED if queue_of(taker) == queue else RECLAIMED
            return Reason(kind, numbers, (taker.job_id,))
        if job.job_id in self._holding and not job.placement:
            return Reason(self._reason_kinds[job.job_id], numbers | self._rules.turn_numbers(job))
        if job.placement:
            return Reason(RUNS_ON, numbers)
        if self._nodes is not None and job.num_replicas <= self._available(queue):
            numbers |= node_numbers(self._need[job.job_id].shape, self._nodes.gpus)
        return Reason(NO_QUOTA_LEFT, numbers)

    def _settle(self, *, with_borrowers: bool) -> None:
        """Make moves until none is left: starts, preemption by right and, with `with_borrowers`, to borrow."""
        failed: set[Need] = set()  # needs of jobs that have no move since the last preemption
        is_settled = False
        while not is_settled:
            is_settled = True
            preempts = bool(self._terms) or any(map(self._lower_gpus, self._waiting))
            if not (self._free or preempts):
                return
            for job in self._in_turn(failed):
                if self._fits(job):
                    self._start(job)
                elif preempts and self._preempts(job, with_borrowers=with_borrowers):
                    # The preempted jobs wait now, and jobs that found no room may find some.
                    is_settled = False
                    failed.clear()
                else:
                    failed.add(self._need[job.job_id])
                if not (self._free or preempts):
                    return

    def _preempts(self, job: JobView, *, with_borrowers: bool) -> bool:
        """Start a job with preemption by right or, with `with_borrowers`, to borrow; return whether."""
        return self._preempts_by_right(job) or (with_borrowers and self._preempts_to_borrow(job))

    def _preempts_by_right(self, job: JobView) -> bool:
        """Start a job with preemption by right, if that makes room for it; return whether."""
        queue = queue_of(job)
        if not self._may_make_room(job):
            return False
        of_queue, of_others = self._candidates(job)
        if self._used[queue] < self._of(queue).quota and of_others:
            first_others = self._by_share(of_others) if self._rules.fair_sharing else of_others
            victims = self._fewest(job, chain(first_others, of_queue), borrowing=False)
            if victims:
                takes_back = any(queue_of(victim) != queue for victim in victims)
                self._num_reclaims += takes_back
                self._exchange(job, victims)
                return True
        within = self._within_quota(queue)
        victims = self._fewest(job, of_queue, borrowing=True)
        if not victims:
            return False
        takes_quota = not within.isdisjoint(victim.job_id for victim in victims)
        # Whether the job is within the quota depends on all jobs with GPUs, so it is added for a moment.
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
        need = self._need[job.job_id]
        lower_gpus = self._lower_gpus(need)
        if not lower_gpus or need.gpus > self._free + lower_gpus:
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
        failed: set[Need] = set()
        for job in self._in_turn(failed):
            if self._makes_fairer(job, shares):
                return True
            failed.add(self._need[job.job_id])
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

    def _may_make_room(self, job: JobView) -> bool:
        """Return whether preemption by right may make room for a job: a quick test before the exact one."""
        need = self._need[job.job_id]
        room = self._free + self._lower_gpus(need)
        may_reclaim = self._used[need.queue] < self._of(need.queue).quota and self._rules.reclaim != NEVER
        if may_reclaim:
            borrowers = [name for name in self._queues if name != need.queue and self._share(name)]
            room += sum(self._used[name] for name in borrowers)
        has_candidates = self._free < room
        return has_candidates and need.gpus <= room

    def _in_turn(self, left_out: set[Need]) -> Iterator[JobView]:
        """Yield the waiting jobs, without jobs with some needs. The caller may start jobs, and leave out further needs.

        In a queue, jobs are in order of priority, then submission. Among the first jobs of the queues, those within
        quotas come first; with fair sharing, the job whose queue would have the smallest share. Then jobs come in order
        of priority and submission.
        """
        jobs = {queue: iter(jobs_of_queue) for queue, jobs_of_queue in self._by_queue.items()}
        heads: list[tuple[float, int, str]] = []  # heap of the first jobs: rank, place of the job, and its queue

        def push_next(queue: str) -> None:
            for job in jobs[queue]:
                if job.job_id not in self._holding and self._need[job.job_id] not in left_out:
                    heappush(heads, (self._rank(queue, job), self._place[job.job_id], queue))
                    return

        for queue in jobs:
            push_next(queue)
        while heads and len(left_out) < len(self._waiting):
            _, place, queue = heappop(heads)
            job = self._order[place]
            # The caller may have started the job, or left its need out, since it was pushed.
            if job.job_id not in self._holding and self._need[job.job_id] not in left_out:
                yield job
            push_next(queue)

    def _rank(self, queue: str, job: JobView) -> float:
        """Return the sort key of a queue whose next job this is."""
        share = self._share(queue, job.num_replicas)
        return share if self._rules.fair_sharing else float(share > 0)

    def _start(self, job: JobView) -> None:
        self._add(job)
        self._reason_kinds[job.job_id] = BORROWS if self._share(queue_of(job)) else WITHIN_QUOTA

    def _exchange(self, job: JobView, victims: Iterable[JobView]) -> None:
        """Start a job for which some jobs, which are removed, lose their GPUs."""
        for victim in victims:
            self._takers[victim.job_id] = job
        self._start(job)

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
        borrowers = [name for name in self._queues if may_reclaim and self._share(name) > 0]
        within = {name: self._within_quota(name) for name in borrowers}
        for victim in self._holding.values():
            name = queue_of(victim)
            rule = rules.within_queue if name == queue else rules.reclaim
            is_protected = rule == LOWER_PRIORITY and victim.priority >= job.priority
            if rule == NEVER or is_protected:
                continue
            if name == queue:
                of_queue.append(victim)
            elif name in within and victim.job_id not in within[name]:
                of_others.append(victim)

        def order(victim: JobView) -> tuple[float, float, int]:
            # A job without a placement started in this decision.
            start = self._start_of(victim) if victim.placement else self._view.time
            return victim.priority, -start, -self._place[victim.job_id]

        return sorted(of_queue, key=order), sorted(of_others, key=order)

    def _fewest(self, job: JobView, candidates: Iterable[JobView], *, borrowing: bool) -> list[JobView]:
        """Remove candidates in order until a job fits, then put back those whose removal is not needed.

        Return the removed jobs. Remove no job if the new job cannot fit.
        """
        removed: list[JobView] = []
        for victim in candidates:
            # The victims so far may have brought another queue back to its quota.
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
        # The last candidates first, because the first ones should rather be preempted.
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
        refused: dict[str, JobView] = {}  # first job of each queue that the first rule spares
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
