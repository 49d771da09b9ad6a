"""Which packs to merge: a matching of greatest weight, over kinds of packs instead of single ones."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, TypeAlias

from polluxsim.models.stages import MOST_JOBS, Stages, interleaved

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

Kind: TypeAlias = tuple[Stages, ...]
"""What is alike of packs: the stages of their jobs, sorted."""

NEARLY = 1e-6
"""So near a whole number counts as one."""


def joined(one: Kind, other: Kind) -> Kind:
    """Return the kind of two packs merged."""
    return tuple(sorted(one + other))


@lru_cache(maxsize=1 << 16)
def weight(pack: Kind) -> float:
    """Return how fully a pack uses its resources, from 0 to about 1."""
    return sum(sum(stages[1:]) for stages in pack) / (MOST_JOBS * interleaved(pack))


def matched(kinds: Sequence[Kind]) -> list[tuple[int, int]]:
    """Return pairs of packs, by their places in a list, whose weights have the greatest sum; each is in one at most.

    As like packs are worth the same, it is a programme with a whole number for each pair of kinds, solved by HiGHS
    through SciPy.

    Source: maximum-weight matching in Muri (SIGCOMM '22), there of single packs; limits of odd sets, Edmonds (1965).
    """
    places: dict[Kind, list[int]] = {}
    for place in reversed(range(len(kinds))):
        places.setdefault(kinds[place], []).append(place)
    counts = tuple(sorted(Counter(kinds).items()))
    return [(places[one].pop(), places[other].pop()) for one, other, times in _best_pairs(counts) for _ in range(times)]


@lru_cache(maxsize=1 << 14)
def _best_pairs(counts: tuple[tuple[Kind, int], ...]) -> list[tuple[Kind, Kind, int]]:
    """Return how often two kinds are paired, for so many packs of each."""
    import numpy as np  # noqa: PLC0415  (with the solver, slow to load, and only for who shares)

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
    """Return how often each pair of kinds is taken, of so many of each kind, for the greatest gain.

    Numbers that are not whole are on sets of kinds with an odd number of packs, of which not all can be paired: that is
    added as a limit, until all are whole. Where no such set is found, HiGHS branches; it writes to the terminal then.
    """
    import numpy as np  # noqa: PLC0415
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415

    rows = [np.array([(kind == one) + (kind == other) for one, other in pairs]) for kind in range(len(left))]
    most, whole = list(left), 0
    while True:
        room = LinearConstraint(np.array(rows), ub=np.array(most))
        found = milp(-gain, constraints=room, integrality=whole, options={"mip_rel_gap": 0.0, "presolve": False})
        if found.x is None:
            raise RuntimeError(f"HiGHS found no answer: {found.message}")
        times: NDArray[np.float64] = np.rint(found.x)
        if whole or np.abs(found.x - times).max() < NEARLY:
            return times
        whole = 1
        for odd in _odd_sets(pairs, found.x, left):
            row, limit = np.array([odd.issuperset(pair) for pair in pairs], int), sum(left[kind] for kind in odd) // 2
            if row @ found.x > limit + NEARLY:
                rows.append(row)
                most.append(limit)
                whole = 0


def _odd_sets(
    pairs: Sequence[tuple[int, int]], times: Sequence[float], left: Sequence[int]
) -> Sequence[frozenset[int]]:
    """Return the sets of kinds, each with an odd number of packs, that pairs taken join, those not whole or all."""
    found: list[frozenset[int]] = []
    for taken in ([abs(time - round(time)) > NEARLY for time in times], [time > NEARLY for time in times]):
        sets = {kind: frozenset((kind,)) for kind in range(len(left))}
        for one, other in (pair for pair, is_taken in zip(pairs, taken, strict=True) if is_taken):
            both = sets[one] | sets[other]
            sets |= dict.fromkeys(both, both)
        found += (each for each in sets.values() if sum(left[kind] for kind in each) % 2)
    return tuple(dict.fromkeys(found))
