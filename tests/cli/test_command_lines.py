"""What 500 drawn command lines mean: each configuration, printed text and error is the recorded one.

The tests compare a sample; `python tests/command_lines.py --compare` compares all.
"""

from __future__ import annotations

import pytest
from command_lines import differing, recorded

PARTS = 25  # into which the recording is divided; the default tier compares the first, the slow tier four others


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (6, 12, 18, 24))])
def test_drawn_command_lines_mean_what_they_meant(part: int) -> None:
    assert differing(recorded()[part::PARTS]) == []


def test_the_recording_has_right_and_wrong_command_lines() -> None:
    statuses = [line["status"] for line in recorded()]
    assert len(statuses) == 500
    assert statuses.count("composed") >= 200
    assert statuses.count(2) >= 200
