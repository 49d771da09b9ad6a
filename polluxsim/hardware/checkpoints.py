"""When jobs save what they have trained, and what that costs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, nan, sqrt

from polluxsim.common.durations import NODE_DAYS
from polluxsim.common.errors import InvalidConfigError

WORDS = ("epoch", "young-daly")
"""What `every` may be besides a time."""


@dataclass(frozen=True)
class Checkpoints:
    """How often a job that trains stops for a checkpoint, and for how long.

    When a policy moves a job, that saves its work too, at a cost that is in the restart delay.

    Parameters
    ----------
    every
        Training between two checkpoints [s]; or `epoch`, at the end of each; or `young-daly`, the interval
        √(2 · cost / rate) − cost by the rate of failures observed so far on a job's nodes.
    cost
        Time of a checkpoint [s].
    costs
        The same by application, where it is known [s].
    sizes
        What a checkpoint of an application writes, where its cost is not given [GB].
    bandwidth
        How fast it is written [GB/s].
    expected_rate
        For `young-daly`: failures per 1,000 node-days to begin with; it counts as much as one observed failure.
    """

    every: float | str
    cost: float = 30.0
    costs: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    bandwidth: float = 1.0
    expected_rate: float = 6.5

    def __post_init__(self) -> None:
        if not isinstance(self.every, str):
            _check_number("every", self.every, above=0)
        elif self.every not in WORDS:
            raise _wrong("every", self.every, f"a time > 0 [s], or {' or '.join(WORDS)}")
        _check_number("bandwidth", self.bandwidth, above=0)
        _check_number("expected_rate", self.expected_rate, above=0)
        for name in ("costs", "sizes"):
            values = getattr(self, name)
            if not isinstance(values, Mapping):
                raise _wrong(name, values, "numbers by application")
            object.__setattr__(self, name, dict(values))
            for application, value in values.items():
                _check_number(f"{name}.{application}", value)
        _check_number("cost", self.cost)
        self._check_costs()

    def _check_costs(self) -> None:
        """Check that checkpoints leave time to train."""
        named = [(f"costs.{name}", cost) for name, cost in self.costs.items()]
        named += [(f"sizes.{name}", self.cost_of(name)) for name in self.sizes.keys() - self.costs.keys()]
        for name, cost in [("cost", self.cost), *sorted(named)]:
            if not isinstance(self.every, str) and cost > self.every:
                raise _wrong(name, f"{cost:g} s", f"at most the interval between checkpoints, {self.every:g} s")
            if self.every == "young-daly" and not cost:
                raise _wrong(name, "0 s", "a time > 0 where every is young-daly")

    def without_effect(self, jobs: object, cluster: object) -> Iterator[str]:
        """Yield a sentence for each setting that changes nothing, whatever the jobs and the cluster are."""
        if self.every != "young-daly" and self.expected_rate != Checkpoints.expected_rate:
            yield f"engine.checkpoints.expected_rate has no effect: every is {self.every}, not young-daly"
        if not self.sizes and self.bandwidth != Checkpoints.bandwidth:
            yield "engine.checkpoints.bandwidth has no effect: no application has a size in engine.checkpoints.sizes"

    def cost_of(self, application: str) -> float:
        """Return the time of a checkpoint [s]."""
        if application in self.costs:
            return self.costs[application]
        size = self.sizes.get(application)
        return self.cost if size is None else size / self.bandwidth

    def interval(self, application: str, rate: float) -> float:
        """Return how long a job trains between two on GPUs that fail at a rate [1/s]; ∞ if they are at epochs [s]."""
        if self.every == "epoch":
            return inf
        return young_daly(self.cost_of(application), rate) if isinstance(self.every, str) else self.every


def failure_rate(num_failures: int, num_nodes: int, now: float, expected: float) -> float:
    """Return the failures of a node a second, of those seen by now [s] and one at the rate expected.

    `expected` is in failures per 1,000 node-days.
    """
    return (num_failures + 1) / (num_nodes * now + NODE_DAYS / expected)


def young_daly(cost: float, rate: float) -> float:
    """Return the interval between checkpoints of which least time is lost, to first order [s; 1/s].

    Source: Young (1974); Daly (2006), eq. 11. Where failures come about as often as checkpoints end, it is the cost.

    >>> round(young_daly(30.0, 1 / 86400))
    2247
    """
    return max(sqrt(2 * cost / rate) - cost, cost)


def _check_number(name: str, value: object, above: float | None = None) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else nan
    if not (isfinite(number) and (number >= 0 if above is None else number > above)):
        raise _wrong(name, value, "a finite number ≥ 0" if above is None else f"a finite number > {above:g}")


def _wrong(name: str, value: object, allowed: str) -> InvalidConfigError:
    return InvalidConfigError(f"engine.checkpoints.{name} is {value}, allowed is {allowed}")
