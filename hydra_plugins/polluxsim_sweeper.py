"""Hydra's door to our sweeps; Hydra looks for plugins in this namespace, whoever brings them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

# Hydra imports every plugin whenever it starts, so everything slow is imported when a sweep begins.


class ResumableSweeper(BasicSweeper):
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
        super().__init__(max_batch_size=None, params=dict(params or {}))
        self._workers = workers
        self._cache = cache

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra has composed."""
        self.hydra_context = hydra_context
        self.config = config

    def sweep(self, arguments: list[str]) -> Any:
        """Complete the sweep."""
        from polluxsim.app.sweep.command import Workplace, sweep_by_command  # noqa: PLC0415

        assert self.hydra_context is not None
        assert self.config is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        plan: Sequence[Sequence[str]] = self.split_arguments(
            parser.parse_overrides([*self._parse_config(), *arguments]), max_batch_size=None
        )[0]
        return sweep_by_command(plan, self.config, self.hydra_context, Workplace(self._workers, self._cache))
