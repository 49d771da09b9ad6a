"""The commands that turn files into other files or into a table."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from polluxsim.applications.card import CardProfile
from polluxsim.applications.card_files import fit_cards, write_cards
from polluxsim.applications.osdi21 import read_profiles
from polluxsim.errors import InvalidInputError
from polluxsim.folders import runs_below
from polluxsim.logs import report_text
from polluxsim.logs.importing import import_trace
from polluxsim.look.console import console
from polluxsim.look.fitted_speed import error_table, fitted_speed
from polluxsim.look.plot.style import save
from polluxsim.look.plot.throughput import throughput
from polluxsim.look.reading import PARQUET, frame_at
from polluxsim.look.replication import settings_table
from polluxsim.look.settings_text import FORMS, as_text
from polluxsim.look.table import MOST_COLUMNS, comparison
from polluxsim.metrics.summary import summarise
from polluxsim.storage import read_run

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from pathlib import Path


def show_table(options: Namespace) -> int:
    """Print a few runs side by side, or settings with their means and changes."""
    if options.form or options.metric or options.against or not _are_few_runs(options.runs):
        table = settings_table(frame_at(options.runs), options.metric or (), options.against)
        width = console().width if sys.stdout.isatty() else 80
        print(as_text(table, width) if options.form is None else FORMS[options.form](table))
        return 0
    summaries = {}
    for folder in options.runs:
        run = read_run(folder)
        summary = summarise(run.result)
        if summary is None:
            raise InvalidInputError(f"{folder}: a run without jobs has nothing to show")
        name = run.name if run.name not in summaries else str(folder)
        summaries[name] = summary
    console().print(comparison(summaries))
    return 0


def _are_few_runs(paths: Sequence[Path]) -> bool:
    return len(paths) <= MOST_COLUMNS and not any(path.suffix == PARQUET or runs_below(path) for path in paths)


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
    print(json.dumps(report.as_json(), indent=2) if options.json else report_text.as_text(report))
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
        speeds = [fitted_speed(profile, CardProfile(card), card.about.title) for profile, card in pairs]
        save(throughput(speeds), plot)
        print(f"wrote {plot}")
    return 0
