"""A run is described and recognised the same, however its configuration was written."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from polluxsim.run import inputs
from polluxsim.run.building import load
from polluxsim.run.composing import composed

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_what_goes_round_among_as_many_workloads_as_are_kept_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Counter[str]()

    def counting(config: Mapping[str, Any], group: str, *given: object) -> object:
        loaded[group] += 1
        return load(config, group, *given)

    monkeypatch.setattr(inputs, "load", counting)
    monkeypatch.setattr(inputs, "_profiles", inputs._RecentlyUsed())
    monkeypatch.setattr(inputs, "_workloads", inputs._RecentlyUsed())
    for seed in [*range(inputs.MOST_KEPT)] * 2:
        inputs.load_inputs(composed({"workload": "philly-like"}, {"workload": {"num_jobs": 2}}, seed))
    assert (loaded["profiles"], loaded["workload"]) == (1, inputs.MOST_KEPT)
