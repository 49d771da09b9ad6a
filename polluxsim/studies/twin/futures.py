"""Futures of a live cluster: draw what is unknown, and let Slurm's rules run on.

Unknown are the run times of all jobs, and the jobs that arrive later. Everything else follows from the rules, which the
kernel `future` simulates. The kernel releases the lock of Python, so that threads simulate futures beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.common.durations import DAY
from polluxsim.policies.slurm.values import node_set
from polluxsim.run.workers import num_cores
from polluxsim.studies.twin.asks import ask_of
from polluxsim.studies.twin.fitting_kernels import DURATION, NUM_COLUMNS
from polluxsim.studies.twin.history import Arrival, Draws, Groups, JobHistory, drawn_arrivals
from polluxsim.studies.twin.kernels import NEVER, RUNS, WAITS, future
from polluxsim.studies.twin.world import COMPLETION, Table, TwinWorld, free_of, order_of_id, parameter_row

HORIZON = 30 * DAY  # a future is simulated for this long at most [s]
SEED = 0  # equal questions get equal answers

Arrivals = Callable[[np.random.Generator], Sequence[Arrival]]


class FutureTimes(NamedTuple):
    """The start and the end of a job in each future [s since 1970-01-01 UTC]; ∞ after the end of a future."""

    starts: Sequence[float]
    ends: Sequence[float]


class FutureSource(NamedTuple):
    """From where futures take what is unknown."""

    history: JobHistory
    arrivals: Arrivals
    draws_run_times: bool = True  # otherwise each job runs until its limit
    durations: Mapping[str, int] = {}  # whole run times of jobs of the state that are known, by name [s]


def outcomes(
    world: TwinWorld,
    source: FutureSource,
    jobs: Sequence[str],
    num_futures: int,
    *,
    seed: int = SEED,
    report: Callable[[int, float], None] = lambda done, mean_wait: None,
) -> dict[str, FutureTimes]:
    """Return the outcomes of pending and running jobs by name.

    The number of a future alone decides its draws, so that futures of two worlds with the same jobs are pairs.
    `report` is called after each future with the number of futures so far, and the mean wait in them [s].
    """
    simulation = TwinSimulation(world, source, jobs, seed)
    drawn: list[list[tuple[float, float]]] = []
    waits: list[float] = []
    with ThreadPoolExecutor(num_cores()) as pool:
        for times in pool.map(simulation.run, range(num_futures)):
            drawn.append(times)
            waits += [start - world.state.now for start, _ in times if start < inf]
            report(len(drawn), float(np.mean(waits)) if waits else inf)
    by_name = {}
    for place, name in enumerate(jobs):
        starts, ends = zip(*(times[place] for times in drawn), strict=True)
        by_name[name] = FutureTimes(starts, ends)
    return by_name


class TwinSimulation:
    """The simulations of a world: what all futures have in common, and `run` for a single one."""

    def __init__(self, world: TwinWorld, source: FutureSource, jobs: Sequence[str], seed: int) -> None:
        self._world = world
        self._source = source
        self._seed = seed
        self._groups = Groups(source.history.ended)
        self._priority_of = world.priority_of()
        self._rows = world.rows_of_state()
        names = [job.name for job in (*world.running, *world.pending)]
        self._places = [names.index(name) for name in jobs]
        self._dependencies = self._dependencies_of(names)

    def _dependencies_of(self, names: Sequence[str]) -> Table:
        """Return rows of a job and another job that must end first. Jobs that the state lacks have ended."""
        places = {name: place for place, name in enumerate(names)}
        rows = []
        for job in self._world.pending:
            for other in job.after:
                if other in places and other != job.name:
                    rows.append((places[job.name], places[other]))
        return np.array(rows, np.int64).reshape(-1, 2)

    def run(self, number: int) -> list[tuple[float, float]]:
        """Return the start and the end of each asked job in the future with a number [s]; ∞ after its end."""
        world = self._world
        # Draws about jobs of the state come from a generator of their own, so that arrivals do not change them.
        rng = np.random.default_rng([self._seed, number, 0])
        later_rng = np.random.default_rng([self._seed, number, 1])
        durations = self._durations(Draws(self._groups, rng))
        rows = self._rows.copy()
        for place, job in enumerate(world.running):
            # The kernels take the end of a job that runs.
            rows[place, DURATION] = job.start + durations[job.name]
        for place, job in enumerate(world.pending, start=len(world.running)):
            rows[place, DURATION] = durations[job.name]
        later = self._later(later_rng)
        jobs = np.concatenate([rows, later]) if len(later) else rows
        return self._simulated(jobs, len(rows))

    def _durations(self, draws: Draws) -> dict[str, int]:
        """Return the run times of the jobs of the state by name [s].

        Jobs that cannot run here are drawn too, so that the draws of two worlds with the same jobs are pairs.
        """
        durations = {}
        state = self._world.state
        for job in [*state.running, *sorted(state.waiting, key=order_of_id)]:
            elapsed = max(state.now - job.start, 0) if job.is_running else 0
            if job.name in self._source.durations:
                durations[job.name] = self._source.durations[job.name]
            elif self._source.draws_run_times:
                durations[job.name] = draws.duration(ask_of(job), job.account, elapsed)
            else:
                # A job that exceeds its limit ends at once.
                durations[job.name] = max(job.limit, elapsed + 1)
        return durations

    def _later(self, rng: np.random.Generator) -> Table:
        """Return the rows of the jobs that arrive later, in the order of submission."""
        draws = Draws(self._groups, rng)
        rows = []
        for arrival in self._source.arrivals(rng):
            # The draw comes before the check, so that worlds with other nodes draw alike.
            duration = arrival.duration
            if duration is None:
                duration = draws.duration(arrival.ask, arrival.account)
            if not self._world.can_run(arrival.ask):
                continue
            row = self._world.row(arrival.ask, arrival.submit, self._priority_for(arrival))
            row[DURATION] = duration
            rows.append(row)
        return np.array(rows, np.int64).reshape(-1, NUM_COLUMNS)

    def _priority_for(self, arrival: Arrival) -> float:
        """Return the priority of a job that arrives later. Zero is for jobs behind all jobs of the state."""
        priority = self._priority_of(arrival.ask, arrival.account, arrival.submit)
        return max(priority, 1.0) if priority else 0.0

    def _simulated(self, jobs: Table, num_first: int) -> list[tuple[float, float]]:
        """Return the start and the end of each asked job. `jobs` has `num_first` rows of the state, then later jobs."""
        world = self._world
        now = world.state.now
        num_running = len(world.running)
        num_jobs = len(jobs)
        held_by_job = [world.held(job) for job in world.running]
        rows_of_held = [(part.node, part.gpus, part.cpus) for held in held_by_job for part in held]
        suitable, of_partitions = world.sets_of_kinds()
        phases = np.full(num_jobs, WAITS, np.int64)
        phases[:num_running] = RUNS
        ends = np.zeros(num_jobs, np.int64)
        held_from = np.zeros((num_jobs, 2), np.int64)
        job_nodes = np.zeros((num_jobs, world.num_words), np.int64)
        used = 0
        for place, job in enumerate(world.running):
            ends[place] = job.start + job.limit
            held_from[place] = used, used + len(held_by_job[place])
            used = held_from[place, 1]
            job_nodes[place] = world.words(node_set(held.node for held in held_by_job[place]))
        # Each job that waits takes as many rows as nodes when it starts.
        held = np.zeros((len(rows_of_held) + int(jobs[num_running:, 0].sum()) + 1, 3), np.int64)
        if rows_of_held:
            held[: len(rows_of_held)] = rows_of_held
        # A running job has started, so the simulation need not wait for it.
        asked = np.zeros(num_jobs, np.int64)
        for place in self._places:
            asked[place] = place >= num_running
        completing = world.completing
        until = now + (COMPLETION if completing else 0)
        last_cycle = NEVER if world.state.last_cycle is None else world.state.last_cycle
        starts = np.full(num_jobs, -1, np.int64)
        times = np.array([now, now + int(HORIZON), until, last_cycle, used], np.int64)
        weights = np.array([node.weight for node in world.nodes], np.int64)
        future(
            jobs, phases, num_first, ends, job_nodes, held_from, held, self._dependencies, asked,
            free_of(world.nodes, held_by_job), weights, suitable, of_partitions,
            np.array(world.words(completing), np.int64), times, parameter_row(world.parameters), starts,
        )  # fmt: skip
        results: list[tuple[float, float]] = []
        for place in self._places:
            if place < num_running:
                results.append((float(world.running[place].start), float(jobs[place, DURATION])))
            elif starts[place] < 0:
                results.append((inf, inf))
            else:
                results.append((float(starts[place]), float(starts[place] + jobs[place, DURATION])))
        return results


def recent_arrivals(history: JobHistory) -> Arrivals:
    """Return a source of arrivals that are drawn from the recent ones of a history."""
    return lambda rng: drawn_arrivals(history, rng)


def no_arrivals(rng: np.random.Generator) -> Sequence[Arrival]:
    """Return no arrivals."""
    return ()
