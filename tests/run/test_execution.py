"""A run is described and recognised the same, however its configuration was written."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import pytest

from polluxsim.run import execution
from polluxsim.run.building import build, load
from polluxsim.run.composing import composed
from polluxsim.run.execution import resolved

if TYPE_CHECKING:
    from omegaconf import DictConfig

FORMER = "polluxsim.traces.store.ProfileFolder"


def test_a_former_name_of_a_class_still_works_and_warns() -> None:
    """And counts as the present one, so that a run's key and its run.json are the same."""
    present, former = composed({}, {}, 0), composed({}, {"profiles": {"_target_": FORMER}}, 0)
    with pytest.warns(FutureWarning, match=f"{FORMER} is now called polluxsim.applications.folder.ProfileFolder"):
        assert resolved(former) == resolved(present)
    assert build(former, "profiles") == build(present, "profiles")


def test_what_goes_round_among_as_many_workloads_as_are_kept_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Counter[str]()

    def counting(config: DictConfig, group: str, *given: object) -> object:
        loaded[group] += 1
        return load(config, group, *given)

    monkeypatch.setattr(execution, "load", counting)
    monkeypatch.setattr(execution, "_loaded", {"profiles": OrderedDict(), "workload": OrderedDict()})
    for seed in [*range(execution.KEPT)] * 2:
        config = composed({"workload": "philly-like"}, {"workload": {"num_jobs": 2}}, seed)
        execution._load(config, resolved(config))
    assert (loaded["profiles"], loaded["workload"]) == (1, execution.KEPT)
