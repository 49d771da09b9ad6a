"""Files that come with polluxsim (configurations, profile cards, workloads), and the names of its classes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

UNLISTED: Mapping[str, tuple[str, ...]] = {
    "cluster": ("polluxsim.hardware.clusters.Cluster", "polluxsim.hardware.clusters.Repairs")
}
"""Classes by config group that no shipped configuration names. The settings of runs made in Python may name them."""

_TARGET_LINE = re.compile(r"^\s*_target_:\s*([\w.]+)", re.MULTILINE)


def shipped(name: str) -> Path:
    """Return a folder of files: at the top of a source tree, or inside an installed package."""
    package = Path(__file__).parents[1]
    # A wheel has the folders inside the package, because nothing else of an installation has a known place.
    installed = package / "data" / name
    return installed if installed.is_dir() else package.parent / name


@cache
def shipped_classes() -> Mapping[str, frozenset[str]]:
    """Return the dotted names of polluxsim's classes and factories by config group, without importing them.

    The names are the values of `_target_` in the configurations of the group and of its parts.

    >>> "polluxsim.policies.ordered.classic.Fifo" in shipped_classes()["policy"]
    True
    """
    classes: defaultdict[str, set[str]] = defaultdict(set)
    folder = shipped("configs")
    for path in folder.glob("*/**/*.yaml"):
        group = path.relative_to(folder).parts[0]
        # By a pattern, because reading 100 files as YAML would delay each command.
        classes[group].update(_TARGET_LINE.findall(path.read_text(encoding="utf-8")))
    return {group: frozenset((*names, *UNLISTED.get(group, ()))) for group, names in classes.items()}
