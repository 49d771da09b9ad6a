"""Nodes go down and come up again; who has GPUs of one that goes down loses all its GPUs at that instant."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polluxsim.engine.agenda import Rank
from polluxsim.engine.jobs import in_order
from polluxsim.policies.view import Change

if TYPE_CHECKING:
    from polluxsim.engine.agenda import Happening
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.state import State
    from polluxsim.types import Outage

STREAM = 1
"""Of the run's seed; 0 is the policy's."""


class Due(NamedTuple):
    """An outage that is to come, or has begun.

    Attributes
    ----------
    source, unit, number
        Which outage of which unit of which of the cluster's `outages`.
    what
        The outage.
    """

    source: int
    unit: int
    number: int
    what: Outage


class Downtime:
    """Lets nodes be down as the cluster's outages say.

    Every outage has a random stream of its own, named by source, unit and number. So what is drawn depends on nothing
    that happened, a copy of a run needs no generator, and another node changes no other's failures.

    Parameters
    ----------
    state
        The run.
    seed
        The run's.
    """

    def __init__(self, state: State, seed: int) -> None:
        self._state = state
        self._seed = seed
        self._expected: set[tuple[int, int]] = set()
        self.expect()

    def expect(self) -> None:
        """Call the first outage of each unit of which none was called yet; units come with nodes."""
        cluster = self._state.scenario.cluster
        units = [(place, unit) for place, each in enumerate(cluster.outages) for unit in each.units(cluster.num_nodes)]
        for source, unit in units:
            if (source, unit) not in self._expected:
                self._expected.add((source, unit))
                self._expect(source, unit, 0)

    def _expect(self, source: int, unit: int, number: int) -> None:
        """Call the next outage of a unit that is up from now on."""
        agenda, cluster = self._state.agenda, self._state.scenario.cluster
        draw = partial(uniforms, self._seed, (STREAM, source, unit, number))
        outage = cluster.outages[source].outage(unit, number, agenda.now, draw)
        if outage is not None:
            agenda.at(outage.start, Rank.ARRIVAL, self._begin, Due(source, unit, number, outage))

    def _begin(self, event: Happening) -> None:
        outage = event.about.what
        self.strike(outage)
        if outage.duration < inf:
            self._state.agenda.at(self._state.agenda.now + outage.duration, Rank.ARRIVAL, self._end, event.about)

    def strike(self, outage: Outage) -> None:
        """Let nodes go down now, and take the GPUs of all jobs that hold some of theirs."""
        state, now = self._state, self._state.agenda.now
        until = now + outage.duration
        nodes = {node for node in outage.nodes if node < state.scenario.cluster.num_nodes}
        for job in in_order(state.jobs.placed.values()):
            if any(node in nodes for node, _ in job.placement):
                self._evict(job)
        for node in sorted(nodes):
            state.nodes.fall(node, now, until, outage.kind)
        state.rounds.note(Change.NODES)

    def _end(self, event: Happening) -> None:
        """Let nodes come up that are in no other outage, and call the unit's next one."""
        state, due = self._state, event.about
        for node in due.what.nodes:
            if node in state.nodes.down:
                state.nodes.rise(node, state.agenda.now)
        state.rounds.note(Change.NODES)
        self._expect(due.source, due.unit, due.number + 1)

    def _evict(self, job: ActiveJob) -> None:
        state, now = self._state, self._state.agenda.now
        state.nodes.give_back(job.placement)
        job.lose(now, state.scenario.settings.restart_delay, state.shutter.rule)
        state.jobs.moved(job)
        state.records.changed(now, job)
        state.rounds.note(Change.EVICTION, job.job_id)
        # Nothing was said of it yet as it is now.
        state.inquiry.ended(job.job_id)
        state.inquiry.submitted(job.job_id)


def uniforms(seed: int, key: tuple[int, ...], count: int) -> list[float]:
    """Return numbers in (0, 1), the same whenever a seed and the key of a stream are."""
    words = np.random.SeedSequence(seed, spawn_key=key).generate_state(count, np.uint64)
    return [((int(word) >> 11) + 0.5) * 2.0**-53 for word in words]
