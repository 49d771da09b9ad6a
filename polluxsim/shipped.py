"""Files that come with polluxsim (configurations, profile cards, workloads), and the names of its classes."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMER_NAMES: Mapping[str, str] = {
    "polluxsim.traces.store.ProfileFolder": "polluxsim.applications.folder.ProfileFolder",
    "polluxsim.engine.stage_sharing.Interleaved": "polluxsim.engine.sharing.Interleaved",
    "polluxsim.engine.stage_sharing.Leftovers": "polluxsim.engine.sharing.Leftovers",
    "polluxsim.engine.pair_sharing.Pairs": "polluxsim.engine.sharing.Pairs",
}
"""Present dotted names of classes and functions that moved or were renamed, by former name.

Users' configurations and recorded runs may use a former name, which causes a warning. The line of a class also covers
its methods, like `polluxsim.types.Cluster.uniform`.
"""

UNLISTED: Mapping[str, tuple[str, ...]] = {"cluster": ("polluxsim.clusters.Cluster", "polluxsim.clusters.Repairs")}
"""Classes by config group that no shipped configuration names. The settings of runs made in Python may name them."""

TARGET = "_target_"
"""Setting with the dotted name of the class or function that makes a part of a run."""

_TARGET_LINE = re.compile(rf"^\s*{TARGET}:\s*([\w.]+)", re.MULTILINE)


def shipped(name: str) -> Path:
    """Return a folder of files: at the top of a source tree, or inside an installed package."""
    package = Path(__file__).parent
    installed = package / "data" / name
    return installed if installed.is_dir() else package.parent / name


def present_name(target: object) -> object:
    """Return the present dotted name of a class or its method; return any other value unchanged.

    >>> present_name("polluxsim.traces.store.ProfileFolder")
    'polluxsim.applications.folder.ProfileFolder'
    """
    if not isinstance(target, str):
        return target
    words = target.split(".")
    for length in range(len(words), 0, -1):
        if (present := FORMER_NAMES.get(".".join(words[:length]))) is not None:
            return ".".join([present, *words[length:]])
    return target


def with_present_names(part: Any) -> Any:
    """Return a part of a configuration in which each `_target_` has its present name."""
    if isinstance(part, list):
        return [with_present_names(item) for item in part]
    if not isinstance(part, dict):
        return part
    renamed = {name: with_present_names(value) for name, value in part.items()}
    return renamed | ({TARGET: present_name(part[TARGET])} if TARGET in part else {})


def warn_of_former_names(part: Any) -> None:
    """Issue one `FutureWarning` for each former name that a part of a configuration uses as `_target_`."""
    for former in dict.fromkeys(_targets(part)):
        if (present := present_name(former)) != former:
            message = f"{former} is now called {present}; a later release removes the old name"
            warnings.warn(message, FutureWarning, stacklevel=2)


def _targets(part: Any) -> Iterator[str]:
    """Yield the value of each `_target_` in a part of a configuration, if it is text."""
    if isinstance(part, dict) and isinstance(part.get(TARGET), str):
        yield part[TARGET]
    items = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for item in items:
        yield from _targets(item)


@cache
def shipped_classes() -> Mapping[str, frozenset[str]]:
    """Return the dotted names of polluxsim's classes and factories by config group, without importing them.

    They are the values of `_target_` in the configurations of the group and of its parts.

    >>> "polluxsim.policies.fifo.Fifo" in shipped_classes()["policy"]
    True
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    folder = shipped("configs")
    for path in folder.glob("*/**/*.yaml"):
        found[path.relative_to(folder).parts[0]].update(_TARGET_LINE.findall(path.read_text(encoding="utf-8")))
    return {group: frozenset((*names, *UNLISTED.get(group, ()))) for group, names in found.items()}
