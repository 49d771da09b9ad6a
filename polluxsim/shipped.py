"""Files that come with polluxsim (configurations, profile cards, workloads), and the classes that they name."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMER_NAMES: Mapping[str, str] = {
    "polluxsim.traces.store.ProfileFolder": "polluxsim.applications.folder.ProfileFolder",
}
"""Present dotted names of classes that moved or were renamed, by former name. Configurations may use both."""

UNLISTED: Mapping[str, tuple[str, ...]] = {"cluster": ("polluxsim.clusters.Cluster", "polluxsim.clusters.Repairs")}
"""Classes by config group that no shipped configuration names, but that the settings of runs made in Python do."""

TARGET = re.compile(r"^\s*_target_:\s*([\w.]+)", re.MULTILINE)


def shipped(name: str) -> Path:
    """Return a folder of files: at the top of a source tree, or inside an installed package."""
    package = Path(__file__).parent
    installed = package / "data" / name
    return installed if installed.is_dir() else package.parent / name


def present_name(target: object) -> object:
    """Return the present dotted name of a class; return any other value unchanged.

    >>> present_name("polluxsim.traces.store.ProfileFolder")
    'polluxsim.applications.folder.ProfileFolder'
    """
    return FORMER_NAMES.get(target, target) if isinstance(target, str) else target


@cache
def shipped_classes() -> Mapping[str, frozenset[str]]:
    """Return the dotted names of polluxsim's classes and factories by config group, without importing them.

    They are the values of `_target_` in the configurations of the group, of its parts included.

    >>> "polluxsim.policies.fifo.Fifo" in shipped_classes()["policy"]
    True
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    folder = shipped("configs")
    for path in folder.glob("*/**/*.yaml"):
        found[path.relative_to(folder).parts[0]].update(TARGET.findall(path.read_text(encoding="utf-8")))
    return {group: frozenset((*names, *UNLISTED.get(group, ()))) for group, names in found.items()}
