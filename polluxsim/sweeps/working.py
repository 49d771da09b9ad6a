"""What a worker does with one run of a sweep, whoever started the worker."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from polluxsim.folders import remove_if_empty
from polluxsim.run.execution import Execution
from polluxsim.run.interrupt import exits_raised
from polluxsim.storage import write_run

if TYPE_CHECKING:
    from collections.abc import Mapping


def perform(config: Mapping[str, Any], folder: Path) -> None:
    """Do one run and write it."""
    with exits_raised():
        execution = Execution(OmegaConf.create(dict(config)))
        result, summary = execution.simulate()
    write_run(folder, result, execution.info(summary))


@dataclass(frozen=True)
class HydraTask:
    """One run of a sweep as Hydra's launchers call it, on whatever machine."""

    modules: str  # where modules of the user's own are looked for

    def __call__(self, config: DictConfig) -> None:
        """Do the run that Hydra composed, in the folder that Hydra made for it."""
        if self.modules not in sys.path:
            sys.path.append(self.modules)
        folder = Path(HydraConfig.get().runtime.output_dir)
        try:
            perform(OmegaConf.to_container(config, resolve=True), folder)  # type: ignore[arg-type]
        finally:
            remove_if_empty(folder)
