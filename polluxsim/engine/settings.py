"""Settings of the engine: rounds, delays, checkpoints, failures of jobs and sharing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from polluxsim.common.errors import InvalidConfigError, invalid_setting
from polluxsim.common.values import OneOf, Range
from polluxsim.common.written import Name, Seconds, takes_settings
from polluxsim.engine.clock import ExactTime, TimeRule, WholeSeconds
from polluxsim.engine.failures import JobFailures
from polluxsim.engine.sharing import Interference, Sharing
from polluxsim.hardware.checkpoints import Checkpoints
from polluxsim.hardware.placements import MOST_SECONDS
from polluxsim.hardware.restarts import DELAY, RESTART_DELAY, ROUND_INTERVAL, RestartDelays
from polluxsim.policies.contract.use_limits import UseLimit, use_limits

SHORTEST_INTERVAL = 1e-9
"""Shortest interval between rounds [s]. A float can count 2^52 of these intervals, which are 52 days."""

DECISION_LIMIT = 60.0  # default of `decision_limit` [s]

PLACEMENTS = ("consolidated", "anywhere")  # values of the setting `placement`

REASONS = ("changes", "rounds", "none")  # values of the setting `reasons`


@takes_settings("engine")
@dataclass(frozen=True)
class EngineSettings:
    """Settings of the engine: the length of a round, the costs of changes, and the rules of time.

    Parameters
    ----------
    round_interval
        Time between two scheduling rounds, from 1e-9 to 1e11 [s]. Rounds are at its multiples.
    restart_delay
        Time without training after each change of a job's GPUs, including its first start unless `free_starts` [s].
    restart_delays
        Restart delays by application [s]: one number, or a mapping of GPU types to numbers.
    interference
        Share of their speed that two jobs on several nodes lose while they share a node, in [0, 1).
    whole_seconds
        Whether epochs end at whole seconds, as in the artifact of Pollux (OSDI '21).
    reasons
        Which reasons are recorded: `changes` (every change and wait, and samples between changes), `rounds` (every job
        at every round with a decision) or `none`.
    horizon
        Latest end of the run, on the clock of the submissions [s]. Unfinished jobs are cut off. With None, the run ends
        when all jobs have ended.
    checkpoints
        When jobs save their work. With None, jobs save their work only when the policy moves them.
    job_failures
        Failures of jobs, or None.
    ask_at_failures
        Whether the policy decides at once after a failure that takes GPUs from a job, and not only at the next round.
    free_moves
        Whether jobs that hold GPUs change them without the restart delay.
    free_starts
        Whether the first start of a job has no restart delay. The durations in a log contain the first start.
    placement
        How whole jobs are placed. `consolidated`: a job gets the nodes that it requests (`Job.num_nodes`,
        `Job.gpus_per_task`). A job that requests only GPUs gets one node if it fits on the largest one, and otherwise
        whole nodes and one node for the rest. `anywhere`: its GPUs may be on any nodes, as in published simulators.
        Policies with the trait `keeps_shapes` obey it.
    limits
        Most GPUs, or running jobs, at once. `all` has limits for all jobs; `qos` and `queue` have limits for each of
        the named qualities of service or queues. These limits are `user_gpus` and `user_jobs` for each user, which
        Slurm calls MaxTRESPU and MaxJobsPU, and `gpus` and `jobs`, which it calls GrpTRES and GrpJobs. A job without a
        user has no limits by user. The policy must have the trait `obeys_limits`.
    sharing
        Which jobs can share GPUs, and their speeds. With None, jobs do not share GPUs.
    decision_limit
        Longest wall-clock time of a decision of the policy, after which the run ends with an error [s]. The compilation
        of kernels does not count. With None there is no limit. The limit changes no result.
    """

    round_interval: Annotated[Seconds, Range(least=SHORTEST_INTERVAL, most=MOST_SECONDS)] = ROUND_INTERVAL
    restart_delay: Annotated[Seconds, DELAY] = RESTART_DELAY
    restart_delays: Mapping[Name, Annotated[Seconds, DELAY] | Mapping[Name, Annotated[Seconds, DELAY]]] = field(
        default_factory=dict
    )
    interference: Annotated[float, Range(least=0, below=1)] = 0.0
    whole_seconds: bool = False
    horizon: Annotated[Seconds, Range(above=0)] | None = None
    reasons: Annotated[str, OneOf(*REASONS)] = "changes"
    checkpoints: Checkpoints | None = None
    job_failures: JobFailures | None = None
    free_moves: bool = False
    free_starts: bool = False
    ask_at_failures: bool = False
    placement: Annotated[str, OneOf(*PLACEMENTS)] = "anywhere"
    limits: Mapping[Name, Any] = field(default_factory=dict)
    sharing: Sharing | None = None
    decision_limit: Annotated[Seconds, Range(above=0, most=MOST_SECONDS)] | None = DECISION_LIMIT

    def __post_init__(self) -> None:
        if not isinstance(self.restart_delays, Mapping):
            raise invalid_setting("engine.restart_delays", self.restart_delays, "delays by application")
        # These two raise errors about values that the types do not exclude.
        delays = self.delays.all
        use_limits(self.limits)
        for name, kind in (("checkpoints", Checkpoints), ("job_failures", JobFailures)):
            value = getattr(self, name)
            if not isinstance(value, kind | None):
                raise InvalidConfigError(f"engine.{name} is {value!r}, must be {kind.__name__}, or null")
        if self.sharing is not None and self.interference:
            raise InvalidConfigError(f"engine.interference is {self.interference:g}, must be 0 with engine.sharing")
        if self.whole_seconds:
            if self.ask_at_failures:
                raise InvalidConfigError("engine.ask_at_failures is true, must be false where whole_seconds is set")
            for name, value in [("round_interval", self.round_interval), *(("restart_delay", time) for time in delays)]:
                must_be = "whole seconds where whole_seconds is set"
                if not float(value).is_integer():
                    raise invalid_setting(f"engine.{name}", value, must_be)

    @cached_property
    def use_limits(self) -> tuple[UseLimit, ...]:
        """Return the limits on the GPUs and running jobs of users, qualities of service and queues."""
        return use_limits(self.limits)

    @cached_property
    def delays(self) -> RestartDelays:
        """Return the restart delays by application and GPU type."""
        return RestartDelays(self.restart_delay, self.restart_delays)

    def first_delay(self, application: str, gpu_type: str | None) -> float:
        """Return the time without training after the first start of a job on a GPU type [s]."""
        return 0.0 if self.free_starts else self.delays.of(application, gpu_type)

    @property
    def named_applications(self) -> Mapping[str, Iterable[str]]:
        """Return the applications that settings name, by setting."""
        applications: dict[str, Iterable[str]] = {"restart_delays": self.restart_delays}
        if self.checkpoints is not None:
            applications |= {"checkpoints.costs": self.checkpoints.costs, "checkpoints.sizes": self.checkpoints.sizes}
        return {setting: names for setting, names in applications.items() if names}

    @property
    def disturbance(self) -> Sharing | None:
        """Return the model that slows jobs down on shared GPUs or nodes; None if nothing slows jobs down."""
        return Interference(self.interference) if self.interference else self.sharing

    @cached_property
    def time_rule(self) -> TimeRule:
        """Return the rule that turns progress into time."""
        return WholeSeconds(self.round_interval) if self.whole_seconds else ExactTime()
