"""Load the profiles and the workload of a run. A process keeps those of its last runs."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Generic, TypeVar

from polluxsim.models.profile import Profile
from polluxsim.run.building import load
from polluxsim.run.identity import data_of
from polluxsim.run.spec import RunSpec
from polluxsim.workloads.workload import Workload

MOST_KEPT = 8  # number of loaded workloads, and of sets of profiles, that a process keeps for its next runs

ItemT = TypeVar("ItemT")


class _RecentlyUsed(Generic[ItemT]):
    """The objects that were loaded or asked for last, by the settings that describe them and their files."""

    def __init__(self) -> None:
        self._objects: OrderedDict[str, ItemT] = OrderedDict()

    def get(self, sources: Mapping[str, Any], read: Callable[[], ItemT]) -> ItemT:
        """Return the object that settings describe. It is read unless it is kept, and its files have not changed."""
        # With the digests of the files, so that a changed file has another name.
        name = json.dumps([sources, data_of(sources)], sort_keys=True)
        if name not in self._objects:
            self._objects[name] = read()
            if len(self._objects) > MOST_KEPT:
                self._objects.popitem(last=False)
        self._objects.move_to_end(name)
        return self._objects[name]


_profiles = _RecentlyUsed[Mapping[str, Profile]]()
_workloads = _RecentlyUsed[Workload]()
_loading = Lock()  # threads load one after the other, so that each object is loaded once


def load_inputs(spec: RunSpec) -> tuple[Mapping[str, Profile], Workload]:
    """Return the profiles and the workload of a run. They are loaded from files unless they are given as objects."""
    if "profiles" in spec.objects or "workload" in spec.objects:
        return _given_inputs(spec)
    config = spec.config
    with _loading:
        profiles = _profiles.get({"profiles": config["profiles"]}, lambda: load(config, "profiles"))
        # A workload may depend on the profiles.
        sources = {"profiles": config["profiles"], "workload": config["workload"]}
        workload = _workloads.get(sources, lambda: load(config, "workload", profiles))
    return profiles, workload


def _given_inputs(spec: RunSpec) -> tuple[Mapping[str, Profile], Workload]:
    """Return profiles and workload of which at least one is given as an object. Nothing is kept of it."""
    if "profiles" in spec.objects:
        profiles = spec.objects["profiles"]
    else:
        profiles = load(spec.config, "profiles")
    workload = spec.objects.get("workload")
    if workload is None:
        workload = load(spec.config, "workload", profiles)
    return profiles, workload
