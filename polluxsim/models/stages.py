"""Step times of jobs that share GPUs and use different resources in the stages of a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from math import inf
from typing import NamedTuple

MOST_JOBS = 4  # largest number of jobs on the same GPUs. Source: Muri (SIGCOMM '22)

OVERHEAD = {2: 1.33 / 1.015, 3: 1.5 / 1.015, 4: 1.37 / 1.015}
"""Measured time of a cycle relative to the sum of its stages, by number of jobs. Source: Muri's simulator."""

STEADY = 1e-3  # largest relative change between two cycles that counts as steady


class Stages(NamedTuple):
    """Time of one step of a job that runs alone, and of its stages, which may overlap [s]."""

    step: float
    load: float  # on storage and CPUs
    compute: float  # on the GPU
    network: float


@lru_cache(maxsize=1 << 16)
def interleaved(pack: tuple[Stages, ...]) -> float:
    """Return the time in which each job of a pack (one to four jobs) does one step, interleaving the stages [s].

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
    """Return the time of a cycle in which the jobs pass through the stages in this order [s]."""
    ends = [0.0]
    for i in range(8):
        # The job at each stage, with the end of the preceding stage.
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
    """Return the step time of a guest job that uses only the idle resources of the host job [s]; ∞ if none are idle.

    A stage of the guest uses the idle resources during the other stages of the host. The next stage gets the rest of
    the last turn.

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
    # The last turn counts only if the rest of it is longer than the load stage of the host.
    return (turns + more + last - (0 < rest <= a)) * host.step


def goes_beside(guest: Stages | None, host: Stages | None) -> bool:
    """Return whether a guest job progresses on the idle resources of a host job; False if stages are unknown."""
    return guest is not None and host is not None and beside(guest, host) < inf


def _turns(time: float, room: float) -> tuple[float, float]:
    """Return the number of turns of length `room` that a stage takes, and its time in the last turn."""
    if not room:
        return (inf if time else 0), 0.0
    whole, rest = divmod(time, room)
    return whole + (rest > 0), rest
