"""Run experiments, compare them with published numbers, and write tables and figures."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite
from pathlib import Path
from time import monotonic

from polluxsim.common.errors import PolluxSimError
from polluxsim.common.files import atomic_write
from polluxsim.look.console import console
from polluxsim.look.plot.style import save
from polluxsim.run.interrupt import SweepInterrupted
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, Samples
from polluxsim.studies.driver import time_left
from polluxsim.studies.paper.drawings import draw
from polluxsim.studies.paper.experiments import Experiment, Inputs
from polluxsim.studies.paper.measures import measure
from polluxsim.studies.paper.published import PublishedFinding, compare, findings_frame, relative_half_width
from polluxsim.studies.paper.published_runs import over_the_same_workloads
from polluxsim.studies.paper.runs import (
    ExperimentPlan,
    Planned,
    RunPlace,
    Runs,
    check_reached,
    gathered,
    make_runs,
    planned,
)
from polluxsim.studies.paper.verdict_tables import notes, tally, verdict_markdown, verdict_table

FIGURE_ENDINGS = (".png", ".pdf")  # formats in which figures are written

GROWTH = 1.5  # factor by which the number of seeds grows in each step of --until


@dataclass(frozen=True)
class ReproductionRequest:
    """A request to reproduce experiments."""

    inputs: Inputs
    seeds: int  # number of seeds at first
    most_seeds: int  # largest number of seeds
    precision: float | None  # seeds are added until intervals have this relative half-width; None adds none
    extra: tuple[str, ...]  # overrides of the runs that have the setting
    folder: Path  # for figures and tables
    place: RunPlace


@dataclass(frozen=True)
class ExperimentOutcome:
    """An experiment that has been run and compared."""

    runs: Runs
    findings: tuple[PublishedFinding, ...]

    def widest(self) -> float:
        """Return the largest relative half-width of the intervals of differences; 0 if more seeds change nothing."""
        if not self.runs.experiment.has_seeds:
            return 0
        widest = 0.0
        for finding in self.findings:
            width = relative_half_width(finding)
            if width is not None:
                widest = max(widest, width)
        return widest

    def write(self, request: ReproductionRequest) -> None:
        """Print the comparison and the notes; write them to CSV and Markdown files, and draw the figures.

        A file that exists is replaced.
        """
        experiment = self.runs.experiment
        # Printed before it is written, because drawing may take long.
        below = self.notes()
        console().print(verdict_table(self.findings, experiment.title))
        for note in below:
            console().print(f"  {note}", style="dim")
        request.folder.mkdir(parents=True, exist_ok=True)
        inputs: Inputs | Path | None = request.inputs
        if experiment.needs_data:
            inputs = request.inputs.data
        text = verdict_markdown(self.findings, experiment.title, [*below, f"On {inputs}."])
        with atomic_write(request.folder / f"{experiment.name}.csv") as path:
            findings_frame(self.findings).to_csv(path, index=False, lineterminator="\n")
        with atomic_write(request.folder / f"{experiment.name}.md") as path:
            path.write_text(text, encoding="utf-8")
        for name, figure in draw(self.runs, self.findings).items():
            for ending in FIGURE_ENDINGS:
                save(figure, request.folder / f"{name}{ending}")

    def notes(self) -> list[str]:
        """Return the notes below the table."""
        experiment = self.runs.experiment
        missing = self.runs.missing
        lines = []
        if missing:
            folder = self.runs.inputs.workloads
            if experiment.needs_data:
                folder = self.runs.inputs.data
            lines.append(f"Not run, because {folder} has no workloads for it: {', '.join(missing)}.")
        if experiment.note:
            lines.append(experiment.note)
        return lines + notes(self.findings)


def sure_enough(plan: ExperimentPlan, request: ReproductionRequest) -> ExperimentOutcome:
    """Run and compare an experiment. Add seeds until every interval is as narrow as the request demands."""
    seeds = request.seeds
    while True:
        runs = gathered(plan.experiment, request.inputs, plan.runs, make_runs(plan.runs, request.place))
        must_match = plan.experiment.needs_data or runs.inputs.must_match(needs_workloads=plan.experiment.has_seeds)
        findings = compare(Samples(measure(runs)), over_the_same_workloads(runs), must_match=must_match)
        outcome = ExperimentOutcome(runs, tuple(findings))
        widest = outcome.widest()
        if request.precision is None or widest <= request.precision:
            return outcome
        if seeds >= request.most_seeds:
            still = f"the widest interval is still ±{100 * widest:.0f} % of its difference"
            if not isfinite(widest):
                reason = f"it is 0 or has fewer than {LEAST_FOR_VERDICT} units"
                still = f"a difference still has no interval, because {reason}"
            words = f"with {seeds} seeds {still}; --until requests {100 * request.precision:g} %"
            console().print(f"{plan.experiment.name}: {words}")
            return outcome
        # By a factor, because the width of an interval falls with the square root of the number of seeds only.
        seeds = min(ceil(GROWTH * seeds), request.most_seeds)
        plan = planned(plan.experiment, request.inputs, seeds, request.extra)


@dataclass
class Batch:
    """Experiments to run."""

    plans: list[ExperimentPlan]  # of the experiments that can run, with the fewest runs first
    failures: dict[str, PolluxSimError]  # errors of the experiments that cannot run
    counts: Counter[bool] = field(default_factory=Counter)  # numbers met (True) and not met (False) so far

    def do(self, request: ReproductionRequest) -> None:
        """Run and compare each experiment, and write it as soon as its runs are finished."""
        for outcome in self.outcomes(request):
            outcome.write(request)
            self.counts.update(tally(outcome.findings))

    def outcomes(self, request: ReproductionRequest) -> Iterator[ExperimentOutcome]:
        """Run and compare each experiment, and yield it as soon as its runs are finished. Print errors.

        Raise the error of an experiment if it is the only one.
        """
        all_runs = list[Planned]()
        for plan in self.plans:
            all_runs += plan.runs
        # Experiments have runs in common, which are made once and count once.
        planned_keys = {run.key for run in all_runs}
        started = monotonic()
        finished = set[str]()
        for number, plan in enumerate(self.plans, start=1):
            keys = {run.key for run in plan.runs}
            missing = keys - finished
            if missing:
                seconds_left = time_left(len(finished), len(planned_keys), monotonic() - started)
                where = f"{plan.experiment.name}, {number} of {len(self.plans)}"
                print(
                    f"{where}: {len(missing)} of {len(planned_keys - finished)} runs, {seconds_left}", file=sys.stderr
                )
            yield from self._outcome(plan, request)
            finished |= keys
        if len(self.plans) > 1 and not self.failures:
            make_runs(all_runs, request.place)  # one table of all runs

    def _outcome(self, plan: ExperimentPlan, request: ReproductionRequest) -> Iterator[ExperimentOutcome]:
        """Yield the outcome of an experiment, or nothing if it failed and is one of several."""
        try:
            yield sure_enough(plan, request)
        except SweepInterrupted:  # Ctrl-C ends all experiments, not only this one
            raise
        except PolluxSimError as error:
            if len(self.plans) + len(self.failures) == 1:
                raise
            self.failures[plan.experiment.name] = error
            _print_failure(plan.experiment.name, error)


def batch_of(experiments: Sequence[Experiment], request: ReproductionRequest) -> Batch:
    """Plan experiments, and print the errors of experiments that cannot run.

    Raise the error if none of the experiments can run, and InvalidConfigError if an override of the user has no effect.
    """
    plans = list[ExperimentPlan]()
    # Planned before any run, so that a wrong input is reported at once.
    failures = dict[str, PolluxSimError]()
    for experiment in experiments:
        try:
            plans.append(planned(experiment, request.inputs, request.seeds, request.extra))
        except PolluxSimError as error:
            failures[experiment.name] = error
    if not plans:
        raise next(iter(failures.values()))
    # An experiment that cannot run may be the one that has the setting of an override.
    if not failures:
        check_reached(request.extra, plans)
    for name, reason in failures.items():
        _print_failure(name, reason)
    fewest_runs_first = sorted(plans, key=lambda plan: len(plan.runs))  # so that the first results come early
    return Batch(fewest_runs_first, failures)


def _print_failure(name: str, error: PolluxSimError) -> None:
    """Print that an experiment cannot be made, and why, on standard error."""
    print(f"{name} cannot be made: {error}", file=sys.stderr)
