"""Records by column: what is read equals what was appended, bit for bit, with and without equal values."""

from __future__ import annotations

import copy
import math
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.records import columns
from polluxsim.records.columns import Records, expanded
from polluxsim.records.results import ReasonRecord

few_numbers = st.sampled_from([0.0, -0.0, 1.5])
pairs = st.lists(st.tuples(st.sampled_from(["free", "asked"]), few_numbers), max_size=2).map(tuple)
reasons = st.builds(
    ReasonRecord, few_numbers, st.sampled_from(["a", "b"]), st.sampled_from(["waits", "runs"]), pairs, st.just(())
)


def bits(record: NamedTuple) -> str:
    """Return a text that differs for 0.0 and −0.0."""
    return repr(tuple(record))


@given(st.lists(reasons, max_size=12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_what_is_read_was_appended(rows: list[ReasonRecord], fresh: int, random: Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "FRESH", fresh)
        records = Records(ReasonRecord)
        for row in rows:
            records.append(row)
        expected = [bits(row) for row in rows]
        assert [bits(row) for row in records] == expected
        assert [bits(records[place]) for place in range(len(rows))] == expected
        assert [bits(row) for row in copy.deepcopy(records)] == expected
        assert [list(map(repr, expanded(column))) for column in records.columns] == [
            list(map(repr, column)) for column in records.columns
        ]
        order = list(range(len(rows)))
        random.shuffle(order)
        records.put_in_order(order)
        assert [bits(row) for row in records] == [expected[place] for place in order]


def test_a_column_of_equal_values_has_one_place() -> None:
    records = Records(ReasonRecord)
    for time in range(5_000):
        records.append(ReasonRecord(float(time), "a", "waits", (), ()))
    assert isinstance(records.column("job"), columns._Same)
    assert not isinstance(records.column("time"), columns._Same)
    assert math.isclose(sum(records.column("time")), 4_999 * 2_500)
