"""Another future: from a round on, a run goes on under another policy, on other nodes, or with other jobs."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.engine.agenda import Rank
from polluxsim.engine.jobs import in_order
from polluxsim.engine.moves import Move
from polluxsim.policies.view import Change
from polluxsim.types import Outage

if TYPE_CHECKING:
    from collections.abc import Collection

    from polluxsim.engine.agenda import Happening
    from polluxsim.engine.crashes import Crashes
    from polluxsim.engine.outages import Downtime
    from polluxsim.engine.scenario import Scenario
    from polluxsim.engine.state import State
    from polluxsim.engine.training import Training
    from polluxsim.engine.world import World
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Job


class Diversion(NamedTuple):
    """How a run goes on from a round on.

    Attributes
    ----------
    time
        That of the round [s].
    scenario
        What is simulated from then on: another kind of policy, or more nodes; all else is as before.
    has_new_policy
        Whether the policy has not seen the run before.
    lost_nodes
        Nodes that go down for good.
    without
        Jobs that are cancelled, or do not come.
    added
        Jobs that come besides.
    seed
        Of the policy's random generator from now on; None lets it go on.
    altered
        Active jobs as they are from now on: with another duration, or while they wait, another request. One that ends
        at this instant ends.
    overtaken
        Pairs of jobs. The first job is placed just before the second in the order of submission.
    chance
        Seed by which nodes and jobs fail from now on; None lets them fail as they would.
    """

    time: float
    scenario: Scenario
    has_new_policy: bool = False
    lost_nodes: tuple[int, ...] = ()
    without: tuple[JobId, ...] = ()
    added: tuple[Job, ...] = ()
    seed: int | None = None
    altered: tuple[Job, ...] = ()
    overtaken: tuple[tuple[JobId, JobId], ...] = ()
    chance: int | None = None


class Detour:
    """Leads a run another way."""

    def __init__(self, state: State, world: World, training: Training, downtime: Downtime, crashes: Crashes) -> None:
        self._state = state
        self._world = world
        self._training = training
        self._downtime = downtime
        self._crashes = crashes

    def expect(self, diversion: Diversion) -> None:
        """Have the run go another way when the time comes."""
        self._state.agenda.at(diversion.time, Rank.ARRIVAL, self._begin, diversion)

    def _begin(self, event: Happening) -> None:
        """Change what is to change, before the policy is asked."""
        state, diversion, before = self._state, event.about, self._state.scenario
        state.scenario = diversion.scenario
        if diversion.scenario.cluster != before.cluster:
            state.nodes.grow(diversion.scenario.cluster, state.agenda.now)
            self._downtime.expect()
            state.rounds.note(Change.NODES)
        if diversion.lost_nodes:
            if not before.cluster.outages and before.settings.checkpoints is None:
                self._clear(diversion.lost_nodes)
            self._downtime.strike(Outage(diversion.lost_nodes, state.agenda.now, inf, "dropped"))
        if diversion.without:
            self._world.leave_out(diversion.without)
        self._world.expect(diversion.added)
        for job in (each for each in diversion.altered if each.job_id in state.jobs.active):
            self._training.go_on_as(state.jobs.alter(job, state.scenario))
        for name, other in diversion.overtaken:
            state.jobs.put_before(name, other)
        if diversion.chance is not None:
            self._downtime.draw_anew(diversion.chance)
            self._crashes.draw_anew(diversion.chance)
        if diversion.scenario.traits != before.traits:
            self._training.replace_agents()
        state.rounds.ask_anew(state.jobs.views.values() if diversion.has_new_policy else None)

    def _clear(self, nodes: Collection[int]) -> None:
        """Let jobs leave nodes with all their work, in a run in which none is ever lost."""
        placed = in_order(self._state.jobs.placed.values())
        leaving = [job for job in placed if any(node in nodes for node, _ in job.placement)]
        self._training.carry_out([Move(job, (), None) for job in leaving], ())
