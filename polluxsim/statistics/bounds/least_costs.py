"""The least cost of each job alone against prices: compiled loops over slots.

A job does its work by the cheapest parts of slots. In a slot, the parts are the edges of the lower convex hull of its
modes: a part has a width (progress per second) and a slope (price of a unit of progress). The slopes of a slot rise, so
that taking the cheapest parts of all slots never takes a part of a slot before a cheaper part of the same slot.

A job has one or several measures of its progress. For each end C, the measure with the highest cost counts.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from polluxsim.common.kernels import helper, kernel


@helper
def hull(prices, slot, first, last, types, gpus, rates, widths, slopes, lower, upper):  # type: ignore[no-untyped-def]
    """Write the parts of a slot into four arrays, and return their number.

    The modes are `first` to `last` − 1, in order of pools. Those of one pool are corners of a concave hull, in order of
    their rates. `lower` and `upper` are the modes at both ends of a part; `lower` is −1 for no GPUs.
    """
    count = 0
    rate = 0.0
    cost = 0.0
    mode = -1
    if types[first] == types[last - 1]:  # one pool, whose price does not change the hull
        held = 0.0
        for other in range(first, last):
            widths[count] = rates[other] - rate
            slopes[count] = prices[types[other], slot] * (gpus[other] - held) / widths[count]
            lower[count] = mode
            upper[count] = other
            count += 1
            mode = other
            rate = rates[other]
            held = gpus[other]
        return count
    while True:
        best = -1
        best_slope = np.inf
        for other in range(first, last):
            if rates[other] > rate:
                slope = (gpus[other] * prices[types[other], slot] - cost) / (rates[other] - rate)
                # Of parts with one slope, the widest comes first, so that no part of the same slope follows.
                if slope < best_slope or (slope == best_slope and rates[other] > rates[best]):
                    best = other
                    best_slope = slope
        if best < 0:
            return count
        widths[count] = rates[best] - rate
        slopes[count] = best_slope
        lower[count] = mode
        upper[count] = best
        count += 1
        mode = best
        rate = rates[best]
        cost = gpus[best] * prices[types[best], slot]


@helper
def take(parts, count, widths, slopes, lower, upper, slot, length, work, done, cost):  # type: ignore[no-untyped-def]
    """Let a job take the parts of a slot that are cheaper than its dearest parts; return its progress and cost.

    `parts` is a heap with the dearest part on top: minus slope, progress, slot, lower and upper mode, width.
    """
    for part in range(count):
        slope = slopes[part]
        room = widths[part] * length
        # First the work that is left, then work that the job takes back from dearer parts.
        taken = min(room, max(work - done, 0.0))
        done += taken
        cost += taken * slope
        room -= taken
        while room > 0.0 and len(parts) > 0 and -parts[0][0] > slope:
            dearest, progress, place, before, after, width = heappop(parts)
            amount = min(room, progress)
            if progress > amount:
                heappush(parts, (dearest, progress - amount, place, before, after, width))
            cost -= amount * (-dearest - slope)
            room -= amount
            taken += amount
        if taken > 0.0:
            heappush(parts, (-slope, taken, slot, lower[part], upper[part], widths[part]))
    return done, cost


@helper
def gain(dearest, count, widths, slopes):  # type: ignore[no-untyped-def]
    """Return by how much the cost falls per second by which the slot becomes longer."""
    total = 0.0
    for part in range(count):
        total += widths[part] * max(dearest - slopes[part], 0.0)
    return total


@helper
def lowest_value(begin, at_begin, begin_gain, end, at_end, end_gain):  # type: ignore[no-untyped-def]
    """Return the least value with an end of the schedule from `begin` to `end`, and the end at which it is reached.

    `at_begin` and `at_end` are the values at both ends: the end of the schedule plus the cost. A gain is by how much
    the cost falls per second there. The cost is convex, so that a tangent at each end bounds it from below. Where both
    tangents meet, the bound is lowest, if the value falls from the first end and rises towards the second.
    """
    value = min(at_begin, at_end)
    where = begin if at_begin <= at_end else end
    if begin_gain > 1.0 > end_gain:
        length = end - begin
        passed = (at_begin - at_end + (1.0 - end_gain) * length) / (begin_gain - end_gain)
        passed = min(max(passed, 0.0), length)
        from_begin = at_begin + (1.0 - begin_gain) * passed
        from_end = at_end - (1.0 - end_gain) * (length - passed)
        value = min(value, max(from_begin, from_end))
        where = begin + passed
    return value, where


@helper
def add_usage(  # type: ignore[no-untyped-def]
    ends, prices, submit, start_slot, completion, work, first, last, types, gpus, rates, widths, slopes, lower, upper,
    usage
):  # fmt: skip
    """Add the GPU time of the cheapest schedule of a job that ends at `completion` to `usage`.

    Its modes are `first` to `last` − 1.
    """
    # Numba must know the type of the items of an empty list.
    parts = [(0.0, 0.0, 0, 0, 0, 1.0)]
    parts.pop()
    progress = 0.0
    spent = 0.0
    for slot in range(start_slot, len(ends) - 1):
        start = max(ends[slot], submit)
        if start >= completion:
            break
        count = hull(prices, slot, first, last, types, gpus, rates, widths, slopes, lower, upper)
        length = min(ends[slot + 1], completion) - start
        progress, spent = take(parts, count, widths, slopes, lower, upper, slot, length, work, progress, spent)
    # A part stands for the step from one mode to the next one, in place of which the job runs then.
    for _, amount, slot, before, after, width in parts:
        usage[types[after], slot] += amount / width * gpus[after]
        if before >= 0:
            usage[types[before], slot] -= amount / width * gpus[before]


@kernel
def least_costs(ends, prices, submits, measures, works, firsts, types, gpus, rates, usage):  # type: ignore[no-untyped-def]
    """Return for each job the least C + ∫ β·x, and the C of its schedule; add the GPU time of all schedules to `usage`.

    `ends` has the start of the first slot and the ends of all slots, shape (S + 1,); `prices` has shape (types, S). The
    last slot is so long that each job completes in it. Jobs have `submits`, shape (J,). The measures of job j are
    `measures[j]` to `measures[j + 1]` − 1 in `works`; the modes of measure i are `firsts[i]` to `firsts[i + 1]` − 1 in
    `types`, `gpus` and `rates`. `usage` has shape (types, S) [GPU s].

    Between two ends of slots, the value is bounded from below by two tangents, because the cost is convex there. So the
    first result is at most the least value, and the second is close to where it is reached.
    """
    num_jobs = len(submits)
    num_slots = len(ends) - 1
    values = np.empty(num_jobs)
    completions = np.empty(num_jobs)
    most_modes = 0
    for measure in range(len(works)):
        most_modes = max(most_modes, firsts[measure + 1] - firsts[measure])
    # The parts of a slot. The arrays are made once, because a kernel counts references to each new array.
    widths = np.empty(most_modes + 1)
    slopes = np.empty(most_modes + 1)
    lower = np.empty(most_modes + 1, np.int64)
    upper = np.empty(most_modes + 1, np.int64)
    for job in range(num_jobs):
        submit = submits[job]
        start_slot = np.searchsorted(ends, submit, side="right") - 1
        num_measures = measures[job + 1] - measures[job]
        # Numba must know the type of the items of an empty list.
        heaps = [[(0.0, 0.0, 0, 0, 0, 1.0)] for _ in range(num_measures)]
        for number in range(num_measures):
            heaps[number].pop()
        done = np.zeros(num_measures)
        cost = np.zeros(num_measures)
        best = np.inf
        best_end = np.inf
        best_measure = 0
        for slot in range(start_slot, num_slots):
            start = max(ends[slot], submit)
            end = ends[slot + 1]
            # An end in this slot or later is worth at least the start of the slot, because costs are not negative.
            if start >= best:
                break
            length = end - start
            slot_value = -np.inf
            slot_end = end
            slot_measure = -1
            for number in range(num_measures):
                measure = measures[job] + number
                count = hull(
                    prices, slot, firsts[measure], firsts[measure + 1], types, gpus, rates, widths, slopes, lower, upper
                )
                full_rate = 0.0
                full_cost = 0.0
                for part in range(count):
                    full_rate += widths[part]
                    full_cost += widths[part] * slopes[part]
                # State at the first moment of the slot at which all work can be done by then.
                parts = heaps[number]
                missing = max(works[measure] - done[number], 0.0) / full_rate
                begin = start + missing
                begin_cost = cost[number] + missing * full_cost
                dearest = -parts[0][0] if len(parts) > 0 else 0.0
                if missing > 0.0:
                    dearest = max(dearest, slopes[count - 1])
                begin_gain = gain(dearest, count, widths, slopes)
                done[number], cost[number] = take(
                    parts, count, widths, slopes, lower, upper, slot, length, works[measure], done[number], cost[number]
                )
                value = np.inf
                where = np.inf
                if begin <= end:  # the work can be done in this slot
                    end_gain = gain(-parts[0][0], count, widths, slopes)
                    value, where = lowest_value(
                        begin, begin + begin_cost, begin_gain, end, end + cost[number], end_gain
                    )
                # Each measure bounds the value from below, so that the highest one counts.
                if value > slot_value:
                    slot_value = value
                    slot_end = where
                    slot_measure = measure
            if slot_value < best:
                best = slot_value
                best_end = slot_end
                best_measure = slot_measure
        values[job] = best
        completions[job] = best_end
        first = firsts[best_measure]
        last = firsts[best_measure + 1]
        add_usage(
            ends, prices, submit, start_slot, best_end, works[best_measure], first, last, types, gpus, rates, widths,
            slopes, lower, upper, usage
        )  # fmt: skip
    return values, completions
