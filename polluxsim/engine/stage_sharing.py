"""Two ways to share GPUs by the stages of a step: all in turn, or one job ahead of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.engine.sharing import by_gpus
from polluxsim.models.stages import MOST_JOBS, beside, goes_beside, interleaved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.engine.sharing import Tenant
    from polluxsim.types import Gpu, JobId


class Interleaved:
    """Up to four jobs have the same GPUs, and go through the stages of their steps in turn.

    Source: Zhao et al., Muri (SIGCOMM '22).
    """

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether jobs have all their GPUs in common, and the stages of each are known."""
        same = all(set(each.gpus) == set(tenants[0].gpus) for each in tenants)
        return same and len(tenants) <= MOST_JOBS and all(each.job.stages is not None for each in tenants)

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return what the turns of the others take."""
        return dict(pair for pack in by_gpus(tenants) if len(pack) > 1 for pair in _losses(pack))


def _losses(pack: Sequence[Tenant]) -> Iterator[tuple[JobId, float]]:
    """Yield the share of its speed that each job of a pack loses."""
    stages = [each.job.stages for each in pack if each.job.stages is not None]
    time = interleaved(tuple(sorted(stages)))
    for each, alone in zip(pack, stages, strict=True):
        yield each.job.job_id, max(1 - alone.step / time, 0.0)


class Leftovers:
    """On a GPU, a job of priority 0 or more runs as if alone, and one of less beside it in what it leaves idle.

    Source: Xiao et al., AntMan (OSDI '20), as the simulator of Muri (SIGCOMM '22) has it.
    """

    def fits(self, tenants: Sequence[Tenant]) -> bool:
        """Return whether they are one of each kind, and their stages are known."""
        guest, host = sorted(tenants, key=is_guaranteed)[:2]
        is_pair = len(tenants) == 2 and is_guaranteed(host) and not is_guaranteed(guest)
        return is_pair and goes_beside(guest.job.stages, host.job.stages)

    def lost(self, tenants: Sequence[Tenant]) -> Mapping[JobId, float]:
        """Return what a job loses that has only what others leave."""
        hosts = {gpu: each for each in tenants if is_guaranteed(each) for gpu in each.gpus}
        return {each.job.job_id: _loss(each, hosts) for each in tenants if not is_guaranteed(each)}


def is_guaranteed(tenant: Tenant) -> bool:
    """Return whether a job goes ahead of others on its GPUs."""
    return tenant.job.priority >= 0


def _loss(guest: Tenant, hosts: Mapping[Gpu, Tenant]) -> float:
    """Return the share of its speed that a job loses to those it runs beside, the busiest of which counts."""
    if (mine := guest.job.stages) is None:
        return 0.0
    there = (hosts[gpu].job.stages for gpu in guest.gpus if gpu in hosts)
    times = {beside(mine, stages) for stages in there if stages is not None}
    return 1 - mine.step / max(times | {mine.step})
