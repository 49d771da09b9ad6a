"""Perturb the rules of the schedulers in experiments/conformance, and list which published numbers are then missed.

python benchmarks/perturbed_schedulers.py [--data ../shared/data] [--out FOLDER] [SYSTEM ...] >> docs/perturbations.md
python benchmarks/perturbed_schedulers.py --widths [SYSTEM ...]

The second form writes the smallest of `WIDTHS` that the unmodified program meets into experiments/conformance/*.csv.
Finished runs are kept in FOLDER; delete it after a change of the simulator. All runs take about an hour on one core.
"""

from __future__ import annotations

import os

# Before NumPy is loaded, as the command line does: small matrices on many threads take ten times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import multiprocessing
import re
import sys
import zlib
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np

from polluxsim.common.shipped import shipped
from polluxsim.engine import sharing
from polluxsim.models.stages import MOST_JOBS
from polluxsim.policies.deadlines import elasticflow
from polluxsim.policies.ordered import classic
from polluxsim.policies.replay import Timeline
from polluxsim.policies.sharing import muri
from polluxsim.policies.sia.configurations import configurations
from polluxsim.policies.typed import rules
from polluxsim.records.storage import write_run
from polluxsim.run.execution import Execution
from polluxsim.statistics.estimates import Samples
from polluxsim.studies.paper.conformance import with_data
from polluxsim.studies.paper.experiments import Experiment, Inputs, other_systems, read_experiment
from polluxsim.studies.paper.measures import measure
from polluxsim.studies.paper.published import PublishedFinding, RuleKind, VerdictRule, compare, judge
from polluxsim.studies.paper.runs import Made, Runs, planned
from polluxsim.studies.paper.verdict_tables import difference_text
from polluxsim.studies.plan import composer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from polluxsim.policies.contract.view import JobView
    from polluxsim.studies.paper.runs import Planned

WIDTHS = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Tolerances for published numbers: shares of the value, or differences of a share."""


class Perturbation(NamedTuple):
    """A change of a scheduler's rule: settings, and functions by dotted name with their replacements."""

    words: str
    overrides: tuple[str, ...] = ()
    patches: Mapping[str, object] = {}


UNCHANGED = Perturbation("unmodified")


class Case(NamedTuple):
    """A scheduler with published numbers, the arms to run for it, and its perturbations."""

    system: str  # an experiment of experiments/conformance
    scheduler: str  # as the page names it
    arms: tuple[str, ...]
    perturbations: tuple[Perturbation, ...]
    beside: tuple[str, ...] = ()  # arms for comparison, which are not perturbed


def greedy_pairs(kinds: Sequence[muri.Kind]) -> list[tuple[int, int]]:
    """Match each pack in order with the best partner left."""
    left, pairs = list(range(len(kinds))), []
    while left:
        one = left.pop(0)
        partners = [other for other in left if len(kinds[one]) + len(kinds[other]) <= MOST_JOBS]
        if partners:
            best = max(partners, key=lambda other: muri.weight(muri.joined(kinds[one], kinds[other])))
            left.remove(best)
            pairs.append((one, best))
    return pairs


def faster(step_time: Callable[..., float]) -> Callable[..., float]:
    """Return a step time divided by 1.05."""
    return lambda *arguments: step_time(*arguments) / 1.05


def submitted(job: JobView) -> float:
    """Order jobs by submission."""
    return job.submit_time


def misjudged(remaining_time: Callable[..., float]) -> Callable[..., float]:
    """Multiply remaining times by a factor between 1/2 and 2, drawn once for each job."""

    def wrong(job: JobView) -> float:
        return remaining_time(job) * 2 ** (zlib.crc32(job.job_id.encode()) % 201 / 100 - 1)

    return wrong


def demote_by_time(policy: Any, job: JobView) -> None:
    """Move a job to a later queue by the time it has run, in place of its GPU time."""
    queue, time = policy._queue_of[job.job_id], job.attained_service / job.num_replicas
    if time >= policy._limits[queue]:
        del policy._queue_of[job.job_id]
        policy._queue_of[job.job_id] = next(i for i, limit in enumerate(policy._limits) if time < limit)


def time_until_demoted(policy: Any, job: JobView) -> float:
    """Return how long a job may run in its queue, by the time it has run."""
    return policy._limits[policy._queue_of[job.job_id]] - job.attained_service / job.num_replicas


def at_most_requested(job: JobView, num_gpus: int) -> Sequence[int]:
    """Return the powers of two up to the GPUs that the user asked for."""
    counts = elastic_edf_counts(job, num_gpus)
    return [gpus for gpus in counts if gpus <= job.num_replicas] or counts[:1]


elastic_edf_counts = elasticflow.powers_of_two
remaining_time = classic.remaining_time
allox_matched = rules.matched
timeline_at = Timeline._at

TIRESIAS = (
    Perturbation("one queue", ("policy.queue_limits=[]",)),
    Perturbation("queue limits ten times as high", ("policy.queue_limits=[32500,72000]",)),
    Perturbation(
        "jobs change queues by time, not by GPU time",
        patches={
            "polluxsim.policies.ordered.attained_service.TiresiasL._demote": demote_by_time,
            "polluxsim.policies.ordered.attained_service.TiresiasL._time_left": time_until_demoted,
        },
    ),
)
GREEDY = Perturbation("greedy matching", patches={"polluxsim.policies.sharing.muri.matched": greedy_pairs})
FASTER_PACKS = Perturbation(
    "shared steps 5 % faster",
    patches={"polluxsim.engine.sharing.interleaved": faster(sharing.interleaved)},
)
NEWCOMERS = Perturbation("GPUs of newcomers are used at once", ("policy.idle_newcomers=false",))
NO_OVERTAKING = Perturbation("no gang overtakes another", ("policy.overtaking=false",))
BY_SHARE = Perturbation(
    "jobs go first by share alone, whatever time they had",
    patches={
        "polluxsim.policies.typed.rounds.RoundsOfShares._rank": lambda policy, view, pair, speed: (
            -policy._time_shares.get(pair[0], {}).get(pair[1], 0.0) if speed > 0 else 0.0
        )
    },
)
EQUAL_TIME = Perturbation(
    "equal time in place of equal GPUs", ("policy.shares._target_=polluxsim.policies.typed.rules.GandivaFair",)
)
EQUAL_GPUS = Perturbation(
    "equal GPUs in place of equal time", ("policy.shares._target_=polluxsim.policies.typed.rules.Isolated",)
)
ALLOX = (
    Perturbation("all jobs take part in the matching", ("policy.shares.oldest=1.0",)),
    Perturbation(
        "remaining steps are ignored",
        patches={
            "polluxsim.policies.typed.rules.matched": lambda left, *others: allox_matched(np.ones_like(left), *others)
        },
    ),
    NEWCOMERS,
)

CASES = (
    Case(
        "muri",
        "SRTF",
        ("SRTF trace3",),
        (
            Perturbation(
                "order of submission", patches={"polluxsim.policies.ordered.classic.remaining_time": submitted}
            ),
            Perturbation(
                "remaining time × GPUs in place of remaining time",
                patches={
                    "polluxsim.policies.ordered.classic.remaining_time": lambda job: (
                        remaining_time(job) * job.num_replicas
                    )
                },
            ),
            Perturbation(
                "remaining times wrong by a factor of up to 2",
                patches={"polluxsim.policies.ordered.classic.remaining_time": misjudged(remaining_time)},
            ),
        ),
    ),
    Case(
        "muri",
        "SRSF",
        ("SRSF trace3",),
        (
            Perturbation(
                "order of submission", patches={"polluxsim.policies.ordered.classic.remaining_time": submitted}
            ),
            Perturbation(
                "remaining time in place of remaining time × GPUs",
                patches={
                    "polluxsim.policies.ordered.classic.remaining_time": lambda job: (
                        remaining_time(job) / job.num_replicas
                    )
                },
            ),
            Perturbation(
                "remaining times wrong by a factor of up to 2",
                patches={"polluxsim.policies.ordered.classic.remaining_time": misjudged(remaining_time)},
            ),
        ),
    ),
    Case("muri", "Tiresias-L", ("Tiresias-L trace3",), TIRESIAS),
    Case(
        "muri",
        "AntMan",
        ("AntMan trace3",),
        (
            Perturbation(
                "jobs beside another run as if alone", patches={"polluxsim.engine.sharing._loss_beside": lambda *_: 0.0}
            ),
            Perturbation(
                "no job runs beside another",
                patches={"polluxsim.policies.sharing.antman.goes_beside": lambda *_: False},
            ),
            Perturbation(
                "no job has a guarantee", patches={"polluxsim.policies.sharing.antman._is_guest": lambda _: True}
            ),
        ),
    ),
    Case(
        "muri",
        "Muri-S",
        ("Muri-S trace3",),
        (
            GREEDY,
            FASTER_PACKS,
            Perturbation(
                "remaining time in place of remaining time × GPUs",
                patches={
                    "polluxsim.policies.ordered.classic.remaining_time": lambda job: (
                        remaining_time(job) / job.num_replicas
                    )
                },
            ),
        ),
    ),
    Case(
        "muri",
        "Muri-L",
        ("Muri-L trace3",),
        (
            FASTER_PACKS,
            Perturbation("packs of two at most", patches={"polluxsim.policies.sharing.muri.MOST_JOBS": 2}),
            Perturbation("remaining service in place of attained service", ("policy.knows_durations=true",)),
        ),
    ),
    Case(
        "elasticflow",
        "EDF",
        ("EDF",),
        (
            Perturbation("order of submission", patches={"polluxsim.policies.deadlines.elasticflow.due": submitted}),
            Perturbation(
                "latest deadline first",
                patches={"polluxsim.policies.deadlines.elasticflow.due": lambda job: -job.deadline},
            ),
            Perturbation(
                "no more GPUs than asked for",
                patches={"polluxsim.policies.deadlines.elasticflow.powers_of_two": at_most_requested},
            ),
        ),
    ),
    Case("elasticflow", "Tiresias", ("Tiresias",), TIRESIAS),
    Case(
        "elasticflow",
        "ElasticFlow",
        ("ElasticFlow",),
        (
            Perturbation(
                "spare GPUs are not given out",
                patches={"polluxsim.policies.deadlines.elasticflow.Schedule.spread": lambda schedule, demands: None},
            ),
            Perturbation(
                "deadlines counted from the submission",
                patches={"polluxsim.policies.deadlines.elasticflow.due": lambda job: job.submit_time + job.deadline},
            ),
            Perturbation("jobs are admitted one by one", ("policy.together=false",)),
        ),
    ),
    Case(
        "elasticflow",
        "Pollux",
        ("Pollux",),
        (
            Perturbation("fairness power 1 in place of −1", ("policy.p=1.0",)),
            Perturbation("jobs keep the batch sizes of their users", ("agent=fixed",)),
            Perturbation("fairness power −10 in place of −1", ("policy.p=-10.0",)),
        ),
    ),
    Case(
        "gavel",
        "LAS by type",
        ("LAS by type",),
        (Perturbation("all GPU types count as equally fast", ("policy.shares.agnostic=true",)), NEWCOMERS, BY_SHARE),
    ),
    Case("gavel", "Gandiva-fair", ("Gandiva-fair",), (EQUAL_GPUS, NEWCOMERS, BY_SHARE)),
    Case("gavel", "Isolated", ("Isolated",), (EQUAL_TIME, NEWCOMERS, BY_SHARE)),
    Case("gavel", "AlloX", ("AlloX",), ALLOX),
    Case(
        "shockwave",
        "LAS",
        ("LAS",),
        (EQUAL_TIME._replace(overrides=(*EQUAL_TIME.overrides, "~policy.shares.agnostic")), NEWCOMERS, BY_SHARE),
    ),
    Case("shockwave", "Gandiva-fair", ("Gandiva-fair",), (EQUAL_GPUS, NEWCOMERS, BY_SHARE)),
    Case("shockwave", "AlloX", ("AlloX",), (ALLOX[0], NEWCOMERS, BY_SHARE)),
    Case(
        "shockwave",
        "Shockwave",
        ("Shockwave",),
        (
            Perturbation("no job counts as late", ("policy.most_unfairness=1e9",)),
            Perturbation("no weight on the longest job", ("policy.weight_of_longest=0.0",)),
            Perturbation(
                "jobs get their planned rounds in order of submission",
                patches={"polluxsim.policies.sized.shockwave.Shockwave._rank": lambda policy, job: job.submit_time},
            ),
        ),
    ),
    Case(
        "shockwave",
        "Replay",
        ("AlloX replayed",),
        (
            Perturbation(
                "the schedule is one round late",
                patches={
                    "polluxsim.policies.replay.Timeline._at": lambda policy, job, time: timeline_at(
                        policy, job, time - 120
                    )
                },
            ),
            Perturbation("a late job keeps its GPUs only if they are free", ("policy.late_first=false",)),
            Perturbation("jobs end when their planned training is over", ("workload.overtime=1.0",)),
        ),
    ),
    Case(
        "sia",
        "Sia",
        ("Sia 1.6",),
        (
            Perturbation(
                "jobs have one GPU at most",
                patches={
                    "polluxsim.policies.sia.policy.configurations": lambda view, gangs=(): [
                        each for each in configurations(view, gangs) if each.gpus == 1
                    ]
                },
            ),
            Perturbation(
                "jobs keep their first configuration",
                patches={"polluxsim.policies.sia.policy.Sia._is_restarting": lambda policy, view, job: True},
            ),
            Perturbation(
                "only the slowest GPU type is used",
                patches={
                    "polluxsim.policies.sia.policy.configurations": lambda view, gangs=(): [
                        each for each in configurations(view, gangs) if each.gpu_type == "t4"
                    ]
                },
            ),
        ),
        beside=("Pollux 1.6", "Gavel 1.6"),
    ),
)


class Study(NamedTuple):
    """An experiment, the inputs of its runs, and the folders of data and of runs."""

    experiment: Experiment
    inputs: Inputs
    data: Path
    out: Path

    def plan(self, arms: Iterable[str]) -> list[Planned]:
        """Return the runs of some arms; an experiment on generated workloads has `SEEDS` for each."""
        chosen = tuple(arm for arm in self.experiment.arms if arm.name in set(arms))
        return list(planned(replace(self.experiment, arms=chosen), self.inputs, SEEDS).runs)

    def jobs(self, case: Case, change: Perturbation) -> list[Job]:
        """Return the runs of a case: its arms under a perturbation, the arms for comparison unmodified."""
        workloads = [""] if self.experiment.needs_data else [str(seed) for seed in range(1, SEEDS + 1)]
        scheduler = "" if change is UNCHANGED else case.scheduler
        perturbed = [Job(case.system, scheduler, change.words, arm, each) for arm in case.arms for each in workloads]
        beside = [Job(case.system, "", UNCHANGED.words, arm, each) for arm in case.beside for each in workloads]
        return perturbed + beside

    def findings(self, jobs: Sequence[Job]) -> list[PublishedFinding]:
        """Judge the published numbers of the arms of some runs; make the runs that are missing."""
        arms = {arm.name: arm for arm in self.experiment.arms}
        made = tuple(Made(arms[job.arm], job.workload, 0, run(job, self.data, self.out)) for job in jobs)
        ran = {job.arm for job in jobs}
        rows = [row for row in self.experiment.published if row.arm in ran and row.against in ran | {""}]
        samples = Samples(measure(Runs(self.experiment, self.inputs, self.inputs.load_profiles(), made)))
        return compare(samples, rows, must_match=self.experiment.needs_data)


SEEDS = 1


def study_of(system: str, data: Path, out: Path) -> Study:
    """Return the study of a system; numbers that are not judged are left out."""
    experiment, own = read_experiment(system), data / "osdi21"
    if not experiment.needs_data:
        rows = tuple(row for row in experiment.published if row.embedded.kind is not RuleKind.NONE)
        return Study(replace(experiment, published=rows), Inputs(), data, out)
    inputs = Inputs(*((own, own) if own.is_dir() else ()), data=data)
    return Study(with_data(experiment, inputs, everything=True), inputs, data, out)


class Job(NamedTuple):
    """One run, by names: an arm of an experiment on a workload, under a perturbation."""

    system: str
    scheduler: str  # "" for the unmodified program
    words: str  # of the perturbation
    arm: str
    workload: str = ""

    @property
    def folder(self) -> Path:
        parts = (self.system, self.scheduler or "unmodified", self.words, f"{self.arm} {self.workload}".strip())
        return Path(*(re.sub(r"[^\w.+-]+", "-", part) for part in parts))

    @property
    def perturbation(self) -> Perturbation:
        cases = (case for case in CASES if (case.system, case.scheduler) == (self.system, self.scheduler))
        return next((each for case in cases for each in case.perturbations if each.words == self.words), UNCHANGED)


def run(job: Job, data: Path, out: Path) -> Path:
    """Make a run unless it is there; return its folder."""
    folder = out / job.folder
    if not (folder / "run.json").is_file():
        (plan,) = (each for each in study_of(job.system, data, out).plan([job.arm]) if each.workload == job.workload)
        change = job.perturbation
        with ExitStack() as stack:
            for name, replacement in change.patches.items():
                stack.enter_context(patch(name, replacement))
            execution = Execution(composer().compose([*plan.overrides, *change.overrides]))
            finished = execution.simulate()
        write_run(folder, finished.result, finished.info)
    return folder


def run_all(jobs: Iterable[Job], data: Path, out: Path, workers: int) -> None:
    """Make each run in a process of its own, because some functions cache results."""
    missing = [job for job in dict.fromkeys(jobs) if not (out / job.folder / "run.json").is_file()]
    with multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        for folder in pool.imap(partial(run, data=data, out=out), missing, chunksize=1):
            print(f"made {folder}", file=sys.stderr, flush=True)


def turned(before: Sequence[PublishedFinding], after: Sequence[PublishedFinding]) -> list[PublishedFinding]:
    """Return the numbers that the unmodified program meets and the perturbed one misses, the furthest off first."""
    met = {finding.published for finding in before if finding.verdict.passed}
    red = [finding for finding in after if finding.published in met and finding.verdict.passed is not True]
    return sorted(red, key=lambda finding: -times_too_far(finding))


def times_too_far(finding: PublishedFinding) -> float:
    """Return how many times as far as allowed a number is off."""
    if finding.off is None or not finding.rule.width:
        return 0.0
    return abs(finding.off) / finding.rule.width


def section(case: Case, study: Study) -> str:
    """Return the page's section on a scheduler."""
    before = study.findings(study.jobs(case, UNCHANGED))
    met = sum(finding.verdict.passed is True for finding in before)
    lines = [
        f"#### {case.scheduler}\n",
        f"The unmodified program meets {met} of {len(before)} numbers for {', '.join(case.arms)}.\n",
        "| perturbation | red | furthest off | difference | tolerance |",
        "|---|---|---|---|---|",
    ]
    for change in case.perturbations:
        red = turned(before, study.findings(study.jobs(case, change)))
        worst = red[0] if red else None
        cells = (
            (str(worst.published), difference_text(worst).replace("-", "−"), str(worst.rule)) if worst else ("", "", "")
        )
        lines.append(f"| {change.words} | {f'**{len(red)} of {met}**' if red else 'none'} | {' | '.join(cells)} |")
        if not red:
            print(f"{case.system}, {case.scheduler}: nothing turns red by: {change.words}", file=sys.stderr)
    return "\n".join(lines) + "\n"


def narrowest(finding: PublishedFinding) -> VerdictRule:
    """Return the rule of a finding with the smallest of `WIDTHS` that is met, the largest if none is."""
    if finding.ours is None:
        return finding.rule
    rules = [finding.rule._replace(width=width) for width in WIDTHS]
    passing = (rule for rule in rules if judge(finding.ours.estimate, finding.published, rule).passed)
    return next(passing, rules[-1])


def write_widths(study: Study, jobs: Sequence[Job]) -> None:
    """Write the narrowest tolerances into the file of a system's published numbers."""
    widths = {
        (*finding.published.quantity, finding.published.source): str(narrowest(finding))
        for finding in study.findings(jobs)
        if finding.rule.kind in (RuleKind.WITHIN, RuleKind.POINTS)
    }
    path = shipped("experiments") / study.experiment.group / f"{study.experiment.name}.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        key = (row["metric"], row["arm"], row["against"], row["source"])
        row["measured"] = widths.get(key, row["measured"])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


INTRODUCTION = f"""
## Schedulers of other papers

`python benchmarks/perturbed_schedulers.py` writes this section. It perturbs the rule of each scheduler with published
numbers in `experiments/conformance`. Each table has the share of the met numbers that a perturbation misses, and the
number that is furthest off, in multiples of its tolerance. The tolerance is the smallest of
{", ".join(f"{100 * width:g}" for width in WIDTHS[:-1])} and {100 * WIDTHS[-1]:g} % that the unmodified program meets.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLLUXSIM_DATA", "../shared/data")))
    parser.add_argument("--out", type=Path, default=Path("perturbed-schedulers"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--widths", action="store_true")
    parser.add_argument("systems", nargs="*", default=other_systems())
    options = parser.parse_args()
    data = options.data.resolve()
    studies = {system: study_of(system, data, options.out) for system in options.systems}
    if options.widths:
        for system, study in studies.items():
            if study.experiment.needs_data:
                jobs = [Job(system, "", UNCHANGED.words, arm.name) for arm in study.experiment.arms]
                run_all(jobs, data, options.out, options.workers)
                write_widths(study, jobs)
        return
    print(INTRODUCTION)
    for system, study in studies.items():
        cases = [case for case in CASES if case.system == system]
        jobs = [job for case in cases for each in (UNCHANGED, *case.perturbations) for job in study.jobs(case, each)]
        run_all(jobs, data, options.out, options.workers)
        print(f"### {study.experiment.title}\n")
        for case in cases:
            print(section(case, study), flush=True)


if __name__ == "__main__":
    main()
