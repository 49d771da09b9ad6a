"""The reference lists the fields of a class that has comments beside them, or above them."""

from __future__ import annotations

import pytest

pytest.importorskip("griffe")

from docstrings import described_fields, with_values

from polluxsim.policies.slurm.policy import Slurm

SOURCE = '''
class Job:
    """A job of a log."""

    name: str  # in the log
    # Submission. It counts from
    # 1970 [s].
    submitted: float
    plain: int
    KIND = "rigid"  # kind of the job
    _own: int = 0  # not for users

    def wait(self) -> float:
        now: float = 0.0  # not a field
'''


def test_comments_of_fields_are_their_descriptions() -> None:
    assert dict(described_fields(SOURCE)) == {
        "name": "In the log.",
        "submitted": "Submission. It counts from 1970 [s].",
        "KIND": "Kind of the job.",
    }


def test_a_class_tells_the_values_of_fields_that_other_modules_declare() -> None:
    assert with_values("bf_interval\n    Time.", Slurm) == "bf_interval\n    Time.\n    Must be a whole number ≥ 1."
