"""The configuration of one run, composed from the same files as the command line composes it from."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from polluxsim.errors import InvalidConfigError
from polluxsim.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omegaconf import DictConfig


def composed(
    choices: Mapping[str, str], settings: Mapping[str, Mapping[str, object]], seed: int | np.integer
) -> DictConfig:
    """Return the configuration with some entries and settings other than the defaults.

    Parameters
    ----------
    choices
        Name of the entry by group, where it is not the default one.
    settings
        Values by group and by the name of the setting.
    seed
        Seed of everything random in the run.

    Raises
    ------
    InvalidConfigError
        If a value is none that a configuration can hold.
    """
    with initialize_config_dir(config_dir=str(shipped("configs")), version_base="1.3"):
        config = compose("run", [f"{group}={name}" for group, name in choices.items()])
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


def _plain(value: object) -> object:
    """Return NumPy's numbers as Python's and paths as text."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, PurePath) else value
