"""The highest true speed of an application on a number of GPUs, over all placements and batch sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.models.efficiency import gain
from polluxsim.models.profile import Profile, ProfileRangeError

Array = NDArray[np.float64]

BATCH_STEP = 1.01  # ratio of neighbouring limits between which batch sizes are treated alike
PASS_STEP = 1.03  # ratio of neighbouring numbers of examples per GPU and pass for which the step time is asked
ALL_SHAPES = 16  # on up to this number of GPUs, all shapes of placements are tried
ALL_COUNTS = 64  # up to this number of GPUs, each number is tried
COUNT_STEP = 1.1  # ratio of neighbouring numbers of GPUs above it
MOST_NODE_COUNTS = 8  # on more GPUs than `ALL_SHAPES`, at most about this many numbers of nodes are tried


class SpeedBounds(NamedTuple):
    """Upper bounds of the speed of an application on one GPU type, at any batch size.

    No placement on `counts[i]` GPUs is faster than `rates[:, i]`, but one on fewer GPUs may be. On a number of GPUs
    between two counts, no placement is faster than the larger of the rates of both.
    """

    counts: tuple[int, ...]  # numbers of GPUs, rising
    rates: Array  # progress per second by epoch and place in `counts`, shape (epochs, counts) [M0-steps/s]


def highest_speeds(profile: Profile, node_sizes: Sequence[int], most_gpus: int) -> SpeedBounds | None:
    """Return the highest speeds on up to `most_gpus` GPUs of nodes with these GPUs; None if it runs on none of them.

    A speed is rounded up, by less than 2 %: batch sizes between two limits have the gain of the larger limit and the
    step time of the smaller one. So the gain must not fall with the batch size, nor the step time with the examples
    per GPU, by more than that.
    """
    application = profile.application
    limits = _between(application.init_batch_size, application.max_batch_size, BATCH_STEP)
    gains = _gains(profile, limits)
    if gains is None:
        return None
    counts = _counts(min(most_gpus, sum(node_sizes)))
    rates = np.zeros((application.num_epochs, len(counts)))
    for place, count in enumerate(counts):
        times = _least_step_times(profile, count, node_sizes, limits)
        if times is not None:
            rates[:, place] = (gains / times).max(axis=1)
    for place in range(len(counts) - 1):
        if counts[place + 1] > counts[place] + 1:  # the numbers between are on the safe side
            rates[:, place] = np.maximum(rates[:, place], rates[:, place + 1])
    if not rates.any():
        return None
    return SpeedBounds(tuple(counts), rates)


def _between(low: float, high: float, step: float) -> Array:
    """Return rising numbers from `low` to `high`, neighbours at most in the ratio `step`."""
    number = max(int(np.ceil(log(high / low) / log(step))), 1)
    return np.geomspace(low, high, number + 1)


def _counts(most: int) -> list[int]:
    """Return the numbers of GPUs to try."""
    counts = list(range(1, min(most, ALL_COUNTS) + 1))
    while counts[-1] < most:
        counts.append(min(int(counts[-1] * COUNT_STEP) + 1, most))
    return counts


def _gains(profile: Profile, limits: Array) -> Array | None:
    """Return the largest gain between each two limits of the batch size, by epoch; None if no size has a gain."""
    application = profile.application
    sizes = sorted({int(np.floor(limit)) for limit in limits} | {application.max_batch_size})
    gains = np.zeros((application.num_epochs, len(limits) - 1))
    for epoch in range(application.num_epochs):
        values = [_gain(profile, size, epoch) for size in sizes]
        # The gain at the upper limit, rounded up to whole examples. Gains rise with the batch size.
        places = np.minimum(np.searchsorted(sizes, limits[1:] - 1e-9), len(sizes) - 1)
        gains[epoch] = np.maximum.accumulate(values)[places]
    return gains if gains.any() else None


def _gain(profile: Profile, size: int, epoch: int) -> float:
    """Return the M0-steps that a step is worth; 0 if the profile does not have the batch size."""
    try:
        return gain(profile.gradient_statistics(size, epoch), size / profile.application.init_batch_size)
    except ProfileRangeError:
        return 0.0


def _least_step_times(profile: Profile, count: int, node_sizes: Sequence[int], limits: Array) -> Array | None:
    """Return the least time of a step on a number of GPUs between each two limits of the batch size [s].

    None if no placement on this number of GPUs has a step time.
    """
    application = profile.application
    smallest = application.min_atomic_batch_size
    largest = min(application.max_atomic_batch_size, max(application.max_batch_size // count, smallest))
    examples = sorted({round(number) for number in _between(smallest, largest, PASS_STEP)})
    with_sync = []  # by shape and examples [s]
    alone = []  # without the synchronisation
    for shape in _shapes(count, node_sizes):
        steps = [_step(profile, shape, number) for number in examples]
        with_sync.append([step for step, _ in steps])
        alone.append([step - sync for step, sync in steps])
    if not with_sync:
        return None
    last_passes = np.array(with_sync)
    other_passes = np.array(alone)
    least = np.full(len(limits) - 1, np.inf)
    per_gpu = limits / count
    # All numbers of passes without synchronisation with which a pass has the smallest number of examples or more.
    for more_passes in range(int(per_gpu[-1] // smallest) + 1):
        lower = per_gpu[:-1] / (more_passes + 1)
        upper = per_gpu[1:] / (more_passes + 1)
        usable = (upper >= smallest) & (lower <= largest)
        if not usable.any():
            continue
        times = last_passes
        if more_passes:
            times = last_passes + more_passes * other_passes
        by_examples = times.min(axis=0)
        finite = np.isfinite(by_examples)
        if not finite.any():
            continue
        sizes = np.array(examples, float)[finite]
        at_lower = np.interp(np.clip(lower, smallest, largest), sizes, by_examples[finite])
        least = np.where(usable, np.minimum(least, at_lower), least)
    return least if np.isfinite(least).any() else None


def _step(profile: Profile, shape: tuple[int, ...], examples: int) -> tuple[float, float]:
    """Return the time of a pass that synchronises, and its synchronisation [s]; infinite if it does not fit."""
    try:
        return profile.step_time(shape, examples)
    except ProfileRangeError:
        return np.inf, 0.0


def _shapes(count: int, node_sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield shapes of placements of a number of GPUs: GPUs on each node, the most on the first node."""
    sizes = sorted(node_sizes, reverse=True)
    if count <= ALL_SHAPES:
        yield from _all_shapes(count, sizes)
        return
    room = 0
    least_nodes = 0
    while room < count:
        room += sizes[least_nodes]
        least_nodes += 1
    most_nodes = min(count, len(sizes))
    numbers = {round(number) for number in np.geomspace(least_nodes, most_nodes, MOST_NODE_COUNTS)}
    shapes = set()
    for nodes in sorted({min(least_nodes + 1, most_nodes), *numbers}):
        shapes.add(_packed(count, sizes[:nodes]))
        shapes.add(_even(count, sizes[:nodes]))
    yield from sorted(shapes)


def _all_shapes(count: int, sizes: Sequence[int], most: int | None = None) -> Iterator[tuple[int, ...]]:
    """Yield all shapes with falling numbers of GPUs that fit on nodes of falling sizes."""
    if not count:
        yield ()
        return
    if not sizes:
        return
    largest = min(count, sizes[0]) if most is None else min(count, sizes[0], most)
    for first in range(largest, 0, -1):
        for rest in _all_shapes(count - first, sizes[1:], first):
            yield (first, *rest)


def _packed(count: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return a shape on all of these nodes, with as many GPUs as possible on the first ones."""
    shape = []
    for place, size in enumerate(sizes):
        nodes_after = len(sizes) - place - 1
        gpus = min(size, count - nodes_after)
        shape.append(gpus)
        count -= gpus
    return tuple(shape)


def _even(count: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return a shape on all of these nodes that is as even as their sizes allow."""
    shape = [1] * len(sizes)
    left = count - len(sizes)
    while left:
        for place, size in enumerate(sizes):
            if left and shape[place] < size:
                shape[place] += 1
                left -= 1
    return tuple(sorted(shape, reverse=True))
