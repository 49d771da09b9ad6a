"""`polluxsim reproduce`: runs what a table or figure needs, compares it with what was published, draws it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite
from typing import TYPE_CHECKING

from polluxsim.analysis.bootstrap import LEAST_UNITS
from polluxsim.analysis.comparison import Finding, Samples, compare, relative_half_width, to_frame
from polluxsim.analysis.figures.style import save
from polluxsim.analysis.verdict_table import failed, markdown, verdict_table
from polluxsim.app.console import console
from polluxsim.app.reproduce.experiment import Experiment, names, read_experiment
from polluxsim.app.reproduce.inputs import Inputs
from polluxsim.app.reproduce.published_runs import over_the_same_workloads
from polluxsim.app.reproduce.runs import Place, Runs, gathered, make, planned
from polluxsim.errors import InvalidConfigError
from polluxsim.files import appearing_whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path


ALL, LIST = "all", "list"
DIFFERS = 1
"""Exit status of --check where a published number is not met."""

FIGURE_ENDINGS = (".png", ".pdf")
GENERATED_SEEDS = 8
"""Generated workloads by default, as many as the paper's."""

MEASURED_SEEDS = 6
"""Runs of each published workload by default: the policy's search is random, and fewer runs have no interval."""

GROWTH = 1.5
"""By how much seeds grow in each step of --until."""


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Parameters
    ----------
    inputs
        What to run on.
    seeds
        Seeds to begin with.
    most_seeds
        Seeds to end with at the latest.
    precision
        Largest relative half-width of a difference's interval before seeds are added no more; None to add none.
    extra
        Hydra overrides of every run.
    folder
        Where figures and tables go.
    place
        Where runs are made.
    """

    inputs: Inputs
    seeds: int
    most_seeds: int
    precision: float | None
    extra: tuple[str, ...]
    folder: Path
    place: Place


def reproduce(options: argparse.Namespace) -> int:
    """Reproduce the named tables and figures.

    Returns
    -------
    int
        0; with --check, 1 if a published number is not met.
    """
    wanted = [word for word in options.names if "=" not in word]
    if LIST in wanted:
        return _list()
    chosen = names() if ALL in wanted else list(dict.fromkeys(wanted))
    if not chosen:
        raise InvalidConfigError(f"no table or figure is named, allowed are {', '.join(names())} and {ALL}")
    experiments = [read_experiment(name) for name in chosen]
    request = _request(options, [word for word in options.names if "=" in word])
    outcomes = _sure_enough(experiments, request)
    console().print(f"on {request.inputs}", soft_wrap=True)
    for outcome in outcomes:
        outcome.show(request)
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    wrong, judged = failed(findings), sum(finding.verdict.passed is not None for finding in findings)
    console().print(f"{judged - len(wrong)} of {judged} published numbers are met; wrote {request.folder}")
    return DIFFERS if options.check and wrong else 0


@dataclass(frozen=True)
class Outcome:
    """An experiment that has been run and compared.

    Parameters
    ----------
    runs
        Its runs.
    findings
        Its published numbers and ours.
    """

    runs: Runs
    findings: tuple[Finding, ...]

    def widest(self) -> float:
        """Return the largest relative half-width of a difference's interval, 0 where more seeds change nothing."""
        if not self.runs.experiment.has_seeds:
            return 0
        return max(
            (width for finding in self.findings if (width := relative_half_width(finding)) is not None), default=0
        )

    def show(self, request: Request) -> None:
        """Print the comparison, and write it and the figures."""
        experiment = self.runs.experiment
        console().print(verdict_table(self.findings, experiment.title))
        for note in self.notes():
            console().print(f"  {note}", style="dim")
        request.folder.mkdir(parents=True, exist_ok=True)
        stem = request.folder / experiment.name
        with appearing_whole(stem.with_suffix(".csv")) as path:
            to_frame(self.findings).to_csv(path, index=False, lineterminator="\n")
        with appearing_whole(stem.with_suffix(".md")) as path:
            path.write_text(markdown(self.findings, experiment.title) + f"\nOn {request.inputs}.\n", encoding="utf-8")
        for name, figure in experiment.load_module().draw(self.runs).items():
            for ending in FIGURE_ENDINGS:
                save(figure, request.folder / f"{name}{ending}")

    def notes(self) -> list[str]:
        """Return what one has to know beside the table."""
        missing = [arm.name for arm in self.runs.missing]
        return (
            [f"not run, as {self.runs.inputs.workloads} has no workloads for it: {', '.join(missing)}"]
            if missing
            else []
        )


def _list() -> int:
    for name in names():
        print(f"{name:12}{read_experiment(name).title}")
    return 0


def _sure_enough(experiments: Sequence[Experiment], request: Request) -> list[Outcome]:
    """Run and compare experiments, with more seeds until every interval is as narrow as asked for."""
    seeds = request.seeds
    while True:
        outcomes = _outcomes(experiments, request, seeds)
        widest = max((outcome.widest() for outcome in outcomes), default=0.0)
        if request.precision is None or widest <= request.precision:
            return outcomes
        if seeds >= request.most_seeds:
            console().print(f"with {seeds} seeds {_still(widest)}, asked for was {100 * request.precision:g} %")
            return outcomes
        seeds = min(ceil(GROWTH * seeds), request.most_seeds)


def _still(widest: float) -> str:
    if isfinite(widest):
        return f"the widest interval is still ±{100 * widest:.0f} % of its difference"
    return f"a difference still has no interval, as it is 0 or of fewer than {LEAST_UNITS} units"


def _outcomes(experiments: Sequence[Experiment], request: Request, seeds: int) -> list[Outcome]:
    plans = [planned(experiment, request.inputs, seeds, request.extra) for experiment in experiments]
    # One sweep over everything, so that its progress is that of the whole.
    folders = make([run for plan in plans for run in plan], request.place)
    pairs = zip(experiments, plans, strict=True)
    return [_compared(gathered(experiment, request.inputs, plan, folders)) for experiment, plan in pairs]


def _compared(runs: Runs) -> Outcome:
    samples = Samples(runs.experiment.load_module().measure(runs))
    must_match = runs.inputs.must_match(needs_workloads=runs.experiment.has_seeds)
    return Outcome(runs, tuple(compare(samples, over_the_same_workloads(runs), must_match=must_match)))


def _request(options: argparse.Namespace, extra: Sequence[str]) -> Request:
    inputs = Inputs(options.profiles, options.workloads, options.jobs)
    default = MEASURED_SEEDS if inputs.is_measured else GENERATED_SEEDS
    seeds = default if options.seeds is None else options.seeds
    for name, value in (("--seeds", seeds), ("--most-seeds", options.most_seeds)):
        if value < 1:
            raise InvalidConfigError(f"{name} is {value}, allowed is a whole number ≥ 1")
    if options.until is not None and not options.until > 0:
        raise InvalidConfigError(f"--until is {options.until}, allowed is a number > 0, like 0.1 for ±10 %")
    place = Place(options.out / "runs", options.workers, tuple(word for word in extra if word.startswith("hydra")))
    return Request(
        inputs,
        seeds,
        max(seeds, options.most_seeds),
        options.until,
        tuple(word for word in extra if not word.startswith("hydra")),
        options.out,
        place,
    )
