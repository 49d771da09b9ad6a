"""Failures over time: nodes go down and come up again, and jobs fail by themselves."""

from __future__ import annotations

from functools import partial
from heapq import heappushpop, heapreplace
from math import inf, log
from typing import NamedTuple

from polluxsim.common.durations import HOUR
from polluxsim.common.instants import has_come
from polluxsim.engine.clock import Event, Rank, Stream, uniforms
from polluxsim.engine.job import ActiveJob, Transition
from polluxsim.engine.state import State
from polluxsim.hardware.clusters import Outage, Repairs
from polluxsim.records.results import Status


class ComingOutage(NamedTuple):
    """An outage in the future or in progress."""

    source: int  # its position among the cluster's `outages`
    unit: int  # node, group or row of the source
    number: int  # number of outages of the unit before
    what: Outage


class Returns(NamedTuple):
    """Numbers of outages whose nodes come up again, by whether their source has further outages without end."""

    for_good: int  # of recorded outages, which are finitely many
    again: int  # of drawn outages, which recur


class Workshop:
    """Repair nodes in order of failure.

    Without a number of crews, each failure has its own crew. Without `repairs`, no spare node exists.
    """

    def __init__(self, repairs: Repairs | None) -> None:
        # Heaps of the times at which each crew and each spare node is free.
        self._crews: list[float] = []
        self._spares: list[float] = []
        if repairs is not None:
            self._crews = [0.0] * (repairs.crews or 0)
            self._spares = [0.0] * repairs.spare_nodes

    def until(self, now: float, outage: Outage) -> float:
        """Return when the nodes of an outage that begins now come up again [s].

        A spare node can replace only a single node.
        """
        repaired = now + outage.duration
        if not outage.is_repair:
            return repaired
        if self._crews:
            # Failures come in order of time, so each takes the crew that is free first.
            repaired = max(now, self._crews[0]) + outage.duration
            heapreplace(self._crews, repaired)
        if self._spares and len(outage.nodes) == 1:
            # The earliest spare node takes the place, and the repaired node becomes a spare node.
            spare_from = heappushpop(self._spares, repaired)
            return max(now, spare_from)
        return repaired


class Downtime:
    """Take nodes down by the outages of the cluster.

    Each outage has its own random numbers, by source, unit and number. Therefore the draws do not depend on other
    events. All nodes are new at the start of the run, its first submission: the first drawn outage of a node follows
    it. Recorded outages happen at their times.
    """

    def __init__(self, state: State, seed: int) -> None:
        self._state = state
        self._workshop = Workshop(state.scenario.cluster.repairs)
        self._seed = seed
        self._units: set[tuple[int, int]] = set()
        self._coming: dict[tuple[int, int], ComingOutage] = {}  # the next outage of each unit that is up
        self._in_progress: dict[tuple[int, int], ComingOutage] = {}  # the outages that end
        self._num_interruptions = 0  # outages of forks that have not ended
        self.returned = Returns(0, 0)  # outages that have ended
        self.schedule_new_units()

    def schedule_new_units(self) -> None:
        """Schedule the first outage of each new unit. Units belong to nodes: new nodes add units."""
        cluster = self._state.scenario.cluster
        for source, source_outages in enumerate(cluster.outages):
            for unit in source_outages.units(cluster.num_nodes):
                if (source, unit) not in self._units:
                    self._units.add((source, unit))
                    self._schedule(source, unit, 0)

    def draw_anew(self, seed: int) -> None:
        """Draw the next failures of the nodes that are up again, as if they came up now. Announced ones stay."""
        self._seed = seed
        now = self._state.clock.now
        for coming in list(self._coming.values()):
            announced_from = coming.what.start - max(coming.what.warning, coming.what.drain)
            if not has_come(announced_from, now):
                self._schedule(coming.source, coming.unit, coming.number)

    def pending(self) -> Returns:
        """Return the outages in progress, or announced, whose nodes will come up again."""
        # An outage that is not announced does not count: the run need not wait for it.
        nodes = self._state.nodes
        outages = list(self._in_progress.values())
        if nodes.draining or nodes.coming:
            announced = nodes.draining.keys() | nodes.coming.keys()
            outages += [outage for outage in self._coming.values() if announced & set(outage.what.nodes)]
        for_good = self._num_interruptions
        again = 0
        for outage in outages:
            if outage.what.duration == inf:
                continue
            if self._recurs(outage):
                again += 1
            else:
                for_good += 1
        return Returns(for_good, again)

    def _recurs(self, coming: ComingOutage) -> bool:
        """Return whether the source of an outage has outages without end, as a source of a user has by default."""
        return bool(getattr(self._state.scenario.cluster.outages[coming.source], "recurs", True))

    def drop(self, nodes: tuple[int, ...]) -> None:
        """Take nodes down for good."""
        self._state.take_down(Outage(nodes, self._state.clock.now, inf, "dropped"), inf)

    def interrupt(self, outage: Outage) -> None:
        """Take nodes down now for the duration of an outage, which belongs to no source."""
        until = self._state.clock.now + outage.duration
        self._state.take_down(outage, until)
        self._num_interruptions += 1
        self._state.clock.at(until, Rank.ARRIVAL, self._end_interruption, outage)

    def _end_interruption(self, event: Event) -> None:
        self._num_interruptions -= 1
        for_good, again = self.returned
        self.returned = Returns(for_good + 1, again)
        self._state.bring_up(event.about)

    def _schedule(self, source: int, unit: int, number: int) -> None:
        """Schedule the next outage of a unit that is up from now on, or from the start of the run."""
        clock = self._state.clock
        since = max(clock.now, self._state.nodes.start)
        draw = partial(uniforms, self._seed, (Stream.OUTAGES, source, unit, number))
        outage = self._state.scenario.cluster.outages[source].outage(unit, number, since, draw)
        if outage is None:
            return
        coming = ComingOutage(source, unit, number, outage)
        if self._is_coming(coming):
            return  # drawn anew, it is the same one, whose events are scheduled
        self._coming[source, unit] = coming
        clock.at(outage.start, Rank.ARRIVAL, self._begin, coming)
        for ahead, drains in ((outage.warning, False), (outage.drain, True)):
            if ahead:
                clock.at(max(clock.now, outage.start - ahead), Rank.ARRIVAL, self._announce, (coming, drains))

    def _is_coming(self, coming: ComingOutage) -> bool:
        """Return whether an outage is still the next one of its unit; its events are void otherwise."""
        return self._coming.get((coming.source, coming.unit)) == coming

    def _announce(self, event: Event) -> None:
        coming, drains = event.about
        if self._is_coming(coming):
            self._state.announce(coming.what, drains=drains)

    def _begin(self, event: Event) -> None:
        """Begin an outage, and schedule its end."""
        coming = event.about
        now = self._state.clock.now
        cluster = self._state.scenario.cluster
        if not self._is_coming(coming):
            return
        del self._coming[coming.source, coming.unit]
        if cluster.is_elastic and coming.what.is_repair:
            until = now + cluster.startup_time  # another node is rented in its place
        else:
            until = self._workshop.until(now, coming.what)
        self._state.take_down(coming.what, until)
        # Nodes that are down for good have no end, and their unit has no next outage.
        if until < inf:
            self._in_progress[coming.source, coming.unit] = coming
            self._state.clock.at(until, Rank.ARRIVAL, self._end, coming)

    def _end(self, event: Event) -> None:
        """End an outage, and schedule the next one of its unit."""
        coming = event.about
        del self._in_progress[coming.source, coming.unit]
        for_good, again = self.returned
        if self._recurs(coming):
            self.returned = Returns(for_good, again + 1)
        else:
            self.returned = Returns(for_good + 1, again)
        self._state.bring_up(coming.what)
        self._schedule(coming.source, coming.unit, coming.number + 1)


class Crashes:
    """Let jobs fail by themselves, at the rate of the settings."""

    def __init__(self, state: State, seed: int) -> None:
        self._state = state
        self._seed = seed

    def draw_anew(self, seed: int) -> None:
        """Draw the next failures of all running jobs again."""
        # The events of the last seed stay in the queue; `_crash` compares the seed and ignores them.
        self._seed = seed
        for job in self._state.jobs.running:
            self._schedule(job)

    def start(self, transition: Transition) -> None:
        """Schedule the failure of a job that was just given GPUs.

        The failure is void if the job has other GPUs by then.
        """
        self._schedule(transition.job)

    def _schedule(self, job: ActiveJob) -> None:
        clock = self._state.clock
        failures = self._state.scenario.settings.job_failures
        if failures is None or not failures.rate:
            return
        # The inverse of the exponential distribution. The key is the job and its segment, whatever else happens.
        (life,) = uniforms(self._seed, (Stream.CRASHES, job.order, job.serial), 1)
        time = clock.now - log(life) * HOUR / failures.rate
        clock.at(time, Rank.ARRIVAL, self._crash, (job, job.holding.since, self._seed), order=job.order)

    def _crash(self, event: Event) -> None:
        """Take the GPUs of a job, and end the job if it has failed too often. Do nothing if the failure is void."""
        job, since, seed = event.about
        failures = self._state.scenario.settings.job_failures
        if not job.placement or (job.holding.since, self._seed) != (since, seed) or failures is None:
            return
        self._state.release(job, is_crash=True)
        if job.holding.num_crashes > failures.retries:
            self._state.end(job, Status.FAILED)
