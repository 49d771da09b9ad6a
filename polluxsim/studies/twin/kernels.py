"""The kernel that simulates one future: Slurm's main scheduler and backfill on a light loop of events.

The rules are those of `polluxsim.policies.slurm`: `main_scheduler`, `backfill` and `turns`. Tests compare the starts of
both forms. A cycle of the backfill ends early here if no later job of the queue can start now, because a simulation
needs its starts only.
"""

from __future__ import annotations

import numpy as np

from polluxsim.common.kernels import helper, kernel_beside_others
from polluxsim.studies.twin.fitting_kernels import (
    BF_INTERVAL,
    BF_MAX_JOB_PART,
    BF_MAX_JOB_START,
    BF_MAX_JOB_TEST,
    BF_MAX_JOB_USER,
    BF_MAX_JOB_USER_PART,
    BF_MIN_AGE_RESERVE,
    BF_MIN_PRIO_RESERVE,
    BF_RESOLUTION,
    BF_RUNNING_JOB_RESERVE,
    BF_WINDOW,
    BITS,
    CPUS,
    DEFAULT_QUEUE_DEPTH,
    DURATION,
    ELIGIBLE,
    GPUS,
    HAS_BACKFILL,
    KIND,
    LIMIT,
    PARTITION,
    PARTITION_JOB_DEPTH,
    PAUSE,
    PRIORITY,
    SCHED_INTERVAL,
    SUBMIT,
    TIER,
    USER,
    IntArray,
    choose,
    expected_start,
    fits_now,
    give_back,
)
from polluxsim.studies.twin.window_kernels import lacks, look, plan

NEVER = -(1 << 60)  # time of a run before the first one
LATE = 1 << 60  # a time after all others

WAITS, QUEUES, RUNS, ENDED = range(4)
"""Phases of a job: not submitted or waiting for another job, in the queue, running, ended."""


@helper
def reserves(job: IntArray, now: int, parameters: IntArray) -> bool:
    """Return whether a job gets a plan, and closes its partition."""
    if job[PRIORITY] < parameters[BF_MIN_PRIO_RESERVE]:
        return False
    return bool(now - job[ELIGIBLE] >= parameters[BF_MIN_AGE_RESERVE])


@helper
def insert_in_queue(job: int, jobs: IntArray, queue: IntArray, length: int) -> int:
    """Insert a job behind those of equal tier and priority, and return the new length of the queue."""
    # From the end, because most jobs of equal priority come in the order of the queue.
    place = length
    while place > 0:
        other = queue[place - 1]
        is_before = jobs[job, TIER] > jobs[other, TIER]
        if jobs[job, TIER] == jobs[other, TIER]:
            is_before = jobs[job, PRIORITY] > jobs[other, PRIORITY]
        if not is_before:
            break
        queue[place] = other
        place -= 1
    queue[place] = job
    return length + 1


@helper
def drop(values: IntArray, length: int, value: int) -> int:
    """Remove a value from the first `length` places of an array, if it is there, and return their new number."""
    place = 0
    while place < length and values[place] != value:
        place += 1
    if place == length:
        return length
    for index in range(place, length - 1):
        values[index] = values[index + 1]
    return length - 1


@helper
def insert_by_end(job: int, by_end: IntArray, length: int, ends: IntArray) -> int:
    """Insert a running job by its expected end, behind equal ends, and return the new number of running jobs."""
    place = length
    while place > 0 and ends[by_end[place - 1]] > ends[job]:
        by_end[place] = by_end[place - 1]
        place -= 1
    by_end[place] = job
    return length + 1


@helper
def hold(
    job: int, request: IntArray, chosen: IntArray, job_nodes: IntArray, held_from: IntArray, held: IntArray, used: int
) -> int:
    """Note what a job that starts holds, and return the used rows of `held`."""
    held_from[job, 0] = used
    for word in range(len(chosen)):
        job_nodes[job, word] = chosen[word]
        for bit in range(BITS):
            if (chosen[word] >> bit) & 1:
                held[used, 0] = word * BITS + bit
                held[used, 1] = request[GPUS]
                held[used, 2] = request[CPUS]
                used += 1
    held_from[job, 1] = used
    return used


@kernel_beside_others
def future(
    jobs: IntArray,
    phases: IntArray,
    num_first: int,
    ends: IntArray,
    job_nodes: IntArray,
    held_from: IntArray,
    held: IntArray,
    dependencies: IntArray,
    asked: IntArray,
    free: IntArray,
    weights: IntArray,
    suitable: IntArray,
    of_partitions: IntArray,
    completing: IntArray,
    times_of_state: IntArray,
    parameters: IntArray,
    starts: IntArray,
) -> int:
    """Simulate one future, write the starts of jobs [s], and return the number of moments.

    Parameters
    ----------
    jobs
        A row for each job with the columns of `fitting_kernels`: first the jobs of the state, then later jobs in the
        order of submission. The true run time of a job that runs in the state is its end.
    phases
        Phase of each job.
    num_first
        Number of jobs of the state.
    ends
        Expected end of each job that runs [s].
    job_nodes, held_from, held
        Nodes that each job holds: as a set, and as rows [first, end) of `held` with node, GPUs and CPUs.
    dependencies
        Rows of a job and another job that must end first.
    asked
        Whether each job is asked about; the simulation ends when all of them have started.
    free
        A row of free GPUs and a row of free CPUs by node.
    suitable, of_partitions
        Nodes of each kind of job, and of each partition.
    completing
        Nodes that complete a job in the state.
    times_of_state
        Now, the last moment, the end of completion, the last cycle of the backfill [s], and the used rows of `held`.
    """
    num_jobs = len(jobs)
    num_words = job_nodes.shape[1]
    num_nodes = free.shape[1]
    now = times_of_state[0]
    until = times_of_state[1]
    completing_until = times_of_state[2]
    last_main = NEVER
    last_backfill = times_of_state[3]
    used = times_of_state[4]

    queue = np.empty(num_jobs + 1, np.int64)
    length = 0
    by_end = np.empty(num_jobs + 1, np.int64)
    num_running = 0
    true_ends = np.full(num_jobs, LATE, np.int64)
    is_blocked = np.zeros(num_jobs, np.int64)
    runs = np.empty((num_nodes + 1, 4), np.int64)
    trial = np.empty((2, num_nodes), np.int64)
    chosen = np.empty(num_words, np.int64)
    open_nodes = np.empty(num_words, np.int64)
    usable = np.empty(num_words, np.int64)
    in_partition = np.empty(num_words, np.int64)
    before = np.empty(num_words, np.int64)
    ready = np.empty(num_words, np.int64)
    num_partitions = len(of_partitions)
    closed = np.empty(num_partitions, np.int64)
    considered = np.empty(num_partitions, np.int64)
    num_users = 1
    for job in range(num_jobs):
        num_users = max(num_users, jobs[job, USER] + 1)
    of_user = np.empty(num_users, np.int64)
    of_user_part = np.empty((num_users, num_partitions), np.int64)
    window_times = np.empty((2 * num_jobs + 8, 2), np.int64)
    window_nodes = np.empty((2 * num_jobs + 8, num_words), np.int64)

    for job in range(num_first):
        if phases[job] == RUNS:
            num_running = insert_by_end(job, by_end, num_running, ends)
            true_ends[job] = jobs[job, DURATION]
    # A count, because a job may wait for several others.
    for index in range(len(dependencies)):
        is_blocked[dependencies[index, 0]] += 1
    num_asked = 0
    for job in range(num_jobs):
        num_asked += asked[job]
    # What changed before the state is unknown, so both schedulers look at the queue.
    main_is_due = True
    backfill_is_due = True
    rest_is_due = False
    next_submission = num_first
    num_cycles = 0
    completes = completing_until > now

    while now <= until:
        # Ends and submissions.
        has_changed = False
        # Backwards, because a job that ends is removed from the array.
        for place in range(num_running - 1, -1, -1):
            job = by_end[place]
            if true_ends[job] > now:
                continue
            phases[job] = ENDED
            num_running = drop(by_end, num_running, job)
            give_back(job, held_from, held, free, 1)
            has_changed = True
            for index in range(len(dependencies)):
                if dependencies[index, 1] == job:
                    is_blocked[dependencies[index, 0]] -= 1
        # Only an end can free a job that waits for another one.
        if num_cycles == 0 or has_changed:
            for job in range(next_submission):
                if phases[job] == WAITS and not is_blocked[job] and jobs[job, SUBMIT] <= now:
                    phases[job] = QUEUES
                    length = insert_in_queue(job, jobs, queue, length)
                    has_changed = True
        while next_submission < num_jobs and jobs[next_submission, SUBMIT] <= now:
            if not is_blocked[next_submission]:
                phases[next_submission] = QUEUES
                length = insert_in_queue(next_submission, jobs, queue, length)
            next_submission += 1
            has_changed = True
        if completing_until <= now and completes:
            completes = False
            has_changed = True
        if has_changed:
            main_is_due = True
            backfill_is_due = True
        num_cycles += 1
        for word in range(num_words):
            ready[word] = -1  # all nodes
            if now < completing_until:
                ready[word] = ~completing[word]

        # The main scheduler.
        interval = parameters[SCHED_INTERVAL]
        is_turn_of_all = last_main == NEVER or now // interval > last_main // interval
        runs_main = (main_is_due and now >= last_main + parameters[PAUSE]) or (rest_is_due and is_turn_of_all)
        runs_backfill = parameters[HAS_BACKFILL] and backfill_is_due and now >= last_backfill + parameters[BF_INTERVAL]
        if runs_main:
            depth = length
            if not is_turn_of_all and parameters[DEFAULT_QUEUE_DEPTH]:
                depth = min(parameters[DEFAULT_QUEUE_DEPTH], length)
            rest_is_due = depth < length
            main_is_due = False
            last_main = now
            for partition in range(num_partitions):
                closed[partition] = 0
                considered[partition] = 0
            for word in range(num_words):
                open_nodes[word] = ready[word]
            place = 0
            for _ in range(depth):
                job = queue[place]
                partition = jobs[job, PARTITION]
                if closed[partition]:
                    place += 1
                    continue
                considered[partition] += 1
                if parameters[PARTITION_JOB_DEPTH] and considered[partition] > parameters[PARTITION_JOB_DEPTH]:
                    place += 1
                    continue
                for word in range(num_words):
                    usable[word] = open_nodes[word] & suitable[jobs[job, KIND], word]
                if choose(jobs[job], usable, free, weights, runs, chosen):
                    used = hold(job, jobs[job], chosen, job_nodes, held_from, held, used)
                    give_back(job, held_from, held, free, -1)
                    ends[job] = now + jobs[job, LIMIT]
                    # A job runs for a second at least, so that it ends after the moment of its start.
                    true_ends[job] = now + max(jobs[job, DURATION], 1)
                    num_running = insert_by_end(job, by_end, num_running, ends)
                    phases[job] = RUNS
                    starts[job] = now
                    num_asked -= asked[job]
                    length = drop(queue, length, job)
                    backfill_is_due = True
                    # A start makes the next cycle due, but this cycle runs only if its interval is over.
                    runs_backfill = parameters[HAS_BACKFILL] and now >= last_backfill + parameters[BF_INTERVAL]
                    continue
                if reserves(jobs[job], now, parameters):
                    closed[partition] = 1
                    for word in range(num_words):
                        open_nodes[word] &= ~of_partitions[partition, word]
                place += 1

        # The backfill.
        if runs_backfill:
            backfill_is_due = False
            last_backfill = now
            resolution = parameters[BF_RESOLUTION]
            window_times[0, 0] = now - now % resolution
            window_end = now + 60 * parameters[BF_WINDOW]
            window_times[0, 1] = window_end - window_end % resolution
            for word in range(num_words):
                window_nodes[0, word] = 0
                for partition in range(num_partitions):
                    window_nodes[0, word] |= of_partitions[partition, word]
            num_windows = 1
            for partition in range(num_partitions):
                considered[partition] = 0
            for user in range(num_users):
                of_user[user] = 0
                for partition in range(num_partitions):
                    of_user_part[user, partition] = 0
            if parameters[BF_RUNNING_JOB_RESERVE]:
                for index in range(num_running):
                    job = by_end[index]
                    begin = now - now % resolution
                    finish = max(ends[job] - ends[job] % resolution, begin + resolution)
                    num_windows = plan(window_times, window_nodes, num_windows, job_nodes[job], begin, finish)
            last_fitting = length - 1
            is_changed = True
            num_tested = 0
            num_started = 0
            place = 0
            while place < length:
                if is_changed:
                    # No job behind the last one that can start now can start later in this cycle: plans and starts only
                    # take nodes away.
                    while last_fitting >= place:
                        job = queue[last_fitting]
                        allowed = suitable[jobs[job, KIND]]
                        if fits_now(jobs[job], allowed, free):
                            look(window_times, window_nodes, num_windows, now, jobs[job, LIMIT], usable)
                            for word in range(num_words):
                                usable[word] &= allowed[word]
                            if fits_now(jobs[job], usable, free):
                                break
                        last_fitting -= 1
                    is_changed = False
                if place > last_fitting:
                    break
                job = queue[place]
                request = jobs[job]
                partition = request[PARTITION]
                user = request[USER]
                is_beyond = parameters[BF_MAX_JOB_USER] > 0 and of_user[user] >= parameters[BF_MAX_JOB_USER]
                if parameters[BF_MAX_JOB_PART] > 0 and considered[partition] >= parameters[BF_MAX_JOB_PART]:
                    is_beyond = True
                most = parameters[BF_MAX_JOB_USER_PART]
                if most > 0 and of_user_part[user, partition] >= most:
                    is_beyond = True
                if is_beyond:
                    place += 1
                    continue
                of_user[user] += 1
                considered[partition] += 1
                of_user_part[user, partition] += 1
                if num_tested >= parameters[BF_MAX_JOB_TEST]:
                    break
                if parameters[BF_MAX_JOB_START] and num_started >= parameters[BF_MAX_JOB_START]:
                    break
                num_tested += 1
                start = now
                has_started = False
                is_known = False
                expected = -1
                while start >= 0:
                    # The answer of WILL_RUN holds for all attempts with equal nodes.
                    later = look(window_times, window_nodes, num_windows, start, request[LIMIT], usable)
                    for word in range(num_words):
                        in_partition[word] = usable[word] & of_partitions[partition, word]
                        usable[word] &= suitable[request[KIND], word]
                        if not is_known or in_partition[word] != before[word]:
                            is_known = False
                        before[word] = in_partition[word]
                    if not is_known:
                        expected = expected_start(
                            request, in_partition, usable, by_end, num_running, ends, job_nodes, held_from, held, free,
                            trial, weights, runs, chosen, now, parameters,
                        )  # fmt: skip
                        is_known = True
                    if expected < 0:
                        start = later
                        continue
                    time = max(expected, start)
                    if time <= now:
                        is_ready = True
                        for word in range(num_words):
                            if chosen[word] & ~ready[word]:
                                is_ready = False
                        if is_ready:
                            has_started = True
                            break
                        time = now + 1
                    if 0 <= later < time:
                        start = later
                        continue
                    begin = time - time % resolution
                    finish = time + request[LIMIT]
                    finish = max(finish - finish % resolution, begin + resolution)
                    if lacks(window_times, window_nodes, num_windows, chosen, begin, finish):
                        start = time
                        continue
                    if time <= window_end and reserves(request, now, parameters):
                        num_windows = plan(window_times, window_nodes, num_windows, chosen, begin, finish)
                        is_changed = True
                    break
                if not has_started:
                    place += 1
                    continue
                used = hold(job, request, chosen, job_nodes, held_from, held, used)
                give_back(job, held_from, held, free, -1)
                ends[job] = now + request[LIMIT]
                true_ends[job] = now + max(request[DURATION], 1)
                num_running = insert_by_end(job, by_end, num_running, ends)
                phases[job] = RUNS
                starts[job] = now
                num_asked -= asked[job]
                length = drop(queue, length, job)
                num_started += 1
                last_fitting -= 1
                is_changed = True
                backfill_is_due = True
                if parameters[BF_RUNNING_JOB_RESERVE]:
                    begin = now - now % resolution
                    finish = max(ends[job] - ends[job] % resolution, begin + resolution)
                    num_windows = plan(window_times, window_nodes, num_windows, chosen, begin, finish)

        # The next event, or run of a scheduler.
        if num_asked == 0:
            break
        next_time = LATE
        for place in range(num_running):
            next_time = min(next_time, true_ends[by_end[place]])
        if next_submission < num_jobs:
            next_time = min(next_time, jobs[next_submission, SUBMIT])
        if completing_until > now:
            next_time = min(next_time, completing_until)
        if length:
            if main_is_due:
                next_time = min(next_time, last_main + parameters[PAUSE])
            if parameters[HAS_BACKFILL] and backfill_is_due:
                next_time = min(next_time, last_backfill + parameters[BF_INTERVAL])
            if rest_is_due:
                next_time = min(next_time, (last_main // interval + 1) * interval)
        if next_time == LATE:
            break
        # slurmctld counts whole seconds, and a time must not come twice.
        now = max(next_time, now + 1)
    return num_cycles
