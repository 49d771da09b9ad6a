"""Muri: jobs that need different resources share their GPUs, stage by stage.

Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (SIGCOMM '22), and its simulator. A step
of a job has a stage on storage and CPUs, one on GPUs, and one on the network. Jobs of a pack take turns on the
resources, so that each resource is used while the other jobs are in other stages. At each arrival and end:

1. `_candidates` takes the first jobs that would fill the cluster in packs of four.
2. `_merged` merges them into packs until they fit. In each step it matches packs in pairs with the greatest sum of
   weights (`matched`), where the weight of a pair says how fully it uses its resources.
3. Packs that would be slower than their jobs in turn are split, and packs start in the order of their first jobs.

Invariants: the jobs of a pack request equally many GPUs; a job whose stages are unknown shares with no job.

The trap: a matching of packs one by one would need a variable for each pair of packs. Packs with the same stages are
equal, so the integer programme in `_times` only counts the pairs of each two kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import inf
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.instants import sort_key
from polluxsim.common.phrases import listed
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import JobId
from polluxsim.models.stages import MOST_JOBS, Stages, interleaved
from polluxsim.policies.contract.view import Change, ClusterView, Decision, JobView, Reason, ReasonKind, Traits
from polluxsim.policies.ordered.classic import remaining_service
from polluxsim.policies.tools.free_gpus import place_packs
from polluxsim.policies.tools.gang_places import by_preference
from polluxsim.policies.tools.gpu_counts import AtEvents
from polluxsim.policies.tools.reason_kinds import LEFT, ORDER_UNITS, PLACE, another_does_not_fit
from polluxsim.policies.tools.solver_output import without_chatter
from polluxsim.workloads.job import Job

# The key of equal packs: the stages of their jobs, sorted.
Kind: TypeAlias = tuple[Stages, ...]

# Smaller distances from a whole number are rounding errors.
TOLERANCE = 1e-6

_UNITS = {
    **ORDER_UNITS,
    **dict.fromkeys(("gpus", "gpus_needed", "gpus_left", "gpus_up", "left_type", "other_left"), "GPUs"),
    **dict.fromkeys(("pack_step", "turn_step", "apart"), "s"),
    "ahead_service": "GPU s",
}

_AHEAD = (
    "[ahead_service? {ahead_service:label}, the nearest job ahead of it that gets GPUs, has [remaining_service?"
    "{ahead_service:hours} GPU-hours left to run|attained {ahead_service:hours} GPU-hours].]"
)
"""Sentence on the value of the nearest job ahead."""

_NONE_UP = "No node[left_type? of any type that it can use] is available now, so it waits."
"""Sentence on a job while all nodes that it can use are down."""

# `tools.reason_kinds` explains the brackets and braces, and has the parts in capitals.
IN_PACK = ReasonKind(
    "in-pack",
    f"{PLACE} [pack_number?It is in a pack with {{others}}, whose turn is that of {{pack_number:label}}, number "
    f"{{pack_number}}. At this turn, {LEFT}, and the pack gets {{gpus:GPU}}, which its jobs share. A step of each "
    "together takes {pack_step:.3g} s, and one after the other {turn_step:.3g} s. Their resources are busy for "
    "{fullness:%} of four times the first of these times. The policy merges only jobs of equal size with known "
    "stages, until the first jobs that fill the cluster fit, with the largest sum of this share over the pairs that "
    "it merges[equal_jobs=partners?. No job outside the pack has this size and known stages, among these first jobs]"
    f"|When its turn comes, {LEFT}, and it gets {{gpus:GPU}}].",
    _UNITS,
    "A job runs, alone or in a pack with other jobs.",
)
PACK_WAITS = ReasonKind(
    "pack-waits",
    f"{PLACE} [In a pack with {{others}}, it|It] needs {{gpus_needed:GPU}}[left_type? of one type]. "
    f"[gpus_up=0?{_NONE_UP}"
    "|[left_type?The policy plans it for type {left_type:label}. ]After the packs ahead of it, "
    "[gpus_left=0?no GPU is|{gpus_left:GPU} [gpus_left=1?is|are]] left[left_type? of this type][other_left>0?, and "
    "{other_left} of type {other_left:label}], so it waits."
    "[others?|stages_known=0? It shares GPUs with no job, because its stages are unknown"
    "|pack_step? It does not share GPUs with {apart:label}, because a step of each would together take {pack_step:.3g} "
    "s, and one after the other {apart:.3g} s"
    "|equal_jobs=0? It could share GPUs only with a job that also needs {gpus_needed}, and there is none among the "
    "first jobs that fill the cluster"
    "|equal_jobs? The policy merges jobs that need equally many GPUs, those first that together use their nodes most "
    "fully, and none of the {equal_jobs:other job} that need {gpus_needed} is left for it]"
    f"[others?|stages_known?.]{_AHEAD}]",
    _UNITS,
    "A pack does not fit on the GPUs that are left.",
)
BEYOND_PACKS = ReasonKind(
    "beyond-packs",
    f"{PLACE} [gpus_up=0?It needs {{gpus_needed:GPU}}. {_NONE_UP}"
    "|The policy considers only the first jobs that fill the cluster. In this count, up to four jobs of equal size "
    "share GPUs, but a job whose stages are unknown[stages_known=0?, like this one,] shares with none. "
    "Before the turn of this job, [gpus_left=0?no GPU is|{gpus_left:GPU} [gpus_left=1?is|are]] left in the count"
    "[left_type? of [gpus_left=0?any type that has enough GPUs for it|type {left_type:label}]], and this job needs "
    f"{{gpus_needed:GPU}}, so it waits.{_AHEAD}]",
    _UNITS,
    "A job comes after those that would fill the cluster in packs of four.",
    excuses_waiting=another_does_not_fit,
)


@dataclass(frozen=True)
class Pack:
    """Jobs that request equally many GPUs, and are to share them."""

    jobs: tuple[JobView, ...]  # in order of precedence
    rank: int  # position of the first of these jobs among all jobs, from 0
    gpu_type: str

    @cached_property
    def kind(self) -> Kind:
        """Return the stages of its jobs, sorted; empty for a job whose stages are unknown."""
        return tuple(sorted(job.stages for job in self.jobs if job.stages is not None))

    @property
    def gpus(self) -> int:
        """Return the number of GPUs that the pack needs."""
        return self.jobs[0].num_replicas

    @property
    def is_slower_than_in_turn(self) -> bool:
        """Return whether the jobs of the pack would complete sooner one after the other."""
        if len(self.jobs) == 1:
            return False
        return interleaved(self.kind) > self.time_in_turn

    @property
    def time_in_turn(self) -> float:
        """Return the time of a step of each job, one after the other [s]."""
        return sum(stages.step for stages in self.kind)

    def merged_with(self, other: Pack) -> Pack:
        """Return the pack of the jobs of both packs."""
        first, second = sorted((self, other), key=lambda pack: pack.rank)
        return replace(first, jobs=first.jobs + second.jobs)

    def singles(self) -> list[Pack]:
        """Return a pack for each job."""
        # Ranks from that of the pack on, so that its jobs stay together, and in order, among other packs.
        return [replace(self, jobs=(job,), rank=self.rank + index) for index, job in enumerate(self.jobs)]


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
        """Return a sentence if no two jobs can share GPUs."""
        if not jobs or any(job.stages is not None for job in jobs):
            return []
        return ["the stages of no job are known: each job has its GPUs alone"]

    def decide(self, view: ClusterView) -> Decision:
        """Order, choose, merge, and place the packs that come first."""

        def service(job: JobView) -> float:
            return remaining_service(job) if self.knows_durations else job.attained_service

        order = sorted(view.jobs, key=lambda job: sort_key(service(job), view.time))
        num_gpus = {name: view.gpus_of(name) for name in view.types}
        candidates, left_at_turn = _candidates(view, order, num_gpus)
        packs: list[Pack] = []
        fell_apart: dict[JobId, Pack] = {}
        for name, candidates_of_type in candidates.items():
            for pack in _merged(candidates_of_type, num_gpus[name]):
                if self.falls_apart and pack.is_slower_than_in_turn:
                    packs.extend(pack.singles())
                    fell_apart |= dict.fromkeys((job.job_id for job in pack.jobs), pack)
                else:
                    packs.append(pack)
        gpus_left = dict(num_gpus)
        left_of_others: dict[JobId, dict[str, int]] = {}  # GPUs left of other types that each job in a pack can use
        chosen: list[Pack] = []
        for pack in sorted(packs, key=lambda pack: pack.rank):
            gpus_left_now = gpus_left[pack.gpu_type]
            for job in pack.jobs:
                left_at_turn[job.job_id] = (pack.gpu_type, gpus_left_now)
                other_types = {name: left for name, left in gpus_left.items() if name in job.speeds}
                other_types.pop(pack.gpu_type, None)
                left_of_others[job.job_id] = other_types
            if pack.gpus <= gpus_left_now:
                gpus_left[pack.gpu_type] -= pack.gpus
                chosen.append(pack)
        shared = place_packs(view, {pack.jobs: pack.gpu_type for pack in chosen})
        services = {job.job_id: service(job) for job in order}
        name_of_service = "remaining_service" if self.knows_durations else "attained_service"

        def explain(jobs: Sequence[JobId]) -> dict[JobId, Reason]:
            pack_of: dict[JobId, Pack] = {}
            for pack in packs:
                pack_of |= dict.fromkeys((job.job_id for job in pack.jobs), pack)
            asked = set(jobs)
            reasons: dict[JobId, Reason] = {}
            ahead: dict[str, float] = {}
            for position, job in enumerate(order, start=1):
                job_id = job.job_id
                if job_id in asked:
                    numbers = {"position": float(position), name_of_service: services[job_id], "submission_next": 1.0}
                    numbers |= _numbers_of_turn(job, num_gpus, left_at_turn[job_id], left_of_others.get(job_id, {}))
                    numbers |= _numbers_of_sharing(job, fell_apart.get(job_id), candidates)
                    if job_id not in shared:
                        numbers |= ahead
                    reasons[job_id] = _reason(job_id, numbers, pack_of.get(job_id), has_gpus=job_id in shared)
                if job_id in shared:
                    ahead = {f"ahead_service {job_id}": services[job_id]}
            return {job_id: reasons[job_id] for job_id in jobs}

        return Decision({}, shared=shared, valid_until=inf, outdated_by=Change.JOBS_OR_NODES, explain=explain)


def _numbers_of_turn(
    job: JobView, num_gpus: Mapping[str, int], left_at_turn: tuple[str, int], other_types: Mapping[str, int]
) -> dict[str, float]:
    """Return what is left at the turn of a job, as numbers of a reason.

    `num_gpus` are the GPUs of each type, `left_at_turn` the type of the turn and its GPUs that are left, and
    `other_types` the GPUs left of the other types that the job can use.
    """
    gpu_type, gpus_left = left_at_turn
    numbers: dict[str, float] = {
        "stages_known": float(job.stages is not None),
        "gpus_needed": job.num_replicas,
        "gpus_left": gpus_left,
    }
    if not any(num_gpus[name] for name in job.speeds):
        numbers["gpus_up"] = 0.0
    if len(num_gpus) > 1:
        numbers[f"left_type {gpu_type}"] = gpus_left
    if other_types:
        other_type = max(other_types, key=other_types.__getitem__)
        numbers[f"other_left {other_type}"] = other_types[other_type]
    return numbers


def _numbers_of_sharing(
    job: JobView, fell_apart: Pack | None, candidates: Mapping[str, Sequence[Pack]]
) -> dict[str, float]:
    """Return why a job shares GPUs with no other one, as numbers of a reason.

    `fell_apart` is the pack of the job that would be slower than its jobs in turn, if there was one. `candidates` are
    the jobs of each type that the policy considers.
    """
    if fell_apart is not None:
        partners = [partner.job_id for partner in fell_apart.jobs if partner.job_id != job.job_id]
        return {"pack_step": interleaved(fell_apart.kind), f"apart {listed(partners)}": fell_apart.time_in_turn}
    equal_jobs = 0
    for packs in candidates.values():
        names = [pack.jobs[0].job_id for pack in packs if pack.gpus == job.num_replicas and pack.kind]
        if job.job_id in names:
            equal_jobs = len(names) - 1
    return {"equal_jobs": float(equal_jobs)}


def _reason(name: JobId, order: Mapping[str, float], pack: Pack | None, *, has_gpus: bool) -> Reason:
    """Return the reason of a job, with the other jobs of its pack. `order` contains the numbers of its turn."""
    if pack is None:
        return Reason(BEYOND_PACKS, order)
    partners = tuple(job.job_id for job in pack.jobs if job.job_id != name)
    if has_gpus:
        numbers = {**order, "gpus": float(pack.gpus)}
        if partners:
            numbers |= {
                # A pack has the rank of its first job.
                f"pack_number {pack.jobs[0].job_id}": float(pack.rank + 1),
                "partners": float(len(partners)),
                "pack_step": interleaved(pack.kind),
                "turn_step": pack.time_in_turn,
                "fullness": weight(pack.kind),
            }
        return Reason(IN_PACK, numbers, partners)
    return Reason(PACK_WAITS, order, partners)


def _candidates(
    view: ClusterView, order: Sequence[JobView], gpus: Mapping[str, int]
) -> tuple[dict[str, list[Pack]], dict[JobId, tuple[str, int]]]:
    """Return, for each type, the jobs that would fill its GPUs in packs of four jobs of equal size, in order.

    A job goes to the type on which it runs, otherwise to its fastest type; types with free GPUs come first. The second
    value is the type with the most GPUs left at the turn of each job, and these GPUs.
    """
    gpus_left = dict(gpus)
    # How many more jobs the last pack of a type and a number of GPUs can take.
    room = Counter[tuple[str, int]]()
    candidates: dict[str, list[Pack]] = {name: [] for name in gpus}
    left_at_turn: dict[JobId, tuple[str, int]] = {}
    for rank, job in enumerate(order):
        size = job.num_replicas
        types = by_preference(view, job)
        most_left = max(types, key=gpus_left.__getitem__)
        left_at_turn[job.job_id] = (most_left, gpus_left[most_left])
        with_free_gpus = [name for name in types if size <= gpus_left[name]]
        with_room = [name for name in types if room[name, size]]
        if with_free_gpus:
            gpu_type = with_free_gpus[0]
        elif with_room:
            gpu_type = with_room[0]
        else:
            continue
        if not room[gpu_type, size]:
            gpus_left[gpu_type] -= size
            # A job whose stages are unknown shares with no job, so its pack has no room for another one.
            room[gpu_type, size] = MOST_JOBS if job.stages is not None else 1
        room[gpu_type, size] -= 1
        candidates[gpu_type].append(Pack((job,), rank, gpu_type))
    return candidates, left_at_turn


def _merged(packs: list[Pack], capacity: int) -> list[Pack]:
    """Merge packs until they fit on `capacity` GPUs, in four steps at most. Return them in order of their last jobs."""
    needed_gpus = sum(pack.gpus for pack in packs)
    for _ in range(MOST_JOBS):
        if needed_gpus <= capacity:
            break
        merged = dict(enumerate(packs))
        for later, earlier in _partners(packs):
            if needed_gpus > capacity:
                merged[later] = merged.pop(earlier).merged_with(merged[later])
                needed_gpus -= merged[later].gpus
        packs = list(merged.values())
    return packs


def _partners(packs: Sequence[Pack]) -> list[tuple[int, int]]:
    """Return the matched packs of equal size as pairs of indices (later, earlier), in order of the later one."""
    by_size: dict[int, list[int]] = {}
    for index, pack in enumerate(packs):
        if pack.kind:
            by_size.setdefault(pack.gpus, []).append(index)
    pairs: list[tuple[int, int]] = []
    for indices in by_size.values():
        for one, other in matched([packs[index].kind for index in indices]):
            later = max(indices[one], indices[other])
            earlier = min(indices[one], indices[other])
            pairs.append((later, earlier))
    return sorted(pairs)


def joined(one: Kind, other: Kind) -> Kind:
    """Return the kind of two packs merged."""
    return tuple(sorted(one + other))


@lru_cache(maxsize=1 << 16)
def weight(pack: Kind) -> float:
    """Return how fully a pack uses its resources, from 0 to about 1."""
    # The first field of `Stages` is the time of a whole step, the others are times on resources.
    busy_times = [sum(stages[1:]) for stages in pack]
    return sum(busy_times) / (MOST_JOBS * interleaved(pack))


def matched(kinds: Sequence[Kind]) -> list[tuple[int, int]]:
    """Return pairs of packs, by their indices in a list, with the greatest sum of weights.

    Each pack has at most one partner. Packs of a kind have equal weights, so the integer programme has one variable for
    each pair of kinds. HiGHS solves it through SciPy; a `RuntimeError` is raised if it finds no solution.

    Source: maximum-weight matching in Muri (SIGCOMM '22), which matches single packs; limits of odd sets, Edmonds
    (1965).
    """
    # In falling order, so that `pop` takes the first pack of a kind first.
    indices: dict[Kind, list[int]] = {}
    for index in reversed(range(len(kinds))):
        indices.setdefault(kinds[index], []).append(index)
    counts = tuple(sorted(Counter(kinds).items()))
    pairs: list[tuple[int, int]] = []
    for one, other, times in _best_pairs(counts):
        for _ in range(times):
            pairs.append((indices[one].pop(), indices[other].pop()))
    return pairs


@lru_cache(maxsize=1 << 14)
def _best_pairs(counts: tuple[tuple[Kind, int], ...]) -> list[tuple[Kind, Kind, int]]:
    """Return two kinds and their number of pairs, for all kinds with a pair, by the number of packs of each kind."""
    kinds = [kind for kind, _ in counts]
    num_packs = [number for _, number in counts]
    pairs: list[tuple[int, int]] = []  # of indices of kinds
    gains: list[float] = []
    for one, other in combinations_with_replacement(range(len(kinds)), 2):
        is_too_large = len(kinds[one]) + len(kinds[other]) > MOST_JOBS
        has_no_partner = one == other and num_packs[one] == 1
        if not is_too_large and not has_no_partner:
            pairs.append((one, other))
            gains.append(weight(joined(kinds[one], kinds[other])))
    if not pairs:
        return []
    best_pairs: list[tuple[Kind, Kind, int]] = []
    for (one, other), times in zip(pairs, _times(pairs, np.array(gains), num_packs), strict=True):
        if times:
            best_pairs.append((kinds[one], kinds[other], int(times)))
    return best_pairs


def _times(pairs: Sequence[tuple[int, int]], gain: NDArray[np.float64], left: Sequence[int]) -> NDArray[np.float64]:
    """Return the number of pairs of each two kinds with the greatest gain, shape (pairs,).

    `pairs` are indices of kinds, `gain` the weight of a pair, shape (pairs,), and `left` the packs of each kind. If
    numbers are fractional, a set of kinds has an odd number of packs, so one pack has no partner. The set becomes a
    limit. Each kind and the set of all kinds are limits from the start. If no such set exists, HiGHS branches.
    """
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415  (slow to load)

    kinds = range(len(left))
    rows: list[NDArray[np.int64]] = []
    for kind in kinds:
        # A pair of two packs of one kind takes both from that kind.
        rows.append(np.array([(kind == one) + (kind == other) for one, other in pairs]))
    most_times = list(left)
    is_integer = 0
    single_kinds = [frozenset((kind,)) for kind in kinds]
    sets: Sequence[frozenset[int]] = [*single_kinds, frozenset(kinds)]
    times = np.full(len(pairs), float(sum(left)))  # an upper bound, so that each odd set becomes a limit
    while True:
        for packed_set in sets:
            row = np.array([packed_set.issuperset(pair) for pair in pairs], int)
            num_packs = sum(left[kind] for kind in packed_set)
            most_pairs = num_packs // 2
            is_odd = num_packs % 2 == 1
            if is_odd and row @ times > most_pairs + TOLERANCE:
                rows.append(row)
                most_times.append(most_pairs)
                is_integer = 0
        limits = LinearConstraint(np.array(rows), ub=np.array(most_times))
        options = {"mip_rel_gap": 0.0, "presolve": False}
        with without_chatter() if is_integer else nullcontext():
            solution = milp(-gain, constraints=limits, integrality=is_integer, options=options)
        if solution.x is None:
            raise RuntimeError(f"HiGHS found no solution: {solution.message}")
        times = solution.x
        rounded: NDArray[np.float64] = np.rint(times)
        if is_integer or np.abs(times - rounded).max() < TOLERANCE:
            return rounded
        sets = _joined_kinds(pairs, times, len(left))
        # HiGHS branches in the next turn, unless one of these sets becomes a limit.
        is_integer = 1


def _joined_kinds(pairs: Sequence[tuple[int, int]], times: Sequence[float], kinds: int) -> Sequence[frozenset[int]]:
    """Return the connected sets of kinds, by the pairs with fractional counts and by all pairs."""
    fractional_pairs: list[tuple[int, int]] = []
    all_pairs: list[tuple[int, int]] = []
    for pair, number in zip(pairs, times, strict=True):
        if abs(number - round(number)) > TOLERANCE:
            fractional_pairs.append(pair)
        if number > TOLERANCE:
            all_pairs.append(pair)
    connected_sets: list[frozenset[int]] = []
    for joining_pairs in (fractional_pairs, all_pairs):
        set_of_kind = {kind: frozenset((kind,)) for kind in range(kinds)}
        for one, other in joining_pairs:
            both = set_of_kind[one] | set_of_kind[other]
            set_of_kind |= dict.fromkeys(both, both)
        connected_sets += set_of_kind.values()
    # A set stands there once for each of its kinds, and must be a limit once.
    return tuple(dict.fromkeys(connected_sets))
