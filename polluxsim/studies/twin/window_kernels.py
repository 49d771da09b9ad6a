"""Kernels of the map of sched/backfill, which compile the rules of `polluxsim.policies.slurm.windows`.

`times` has a row [begin, end) for each window, and `nodes` its set of nodes that no plan holds.
"""

from __future__ import annotations

from polluxsim.common.kernels import helper
from polluxsim.studies.twin.fitting_kernels import IntArray


@helper
def first_after(times: IntArray, count: int, time: int) -> int:
    """Return the first window that ends after a time."""
    low = 0
    high = count
    while low < high:
        middle = (low + high) // 2
        if times[middle, 1] > time:
            high = middle
        else:
            low = middle + 1
    return low


@helper
def look(times: IntArray, nodes: IntArray, count: int, start: int, limit: int, free: IntArray) -> int:
    """Write the nodes for a job in [start, start + limit] to `free`, and return the next attempt [s]; −1 for none.

    The rule is `Windows.look`.
    """
    num_words = len(free)
    for word in range(num_words):
        free[word] = 0
    is_first = True
    later = -1
    for index in range(first_after(times, count, start), count):
        is_behind = times[index, 0] > start + limit
        is_empty = not is_first
        if not is_behind:
            is_empty = True
            for word in range(num_words):
                free[word] = nodes[index, word] if is_first else free[word] & nodes[index, word]
                if free[word]:
                    is_empty = False
            is_first = False
        # Behind the job, nothing is taken from `free`, and only its emptiness counts.
        elif is_empty:
            for word in range(num_words):
                if free[word]:
                    is_empty = False
        if later < 0 and index + 1 < count:
            for word in range(num_words):
                if nodes[index + 1, word] & ~nodes[index, word]:
                    later = times[index, 1]
                    break
        if is_behind or (is_empty and later >= 0):
            break
    return later


@helper
def lacks(times: IntArray, nodes: IntArray, count: int, used: IntArray, begin: int, finish: int) -> bool:
    """Return whether a window of a plan in [begin, finish) lacks one of its nodes, as `Windows.lacks` does."""
    for index in range(first_after(times, count, begin), count):
        if times[index, 0] >= finish:
            break
        for word in range(len(used)):
            if used[word] & ~nodes[index, word]:
                return True
    return False


@helper
def plan(times: IntArray, nodes: IntArray, count: int, used: IntArray, begin: int, finish: int) -> int:
    """Take nodes in [begin, finish), merge at most one pair of equal neighbours, and return the number of windows.

    The rule is `Windows.plan`.
    """
    # No window is before the beginning of the map.
    begin = max(begin, times[0, 0])
    count = split(times, nodes, count, begin)
    count = split(times, nodes, count, finish)
    first = -1
    last = -1
    for index in range(first_after(times, count, begin), count):
        if times[index, 0] >= finish:
            break
        if times[index, 0] >= begin:
            for word in range(len(used)):
                nodes[index, word] &= ~used[word]
            if first < 0:
                first = index
            last = index
    if first < 0:
        return count
    for index in range(max(first - 1, 0), min(last + 1, count - 1)):
        is_equal = True
        for word in range(len(used)):
            if nodes[index, word] != nodes[index + 1, word]:
                is_equal = False
        if is_equal:
            times[index, 1] = times[index + 1, 1]
            for later in range(index + 1, count - 1):
                copy_window(times, nodes, later + 1, later)
            return count - 1
    return count


@helper
def split(times: IntArray, nodes: IntArray, count: int, time: int) -> int:
    """Split the window that has a time inside, and return the number of windows."""
    index = first_after(times, count, time)
    if index == count or times[index, 0] >= time:
        return count
    for later in range(count, index, -1):
        copy_window(times, nodes, later - 1, later)
    times[index, 1] = time
    times[index + 1, 0] = time
    return count + 1


@helper
def copy_window(times: IntArray, nodes: IntArray, source: int, target: int) -> None:
    """Copy a window to another place. Assignments of whole rows would take longer to compile."""
    times[target, 0] = times[source, 0]
    times[target, 1] = times[source, 1]
    for word in range(nodes.shape[1]):
        nodes[target, word] = nodes[source, word]
