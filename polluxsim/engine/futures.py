"""Forks: from a time on, a run continues under another policy, on other nodes, or with other jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from polluxsim.engine.clock import Event, Rank
from polluxsim.engine.job import Move
from polluxsim.engine.outages import Crashes, Downtime
from polluxsim.engine.recorder import RunRecorder
from polluxsim.engine.rounds import Rounds
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.state import State
from polluxsim.engine.submissions import Submissions
from polluxsim.engine.tables import in_order
from polluxsim.hardware.clusters import Outage
from polluxsim.hardware.placements import JobId
from polluxsim.workloads.workload import Job


class Fork(NamedTuple):
    """The changes of a run at a time."""

    time: float  # time of the changes [s]
    scenario: Scenario  # The scenario from then on: another policy, or more nodes. All other state stays as before.
    # Whether the policy has not seen the run before. The policy is then told of all active jobs.
    has_new_policy: bool = False
    lost_nodes: tuple[int, ...] = ()  # nodes that go down for good
    down: Outage | None = None  # outage that begins at this time and ends
    # Jobs that are cancelled, or that are not submitted. Jobs that have ended are not changed.
    without: tuple[JobId, ...] = ()
    added: tuple[Job, ...] = ()  # jobs that are submitted in addition
    seed: int | None = None  # Seed of the policy's random generator from then on. With None, the generator continues.
    # Active jobs with another duration or, while they wait, another request. Jobs that end at this time are complete.
    altered: tuple[Job, ...] = ()
    # Pairs of jobs. The first job is placed just before the second in the order of submission.
    overtaken: tuple[tuple[JobId, JobId], ...] = ()
    chance: int | None = None  # Seed of later failures of nodes and jobs. With None, they fail as before.

    def trimmed(self, num_nodes: int) -> Fork:
        """Return the fork without the last nodes if it both adds and drops them, given the present number of nodes."""
        lost = set(self.lost_nodes)
        cluster = self.scenario.cluster
        last = cluster.num_nodes
        while last > num_nodes and last - 1 in lost:
            last -= 1
            lost.remove(last)
        if last == cluster.num_nodes:
            return self
        scenario = replace(self.scenario, cluster=cluster.first_nodes(last))
        return self._replace(scenario=scenario, lost_nodes=tuple(node for node in self.lost_nodes if node in lost))


class Forks:
    """Make the changes of forks at their times."""

    def __init__(
        self,
        state: State,
        submissions: Submissions,
        downtime: Downtime,
        crashes: Crashes,
        rounds: Rounds,
        recorder: RunRecorder,
    ) -> None:
        self._state = state
        self._rounds = rounds
        self._submissions = submissions
        self._recorder = recorder
        self._downtime = downtime
        self._crashes = crashes
        self.num_pending = 0  # scheduled forks

    def schedule(self, fork: Fork) -> None:
        """Schedule the changes of a fork."""
        self.num_pending += 1
        self._state.clock.at(fork.time, Rank.ARRIVAL, self._begin, fork)

    def _begin(self, event: Event) -> None:
        """Make the changes, before the policy is called."""
        state = self._state
        before = self._state.scenario
        self.num_pending -= 1
        fork = event.about.trimmed(before.cluster.num_nodes)
        # First, because the new nodes, jobs and agents are made from the new scenario.
        state.use_scenario(fork.scenario)
        has_changed = self._change_nodes(fork, before)
        has_changed |= self._change_jobs(fork)
        # After the nodes: the failures of new nodes are drawn anew too.
        if fork.chance is not None:
            self._downtime.draw_anew(fork.chance)
            self._crashes.draw_anew(fork.chance)
        has_new_types = fork.scenario.cluster.types.keys() != before.cluster.types.keys()
        if fork.scenario.traits != before.traits or has_new_types:
            state.replace_agents()
            has_changed = True
        if fork.has_new_policy:
            self._recorder.begin_policy()
            self._rounds.announce_all(state.jobs.active)
        if has_changed or fork.has_new_policy:
            self._rounds.ask_anew()

    def _change_nodes(self, fork: Fork, before: Scenario) -> bool:
        """Add and drop nodes, and return whether the nodes changed."""
        state = self._state
        is_larger = fork.scenario.cluster.num_nodes > before.cluster.num_nodes
        if is_larger:
            state.add_nodes(fork.scenario.cluster)
            self._downtime.schedule_new_units()
        if fork.lost_nodes:
            # Without checkpoints in the scenario, a failure would take all work of a job.
            if not before.work_can_be_lost:
                self._leave(fork.lost_nodes)
            self._downtime.drop(fork.lost_nodes)
        if fork.down is not None:
            if not before.work_can_be_lost:
                self._leave(fork.down.nodes)
            self._downtime.interrupt(fork.down)
        return is_larger or bool(fork.lost_nodes) or fork.down is not None

    def _change_jobs(self, fork: Fork) -> bool:
        """Remove, add and alter jobs, and return whether a job changed."""
        state = self._state
        left_out = self._submissions.leave_out(fork.without)
        self._submissions.add(fork.added)
        altered = [job.job_id for job in fork.altered if job.job_id in state.jobs.active and state.replace_request(job)]
        for name, other in fork.overtaken:
            state.overtake(name, other)
        self._rounds.note_altered([*altered, *(name for name, _ in fork.overtaken)])
        return left_out or bool(altered) or bool(fork.overtaken)

    def _leave(self, nodes: tuple[int, ...]) -> None:
        """Take jobs off nodes without any loss of work, in a run in which no work can be lost."""
        placed = in_order(self._state.jobs.placed.values())
        leaving = [job for job in placed if any(node in nodes for node, _ in job.placement)]
        self._state.place([Move(job, (), None) for job in leaving])
        for job in leaving:
            job.leave_failed_node()
