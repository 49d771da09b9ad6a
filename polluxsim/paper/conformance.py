"""All that the data at hand allow of what simulators published, beside ours in one table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table

from polluxsim.paper.experiment import names, read_experiment, systems
from polluxsim.paper.published import BOUNDS, Kind
from polluxsim.paper.verdict_table import STYLES, off, unit_of, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polluxsim.paper.experiment import Experiment
    from polluxsim.paper.inputs import Inputs
    from polluxsim.paper.outcome import Outcome
    from polluxsim.paper.verdicts import Finding

FIRST = ("table2",)
"""Of Pollux's own experiments, what stands for them where not all are asked for."""

COLUMNS = ("system", "case", "number", "published", "ours", "difference", "tolerance", "verdict")
WORDS = {True: "met", False: "not met", None: "not run"}


def experiments(inputs: Inputs, *, everything: bool) -> list[Experiment]:
    """Return the experiments whose data are at hand, each with what runs of it: everything, or what is quick."""
    own = (names() if everything else FIRST) if inputs.profiles is not None else ()
    found = (at_hand(read_experiment(name), inputs, everything=everything) for name in (*systems(), *own))
    return [experiment for experiment in found if experiment.arms]


def at_hand(experiment: Experiment, inputs: Inputs, *, everything: bool) -> Experiment:
    """Return an experiment with the arms that can and shall run, and the simulators' numbers of them."""
    can = [arm for arm in experiment.arms if not arm.data or inputs.own(arm)]
    arms = tuple(arm for arm in can if everything or not arm.is_long)
    left = {arm.name for arm in arms} | {""}
    judged_here = (row for row in experiment.published if row.by_simulator and row.measured.kind is not Kind.NONE)
    rows = tuple(row for row in judged_here if {row.arm, row.against} <= left)
    return replace(experiment, arms=arms, published=rows, draw=())


def left_out(inputs: Inputs, *, everything: bool) -> list[str]:
    """Return in words what does not run."""
    found = []
    for name in systems():
        whole = read_experiment(name)
        missing = sorted({path for arm in whole.arms if not inputs.own(arm) for path in arm.data})
        found += [f"{name}: {inputs.data} has no {', '.join(missing)}"] if missing else []
        later = [arm.name for arm in whole.arms if arm.is_long and inputs.own(arm) and not everything]
        found += [f"{name}, {', '.join(later)}: takes minutes, --all runs it"] if later else []
    if inputs.profiles is None:
        found.append(f"pollux: {inputs.data} has no osdi21")
    return found


def judged(outcomes: Iterable[Outcome]) -> list[tuple[str, Finding]]:
    """Return each judged number with its system."""
    return [(outcome.runs.experiment.system, finding) for outcome in outcomes for finding in outcome.findings]


def why_not(rows: Sequence[tuple[str, Finding]]) -> list[str]:
    """Return what there is to say of the numbers that are not met."""
    found = [finding.published for _, finding in rows if not finding.verdict.passed]
    return [f"{row}: {row.note}" for row in found if row.note]


def cells(system: str, finding: Finding) -> tuple[str, ...]:
    """Return a row of the table."""
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
    """Return the table as data, as it is shown."""
    return pd.DataFrame([cells(system, finding) for system, finding in rows], columns=COLUMNS)
