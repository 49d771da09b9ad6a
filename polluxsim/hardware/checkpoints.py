"""Checkpoints: the times at which jobs save their work, and the cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Annotated

from polluxsim.common.durations import NODE_DAYS
from polluxsim.common.errors import InvalidConfigError, invalid_setting
from polluxsim.common.values import NonNegativeFloat, PositiveFloat, Range
from polluxsim.common.written import Name, Seconds, takes_settings

WORDS = ("epoch", "young-daly")  # values of `every` that are not times


@takes_settings("engine.checkpoints")
@dataclass(frozen=True)
class Checkpoints:
    """Intervals between checkpoints of a training job, and the time of a checkpoint.

    A job that a policy moves also saves its work; this cost is part of the restart delay.

    Raise InvalidConfigError if a value is invalid, or checkpoints leave no time to train.
    """

    # Training between two checkpoints [s]; or `epoch`, for a checkpoint at the end of each epoch; or `young-daly`, the
    # interval √(2 · cost / rate) − cost with the failure rate observed so far on a job's nodes.
    every: Annotated[Seconds, Range(above=0)] | str
    cost: Annotated[Seconds, Range(least=0)] = 30.0  # time of a checkpoint [s]
    # Time of a checkpoint by application [s].
    costs: Mapping[Name, Annotated[Seconds, Range(least=0)]] = field(default_factory=dict)
    # Size of a checkpoint by application, for applications without a cost [GB].
    sizes: Mapping[Name, NonNegativeFloat] = field(default_factory=dict)
    bandwidth: PositiveFloat = 1.0  # speed of writing a checkpoint [GB/s]
    # For `young-daly`: initial failures per 1,000 node-days. They count as much as one observed failure.
    expected_rate: PositiveFloat = 6.5

    def __post_init__(self) -> None:
        at = "engine.checkpoints"
        if isinstance(self.every, str) and self.every not in WORDS:
            raise invalid_setting(
                f"{at}.every", self.every, f"a time > 0 [s], a duration like 30min, or {' or '.join(WORDS)}"
            )
        for name in ("costs", "sizes"):
            values = getattr(self, name)
            if not isinstance(values, Mapping):
                raise invalid_setting(f"{at}.{name}", values, "numbers by application")
            # By `__setattr__`, because the class is frozen. A copy, because the mapping of the caller may change.
            object.__setattr__(self, name, dict(values))
        self._check_costs()

    def _check_costs(self) -> None:
        """Raise InvalidConfigError if checkpoints leave no time to train."""
        costs = [(f"costs.{name}", cost) for name, cost in self.costs.items()]
        costs += [(f"sizes.{name}", self.cost_of(name)) for name in self.sizes.keys() - self.costs.keys()]
        for name, cost in [("cost", self.cost), *sorted(costs)]:
            problem = f"engine.checkpoints.{name} gives a checkpoint of {cost:g} s"
            if not isinstance(self.every, str) and cost > self.every:
                raise InvalidConfigError(
                    f"{problem}, must be at most the interval between checkpoints, {self.every:g} s"
                )
            # The best interval of free checkpoints is 0, which would leave the engine no time to go on.
            if self.every == "young-daly" and not cost:
                raise InvalidConfigError(f"{problem}, must be > 0 s, because every is young-daly")

    def without_effect(self, jobs: object, cluster: object) -> Iterator[str]:
        """Yield a sentence for each setting that has no effect, whatever the jobs and the cluster."""
        if self.every != "young-daly" and self.expected_rate != Checkpoints.expected_rate:
            yield f"engine.checkpoints.expected_rate has no effect: every is {self.every}, not young-daly"
        if not self.sizes and self.bandwidth != Checkpoints.bandwidth:
            yield "engine.checkpoints.bandwidth has no effect: no application has a size in engine.checkpoints.sizes"

    def cost_of(self, application: str) -> float:
        """Return the time of a checkpoint of an application [s]: its own cost, by its size, or the common cost."""
        if application in self.costs:
            return self.costs[application]
        size = self.sizes.get(application)
        if size is not None:
            return size / self.bandwidth
        return self.cost

    def interval(self, application: str, rate: float) -> float:
        """Return the training time between two checkpoints at a failure rate [1/s]; ∞ for checkpoints at epochs [s]."""
        if self.every == "epoch":
            return inf
        if isinstance(self.every, str):
            return young_daly(self.cost_of(application), rate)
        return self.every


def failure_rate(num_failures: int, num_nodes: int, passed: float, expected: float) -> float:
    """Return the failures/s of a node, from the failures since the start of the run and one at the expected rate.

    `passed` is the time since the start of the run, its first submission [s].
    `expected` is in failures per 1,000 node-days.
    """
    return (num_failures + 1) / (num_nodes * passed + NODE_DAYS / expected)


def young_daly(cost: float, rate: float) -> float:
    """Return the interval between checkpoints with the least lost time, to first order [s].

    The interval is at least the cost [s], also at a very high failure rate [1/s]. Source: Young (1974); Daly (2006),
    eq. 11.

    >>> round(young_daly(30.0, 1 / 86400))
    2247
    """
    return max(sqrt(2 * cost / rate) - cost, cost)
