"""Jobs that share GPUs or nodes: combinations of jobs, their losses of speed, and their GPUs by number.

A sharing model has two methods, `fits` and `lost` (`Sharing`). The models are `Interference` (whole GPUs),
`Interleaved` and `Leftovers` (by the stages of a step), and `Pairs` (by a table of measurements).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from polluxsim.common.errors import InvalidConfigError, bad_line
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.written import Name, takes_settings
from polluxsim.engine.job import ActiveJob
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.placements import Gpu, Gpus, JobId, Placement
from polluxsim.models.stages import MOST_JOBS, beside, goes_beside, interleaved
from polluxsim.policies.contract.settings import check_names
from polluxsim.workloads.workload import Job

ModelAndBatch: TypeAlias = tuple[str, int]
"""Model, and batch size on each GPU."""

PAIR_COLUMNS = (
    "gpu_type", "model", "batch_size", "gpus", "other_model", "other_batch_size", "steps_per_s", "other_steps_per_s",
)  # fmt: skip

IN_TURN = 0.5
"""Speed of each of two jobs that run in turn, relative to its speed alone."""


class Tenant(NamedTuple):
    """A job on its GPUs, as a sharing model sees it."""

    job: Job
    placement: Placement
    gpus: Gpus  # its GPUs by number if it can share them, else empty
    gpu_type: str = ""  # empty if the cluster does not state types, or no GPU is shared
    epoch: int = 0  # present epoch, from 0

    @property
    def batch_size(self) -> int:
        """Return the batch size on each of its GPUs, from its plan or its user [examples]."""
        plan = self.job.plan
        if plan is None:
            return self.job.batch_size // self.job.num_replicas
        return plan.stretches[self.epoch][0]


def tenant_of(job: ActiveJob, gpus: Gpus, node_types: NodeTypes) -> Tenant:
    """Return a job as a sharing model sees it. `gpus` are its GPUs by number, empty if it can share none of them."""
    if not gpus:
        return Tenant(job.job, job.placement, ())
    gpu_type = ""
    if node_types:
        first_node, _ = gpus[0]
        gpu_type = node_types[first_node].name
    return Tenant(job.job, job.placement, gpus, gpu_type, job.segment.epoch)


def by_gpus(tenants: Iterable[Tenant]) -> Iterable[Sequence[Tenant]]:
    """Return the jobs with GPUs by number, in groups with the same GPUs."""
    packs: dict[Gpus, list[Tenant]] = {}
    for tenant in tenants:
        if tenant.gpus:
            packs.setdefault(tuple(sorted(tenant.gpus)), []).append(tenant)
    return packs.values()


class Sharing(Protocol):
    """Which jobs fit together, and their speeds. A sharing model has no state."""

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether two or more jobs can be on one GPU together. This GPU is one of the GPUs of each tenant."""

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the share of its speed that each job loses, in [0, 1). Jobs without a loss may be left out.

        `tenants` are all jobs with GPUs, in order of submission.
        """


def losses_by(sharing: Sharing, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
    """Return the losses of a sharing model. Raise an `InvalidConfigError` if one is not in [0, 1)."""
    lost = sharing.lost(tenants)
    for job_id, share in lost.items():
        if not 0 <= share < 1:
            model = type(sharing).__name__
            raise InvalidConfigError(
                f"engine.sharing: {model} takes a share of {share} of the speed of job {job_id!r}, must be at least 0 "
                "and below 1, because a job without speed never completes: change the sharing model or its table"
            )
    return lost


@dataclass(frozen=True)
class Interference:
    """Whole GPUs for every job. Jobs on several nodes slow each other down on nodes that they share.

    Parameters
    ----------
    slowdown
        Share of its speed that a job loses, in [0, 1).
    """

    slowdown: float

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return False: no GPU has two jobs."""
        return False

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the slowdown of each job on several nodes that shares a node with another job on several nodes.

        Source: Pollux (OSDI '21), §4.2.1: only jobs that use the network disturb each other.
        """
        # Jobs on one node do not use the network.
        spanning = [tenant for tenant in tenants if len(tenant.placement) > 1]
        users = Counter[int]()
        for tenant in spanning:
            users.update(node for node, _ in tenant.placement)
        lost = {}
        for tenant in spanning:
            if any(users[node] > 1 for node, _ in tenant.placement):
                lost[tenant.job.job_id] = self.slowdown
        return lost


class Interleaved:
    """Up to four jobs have the same GPUs. They run the stages of their steps in turn.

    Source: Zhao et al., Muri (SIGCOMM '22).
    """

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether at most four jobs hold the same GPUs, and the stages of each are known."""
        if len(tenants) > MOST_JOBS:
            return False
        gpus = set(tenants[0].gpus)
        return all(set(tenant.gpus) == gpus and tenant.job.stages is not None for tenant in tenants)

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the losses to the turns of the other jobs."""
        lost: dict[JobId, float] = {}
        for pack in by_gpus(tenants):
            if len(pack) == 1:
                continue
            stages = [tenant.job.stages for tenant in pack if tenant.job.stages is not None]
            time = interleaved(tuple(sorted(stages)))
            # At least 0: by rounding, the steps together can be a little shorter than one alone.
            for tenant, alone in zip(pack, stages, strict=True):
                lost[tenant.job.job_id] = max(1 - alone.step / time, 0.0)
        return lost


class Leftovers:
    """A job of priority 0 or more runs as if alone on its GPU. A job of lower priority uses its idle times.

    Source: Xiao et al., AntMan (OSDI '20), as in the simulator of Muri (SIGCOMM '22).
    """

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether there is one job of each kind, and the one of low priority progresses beside the other."""
        low, high = sorted(tenants, key=is_guaranteed)[:2]
        is_pair = len(tenants) == 2 and is_guaranteed(high) and not is_guaranteed(low)
        return is_pair and goes_beside(low.job.stages, high.job.stages)

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the losses of the jobs of low priority."""
        guaranteed: dict[Gpu, Tenant] = {}
        for tenant in tenants:
            if is_guaranteed(tenant):
                guaranteed |= dict.fromkeys(tenant.gpus, tenant)
        lost = {}
        for tenant in tenants:
            if not is_guaranteed(tenant):
                lost[tenant.job.job_id] = _loss_beside(tenant, guaranteed)
        return lost


def is_guaranteed(tenant: Tenant) -> bool:
    """Return whether a job has precedence on its GPUs."""
    return tenant.job.priority >= 0


def _loss_beside(low: Tenant, guaranteed: Mapping[Gpu, Tenant]) -> float:
    """Return the loss of a job of low priority to the busiest of the jobs on its GPUs."""
    own = low.job.stages
    if own is None:
        return 0.0
    longest = own.step  # time of a step [s], alone
    for gpu in low.gpus:
        if gpu not in guaranteed:
            continue
        stages = guaranteed[gpu].job.stages
        if stages is not None:
            longest = max(longest, beside(own, stages))
    return 1 - own.step / longest


@takes_settings("engine.sharing")
@dataclass(frozen=True)
class Pairs:
    """Two jobs can have the same GPUs if a table has their speeds together.

    No job becomes faster by sharing. If two jobs are not in the table after one of them changed its batch size, they
    run in turn until the next decision.

    Parameters
    ----------
    path
        Table of the steps per second of two jobs on the same GPUs, by GPU type, number of GPUs, models and batch sizes
        on each GPU (0: the model has only one size). 0 steps per second means that they do not fit into
        memory. Speeds of single jobs come from their plans.
    gpu_type
        GPU type, if the cluster does not state types.

    Source: Narayanan et al., Gavel (OSDI '20). Its table has these columns.
    """

    path: str
    gpu_type: Name = "v100"
    _speeds: Mapping[tuple[str, int, ModelAndBatch, ModelAndBatch], float] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        speeds: dict[tuple[str, int, ModelAndBatch, ModelAndBatch], float] = {}
        for row in read_rows(Path(self.path), PAIR_COLUMNS):
            one = (row.text("model"), _batch_size(row, "batch_size"))
            other = (row.text("other_model"), _batch_size(row, "other_batch_size"))
            gpu_type = row.text("gpu_type")
            gpus = row.integer("gpus", at_least=1)
            for first, second, column in ((one, other, "steps_per_s"), (other, one, "other_steps_per_s")):
                speed = row.number(column, at_least=0)
                # The table may have a pair twice, in either order, with the same speeds.
                earlier = speeds.setdefault((gpu_type, gpus, first, second), speed)
                if earlier != speed:
                    problem = f"the table also has {earlier:g} for these two jobs; remove one of them"
                    raise bad_line(self.path, row.line, f"column {column!r} is {speed:g}, but {problem}")
        object.__setattr__(self, "_speeds", speeds)

    def without_effect(self, jobs: object, cluster: Cluster) -> list[str]:
        """Return a sentence if the cluster replaces `gpu_type`; check that the table has this type if it counts."""
        if not cluster.node_types:
            check_names("engine.sharing.gpu_type", [self.gpu_type], "GPU type", self.gpu_types)
        elif self.gpu_type != Pairs.gpu_type:
            return ["engine.sharing.gpu_type has no effect: the cluster gives the types of its nodes"]
        return []

    @property
    def gpu_types(self) -> set[str]:
        """Return the GPU types of the table."""
        return {gpu_type for gpu_type, *_ in self._speeds}

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether the two jobs hold equal GPUs and the table contains their speeds together."""
        return len(tenants) == 2 and self._measured(*tenants) is not None

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return the losses of each two jobs on the same GPUs, by the table, or in turn if it does not have them."""
        lost: dict[JobId, float] = {}
        for pair in by_gpus(tenants):
            if len(pair) != 2:
                continue
            speeds = self._measured(*pair) or (IN_TURN, IN_TURN)
            for tenant, speed in zip(pair, speeds, strict=True):
                lost[tenant.job.job_id] = 1 - speed
        return lost

    def _measured(self, one: Tenant, other: Tenant) -> tuple[float, float] | None:
        """Return the speeds of two jobs that share GPUs, relative to their speeds alone.

        None if the two jobs do not fit.
        """
        if set(one.gpus) != set(other.gpus):
            return None
        first = self._over_alone(one, other)
        second = self._over_alone(other, one)
        if not first or not second:
            return None
        return first, second

    def _over_alone(self, one: Tenant, other: Tenant) -> float:
        """Return the speed of a job beside another job, relative to its speed alone; 0 if one of them is unknown."""
        plan = one.job.plan
        gpu_type = one.gpu_type or self.gpu_type
        together = self._speeds.get((gpu_type, len(one.gpus), _model(one), _model(other)), 0.0)
        alone = 0.0
        if plan is not None:
            alone = plan.speeds.get((gpu_type, one.batch_size), 0.0)
        if not alone:
            return 0.0
        return min(together / alone, 1.0)  # a measured pair can be faster by noise


def _model(tenant: Tenant) -> ModelAndBatch:
    return tenant.job.application, tenant.batch_size


class NumberedGpus:
    """Jobs that hold GPUs by number, which other jobs can hold too. It updates the `free` GPUs of each node."""

    def __init__(self, free: list[int]) -> None:
        self.held: dict[JobId, Gpus] = {}
        self.num_extra = 0  # sum of the GPUs of all jobs, less the number of GPUs that have a job
        self._users: Counter[Gpu] = Counter()
        self._free = free

    def take(self, job_id: JobId, gpus: Gpus) -> None:
        """Place a job on these GPUs."""
        self.held[job_id] = gpus
        for gpu in gpus:
            self._users[gpu] += 1
            self._count(gpu, used=self._users[gpu] == 1, step=1)

    def leave(self, job_id: JobId) -> None:
        """Take a job off its GPUs."""
        for gpu in self.held.pop(job_id):
            self._users[gpu] -= 1
            self._count(gpu, used=not self._users[gpu], step=-1)

    def ceded(self, job_id: JobId) -> float:
        """Return the part of a job's GPUs that belongs to other jobs: of a GPU with n jobs, each has 1/n."""
        return ceded_gpus(self.held[job_id], self._users)

    def _count(self, gpu: Gpu, *, used: bool, step: int) -> None:
        """Count a job that comes (`step` 1) or goes (−1). `used`: the GPU has no other job."""
        if used:
            self._free[gpu[0]] -= step
        else:
            self.num_extra += step


def ceded_gpus(gpus: Gpus, users: Mapping[Gpu, int]) -> float:
    """Return the part of the GPUs that belongs to other jobs, given the number of jobs on each GPU."""
    return sum(1 - 1 / users[gpu] for gpu in gpus)


def _batch_size(row: Row, column: str) -> int:
    """Return a batch size of a table of pairs; 1 in place of 0, which means that the model has only one size."""
    return max(row.integer(column, at_least=0), 1)
