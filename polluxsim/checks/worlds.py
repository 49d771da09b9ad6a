"""A world, in which a policy is checked: a cluster, jobs of toy applications, and parameters of the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from itertools import cycle
from typing import Any, ClassVar

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

# Applications of the jobs with profiles. `wide` is slower on several nodes.
APPLICATIONS: Mapping[str, ToyProfile] = {**PROFILES, "wide": ToyProfile(name="wide", seconds=1.0, spread=0.5)}

# Rules by which jobs choose their batch sizes.
AGENTS: Mapping[str, BatchRule] = {
    "fixed": FixedBatch(), "adabatch": AdaBatch(), "omnilearn": OmniLearn(), "pollux": MostGoodput(),
}  # fmt: skip

# Stages of the jobs in turn, if policies share GPUs: each of the first three uses another resource most.
STAGES = (Stages(1.0, 0.9, 0.05, 0.0), Stages(1.0, 0.05, 0.9, 0.0), Stages(1.0, 0.2, 0.2, 0.9), None)

HORIZON = 2e5  # end of a run [s]; the jobs of a world need less than a tenth of this time one after the other
CHECKPOINT_COST = 5.0  # time of a checkpoint [s]
STARTUP_TIME = 90.0  # time until a requested node is up [s]
JOB_TIMES = ("submit_time", "duration", "deadline", "time_limit", "cancel_time")  # fields of a job that are times
CPUS = 4.0  # CPUs of a node for each of its GPUs [cores]
MEMORY = 32.0  # memory of a node for each of its GPUs [GB]


@dataclass(frozen=True)
class Listed:
    """Listed outages. Each is one unit."""

    outages: tuple[Outage, ...]
    recurs: ClassVar = False  # there is a last outage

    def units(self, num_nodes: int) -> range:
        """Return a number for each outage."""
        return range(len(self.outages))

    def outage(self, unit: int, number: int, since: float, draw: object) -> Outage | None:
        """Return the outage of the unit at number 0; None afterwards."""
        if number:
            return None
        return self.outages[unit]


class Crowd:
    """Sharing of GPUs by up to four jobs, each with an equal part of its speed."""

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether there are at most four jobs."""
        return len(tenants) <= MOST_JOBS

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the share of its speed that each job loses on its most crowded GPU."""
        users = Counter[tuple[int, int]]()
        for tenant in tenants:
            users.update(tenant.gpus)
        lost_shares = {}
        for tenant in tenants:
            if tenant.gpus:
                most_users = max(users[gpu] for gpu in tenant.gpus)
                lost_shares[tenant.job.job_id] = 1 - 1 / most_users
        return lost_shares


@dataclass(frozen=True)
class World:
    """A cluster, its jobs and the parameters of a policy. With the policy, they determine a run."""

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
    placement: str = "anywhere"  # as in `EngineSettings`
    limits: tuple[tuple[str, int], ...] = ()  # limits by user, like ("qos.high.user_gpus", 8)

    @property
    def cluster(self) -> Cluster:
        """Return the cluster with its outages."""
        clock = self.clock
        failures = [Outage((node,), start * clock, duration * clock, "drawn") for node, start, duration in self.outages]
        reclaims = [
            Outage((node,), start * clock, duration * clock, "spot", warning * clock)
            for node, start, duration, warning in self.reclaims
        ]
        hosts: tuple[Host, ...] = ()
        if self.has_hosts:
            hosts = tuple(Host(CPUS * gpus, MEMORY * gpus) for gpus in self.nodes)
        return Cluster(
            self.nodes,
            self.least_nodes,
            startup_time=0.0 if self.least_nodes is None else STARTUP_TIME * clock,
            failures=_listed(failures),
            spot=_listed(reclaims),
            node_types=NodeTypes(GPU_TYPES[name] for name in self.types),
            hosts=hosts,
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
        clock = self.clock
        checkpoints = None
        if self.checkpoint_interval is not None:
            checkpoints = Checkpoints(self.checkpoint_interval * clock, cost=CHECKPOINT_COST * clock)
        jobs = tuple(_slower(job, clock) for job in self.jobs)
        settings = EngineSettings(
            round_interval=ROUND_INTERVAL * clock,
            restart_delay=RESTART_DELAY * clock,
            checkpoints=checkpoints,
            horizon=self.horizon * clock,
            placement=self.placement,
            limits=_nested(self.limits),
        )
        # Jobs on shared GPUs are slower by `Crowd`, others by interference.
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
        # The first two arguments have no defaults, and jobs are written shorter here than by their own `repr`.
        options = [f"nodes={self.nodes}", f"jobs=({jobs},)", *_arguments(self)[2:]]
        return f"World({', '.join(options)})"


def _listed(outages: Sequence[Outage]) -> Listed | None:
    """Return a source of these outages; None without outages."""
    if not outages:
        return None
    return Listed(tuple(outages))


def _nested(limits: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return limits as users write them.

    >>> _nested([("all.user_gpus", 8), ("qos.high.jobs", 2)])
    {'all': {'user_gpus': 8}, 'qos': {'high': {'jobs': 2}}}
    """
    nested: dict[str, Any] = {}
    for setting, most in limits:
        *path, number = setting.split(".")
        place = nested
        for name in path:
            place = place.setdefault(name, {})
        place[number] = most
    return nested


def _arguments(world_or_job: World | Job) -> list[str]:
    """Return the arguments that differ from the defaults, as code."""
    arguments = []
    for field in fields(world_or_job):
        value = getattr(world_or_job, field.name)
        if field.default is MISSING or value != field.default:
            arguments.append(f"{field.name}={value!r}")
    return arguments


def _slower(job: Job, clock: float) -> Job:
    """Return a job whose times are multiplied by a factor."""
    values: dict[str, Any] = {}
    for name in JOB_TIMES:
        time = getattr(job, name)
        if time is not None:
            values[name] = time * clock
    past = job.past
    if past is not None:
        slower_past = replace(past, service=past.service * clock)
        if past.started is not None:
            slower_past = replace(slower_past, started=past.started * clock)
        if job.duration is not None:  # the work of a job with a profile is no time
            slower_past = replace(slower_past, progress=past.progress * clock)
        values["past"] = slower_past
    return replace(job, **values)


TIMES_OF_A_JOB = ("submit_time", "deadline", "cancel_time")  # fields of a job that are times of the clock [s]


def shifted(world: World, rounds: int) -> World:
    """Return a world with all its times later by a number of rounds.

    The world must have no jobs from before the run, because these fix the start of the run at 0 s.
    """
    delay = rounds * ROUND_INTERVAL
    outages = tuple((node, start + delay, duration) for node, start, duration in world.outages)
    reclaims = tuple((node, start + delay, duration, warning) for node, start, duration, warning in world.reclaims)
    jobs = tuple(later_job(job, delay) for job in world.jobs)
    return replace(world, jobs=jobs, outages=outages, reclaims=reclaims, horizon=world.horizon + delay)


def later_job(job: Job, delay: float) -> Job:
    """Return a job whose submission, deadline and cancellation are later by a delay [s]."""
    times = {}
    for name in TIMES_OF_A_JOB:
        time = getattr(job, name)
        if time is not None:
            times[name] = time + delay
    return replace(job, **times)
