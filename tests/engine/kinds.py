"""Small drawn worlds of each kind of run: a cluster, jobs, settings and a policy. A number always gives one world."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, NamedTuple

from drawn import POLICIES
from toy import ToyProfile

from polluxsim.checks.worlds import STAGES, Crowd
from polluxsim.engine.failures import DrawnFailures, JobFailures, SpotReclaims
from polluxsim.engine.settings import EngineSettings
from polluxsim.hardware.checkpoints import Checkpoints
from polluxsim.hardware.clusters import Cluster, Repairs
from polluxsim.hardware.hosts import Host
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.profile import Profile
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.elastic.cluster_size import Autoscaler, PendingGpus, Scaled
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.sharing.antman import AntMan
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.policies.sharing.muri import Muri
from polluxsim.workloads.workload import Job, Workload

HORIZON = 20_000.0
"""End of a run in which jobs are left [s]."""

TYPES = {"t4": 1.0, "v100": 0.5, "a100-40": 0.25}
"""GPU types, with the step time on each relative to the first."""


@dataclass(frozen=True)
class Slowing(ToyProfile):
    """A toy application whose large batches are worth less in each later epoch, so that each epoch has its own rate."""

    def gradient_statistics(self, batch_size: int, epoch: int) -> GradientStatistics:
        return GradientStatistics(sqr=0.3 * epoch, var=1.0)


@dataclass(frozen=True)
class Typed(Slowing):
    """The same application on each of `TYPES`."""

    @property
    def by_type(self) -> dict[str, Slowing]:
        return {name: Slowing(self.name, self.seconds * factor, self.epochs) for name, factor in TYPES.items()}


EPOCHS: dict[str, tuple[float, tuple[float, ...]]] = {
    "toy": (0.5, (100.0, 250.0, 400.0, 600.0, 700.0)),
    "slow": (4.0, (30.0, 60.0, 100.0, 150.0, 200.0)),
}
PROFILES = {name: Slowing(name, seconds, epochs) for name, (seconds, epochs) in EPOCHS.items()}
TYPED = {name: Typed(name, seconds, epochs) for name, (seconds, epochs) in EPOCHS.items()}


class World(NamedTuple):
    """The input of a run. `policy` makes a new policy for each run."""

    name: str
    policy: Callable[[], Policy]
    workload: Workload
    cluster: Cluster
    settings: EngineSettings
    profiles: Mapping[str, Profile]


class Kind(NamedTuple):
    """A kind of run: its policies, and a function that draws its cluster and its settings."""

    policies: Mapping[str, Callable[[], Policy]]
    setting: Callable[[random.Random], tuple[Cluster, dict[str, Any]]]


def _named(*names: str) -> dict[str, Callable[[], Policy]]:
    return {name: POLICIES[name] for name in names}


def _sizes(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 4)))


def _failures(rng: random.Random) -> DrawnFailures:
    """Return failures about as often as jobs end."""
    rate = rng.choice([3e4, 1.5e5])
    return DrawnFailures(rate, 0.8, repair_time=200.0, repair_spread=0.5, group_size=2, group_rate=rate / 3)


def _plain(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    return Cluster(_sizes(rng)), {"interference": rng.choice([0.0, 0.4])}


def _failing(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    spot = SpotReclaims(2e4, 100.0, 8.0) if rng.random() < 0.3 else None
    cluster = Cluster(_sizes(rng), failures=_failures(rng), spot=spot, repairs=rng.choice([None, Repairs(1, 1)]))
    return cluster, {}


def _crashing(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    return Cluster(_sizes(rng)), {"job_failures": JobFailures(rng.choice([3.0, 12.0]), 2)}


def _saving(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    cluster, settings = _failing(rng)
    choices: list[float | str] = [70.0, 20.0, "epoch", "young-daly"]
    every = rng.choice(choices)
    return cluster, settings | {"checkpoints": Checkpoints(every, rng.choice([5.0, 20.0]))}


def _sharing(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    return Cluster(_sizes(rng)), {"sharing": Crowd()}


def _with_cpus(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    sizes, cpus = _sizes(rng), rng.choice([1.5, 2.0, 4.0])
    return Cluster(sizes, hosts=tuple(Host(cpus * gpus, 12.0 * gpus) for gpus in sizes)), {}


def _of_types(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    names = rng.sample(sorted(TYPES), rng.randint(2, 3))
    groups = [[rng.randint(1, 2), rng.randint(1, 4), name] for name in names]
    delays = {"toy": {"t4": 50.0, "v100": 20.0}} if rng.random() < 0.3 else {}
    return Cluster.of_groups(groups), {"restart_delays": delays}


def _elastic(rng: random.Random) -> tuple[Cluster, dict[str, Any]]:
    failures = _failures(rng) if rng.random() < 0.3 else None
    cluster = Cluster.elastic(5, rng.randint(1, 3), 2, rng.choice([0.0, 90.0]), 1.0, failures)
    return cluster, {}


KINDS = {
    "known course": Kind(
        _named("fifo", "easy", "tiresias", "srtf", "las", "optimus", "gandiva-fair", "themis", "conservative"), _plain
    ),
    "learning agents": Kind(_named("pollux", "pollux-annealing", "sia"), _plain),
    "failures": Kind(_named("fifo", "srtf", "tiresias", "optimus", "pollux", "quotas"), _failing),
    "job failures": Kind(_named("fifo", "tiresias", "drf", "multifactor", "pollux"), _crashing),
    "checkpoints": Kind(_named("fifo", "srtf", "slaq", "tiresias", "pollux", "jsa"), _saving),
    "shared GPUs": Kind({"muri": Muri, "gandiva": lambda: Gandiva(120.0), "antman": AntMan}, _sharing),
    "CPUs": Kind(_named("synergy", "fifo", "srtf", "drf", "tiresias"), _with_cpus),
    "GPU types": Kind(_named("fifo", "hadar", "srtf", "allox", "tiresias", "max-min", "easy"), _of_types),
    "elastic nodes": Kind(
        {
            "scaled fifo": lambda: Scaled(Fifo(), PendingGpus()),
            "scaled srtf": lambda: Scaled(Srtf(), PendingGpus(), idle_time=120.0),
            "fifo": Fifo,
            "autoscaler": Autoscaler,
        },
        _elastic,
    ),
}


def world(kind: str, number: int) -> World:
    """Return a world of a kind. Its policies take turns."""
    rng = random.Random(f"{kind} {number}")
    names = list(KINDS[kind].policies)
    name = names[number % len(names)]
    policy = KINDS[kind].policies[name]
    cluster, options = KINDS[kind].setting(rng)
    options |= rng.choice([{}, {"whole_seconds": True}, {"round_interval": 47.0}, {"free_moves": True}])
    if number % 4 == 3:
        options["free_starts"] = True
    options |= {"reasons": rng.choice(["changes", "rounds"]), "horizon": HORIZON}
    jobs = _jobs(rng, cluster, has_rigid=not traits_of(policy()).needs_profiles)
    if kind == "shared GPUs":
        jobs = [replace(job, stages=stages) for job, stages in zip(jobs, cycle(STAGES), strict=False)]
    if kind == "CPUs":
        speeds: dict[str, Any] = {"cpu_speeds": ((1, 0.5), (2, 1.0), (6, 2.0)), "memory_speeds": ((8, 1.0), (16, 2.0))}
        jobs = [replace(job, **speeds) if rng.random() < 0.7 else job for job in jobs]
    profiles: Mapping[str, Profile] = TYPED if kind == "GPU types" else PROFILES
    return World(f"{kind} {number} {name}", policy, Workload(tuple(jobs)), cluster, EngineSettings(**options), profiles)


def _jobs(rng: random.Random, cluster: Cluster, *, has_rigid: bool) -> list[Job]:
    nodes = cluster.gpus_per_node[: cluster.least_nodes]
    most = min(map(sum, cluster.by_type.values())) if cluster.node_types else sum(nodes)
    jobs: list[Job] = []
    for number in range(rng.randint(3, 8)):
        time, gpus = 25.0 * rng.randint(0, 40), rng.randint(1, most)
        options: dict[str, Any] = {
            "user": rng.choice(["ada", "bob", None]),
            "queue": rng.choice(["vision", "speech", None]),
            "priority": rng.choice([0.0, 1.0, -2.0]),
            "deadline": rng.choice([time + 400.0, None]),
            "time_limit": rng.choice([600.0, None]),
            "cancel_time": rng.choice([None, None, None, time + 330.0]),
            "after": rng.choice([(), (), (), (jobs[0].job_id,)]) if jobs else (),
        }
        if has_rigid and rng.random() < 0.4:
            if cluster.node_types:
                options["type_speeds"] = tuple((name, 1 / factor) for name, factor in TYPES.items())
            jobs.append(Job.rigid(f"job-{number}", time, gpus, 12.5 * rng.randint(1, 80), **options))
        else:
            jobs.append(Job(f"job-{number}", time, rng.choice(sorted(EPOCHS)), gpus, 10 * gpus, **options))
    return jobs
