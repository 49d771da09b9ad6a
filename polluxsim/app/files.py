"""The commands that turn files into other files or into a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from polluxsim.analysis.fit_figure import compare, draw, error_table
from polluxsim.analysis.table import comparison
from polluxsim.app.console import console
from polluxsim.errors import InvalidInputError
from polluxsim.metrics.summary import summarise
from polluxsim.models.card import CardProfile
from polluxsim.storage import RUN_FILE, read_run
from polluxsim.traces.cards import fit_cards, write_cards
from polluxsim.traces.importing import import_trace
from polluxsim.traces.osdi21 import read_profiles
from polluxsim.traces.store import ProfileFolder, write_store
from polluxsim.workloads.philly_like import PhillyLike
from polluxsim.workloads.sampling import PhillySample
from polluxsim.workloads.workload import write_workload

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from pathlib import Path


def show_table(folders: Sequence[Path]) -> int:
    """Print runs side by side; a folder of several runs stands for all of them."""
    summaries = {}
    for folder in run_folders(folders):
        run = read_run(folder)
        summary = summarise(run.result)
        if summary is None:
            raise InvalidInputError(f"{folder}: a run without jobs has nothing to show")
        name = run.name if run.name not in summaries else str(folder)
        summaries[name] = summary
    console().print(comparison(summaries))
    return 0


def import_profiles(source: Path, destination: Path) -> int:
    """Check the artifact's measurements and write them as Parquet."""
    profiles = read_profiles(source)
    write_store(profiles, destination)
    rows = sum(len(profile.placements) + len(profile.scalability) for profile in profiles.values())
    epochs = sum(len(run) for profile in profiles.values() for run in profile.validations.values())
    print(f"{destination}: {len(profiles)} profiles ({', '.join(profiles)}), {rows} step times, {epochs} epochs")
    return 0


def import_log(options: Namespace) -> int:
    """Read a cluster's log, write it as one Parquet file, and print the report."""
    report = import_trace(
        options.format,
        options.source,
        options.destination,
        skip_bad=options.skip_bad,
        cluster_gpus=options.gpus,
        time_zone=options.time_zone,
    )
    print(json.dumps(report.as_json(), indent=2) if options.json else report.as_text())
    return 0


def fit_profiles(measured: Path, output: Path, plot: Path | None) -> int:
    """Fit a card to every measured application, write the cards, and print their errors."""
    cards = fit_cards(measured)
    for path in write_cards(cards, output):
        print(f"wrote {path}")
    print(error_table(cards))
    if plot is not None:
        profiles = read_profiles(measured)
        pairs = [(profiles[card.application.name], card) for card in cards.values()]
        draw([compare(profile, CardProfile(card), card.about.title) for profile, card in pairs], plot)
        print(f"wrote {plot}")
    return 0


def sample_workload(options: Namespace) -> int:
    """Draw a workload from the Philly trace and write it."""
    source = PhillySample(str(options.trace), options.jobs, tuned=not options.realistic, seed=options.seed)
    return _write_drawn(source, options)


def generate_workload(options: Namespace) -> int:
    """Draw a workload by the statistics of the Philly trace and write it."""
    return _write_drawn(PhillyLike(options.jobs, options.hours, not options.realistic, options.seed), options)


def _write_drawn(source: PhillySample | PhillyLike, options: Namespace) -> int:
    output: Path = options.output
    if output.suffix != ".csv":
        raise InvalidInputError(f"{output}: allowed is the name of a file that ends in .csv")
    folder = ProfileFolder(None if options.profiles is None else str(options.profiles))
    workload = source.load(folder.load())
    output.parent.mkdir(parents=True, exist_ok=True)
    write_workload(workload, output)
    print(f"{output}: {len(workload.jobs)} jobs")
    return 0


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs, with those that hold several in their place."""
    found = []
    for folder in folders:
        inside = sorted(path.parent for path in folder.glob(f"*/{RUN_FILE}"))
        found += [folder] if (folder / RUN_FILE).is_file() or not inside else inside
    return found
