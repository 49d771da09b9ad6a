"""The law of scaled times: multiplying all times of a world by a factor multiplies all times of the run by it.

Rounding differs with the factor, so that a comparison of computed times without a tolerance decides otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import isclose

from polluxsim.checks.worlds import World
from polluxsim.common.instants import sort_key
from polluxsim.policies.contract.policy import Policy, as_policy, traits_of
from polluxsim.records.results import AllocationRecord, Result

CLOCKS = (3.0, 0.1, 1 / 7)
"""Factors on all times. Factors of two would change no digit."""

TOLERANCE = 1e-9  # share by which times may differ, for rounding

JOB_TIMES = ("start_time", "end_time", "completion_time", "run_time", "restart_time", "checkpoint_time", "lost_time")
JOB_FACTS = ("job", "status", "num_restarts", "num_failures")


def scales_with_time(world: World, policy: Policy) -> bool:
    """Return whether the law applies to a policy in a world.

    It applies if all times that the policy uses are parameters of known names, which the policy states by
    `scales_with_time`. It does not apply if agents learn, because the fit of the step time has bounds in seconds.
    """
    traits = traits_of(policy)
    agents_learn = traits.adaptive or traits.known_throughput or traits.maximises_throughput or world.agent is not None
    if agents_learn:
        return False
    return as_policy(policy).scales_with_time


def difference_on_clock(once: Result, scaled: Result, clock: float) -> str | None:
    """Return the first difference of a run from a run whose times are multiplied by `clock`, apart from the factor."""
    for before, after in _pairs(once.allocation_records, scaled.allocation_records):
        if before is None or after is None or _placed(before) != _placed(after) or not _is_scaled(before, after, clock):
            return f"the allocation is {_told(after)} instead of {_told(before)}"
    for job, other in zip(once.job_records, scaled.job_records, strict=True):
        for name in JOB_FACTS:
            if getattr(job, name) != getattr(other, name):
                return f"job {job.job!r} has {name} {getattr(other, name)} instead of {getattr(job, name)}"
        for name in JOB_TIMES:
            time = getattr(job, name)
            after_time = getattr(other, name)
            if not _is_equal(time, after_time, clock, once.end_time):
                return f"job {job.job!r} has {name} {after_time} s instead of {time} s times the factor"
    if not _is_equal(once.end_time, scaled.end_time, clock, once.end_time):
        return f"the run ends at {scaled.end_time:g} s instead of {once.end_time:g} s times the factor"
    return None


def _pairs(
    once: Sequence[AllocationRecord], scaled: Sequence[AllocationRecord]
) -> Iterator[tuple[AllocationRecord | None, AllocationRecord | None]]:
    """Yield the records of both runs side by side, and None beyond the end of the shorter one.

    Records of one instant are in order of the jobs, because rounding may change the order of completions.
    """
    # Not strict: a run with fewer records differs too, and its first missing record is the difference.
    return zip_longest(sorted(once, key=_place), sorted(scaled, key=_place))


def _place(record: AllocationRecord) -> tuple[float, str, tuple[int, ...]]:
    """Return the place of a record in an order that rounding does not change."""
    return sort_key(record.time), record.job, record.nodes


def _placed(record: AllocationRecord) -> tuple[object, ...]:
    """Return what two records must have in common, apart from their times."""
    return record.job, record.nodes, record.gpus, record.batch_size


def _told(record: AllocationRecord | None) -> str:
    """Return a record as text."""
    if record is None:
        return "missing"
    return f"{record.gpus} GPUs of nodes {record.nodes} for job {record.job!r} at {record.time:g} s"


def _is_scaled(before: AllocationRecord, after: AllocationRecord, clock: float) -> bool:
    """Return whether the time of a record is the time of the other one multiplied by the factor, up to rounding."""
    return _is_equal(before.time, after.time, clock, before.time)


def _is_equal(time: float | None, after: float | None, clock: float, largest: float) -> bool:
    """Return whether a time is the other time multiplied by the factor, up to rounding of the `largest` time [s]."""
    if time is None or after is None:
        return time is after
    return isclose(time * clock, after, rel_tol=TOLERANCE, abs_tol=TOLERANCE * largest * clock)
