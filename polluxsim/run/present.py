"""Forecast when the jobs of a real cluster start and complete, from its present state and the history of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy
from polluxsim.run.execution import Execution
from polluxsim.run.resampling import (
    LONGEST_ARRIVALS,
    NONE,
    RECENT,
    DrawnFuture,
    FutureArrivals,
    KnownState,
    pieces,
)
from polluxsim.run.spec import RunSpec
from polluxsim.workloads.history import Draw
from polluxsim.workloads.present import History, PresentJobs, Site
from polluxsim.workloads.workload import Job, Workload


@dataclass(frozen=True)
class Situation:
    """The present state of a real cluster, and what is assumed about it."""

    spec: RunSpec  # settings of the policy and of the engine
    source: str  # name of the file with the jobs
    present: PresentJobs
    site: Site
    history: History | None  # None: each job runs until its time limit, and no further jobs arrive
    arrivals: FutureArrivals


def site_of(spec: RunSpec, cluster: Cluster, node_numbers: Mapping[str, int]) -> Site:
    """Return a real cluster. `node_numbers` has the number of each node by its name; empty if there are no names."""
    # A run without jobs has the scenario that can judge each job.
    objects = {"workload": Workload((), source="nodes"), "cluster": cluster}
    run, _ = Execution(replace(spec, objects=objects)).start()
    return Site(cluster, partial(_refusal, run.scenario), node_numbers)


def _refusal(scenario: Scenario, job: Job) -> str:
    """Return why a job can never run; "" if it can."""
    try:
        # Without the jobs that it waits for, because this workload does not have them.
        scenario.check(Workload((replace(job, after=()),)))
    except InvalidInputError as error:
        return str(error)
    return ""


class _Limits:
    """A future in which each job runs until its time limit."""

    def __init__(self) -> None:
        # Without a drawn duration, a job has the duration of the workload, which is its time limit here.
        self.durations: dict[JobId, float] = {}
        self.length = 1.0  # of no effect, because no jobs arrive [s]

    def arrivals(self, start: float) -> Iterator[Job]:
        """Yield no job."""
        yield from ()


class KnownSite(KnownState):
    """The information about a real cluster at present, which is time 0.

    Raise InvalidInputError if nothing is known about the run time of a job, or the log is probably that of other nodes.
    """

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.arrivals = situation.arrivals
        self.time = 0.0
        jobs = tuple(situation.present.jobs)
        if situation.history is None:
            _check_limits(jobs, situation.source)
        elif situation.arrivals.source == RECENT:
            _check_load(situation.history)
        objects = {"workload": Workload(jobs, source=situation.source), "cluster": situation.site.cluster}
        execution = Execution(replace(situation.spec, objects=objects))
        run, self._policy = execution.start()
        self._scenario: Scenario = run.scenario
        self._seed = situation.spec.seed
        started = situation.present.started
        # The present is time 0, so a job that started at −60 s has run for 60 s.
        self._active = [(job, -started.get(job.job_id, 0.0)) for job in jobs]
        self.names = [job.job_id for job in jobs]
        self.waiting = frozenset(self.names) - started.keys()
        # Jobs that begin later, or wait for other jobs, do not compete yet.
        self._waited = frozenset(job.job_id for job in jobs if job.job_id in self.waiting and _is_in_queue(job))
        self._running_since = dict(started)
        self._starting = self._starting_with(())

    @property
    def assumption(self) -> str:
        """Return the line that states the assumed run times and arrivals."""
        history = self._situation.history
        if history is None:
            return "assumed: each job runs until its time limit, and no further jobs arrive"
        count = sum(seen_job.job.past is None for seen_job in history.seen)
        run_times = f"assumed run times: drawn from {history.source}, given how long a job has run"
        if self.arrivals.source == NONE:
            return f"{run_times}; no further jobs arrive"
        if self.arrivals.source == RECENT:
            until = length(self._until(history))
            return f"{run_times}; arrivals: resampled from {count:,} jobs of {length(history.end)}, for {until}"
        return f"{run_times}; {self.arrivals.in_words(0.0, 0.0, count)}"

    def recipe(self) -> Callable[[], KnownState]:
        """Return a function that makes an equal state in another process."""
        return partial(KnownSite, self._situation)

    def _begun(self, altered: tuple[Job, ...]) -> tuple[Simulation, Policy, Fork]:
        altered_jobs = {job.job_id: job for job in altered}
        workload = self._scenario.workload
        jobs = tuple(altered_jobs.get(job.job_id, job) for job in workload.jobs)
        scenario = replace(self._scenario, workload=Workload(jobs, source=workload.source))
        run = Simulation(scenario, self._seed)
        return run, deepcopy(self._policy), Fork(0.0, scenario)

    def _draw(self, rng: np.random.Generator) -> DrawnFuture:
        history = self._situation.history
        return _Limits() if history is None else Draw(history.seen, history.end, rng)

    def _until(self, history: History) -> float:
        """Return until when resampled jobs arrive [s]."""
        return min(history.end, LONGEST_ARRIVALS)

    def _coming(self, draw: DrawnFuture) -> Iterator[tuple[float, Iterable[Job]]]:
        history = self._situation.history
        if history is None or self.arrivals.source != RECENT:
            yield 0.0, self.arrivals.after(0.0)
            return
        yield from pieces(draw, 0.0, self._until(history))


MOST_LOAD = 2.0  # load of a log above which its arrivals cannot be those of the cluster [1]


def _check_load(history: History) -> None:
    """Raise InvalidInputError if the jobs of a log need much more GPU time than the nodes have."""
    if history.load > MOST_LOAD:
        raise InvalidInputError(
            f"{history.source}: its jobs need {history.load:.2g} times the GPU time of the nodes, so it is the log of "
            "other nodes; give the log of these nodes, or draw only run times from it with --arrivals none"
        )


def _is_in_queue(job: Job) -> bool:
    """Return whether a waiting job competes for GPUs at present."""
    return job.past is not None and not job.after


def _check_limits(jobs: Iterable[Job], source: str) -> None:
    """Raise InvalidInputError if a job has no time limit."""
    without = [job.job_id for job in jobs if job.time_limit is None]
    if without:
        problem = (
            f"{len(without)} jobs have no time limit, like {without[0]}, so nothing is known about their run times"
        )
        raise InvalidInputError(f"{source}: {problem}; give the log of the cluster with --history")
