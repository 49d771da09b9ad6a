"""Moré and Thuente's line search, asked one step at a time, for the compiled minimiser of the throughput fit.

The names are those of the paper: x is the best step so far, y the other end of the interval that contains a minimum,
and t the trial step. The value of the function at x is fx, and its slope there gx; likewise for y and t.

Source: J. J. Moré and D. J. Thuente, "Line search algorithms with guaranteed sufficient decrease", ACM TOMS 20
(1994), with the constants that L-BFGS-B uses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polluxsim.common.kernels import helper

SUFFICIENT_DECREASE = 1e-3  # decrease of the function relative to that of its tangent at the start, µ of the paper
CURVATURE = 0.9  # slope at the end relative to the slope at the start, η of the paper
INTERVAL_TOLERANCE = 0.1  # width of the interval, relative to its upper end, at which the search ends
SHRINKAGE = 0.66  # largest width of the interval relative to that before two steps, and of a step in it
LEAST_EXTRAPOLATION = 1.1  # limits of the next step, relative to the last one, while no interval is known
MOST_EXTRAPOLATION = 4.0


class Bracket(NamedTuple):
    """State of the search. Steps are multiples of the direction, and slopes are derivatives along the direction."""

    best: float  # best step
    best_value: float
    best_slope: float
    other: float  # step at the other end of the interval that contains a minimum
    other_value: float
    other_slope: float
    bracketed: bool  # whether this interval is known
    first_stage: bool  # whether no step has had a sufficient decrease and at least the test slope
    low: float  # limits of the next step
    high: float
    width: float  # of the last interval
    older_width: float  # of the interval before


@helper
def start(value: float, slope: float, step: float, longest: float) -> Bracket:
    """Return the bracket before the first trial step, with the value and the slope at step 0."""
    return Bracket(0.0, value, slope, 0.0, value, slope, False, True, 0.0, 5.0 * step, longest, 2.0 * longest)


@helper
def is_over(
    bracket: Bracket, step: float, value: float, slope: float, value0: float, slope0: float, longest: float
) -> bool:
    """Return whether the trial step is good enough, or the best one that rounding and bounds allow."""
    test_slope = SUFFICIENT_DECREASE * slope0
    has_decreased = value <= value0 + step * test_slope
    if has_decreased and abs(slope) <= -CURVATURE * slope0:
        return True
    if bracket.bracketed:
        # Rounding leaves no step inside the interval.
        if step <= bracket.low or step >= bracket.high:
            return True
        if bracket.high - bracket.low <= INTERVAL_TOLERANCE * bracket.high:
            return True
    # The function still falls at the longest step that the bounds allow.
    if step == longest and has_decreased and slope <= test_slope:
        return True
    return step == 0.0 and (not has_decreased or slope >= test_slope)


@helper
def advance(
    bracket: Bracket, step: float, value: float, slope: float, value0: float, slope0: float, longest: float
) -> tuple[Bracket, float]:
    """Return the bracket after a trial step, and the next trial step."""
    test_slope = SUFFICIENT_DECREASE * slope0
    test = value0 + step * test_slope
    first_stage = bracket.first_stage and not (value <= test and slope >= test_slope)
    b = bracket
    if first_stage and value <= b.best_value and value > test:
        # The first stage minimises psi of the paper: the function minus its sufficient decrease.
        x, fx, gx, y, fy, gy, trial, bracketed = _next_trial(
            b.best, b.best_value - b.best * test_slope, b.best_slope - test_slope,
            b.other, b.other_value - b.other * test_slope, b.other_slope - test_slope,
            step, value - step * test_slope, slope - test_slope, b.bracketed, b.low, b.high,
        )  # fmt: skip
        fx = fx + x * test_slope
        gx = gx + test_slope
        fy = fy + y * test_slope
        gy = gy + test_slope
    else:
        x, fx, gx, y, fy, gy, trial, bracketed = _next_trial(
            b.best, b.best_value, b.best_slope, b.other, b.other_value, b.other_slope,
            step, value, slope, b.bracketed, b.low, b.high,
        )  # fmt: skip
    width = b.width
    older_width = b.older_width
    if bracketed:
        # The interval shrinks too slowly, so that its middle is better.
        if abs(y - x) >= SHRINKAGE * older_width:
            trial = x + 0.5 * (y - x)
        older_width = width
        width = abs(y - x)
        low = min(x, y)
        high = max(x, y)
    else:
        low = trial + LEAST_EXTRAPOLATION * (trial - x)
        high = trial + MOST_EXTRAPOLATION * (trial - x)
    trial = min(max(trial, 0.0), longest)
    # No further progress is possible: the search ends with the best step.
    if bracketed and (trial <= low or trial >= high or high - low <= INTERVAL_TOLERANCE * high):
        trial = x
    return Bracket(x, fx, gx, y, fy, gy, bracketed, first_stage, low, high, width, older_width), trial


@helper
def _next_trial(x, fx, gx, y, fy, gy, t, ft, gt, bracketed, low, high):  # type: ignore[no-untyped-def]
    """Return the new (x, f(x), f'(x), y, f(y), f'(y), trial, bracketed): section 4 of the paper, cases 1 to 4.

    x is the best step so far, y the other end, t the trial just evaluated. The new trial of an unbounded case is `low`
    or `high`.
    """
    opposite = gt * np.sign(gx) < 0.0
    if ft > fx:  # case 1: a higher value, so a minimiser lies between
        cubic = _cubic(x, fx, gx, t, ft, gt)
        quadratic = x + gx / ((fx - ft) / (t - x) + gx) / 2.0 * (t - x)
        trial = cubic if abs(cubic - x) < abs(quadratic - x) else cubic + (quadratic - cubic) / 2.0
        bracketed = True
    elif opposite:  # case 2: lower, the slope changed its sign: a minimiser lies between
        cubic = _cubic(t, ft, gt, x, fx, gx)
        secant = t + gt / (gt - gx) * (x - t)
        trial = cubic if abs(cubic - t) > abs(secant - t) else secant
        bracketed = True
    elif abs(gt) < abs(gx):  # case 3: lower, and flatter in the same direction
        trial = _flatter(x, fx, gx, y, t, ft, gt, bracketed, low, high)
    elif bracketed:  # case 4: lower, and as steep: the cubic through the other end
        trial = _cubic(t, ft, gt, y, fy, gy)
    else:
        trial = high if t > x else low
    if ft > fx:
        y = t
        fy = ft
        gy = gt
    else:
        if opposite:
            y = x
            fy = fx
            gy = gx
        x = t
        fx = ft
        gx = gt
    return x, fx, gx, y, fy, gy, trial, bracketed


@helper
def _flatter(x, fx, gx, y, t, ft, gt, bracketed, low, high):  # type: ignore[no-untyped-def]
    """Return case 3's trial: the cubic's minimiser if it lies beyond t, else the secant's."""
    theta = 3.0 * (fx - ft) / (t - x) + gx + gt
    scale = max(abs(theta), abs(gx), abs(gt))
    gamma = scale * np.sqrt(max(0.0, (theta / scale) ** 2 - (gx / scale) * (gt / scale)))
    if t > x:
        gamma = -gamma
    ratio = (gamma - gt + theta) / (gamma + (gx - gt) + gamma)
    if ratio < 0.0 and gamma != 0.0:
        cubic = t + ratio * (x - t)
    elif t > x:
        cubic = high
    else:
        cubic = low
    secant = t + gt / (gt - gx) * (x - t)
    if not bracketed:
        trial = cubic if abs(cubic - t) > abs(secant - t) else secant
        return max(low, min(high, trial))
    trial = cubic if abs(cubic - t) < abs(secant - t) else secant
    # Not too near the other end, which is not as good.
    guard = t + SHRINKAGE * (y - t)
    return min(guard, trial) if t > x else max(guard, trial)


@helper
def _cubic(a, fa, ga, b, fb, gb):  # type: ignore[no-untyped-def]
    """Return the minimiser of the cubic with the values and slopes at a and b."""
    theta = 3.0 * (fa - fb) / (b - a) + ga + gb
    scale = max(abs(theta), abs(ga), abs(gb))
    gamma = scale * np.sqrt(max(0.0, (theta / scale) ** 2 - (ga / scale) * (gb / scale)))
    if b < a:
        gamma = -gamma
    ratio = (gamma - ga + theta) / (gamma - ga + gamma + gb)
    return a + ratio * (b - a)
