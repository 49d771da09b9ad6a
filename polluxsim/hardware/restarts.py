"""Restart delays: time without training after each change of a job's GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from typing import Any

from polluxsim.common.errors import invalid_setting

LONGEST_DELAY = 1e6
"""Longest restart delay, eleven days [s]."""


ROUND_INTERVAL = 60.0
"""Time between two scheduling rounds by default [s]."""

RESTART_DELAY = 30.0
"""Time without training after each change of a job's GPUs by default [s]."""


@dataclass(frozen=True)
class RestartDelays:
    """The restart delay of every application on every GPU type [s].

    `known` has the delays of applications: one number, or a mapping of GPU types to numbers. `otherwise` is the delay
    of all other applications.
    """

    otherwise: float
    known: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("restart_delay", self.otherwise)
        if not isinstance(self.known, Mapping):
            raise invalid_setting("engine.restart_delays", self.known, "delays by application")
        for application, delay in self.known.items():
            by_type = delay if isinstance(delay, Mapping) else {"": delay}
            for gpu_type, value in by_type.items():
                _check(".".join(filter(None, ("restart_delays", application, gpu_type))), value)

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
        return max(delay.values(), default=self.otherwise) if gpu_type is None else delay.get(gpu_type, self.otherwise)

    @property
    def all(self) -> tuple[float, ...]:
        """Return all delays, possibly several times [s]."""
        known = (delay.values() if isinstance(delay, Mapping) else (delay,) for delay in self.known.values())
        return self.otherwise, *chain.from_iterable(known)


def _check(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and isfinite(value) and 0 <= value <= LONGEST_DELAY):
        raise invalid_setting(f"engine.{name}", value, f"a number from 0 to {LONGEST_DELAY:g}")
