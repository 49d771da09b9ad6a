"""`polluxsim why`: what decided about a job, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.durations import instant

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from polluxsim.records import ReasonRecord


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Say in words what decided about a job: its whole story, or with TIME what held at that moment. Policies of "
        "your own are explained by what they say of themselves, or else as far as the allocations tell."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("job", metavar="JOB", help="name of a job of it")
    parser.add_argument("time", nargs="?", metavar="TIME", help="time since the start, in seconds, as 1.5h or H:MM:SS")
    parser.set_defaults(action=_why)


def _why(options: Namespace) -> int:
    from polluxsim.look.console import console
    from polluxsim.look.why.story import at, find_job, story
    from polluxsim.storage import read_reasons, read_run

    moment = None if options.time is None else instant(options.time)
    run = read_run(options.run)
    job = find_job(run, options.job)
    recorded = read_reasons(options.run)
    reasons = recorded or ()
    screen = console()
    if moment is None:
        screen.print(story(run, reasons, job))
    else:
        screen.print(at(run, reasons, job, moment), markup=False)
    if note := _what_is_missing(options.job, recorded):
        screen.print(note, markup=False)
    return 0


def _what_is_missing(name: str, recorded: Sequence[ReasonRecord] | None) -> str | None:
    if recorded is None:
        return "No reasons were recorded in this run (it has no reasons.parquet); this is what the allocations say."
    if not any(reason.job == name for reason in recorded):
        return "The policy gave no reasons for this job; this is what the allocations say."
    return None
