"""`polluxsim why`: what decided about a job, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidInputError
from polluxsim.look.console import console
from polluxsim.look.why.story import at, find_job, story
from polluxsim.storage import read_reasons, read_run

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.records import ReasonRecord


def why(folder: Path, name: str, time: str | None) -> int:
    """Print a job's story, or how it stood at a time, and why."""
    moment = None if time is None else seconds(time)
    run = read_run(folder)
    job = find_job(run, name)
    recorded = read_reasons(folder)
    reasons = recorded or ()
    screen = console()
    if moment is None:
        screen.print(story(run, reasons, job))
    else:
        screen.print(at(run, reasons, job, moment), markup=False)
    if note := _what_is_missing(name, recorded):
        screen.print(note, markup=False)
    return 0


def seconds(text: str) -> float:
    """Return a time in seconds, given so or as H:MM:SS or H:MM.

    >>> seconds("2:38:00"), seconds("90.5")
    (9480.0, 90.5)
    """
    parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    valid = numbers and len(numbers) <= 3 and all(math.isfinite(n) and n >= 0 for n in numbers)
    if not valid or any(number >= 60 for number in numbers[1:]):
        raise InvalidInputError(f"TIME is {text!r}, allowed are seconds ≥ 0, H:MM or H:MM:SS")
    if len(numbers) == 1:
        return numbers[0]
    return sum(number * unit for number, unit in zip(numbers, (3600, 60, 1), strict=False))


def _what_is_missing(name: str, recorded: tuple[ReasonRecord, ...] | None) -> str | None:
    if recorded is None:
        return "No reasons were recorded in this run (it has no reasons.parquet); this is what the allocations say."
    if not any(reason.job == name for reason in recorded):
        return "The policy gave no reasons for this job; this is what the allocations say."
    return None
