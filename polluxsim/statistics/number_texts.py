"""Numbers, changes and intervals as texts. All outputs use this notation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import floor, log10

LEAST_FACTOR = 10.0  # values of at least this many times the baseline are written as a factor
LARGEST_CHANGE = 99.99  # larger changes, as a share of the baseline, are not written in full


def change_text(change: float, low: float | None = None, high: float | None = None) -> str:
    """Return a change relative to the baseline as text, with its interval if it has one.

    The change is in per cent, or a factor if the value is at least ten times the baseline. All outputs use this
    notation.

    >>> change_text(-0.414, -0.729, 0.012), change_text(0.0), change_text(24.48)
    ('−41.4 % [−72.9, +1.2]', '±0.0 %', '×25')
    """
    # The ends of the interval have the notation of the change, so that they can be compared.
    if change >= LEAST_FACTOR - 1:
        return with_interval(change, low, high, partial(_factor, is_cut=change > LARGEST_CHANGE))
    digits = 1 if abs(change) < 1 else 0
    return with_interval(change, low, high, lambda end: _per_cent(end, digits), " %")


def with_interval(
    value: float, low: float | None, high: float | None, write: Callable[[float], str], unit: str = ""
) -> str:
    """Return a value as text, with the ends of its interval in brackets if it has one.

    >>> with_interval(2.0, 1.5, 2.25, "{:g}".format, " h")
    '2 h [1.5, 2.25]'
    """
    text = f"{write(value)}{unit}"
    if low is not None and high is not None:
        text += f" [{write(low)}, {write(high)}]"
    return text


def _factor(change: float, *, is_cut: bool) -> str:
    """Return a change as a factor of the baseline. With `is_cut`, a very large factor is cut off."""
    if is_cut and change > LARGEST_CHANGE:
        return f">×{1 + LARGEST_CHANGE:.0f}"
    if change >= LEAST_FACTOR - 1:
        return f"×{1 + change:,.0f}"
    return f"×{1 + change:.1f}"


def _per_cent(share: float, digits: int) -> str:
    """Return a share in per cent with its sign. A very large share is cut off.

    >>> _per_cent(-0.25, 1), _per_cent(-1e-9, 1), _per_cent(250.0, 0)
    ('−25.0', '±0.0', '>+9,999')
    """
    if share > LARGEST_CHANGE:
        return f">+{100 * LARGEST_CHANGE:,.0f}"
    # Without the rounding before, a tiny change would be -0.0.
    rounded = round(100 * share, digits)
    if not rounded:
        return f"±{0:.{digits}f}"
    return f"{rounded:+,.{digits}f}".replace("-", "−")


def share_text(share: float) -> str:
    """Return a share in per cent."""
    return f"{100 * share:.1f} %"


def time_text(time: float, size: float) -> str:
    """Return a time in a unit of a size [s]."""
    return number_text(time / size)


def number_text(value: float) -> str:
    """Return a whole number with all digits, another number with four significant digits, with commas for thousands.

    All digits before the point stay, and a number below 0.001 has an exponent.

    >>> number_text(71100), number_text(942.26), number_text(0.71812), number_text(20.5), number_text(2e-5)
    ('71,100', '942.3', '0.7181', '20.50', '2e-05')
    """
    if 0 < abs(value) < 1e-3:
        return f"{value:.4g}"  # an exponent, because four digits after the point would show less of the number
    digits = 0
    if value and not isinstance(value, int):
        digits = min(max(3 - floor(log10(abs(value))), 0), 4)
    return f"{value:,.{digits}f}"
