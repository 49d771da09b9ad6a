"""Restart delays: time without training after each change of a job's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polluxsim.common.errors import check_range, invalid_setting

LONGEST_DELAY = 1e6  # longest restart delay, eleven days [s]
ROUND_INTERVAL = 60.0  # time between two scheduling rounds by default [s]
RESTART_DELAY = 30.0  # time without training after each change of a job's GPUs by default [s]


@dataclass(frozen=True)
class RestartDelays:
    """The restart delay of every application on every GPU type [s].

    Raise InvalidConfigError if a delay is invalid.
    """

    otherwise: float  # delay of other applications [s]
    # Delays of applications [s]: one number, or a mapping of GPU types to numbers.
    known: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_range("engine.restart_delay", self.otherwise, least=0, most=LONGEST_DELAY)
        if not isinstance(self.known, Mapping):
            raise invalid_setting("engine.restart_delays", self.known, "delays by application")
        for application, delay in self.known.items():
            by_type = delay if isinstance(delay, Mapping) else {"": delay}
            for gpu_type, value in by_type.items():
                name = f"engine.restart_delays.{application}"
                if gpu_type:
                    name += f".{gpu_type}"
                check_range(name, value, least=0, most=LONGEST_DELAY)

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
            return max(delay.values(), default=self.otherwise)
        return delay.get(gpu_type, self.otherwise)

    @property
    def all(self) -> tuple[float, ...]:
        """Return all delays, possibly several times [s]."""
        delays = [self.otherwise]
        for delay in self.known.values():
            delays += delay.values() if isinstance(delay, Mapping) else [delay]
        return tuple(delays)
