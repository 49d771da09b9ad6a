"""Small worlds, drawn by number: clusters and jobs in which every job can run."""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from polluxsim.checks.toy import PROFILES
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.models.stages import MOST_JOBS, Stages
from polluxsim.types import Cluster, Outage
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.engine.sharing import Tenant
    from polluxsim.policies.view import Traits
    from polluxsim.types import JobId

STREAM = 0xA7E4A
"""Sets the draw of worlds apart from any other."""

STAGES = (Stages(1.0, 0.9, 0.05, 0.0), Stages(1.0, 0.05, 0.9, 0.0), Stages(1.0, 0.2, 0.2, 0.9), None)
"""Of the jobs in turn, where GPUs may be shared."""

HORIZON = 2e5
"""No world's jobs need a tenth of it one after the other [s]."""

TIES, ONE_GPU = 5, 10
"""In every so manieth world all jobs come at once and are alike, or there is one GPU."""


@dataclass(frozen=True)
class Listed:
    """Outages as they are named, one of each unit."""

    outages: tuple[Outage, ...]

    def units(self, num_nodes: int) -> range:
        """Return a number for each."""
        return range(len(self.outages))

    def outage(self, unit: int, number: int, since: float, draw: object) -> Outage | None:
        """Return the unit's outage, the first time."""
        return None if number else self.outages[unit]


class Crowd:
    """Anybody may be with anybody on a GPU, up to four, each with an equal part of its speed."""

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether they are not too many."""
        return len(tenants) <= MOST_JOBS

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return what a job leaves to others where it is most crowded."""
        users = Counter(gpu for each in tenants for gpu in each.gpus)
        return {each.job.job_id: 1 - 1 / max(users[gpu] for gpu in each.gpus) for each in tenants if each.gpus}


@dataclass(frozen=True)
class World:
    """A cluster and its jobs, from which a run follows.

    Parameters
    ----------
    nodes
        GPUs of each node.
    jobs
        The jobs; those with a profile are of the applications of `polluxsim.checks.toy`.
    outages
        Nodes that are down for a while: number, from when, for how long [s].
    least_nodes
        Where the policy may change the number of nodes: the least.
    interference
        As of the engine.
    """

    nodes: tuple[int, ...]
    jobs: tuple[Job, ...]
    outages: tuple[tuple[int, float, float], ...] = ()
    least_nodes: int | None = None
    interference: float = 0.0

    def scenario(self, traits: Traits, name: str) -> Scenario:
        """Return what is simulated under a policy of such a name."""
        outages = tuple(Outage((node,), start, duration, "drawn") for node, start, duration in self.outages)
        cluster = Cluster(self.nodes, self.least_nodes, failures=Listed(outages) if outages else None)
        jobs, settings = self.jobs, EngineSettings(interference=self.interference, horizon=HORIZON)
        if traits.shares_gpus:
            jobs = tuple(replace(job, stages=stages) for job, stages in zip(jobs, cycle(STAGES), strict=False))
            settings = EngineSettings(sharing=Crowd(), horizon=HORIZON)
        return Scenario(Workload(jobs), PROFILES, cluster, settings, traits, name)

    def __repr__(self) -> str:
        """Return it as code that makes it, without what is as it is anyway."""
        jobs = ", ".join(f"Job({', '.join(_given(job))})" for job in self.jobs)
        said = [f"nodes={self.nodes}", f"jobs=({jobs},)", *_given(self)[2:]]
        return f"World({', '.join(said)})"


def _given(made: World | Job) -> list[str]:
    """Return as code the arguments that something was made with, but for those that are as they are anyway."""
    return [
        f"{field.name}={getattr(made, field.name)!r}"
        for field in fields(made)
        if field.default is MISSING or getattr(made, field.name) != field.default
    ]


def drawn(number: int, *, with_rigid: bool) -> World:
    """Return a world, always the same for a number; `with_rigid` says whether jobs without a profile may be in it."""
    rng = np.random.default_rng([STREAM, number])
    nodes = (1,) if number % ONE_GPU == 0 else tuple(rng.integers(1, 5, size=rng.integers(1, 5)).tolist())
    least = int(rng.integers(1, len(nodes) + 1)) if rng.random() < 0.15 else None
    outages = () if least is not None else tuple(_outage(node, rng) for node in range(len(nodes)) if rng.random() < 0.1)
    most, count = sum(nodes[:least]), int(rng.integers(1, 9))
    job = partial(_job, most=most, rng=rng, with_rigid=with_rigid)
    if number % TIES == 1:
        alike = job(0, 0.0)
        jobs = [replace(alike, job_id=f"job-{index}") for index in range(count)]
    else:
        jobs = [job(index, 25.0 * int(rng.integers(0, 41))) for index in range(count)]
    return World(nodes, tuple(jobs), outages, least, float(rng.choice([0.0, 0.0, 0.4])))


def _outage(node: int, rng: np.random.Generator) -> tuple[int, float, float]:
    return node, float(rng.integers(0, 1200)), float(rng.integers(1, 900))


def _job(index: int, time: float, *, most: int, rng: np.random.Generator, with_rigid: bool) -> Job:
    gpus = int(rng.integers(1, most + 1)) if rng.random() < 0.7 else most
    said = _said(time, gpus, rng) if rng.random() < 0.5 else {}
    if with_rigid and rng.random() < 0.6:
        if rng.random() < 0.3:
            said |= {"speeds": tuple((count, count**0.75) for count in (1, 2, 4, 8, 16)), "max_replicas": None}
        return Job.rigid(f"job-{index}", time, gpus, 12.5 * int(rng.integers(1, 81)), **said)
    return Job(f"job-{index}", time, str(rng.choice(sorted(PROFILES))), gpus, 10 * gpus, **said)


def _said(time: float, gpus: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return what its user says besides."""
    choices: dict[str, list[Any]] = {
        "user": ["ada", "bob", None],
        "queue": ["vision", "speech", None],
        "priority": [0.0, 1.0, -2.0],
        "deadline": [time + 400.0, time + 1500.0, None],
        "time_limit": [100.0, 600.0, None],
        "cancel_time": [None, None, time + 5.0, time + 330.0],
        "max_replicas": [None, gpus, gpus + 3],
    }
    return {name: values[rng.integers(len(values))] for name, values in choices.items()}
