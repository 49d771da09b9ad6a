"""Plain values of a policy's decision, and the errors about values that are wrong."""

from __future__ import annotations

from numbers import Real
from operator import index

from polluxsim.common.errors import InvalidAllocationError, OverAllocationError, short


def real_number(value: object) -> float | None:
    """Return a real number of any library as a float; None for another value, True or a number that is too large."""
    # The usual case first, because a test against an abstract class is slow.
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def whole_number_of(number: object) -> int | None:
    """Return an integer of any library as an int; None for another value, also 1.0 and True."""
    if type(number) is int:
        return number
    # NumPy's truth values are no subclass of `bool`, and some versions of NumPy let them be an index.
    if isinstance(number, bool) or type(number).__name__ in ("bool", "bool_"):
        return None
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        return None


def not_active(what: str, job_id: object) -> InvalidAllocationError:
    """Return the error about a value that is not the name of an active job."""
    if isinstance(job_id, str):
        return InvalidAllocationError(f"{what} job {short(job_id)}, which is not active")
    name = getattr(job_id, "job_id", None)
    if isinstance(name, str):
        return InvalidAllocationError(f"{what} the view of job {name!r}, must name the job: use job.job_id")
    return InvalidAllocationError(f"{what} job {short(job_id)}, which is not active; name a job by job.job_id")


def over_allocated(node: int, given: str, size: str, when: str = "") -> OverAllocationError:
    """Return the error about a node that has less than the jobs on it would hold."""
    return OverAllocationError(f"over-allocated node {node}: {when}jobs would hold {given}, the node has {size}")
