"""Laws of preemption: no cycle without an event, and no preemption by a policy that promises none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.law import Law
from polluxsim.checks.worlds import World
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.reasons import RoundSeen
from polluxsim.policies.contract.view import Change, Traits


def laws_of_preemption(world: World, traits: Traits) -> list[Law]:
    """Return the laws of preemption that a policy with these traits must keep."""
    laws: list[Law] = [NoCycle(world, slices_time=traits.slices_time)]
    if traits.never_preempts:
        laws.append(NeverPreempts())
    return laws


@dataclass
class NoCycle(Law):
    """While no event happens, no state recurs after another state.

    Under a policy that slices time, jobs may take turns, also on GPUs of several types. The law then applies to
    clusters of one type, while no job waits.

    A state is the set of running jobs with the numbers of their GPUs, or with their GPUs by node. Arrivals, ends and
    changes of nodes are events, and so are the further events that end the validity of the decision (`outdated_by`).
    Where the policy chooses the number of nodes, a change of nodes is no event, and the nodes are a part of the state.
    """

    world: World
    slices_time: bool = False
    # Time of each state since the last event [s], by the numbers of GPUs and by the nodes of all jobs.
    _by_number: dict[object, float] = field(default_factory=dict)
    _by_node: dict[object, float] = field(default_factory=dict)
    _last_by_number: object = None
    _last_by_node: object = None
    _jobs: frozenset[JobId] = frozenset()

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield a finding if the state of this round was left before, and no event happened since."""
        some_wait = any(this_round.waits(job) for job in this_round.jobs)
        jobs_take_turns = self.slices_time and (len(this_round.up) > 1 or some_wait)
        if self._has_event(this_round) or jobs_take_turns:
            self._by_number.clear()
            self._by_node.clear()
            self._last_by_number = None
            self._last_by_node = None
        if jobs_take_turns:
            return
        nodes = tuple(this_round.gpus_per_node) if self._chooses_nodes else ()
        running = [job.job_id for job in this_round.jobs if not this_round.waits(job)]
        by_number = frozenset((name, this_round.held[name]) for name in running), nodes
        by_node = frozenset((name, frozenset(this_round.by_node[name].items())) for name in running), nodes
        # At most one finding: equal placements by node imply equal numbers.
        if by_number != self._last_by_number and by_number in self._by_number:
            yield self._finding(self._by_number[by_number], "the same jobs hold as many GPUs", running, this_round)
        elif by_node != self._last_by_node and by_node in self._by_node:
            yield self._finding(self._by_node[by_node], "the same jobs hold the same GPUs", running, this_round)
        self._by_number.setdefault(by_number, this_round.time)
        self._by_node.setdefault(by_node, this_round.time)
        self._last_by_number = by_number
        self._last_by_node = by_node

    def _finding(self, before: float, what: str, running: list[JobId], this_round: RoundSeen) -> Finding:
        names = ", ".join(running) or "no job"
        recurs = f"{what} at {this_round.time:g} s as at {before:g} s ({names}), but not in between"
        return Finding(
            Fault.CYCLE,
            f"{recurs}, and no event happened; if jobs take turns on purpose, declare "
            "traits = polluxsim.Traits(slices_time=True)",
        )

    @property
    def _chooses_nodes(self) -> bool:
        return self.world.least_nodes is not None

    def _has_event(self, this_round: RoundSeen) -> bool:
        """Return whether an event happened since the last round that may change the decision."""
        jobs = frozenset(job.job_id for job in this_round.jobs)
        has_other_jobs = jobs != self._jobs
        self._jobs = jobs
        kinds_of_events = Change.JOBS_OR_NODES | Change.EVICTION | this_round.outdated_by
        if self._chooses_nodes:
            # The policy itself may have caused the change of nodes.
            kinds_of_events &= ~Change.NODES
        return has_other_jobs or bool(this_round.events & kinds_of_events)


@dataclass
class NeverPreempts(Law):
    """A running job keeps its GPUs until its end, or until one of its nodes goes down.

    Jobs that share GPUs since before a fork, or hold another number than they request, may get other GPUs once.
    """

    _taken_over: set[JobId] | None = None  # these jobs; None before the first round

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield a finding for each running job that does not keep its GPUs."""
        if self._taken_over is None:
            running = [job for job in this_round.jobs if job.placement]
            shared = {job.job_id for job in running if job.job_id in this_round.sharing}
            self._taken_over = shared | {job.job_id for job in running if job.gpus_before != job.num_replicas}
        for job in this_round.jobs:
            loses_a_node = any(not this_round.gpus_per_node[node] for node, _ in job.placement)
            if not job.placement or loses_a_node:
                continue
            before = dict[int, int]()
            for node, gpus in job.placement:
                before[node] = before.get(node, 0) + gpus
            after = dict(this_round.by_node[job.job_id])
            if before == after:
                continue
            if job.job_id in self._taken_over:
                self._taken_over.remove(job.job_id)
                continue
            does = "moves it" if after else "takes its GPUs"
            runs = f"job {job.job_id!r} runs on the GPUs {job.placement}"
            yield Finding(
                Fault.PREEMPTION,
                f"{runs}, and the policy {does} at {this_round.time:g} s, although its traits say never_preempts",
            )
