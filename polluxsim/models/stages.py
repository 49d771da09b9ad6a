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
        # Two jobs can also alternate: while one loads, the other computes and then uses the network.
        a, b = pack
        cycle = min(cycle, max(a.load, b.compute + b.network) + max(b.load, a.compute + a.network))
    return cycle * OVERHEAD[len(pack)]


def _cycle(order: Sequence[Stages]) -> float:
    """Return the time of a cycle of four turns, in which the jobs pass through the stages in this order [s].

    It is the time once two cycles are nearly equal, or that of the second cycle.
    """
    ends = [0.0]  # of the turns [s]
    for turn in range(8):
        # One job uses the network and the next job the GPU. The third job loads, from the end of the turn before. A
        # pack of fewer than four jobs leaves places free.
        end = 0.0
        on_network = (turn + 1) % 4
        if on_network < len(order):
            end = max(end, ends[turn] + order[on_network].network)
        on_gpu = (turn + 2) % 4
        if on_gpu < len(order):
            end = max(end, ends[turn] + order[on_gpu].compute)
        loading = (turn + 3) % 4
        if turn > 0 and loading < len(order):
            end = max(end, ends[turn - 1] + order[loading].load)
        ends.append(end)
        # From the fifth turn on, the last four turns and the four that end one turn earlier can be compared.
        if turn >= 4:
            cycle = ends[turn + 1] - ends[turn - 3]
            before = ends[turn] - ends[turn - 4]
            if abs(cycle - before) <= STEADY * before:
                return cycle
    return ends[8] - ends[4]


@lru_cache(maxsize=1 << 16)
def beside(guest: Stages, host: Stages) -> float:
    """Return the step time of a guest job that uses only the idle resources of the host job [s].

    It is ∞ if the host leaves no time for a stage of the guest.

    A turn is one step of the host. A stage of the guest runs during the other stages of the host. The next stage of the
    guest begins in the rest of the last turn.

    Source: the simulator of Muri (SIGCOMM '22), for AntMan (OSDI '20).
    """
    _, load, compute, network = guest
    _, host_load, host_compute, host_network = host
    load_turns, in_last_turn = _turns(load, host_compute + host_network)
    if in_last_turn:
        compute -= min(compute, host_network, host_compute + host_network - in_last_turn)
    compute_turns, in_last_turn = _turns(compute, host_load + host_network)
    if 0 < in_last_turn < host_load:
        network -= min(network, host_load + host_compute - in_last_turn)
    network_turns, in_last_turn = _turns(network, host_load + host_compute)
    turns = load_turns + compute_turns + network_turns
    # The last turn counts only if the stage of the guest is longer in it than the load stage of the host.
    if 0 < in_last_turn <= host_load:
        turns -= 1
    return turns * host.step


def goes_beside(guest: Stages | None, host: Stages | None) -> bool:
    """Return whether a guest job progresses on the idle resources of a host job; False if unknown for one of them."""
    return guest is not None and host is not None and beside(guest, host) < inf


def _turns(time: float, room: float) -> tuple[float, float]:
    """Return the turns of length `room` until the end of a stage of length `time`, and its time in the last turn.

    The second value is 0 if the stage ends together with a turn. The number of turns is ∞ if they have no room. All
    times are in [s].
    """
    if not room:
        turns = inf if time else 0.0
        return turns, 0.0
    turns, in_last_turn = divmod(time, room)
    if in_last_turn > 0:
        turns += 1
    return turns, in_last_turn
