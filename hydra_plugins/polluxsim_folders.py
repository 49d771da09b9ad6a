"""Plugin of Hydra that lets it find the user's configurations. Hydra looks for plugins in this namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydra.plugins.search_path_plugin import SearchPathPlugin

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

# Hydra imports every plugin whenever it starts, so everything slow is imported when it is needed.


class ConfigurationFolders(SearchPathPlugin):
    """Adds the user's folders of configurations, and the experiments that come with polluxsim."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Insert the user's folders before the folder of polluxsim, so that their entries win. Add the experiments."""
        from polluxsim.common.shipped import shipped  # noqa: PLC0415
        from polluxsim.run.configurations import user_folders  # noqa: PLC0415

        for folder in user_folders():
            search_path.prepend("command-line", f"file://{folder.resolve()}", anchor="main")
        search_path.append("polluxsim", f"file://{shipped('experiments')}")
