"""The rules of a simulation that are neither cluster, workload nor policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from polluxsim.checkpoints import Checkpoints
from polluxsim.engine.failures import JobFailures
from polluxsim.engine.interference import Interference
from polluxsim.engine.time_rules import ExactTime, TimeRule, WholeSeconds
from polluxsim.errors import InvalidConfigError, check_choice, check_number
from polluxsim.restarts import RestartDelays
from polluxsim.types import MOST_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polluxsim.engine.sharing import Sharing

SHORTEST_INTERVAL = 1e-9
"""Rounds can be told apart up to 2^52 intervals: with a shorter one, for less than 52 days [s]."""

REASONS = ("changes", "rounds", "none")
"""Whose reasons may be recorded."""


@dataclass(frozen=True)
class EngineSettings:
    """How time passes and what changes cost.

    Parameters
    ----------
    round_interval
        Time between scheduling rounds, which are at its multiples, from 1e-9 to 1e11 [s].
    restart_delay
        Time a job loses when its placement changes, its first start included [s].
    restart_delays
        The same of applications of which more is known: one for all GPU types, or one for each by name [s].
    interference
        Share of its speed that a multi-node job loses while it shares a node with another one, in [0, 1).
    whole_seconds
        Whether epochs end at whole seconds, as in the artifact of Pollux (OSDI '21), instead of exactly.
    reasons
        Whose reasons are recorded: of `changes` (of every change and every wait, and now and then while all stays as
        it is), of `rounds` (of every job at every round in which the policy is asked), or `none`.
    horizon
        When the run ends at the latest [s]; unfinished jobs are then cut off. None runs until all are complete.
    checkpoints
        When jobs save what they have trained; None is never, but for when a policy moves them.
    job_failures
        How often jobs fail by themselves; None is never.
    ask_at_failures
        Whether the policy is asked at once when a failure takes a job's GPUs, and not only at the next round.
    free_moves
        Whether only jobs that held no GPUs pay the restart delay, and others change theirs at no cost.
    sharing
        Which jobs can be on the same GPUs, and how fast each then is; None is whole GPUs for everybody.
    """

    round_interval: float = 60.0
    restart_delay: float = 30.0
    restart_delays: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    interference: float = 0.0
    whole_seconds: bool = False
    horizon: float | None = None
    reasons: str = "changes"
    checkpoints: Checkpoints | None = None
    job_failures: JobFailures | None = None
    free_moves: bool = False
    ask_at_failures: bool = False
    sharing: Sharing | None = None

    def __post_init__(self) -> None:
        check_number(
            "engine.round_interval",
            self.round_interval,
            SHORTEST_INTERVAL <= self.round_interval <= MOST_SECONDS,
            f"a number from {SHORTEST_INTERVAL:g} to {MOST_SECONDS:g}",
        )
        delays = self.delays.all
        check_number("engine.interference", self.interference, 0 <= self.interference < 1, "a number in [0, 1)")
        if self.horizon is not None:
            check_number("engine.horizon", self.horizon, self.horizon > 0, "a finite number > 0, or null")
        check_choice("engine.reasons", self.reasons, REASONS)
        for name, kind in (("checkpoints", Checkpoints), ("job_failures", JobFailures)):
            if not isinstance(value := getattr(self, name), kind | None):
                raise InvalidConfigError(f"engine.{name} is {value!r}, allowed are {kind.__name__}, or null")
        if self.sharing is not None and self.interference:
            raise InvalidConfigError(f"engine.interference is {self.interference:g}, allowed is 0 with engine.sharing")
        if self.whole_seconds:
            if self.ask_at_failures:
                raise InvalidConfigError("engine.ask_at_failures is set, allowed is false where whole_seconds is set")
            for name, value in [("round_interval", self.round_interval), *(("restart_delay", time) for time in delays)]:
                allowed = "whole seconds where whole_seconds is set"
                check_number(f"engine.{name}", value, float(value).is_integer(), allowed)

    @cached_property
    def delays(self) -> RestartDelays:
        """Return what a start costs by application and GPU type."""
        return RestartDelays(self.restart_delay, self.restart_delays)

    @property
    def named_applications(self) -> Mapping[str, Iterable[str]]:
        """Return the applications of which something is set, by setting."""
        named: dict[str, Iterable[str]] = {"restart_delays": self.restart_delays}
        if self.checkpoints is not None:
            named |= {"checkpoints.costs": self.checkpoints.costs, "checkpoints.sizes": self.checkpoints.sizes}
        return {setting: names for setting, names in named.items() if names}

    @property
    def disturbance(self) -> Sharing | None:
        """Return what slows jobs down that share GPUs or nodes, None if nothing does."""
        return Interference(self.interference) if self.interference else self.sharing

    @property
    def time_rule(self) -> TimeRule:
        """Return the rule that turns progress into time."""
        return WholeSeconds(self.round_interval) if self.whole_seconds else ExactTime()
