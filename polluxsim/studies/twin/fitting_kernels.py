"""Kernels of select/cons_tres and WILL_RUN: the nodes of a job, and its expected start.

Each helper is a compiled form of a rule of `polluxsim.policies.slurm`, which states the rule with its source. Tests
compare both forms. A set of nodes is a row of words with `BITS` nodes in each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.kernels import helper

BITS = 62  # nodes in a word of a set; fewer than 64, so that words are never negative

EDGE = 30  # `policies.slurm.will_run.EDGE` [s]
FIRST_WINDOW = 30  # `policies.slurm.will_run.FIRST_WINDOW` [s]

IntArray = NDArray[np.int64]

# Columns of the array of jobs.
NODES, GPUS, CPUS, STATES_TASKS, LIMIT, SUBMIT, ELIGIBLE, TIER, PRIORITY, PARTITION, KIND, USER, DURATION = range(13)
NUM_COLUMNS = 13
"""Of a job: nodes, GPUs and CPUs on each node, whether it states tasks, limit, submission, time since which it is
eligible, tier, priority, numbers of its partition, of its kind of suitable nodes and of its user, and true run time."""


@helper
def has(nodes: IntArray, node: int) -> bool:
    """Return whether a set has a node."""
    return bool((nodes[node // BITS] >> (node % BITS)) & 1)


@helper
def add(nodes: IntArray, node: int) -> None:
    """Add a node to a set."""
    nodes[node // BITS] |= 1 << (node % BITS)


@helper
def choose(
    request: IntArray, allowed: IntArray, free: IntArray, weights: IntArray, runs: IntArray, chosen: IntArray
) -> bool:
    """Write the nodes of a job to `chosen`, and return whether it fits.

    The rule is `policies.slurm.selection.chosen_nodes`. `free` has a row of GPUs and a row of CPUs. `runs` is working
    memory: first node, length, offered CPUs and whether the run is taken.
    """
    num_nodes, gpus, cpus = request[NODES], request[GPUS], request[CPUS]
    num_fitting = 0
    num_runs = 0
    previous = -2  # no neighbour of node 0
    for node in range(free.shape[1]):
        if not has(allowed, node) or free[0, node] < gpus or free[1, node] < cpus:
            continue
        num_fitting += 1
        offer = cpus if request[STATES_TASKS] else free[1, node]
        if previous == node - 1 and weights[node - 1] == weights[node]:
            runs[num_runs - 1, 1] += 1
            runs[num_runs - 1, 2] += offer
        else:
            runs[num_runs, 0] = node
            runs[num_runs, 1] = 1
            runs[num_runs, 2] = offer
            runs[num_runs, 3] = 0
            num_runs += 1
        previous = node
    # `chosen` keeps its nodes if the job does not fit.
    if num_fitting < num_nodes:
        return False
    for word in range(len(chosen)):
        chosen[word] = 0
    missing = num_nodes
    while missing > 0:
        run = best_run(missing, runs, num_runs, weights)
        runs[run, 3] = 1
        first, length = runs[run, 0], runs[run, 1]
        if num_nodes == 1 and length > 1:
            best = first
            if not request[STATES_TASKS]:
                for node in range(first + 1, first + length):
                    if free[1, node] < free[1, best]:
                        best = node
            add(chosen, best)
            return True
        for node in range(first, first + min(length, missing)):
            add(chosen, node)
        missing -= length
    return True


@helper
def best_run(missing: int, runs: IntArray, num_runs: int, weights: IntArray) -> int:
    """Return the run from which a job takes nodes next, as `policies.slurm.selection.best_nodes` does."""
    lowest = -1
    for run in range(num_runs):
        if not runs[run, 3] and (lowest < 0 or weights[runs[run, 0]] < lowest):
            lowest = weights[runs[run, 0]]
    best = -1
    suffices = False
    for run in range(num_runs):
        if runs[run, 3] or weights[runs[run, 0]] != lowest:
            continue
        is_enough = runs[run, 1] >= missing
        if best < 0 or (is_enough and not suffices):
            better = True
        elif is_enough:
            better = runs[run, 2] < runs[best, 2]
        else:
            better = not suffices and runs[run, 2] > runs[best, 2]
        if better:
            best = run
            suffices = is_enough
    return best


@helper
def fits_now(request: IntArray, allowed: IntArray, free: IntArray) -> bool:
    """Return whether a job fits on the allowed nodes."""
    missing = request[NODES]
    for node in range(free.shape[1]):
        if free[0, node] >= request[GPUS] and free[1, node] >= request[CPUS] and has(allowed, node):
            missing -= 1
            if missing <= 0:
                return True
    return bool(missing <= 0)


@helper
def has_at_least(nodes: IntArray, count: int) -> bool:
    """Return whether a set has at least a number of nodes."""
    for word in range(len(nodes)):
        rest = nodes[word]
        while rest:
            rest &= rest - 1  # without its lowest node
            count -= 1
            if count <= 0:
                return True
    return count <= 0


@helper
def meets(nodes: IntArray, others: IntArray) -> bool:
    """Return whether two sets have a common node."""
    for word in range(len(nodes)):
        if nodes[word] & others[word]:
            return True
    return False


@helper
def give_back(job: int, held_from: IntArray, held: IntArray, free: IntArray, sign: int) -> None:
    """Give back what a job holds; with the sign −1, take it."""
    for index in range(held_from[job, 0], held_from[job, 1]):
        free[0, held[index, 0]] += sign * held[index, 1]
        free[1, held[index, 0]] += sign * held[index, 2]


@helper
def expected_start(
    request: IntArray,
    of_partition: IntArray,
    suitable: IntArray,
    by_end: IntArray,
    num_running: int,
    ends: IntArray,
    job_nodes: IntArray,
    held_from: IntArray,
    held: IntArray,
    free: IntArray,
    trial: IntArray,
    weights: IntArray,
    runs: IntArray,
    chosen: IntArray,
    now: int,
    parameters: IntArray,
) -> int:
    """Write the nodes of a job to `chosen` and return its expected start [s]; −1 if it never fits.

    The rule is `policies.slurm.will_run.will_run`. `of_partition` are the allowed nodes, and `suitable` those of them
    with the GPU type and features. `by_end` are the running jobs by expected end, and `trial` is working memory.
    """
    # The cheapest test comes first.
    if not has_at_least(suitable, request[NODES]):
        return -1
    if choose(request, suitable, free, weights, runs, chosen):
        return now
    num_fitting = 0
    for node in range(free.shape[1]):
        trial[0, node] = free[0, node]
        trial[1, node] = free[1, node]
        if has(suitable, node) and free[0, node] >= request[GPUS] and free[1, node] >= request[CPUS]:
            num_fitting += 1
    edge = -1
    window = FIRST_WINDOW
    last = -1
    for place in range(num_running):
        job = by_end[place]
        if not meets(job_nodes[job], of_partition):
            continue
        for index in range(held_from[job, 0], held_from[job, 1]):
            node = held[index, 0]
            did_fit = trial[0, node] >= request[GPUS] and trial[1, node] >= request[CPUS]
            trial[0, node] += held[index, 1]
            trial[1, node] += held[index, 2]
            does_fit = trial[0, node] >= request[GPUS] and trial[1, node] >= request[CPUS]
            if does_fit and not did_fit and has(suitable, node):
                num_fitting += 1
        last = job
        if edge < 0:
            edge = (ends[job] // EDGE + 1) * EDGE
        is_end_of_group = True
        next_end = 0
        if place + 1 < num_running:
            next_end = ends[by_end[place + 1]]
            is_end_of_group = next_end > edge + window
        if not is_end_of_group:
            continue
        # The count saves most of the choices, which take longer.
        if num_fitting >= request[NODES] and choose(request, suitable, trial, weights, runs, chosen):
            return int(end_of(ends[last], now, parameters))
        last = -1
        while next_end > edge + window:
            window += parameters[BF_WINDOW_LINEAR] if parameters[BF_WINDOW_LINEAR] else window
    if last >= 0 and num_fitting >= request[NODES] and choose(request, suitable, trial, weights, runs, chosen):
        return int(end_of(ends[last], now, parameters))
    return -1


@helper
def end_of(end: int, now: int, parameters: IntArray) -> int:
    """Return when a job with an expected end leaves its nodes [s]."""
    if end > now:
        return end
    return int(max(end + parameters[KILL_WAIT] + 60 * parameters[OVER_TIME_LIMIT], now + 1))


# Places in the array of parameters, by the names of `policies.slurm.parameters.Parameters`.
PARAMETERS = (
    "has_backfill", "bf_interval", "bf_resolution", "bf_window", "bf_window_linear", "bf_max_job_test",
    "bf_max_job_start", "bf_max_job_user", "bf_max_job_part", "bf_max_job_user_part", "bf_min_prio_reserve",
    "bf_min_age_reserve", "bf_running_job_reserve", "default_queue_depth", "partition_job_depth", "sched_interval",
    "batch_sched_delay", "kill_wait", "over_time_limit", "pause",
)  # fmt: skip
(
    HAS_BACKFILL, BF_INTERVAL, BF_RESOLUTION, BF_WINDOW, BF_WINDOW_LINEAR, BF_MAX_JOB_TEST,
    BF_MAX_JOB_START, BF_MAX_JOB_USER, BF_MAX_JOB_PART, BF_MAX_JOB_USER_PART, BF_MIN_PRIO_RESERVE,
    BF_MIN_AGE_RESERVE, BF_RUNNING_JOB_RESERVE, DEFAULT_QUEUE_DEPTH, PARTITION_JOB_DEPTH, SCHED_INTERVAL,
    BATCH_SCHED_DELAY, KILL_WAIT, OVER_TIME_LIMIT, PAUSE,
) = range(20)  # fmt: skip
