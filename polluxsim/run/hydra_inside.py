"""The parts of Hydra that are not public: a release may move them, and a test of this module then fails.

Hydra's public function `compose` keeps the application in a global variable, which two threads, or a user's own Hydra
application, cannot share. Its loader of configurations needs no global variable.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.utils import JobStatus, setup_globals

from polluxsim.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hydra.core.utils import JobReturn
    from hydra.types import RunMode
    from omegaconf import DictConfig

__all__ = ["Callbacks", "Loader", "error_of", "get_args_parser", "get_overrides_dirname", "mode_from_options"]

VERSION_BASE = "1.3"

_one_at_a_time = RLock()

MOST_KEPT = 200
"""Composed configurations that are kept at most."""

_composed: dict[tuple[Any, ...], bytes] = {}
"""Composed configurations. Loading a pickled one takes a fifth of the time of a deep copy."""


class Loader(ConfigLoaderImpl):
    """Loads configurations, those of the user first, for one thread at a time."""

    def __init__(self) -> None:
        with _one_at_a_time:
            if version.getbase() is version._UNSPECIFIED_:
                version.setbase(VERSION_BASE)
            setup_globals()  # only resolvers of ${now:…} and the like
            super().__init__(create_config_search_path(str(shipped("configs"))))

    def load_configuration(  # type: ignore[override]
        self, config_name: str, overrides: Sequence[str], run_mode: RunMode
    ) -> DictConfig:
        """Return a configuration, as `ConfigLoader` describes it.

        Composing one takes 0.1 s. The result is kept for later calls if only files of polluxsim and of installed
        packages are searched.
        """
        with _one_at_a_time:
            places = [str(element.path) for element in self.get_search_path().get_path()]
            if _searches_elsewhere(places) or any("searchpath" in word for word in overrides):
                return super().load_configuration(config_name, list(overrides), run_mode)
            key = config_name, tuple(overrides), run_mode, tuple(places), _state_of(_own_folders())
            if key not in _composed:
                if len(_composed) >= MOST_KEPT:
                    _composed.clear()
                _composed[key] = pickle.dumps(super().load_configuration(config_name, list(overrides), run_mode))
            config: DictConfig = pickle.loads(_composed[key])  # noqa: S301  (this process pickled it)
            return config


def _own_folders() -> tuple[Path, Path]:
    return shipped("configs"), shipped("experiments")


def _searches_elsewhere(places: Sequence[str]) -> bool:
    """Return whether a search path has a folder that does not come with polluxsim or with an installed package."""
    own = {str(folder) for folder in _own_folders()}
    return any(
        place.removeprefix("file://") not in own and not place.startswith(("pkg://", "structured://"))
        for place in places
    )


def _state_of(folders: Sequence[Path]) -> tuple[tuple[str, int], ...]:
    """Return the names of the configuration files in some folders and the times of their last changes."""
    files = (path for folder in folders for path in sorted(folder.rglob("*.yaml")))
    return tuple((str(path), path.stat().st_mtime_ns) for path in files)


@contextmanager
def mode_from_options() -> Iterator[None]:
    """Let only the options say whether Hydra makes one run or several, within the block.

    Hydra would compose the configuration once more to read `hydra.mode`, which takes 0.2 s. Only one thread may be in
    the block, as in Hydra's own application.
    """
    before = Hydra.get_mode
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = before  # type: ignore[method-assign]


def error_of(job: JobReturn) -> Exception | None:
    """Return the error that a job ended with; the public property would print and raise it."""
    error: Exception | None = job._return_value if job.status is JobStatus.FAILED else None
    return error
