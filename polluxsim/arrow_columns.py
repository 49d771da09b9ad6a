"""Columns of Arrow out of Python's values, from buffers: `pyarrow.array` loads pandas first, which takes 0.3 s."""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def arrow_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of 64-bit numbers, of text, of lists of these, or of maps from text to numbers.

    Numbers and texts may be None; rows of lists and maps are sequences of items, or of pairs.
    """
    if isinstance(kind, pa.ListType):
        items = arrow_column(list(chain.from_iterable(values)), kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [None, _offsets(values)], children=[items])
    if isinstance(kind, pa.MapType):
        pairs, entry = list(chain.from_iterable(values)), kind.field(0).type
        parts = [arrow_column([pair[place] for pair in pairs], entry.field(place).type) for place in range(2)]
        entries = pa.Array.from_buffers(entry, len(pairs), [None], children=parts)
        return pa.Array.from_buffers(kind, len(values), [None, _offsets(values)], children=[entries])
    missing = [value is None for value in values] if isinstance(values, list) else []
    present = pa.py_buffer(np.packbits(~np.array(missing), bitorder="little")) if any(missing) else None
    if kind == pa.string():
        texts = [b"" if value is None else value.encode() for value in values]
        return pa.Array.from_buffers(kind, len(texts), [present, _offsets(texts), pa.py_buffer(b"".join(texts))])
    there = [0 if value is None else value for value in values] if present else values
    numbers = np.asarray(there, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(numbers)])


def _offsets(rows: Sequence[Collection[Any]]) -> pa.Buffer:
    """Return where each row begins, and where the last one ends."""
    return pa.py_buffer(np.fromiter(accumulate(map(len, rows), initial=0), np.int32, len(rows) + 1))
