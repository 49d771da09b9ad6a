"""The law that no run is better than the bound on the best possible schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.law import Law
from polluxsim.checks.worlds import World
from polluxsim.metrics.summary import summarise
from polluxsim.policies.contract.policy import Policy, as_policy, traits_of
from polluxsim.records.bounds import RunBound
from polluxsim.records.results import Result
from polluxsim.run.limits_of_jobs import bounded_world, starting_at_rounds
from polluxsim.statistics.bounds.bounding import METRICS, bounds_of

TIME_LIMIT = 0.05  # of the search for prices in a world; the law holds for any prices [s]


@dataclass
class BestPossible(Law):
    """The mean JCT, its percentiles and the makespan are at least their bounds, and deadlines met at most."""

    world: World
    policy: Policy
    time_limit: float = TIME_LIMIT

    def check_end(self, result: Result) -> Iterator[Finding]:
        """Yield a finding for each metric that is better than its bound."""
        scenario = self.world.scenario(traits_of(self.policy), as_policy(self.policy).label)
        at_any_time = bounded_world(scenario, result).problem
        if at_any_time is None:
            return
        summary = summarise(result)
        at_rounds = starting_at_rounds(at_any_time, scenario.settings.round_interval)
        for problem, starts in ((at_any_time, ""), (at_rounds, " of jobs that start at rounds")):
            bounds = bounds_of(problem, METRICS, self.time_limit)
            values = {name: float(getattr(summary, name)) for name in bounds}
            bound = RunBound(bounds, values=values)
            for name in bound.broken:
                best = f"no schedule has less than {bounds[name].value:.9g}"
                if bounds[name].is_upper:
                    best = f"no schedule has more than {bounds[name].value:.9g}"
                message = f"{name} is {values[name]:.9g}, but {best}{starts} ({bounds[name].part})"
                yield Finding(Fault.BOUND, f"{message}: this is a fault of the simulator or of the bound")
