"""The comparison with the published numbers of simulators: its experiments, and its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import pandas as pd
from rich.table import Table
from rich.text import Text

from polluxsim.studies.paper.experiments import (
    Arm,
    Experiment,
    Inputs,
    experiment_names,
    other_systems,
    read_experiment,
)
from polluxsim.studies.paper.published import BOUNDS, Published, PublishedFinding, RuleKind
from polluxsim.studies.paper.published_runs import PER_JOB, job_times_file
from polluxsim.studies.paper.reproduction import ExperimentOutcome
from polluxsim.studies.paper.verdict_tables import STYLES, difference_text, unit_of, value_text

SHORT_EXPERIMENTS = ("table2",)  # the experiments on Pollux's own numbers that run without --all

CONFORMANCE_COLUMNS = ("system", "case", "number", "published", "ours", "difference", "tolerance", "verdict")
"""Columns of the table of a conformance, as `conformance_cells` fills them."""

NUMBERS = ("published", "ours", "difference", "tolerance")  # columns that are aligned to the right

VERDICT_WORDS = {True: "met", False: "not met", None: "not judged"}  # of numbers that were measured


def conformance_experiments(inputs: Inputs, *, everything: bool) -> list[Experiment]:
    """Return the experiments and arms that can run on the data, without the long ones unless `everything`.

    Raise InvalidConfigError if the inputs have no folder of data.
    """
    names = list(other_systems())
    if inputs.profiles is not None:  # Pollux's own numbers are about its own profiles
        pollux_experiments = experiment_names() if everything else SHORT_EXPERIMENTS
        names += pollux_experiments
    experiments = []
    for name in names:
        experiment = with_data(read_experiment(name), inputs, everything=everything)
        # An experiment whose data are missing, or without numbers to judge, has no row in the table.
        if experiment.arms and experiment.published:
            experiments.append(experiment)
    return experiments


def with_data(experiment: Experiment, inputs: Inputs, *, everything: bool) -> Experiment:
    """Return an experiment with the arms and the simulators' numbers for which the data folder has the files.

    It has no figures, and no long arms unless `everything`. Raise InvalidConfigError if it needs a folder of data.
    """
    arms = []
    for arm in experiment.arms:
        can_run = not arm.data or inputs.own(arm)
        if can_run and (everything or not arm.is_long):
            arms.append(arm)
    names = {arm.name for arm in arms} | {""}  # a value that is no change is against ""

    def is_judged(row: Published) -> bool:
        has_data = row.metric not in PER_JOB or job_times_file(experiment, inputs, row.arm) is not None
        is_by_rule = row.by_simulator and row.measured.kind is not RuleKind.NONE
        return is_by_rule and has_data and {row.arm, row.against} <= names

    published = tuple(filter(is_judged, experiment.published))
    # A conformance is one table over all systems, so its experiments draw nothing.
    return replace(experiment, arms=tuple(arms), published=published, draw=())


def left_out(inputs: Inputs, *, everything: bool) -> list[str]:
    """Return a line for each reason why something does not run.

    Raise InvalidConfigError if the inputs have no folder of data.
    """
    reasons = []
    # Missing data first: they are the reason that a user can change.
    for name in other_systems():
        whole = read_experiment(name)
        can_run = []
        missing = set[str]()
        for arm in whole.arms:
            if inputs.own(arm):
                can_run.append(arm)
            else:
                missing.update(arm.data)
        if missing:
            reasons.append(f"{name}: {inputs.data} has no {', '.join(sorted(missing))}")
        per_job = {row.arm for row in whole.published if row.metric in PER_JOB}
        without_file = [arm.name for arm in can_run if job_times_file(whole, inputs, arm.name) is None]
        means_only = [arm for arm in without_file if arm in per_job]
        if means_only:
            reasons.append(f"{name}: {inputs.data} has no completion times of single jobs for {', '.join(means_only)}")
    if inputs.profiles is None:
        reasons.append(f"pollux: {inputs.data} has no osdi21")
    if everything:
        return reasons
    # What runs with --all and not without it takes minutes.
    short_arms = set[tuple[str, Arm]]()
    for experiment in conformance_experiments(inputs, everything=False):
        short_arms.update((experiment.name, arm) for arm in experiment.arms)
    for experiment in conformance_experiments(inputs, everything=True):
        long_arms = [arm.name for arm in experiment.arms if (experiment.name, arm) not in short_arms]
        if not long_arms:
            continue
        subject = experiment.name
        if len(long_arms) < len(experiment.arms):
            subject += f", {', '.join(long_arms)}"
        reasons.append(f"{subject}: takes minutes, only --all runs it")
    return reasons


def judged(outcomes: Iterable[ExperimentOutcome]) -> list[tuple[str, PublishedFinding]]:
    """Return the finding of each judged number, with the system that it belongs to."""
    rows = []
    for outcome in outcomes:
        system = outcome.runs.experiment.system
        rows += [(system, finding) for finding in outcome.findings]
    return rows


def why_not(rows: Sequence[tuple[str, PublishedFinding]]) -> list[str]:
    """Return the explanation of each number that is not met, if there is one."""
    not_met = [finding.published for _, finding in rows if finding.verdict.passed is False]
    return [f"{row}: {row.note}" for row in not_met if row.note]


def conformance_cells(system: str, finding: PublishedFinding) -> tuple[str, ...]:
    """Return the texts of a row of the table."""
    row = finding.published
    ours = finding.ours
    unit = unit_of([finding])
    published = BOUNDS.get(finding.rule.kind, "") + value_text(row.in_base_units, row, unit)
    case = row.arm
    if row.against:
        case += f" against {row.against}"
    value = "–"
    verdict = "not run"
    if ours is not None:
        value = value_text(ours.estimate.value, row, unit)
        verdict = VERDICT_WORDS[finding.verdict.passed]
    return (system, case, row.metric, published, value, difference_text(finding), str(finding.rule), verdict)


def conformance_table(rows: Sequence[tuple[str, PublishedFinding]]) -> Table:
    """Return the table for a terminal."""
    table = Table(title="Published numbers of simulators, and ours", title_justify="left")
    for name in CONFORMANCE_COLUMNS:
        side: Literal["left", "right"] = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=side)
    for system, finding in rows:
        *line, verdict = conformance_cells(system, finding)
        table.add_row(*map(Text, line), Text(verdict, STYLES[finding.verdict.passed]))
    return table


def conformance_frame(rows: Sequence[tuple[str, PublishedFinding]]) -> pd.DataFrame:
    """Return the texts of the table as data."""
    return pd.DataFrame([conformance_cells(system, finding) for system, finding in rows], columns=CONFORMANCE_COLUMNS)
