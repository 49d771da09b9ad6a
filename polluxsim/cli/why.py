"""`polluxsim why`: explain the decisions about a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help
from polluxsim.cli.finished_run import add_allowing, read_to_make_again, tell_classes
from polluxsim.durations import clock, instant

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from polluxsim.records import JobRecord, ReasonRecord
    from polluxsim.storage import Run


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Explain why a job waited, started, moved or changed its number of GPUs. Without TIME, the command explains "
        "every change of the job. The explanation of your own policy is what the policy records, or what its "
        "allocations show."
    )
    parser.epilog = "Example: polluxsim why RUN cifar10-97 3h"
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("job", metavar="JOB", help="name of a job")
    parser.add_argument("time", nargs="?", metavar="TIME", help=option_help.TIME)
    parser.add_argument("--brief", action="store_true",
                        help="do not search for changes that would have let a waiting job run")  # fmt: skip
    add_allowing(parser)
    parser.set_defaults(action=_why)


def _why(options: Namespace) -> None:
    from polluxsim.look.console import console
    from polluxsim.look.why.story import at, find_job, story, waits
    from polluxsim.storage import read_reasons

    moment = None if options.time is None else instant(options.time)
    run = read_to_make_again(options)
    job = find_job(run, options.job)
    recorded = read_reasons(options.run)
    reasons = recorded or ()
    screen = console()
    if moment is None:
        screen.print(story(run, reasons, job))
    else:
        screen.print(at(run, reasons, job, moment), markup=False)
        if not options.brief and waits(run, job, moment):
            screen.print(_otherwise(run, job, moment), markup=False)
    if note := _what_is_missing(options.job, recorded):
        screen.print(note, markup=False)


def _otherwise(run: Run, job: JobRecord, time: float) -> str:
    """Return after which least changes a job would have run that waits at a time [s], in a sentence."""
    from polluxsim.errors import PolluxSimError
    from polluxsim.look.why.story import would_have_run
    from polluxsim.run.least_change import Trial
    from polluxsim.run.moment import Moment

    try:
        tell_classes(run)
        moment = Moment(run, time)
        trial = Trial(moment, job.job)
        if not trial.is_there:
            return f"It was gone before the next round, at {clock(moment.time)}."
        least = trial.least()
    except PolluxSimError as error:
        return f"What would have let it run is not known: {error}."
    if least is None:
        return f"At {clock(moment.time)}, the next round, it runs."
    gpus = None if least.fewer_gpus is None else job.num_replicas - least.fewer_gpus
    ahead = "" if least.places is None else trial.ahead[-least.places]
    return would_have_run(moment.time, least.nodes, gpus, (least.places, ahead))


def _what_is_missing(name: str, recorded: Sequence[ReasonRecord] | None) -> str | None:
    if recorded is None:
        return "No reasons were recorded in this run (it has no reasons.parquet); this is what the allocations say."
    if not any(reason.job == name for reason in recorded):
        return "The policy gave no reasons for this job; this is what the allocations say."
    return None
