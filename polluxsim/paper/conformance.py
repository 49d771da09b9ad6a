"""The comparison with other simulators' published numbers: which experiments run, and one table of all results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table

from polluxsim.paper.experiment import names, read_experiment, systems
from polluxsim.paper.published import BOUNDS, Kind
from polluxsim.paper.published_runs import PER_JOB, job_times_file
from polluxsim.paper.verdict_table import STYLES, off, unit_of, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polluxsim.paper.experiment import Experiment
    from polluxsim.paper.inputs import Inputs
    from polluxsim.paper.outcome import Outcome
    from polluxsim.paper.verdicts import Finding

FIRST = ("table2",)
"""The experiments on Pollux's own numbers that run without --all."""

COLUMNS = ("system", "case", "number", "published", "ours", "difference", "tolerance", "verdict")
WORDS = {True: "met", False: "not met", None: "not run"}


def experiments(inputs: Inputs, *, everything: bool) -> list[Experiment]:
    """Return the experiments and arms that can run on the data, without the long ones unless `everything`."""
    own = (names() if everything else FIRST) if inputs.profiles is not None else ()
    found = (with_data(read_experiment(name), inputs, everything=everything) for name in (*systems(), *own))
    return [experiment for experiment in found if experiment.arms and experiment.published]


def with_data(experiment: Experiment, inputs: Inputs, *, everything: bool) -> Experiment:
    """Return an experiment with the arms and the simulators' numbers for which the data folder has the files."""
    can_run = [arm for arm in experiment.arms if not arm.data or inputs.own(arm)]
    arms = tuple(arm for arm in can_run if everything or not arm.is_long)
    left = {arm.name for arm in arms} | {""}
    judged_here = (row for row in experiment.published if row.by_simulator and row.measured.kind is not Kind.NONE)
    rows = tuple(
        row
        for row in judged_here
        if {row.arm, row.against} <= left
        and (row.metric not in PER_JOB or job_times_file(experiment, inputs, row.arm) is not None)
    )
    return replace(experiment, arms=arms, published=rows, draw=())


def left_out(inputs: Inputs, *, everything: bool) -> list[str]:
    """Return a line for each reason why something does not run."""
    found = []
    for name in systems():
        whole = read_experiment(name)
        missing = sorted({path for arm in whole.arms if not inputs.own(arm) for path in arm.data})
        found += [f"{name}: {inputs.data} has no {', '.join(missing)}"] if missing else []
        can_run = {arm.name for arm in whole.arms if inputs.own(arm)}
        means_only = dict.fromkeys(
            row.arm
            for row in whole.published
            if row.arm in can_run and row.metric in PER_JOB and job_times_file(whole, inputs, row.arm) is None
        )
        if means_only:
            found.append(f"{name}: {inputs.data} has no completion times of single jobs for {', '.join(means_only)}")
        later = [arm.name for arm in whole.arms if arm.is_long and inputs.own(arm) and not everything]
        found += [f"{name}, {', '.join(later)}: takes minutes, --all runs it"] if later else []
    if inputs.profiles is None:
        found.append(f"pollux: {inputs.data} has no osdi21")
    return found


def judged(outcomes: Iterable[Outcome]) -> list[tuple[str, Finding]]:
    """Return the finding of each judged number, with the system that it belongs to."""
    return [(outcome.runs.experiment.system, finding) for outcome in outcomes for finding in outcome.findings]


def why_not(rows: Sequence[tuple[str, Finding]]) -> list[str]:
    """Return the explanation of each number that is not met and has one."""
    found = [finding.published for _, finding in rows if not finding.verdict.passed]
    return [f"{row}: {row.note}" for row in found if row.note]


def cells(system: str, finding: Finding) -> tuple[str, ...]:
    """Return the texts of a row of the table."""
    row, ours = finding.published, finding.ours
    unit = unit_of([finding])
    published = BOUNDS.get(finding.rule.kind, "") + value(row.in_base_units, row, unit)
    case = f"{row.arm} against {row.against}" if row.against else row.arm
    shown = "–" if ours is None else value(ours.estimate.value, row, unit)
    return system, case, row.metric, published, shown, off(finding), str(finding.rule), WORDS[finding.verdict.passed]


def conformance_table(rows: Sequence[tuple[str, Finding]]) -> Table:
    """Return the table for a terminal."""
    table = Table(title="Published numbers of simulators, and ours", title_justify="left")
    for index, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if 3 <= index < len(COLUMNS) - 1 else "left")
    for system, finding in rows:
        *line, verdict = cells(system, finding)
        table.add_row(*line, f"[{STYLES[finding.verdict.passed]}]{verdict}[/]")
    return table


def conformance_frame(rows: Sequence[tuple[str, Finding]]) -> pd.DataFrame:
    """Return the texts of the table as data."""
    return pd.DataFrame([cells(system, finding) for system, finding in rows], columns=COLUMNS)
