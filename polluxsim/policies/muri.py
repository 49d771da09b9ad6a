"""Muri: jobs that need different resources most share their GPUs, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, ClassVar

from polluxsim.models.stages import MOST_JOBS, interleaved
from polluxsim.policies.budget import Budget
from polluxsim.policies.elastic import AtEvents
from polluxsim.policies.matching import matched
from polluxsim.policies.numbered import placed_together
from polluxsim.policies.per_type import pool_per_type
from polluxsim.policies.srtf import remaining_time
from polluxsim.policies.view import Change, Decision, Reason, Traits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.policies.matching import Kind
    from polluxsim.policies.view import ClusterView, JobView
    from polluxsim.types import JobId


@dataclass(frozen=True)
class Pack:
    """Jobs of one size that are to have the same GPUs.

    Parameters
    ----------
    jobs
        In order of precedence.
    rank
        Place of the first of them.
    """

    jobs: tuple[JobView, ...]
    rank: int
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        kind = tuple(sorted(job.stages for job in self.jobs if job.stages is not None))
        object.__setattr__(self, "kind", kind)

    @property
    def gpus(self) -> int:
        """Return how many GPUs it needs."""
        return self.jobs[0].num_replicas

    @property
    def is_slower_than_in_turn(self) -> bool:
        """Return whether its jobs would be sooner done one after the other."""
        return len(self.jobs) > 1 and interleaved(self.kind) > sum(stages.step for stages in self.kind)

    def with_pack(self, other: Pack) -> Pack:
        """Return the two merged."""
        first, second = sorted((self, other), key=lambda pack: pack.rank)
        return Pack(first.jobs + second.jobs, first.rank)


@pool_per_type
@dataclass
class Muri(AtEvents):
    """Run jobs in packs of up to four, by least remaining or least attained service; decided at arrivals and ends.

    As many jobs are looked at as would fill the cluster in packs of four. Packs are merged, those first that use
    resources most fully, until what was looked at fits. Jobs whose stages are not known have their GPUs alone.

    Parameters
    ----------
    knows_durations
        Whether the order is that of true remaining service (Muri-S), else of attained service (Muri-L).
    falls_apart
        Whether a pack is given up whose jobs would be sooner done one after the other.

    Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (SIGCOMM '22), and its simulator.
    """

    knows_durations: bool = True
    falls_apart: bool = True
    traits: ClassVar[Traits] = Traits(shares_gpus=True)

    def decide(self, view: ClusterView) -> Decision:
        """Order, choose, merge, and place the packs that come first."""
        node_size = max(view.gpus_per_node)

        def service(job: JobView) -> float:
            if not self.knows_durations:
                return job.attained_service
            return remaining_time(job, node_size) * job.num_replicas

        order = sorted(view.jobs, key=service)
        packs = _merged(_candidates(view, order), view.num_gpus)
        if self.falls_apart:
            packs = [part for pack in packs for part in (_singles(pack) if pack.is_slower_than_in_turn else (pack,))]
        budget = Budget(view)
        chosen = [pack for pack in sorted(packs, key=lambda pack: pack.rank) if budget.take(pack.jobs[0]) is not None]
        chosen.sort(key=lambda pack: -pack.gpus)
        shared = placed_together(view, [pack.jobs for pack in chosen])
        until = Change.ARRIVAL | Change.COMPLETION | Change.NODES
        figure = "remaining_service" if self.knows_durations else "attained_service"

        def explain(jobs: Sequence[JobId]) -> dict[JobId, Reason]:
            places = {
                job.job_id: {"position": float(place), figure: service(job)} for place, job in enumerate(order, 1)
            }
            mates = {job.job_id: pack for pack in packs for job in pack.jobs}
            return {name: _reason(name, places[name], mates.get(name), has_gpus=name in shared) for name in jobs}

        return Decision({}, shared=shared, valid_until=inf, outdated_by=until, explain=explain)


def _reason(name: JobId, place: Mapping[str, float], pack: Pack | None, *, has_gpus: bool) -> Reason:
    if pack is None:
        return Reason("beyond-packs", place)
    others = tuple(job.job_id for job in pack.jobs if job.job_id != name)
    kind, figure = ("in-pack", "gpus") if has_gpus else ("pack-waits", "gpus_needed")
    return Reason(kind, {**place, figure: float(pack.gpus)}, others)


def _singles(pack: Pack) -> Iterator[Pack]:
    return (Pack((job,), pack.rank + place) for place, job in enumerate(pack.jobs))


def _candidates(view: ClusterView, order: Sequence[JobView]) -> list[Pack]:
    """Return the jobs that would fill the cluster in packs of four of a size, each by itself, in order."""
    budget, room, found = Budget(view), dict[int, int](), list[Pack]()
    for rank, job in enumerate(order):
        size = job.num_replicas
        if not room.get(size) and budget.take(job) is not None:
            room[size] = MOST_JOBS if job.stages is not None else 1
        if room.get(size):
            room[size] -= 1
            found.append(Pack((job,), rank))
    return found


def _merged(packs: list[Pack], capacity: int) -> list[Pack]:
    """Return packs after merging until they fit, in four steps at most, in order of their last jobs."""
    need = sum(pack.gpus for pack in packs)
    for _ in range(MOST_JOBS):
        if need <= capacity:
            break
        partners = _partners(packs)
        merged = dict(enumerate(packs))
        for place, other in sorted(partners.items()):
            if need > capacity and other < place:
                merged[place] = merged.pop(other).with_pack(merged[place])
                need -= merged[place].gpus
        packs = list(merged.values())
    return packs


def _partners(packs: Sequence[Pack]) -> dict[int, int]:
    """Return with which other pack of its size each is matched, by their places."""
    sizes: dict[int, list[int]] = {}
    for place, pack in enumerate(packs):
        if pack.kind:
            sizes.setdefault(pack.gpus, []).append(place)
    pairs = (
        (places[one], places[other])
        for places in sizes.values()
        for one, other in matched([packs[place].kind for place in places])
    )
    return {place: other for pair in pairs for place, other in (pair, pair[::-1])}
