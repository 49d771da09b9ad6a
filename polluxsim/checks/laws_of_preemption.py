"""Laws of preemption: no cycle without an event, and no preemption by a policy that promises none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from polluxsim.checks.findings import Fault, Finding, Seen, gpus_of
from polluxsim.checks.law import Law
from polluxsim.checks.worlds import World
from polluxsim.hardware.placements import JobId
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

    def see(self, seen: Seen) -> Iterator[Finding]:
        """Yield a finding if the state of this round was left before, and no event happened since."""
        jobs_take_turns = self.slices_time and (len(seen.up) > 1 or any(map(seen.waits, seen.jobs)))
        if self._has_event(seen) or jobs_take_turns:
            self._by_number.clear()
            self._by_node.clear()
            self._last_by_number = self._last_by_node = None
        if jobs_take_turns:
            return
        nodes = tuple(seen.gpus_per_node) if self._chooses_nodes else ()
        running = [job.job_id for job in seen.jobs if not seen.waits(job)]
        by_number = frozenset((name, seen.held[name]) for name in running), nodes
        by_node = frozenset((name, frozenset(seen.by_node[name].items())) for name in running), nodes
        if by_number != self._last_by_number and by_number in self._by_number:
            yield self._finding(self._by_number[by_number], "the same jobs hold as many GPUs", running, seen)
        elif by_node != self._last_by_node and by_node in self._by_node:
            yield self._finding(self._by_node[by_node], "the same jobs hold the same GPUs", running, seen)
        self._by_number.setdefault(by_number, seen.time)
        self._by_node.setdefault(by_node, seen.time)
        self._last_by_number, self._last_by_node = by_number, by_node

    def _finding(self, before: float, what: str, running: list[JobId], seen: Seen) -> Finding:
        names = ", ".join(running) or "no job"
        return Finding(
            Fault.CYCLE,
            f"{what} at {seen.time:g} s as at {before:g} s ({names}), but not in between, and no event happened; if "
            "jobs take turns on purpose, declare traits = polluxsim.Traits(slices_time=True)",
        )

    @property
    def _chooses_nodes(self) -> bool:
        return self.world.least_nodes is not None

    def _has_event(self, seen: Seen) -> bool:
        """Return whether an event happened since the last round that may change the decision."""
        jobs = frozenset(job.job_id for job in seen.jobs)
        is_other = jobs != self._jobs
        self._jobs = jobs
        counts = Change.JOBS_OR_NODES | Change.EVICTION | seen.outdated_by
        if self._chooses_nodes:
            counts &= ~Change.NODES
        return is_other or bool(seen.events & counts)


@dataclass
class NeverPreempts(Law):
    """A running job keeps its GPUs until its end, or until one of its nodes goes down.

    Jobs that share GPUs since before a fork, or hold another number than they request, may get other GPUs once.
    """

    _taken_over: set[JobId] | None = None  # these jobs; None before the first round

    def see(self, seen: Seen) -> Iterator[Finding]:
        """Yield a finding for each running job that does not keep its GPUs."""
        if self._taken_over is None:
            running = [job for job in seen.jobs if job.placement]
            shared = {job.job_id for job in running if job.job_id in seen.sharing}
            self._taken_over = shared | {job.job_id for job in running if gpus_of(job) != job.num_replicas}
        for job in seen.jobs:
            if not job.placement or any(not seen.gpus_per_node[node] for node, _ in job.placement):
                continue
            before = dict[int, int]()
            for node, gpus in job.placement:
                before[node] = before.get(node, 0) + gpus
            after = dict(seen.by_node[job.job_id])
            if before != after and job.job_id in self._taken_over:
                self._taken_over.remove(job.job_id)
            elif before != after:
                does = "moves it" if after else "takes its GPUs"
                what = f"job {job.job_id!r} runs on the GPUs {job.placement}, and the policy {does} at {seen.time:g} s"
                yield Finding(Fault.PREEMPTION, f"{what}, although its traits say never_preempts")
