"""θ_sys of an application as earlier jobs would have taught it: fitted to its step times on packed placements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.models.fitting import fit_throughput
from polluxsim.models.profile import ProfileRangeError
from polluxsim.types import packed

if TYPE_CHECKING:
    from polluxsim.models.profile import Profile
    from polluxsim.models.throughput import ThroughputParams

MOST_GPUS = 64
"""No measured job had more GPUs."""


def known_throughput(profile: Profile, gpus_per_node: int) -> ThroughputParams:
    """Fit θ_sys, as an agent fits, to what earlier jobs of the application, packed on nodes, would have shown.

    Their atomic batch sizes double from the smallest to the largest, and their GPU counts from 1 to what a job may
    have; what the profile says nothing about is left out.
    """
    application = profile.application
    most = min(application.most_replicas(application.max_batch_size), MOST_GPUS)
    observed = []
    for gpus in _doubling(1, most):
        placement = packed(gpus, gpus_per_node)
        for atomic in _doubling(application.min_atomic_batch_size, application.max_atomic_batch_size):
            try:
                step = profile.step_time(placement, atomic)
            except ProfileRangeError:
                continue
            observed.append((len(placement), gpus, atomic, step.step_time - step.sync_time, step.step_time))
    return fit_throughput(*zip(*observed, strict=True))


def _doubling(first: int, last: int) -> list[int]:
    """Return first, 2·first, 4·first, …, and the last.

    >>> _doubling(3, 20)
    [3, 6, 12, 20]
    """
    values = [first]
    while values[-1] * 2 < last:
        values.append(values[-1] * 2)
    return [*values, last] if values[-1] < last else values
