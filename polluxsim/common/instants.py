"""Comparison of times that were computed in floating point, and the times of scheduling rounds.

A computed time is rarely exact: 0.1 s added to 0.2 s is not 0.3 s. Two times that differ by rounding only are the same
instant. Every comparison that decides something must use this module.
"""

from __future__ import annotations

from math import ceil, floor, frexp, inf, ldexp

import numpy as np
from numpy.typing import NDArray

ROUNDING = 2.0**-42
"""Share of a time by which rounding may change it: about 1,000 units in the last place.

One operation changes a time by at most 2^-53 of its value. The sums over some hundred moves of a job stay below this
share. It is 0.1 µs after 5 days, and 0.4 ms of a time since 1970.
"""

EXACT_ROUNDS = 2**53
"""Number of rounds above which a float cannot state each number."""

SIGNIFICANT_BITS = 32
"""Bits of a number in `sort_key`. Differences by rounding change fewer than the other 20 bits."""

LARGEST_SHARE = 2.0**-10
"""Largest share of the interval between rounds that counts as rounding. It matters after 2^32 rounds only."""


def slack(time: float) -> float:
    """Return by how much rounding may have changed a time [s]."""
    return ROUNDING * abs(time)


def coincide(time: float, other: float) -> bool:
    """Return whether two times are the same instant [s].

    >>> coincide(0.1 + 0.2, 0.3), coincide(0.3, 0.3001)
    (True, False)
    """
    return time == other or abs(time - other) <= slack(min(time, other, key=abs))  # one of them can be infinite


def has_come(time: float, now: float) -> bool:
    """Return whether a time is now or in the past [s].

    >>> has_come(0.1 + 0.2, now=0.3), has_come(0.3001, now=0.3)
    (True, False)
    """
    return time <= now + slack(now)


def just_after(time: float) -> float:
    """Return a time that follows so closely that nothing else happens between, and that is another instant [s].

    >>> has_come(just_after(60.0), now=60.0), just_after(60.0) < 60.000001
    (False, True)
    """
    return time + 4 * slack(time)


def reaches(amount: float, limit: float, now: float, rate: float = 1.0) -> bool:
    """Return whether an amount that was added up over time reaches a limit.

    Parameters
    ----------
    amount
        Differences of times up to `now` [s], times `rate`. An example is the attained service of a job [GPU s].
    rate
        Largest growth of the amount per second. For an attained service it is the number of GPUs.
    """
    return amount >= limit - max(rate * slack(now), slack(limit))


def whole_number(quotient: float, error: float = 0.0) -> int:
    """Return the whole part of a quotient that may be slightly below a whole number by rounding.

    `error` is the possible error of the quotient, in addition to `ROUNDING`.

    >>> whole_number(0.3 / 0.1), whole_number(2.9)
    (3, 2)
    """
    return floor(quotient + ROUNDING * abs(quotient) + error)


def sort_key(value: float, now: float = 0.0) -> float:
    """Return a value to sort by, in which values that differ by rounding only are equal.

    The value has 32 significant bits. A tolerance would not do, because equality within a tolerance is not
    transitive. For a difference of times, give the time `now` [s]: the difference is as inexact as the times. Keys that
    are compared must have the same `now`.

    >>> sort_key(0.1 + 0.2) == sort_key(0.3), sort_key(7.0), sort_key(0.3) == sort_key(0.3 + 1e-9)
    (True, 7.0, False)
    >>> sort_key((1e6 + 0.1) - 1e6, now=1e6) == sort_key(0.1, now=1e6)
    True
    """
    if not value or abs(value) == inf:  # neither has an exponent
        return value
    _, exponent = frexp(max(abs(value), now))
    unit = ldexp(1.0, exponent - SIGNIFICANT_BITS)
    return round(value / unit) * unit


def sort_keys(values: NDArray[np.float64], now: float = 0.0) -> NDArray[np.float64]:
    """Return `sort_key` of each value of an array, in an array of its shape.

    >>> sort_keys(np.array([0.1 + 0.2, -0.0, np.inf, 7.0])) == np.array([sort_key(0.3), 0.0, np.inf, 7.0])
    array([ True,  True,  True,  True])
    """
    is_finite = np.isfinite(values)
    finite = np.where(is_finite, values, 0.0)
    _, exponents = np.frexp(np.maximum(np.abs(finite), now))
    units = np.ldexp(1.0, exponents - SIGNIFICANT_BITS)
    keys: NDArray[np.float64] = np.where(is_finite, np.round(finite / units) * units, values)
    return keys


def first_round(time: float, interval: float) -> int:
    """Return the number of the first round at or after a time [s]. Round n is at n times the interval [s], n ≥ 1.

    >>> first_round(0.0, 60.0), first_round(60.0, 60.0), first_round(60.1, 60.0), first_round(52 * 0.71, 0.71)
    (1, 1, 2, 52)
    >>> first_round(660.0000000000001, 60.0), first_round(0.1 + 0.2, 0.1)
    (11, 3)
    """
    earliest = time - _slack_of_round(time, interval)
    number = max(ceil(earliest / interval), 1)
    # The products below would not be exact, so that the loop might not end.
    if number > EXACT_ROUNDS:
        return number
    # Rounding can move the quotient to or across a whole number.
    while number > 1 and (number - 1) * interval >= earliest:
        number -= 1
    return number if number * interval >= earliest else number + 1


def last_round(time: float, interval: float) -> int:
    """Return the number of the last round at or before a time, 0 before the first round [s].

    >>> last_round(59.0, 60.0), last_round(659.9999999999999, 60.0), last_round(3 * 0.1, 0.1)
    (0, 11, 3)
    """
    number = first_round(time, interval)
    # It is the round of this instant, or the one after it.
    is_at_round = number * interval <= time + _slack_of_round(time, interval)
    return number if is_at_round else number - 1


def on_rounds(time: float, interval: float) -> float:
    """Return the time of the round that is the same instant as a time, or the time itself [s].

    >>> on_rounds(660.0000000000001, 60.0), on_rounds(660.1, 60.0), on_rounds(3 * 0.7, 0.7) == 3 * 0.7
    (660.0, 660.1, True)
    """
    if not interval <= 2 * time < EXACT_ROUNDS * interval:  # before the first round, or without exact numbers of rounds
        return time
    at_round = round(time / interval) * interval
    return at_round if abs(at_round - time) <= _slack_of_round(time, interval) else time


def _slack_of_round(time: float, interval: float) -> float:
    """Return by how much a time may differ from the round that is the same instant [s]."""
    return min(ROUNDING * time, LARGEST_SHARE * interval)
