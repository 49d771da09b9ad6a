"""An application's speed by the throughput model that Pollux's agents fit, for comparison with the truth."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from polluxsim.look.fitted_speed import POINTS, batch_sizes
from polluxsim.models.fitting import fit_throughput
from polluxsim.models.profile import ProfileRangeError, StepTime
from polluxsim.models.throughput import grad_time, step_time
from polluxsim.types import packed

if TYPE_CHECKING:
    from polluxsim.look.fitted_speed import Speed
    from polluxsim.models.profile import Application
    from polluxsim.models.throughput import ThroughputParams


@dataclass(frozen=True)
class AgentModel:
    """The speed of an application as an agent's fitted throughput model has it."""

    application: Application
    params: ThroughputParams

    def step_time(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> StepTime:
        """Return the modelled time of a pass that synchronises."""
        step = step_time(self.params, len(gpus_by_node), sum(gpus_by_node), atomic_batch_size, 0)
        return StepTime(step, step - grad_time(self.params, atomic_batch_size))


def agent_model(profile: Speed) -> AgentModel:
    """Fit θ_sys to a profile's packed placements, as an agent would that had seen all of them."""
    limits = profile.application
    seen = []
    for count, size in product(POINTS, batch_sizes(limits.min_atomic_batch_size, limits.max_atomic_batch_size)):
        with suppress(ProfileRangeError):
            time = profile.step_time(placement := packed(count), size)
            seen.append((len(placement), count, size, time.step_time - time.sync_time, time.step_time))
    return AgentModel(limits, fit_throughput(*zip(*seen, strict=True)))
