"""Perturb the experiments of `polluxsim paper reproduce`, and list which judged numbers are then missed.

python benchmarks/perturbations.py [--data ../shared/data/osdi21] [--out FOLDER] > docs/perturbations.md
python benchmarks/perturbed_schedulers.py >> docs/perturbations.md

Uses workload 6 with one seed and the rules for measured data. Finished runs are kept in FOLDER. A number that no
perturbation turns red should be removed from the experiment, or judged by a stricter rule.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.records.storage import write_run
from polluxsim.statistics.estimates import Sample, Samples
from polluxsim.studies.paper.experiments import Experiment, Inputs, experiment_names, read_experiment
from polluxsim.studies.paper.measures import measure
from polluxsim.studies.paper.published import PublishedFinding, RuleKind, compare
from polluxsim.studies.paper.published_runs import over_the_same_workloads
from polluxsim.studies.paper.runs import ExperimentPlan, Made, RunPlace, Runs, gathered, make_runs, planned
from polluxsim.workloads.workload import read_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pandas as pd

    from polluxsim.studies.paper.published import Published

WORKLOAD = "6"
INTRODUCTION = """# What turns each verdict red

This page shows that the verdicts on published numbers are sensitive: each number turns red under some change of the
program. The first sections are about the tables and figures of Pollux's paper, the last one about
[schedulers of other papers](#schedulers-of-other-papers).

![Share of the met verdicts that each perturbation turns red, by table and scheduler](images/perturbations.svg)

*A point for each perturbation of a table or scheduler. The bar ends at the perturbation that turns most verdicts red.*

[TOC]

## Method

`python benchmarks/perturbations.py` writes the tables for Pollux's paper. They use workload 6, one seed and the rules
for measured data. *Another arm* replaces the values of an arm by those of another policy, interval, slowdown or phase.
A cell is empty where a perturbation does not apply.
"""
MEAN, TAIL = "average JCT", "99th percentile JCT"
BASELINES = {"policy=optimus", "policy=tiresias"}

ADAPTIVE = ("fig5", "fig6")
"""Experiments that simulate Pollux again if the profiles are perturbed."""


class Perturbed:
    """A profile with some methods replaced."""

    def __init__(self, profile: Any, **methods: Callable[..., Any]) -> None:
        self._profile = profile
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._profile, name)


def frozen_noise(profile: Any) -> Perturbed:
    """The noise scale of the first epoch all the time."""
    return Perturbed(profile, gradient_statistics=lambda size, epoch: profile.gradient_statistics(size, 0))


def late_noise(profile: Any) -> Perturbed:
    """The noise scale of the last epoch all the time."""
    last = profile.application.num_epochs - 1
    return Perturbed(profile, gradient_statistics=lambda size, epoch: profile.gradient_statistics(size, last))


def slower_steps(profile: Any) -> Perturbed:
    """Steps that take 10 % longer."""
    return Perturbed(profile, step_time=lambda *arguments: scaled(profile.step_time(*arguments), 1.1))


def jagged_steps(profile: Any) -> Perturbed:
    """Steps that take up to twice as long, by no law of GPUs and batch size."""

    def step_time(gpus: tuple[int, ...], size: int) -> Any:
        return scaled(profile.step_time(gpus, size), 1 + (7 * size + 3 * sum(gpus)) % 5 / 4)

    return Perturbed(profile, step_time=step_time)


def half_the_epochs(profile: Any) -> Perturbed:
    """Jobs with half the work."""
    return Perturbed(profile, epoch_end=lambda epoch: profile.epoch_end(epoch) / 2)


def scaled(step: Any, factor: float) -> Any:
    return type(step)(*(factor * part for part in step))


class Half(Made):
    """A run with the first half of its jobs only."""

    def jobs(self) -> pd.DataFrame:
        jobs = super().jobs()
        return jobs.head(len(jobs) // 2)


class Base(NamedTuple):
    """The unmodified runs of an experiment, and the inputs for perturbed runs."""

    runs: Runs
    samples: list[Sample]
    place: RunPlace
    inputs: Inputs


def half_the_jobs(base: Base) -> Iterator[Sample]:
    if base.runs.made and base.runs.experiment.name != "fig6":
        yield from measure(replace(base.runs, made=tuple(Half(*run) for run in base.runs.made)))


def tail_for_mean(base: Base) -> Iterator[Sample]:
    """The 99th percentile in place of the mean."""
    for sample in base.samples:
        if sample.metric == TAIL:
            yield sample._replace(metric=MEAN)


def p95_for_p99(base: Base) -> Iterator[Sample]:
    for run in base.runs.made:
        if any(sample.metric == TAIL for sample in base.samples):
            value = float(np.percentile(run.jobs()["jct"], 95))
            yield Sample(TAIL, run.arm.name, value, run.workload, run.seed)


def even_odds(base: Base) -> Iterator[Sample]:
    """All applications as frequent as each other."""
    shares = [sample for sample in base.samples if sample.metric == "share of jobs"]
    for sample in shares:
        yield sample._replace(value=1 / len(base.runs.profiles))


def with_profiles(change: Callable[[Any], Any]) -> Callable[[Base], Iterator[Sample]]:
    """Return a perturbation of profiles; `ADAPTIVE` experiments simulate Pollux again."""

    def samples(base: Base) -> Iterator[Sample]:
        profiles = {name: change(profile) for name, profile in base.runs.profiles.items()}
        runs = replace(base.runs, profiles=profiles)
        if base.runs.experiment.name in ADAPTIVE:
            if change is not frozen_noise:
                return
            runs = replace(runs, made=tuple(simulated_again(run, profiles, base) for run in base.runs.made))
        elif base.runs.made and base.runs.experiment.name != "table1":
            return
        yield from measure(runs)

    return samples


def simulated_again(run: Made, profiles: Mapping[str, Any], base: Base) -> Made:
    if BASELINES & {*run.arm.overrides}:
        return run
    folder = base.place.folder.parent / "frozen" / base.runs.experiment.name
    workload = read_workload(base.inputs.files(run.arm)[run.workload])
    settings = EngineSettings(whole_seconds=True)
    result = simulate(workload, profiles, Cluster.uniform(16, 4), Pollux(), settings=settings)
    write_run(folder, result, run.read().info)
    return run._replace(folder=folder)


def with_setting(override: str) -> Callable[[Base], Iterator[Sample]]:
    """Return a perturbation of a setting, for the fast policies and the experiment on overheads."""

    def samples(base: Base) -> Iterator[Sample]:
        experiment = base.runs.experiment
        if experiment.own_workload:
            return
        plan = planned(experiment, base.inputs, 1, (override,))
        wanted = [run for run in plan.runs if BASELINES & {*run.arm.overrides}]
        wanted = plan.runs if experiment.name == "overheads" else wanted
        if wanted and experiment.name not in ("table1", "fig5"):
            yield from measure(gathered(experiment, base.inputs, wanted, make_runs(wanted, base.place)))

    return samples


PERTURBATIONS: Mapping[str, Callable[[Base], Iterable[Sample]]] = {
    "half the jobs": half_the_jobs,
    "p99 for mean": tail_for_mean,
    "p95 for p99": p95_for_p99,
    "no restart delay": with_setting("engine.restart_delay=0"),
    "restart delay 31 s": with_setting("engine.restart_delay=31"),
    "noise frozen at its start": with_profiles(frozen_noise),
    "noise frozen at its end": with_profiles(late_noise),
    "steps 10 % longer": with_profiles(slower_steps),
    "steps by no law": with_profiles(jagged_steps),
    "half the epochs": with_profiles(half_the_epochs),
    "applications at even odds": even_odds,
}

RUN_AGAIN = {"no restart delay", "restart delay 31 s", "noise frozen at its start"}
"""Perturbations that simulate runs again."""

OTHER_ARM = "another arm"
"""Perturbation that replaces an arm's values by those of another policy, interval, slowdown or phase."""


def other_arms(base: Base, row: Published) -> Iterator[list[Sample]]:
    """Yield samples in which a row's arm has the values of another arm."""
    arms = dict.fromkeys(s.arm for s in base.samples if s.metric == row.metric and s.arm != row.arm)
    kept = [sample for sample in base.samples if sample.arm != row.arm]
    # To have what it is compared with changes nothing where nothing is what was published.
    for other in [row.against] if row.against and row.value else arms:
        yield kept + [sample._replace(arm=row.arm) for sample in base.samples if sample.arm == other]


Matrix = dict[str, dict[str, bool | None]]
"""The verdict on each judged number, unmodified and under each perturbation."""


def matrix(experiment: Experiment, inputs: Inputs, place: RunPlace, *, until_red: bool = False) -> Matrix:
    """Return the verdicts of an experiment. With `until_red`, stop as soon as each number has turned red."""
    plan: ExperimentPlan = planned(experiment, inputs, 1)
    runs = gathered(experiment, inputs, plan.runs, make_runs(plan.runs, place))
    base = Base(runs, list(measure(runs)), place, inputs)
    published = [judged_here(runs, row) for row in over_the_same_workloads(runs)]
    found = {label(finding): {"unmodified": finding.verdict.passed} for finding in verdicts(base.samples, published)}
    for row in (row for row in published if row.measured.kind is not RuleKind.EVERY_JOB):
        others = [finding for samples in other_arms(base, row) for finding in verdicts(samples, [row])]
        passed = [finding.verdict.passed for finding in others]
        for finding in others[:1]:
            found[label(finding)][OTHER_ARM] = None if None in passed else all(passed)
    for name in sorted(PERTURBATIONS, key=RUN_AGAIN.__contains__):
        if until_red and all(False in cells.values() for cells in judged(found).values()):
            break
        for finding in verdicts(PERTURBATIONS[name](base), published):
            found[label(finding)][name] = finding.verdict.passed
    return judged(found)


def judged(found: Matrix) -> Matrix:
    return {row: cells for row, cells in found.items() if any(cell is not None for cell in cells.values())}


def judged_here(runs: Runs, row: Published) -> Published:
    """Return a row with the rule that holds if all workloads ran."""
    whole = next(other for other in runs.experiment.published if identity(other) == identity(row))
    return replace(row, measured=whole.measured)


def identity(row: Published) -> tuple[object, ...]:
    return (row.quantity, row.source)


def verdicts(samples: Iterable[Sample], published: list[Published]) -> list[PublishedFinding]:
    return compare(Samples(samples), published, must_match=True)


def label(finding: PublishedFinding) -> str:
    return f"{finding.published} ({finding.published.source.partition(',')[0]})"


SIGNS = {True: "met", False: "**red**", None: ""}


def table(title: str, found: Matrix) -> str:
    columns = [
        "unmodified",
        *(name for name in (OTHER_ARM, *PERTURBATIONS) if any(name in row for row in found.values())),
    ]
    columns = [name for name in columns if any(row.get(name) is not None for row in found.values())]
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[row, *(SIGNS[cells.get(name)] for name in columns)] for row, cells in found.items()]
    return f"## {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def one_workload(osdi21: Path, folder: Path, number: str = WORKLOAD) -> Path:
    """Make a folder of links to the artifact with one workload of each set, so that the runs have the same keys."""
    for path in (*osdi21.glob(f"workloads*/workload-{number}.csv"), *osdi21.glob("results-*")):
        link = folder / path.relative_to(osdi21)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(path.resolve())
    return folder


def matrices(
    osdi21: Path, out: Path, chosen: Iterable[str], *, until_red: bool = False
) -> Iterator[tuple[Experiment, Matrix]]:
    inputs = Inputs(osdi21, one_workload(osdi21, out / "artifact"))
    for name in chosen:
        experiment = read_experiment(name)
        yield experiment, matrix(experiment, inputs, RunPlace(out / "runs"), until_red=until_red)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("POLLUXSIM_DATA", "../shared/data")) / "osdi21"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--out", type=Path, default=Path("perturbed"))
    parser.add_argument("names", nargs="*", default=experiment_names())
    options = parser.parse_args()
    print(INTRODUCTION)
    for experiment, found in matrices(options.data, options.out, options.names):
        print(table(experiment.title, found), flush=True)
        for row, cells in found.items():
            if False not in cells.values():
                print(f"{experiment.name}: nothing turns {row}", file=sys.stderr)


if __name__ == "__main__":
    main()
