"""Plugins of Hydra: sweeps that can be resumed, and the search for the user's configurations.

Hydra looks for plugins in this namespace.
"""

from __future__ import annotations

from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString, Transformer
from hydra.errors import ConfigCompositionException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.override_parser.types import Override
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

# Hydra imports every plugin whenever it starts, so everything slow is imported when a sweep begins.


class ConfigurationFolders(SearchPathPlugin):
    """Adds the user's folders of configurations, and the experiments that come with polluxsim."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Insert the user's folders before the folder of polluxsim, so that their entries win. Add the experiments."""
        from polluxsim.common.shipped import shipped  # noqa: PLC0415
        from polluxsim.run.configurations import user_folders  # noqa: PLC0415

        for folder in user_folders():
            search_path.prepend("command-line", f"file://{folder.resolve()}", anchor="main")
        search_path.append("polluxsim", f"file://{shipped('experiments')}")


class ResumableSweeper(Sweeper):
    """Does all combinations of the values given, as Hydra's own sweeper would, but for runs that are finished.

    Parameters
    ----------
    params
        Values by setting, as they could stand on the command line.
    workers
        Processes on this machine at most, where no launcher is chosen; None takes one for each core.
    cache
        A folder of finished runs to take runs from, and to put copies of new ones into.
    """

    def __init__(
        self, params: Mapping[str, str] | None = None, workers: int | None = None, cache: str | None = None
    ) -> None:
        self._params = [f"{name}={values}" for name, values in (params or {}).items()]
        self._workers = workers
        self._cache = cache

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra has composed."""
        self.hydra_context = hydra_context
        self.config = config

    def sweep(self, arguments: list[str]) -> Any:
        """Complete the sweep."""
        from polluxsim.cli.sweep import sweep_by_command  # noqa: PLC0415
        from polluxsim.run.configurations import as_hydra_takes  # noqa: PLC0415

        assert self.hydra_context is not None
        assert self.config is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        plan = combinations(parser.parse_overrides(as_hydra_takes([*self._params, *arguments])))
        return sweep_by_command(plan, self.config, self.hydra_context, self._workers, self._cache)


def combinations(overrides: Sequence[Override]) -> list[tuple[str, ...]]:
    """Return the overrides of each run, the last ones changing fastest; of a setting given twice, the last counts."""
    from polluxsim.studies.plan import MOST_RUNS, check_size  # noqa: PLC0415

    values = {override.get_key_element(): list(islice(_values(override), MOST_RUNS + 1)) for override in overrides}
    check_size(prod(map(len, values.values())))
    return list(product(*values.values()))


def _values(override: Override) -> Iterator[str]:
    from polluxsim.run.configurations import is_group  # noqa: PLC0415

    name = override.get_key_element()
    if override.is_delete() and is_group(override.key_or_group):
        yield f"{override.key_or_group}=null"
        return
    if not override.is_sweep_override():
        yield f"{name}={override.get_value_element_as_str()}"
        return
    if not override.is_discrete_sweep():
        raise ConfigCompositionException(f"{override.input_line}: an interval, must be values, range(…) or glob(…)")
    for value in override.sweep_iterator(_as_policy if name == "policy" else Transformer.str):
        yield f"{name}={value}"


def _as_policy(value: Any) -> str:
    """Return a policy as its user wrote it: one with settings is quoted, as Hydra's grammar would not take it."""
    return value.text if isinstance(value, QuotedString) and "(" in value.text else Transformer.str(value)
