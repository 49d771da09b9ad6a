"""`polluxsim why`: explain what happened to a job of a finished run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from polluxsim.cli.options import add_option, add_run
from polluxsim.cli.past_run import check_classes_of, read_past_run
from polluxsim.records.results import JobRecord, ReasonRecord
from polluxsim.records.storage import Run


def add_why(parser: ArgumentParser) -> None:
    parser.description = (
        "Explain why a job waited, started, moved or changed its number of GPUs. Without --at, the command prints a "
        "summary of its waits and changes, and explains every change. The explanation of your own policy is what the "
        "policy records, or what its allocations show."
    )
    parser.epilog = "Example: polluxsim why RUN cifar10-97 --at 3h"
    add_run(parser)
    parser.add_argument("job", metavar="JOB", help="name of a job, as in the jobs.parquet of the run")
    add_option(parser, "at")
    add_option(parser, "brief")
    add_option(parser, "allow-classes", default=[])
    parser.set_defaults(action=_why)


def _why(options: Namespace) -> None:
    """Print the explanation of a job at one time, or of all its changes."""
    from polluxsim.look.console import console
    from polluxsim.look.why.overview import overview
    from polluxsim.look.why.story import at, find_job, story, waits
    from polluxsim.records.storage import read_reasons

    run = read_past_run(options.run, options.allow_classes)
    time = None if options.at is None else run.seconds(options.at)
    # A wrong name is reported before the reasons are read, a large table.
    job = find_job(run, options.job)
    recorded_reasons = read_reasons(options.run)
    reasons = recorded_reasons or ()
    screen = console()
    if time is None:
        summary = overview(run, reasons, job)
        if summary:
            screen.print(summary, markup=False)
        screen.print(story(run, reasons, job))
    else:
        # Names of jobs may contain brackets, which rich would read as markup.
        screen.print(at(run, reasons, job, time), markup=False)
        if not options.brief and waits(run, job, time):
            screen.print(_least_changes(run, job, time), markup=False)
    note = _note_on_missing_reasons(options.job, recorded_reasons)
    if note is not None:
        screen.print(note, markup=False)


def _least_changes(run: Run, job: JobRecord, time: float) -> str:
    """Return a sentence on small changes with which a job that waits at a time [s] would have run.

    `Trial` tries the changes in the run, which is simulated again. If that is impossible, the sentence gives the reason
    in place of an error, because the recorded explanation is an answer without it.
    """
    from polluxsim.common.errors import PolluxSimError
    from polluxsim.look.why.story import would_have_run
    from polluxsim.run.moment import RunMoment, Trial

    try:
        check_classes_of(run)
        moment = RunMoment(run, time)
        trial = Trial(moment, job.job)
        if not trial.is_active:
            return f"It was gone before the next round, at {run.clock(moment.time)}."
        least_change = trial.least()
    except PolluxSimError as error:
        return f"What would have let it run is not known: {error}."
    if least_change is None:
        return f"At {run.clock(moment.time)}, the next round, it runs."
    gpus = None
    if least_change.fewer_gpus is not None:
        gpus = job.num_replicas - least_change.fewer_gpus
    overtaken_job = ""
    if least_change.places is not None:
        overtaken_job = trial.ahead[-least_change.places]
    return would_have_run(run.clock(moment.time), least_change.nodes, gpus, (least_change.places, overtaken_job))


def _note_on_missing_reasons(name: str, reasons: Sequence[ReasonRecord] | None) -> str | None:
    """Return a sentence if a run has no reasons, or none for the job `name`. `reasons` is None without their file."""
    if reasons is None:
        return "No reasons were recorded in this run (it has no reasons.parquet); this is what the allocations say."
    if not any(reason.job == name for reason in reasons):
        return "The policy gave no reasons for this job; this is what the allocations say."
    return None
