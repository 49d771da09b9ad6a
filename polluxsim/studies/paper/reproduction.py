"""Run experiments, compare them with published numbers, and write tables and figures."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isfinite
from pathlib import Path
from time import monotonic

import pandas as pd
from rich.table import Table

from polluxsim.common.errors import PolluxSimError
from polluxsim.common.files import appearing_whole
from polluxsim.look.console import console
from polluxsim.look.plot.style import save
from polluxsim.run.interrupt import SweepInterrupted
from polluxsim.statistics.estimates import LEAST_FOR_VERDICT, Samples
from polluxsim.studies.driver import time_left
from polluxsim.studies.paper.drawings import draw
from polluxsim.studies.paper.experiments import Experiment, Inputs, experiment_names, other_systems, read_experiment
from polluxsim.studies.paper.measures import measure
from polluxsim.studies.paper.published import (
    BOUNDS,
    Finding,
    Kind,
    Published,
    compare,
    findings_frame,
    relative_half_width,
)
from polluxsim.studies.paper.runs import (
    PER_JOB,
    Place,
    Plan,
    Runs,
    check_reached,
    gathered,
    job_times_file,
    make_runs,
    over_the_same_workloads,
    planned,
)
from polluxsim.studies.paper.verdict_tables import (
    STYLES,
    difference_text,
    notes,
    tally,
    unit_of,
    value_text,
    verdict_markdown,
    verdict_table,
)

FIGURE_ENDINGS = (".png", ".pdf")  # formats in which figures are written

GROWTH = 1.5  # factor by which the number of seeds grows in each step of --until


@dataclass(frozen=True)
class Request:
    """A request to reproduce experiments."""

    inputs: Inputs
    seeds: int  # number of seeds at first
    most_seeds: int  # largest number of seeds
    precision: float | None  # seeds are added until intervals have this relative half-width; None adds none
    extra: tuple[str, ...]  # overrides of the runs that have the setting
    folder: Path  # for figures and tables
    place: Place


@dataclass(frozen=True)
class Outcome:
    """An experiment that has been run and compared."""

    runs: Runs
    findings: tuple[Finding, ...]

    def widest(self) -> float:
        """Return the largest relative half-width of the intervals of differences; 0 if more seeds change nothing."""
        if not self.runs.experiment.has_seeds:
            return 0
        widths = map(relative_half_width, self.findings)
        return max((width for width in widths if width is not None), default=0)

    def write(self, request: Request) -> None:
        """Print the comparison, and write it to CSV and Markdown files, and the figures."""
        experiment, below = self.runs.experiment, self.notes()
        console().print(verdict_table(self.findings, experiment.title))
        for note in below:
            console().print(f"  {note}", style="dim")
        request.folder.mkdir(parents=True, exist_ok=True)
        inputs = request.inputs.data if experiment.needs_data else request.inputs
        text = verdict_markdown(self.findings, experiment.title, [*below, f"On {inputs}."])
        with appearing_whole(request.folder / f"{experiment.name}.csv") as path:
            findings_frame(self.findings).to_csv(path, index=False, lineterminator="\n")
        with appearing_whole(request.folder / f"{experiment.name}.md") as path:
            path.write_text(text, encoding="utf-8")
        for name, figure in draw(self.runs, self.findings).items():
            for ending in FIGURE_ENDINGS:
                save(figure, request.folder / f"{name}{ending}")

    def notes(self) -> list[str]:
        """Return the notes below the table."""
        experiment, missing = self.runs.experiment, self.runs.missing
        where = self.runs.inputs.data if experiment.needs_data else self.runs.inputs.workloads
        not_run = f"Not run, because {where} has no workloads for it: {', '.join(missing)}." if missing else ""
        return [*filter(None, (not_run, experiment.note)), *notes(self.findings)]


def sure_enough(plan: Plan, request: Request) -> Outcome:
    """Run and compare an experiment. Add seeds until every interval is as narrow as the request demands."""
    seeds = request.seeds
    while True:
        runs = gathered(plan.experiment, request.inputs, plan.runs, make_runs(plan.runs, request.place))
        must_match = plan.experiment.needs_data or runs.inputs.must_match(needs_workloads=plan.experiment.has_seeds)
        findings = compare(Samples(measure(runs)), over_the_same_workloads(runs), must_match=must_match)
        outcome = Outcome(runs, tuple(findings))
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
        seeds = min(ceil(GROWTH * seeds), request.most_seeds)
        plan = planned(plan.experiment, request.inputs, seeds, request.extra)


@dataclass
class Batch:
    """Experiments to run."""

    plans: list[Plan]  # of the experiments that can run, with the fewest runs first
    failures: dict[str, PolluxSimError]  # errors of the experiments that cannot run
    counts: Counter[bool] = field(default_factory=Counter)  # numbers met (True) and not met (False) so far

    def do(self, request: Request) -> None:
        """Run and compare each experiment, and write it as soon as its runs are finished."""
        for outcome in self.outcomes(request):
            outcome.write(request)
            self.counts.update(tally(outcome.findings))

    def outcomes(self, request: Request) -> Iterator[Outcome]:
        """Run and compare each experiment, and yield it as soon as its runs are finished. Print errors.

        Raise the error of an experiment if it is the only one.
        """
        planned_keys = {run.key for plan in self.plans for run in plan.runs}
        started, finished = monotonic(), set[str]()
        for number, plan in enumerate(self.plans, start=1):
            keys = {run.key for run in plan.runs}
            if missing := keys - finished:
                rest = time_left(len(finished), len(planned_keys), monotonic() - started)
                where = f"{plan.experiment.name}, {number} of {len(self.plans)}"
                print(f"{where}: {len(missing)} of {len(planned_keys - finished)} runs, {rest}", file=sys.stderr)
            yield from self._outcome(plan, request)
            finished |= keys
        if len(self.plans) > 1 and not self.failures:
            make_runs([run for plan in self.plans for run in plan.runs], request.place)  # one table of all runs

    def _outcome(self, plan: Plan, request: Request) -> Iterator[Outcome]:
        """Yield the outcome of an experiment, or nothing if it failed and is one of several."""
        try:
            yield sure_enough(plan, request)
        except SweepInterrupted:
            raise
        except PolluxSimError as error:
            if len(self.plans) + len(self.failures) == 1:
                raise
            self.failures[plan.experiment.name] = error
            _print_failure(plan.experiment.name, error)


def batch_of(experiments: Sequence[Experiment], request: Request) -> Batch:
    """Plan experiments, and print the errors of experiments that cannot run.

    Raise the error if none of the experiments can run, and InvalidConfigError if an override of the user has no effect.
    """
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
        _print_failure(name, reason)
    return Batch(sorted(plans, key=lambda plan: len(plan.runs)), failures)


def _print_failure(name: str, error: PolluxSimError) -> None:
    print(f"{name} cannot be made: {error}", file=sys.stderr)


SHORT_EXPERIMENTS = ("table2",)  # the experiments on Pollux's own numbers that run without --all

CONFORMANCE_COLUMNS = ("system", "case", "number", "published", "ours", "difference", "tolerance", "verdict")
"""Columns of the table of a conformance, as `conformance_cells` fills them."""

VERDICT_WORDS = {True: "met", False: "not met", None: "not run"}  # by `Verdict.passed`


def conformance_experiments(inputs: Inputs, *, everything: bool) -> list[Experiment]:
    """Return the experiments and arms that can run on the data, without the long ones unless `everything`."""
    own = (experiment_names() if everything else SHORT_EXPERIMENTS) if inputs.profiles is not None else ()
    found = (with_data(read_experiment(name), inputs, everything=everything) for name in (*other_systems(), *own))
    return [experiment for experiment in found if experiment.arms and experiment.published]


def with_data(experiment: Experiment, inputs: Inputs, *, everything: bool) -> Experiment:
    """Return an experiment with the arms and the simulators' numbers for which the data folder has the files."""
    can_run = [arm for arm in experiment.arms if not arm.data or inputs.own(arm)]
    arms = tuple(arm for arm in can_run if everything or not arm.is_long)
    names = {arm.name for arm in arms} | {""}

    def is_judged(row: Published) -> bool:
        has_data = row.metric not in PER_JOB or job_times_file(experiment, inputs, row.arm) is not None
        is_by_rule = row.by_simulator and row.measured.kind is not Kind.NONE
        return is_by_rule and has_data and {row.arm, row.against} <= names

    return replace(experiment, arms=arms, published=tuple(filter(is_judged, experiment.published)), draw=())


def left_out(inputs: Inputs, *, everything: bool) -> list[str]:
    """Return a line for each reason why something does not run."""
    found = []
    for name in other_systems():
        whole = read_experiment(name)
        missing = sorted({path for arm in whole.arms if not inputs.own(arm) for path in arm.data})
        found += [f"{name}: {inputs.data} has no {', '.join(missing)}"] if missing else []
        can_run = [arm for arm in whole.arms if inputs.own(arm)]
        per_job = {row.arm for row in whole.published if row.metric in PER_JOB}
        without_file = [arm.name for arm in can_run if job_times_file(whole, inputs, arm.name) is None]
        if means_only := [arm for arm in without_file if arm in per_job]:
            found.append(f"{name}: {inputs.data} has no completion times of single jobs for {', '.join(means_only)}")
        long = [arm.name for arm in can_run if arm.is_long and not everything]
        found += [f"{name}, {', '.join(long)}: takes minutes, --all runs it"] if long else []
    if inputs.profiles is None:
        found.append(f"pollux: {inputs.data} has no osdi21")
    return found


def judged(outcomes: Iterable[Outcome]) -> list[tuple[str, Finding]]:
    """Return the finding of each judged number, with the system that it belongs to."""
    return [(outcome.runs.experiment.system, finding) for outcome in outcomes for finding in outcome.findings]


def why_not(rows: Sequence[tuple[str, Finding]]) -> list[str]:
    """Return the explanation of each number that is not met, if there is one."""
    not_met = [finding.published for _, finding in rows if not finding.verdict.passed]
    return [f"{row}: {row.note}" for row in not_met if row.note]


def conformance_cells(system: str, finding: Finding) -> tuple[str, ...]:
    """Return the texts of a row of the table."""
    row, ours = finding.published, finding.ours
    unit = unit_of([finding])
    published = BOUNDS.get(finding.rule.kind, "") + value_text(row.in_base_units, row, unit)
    case = f"{row.arm} against {row.against}" if row.against else row.arm
    value = "–" if ours is None else value_text(ours.estimate.value, row, unit)
    verdict = VERDICT_WORDS[finding.verdict.passed]
    return (system, case, row.metric, published, value, difference_text(finding), str(finding.rule), verdict)


def conformance_table(rows: Sequence[tuple[str, Finding]]) -> Table:
    """Return the table for a terminal."""
    table = Table(title="Published numbers of simulators, and ours", title_justify="left")
    for index, name in enumerate(CONFORMANCE_COLUMNS):
        table.add_column(name, justify="right" if 3 <= index < len(CONFORMANCE_COLUMNS) - 1 else "left")
    for system, finding in rows:
        *line, verdict = conformance_cells(system, finding)
        table.add_row(*line, f"[{STYLES[finding.verdict.passed]}]{verdict}[/]")
    return table


def conformance_frame(rows: Sequence[tuple[str, Finding]]) -> pd.DataFrame:
    """Return the texts of the table as data."""
    return pd.DataFrame([conformance_cells(system, finding) for system, finding in rows], columns=CONFORMANCE_COLUMNS)
