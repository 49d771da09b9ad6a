"""Step times of jobs that share GPUs and use different resources in the stages of a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from math import inf
from typing import NamedTuple

MOST_JOBS = 4  # largest number of jobs on the same GPUs. Source: Muri (SIGCOMM '22)

OVERHEAD = {2: 1.33 / 1.015, 3: 1.5 / 1.015, 4: 1.37 / 1.015}
"""Measured time of a cycle relative to the computed time, by number of jobs.

The simulator of Muri has the factors 1.33, 1.5 and 1.37 on profiled times. The times of `Stages` already include its
factor for one job, 1.015.
"""

STEADY = 1e-3  # largest relative change between two cycles that counts as steady


class Stages(NamedTuple):
    """Times of one step of a job that runs alone [s]; its stages may overlap."""

    step: float  # whole step [s]
    load: float  # stage on storage and CPUs [s]
    compute: float  # stage on the GPU [s]
    network: float  # stage on the network [s]


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
    """Return the time of a cycle of four turns, in which the jobs pass through the stages in this order [s]."""
    ends = [0.0]  # of the turns [s]
    for turn in range(8):
        # One job uses the network and the next job the GPU. The third job loads, from the end of the turn before.
        starts = (ends[turn], ends[turn], ends[max(turn - 1, 0)])
        jobs = ((turn + 1) % 4, (turn + 2) % 4, (turn + 3) % 4 if turn else len(order))
        stages = zip(starts, jobs, ("network", "compute", "load"), strict=True)
        times = (start + getattr(order[job], stage) for start, job, stage in stages if job < len(order))
        ends.append(max(times, default=0.0))
        if turn >= 4:
            cycle, before = ends[turn + 1] - ends[turn - 3], ends[turn] - ends[turn - 4]
            if abs(cycle - before) <= STEADY * before:
                return cycle
    return ends[8] - ends[4]


@lru_cache(maxsize=1 << 16)
def beside(guest: Stages, host: Stages) -> float:
    """Return the step time of a guest job that uses only the idle resources of the host job [s]; ∞ if none are idle.

    A turn is one step of the host. A stage of the guest runs during the other stages of the host. The next stage of the
    guest begins in the rest of the last turn.

    Source: the simulator of Muri (SIGCOMM '22), for AntMan (OSDI '20).
    """
    (_, load, compute, network), (_, host_load, host_compute, host_network) = guest, host
    load_turns, rest = _turns(load, host_compute + host_network)
    if rest:
        compute -= min(compute, host_network, host_compute + host_network - rest)
    compute_turns, rest = _turns(compute, host_load + host_network)
    if 0 < rest < host_load:
        network -= min(network, host_load + host_compute - rest)
    network_turns, rest = _turns(network, host_load + host_compute)
    # The last turn counts only if the rest of it is longer than the load stage of the host.
    return (load_turns + compute_turns + network_turns - (0 < rest <= host_load)) * host.step


def goes_beside(guest: Stages | None, host: Stages | None) -> bool:
    """Return whether a guest job progresses on the idle resources of a host job; False if stages are unknown."""
    return guest is not None and host is not None and beside(guest, host) < inf


def _turns(time: float, room: float) -> tuple[float, float]:
    """Return the number of turns of length `room` that a stage takes, and its time in the last turn."""
    if not room:
        return (inf if time else 0), 0.0
    whole, rest = divmod(time, room)
    return whole + (rest > 0), rest
