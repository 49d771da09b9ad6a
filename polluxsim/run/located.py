"""Relative paths in the settings of a finished run, found from any current folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polluxsim.records.storage import located


class LocatedPaths:
    """The relative paths in the settings of a run, and where their files are, as seen from the present folder.

    Forks use the located paths, and record the paths as the user of the run wrote them, so that both have equal
    settings. `missing` has the paths whose files are not found.
    """

    def __init__(self, config: Any, folder: Path | None) -> None:
        paths = {path: located(path, folder) for path in _relative_paths(config)}
        self._located = {path: place for path, place in paths.items() if place != path}
        self._written = {place: path for path, place in self._located.items()}
        self.missing = [path for path, place in paths.items() if not Path(place).exists()]

    def locate(self, settings: Any) -> Any:
        """Return settings of the run with located paths."""
        return _replaced(settings, self._located)

    def as_written(self, settings: Any) -> Any:
        """Return settings with located paths as the run states them."""
        return _replaced(settings, self._written)


def _relative_paths(value: Any, name: str = "") -> Iterator[str]:
    """Yield the relative paths among settings: texts named `path` or `…_path`, and texts with a slash or an ending."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _relative_paths(item, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _relative_paths(item, name)
    elif isinstance(value, str) and value and not name.startswith("_"):
        # A class of the user may name a setting with a path as it likes, so its value is looked at too.
        is_path = name == "path" or name.endswith("_path") or "/" in value or bool(Path(value).suffix)
        # A text with a null character cannot be a path, and Python raises an error for it.
        if is_path and "\0" not in value and not Path(value).is_absolute():
            yield value


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """Return settings with other texts in place of some texts."""
    if isinstance(value, dict):
        return {key: _replaced(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, texts) for item in value]
    if isinstance(value, str):
        return texts.get(value, value)
    return value
