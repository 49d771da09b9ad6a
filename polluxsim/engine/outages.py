"""Nodes go down and come up again; who has GPUs of one that goes down loses all its GPUs at that instant."""

from __future__ import annotations

from functools import partial
from heapq import heappushpop, heapreplace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.engine.agenda import Rank
from polluxsim.engine.jobs import in_order
from polluxsim.engine.streams import Stream, uniforms
from polluxsim.policies.view import Change

if TYPE_CHECKING:
    from polluxsim.engine.agenda import Happening
    from polluxsim.engine.state import State
    from polluxsim.engine.training import Training
    from polluxsim.types import Outage, Repairs


class Due(NamedTuple):
    """An outage that is to come, or has begun: which one of which unit of which of the cluster's `outages`."""

    source: int
    unit: int
    number: int
    what: Outage


class Workshop:
    """Repairs nodes in order of failure, so that it is known at once when each is up again.

    Without `repairs` there is a crew for every failure, and no spare node.
    """

    def __init__(self, repairs: Repairs | None) -> None:
        # Heaps of when each crew, and each spare node, is free.
        self._crews = [0.0] * ((repairs and repairs.crews) or 0)
        self._spares = [0.0] * (repairs.spare_nodes if repairs else 0)

    def until(self, now: float, outage: Outage) -> float:
        """Return when the nodes of an outage that begins now are up again [s].

        Of a group, only what failed is repaired: no spare node helps.
        """
        repaired = now + outage.duration
        if not outage.is_repair:
            return repaired
        if self._crews:
            repaired = max(now, self._crews[0]) + outage.duration
            heapreplace(self._crews, repaired)
        if self._spares and len(outage.nodes) == 1:
            return max(now, heappushpop(self._spares, repaired))
        return repaired


class Downtime:
    """Lets nodes be down as the cluster's outages say.

    Every outage has a random stream of its own, named by source, unit and number. So what is drawn depends on nothing
    that happened, a copy of a run needs no generator, and another node changes no other's failures.
    """

    def __init__(self, state: State, training: Training, seed: int) -> None:
        self._state = state
        self._training = training
        self._workshop = Workshop(state.scenario.cluster.repairs)
        self._seed = seed
        self._expected: set[tuple[int, int]] = set()
        # Of each unit that is up, its next outage.
        self._coming: dict[tuple[int, int], Due] = {}
        self.expect()

    def expect(self) -> None:
        """Call the first outage of each unit of which none was called yet; units come with nodes."""
        cluster = self._state.scenario.cluster
        units = [(place, unit) for place, each in enumerate(cluster.outages) for unit in each.units(cluster.num_nodes)]
        for source, unit in units:
            if (source, unit) not in self._expected:
                self._expected.add((source, unit))
                self._expect(source, unit, 0)

    def draw_anew(self, seed: int) -> None:
        """Let nodes that are up fail at other times, as if they came up now; what was announced stays."""
        self._seed, now = seed, self._state.agenda.now
        for due in list(self._coming.values()):
            if due.what.start - max(due.what.warning, due.what.drain) > now:
                self._expect(due.source, due.unit, due.number)

    def _expect(self, source: int, unit: int, number: int) -> None:
        """Call the next outage of a unit that is up from now on."""
        agenda, nodes = self._state.agenda, self._state.nodes
        draw = partial(uniforms, self._seed, (Stream.OUTAGES, source, unit, number))
        outage = self._state.scenario.cluster.outages[source].outage(unit, number, agenda.now, draw)
        if outage is None or self._is_coming(due := Due(source, unit, number, outage)):
            return
        self._coming[source, unit] = due
        agenda.at(outage.start, Rank.ARRIVAL, self._begin, due)
        for ahead, announce in ((outage.warning, nodes.warn), (outage.drain, nodes.drain)):
            if ahead:
                time = max(agenda.now, outage.start - ahead)
                agenda.at(time, Rank.ARRIVAL, self._announce, (due, announce))

    def _is_coming(self, due: Due) -> bool:
        return self._coming.get((due.source, due.unit)) == due

    def _announce(self, event: Happening) -> None:
        """Let it be known which nodes go down when, for policies to see or so that they take no further jobs."""
        due, announce = event.about
        if self._is_coming(due):
            for node in self._there(due.what):
                announce(node, due.what.start)
            self._state.rounds.note(Change.NODES)

    def _begin(self, event: Happening) -> None:
        if not self._is_coming(event.about):
            return
        del self._coming[event.about.source, event.about.unit]
        if (until := self.strike(event.about.what)) < inf:
            self._state.agenda.at(until, Rank.ARRIVAL, self._end, event.about)

    def strike(self, outage: Outage) -> float:
        """Let nodes go down now, and take the GPUs of all jobs that hold some of theirs; return until when [s]."""
        state, now = self._state, self._state.agenda.now
        cluster = state.scenario.cluster
        replaced = cluster.is_elastic and outage.is_repair
        until = now + cluster.startup_time if replaced else self._workshop.until(now, outage)
        nodes = self._there(outage)
        for job in in_order(state.jobs.placed.values()):
            if any(node in nodes for node, _ in job.placement):
                self._training.evict(job, outage.warning)
        for node in nodes:
            state.nodes.fall(node, now, until, outage.kind)
        state.rounds.note(Change.NODES)
        return until

    def _there(self, outage: Outage) -> list[int]:
        """Return the nodes of an outage that are there, as not all need be rented."""
        nodes, now = self._state.nodes, self._state.agenda.now
        return sorted(node for node in set(outage.nodes) if nodes.is_there(node, now))

    def _end(self, event: Happening) -> None:
        """Let nodes come up that are in no other outage, and call the unit's next one."""
        state, due = self._state, event.about
        for node in due.what.nodes:
            if node in state.nodes.down:
                state.nodes.rise(node, state.agenda.now)
        state.rounds.note(Change.NODES)
        self._expect(due.source, due.unit, due.number + 1)
