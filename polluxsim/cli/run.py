"""`polluxsim run`: a Hydra application around one simulation."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from polluxsim.cli.finished_run import import_from_here
from polluxsim.cli.hydra_options import LIVE, MULTIRUN, check_options, may_set_mode, options_first, user_folders
from polluxsim.cli.run_help import with_meanings
from polluxsim.errors import InvalidConfigError
from polluxsim.look.console import console
from polluxsim.look.remarks import engine_waits, print_remarks
from polluxsim.look.run_cluster import steady_gpus
from polluxsim.look.table import SideBySide
from polluxsim.metrics.declared import values_in
from polluxsim.run.claim import claimed, claimed_anew
from polluxsim.run.config_folders import report_replaced, searched_first
from polluxsim.run.execution import Execution, resolved
from polluxsim.run.hydra_inside import mode_from_options
from polluxsim.run.hydra_words import hydra_in_words, is_hydras
from polluxsim.run.interrupt import interruptible, results_written, uninterrupted
from polluxsim.run.overrides import as_hydra_takes
from polluxsim.run.progress_line import progress
from polluxsim.shipped import shipped
from polluxsim.storage import Run, write_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from omegaconf import DictConfig


NAMED_BY_TIME = "${now:"
"""Text in the pattern of folders whose name contains the start time of the run."""


def run(arguments: Sequence[str]) -> None:
    """Compose the configuration from the command line and run it, or the sweep it describes."""
    # Hydra raises its errors, so that they can be printed in one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    import_from_here()  # modules of user policies
    # Hydra does not know --live, so it is removed.
    live = LIVE in arguments
    arguments = [argument for argument in arguments if argument != LIVE]
    if live and MULTIRUN & set(arguments):
        raise InvalidConfigError(f"{LIVE} shows one run, and -m makes several")
    arguments = options_first(arguments)
    check_options(arguments)
    sys.argv = ["polluxsim run", *as_hydra_takes(arguments)]
    outcome = _Outcome(live=live)
    explained = with_meanings() if {"--help", "-h"} & set(arguments) else nullcontext()
    mode = nullcontext() if may_set_mode(arguments) else mode_from_options()
    try:
        with searched_first(folders := user_folders(arguments)), explained, mode:
            report_replaced(folders)
            hydra.main(version_base="1.3", config_path=str(shipped("configs")), config_name="run")(outcome.task)()
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        if isinstance(error, ValueError) and not is_hydras(error):
            raise  # not about the configuration, so a defect
        raise InvalidConfigError(hydra_in_words(error)) from error
    if outcome.error is not None:
        raise outcome.error


class _Outcome:
    """Keep an error until Hydra has returned, because Hydra would add lines to it."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self.error: Exception | None = None
        self._started = time()

    def task(self, config: DictConfig) -> None:
        try:
            with _own_folder(config, self._started) as output:
                _run_one(config, output, live=self._live)
        except Exception as error:  # noqa: BLE001  (raised again when Hydra is done)
            self.error = error


def _own_folder(config: DictConfig, since: float) -> AbstractContextManager[Path]:
    """Return the folder that Hydra made for a run. If it is named by the time and not free, return another one."""
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    pattern = OmegaConf.to_container(hydra_config.run, resolve=False)
    if isinstance(pattern, dict) and NAMED_BY_TIME in str(pattern["dir"]):
        return claimed_anew(folder, since)
    return claimed(folder, lambda: resolved(config), since)


def _run_one(config: DictConfig, output: Path, *, live: bool) -> None:
    execution = Execution(config)
    for note in execution.workload.notes:
        print(f"{execution.workload.source}: {note}", file=sys.stderr)
    show_run = progress
    if live:
        from polluxsim.cli.live import live_view

        show_run = live_view
    with show_run(execution.workload, execution.cluster) as show, interruptible() as stop_if_interrupted:
        result, summary = execution.simulate(stop_if_interrupted, show)
    info = execution.info(summary)
    with uninterrupted():
        write_run(output, result, info)
        results_written()
    if summary is not None:
        gpus = [steady_gpus(Run(output.name, info, result))]
        console().print(SideBySide({output.name: summary}, gpus, user_values=[values_in(info)]))
    print(engine_waits(info["config"]["engine"]))
    print_remarks([output])
    print(f"wrote {output}")
