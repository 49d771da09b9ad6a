"""Pollux's own search: NSGA-II over whole allocations, warm-started from the round before, compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numba import config, prange, set_num_threads
from numpy.typing import NDArray

from polluxsim.common.kernels import helper, kernel, kernel_in_threads
from polluxsim.common.values import NonNegativeInt, PositiveInt
from polluxsim.common.written import takes_settings
from polluxsim.hardware.placements import JobId
from polluxsim.policies.pollux.problem import Answer, Problem, power_mean, with_idle_gpus

# Probabilities of the mutations. Source: artifact of Pollux (OSDI '21).
REVERT_PROBABILITY = 0.1
SHRINK_ROW_PROBABILITY = 0.1
SHRINK_ELEMENT_PROBABILITY = 0.1


@takes_settings("{} of the genetic search")
@dataclass
class GeneticSearch:
    """NSGA-II with the operators of Pollux.

    A member is an allocation, GPUs by job and node. One objective is the fitness, the other the sum of speedups, which
    keeps the population diverse; the answer is the fittest member. Each child has its own random stream, so the answer
    does not depend on the order of the children.

    Parameters
    ----------
    population
        Number of members.
    generations
        Number of rounds of selection, crossover, mutation and repair.
    threads
        Threads that make children, at most those of Numba. The answer does not depend on their number.

    Source: Pollux (OSDI '21), §4.2.1, and its artifact.
    """

    population: PositiveInt = 100
    generations: NonNegativeInt = 100
    threads: PositiveInt = 1
    _members: NDArray[np.int16] | None = field(default=None, init=False, repr=False)
    _job_ids: tuple[JobId, ...] = field(default=(), init=False, repr=False)

    def solve(self, problem: Problem, rng: np.random.Generator) -> Answer:
        """Return the fittest allocation found, without a bound."""
        seed = np.uint64(rng.integers(2**63))
        size = self.population
        data = Data(
            problem.placements.astype(np.int16),
            problem.log_values(),
            problem.speedups,
            problem.fairness_power,
            problem.gpus_per_node,
            problem.fewest,
            problem.max_replicas,
            problem.avoid_interference,
        )
        # A worker of a sweep has one thread, whatever machine it runs on.
        threads = min(self.threads, int(config.NUMBA_NUM_THREADS))
        if threads > 1:
            set_num_threads(threads)
        breeder = breed if threads == 1 else breed_in_threads
        first = self._first_members(problem)
        pool = np.concatenate([first, first])  # members, then their children
        objectives = np.empty((2 * size, 2))
        rank = np.zeros(size, dtype=np.int64)
        crowding = np.zeros(size)
        evaluate_first(pool[:size], data, seed, objectives)
        order = survivors(objectives[:size], size, rank, crowding)
        pool[:size] = pool[order]
        objectives[:size] = objectives[order]
        for generation in range(1, self.generations + 1):
            breeder(pool, rank, crowding, data, np.uint64(_stream(seed, generation)), objectives)
            order = survivors(objectives, size, rank, crowding)
            pool[:size] = pool[order]
            objectives[:size] = objectives[order]
        self._members = pool[:size].copy()
        self._job_ids = problem.job_ids
        fittest = int(np.argmax(objectives[:size, 0]))
        return Answer(with_idle_gpus(problem, pool[fittest].astype(np.int64)), float(objectives[fittest, 0]))

    def stands_still(self, problem: Problem) -> bool:
        """Return False, because the answer depends on chance and on the last round."""
        return False

    def _first_members(self, problem: Problem) -> NDArray[np.int16]:
        """Return the members of the last round, without ended jobs and with new jobs at zero; the last is no change.

        In the first round, and if the number of nodes has changed, all members are no change.
        """
        shape = (self.population, len(problem.job_ids), len(problem.gpus_per_node))
        if self._members is None or self._members.shape[2] != shape[2]:
            return np.broadcast_to(problem.placements.astype(np.int16), shape).copy()
        members = np.zeros(shape, dtype=np.int16)
        rows = {job_id: row for row, job_id in enumerate(self._job_ids)}
        for row, job_id in enumerate(problem.job_ids):
            previous_row = rows.get(job_id)
            if previous_row is not None:
                members[:, row] = self._members[:, previous_row]
        # So that the answer is never worse than no change.
        members[-1] = problem.placements
        return members


class Data(NamedTuple):
    """The parts of a problem that kernels need; shapes as in `Problem`."""

    placements: NDArray[np.int16]
    values: NDArray[np.float64]  # `Problem.log_values`
    speedups: NDArray[np.float64]
    power: float
    gpus_per_node: NDArray[np.int64]
    fewest: NDArray[np.int64]
    max_replicas: NDArray[np.int64]
    avoid_interference: bool


@kernel
def evaluate_first(members, data, seed, objectives):  # type: ignore[no-untyped-def]
    """Make the first members feasible, and write their objectives, shape (P, 2)."""
    for i in range(len(members)):
        state = np.array([_stream(_stream(seed, 0), i)])
        repair(members[i], data, state)
        evaluate(members[i], data, objectives[i])


@kernel
def breed(pool, rank, crowding, data, seed, objectives):  # type: ignore[no-untyped-def]
    """Put the children of the first half of the pool into its second half, and evaluate them."""
    for i in range(len(rank)):
        _make_child(i, pool, rank, crowding, data, seed, objectives)


@kernel_in_threads
def breed_in_threads(pool, rank, crowding, data, seed, objectives):  # type: ignore[no-untyped-def]
    """Compute what `breed` computes: a child depends only on its own stream and on the first half."""
    for i in prange(len(rank)):
        _make_child(i, pool, rank, crowding, data, seed, objectives)


@helper
def _make_child(i, pool, rank, crowding, data, seed, objectives):  # type: ignore[no-untyped-def]
    """Write the child with index i and its objectives: crossover of two members, mutation and repair."""
    size = len(rank)
    num_jobs = pool.shape[1]
    state = np.array([_stream(seed, i)])
    child = pool[size + i]
    mother = _tournament(rank, crowding, state)
    father = _tournament(rank, crowding, state)
    cut = _below(state, num_jobs + 1)
    child[:cut] = pool[mother, :cut]
    child[cut:] = pool[father, cut:]
    mutate(child, data.placements, data.gpus_per_node, state)
    repair(child, data, state)
    evaluate(child, data, objectives[size + i])


@helper
def mutate(member, placements, gpus_per_node, state):  # type: ignore[no-untyped-def]
    """At random, return rows to their present placement, remove elements, and let jobs grow on free GPUs."""
    num_jobs, num_nodes = member.shape
    for j in range(num_jobs):
        if _uniform(state) < REVERT_PROBABILITY:
            member[j] = placements[j]
        if _uniform(state) < SHRINK_ROW_PROBABILITY:
            for n in range(num_nodes):
                if member[j, n] and _uniform(state) < SHRINK_ELEMENT_PROBABILITY:
                    member[j, n] = 0
    base = 1.0 / num_jobs  # probability that a job grows on a node
    for n in range(num_nodes):
        used = 0
        residents = 0
        for j in range(num_jobs):
            used += member[j, n]
            residents += member[j, n] > 0
        if used >= gpus_per_node[n]:
            continue
        more = 1.0 / residents if residents else 0.0
        resident = base + more - base * more  # probability that a job with GPUs on the node grows
        for j in range(num_jobs):
            present = member[j, n]
            if _uniform(state) < (resident if present else base):
                member[j, n] = present + _below(state, gpus_per_node[n] - present + 1)


@helper
def repair(member, data, state):  # type: ignore[no-untyped-def]
    """Make a member feasible: no job outside its limits, and no node over its capacity.

    With avoidance of interference, a node has at most one multi-node job.
    """
    gpus_per_node = data.gpus_per_node
    fewest = data.fewest
    max_replicas = data.max_replicas
    num_jobs, num_nodes = member.shape
    # Each node keeps its first multi-node job; later ones lose their GPUs there.
    if data.avoid_interference:
        taken = np.zeros(num_nodes, dtype=np.bool_)
        for j in range(num_jobs):
            nodes = 0
            for n in range(num_nodes):
                nodes += member[j, n] > 0
            if nodes < 2:
                continue
            for n in range(num_nodes):
                if member[j, n] and taken[n]:
                    member[j, n] = 0
                elif member[j, n]:
                    taken[n] = True
    # A job beyond its largest number of GPUs keeps those of nodes in a random order, until it has this number.
    order = np.arange(num_nodes)
    for j in range(num_jobs):
        total = 0
        for n in range(num_nodes):
            total += member[j, n]
        if total <= max_replicas[j]:
            continue
        room = max_replicas[j]
        for i in range(num_nodes):
            other = i + _below(state, num_nodes - i)
            order[i], order[other] = order[other], order[i]
            n = order[i]
            member[j, n] = min(member[j, n], room)
            room -= member[j, n]
    # On a node over its capacity, the first jobs keep their GPUs.
    for n in range(num_nodes):
        room = gpus_per_node[n]
        for j in range(num_jobs):
            member[j, n] = min(member[j, n], room)
            room -= member[j, n]
    # Last, because the phases before take GPUs away: a job below its fewest GPUs gets none.
    for j in range(num_jobs):
        total = 0
        for n in range(num_nodes):
            total += member[j, n]
        if total < fewest[j]:
            for n in range(num_nodes):
                member[j, n] = 0


@helper
def evaluate(member, data, objectives):  # type: ignore[no-untyped-def]
    """Write a member's fitness and its mean speedup."""
    placements = data.placements
    values = data.values
    speedups = data.speedups
    num_jobs, num_nodes = member.shape
    logs = np.empty(num_jobs)
    total = 0.0
    for j in range(num_jobs):
        replicas = 0
        nodes = 0
        changed = 0
        for n in range(num_nodes):
            replicas += member[j, n]
            nodes += member[j, n] > 0
            changed |= member[j, n] != placements[j, n]
        several = 1 if nodes > 1 else 0
        logs[j] = values[j, changed, several, replicas]
        total += speedups[j, several, replicas]
    objectives[0] = power_mean(logs, data.power)
    objectives[1] = total / num_jobs


@kernel
def survivors(objectives, size, rank, crowding):  # type: ignore[no-untyped-def]
    """Return the members that survive, shape (size,): lower fronts first, then members in sparser regions.

    Both objectives, shape (n, 2), are maximised. Front and crowding distance of the survivors are written to `rank`
    and `crowding`. Source: Deb et al., "NSGA-II", IEEE Trans. Evol. Comput. 6 (2002).
    """
    count = objectives.shape[0]
    by_fitness = _descending(objectives)
    front = np.empty(count, dtype=np.int64)
    best_second = np.empty(count)
    fronts = 0
    for i in by_fitness:
        # In this order, a front dominates i exactly if its largest second objective so far is at least that of i.
        # These records fall from front to front, so bisection finds the first front that does not dominate i. An
        # equal member counts as dominated, so that copies of a good member do not displace all other members.
        low = 0
        high = fronts
        while low < high:
            middle = (low + high) // 2
            if best_second[middle] >= objectives[i, 1]:
                low = middle + 1
            else:
                high = middle
        front[i] = low
        best_second[low] = objectives[i, 1]
        fronts = max(fronts, low + 1)
    distance = _crowding(objectives, front, by_fitness, fronts)
    order = np.argsort(-distance, kind="mergesort")
    order = order[np.argsort(front[order], kind="mergesort")][:size]
    rank[:] = front[order]
    crowding[:] = distance[order]
    return order


@helper
def _descending(objectives):  # type: ignore[no-untyped-def]
    """Return the order of falling first objectives, and of falling second objectives among equal ones."""
    order = np.argsort(-objectives[:, 1], kind="mergesort")
    return order[np.argsort(-objectives[order, 0], kind="mergesort")]


@helper
def _crowding(objectives, front, by_fitness, fronts):  # type: ignore[no-untyped-def]
    """Return the crowding distance of each member within its front, shape (n,)."""
    count = objectives.shape[0]
    distance = np.zeros(count)
    span0 = max(objectives[:, 0].max() - objectives[:, 0].min(), 1e-300)
    span1 = max(objectives[:, 1].max() - objectives[:, 1].min(), 1e-300)
    before = np.full(fronts, -1)
    last = np.full(fronts, -1)
    for i in by_fitness:
        f = front[i]
        middle = last[f]
        if middle < 0:
            distance[i] = np.inf
        elif before[f] >= 0:
            start = before[f]
            distance[middle] = (objectives[start, 0] - objectives[i, 0]) / span0
            distance[middle] += (objectives[i, 1] - objectives[start, 1]) / span1
        before[f] = middle
        last[f] = i
    for f in range(fronts):
        distance[last[f]] = np.inf
    return distance


@helper
def _tournament(rank, crowding, state):  # type: ignore[no-untyped-def]
    """Return the better of two random members: the one in the lower front, then in the sparser region."""
    a = _below(state, rank.size)
    b = _below(state, rank.size)
    if rank[a] != rank[b]:
        return a if rank[a] < rank[b] else b
    return a if crowding[a] >= crowding[b] else b


# A random stream is one word of state. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators"
# (OOPSLA '14), SplitMix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_S11 = np.uint64(11)
_S32 = np.uint64(32)


@helper
def _mix(word):  # type: ignore[no-untyped-def]
    """Return the hash of a word of 64 bits."""
    word = (word ^ (word >> _S30)) * _MIX1
    word = (word ^ (word >> _S27)) * _MIX2
    return word ^ (word >> _S31)


@kernel
def _stream(seed, number):  # type: ignore[no-untyped-def]
    """Return the seed of the random numbers of a generation or a child."""
    return _mix(seed + _mix(np.uint64(number) + _GOLDEN))


@helper
def _uniform(state):  # type: ignore[no-untyped-def]
    """Draw a number from [0, 1), a multiple of 2⁻⁵³."""
    state[0] += _GOLDEN
    return (_mix(state[0]) >> _S11) * (1.0 / 9007199254740992.0)


@helper
def _below(state, bound):  # type: ignore[no-untyped-def]
    """Draw a whole number from 0 to `bound` − 1."""
    return int(_uniform(state) * bound)
