"""`polluxsim run -m`: a sweep as Hydra describes it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.core.hydra_config import HydraConfig
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from polluxsim.cli.run import check_any_ran
from polluxsim.common.files import appearing_whole
from polluxsim.look.console import console
from polluxsim.look.descriptions import print_remarks
from polluxsim.look.settings_tables import as_text
from polluxsim.metrics.declared import frame_of_table
from polluxsim.records.folders import info_of
from polluxsim.statistics.comparisons import settings_table
from polluxsim.studies.driver import DATASET, complete
from polluxsim.studies.launching import chosen_workers
from polluxsim.studies.plan import Composer, Entry, entry_of

MOST_ROWS = 40  # sweeps of more settings than this print no table of them


def sweep_by_command(
    plan: Sequence[Sequence[str]], config: DictConfig, context: HydraContext, workers: int | None, cache: str | None
) -> None:
    """Complete a sweep and print its results.

    `plan` contains the overrides of each run. `config` is the configuration that Hydra composed for the whole sweep,
    and `context` composes the configuration of each run from it. `workers` is the number of processes, and `cache` a
    folder of finished runs that are copied instead of made. Raise SweepError if a run fails.
    """
    folder = Path(config.hydra.sweep.dir)
    processes = chosen_workers(config, context, workers)  # may set defaults, before the configuration is read-only
    planned = _composed(plan, folder, config, context)
    copies = None if cache is None else Path(cache)
    done, entries, table = complete(planned, folder, processes, copies, check_first=True)
    with appearing_whole(folder / "multirun.yaml") as temporary:
        OmegaConf.save(config, temporary)
    _print_results(frame_of_table(table))
    print_remarks([entry.folder for entry in entries])
    found = f", {len(entries) - done} of them found finished" if done < len(entries) else ""
    print(f"wrote {folder / DATASET}: {len(entries)} runs{found}")
    check_any_ran({entry.folder: info_of(entry.folder) for entry in entries})


def _composed(plan: Sequence[Sequence[str]], folder: Path, config: DictConfig, context: HydraContext) -> list[Entry]:
    """Return the entries of a plan, with folders named by `hydra.sweep.subdir`."""
    entries = []
    # Unresolved, because each run has another ${seed}.
    common: Any = OmegaConf.to_container(config.hydra.overrides.hydra, resolve=False)
    composer = Composer(context.config_loader, common)
    try:
        for number, overrides in enumerate(plan):
            composed = composer.compose(overrides)
            OmegaConf.copy_cache(from_config=config, to_config=composed)  # one start time for all runs
            with open_dict(composed):
                composed.hydra.job.id = composed.hydra.job.num = number
            HydraConfig.instance().set_config(composed)
            entries.append(entry_of(overrides, composed, folder, str(composed.hydra.sweep.subdir)))
    finally:
        HydraConfig.instance().set_config(config)
    return entries


def _print_results(frame: pd.DataFrame) -> None:
    """Print a table of the settings of a sweep, if there are not too many settings for the screen."""
    if "avg_jct" not in frame:
        return  # no run had a job
    table = settings_table(frame)
    if len(table.cells) <= MOST_ROWS:
        print(as_text(table, console().width if sys.stdout.isatty() else 80))
