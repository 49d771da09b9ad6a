"""Small random worlds by number: a cluster, jobs of toy applications, and parameters of the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from itertools import cycle
from typing import Any, ClassVar

import numpy as np

from polluxsim.agent.rules import AdaBatch, BatchRule, FixedBatch, MostGoodput, OmniLearn
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Tenant
from polluxsim.hardware.checkpoints import Checkpoints
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.hardware.hosts import Host
from polluxsim.hardware.placements import JobId
from polluxsim.hardware.restarts import RESTART_DELAY, ROUND_INTERVAL
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Application, Profile, StepTime
from polluxsim.models.stages import MOST_JOBS, Stages
from polluxsim.policies.contract.view import Traits
from polluxsim.workloads.past import Past
from polluxsim.workloads.workload import Job, Workload


@dataclass(frozen=True)
class ToyProfile:
    """A batch of M examples is worth M/M0 steps, and a step takes `seconds` on one node.

    On K GPUs of one node with a batch of K·M0, a job makes K/seconds M0-steps per second: perfect scaling. A step takes
    `seconds` · (1 + spread · (N − 1)) on N nodes, and a GPU of a type divides it by the speed of the type.
    `type_speeds` contains pairs (GPU type, speed); it is empty if the speed does not depend on the type.
    """

    name: str = "toy"
    seconds: float = 1.0  # time of a step on one node [s]
    epochs: Sequence[float] = (100.0, 200.0)  # progress at the end of each epoch [M0-steps]
    init_batch_size: int = 10  # M0 [examples]
    max_atomic_batch_size: int = 640  # [examples]
    spread: float = 0.0  # share of the time of a step that each further node adds
    type_speeds: tuple[tuple[str, float], ...] = ()

    @property
    def by_type(self) -> Mapping[str, ToyProfile]:
        """Return the profile on each GPU type, by name."""
        return {name: replace(self, seconds=self.seconds / speed, type_speeds=()) for name, speed in self.type_speeds}

    @property
    def application(self) -> Application:
        """Return the properties of the application."""
        return Application(
            self.name,
            init_batch_size=self.init_batch_size,
            max_batch_size=64 * self.init_batch_size,
            min_atomic_batch_size=1,
            max_atomic_batch_size=self.max_atomic_batch_size,
            num_epochs=len(self.epochs),
        )

    @property
    def losses(self) -> Sequence[float]:
        """Return losses of 1/2, 1/3, 1/4 and so on."""
        return [1.0 / (epoch + 2) for epoch in range(len(self.epochs))]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Return the smallest and the largest batch size [examples]."""
        return (self.init_batch_size, 64 * self.init_batch_size)

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the time of a step [s]; half of it is synchronisation."""
        seconds = self.seconds * (1 + self.spread * (len(gpus_by_node) - 1))
        return StepTime(seconds, seconds / 2)

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        """Return statistics with which all batch sizes are equally efficient."""
        return GradientStatistics(sqr=0.0, var=1.0)

    def epoch_end(self, epoch: int) -> float:
        """Return the progress at the end of an epoch [M0-steps]."""
        return self.epochs[epoch]

    def total_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps of a whole training."""
        return self.epochs[-1] * self.init_batch_size / batch_size

    def remaining_iterations(self, batch_size: int, epoch: int) -> float:
        """Return the optimiser steps after this epoch; 1 in the last epoch."""
        if epoch == len(self.epochs) - 1:
            return 1.0
        return (self.epochs[-1] - self.epochs[epoch]) * self.init_batch_size / batch_size


# Two applications; the second is eight times as slow.
PROFILES = {
    "toy": ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0)),
    "slow": ToyProfile(name="slow", seconds=4.0, epochs=(100.0, 200.0)),
}

TYPE_SPEEDS = (("t4", 1.0), ("v100", 3.0))  # speeds of the toy applications on GPU types

STREAM = 0xA7E4A  # number of the random stream of worlds

# Applications of the jobs with profiles. `wide` is slower on several nodes.
APPLICATIONS: Mapping[str, ToyProfile] = {**PROFILES, "wide": ToyProfile(name="wide", seconds=1.0, spread=0.5)}

# Rules by which jobs choose their batch sizes.
AGENTS: Mapping[str, BatchRule] = {
    "fixed": FixedBatch(), "adabatch": AdaBatch(), "omnilearn": OmniLearn(), "pollux": MostGoodput(),
}  # fmt: skip

# Stages of the jobs in turn, if policies share GPUs: each of the first three uses another resource most.
STAGES = (Stages(1.0, 0.9, 0.05, 0.0), Stages(1.0, 0.05, 0.9, 0.0), Stages(1.0, 0.2, 0.2, 0.9), None)

EARLIER, EARLIER_OF = 6, 7  # in the worlds EARLIER, EARLIER + EARLIER_OF and so on, jobs are from before the run
HORIZON = 2e5  # end of a run [s]; the jobs of a world need less than a tenth of this time one after the other
TIES, ONE_GPU = 5, 10  # every TIES-th world has equal jobs that arrive at once, every ONE_GPU-th world has one GPU
CHECKPOINT_COST = 5.0  # time of a checkpoint [s]
STARTUP_TIME = 90.0  # time until a requested node is up [s]
JOB_TIMES = ("submit_time", "duration", "deadline", "time_limit", "cancel_time")  # fields of a job that are times
CPUS, MEMORY = 4.0, 32.0  # CPUs and memory of a node for each of its GPUs [cores; GB]


@dataclass(frozen=True)
class Listed:
    """Listed outages. Each is one unit."""

    outages: tuple[Outage, ...]
    recurs: ClassVar = False  # there is a last outage

    def units(self, num_nodes: int) -> range:
        """Return a number for each outage."""
        return range(len(self.outages))

    def outage(self, unit: int, number: int, since: float, draw: object) -> Outage | None:
        """Return the outage of the unit once."""
        return None if number else self.outages[unit]


class Crowd:
    """Sharing of GPUs by up to four jobs, each with an equal part of its speed."""

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether there are at most four jobs."""
        return len(tenants) <= MOST_JOBS

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the share of its speed that each job loses on its most crowded GPU."""
        users = Counter(gpu for each in tenants for gpu in each.gpus)
        return {each.job.job_id: 1 - 1 / max(users[gpu] for gpu in each.gpus) for each in tenants if each.gpus}


@dataclass(frozen=True)
class World:
    """A cluster, its jobs and parameters of the policy, which determine a run."""

    nodes: tuple[int, ...]  # GPUs of each node
    jobs: tuple[Job, ...]  # those with a profile are of `APPLICATIONS`
    outages: tuple[tuple[int, float, float], ...] = ()  # failures: node, start, duration [s]
    least_nodes: int | None = None  # smallest number of nodes where the policy may change it
    interference: float = 0.0  # as in `EngineSettings`
    types: tuple[str, ...] = ()  # GPU type of each node by name; empty for one type
    has_hosts: bool = False  # whether nodes have limited CPUs and memory
    reclaims: tuple[tuple[int, float, float, float], ...] = ()  # node, start, duration, warning [s]
    checkpoint_interval: float | None = None  # training between checkpoints [s]
    agent: str | None = None  # a rule in `AGENTS`; None for the rule that the policy chooses
    is_scaled: bool = False  # whether an autoscaler chooses the number of nodes that the policy sees
    parameters: tuple[tuple[str, Any], ...] = ()  # parameters of the policy that differ from its defaults
    clock: float = 1.0  # factor on all times of the run, including those that the other fields state
    horizon: float = HORIZON  # end of the run [s]

    @property
    def cluster(self) -> Cluster:
        """Return the cluster with its outages."""
        clock = self.clock
        failures = tuple(
            Outage((node,), start * clock, duration * clock, "drawn") for node, start, duration in self.outages
        )
        spot = tuple(
            Outage((node,), start * clock, duration * clock, "spot", warning * clock)
            for node, start, duration, warning in self.reclaims
        )
        return Cluster(
            self.nodes,
            self.least_nodes,
            startup_time=0.0 if self.least_nodes is None else STARTUP_TIME * clock,
            failures=Listed(failures) if failures else None,
            spot=Listed(spot) if spot else None,
            node_types=NodeTypes(GPU_TYPES[name] for name in self.types),
            hosts=tuple(Host(CPUS * gpus, MEMORY * gpus) for gpus in self.nodes) if self.has_hosts else (),
        )

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Return the profiles of the applications."""
        speeds = TYPE_SPEEDS if self.types else ()
        return {
            name: replace(profile, seconds=profile.seconds * self.clock, type_speeds=speeds)
            for name, profile in APPLICATIONS.items()
        }

    def scenario(self, traits: Traits, name: str) -> Scenario:
        """Return the input of a simulation, with the traits and the name of a policy."""
        every, clock = self.checkpoint_interval, self.clock
        checkpoints = None if every is None else Checkpoints(every * clock, cost=CHECKPOINT_COST * clock)
        jobs = tuple(_slower(job, clock) for job in self.jobs)
        settings = EngineSettings(
            round_interval=ROUND_INTERVAL * clock,
            restart_delay=RESTART_DELAY * clock,
            checkpoints=checkpoints,
            horizon=self.horizon * clock,
        )
        if traits.shares_gpus:
            jobs = tuple(replace(job, stages=stages) for job, stages in zip(jobs, cycle(STAGES), strict=False))
            settings = replace(settings, sharing=Crowd())
        else:
            settings = replace(settings, interference=self.interference)
        agent = None if self.agent is None else AGENTS[self.agent]
        return Scenario(Workload(jobs), self.profiles, self.cluster, settings, traits, name, agent)

    def __repr__(self) -> str:
        """Return code that makes the world. It leaves out default values."""
        jobs = ", ".join(f"Job({', '.join(_arguments(job))})" for job in self.jobs)
        options = [f"nodes={self.nodes}", f"jobs=({jobs},)", *_arguments(self)[2:]]
        return f"World({', '.join(options)})"


def _arguments(made: World | Job) -> list[str]:
    """Return the arguments that differ from the defaults, as code."""
    return [
        f"{field.name}={getattr(made, field.name)!r}"
        for field in fields(made)
        if field.default is MISSING or getattr(made, field.name) != field.default
    ]


def _slower(job: Job, clock: float) -> Job:
    """Return a job whose times are multiplied by a factor."""
    values: dict[str, Any] = {}
    for name in JOB_TIMES:
        time = getattr(job, name)
        if time is not None:
            values[name] = time * clock
    past = job.past
    if past is not None:
        values["past"] = replace(
            past,
            started=None if past.started is None else past.started * clock,
            # The work of a job with a profile is no time.
            progress=past.progress if job.duration is None else past.progress * clock,
            service=past.service * clock,
        )
    return replace(job, **values)


@dataclass(frozen=True)
class Allowed:
    """The features that worlds for a policy may have: jobs without a profile, several GPU types, an autoscaler."""

    rigid: bool = True
    types: bool = True
    scaled: bool = True

    @classmethod
    def under(cls, traits: Traits) -> Allowed:
        """Return what a policy with these traits can schedule."""
        return cls(not traits.needs_profiles, not traits.one_type_as, not traits.scales)


def drawn(number: int, allowed: Allowed) -> World:
    """Return a world. A number always gives the same world."""
    rng = np.random.default_rng([STREAM, number])
    nodes = (1,) if number % ONE_GPU == 0 else tuple(rng.integers(1, 5, size=rng.integers(1, 5)).tolist())
    least = int(rng.integers(1, len(nodes) + 1)) if rng.random() < 0.15 else None
    types: tuple[str, ...] = ()
    if allowed.types and least is None and len(nodes) > 1 and rng.random() < 0.25:
        types = ("t4", "v100", *rng.choice(["t4", "v100"], size=len(nodes) - 2).tolist())
    # GPUs of the widest job that can always start.
    most = max(_by_type(nodes, types).values()) if types else sum(nodes[:least])
    has_hosts = rng.random() < 0.15
    job = partial(_job, most=most, rng=rng, with_rigid=allowed.rigid, types=_by_type(nodes, types), has_hosts=has_hosts)
    count = int(rng.integers(1, 9))
    if number % TIES == 1:
        alike = job(0, 0.0)
        jobs = [replace(alike, job_id=f"job-{index}") for index in range(count)]
    else:
        jobs = [job(index, 25.0 * int(rng.integers(0, 41))) for index in range(count)]
    if number % EARLIER_OF == EARLIER:
        # A node of a drawn number may have a GPU type that the job cannot use.
        known_nodes = () if types else nodes
        jobs = _some_from_before(jobs, known_nodes, np.random.default_rng([STREAM, number, EARLIER]))
    is_fixed = range(len(nodes) if least is None else 0)
    return World(
        nodes,
        tuple(jobs),
        outages=tuple(_outage(node, rng) for node in is_fixed if rng.random() < 0.12),
        least_nodes=least,
        interference=float(rng.choice([0.0, 0.0, 0.4])),
        types=types,
        has_hosts=has_hosts,
        reclaims=tuple((*_outage(node, rng), 120.0) for node in is_fixed if rng.random() < 0.05),
        checkpoint_interval=[None, 100.0, 300.0][rng.integers(3)],
        agent=str(rng.choice(sorted(AGENTS))) if rng.random() < 0.15 else None,
        is_scaled=least is not None and allowed.scaled and rng.random() < 0.5,
    )


def _some_from_before(jobs: Sequence[Job], nodes: Sequence[int], rng: np.random.Generator) -> list[Job]:
    """Return jobs of which about two thirds run or wait at the start of the run, some on a known one of the nodes."""
    return [_from_before(job, nodes, rng) if rng.random() < 2 / 3 else job for job in jobs]


def _from_before(job: Job, nodes: Sequence[int], rng: np.random.Generator) -> Job:
    """Return a job that was submitted before the start of the run. It runs, waits, or waits again after it ran."""
    waited, ran = 25.0 * int(rng.integers(1, 20)), 25.0 * int(rng.integers(1, 20))
    submit_time = -(waited + ran)
    kind = rng.choice(["runs", "runs on a node", "waits", "waits again"], p=[0.4, 0.2, 0.3, 0.1])
    if kind == "waits":
        return replace(job, submit_time=submit_time, past=Past.pending())
    whole = APPLICATIONS[job.application].epochs[-1] if job.duration is None else job.duration
    progress = whole * 0.125 * int(rng.integers(0, 8))
    past = Past.running(-ran, job.num_replicas, progress)
    if kind == "waits again":
        past = replace(past, state="pending")
    if kind == "runs on a node" and nodes:
        node = int(rng.integers(len(nodes)))
        if nodes[node] >= job.num_replicas:
            past = replace(past, placement=((node, job.num_replicas),))
    return replace(job, submit_time=submit_time, past=past)


TIMES_OF_A_JOB = ("submit_time", "deadline", "cancel_time")  # fields of a job that are times of the clock [s]


def shifted(world: World, rounds: int) -> World:
    """Return a world with all its times later by a number of rounds.

    The world has no jobs from before the run, because these fix the start of the run at 0 s.
    """
    delay = rounds * ROUND_INTERVAL
    outages = tuple((node, start + delay, duration) for node, start, duration in world.outages)
    reclaims = tuple((node, start + delay, duration, warning) for node, start, duration, warning in world.reclaims)
    jobs = tuple(later_job(job, delay) for job in world.jobs)
    return replace(world, jobs=jobs, outages=outages, reclaims=reclaims, horizon=world.horizon + delay)


def later_job(job: Job, delay: float) -> Job:
    """Return a job with all its times later by a delay [s]."""
    times = {}
    for name in TIMES_OF_A_JOB:
        if (time := getattr(job, name)) is not None:
            times[name] = time + delay
    return replace(job, **times)


def _by_type(nodes: Sequence[int], types: Sequence[str]) -> dict[str, int]:
    """Return the GPUs of each type."""
    return {name: sum(gpus for gpus, other in zip(nodes, types, strict=True) if other == name) for name in set(types)}


def _outage(node: int, rng: np.random.Generator) -> tuple[int, float, float]:
    """Return a random outage of a node: node, start and duration [s]."""
    return node, float(rng.integers(0, 1200)), float(rng.integers(1, 900))


def _job(
    index: int,
    time: float,
    *,
    most: int,
    rng: np.random.Generator,
    with_rigid: bool,
    types: Mapping[str, int],
    has_hosts: bool,
) -> Job:
    """Return a random job that arrives at a time [s] and requests at most `most` GPUs."""
    gpus = int(rng.integers(1, most + 1)) if rng.random() < 0.7 else most
    options = _optional_fields(time, gpus, rng) if rng.random() < 0.5 else {}
    if has_hosts and rng.random() < 0.5:
        options |= {"cpus": gpus * 2.0, "cpu_speeds": ((1.0, 0.4), (CPUS, 1.0))}
    wide_enough = [name for name in sorted(types) if gpus <= types[name]]
    if wide_enough and rng.random() < 0.3:
        options |= {"gpu_types": (str(rng.choice(wide_enough)),)}
    if with_rigid and rng.random() < 0.6:
        if rng.random() < 0.3:
            options |= {"speeds": tuple((count, count**0.75) for count in (1, 2, 4, 8, 16)), "max_replicas": None}
        elif types and rng.random() < 0.5:
            options |= {"type_speeds": TYPE_SPEEDS}
        return Job.rigid(f"job-{index}", time, gpus, 12.5 * int(rng.integers(1, 81)), **options)
    return Job(f"job-{index}", time, str(rng.choice(sorted(APPLICATIONS))), gpus, 10 * gpus, **options)


def _optional_fields(time: float, gpus: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return optional fields of a job."""
    choices: dict[str, list[Any]] = {
        "user": ["ada", "bob", None],
        "queue": ["vision", "speech", None],
        "priority": [0.0, 1.0, -2.0],
        "deadline": [time + 400.0, time + 1500.0, None],
        "time_limit": [100.0, 600.0, None],
        "cancel_time": [None, None, time + 5.0, time + 330.0],
        "min_replicas": [None, None, gpus, (gpus + 1) // 2],
        "max_replicas": [None, gpus, gpus + 3],
    }
    return {name: values[rng.integers(len(values))] for name, values in choices.items()}
