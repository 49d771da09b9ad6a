"""The end of a run in which no job can make progress any more."""

from __future__ import annotations

from math import inf

from polluxsim.engine.job import ActiveJob
from polluxsim.engine.outages import Downtime
from polluxsim.engine.rounds import Rounds
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.state import State

# A run without progress ends after this time or these rounds, whichever is longer, and additional restart delays.
LEAST_TIME = 60_000.0  # [s]
LEAST_ROUNDS = 100
DELAYS = 10

GRACE_ROUNDS = 10  # rounds, and additional restart delays, in which a job must progress after a repair that recurs

MOST_REPAIRS = 1000
"""Number of repairs that recur, without progress of a job between them, after which the run waits for no more of them.

Drawn failures never end. Without this limit, a run in which no job can ever train would not end either.
"""


class Standstill:
    """Note that no job can make progress, and end the run when nothing to come can change this.

    The policy has a time, the patience, in which a job must make progress. An event that may let a job progress starts
    this time again: the submission or the end of a job, a fork, and the return of a node that was recorded to be down.
    The run does not end while such an event is pending, so that the policy is always asked after the last one.

    Failures that are drawn recur for ever. The run also waits for their repairs, but after such a repair the policy has
    a few rounds only, and the number of these repairs is limited. The same holds for a time that the policy named.
    """

    def __init__(self, settings: EngineSettings, downtime: Downtime) -> None:
        delays = DELAYS * max(settings.delays.all)
        self._patience = max(LEAST_TIME, LEAST_ROUNDS * settings.round_interval) + delays
        self._grace = GRACE_ROUNDS * settings.round_interval + delays
        self._downtime = downtime
        self._idle_since: float | None = None  # first round without progress [s]
        self._until = inf  # end of the patience [s]
        self._num_repairs = 0  # repairs that recur, and times that the policy named, since then
        self._returned = downtime.returned

    def at_round(self, state: State, rounds: Rounds, num_coming: int, num_forks: int) -> str | None:
        """Return the reason why the run ends, or None if it continues.

        `num_coming` is the number of jobs that will be submitted whatever happens, `num_forks` that of forks to come.
        """
        now = state.clock.now
        active = state.jobs.active.values()
        before = self._returned
        self._returned = self._downtime.returned
        makes_progress = any(job.is_training(now) for job in state.jobs.placed.values())
        # The run goes on: a job trains, or jobs or nodes are still to come.
        if num_coming or makes_progress or state.nodes.are_starting(now):
            self._idle_since = None
            return None
        if self._idle_since is None:
            self._idle_since = now
            self._num_repairs = 0
            self._until = now + self._patience
        # Recorded outages are finitely many, so each return of their nodes may start the waiting time anew.
        if rounds.has_hope or self._returned.for_good > before.for_good:
            self._until = now + self._patience
        has_named_time = rounds.announced_wait > self._grace
        # Drawn outages and times that the policy names can go on for ever, so they give a little more time each, and
        # only `MOST_REPAIRS` times.
        if self._returned.again > before.again or (has_named_time and rounds.policy_is_due):
            self._num_repairs += 1
            if self._num_repairs <= MOST_REPAIRS:
                self._until = max(self._until, now + self._grace)
        if now < self._until:
            return None
        can_cancel = any(job.job.cancel_time is not None for job in active)  # which may let other jobs run
        pending = self._downtime.pending()
        if num_forks or can_cancel or pending.for_good:
            return None
        may_repeat = bool(pending.again) or (has_named_time and not rounds.policy_is_due)
        if may_repeat and self._num_repairs < MOST_REPAIRS:
            return None
        return self.message(state)

    def message(self, state: State) -> str:
        """Return why the run ends now."""
        jobs = state.jobs.active
        time = state.clock.now
        waited = 0.0
        if self._idle_since is not None:
            waited = time - self._idle_since
        first = next(iter(jobs), "none")
        subject = f"none of the {len(jobs)} jobs left, the first is {first!r},"
        how = "will make progress after"
        if waited:
            how = f"has made any progress in the {waited:g} s up to"
        return f"{subject} {how} {time:g} s: {self._cause(state)}"

    def _cause(self, state: State) -> str:
        """Return why no job makes progress: nodes that do not come back, endless failures, or the policy."""
        nodes = state.nodes
        counts = state.nodes.counts
        policy = f"policy {state.scenario.policy_name}"
        jobs = state.jobs.active.values()
        gone = sorted(node for node, outage in nodes.down.items() if outage.until == inf)
        without_room = [job.job_id for job in jobs if not _has_room(job, state)]
        if without_room and gone:
            names = f"node {gone[0]} is"
            if len(gone) > 1:
                names = f"nodes {', '.join(map(str, gone))} are"
            needs = "each of them needs"
            idle_others = ""
            if len(without_room) < len(jobs):
                needs = f"job {without_room[0]!r} needs"
                idle_others = f", and {policy} started no other job"
            return f"{names} down for good, and {needs} more than the nodes that are up{idle_others}"
        if self._num_repairs >= MOST_REPAIRS and self._downtime.pending().again:
            return f"nodes have failed and come up again {self._num_repairs} times, and no job could train in between"
        elastic = ""
        if counts is not None and counts.requested == counts.least:
            elastic = f"; only {counts.least} of up to {counts.most} nodes are up, as the policy asked for no more"
        return f"{policy} gave no GPU, or moved them every time{elastic}"


def _has_room(active: ActiveJob, state: State) -> bool:
    """Return whether the nodes that are up have the GPUs, CPUs and memory that a job needs.

    These are those of its request or, under an adaptive policy, of its fewest GPUs.
    """
    job = active.job
    cluster = state.scenario.cluster
    gang = active.truth.application.gang_size
    fewest_gpus = job.num_replicas
    if gang is None and state.scenario.traits.adaptive:
        fewest_gpus = job.min_replicas or 1
    up = state.nodes.present(state.clock.now)
    # The sum over nodes, although a policy may have to keep a shape: only the message depends on it.
    usable = 0
    for node, gpus in enumerate(up):
        if cluster.node_types and job.gpu_types and cluster.node_types[node].name not in job.gpu_types:
            continue
        room = gpus
        if cluster.hosts and job.host is not None:
            room = min(gpus, cluster.hosts[node].count(job.host))
        usable += room
    return usable >= fewest_gpus
