"""Which packs to merge: a matching of greatest weight, over kinds of packs instead of single ones."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, TypeAlias

from polluxsim.models.stages import MOST_JOBS, Stages, interleaved

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind: TypeAlias = tuple[Stages, ...]
"""What is alike of packs: the stages of their jobs, sorted."""

NEARLY = 1e-6
"""So near below a whole number counts as one."""


def joined(one: Kind, other: Kind) -> Kind:
    """Return the kind of two packs merged."""
    return tuple(sorted(one + other))


@lru_cache(maxsize=1 << 16)
def weight(pack: Kind) -> float:
    """Return how fully a pack uses its resources, from 0 to about 1."""
    return sum(sum(stages[1:]) for stages in pack) / (MOST_JOBS * interleaved(pack))


def matched(kinds: Sequence[Kind]) -> list[tuple[int, int]]:
    """Return pairs of packs, by their places in a list, whose weights have the greatest sum; each is in one at most.

    As like packs are worth the same, it is a linear programme with a number for each pair of kinds, solved by HiGHS
    through SciPy. Where its numbers are not whole they are halves, on odd circles of kinds: those are rounded down, and
    what is left is paired by weight.

    Source: maximum-weight matching in Muri (SIGCOMM '22), there of single packs.
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
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415

    kinds = range(len(counts))
    pairs = [
        (one, other)
        for one, other in combinations_with_replacement(kinds, 2)
        if len(counts[one][0]) + len(counts[other][0]) <= MOST_JOBS and (one != other or counts[one][1] > 1)
    ]
    if not pairs:
        return []
    used = np.array([[(kind == one) + (kind == other) for one, other in pairs] for kind in kinds])
    gain = np.array([weight(joined(counts[one][0], counts[other][0])) for one, other in pairs])
    left = np.array([number for _, number in counts])
    found = milp(-gain, constraints=LinearConstraint(used, ub=left))
    if found.x is None:
        raise RuntimeError(f"HiGHS found no answer: {found.message}")
    times = np.floor(found.x + NEARLY)
    left = left - used @ times
    for place in np.argsort(-gain, kind="stable"):
        more = min(left[kind] // used[kind, place] for kind in pairs[place])
        times[place] += more
        left -= used[:, place] * more
    return [(counts[a][0], counts[b][0], int(n)) for (a, b), n in zip(pairs, times, strict=True) if n]
