"""`polluxsim run`: a Hydra application around one simulation."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from polluxsim.analysis.table import comparison
from polluxsim.app.building import build
from polluxsim.app.console import console
from polluxsim.app.interrupt import interruptible, uninterrupted
from polluxsim.app.progress import progress
from polluxsim.app.provenance import git_commit, versions
from polluxsim.engine.simulation import simulate
from polluxsim.errors import InvalidConfigError, PolluxSimError
from polluxsim.metrics.summary import summarise
from polluxsim.records import TimingRecord
from polluxsim.shipped import shipped
from polluxsim.storage import write_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.metrics.summary import Summary
    from polluxsim.policies.view import ClusterView
    from polluxsim.records import Result, RoundRecord
    from polluxsim.types import Allocation


# Hydra's options that take a value as the next word.
OPTIONS_WITH_VALUE = {
    "--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd", "--info",
    "-i", "--experimental-rerun",
}  # fmt: skip


TOP_LEVEL = ("cluster", "engine", "policy", "profiles", "workload", "seed")


def run(arguments: Sequence[str]) -> int:
    """Compose the configuration from the command line and run it, or the sweep it describes.

    Raises
    ------
    PolluxSimError
        If a setting, a file or a policy's answer is not what it should be.
    """
    # Errors come to us, who say them in one line, not to Hydra's own printer.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # A policy in a module beside the user can be named in a config, as it could be with `python -m`.
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    sys.argv = ["polluxsim run", *options_first(arguments)]
    outcome = _Outcome()
    try:
        hydra.main(version_base="1.3", config_path=str(shipped("configs")), config_name="run")(outcome.task)()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if outcome.is_composed and not isinstance(error, HydraException | OmegaConfBaseException):
            raise  # not about the configuration, so a defect
        raise InvalidConfigError(_in_words(error)) from error
    if outcome.error is not None:
        raise outcome.error
    return 0


def options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with options before overrides: Hydra's parser takes them in no other order.

    >>> options_first(["seed=1,2", "-m", "policy=fifo", "--config-dir", "conf"])
    ['-m', '--config-dir', 'conf', 'seed=1,2', 'policy=fifo']
    """
    options, overrides = list[str](), list[str]()
    left = iter(arguments)
    for argument in left:
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        options.append(argument)
        if argument in OPTIONS_WITH_VALUE and (value := next(left, None)) is not None:
            options.append(value)
    return options + overrides


class _Outcome:
    """Carries an error past Hydra, which would add lines of its own to it."""

    def __init__(self) -> None:
        self.error: PolluxSimError | OSError | None = None
        self.is_composed = False
        self._started = time()

    def task(self, config: DictConfig) -> None:
        self.is_composed = True
        hydra_config = HydraConfig.get()
        output = Path(hydra_config.runtime.output_dir)
        try:
            _run_one(config, output)
        except (PolluxSimError, OSError) as error:
            if hydra_config.mode is RunMode.MULTIRUN:
                # The other runs of a sweep go on; Hydra raises the first error when all have ended.
                raise
            self.error = error
        finally:
            if output.stat().st_mtime >= self._started:
                with suppress(OSError):
                    output.rmdir()  # made for this run, and nothing was written into it


def _run_one(config: DictConfig, output: Path) -> None:
    started = perf_counter()
    check_top_level(config)
    profiles = build(config, "profiles").load()
    workload = build(config, "workload").load(profiles)
    cluster = build(config, "cluster")
    loaded = perf_counter()
    policy, settings = build(config, "policy"), build(config, "engine")
    with progress(workload, cluster) as show, interruptible() as stop_if_interrupted:

        def watch(view: ClusterView, allocation: Allocation, record: RoundRecord) -> None:
            stop_if_interrupted()
            show(view, allocation, record)

        result = simulate(workload, profiles, cluster, policy, settings=settings, seed=config.seed, watcher=watch)
    result = _timed(result, load=loaded - started)
    summary = summarise(result)
    info = run_info(config, summary)
    with uninterrupted():
        write_run(output, result, info)
    if summary is not None:
        console().print(comparison({output.name: summary}))
    print(f"wrote {output}")


def check_top_level(config: DictConfig) -> None:
    """Check what belongs to no group: that nothing else is there, and the seed."""
    if unknown := sorted(set(map(str, config)) - set(TOP_LEVEL)):
        raise InvalidConfigError(f"there is no setting {unknown[0]!r}, allowed are {', '.join(TOP_LEVEL)}")
    if isinstance(config.seed, bool) or not isinstance(config.seed, int) or config.seed < 0:
        raise InvalidConfigError(f"seed is {config.seed!r}, allowed is a whole number ≥ 0")


def _timed(result: Result, **phases: float) -> Result:
    """Return the result with the wall-clock times of more phases [s]."""
    more = tuple(TimingRecord(phase, None, seconds) for phase, seconds in phases.items())
    return replace(result, timing_records=more + result.timing_records)


def run_info(config: DictConfig, summary: Summary | None) -> dict[str, Any]:
    """Return what run.json says of a run."""
    return {
        "config": OmegaConf.to_container(config, resolve=True),
        "seed": config.seed,
        "versions": versions(),
        "git_commit": git_commit(),
        "summary": None if summary is None else asdict(summary),
    }


def _in_words(error: Exception) -> str:
    """Return Hydra's error in one line that says what is allowed."""
    text = " ".join(str(error).split())
    if found := re.match(r"Could not override '([^']+)'", text):
        return (
            f"there is no setting {found[1]!r}; 'polluxsim run --help' lists them, and +{found[1]}=VALUE would add one"
        )
    choices = r"Could not find '([^']+)/([^']+)' Available options in '[^']+': (.*?)(?: Config search path|$)"
    if found := re.search(choices, text):
        return f"{found[1]}={found[2]} is unknown, allowed are {', '.join(found[3].split())}"
    return text
