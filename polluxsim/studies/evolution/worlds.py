"""The worlds of a task: random loads of rigid jobs on clusters of one GPU type, and the mean JCT of runs in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.ordered.attained_service import Gittins, LeastAttainedService, Tiresias
from polluxsim.policies.ordered.classic import Fifo, Srsf
from polluxsim.records.results import Result
from polluxsim.run.limits_of_jobs import bounded_world
from polluxsim.statistics.bounds.bounding import MEAN, bounds_of
from polluxsim.workloads.philly import PhillyLikeRigid
from polluxsim.workloads.workload import Workload

STREAM = 0xE701  # number of the random stream of worlds

HOURS = (6, 8, 12)  # lengths of the windows of submissions [h]
NODES = (2, 3, 4, 6, 8)  # numbers of nodes
GPUS_PER_NODE = 4
RATES = (0.3, 0.4, 0.6)  # rates of bursts, as in `PhillyLikeRigid`
JOBS = range(40, 161)  # numbers of jobs in a world
LONGEST_JOB = 12 * 3600.0  # longer jobs are left out, so that a world ends soon [s]
LONGEST = 72 * 3600.0  # longest run of the initial program [s]
SMALLEST_DIFFERENCE = 1.1  # ratio of the mean JCTs of the references without knowledge, at least

HORIZON = 4.0  # end of a world, as a multiple of the run of the initial program

BOUND_TIME = 6.0  # time of the search for the bound of a world [s]

POLICY_SEED = 1  # seed of the generator that a program gets

INITIAL = "las"  # reference that the initial program is
REFERENCES: Mapping[str, type[Policy]] = {
    "fifo": Fifo, INITIAL: LeastAttainedService, "tiresias": Tiresias, "gittins": Gittins, "srsf": Srsf,
}  # fmt: skip
"""Policies with which a program is compared, by name."""

KNOWING = ("srsf",)  # references that know true durations


@dataclass(frozen=True)
class TaskWorld:
    """A cluster with jobs, what no schedule can beat, and what the references reach."""

    hours: int  # length of the window of submissions [h]
    nodes: int
    rate: float  # of bursts
    start: int  # of the window, after Monday midnight [h]
    seed: int  # of the jobs
    horizon: float = 0.0  # end of the world [s]; 0 if it is not known yet
    bound: float = 0.0  # lower bound on the mean JCT [s]
    mean_jct: Mapping[str, float] | None = None  # of the references, by name [s]

    def workload(self) -> Workload:
        """Return the jobs of at most `LONGEST_JOB`. Raise InvalidInputError if no job comes in the window."""
        most_gpus = self.nodes * GPUS_PER_NODE
        workload = PhillyLikeRigid(self.hours, self.start, self.rate, most_gpus, seed=self.seed).load({})
        short = tuple(job for job in workload.jobs if (job.duration or 0.0) <= LONGEST_JOB)
        return replace(workload, jobs=short)

    def scenario(self, policy: Policy, names: str = "") -> Scenario:
        """Return the input of a run. The text `names` determines the names of the jobs, if it is given."""
        workload = self.workload()
        if names:
            workload = renamed(workload, f"{names} {self.seed}")
        settings = EngineSettings(horizon=self.horizon or None, reasons="none")  # no score needs reasons
        cluster = Cluster((GPUS_PER_NODE,) * self.nodes)
        return Scenario(workload, {}, cluster, settings, traits_of(policy), policy.label)

    @property
    def initial(self) -> float:
        """Return the mean JCT of the initial program [s]."""
        assert self.mean_jct is not None
        return self.mean_jct[INITIAL]

    def as_plain(self) -> dict[str, Any]:
        """Return the world as plain values."""
        return asdict(self)


def renamed(workload: Workload, text: str) -> Workload:
    """Return the jobs with other names, which a text determines, so that no program can know jobs by name."""
    names: dict[str, None] = {}  # shortened hashes can be equal, and a dictionary has each once
    number = 0
    while len(names) < len(workload.jobs):
        digest = hashlib.sha256(f"{text} {number}".encode()).hexdigest()
        names[f"job-{digest[:8]}"] = None
        number += 1
    jobs = tuple(replace(job, job_id=name) for job, name in zip(workload.jobs, names, strict=True))
    return replace(workload, jobs=jobs)


def run(world: TaskWorld, policy: Policy, names: str = "") -> Result:
    """Return the result of a policy in a world. Raise PolicyError or InvalidAllocationError if the policy fails."""
    return run_to_end(Simulation(world.scenario(policy, names), POLICY_SEED), policy)


def mean_jct(world: TaskWorld, result: Result) -> float:
    """Return the mean JCT of all jobs of a world [s]. A job that is not complete has its age at the end of the world.

    Without a horizon, the world ends with the run.
    """
    end = world.horizon or result.end_time
    times = []
    # Records are in order of submission, and may have other names than the jobs here. Jobs that are
    # submitted after the end of the run may have none.
    for job, record in zip_longest(world.workload().jobs, result.job_records):
        completion = None if record is None else record.jct
        times.append(end - job.submit_time if completion is None else completion)
    return float(np.mean(times))


def drawn(key: int) -> Iterator[TaskWorld]:
    """Yield random worlds without end. A key always gives the same worlds."""
    number = 0
    while True:
        rng = np.random.default_rng([STREAM, key, number])
        number += 1
        yield TaskWorld(
            hours=int(rng.choice(HOURS)),
            nodes=int(rng.choice(NODES)),
            rate=float(rng.choice(RATES)),
            start=int(rng.integers(24)),
            seed=int(rng.integers(2**31)),
        )


def judged(world: TaskWorld) -> TaskWorld | None:
    """Return a world with its end, its bound, and the mean JCTs of the references; None if the world is no use.

    A world is no use if its number of jobs is not in `JOBS`, if the run of the initial program is longer than
    `LONGEST`, or if the references without knowledge hardly differ in it.
    """
    try:
        num_jobs = len(world.workload().jobs)
    except InvalidInputError:  # no job comes in the window
        return None
    if num_jobs not in JOBS:
        return None
    first = run(world, REFERENCES[INITIAL]())
    if first.end_time > LONGEST:
        return None
    values = {}
    for name, kind in REFERENCES.items():
        values[name] = mean_jct(world, run(world, kind()))
    # A reference that knows durations nearly always differs, also where programs cannot do better.
    blind = [value for name, value in values.items() if name not in KNOWING]
    if max(blind) < SMALLEST_DIFFERENCE * min(blind):
        return None
    problem = bounded_world(world.scenario(REFERENCES[INITIAL]()), first).problem
    assert problem is not None
    bound = bounds_of(problem, (MEAN,), BOUND_TIME)[MEAN].value
    return replace(world, horizon=HORIZON * first.end_time, bound=bound, mean_jct=values)
