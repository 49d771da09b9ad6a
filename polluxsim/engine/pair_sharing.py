"""Pairs of jobs on the same GPUs, as fast as a table of measurements says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from polluxsim.engine.sharing import by_gpus
from polluxsim.policies.effects import check_names
from polluxsim.tables import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.engine.sharing import Tenant
    from polluxsim.types import Cluster, JobId

Kind: TypeAlias = tuple[str, int]
"""Model, and batch size on each GPU."""

COLUMNS = (
    "gpu_type", "model", "batch_size", "gpus", "other_model", "other_batch_size", "steps_per_s", "other_steps_per_s",
)  # fmt: skip

IN_TURN = 0.5
"""What each of two jobs loses that run one after the other."""


@dataclass(frozen=True)
class Pairs:
    """Two jobs may have the same GPUs if they were measured together there, and are then as fast as measured.

    Nobody is faster than alone. Jobs that were not measured together are refused; where they come to be together, as
    one changes its batch size, they take turns until a decision parts them.

    Parameters
    ----------
    path
        Table of steps a second of two jobs on the same GPUs, by GPU type, number of GPUs, models and batch sizes on
        each GPU (0: the model has one only); 0 steps a second is what does not fit in memory. The speeds alone are
        those of the jobs' own plans.
    gpu_type
        What GPUs are where the cluster does not say.

    Raises
    ------
    InvalidInputError
        If the table cannot be read, or a row is not what it should be.

    Source: Narayanan et al., Gavel (OSDI '20), whose table has these columns.
    """

    path: str
    gpu_type: str = "v100"
    _speeds: Mapping[tuple[str, int, Kind, Kind], float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[tuple[str, int, Kind, Kind], float] = {}
        for row in read_rows(Path(self.path), COLUMNS):
            one, other = (
                (row.text(f"{which}model"), max(row.integer(f"{which}batch_size", at_least=0), 1))
                for which in ("", "other_")
            )
            where = row.text("gpu_type"), row.integer("gpus", at_least=1)
            found[*where, one, other] = row.number("steps_per_s", at_least=0)
            found[*where, other, one] = row.number("other_steps_per_s", at_least=0)
        object.__setattr__(self, "_speeds", found)

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
        """Return whether they are two with the same GPUs that were measured together."""
        return len(tenants) == 2 and self._measured(*tenants) is not None

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return what each of two loses beside the other."""
        found: dict[JobId, float] = {}
        for there in by_gpus(tenants):
            if len(there) == 2:
                speeds = self._measured(*there) or (IN_TURN, IN_TURN)
                found |= {each.job.job_id: 1 - speed for each, speed in zip(there, speeds, strict=True)}
        return found

    def _measured(self, one: Tenant, other: Tenant) -> tuple[float, float] | None:
        """Return the speeds of two jobs beside each other over those alone, None where they do not fit."""
        if set(one.gpus) != set(other.gpus):
            return None
        first, second = self._over_alone(one, other), self._over_alone(other, one)
        return (first, second) if first and second else None

    def _over_alone(self, one: Tenant, other: Tenant) -> float:
        plan, gpu_type = one.job.plan, one.gpu_type or self.gpu_type
        together = self._speeds.get((gpu_type, len(one.gpus), _kind(one), _kind(other)), 0.0)
        alone = plan.speeds.get((gpu_type, one.batch_size), 0.0) if plan is not None else 0.0
        return min(together / alone, 1.0) if alone else 0.0


def _kind(tenant: Tenant) -> Kind:
    return tenant.job.application, tenant.batch_size
