"""Muri: jobs that need different resources share their GPUs, stage by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import inf
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Gpus, JobId
from polluxsim.models.stages import MOST_JOBS, Stages, interleaved
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason, Traits
from polluxsim.policies.ordered.classic import remaining_service
from polluxsim.policies.tools.free_gpus import placed_together
from polluxsim.policies.tools.gpu_counts import AtEvents
from polluxsim.policies.tools.solver_output import without_chatter
from polluxsim.workloads.job import Job

Kind: TypeAlias = tuple[Stages, ...]  # the key of equal packs: the stages of their jobs, sorted
NEARLY = 1e-6  # so near a whole number counts as one


@dataclass(frozen=True)
class Pack:
    """Jobs of one size that are to have the same GPUs."""

    jobs: tuple[JobView, ...]  # in order of precedence
    rank: int  # place of the first of them
    gpu_type: str

    @cached_property
    def kind(self) -> Kind:
        """Return the stages of its jobs, sorted."""
        return tuple(sorted(job.stages for job in self.jobs if job.stages is not None))

    @property
    def gpus(self) -> int:
        """Return how many GPUs the pack needs."""
        return self.jobs[0].num_replicas

    @property
    def is_slower_than_in_turn(self) -> bool:
        """Return whether the jobs of the pack would complete sooner one after the other."""
        return len(self.jobs) > 1 and interleaved(self.kind) > sum(stages.step for stages in self.kind)

    def with_pack(self, other: Pack) -> Pack:
        """Return the two merged."""
        first, second = sorted((self, other), key=lambda pack: pack.rank)
        return replace(first, jobs=first.jobs + second.jobs)


@dataclass
class Muri(AtEvents):
    """Run jobs in packs of up to four, by least remaining or least attained service; decided at arrivals and ends.

    The policy considers the first jobs that would fill the cluster in packs of four. It merges packs, first those that
    use resources most fully, until these jobs fit. Jobs whose stages are unknown do not share their GPUs.

    Parameters
    ----------
    knows_durations
        Whether jobs are ordered by true remaining service (Muri-S) or by attained service (Muri-L).
    falls_apart
        Whether a pack is split if its jobs would complete sooner one after the other.

    Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (SIGCOMM '22), and its simulator.
    """

    knows_durations: bool = True
    falls_apart: bool = True
    traits: ClassVar[Traits] = Traits(shares_gpus=True)
    is_elastic = False

    def without_effect(self, jobs: Sequence[Job], cluster: Cluster) -> list[str]:
        """Return whether no pack can be made."""
        if not jobs or any(job.stages is not None for job in jobs):
            return []
        return ["the stages of no job are known: each job has its GPUs alone"]

    def decide(self, view: ClusterView) -> Decision:
        """Order, choose, merge, and place the packs that come first."""

        def service(job: JobView) -> float:
            return remaining_service(job) if self.knows_durations else job.attained_service

        order = sorted(view.jobs, key=service)
        gpus = {name: view.gpus_of(name) for name in view.types}
        candidates = _candidates(view, order, gpus)
        packs = [pack for name, found in candidates.items() for pack in _merged(found, gpus[name])]
        if self.falls_apart:
            packs = [part for pack in packs for part in (_singles(pack) if pack.is_slower_than_in_turn else (pack,))]
        left, chosen = dict(gpus), list[Pack]()
        for pack in sorted(packs, key=lambda pack: pack.rank):
            if pack.gpus <= left[pack.gpu_type]:
                left[pack.gpu_type] -= pack.gpus
                chosen.append(pack)
        chosen.sort(key=lambda pack: -pack.gpus)
        shared: dict[JobId, Gpus] = {}
        for name in gpus:
            here = [pack.jobs for pack in chosen if pack.gpu_type == name]
            shared |= placed_together(view, here, set(view.nodes_of(name)))
        figure = "remaining_service" if self.knows_durations else "attained_service"

        def explain(jobs: Sequence[JobId]) -> dict[JobId, Reason]:
            places = {
                job.job_id: {"position": float(place), figure: service(job)} for place, job in enumerate(order, 1)
            }
            mates = {job.job_id: pack for pack in packs for job in pack.jobs}
            return {name: _reason(name, places[name], mates.get(name), has_gpus=name in shared) for name in jobs}

        return Decision({}, shared=shared, valid_until=inf, outdated_by=Change.JOBS_OR_NODES, explain=explain)


def _reason(name: JobId, place: Mapping[str, float], pack: Pack | None, *, has_gpus: bool) -> Reason:
    if pack is None:
        return Reason("beyond-packs", place)
    others = tuple(job.job_id for job in pack.jobs if job.job_id != name)
    kind, figure = ("in-pack", "gpus") if has_gpus else ("pack-waits", "gpus_needed")
    return Reason(kind, {**place, figure: float(pack.gpus)}, others)


def _singles(pack: Pack) -> Iterator[Pack]:
    return (Pack((job,), pack.rank + place, pack.gpu_type) for place, job in enumerate(pack.jobs))


def _candidates(view: ClusterView, order: Sequence[JobView], gpus: Mapping[str, int]) -> dict[str, list[Pack]]:
    """Return, for each type, the jobs that would fill its GPUs in packs of four jobs of equal size, in order.

    A job goes to the type that it runs on or else to the fastest one, of types with free GPUs first.
    """
    left, room = dict(gpus), Counter[tuple[str, int]]()
    found: dict[str, list[Pack]] = {name: [] for name in gpus}
    for rank, job in enumerate(order):
        size, here = job.num_replicas, view.type_of(job.placement) if job.placement else None
        names = sorted(job.speeds, key=lambda name: (name != here, -job.speeds[name]))
        fitting = [name for name in names if room[name, size] or size <= left[name]]
        if fitting:
            name = next((name for name in fitting if size <= left[name]), fitting[0])
            if not room[name, size]:
                left[name] -= size
                room[name, size] = MOST_JOBS if job.stages is not None else 1
            room[name, size] -= 1
            found[name].append(Pack((job,), rank, name))
    return found


def _merged(packs: list[Pack], capacity: int) -> list[Pack]:
    """Merge packs until they fit, in four steps at most. Return the packs in order of their last jobs."""
    need = sum(pack.gpus for pack in packs)
    for _ in range(MOST_JOBS):
        if need <= capacity:
            break
        merged = dict(enumerate(packs))
        for place, other in _partners(packs):
            if need > capacity:
                merged[place] = merged.pop(other).with_pack(merged[place])
                need -= merged[place].gpus
        packs = list(merged.values())
    return packs


def _partners(packs: Sequence[Pack]) -> list[tuple[int, int]]:
    """Return the matched packs of equal size as places, the later place first, in order of the later place."""
    sizes: dict[int, list[int]] = {}
    for place, pack in enumerate(packs):
        if pack.kind:
            sizes.setdefault(pack.gpus, []).append(place)
    pairs = (
        (places[one], places[other])
        for places in sizes.values()
        for one, other in matched([packs[place].kind for place in places])
    )
    return sorted((max(pair), min(pair)) for pair in pairs)


def joined(one: Kind, other: Kind) -> Kind:
    """Return the kind of two packs merged."""
    return tuple(sorted(one + other))


@lru_cache(maxsize=1 << 16)
def weight(pack: Kind) -> float:
    """Return how fully a pack uses its resources, from 0 to about 1."""
    return sum(sum(stages[1:]) for stages in pack) / (MOST_JOBS * interleaved(pack))


def matched(kinds: Sequence[Kind]) -> list[tuple[int, int]]:
    """Return matched packs, by their places in a list, with the greatest sum of weights.

    Each pack has at most one partner. Packs of a kind have equal weights, so the integer programme has one variable for
    each pair of kinds. HiGHS solves it through SciPy.

    Source: maximum-weight matching in Muri (SIGCOMM '22), which matches single packs; limits of odd sets, Edmonds
    (1965).
    """
    places: dict[Kind, list[int]] = {}
    for place in reversed(range(len(kinds))):
        places.setdefault(kinds[place], []).append(place)
    counts = tuple(sorted(Counter(kinds).items()))
    return [(places[one].pop(), places[other].pop()) for one, other, times in _best_pairs(counts) for _ in range(times)]


@lru_cache(maxsize=1 << 14)
def _best_pairs(counts: tuple[tuple[Kind, int], ...]) -> list[tuple[Kind, Kind, int]]:
    """Return the number of pairs of each two kinds, by the number of packs of each kind."""
    kinds = range(len(counts))
    pairs = [
        (one, other)
        for one, other in combinations_with_replacement(kinds, 2)
        if len(counts[one][0]) + len(counts[other][0]) <= MOST_JOBS and (one != other or counts[one][1] > 1)
    ]
    if not pairs:
        return []
    gain = np.array([weight(joined(counts[one][0], counts[other][0])) for one, other in pairs])
    times = _times(pairs, gain, [number for _, number in counts])
    return [(counts[a][0], counts[b][0], int(n)) for (a, b), n in zip(pairs, times, strict=True) if n]


def _times(pairs: Sequence[tuple[int, int]], gain: NDArray[np.float64], left: Sequence[int]) -> NDArray[np.float64]:
    """Return the number of pairs of each two kinds with the greatest gain.

    If numbers are fractional, a set of kinds has an odd number of packs, so one pack has no partner. The set becomes a
    limit. Each kind and the set of all kinds are limits from the start. If no such set exists, HiGHS branches.
    """
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415  (slow to load)

    kinds = range(len(left))
    rows = [np.array([(kind == one) + (kind == other) for one, other in pairs]) for kind in kinds]
    most, whole = list(left), 0
    sets: Sequence[frozenset[int]] = [*(frozenset((kind,)) for kind in kinds), frozenset(kinds)]
    times = np.full(len(pairs), float(sum(left)))  # an upper bound
    while True:
        for each in sets:
            row, packs = np.array([each.issuperset(pair) for pair in pairs], int), sum(left[kind] for kind in each)
            if packs % 2 and row @ times > packs // 2 + NEARLY:
                rows.append(row)
                most.append(packs // 2)
                whole = 0
        room = LinearConstraint(np.array(rows), ub=np.array(most))
        with without_chatter() if whole else nullcontext():
            found = milp(-gain, constraints=room, integrality=whole, options={"mip_rel_gap": 0.0, "presolve": False})
        if found.x is None:
            raise RuntimeError(f"HiGHS found no answer: {found.message}")
        times = found.x
        rounded: NDArray[np.float64] = np.rint(times)
        if whole or np.abs(times - rounded).max() < NEARLY:
            return rounded
        sets, whole = _joined_kinds(pairs, times, len(left)), 1


def _joined_kinds(pairs: Sequence[tuple[int, int]], times: Sequence[float], kinds: int) -> Sequence[frozenset[int]]:
    """Return the connected sets of kinds, by the pairs with fractional counts and by all pairs."""
    found: list[frozenset[int]] = []
    for taken in ([abs(time - round(time)) > NEARLY for time in times], [time > NEARLY for time in times]):
        sets = {kind: frozenset((kind,)) for kind in range(kinds)}
        for one, other in (pair for pair, is_taken in zip(pairs, taken, strict=True) if is_taken):
            both = sets[one] | sets[other]
            sets |= dict.fromkeys(both, both)
        found += sets.values()
    return tuple(dict.fromkeys(found))
