"""Restart delays: time without training after each change of a job's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polluxsim.common.values import Range

LONGEST_DELAY = 1e6  # longest restart delay, eleven days [s]
DELAY = Range(least=0, most=LONGEST_DELAY)  # what a restart delay must be [s]
ROUND_INTERVAL = 60.0  # time between two scheduling rounds by default [s]
RESTART_DELAY = 30.0  # time without training after each change of a job's GPUs by default [s]


@dataclass(frozen=True)
class RestartDelays:
    """The restart delay of every application on every GPU type [s]."""

    otherwise: float  # delay of other applications [s]
    # Delays of applications [s]: one number, or a mapping of GPU types to numbers.
    known: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)

    def of(self, application: str, gpu_type: str | None) -> float:
        """Return the restart delay on a GPU type [s]; the largest delay of all types if the type is unknown.

        >>> delays = RestartDelays(30.0, {"bert": 120.0, "imagenet": {"t4": 250.0, "a100-40": 180.0}})
        >>> delays.of("bert", "t4"), delays.of("imagenet", "a100-40"), delays.of("imagenet", "v100")
        (120.0, 180.0, 30.0)
        >>> delays.of("imagenet", None), delays.of("ncf", None)
        (250.0, 30.0)
        """
        delay = self.known.get(application, self.otherwise)
        if not isinstance(delay, Mapping):
            return delay
        if gpu_type is None:
            # A job that plans with too long a delay is early, with too short a delay it is late.
            return max(delay.values(), default=self.otherwise)
        return delay.get(gpu_type, self.otherwise)

    @property
    def all(self) -> tuple[float, ...]:
        """Return all delays, possibly several times [s]."""
        delays = [self.otherwise]
        for delay in self.known.values():
            delays += delay.values() if isinstance(delay, Mapping) else [delay]
        return tuple(delays)
