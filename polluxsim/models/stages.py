"""Jobs on the same GPUs whose steps go through stages on different resources: how fast each then is."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_JOBS = 4
"""Largest pack. Source: Muri (SIGCOMM '22)."""

OVERHEAD = {2: 1.33 / 1.015, 3: 1.5 / 1.015, 4: 1.37 / 1.015}
"""How much longer a cycle of so many jobs is than the stages make it. Source: Muri's simulator, as measured."""

STEADY = 1e-3
"""A cycle is steady once the next is as long, but for this share."""


class Stages(NamedTuple):
    """The time of one step alone, and of each of its stages, which may overlap [s]."""

    step: float
    load: float  # on storage and CPUs
    compute: float  # on the GPU
    network: float


@lru_cache(maxsize=1 << 16)
def interleaved(pack: tuple[Stages, ...]) -> float:
    """Return the time in which each job of a pack does one step, stage by stage in turn [s].

    Parameters
    ----------
    pack
        One to four jobs.

    Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (SIGCOMM '22), and its simulator.
    """
    if len(pack) == 1:
        return pack[0].step
    cycle = min(map(_cycle, permutations(pack)))
    if len(pack) == 2:
        a, b = pack
        cycle = min(cycle, max(a.load, b.compute + b.network) + max(b.load, a.compute + a.network))
    return cycle * OVERHEAD[len(pack)]


def _cycle(order: Sequence[Stages]) -> float:
    """Return the time of a cycle in which jobs follow each other through the stages [s]."""
    ends = [0.0]
    for i in range(8):
        # Who is at each stage, each since the end of one of the last two.
        behind = (ends[i], "network"), (ends[i], "compute"), (ends[max(i - 1, 0)], "load")
        places = ((i + 1) % 4, (i + 2) % 4, (i + 3) % 4 if i else len(order))
        there = zip(behind, places, strict=True)
        times = (since + getattr(order[place], stage) for (since, stage), place in there if place < len(order))
        ends.append(max(times, default=0.0))
        if i >= 4 and abs(ends[i + 1] - ends[i - 3] - (last := ends[i] - ends[i - 4])) <= STEADY * last:
            return ends[i + 1] - ends[i - 3]
    return ends[8] - ends[4]


@lru_cache(maxsize=1 << 16)
def beside(guest: Stages, host: Stages) -> float:
    """Return the step time of a job that only has what another one leaves idle [s]; ∞ where that is nothing.

    Each stage runs while the host is at others; what is left of the last turn goes to the next stage.

    Source: the simulator of Muri (SIGCOMM '22), for AntMan (OSDI '20).
    """
    (x, y, z), (a, b, c) = guest[1:], host[1:]
    turns, rest = _turns(x, b + c)
    if rest:
        y -= min(y, c, b + c - rest)
    more, rest = _turns(y, a + c)
    if 0 < rest < a:
        z -= min(z, a + b - rest)
    last, rest = _turns(z, a + b)
    # The last turn is begun only if what is left of it is longer than the host loads.
    return (turns + more + last - (0 < rest <= a)) * host.step


def goes_beside(guest: Stages | None, host: Stages | None) -> bool:
    """Return whether a job gets anything done in what another one leaves idle, as far as their stages are known."""
    return guest is not None and host is not None and beside(guest, host) < inf


def _turns(time: float, room: float) -> tuple[float, float]:
    """Return in how many turns of some room a stage is done, and how much of the last it takes."""
    if not room:
        return (inf if time else 0), 0.0
    whole, rest = divmod(time, room)
    return whole + (rest > 0), rest
