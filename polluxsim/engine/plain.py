"""What policies answer, as Python's own numbers."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidAllocationError, PolluxSimError, short

if TYPE_CHECKING:
    from polluxsim.types import JobId


def plain_pairs(job_id: JobId, pairs: object, what: str) -> tuple[tuple[int, int], ...]:
    """Return what a job is given as pairs of whole numbers.

    Raises
    ------
    InvalidAllocationError
        If it is anything else.
    """
    try:
        plain = [(whole(node), whole(gpus)) for node, gpus in pairs]  # type: ignore[attr-defined]
    except PolluxSimError:
        raise
    except (TypeError, ValueError):
        plain = [(None, None)]
    if any(number is None for pair in plain for number in pair):
        raise InvalidAllocationError(f"gave job {job_id!r} {short(pairs)}, allowed are pairs {what} of whole numbers")
    return tuple(plain)  # type: ignore[arg-type]


def whole(number: object) -> int | None:
    """Return a whole number of any library as Python's; None for 1.5 and True."""
    if type(number) is int:
        return number
    if isinstance(number, bool) or type(number).__name__ in ("bool", "bool_"):
        return None
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        return None
