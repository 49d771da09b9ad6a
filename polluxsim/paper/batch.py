"""Several experiments, one after the other: what cannot be made is told at the start, and the others go on."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from polluxsim.errors import PolluxSimError
from polluxsim.paper.outcome import sure_enough
from polluxsim.paper.planning import Plan, check_reached, planned
from polluxsim.paper.runs import make
from polluxsim.paper.verdict_table import tally
from polluxsim.run.interrupt import SweepInterrupted
from polluxsim.sweeps.progress_line import time_left

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polluxsim.paper.experiment import Experiment
    from polluxsim.paper.outcome import Outcome, Request


@dataclass
class Batch:
    """Experiments to be made."""

    plans: list[Plan]  # those that can be made, with fewest runs first
    failures: dict[str, PolluxSimError]  # why each of the others cannot
    counts: Counter[bool] = field(default_factory=Counter)  # published numbers that are met and that are not, so far

    def do(self, request: Request) -> None:
        """Make, compare and write each experiment as soon as its runs are finished."""
        for outcome in self.outcomes(request):
            outcome.write(request)
            self.counts.update(tally(outcome.findings))

    def outcomes(self, request: Request) -> Iterator[Outcome]:
        """Make and compare each experiment, and yield it as soon as its runs are finished; one that fails is told."""
        ahead = {run.key for plan in self.plans for run in plan.runs}
        started, finished = monotonic(), set[str]()
        for number, plan in enumerate(self.plans, start=1):
            own = {run.key for run in plan.runs}
            if own - finished:
                rest = time_left(len(finished), len(ahead), monotonic() - started)
                where = f"{plan.experiment.name}, {number} of {len(self.plans)}"
                print(f"{where}: {len(own - finished)} of {len(ahead - finished)} runs, {rest}", file=sys.stderr)
            yield from self._outcome(plan, request)
            finished |= own
        if len(self.plans) > 1 and not self.failures:
            make([run for plan in self.plans for run in plan.runs], request.place)  # one table of all runs

    def _outcome(self, plan: Plan, request: Request) -> Iterator[Outcome]:
        try:
            yield sure_enough(plan, request)
        except SweepInterrupted:
            raise
        except PolluxSimError as error:
            if len(self.plans) + len(self.failures) == 1:
                raise
            self.failures[plan.experiment.name] = error
            _tell(plan.experiment.name, error)


def batch_of(experiments: Sequence[Experiment], request: Request) -> Batch:
    """Plan experiments, and tell of those that cannot be made; an error if none can, or an override reaches no run."""
    plans, failures = list[Plan](), dict[str, PolluxSimError]()
    for experiment in experiments:
        try:
            plans.append(planned(experiment, request.inputs, request.seeds, request.extra))
        except PolluxSimError as error:
            failures[experiment.name] = error
    if not plans:
        raise next(iter(failures.values()))
    if not failures:
        check_reached(request.extra, plans)
    for name, reason in failures.items():
        _tell(name, reason)
    return Batch(sorted(plans, key=lambda plan: len(plan.runs)), failures)


def _tell(name: str, error: PolluxSimError) -> None:
    print(f"{name} cannot be made: {error}", file=sys.stderr)
