"""Finished runs, read with the profiles they were made with, and written as one interactive HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track

from polluxsim.errors import InvalidInputError
from polluxsim.files import appearing_whole
from polluxsim.folders import run_folders
from polluxsim.look.groups import baseline_first, settings_of
from polluxsim.look.lives import NO_LIVES, Lives
from polluxsim.look.own_profiles import own_profiles
from polluxsim.look.report import Subject, report
from polluxsim.record_tables import nothing_collected
from polluxsim.storage import read_reasons, read_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from polluxsim.records import ReasonRecord
    from polluxsim.storage import Run

SUFFIXES = (".html", ".htm")


@nothing_collected()
def write_report(folders: Sequence[Path], output: Path, baseline: str | None = None) -> None:
    """Write the report of finished runs in folders of runs or sweeps, whole or not at all.

    The folder of the HTML file is made if it is not there. The baseline comes first; by default it is the first run.

    Raises
    ------
    InvalidInputError
        If a folder holds no finished run, a run has no jobs, no run is the baseline, or the name of the output is not
        that of an HTML file.
    """
    check_output(output)
    screen = Console(stderr=True)
    found = track(run_folders(folders), "reading runs", console=screen, transient=True, disable=not screen.is_terminal)
    subjects = {id(run := read_run(folder)): subject_of(run, read_reasons(folder) or ()) for folder in found}
    ordered = baseline_first([subject.run for subject in subjects.values()], baseline)
    write_subjects([subjects[id(run)] for run in ordered], output)
    print(f"wrote {output}: {len(subjects)} run{'s' * (len(subjects) > 1)}, {output.stat().st_size / 1e6:.1f} MB")


def check_output(output: Path) -> None:
    """Raise an error where a report cannot be written under this name.

    Raises
    ------
    InvalidInputError
        If it is not that of an HTML file, or a folder's.
    """
    if output.suffix not in SUFFIXES:
        raise InvalidInputError(f"{output}: allowed is the name of a file that ends in {' or '.join(SUFFIXES)}")
    if output.is_dir():
        raise InvalidInputError(f"{output}: a folder, allowed is a file")


def write_subjects(subjects: Sequence[Subject], output: Path) -> None:
    """Write the report of runs at hand, whole or not at all."""
    check_output(output)
    text = report(subjects)
    output.parent.mkdir(parents=True, exist_ok=True)
    with appearing_whole(output) as temporary:
        temporary.write_text(text, encoding="utf-8")


def subject_of(run: Run, reasons: Sequence[ReasonRecord]) -> Subject:
    """Return a run with what is known beyond its tables.

    Raises
    ------
    InvalidInputError
        If it has no jobs.
    """
    run.must_have_jobs()
    return Subject(run, *_lives(run), reasons)


def _lives(run: Run) -> tuple[Lives, str]:
    """Return the lives of a run's jobs and where they are from, or none and why: a report can do without them."""
    try:
        own = own_profiles(run)
    except InvalidInputError as error:
        return NO_LIVES, f"Efficiency and progress are not shown: {error}."
    whole_seconds = settings_of(run).get("engine.whole_seconds")
    rule = "; it counts whole seconds, so that they are a little off" if whole_seconds else ""
    shown = f"Efficiency and progress are worked out from the recorded GPUs and batch sizes by {own.where}{rule}."
    return own.lives, shown
