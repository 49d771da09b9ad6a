"""A run is described and recognised the same, however its configuration was written."""

from __future__ import annotations

import pytest

from polluxsim.run.building import build
from polluxsim.run.composing import composed
from polluxsim.run.execution import resolved

FORMER = "polluxsim.traces.store.ProfileFolder"


def test_a_former_name_of_a_class_still_works_and_warns() -> None:
    """And counts as the present one, so that a run's key and its run.json are the same."""
    present, former = composed({}, {}, 0), composed({}, {"profiles": {"_target_": FORMER}}, 0)
    with pytest.warns(FutureWarning, match=f"{FORMER} is now called polluxsim.applications.folder.ProfileFolder"):
        assert resolved(former) == resolved(present)
    assert build(former, "profiles") == build(present, "profiles")
