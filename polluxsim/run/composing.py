"""The configuration of one run, composed from the same files as the command line composes it from."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from polluxsim.errors import InvalidConfigError
from polluxsim.run.hydra_inside import Loader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omegaconf import DictConfig

CONFIG_NAME = "run"


def composed(
    choices: Mapping[str, str], settings: Mapping[str, Mapping[str, object]], seed: int | np.integer
) -> DictConfig:
    """Return the configuration with entries by group, and values by group and setting, other than the defaults.

    It raises `InvalidConfigError` if a configuration cannot hold a value.
    """
    chosen = [f"{group}={name}" for group, name in choices.items()]
    config = without_hydra(Loader().load_configuration(CONFIG_NAME, chosen, RunMode.RUN))
    OmegaConf.set_struct(config, False)  # unknown names are told by their target's signature
    config.seed = _plain(seed)
    for group, values in settings.items():
        for name, value in values.items():
            try:
                config[group][name] = _plain(value)
            except OmegaConfBaseException:
                what = f"{group}.{name} is {value!r}, allowed are numbers, text, true or false, and lists of these"
                raise InvalidConfigError(what) from None
    return config


def without_hydra(config: DictConfig) -> DictConfig:
    """Return a configuration without Hydra's own part."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def _plain(value: object) -> object:
    """Return NumPy's numbers as Python's and paths as text."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, PurePath) else value
