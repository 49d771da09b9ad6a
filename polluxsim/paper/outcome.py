"""An experiment that has been run and compared: printed, and written as a table and figures."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite
from typing import TYPE_CHECKING

from polluxsim.files import appearing_whole
from polluxsim.look.console import console
from polluxsim.look.intervals import LEAST_FOR_VERDICT
from polluxsim.look.plot.style import save
from polluxsim.look.samples import Samples
from polluxsim.paper.drawings import draw
from polluxsim.paper.measures import measure
from polluxsim.paper.planning import Plan, planned
from polluxsim.paper.published_runs import over_the_same_workloads
from polluxsim.paper.runs import Place, Runs, gathered, make
from polluxsim.paper.verdict_table import markdown, notes, verdict_table
from polluxsim.paper.verdicts import Finding, compare, relative_half_width, to_frame

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.paper.inputs import Inputs

FIGURE_ENDINGS = (".png", ".pdf")

GROWTH = 1.5
"""By how much seeds grow in each step of --until."""


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    inputs: Inputs
    seeds: int  # to begin with
    most_seeds: int  # to end with at the latest
    # largest relative half-width of a difference's interval before seeds are added no more; None to add none
    precision: float | None
    extra: tuple[str, ...]  # Hydra overrides, of the runs that have the setting
    folder: Path  # where figures and tables go
    place: Place


@dataclass(frozen=True)
class Outcome:
    """An experiment that has been run and compared."""

    runs: Runs
    findings: tuple[Finding, ...]

    def widest(self) -> float:
        """Return the largest relative half-width of a difference's interval, 0 where more seeds change nothing."""
        if not self.runs.experiment.has_seeds:
            return 0
        widths = [width for finding in self.findings if (width := relative_half_width(finding)) is not None]
        return max(widths, default=0)

    def write(self, request: Request) -> None:
        """Print the comparison, and write it and the figures."""
        experiment, below = self.runs.experiment, self.notes()
        console().print(verdict_table(self.findings, experiment.title))
        for note in below:
            console().print(f"  {note}", style="dim")
        request.folder.mkdir(parents=True, exist_ok=True)
        stem = request.folder / experiment.name
        with appearing_whole(stem.with_suffix(".csv")) as path:
            to_frame(self.findings).to_csv(path, index=False, lineterminator="\n")
        on = request.inputs.data if experiment.needs_data else request.inputs
        text = markdown(self.findings, experiment.title, [*below, f"On {on}."])
        with appearing_whole(stem.with_suffix(".md")) as path:
            path.write_text(text, encoding="utf-8")
        for name, figure in draw(self.runs, self.findings).items():
            for ending in FIGURE_ENDINGS:
                save(figure, request.folder / f"{name}{ending}")

    def notes(self) -> list[str]:
        """Return what one has to know beside the table."""
        experiment, missing = self.runs.experiment, self.runs.missing
        where = self.runs.inputs.data if experiment.needs_data else self.runs.inputs.workloads
        words = f"Not run, as {where} has no workloads for it: {', '.join(missing)}."
        return [*([words] if missing else []), *([experiment.note] if experiment.note else []), *notes(self.findings)]


def sure_enough(plan: Plan, request: Request) -> Outcome:
    """Run and compare an experiment, with more seeds until every interval is as narrow as asked for."""
    seeds = request.seeds
    while True:
        outcome = _compared(gathered(plan.experiment, request.inputs, plan.runs, make(plan.runs, request.place)))
        widest = outcome.widest()
        if request.precision is None or widest <= request.precision:
            return outcome
        if seeds >= request.most_seeds:
            words = f"with {seeds} seeds {_still(widest)}, asked for was {100 * request.precision:g} %"
            console().print(f"{plan.experiment.name}: {words}")
            return outcome
        seeds = min(ceil(GROWTH * seeds), request.most_seeds)
        plan = planned(plan.experiment, request.inputs, seeds, request.extra)


def _still(widest: float) -> str:
    if isfinite(widest):
        return f"the widest interval is still ±{100 * widest:.0f} % of its difference"
    return f"a difference still has no interval, as it is 0 or of fewer than {LEAST_FOR_VERDICT} units"


def _compared(runs: Runs) -> Outcome:
    must_match = runs.experiment.needs_data or runs.inputs.must_match(needs_workloads=runs.experiment.has_seeds)
    return Outcome(runs, tuple(compare(Samples(measure(runs)), over_the_same_workloads(runs), must_match=must_match)))
