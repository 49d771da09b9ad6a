"""Phrases with counts, shares and lists of names."""

from __future__ import annotations

from collections.abc import Sequence


def number_of(count: float, thing: str) -> str:
    """Return a count with its noun.

    >>> number_of(1, "GPU"), number_of(12.0, "job")
    ('1 GPU', '12 jobs')
    """
    return f"{count:g} {thing}{'' if count == 1 else 's'}"


def count_range(counts: Sequence[int]) -> str:
    """Return the smallest and the largest of some counts.

    >>> count_range([6, 2]), count_range([1200, 1200])
    ('2 to 6', '1,200')
    """
    low = min(counts)
    high = max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def percent(share: float) -> str:
    """Return a share in whole per cent.

    >>> percent(0.964)
    '96 %'
    """
    return f"{100 * share:.0f} %"


def listed(names: Sequence[str]) -> str:
    """Return one or more names as a phrase, like "A, B and C"."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
