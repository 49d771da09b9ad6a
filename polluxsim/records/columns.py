"""An append-only sequence that stores millions of records by column, with a few dozen bytes per record.

A column whose values are all the same stores one value and their number.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from itertools import pairwise, repeat, starmap
from math import isnan, nan
from operator import is_
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np

from polluxsim.records.results import columns_of

ObjectT = TypeVar("ObjectT")
RecordT = TypeVar("RecordT", bound=NamedTuple)


FRESH = 512  # new records that are kept as objects; extending the columns by many at once is faster


class Records(Sequence[RecordT], Generic[RecordT]):
    """Records of one type, in order of insertion unless `put_in_order` changes it.

    Reading a record creates it from the columns. A copy, also a deep copy, copies only the columns, because records
    never change. The annotations of the type determine the storage of each column.
    """

    def __init__(self, record_type: type[RecordT], records: Iterable[RecordT] = ()) -> None:
        self._type = record_type
        self._kinds = [_KINDS.get(column.type, list) for column in columns_of(record_type).values()]
        self._columns: list[Any] = [kind() for kind in self._kinds]
        self._fresh = list(records)

    def append(self, record: RecordT) -> None:
        """Add a record at the end."""
        self._fresh.append(record)
        if len(self._fresh) == FRESH:
            self._file()

    @property
    def columns(self) -> Sequence[Any]:
        """Return the columns in order of the fields."""
        self._file()
        return self._columns

    def column(self, name: str) -> Any:
        """Return the column of a field."""
        return self.columns[self._type._fields.index(name)]

    def _file(self) -> None:
        """Move the new records to the columns."""
        if self._fresh:
            for place, values in enumerate(zip(*self._fresh, strict=True)):
                column = self._columns[place]
                kind = self._kinds[place]
                self._columns[place] = _extended(column, values, kind)
            self._fresh.clear()

    def put_in_order(self, indices: Sequence[int]) -> None:
        """Put the record at `indices[i]` to place i, for each i. `indices` has each present place once."""
        self._file()
        # Column by column, so that at most one column is in the memory twice.
        for place, column in enumerate(self._columns):
            self._columns[place] = _taken(column, indices)

    def with_column(self, name: str, values: Iterable[object]) -> Self:
        """Return the records with a column replaced. The other columns are shared, so append to neither afterwards."""
        new = type(self)(self._type)
        place = self._type._fields.index(name)
        column = new._columns[place]
        column.extend(values)
        new._columns = list(self.columns)
        new._columns[place] = column
        return new

    def __len__(self) -> int:
        return len(self._columns[0]) + len(self._fresh)

    @overload
    def __getitem__(self, index: int) -> RecordT: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RecordT]: ...
    def __getitem__(self, index: int | slice) -> RecordT | Sequence[RecordT]:
        if isinstance(index, slice):
            return tuple(self[one] for one in range(*index.indices(len(self))))
        # Not every kind of column raises an error for an index beyond its end.
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._type._make(column[index] for column in self.columns)

    def __iter__(self) -> Iterator[RecordT]:
        return starmap(self._type, zip(*self.columns, strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"Records({self._type.__name__}, {len(self)} records)"

    def __copy__(self) -> Self:
        new = type(self)(self._type)
        new._columns = [column[:] for column in self.columns]
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # The values of a record never change, so they need no copies.
        return self.__copy__()


def copy_containers(original: ObjectT) -> ObjectT:
    """Return a copy of an object with its own dictionaries, lists, sets and `Records`.

    Their items are shared, so use it only for objects whose items never change.
    """
    # Much faster than a deep copy, which visits each item.
    new = copy(original)
    for name, value in vars(original).items():
        if isinstance(value, dict | list | set | Records):
            setattr(new, name, copy(value))
    return new


class _Same(Sequence[Any]):
    """A value and the number of times it is repeated. `one` is a column of its kind with this value."""

    def __init__(self, one: Any, number: int) -> None:
        self.one = one
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _Same(self.one, len(range(self.number)[index]))
        return self.one[0]

    def __iter__(self) -> Iterator[Any]:
        return repeat(self.one[0], self.number)


def expanded(column: Any) -> Any:
    """Return a column with a place for each value, also for a value that is stored once."""
    if isinstance(column, _Same):
        return column.one * column.number
    return column


def _extended(column: Any, values: Iterable[Any], kind: Callable[[], Any]) -> Any:
    """Return a column with further values. `kind` makes an empty column of its kind. The column may be changed."""
    # Pairs already store their names once.
    if kind is _Pairs:
        column.extend(values)
        return column
    added = kind()
    added.extend(values)
    if not len(column) and _is_uniform(added, added[:1]):
        return _Same(added[:1], len(added))
    if isinstance(column, _Same):
        if _is_uniform(added, column.one):
            column.number += len(added)
            return column
        column = expanded(column)
    column.extend(added)
    return column


def _is_uniform(column: Any, one: Any) -> bool:
    """Return whether all values of a column have the bits of the value in `one`, or are its object."""
    # Not by equality: 0.0 equals −0.0, and True equals 1, so another value would be read than was written.
    if isinstance(column, _Optional):
        column = column.numbers
        one = one.numbers
    if isinstance(column, array):
        return bool(column.tobytes() == one.tobytes() * len(column))
    return isinstance(column, list) and all(map(is_, column, repeat(one[0])))


class _Optional(Sequence["float | None"]):
    """Numbers or None. None is stored as NaN, so a NaN is read as None."""

    def __init__(self, numbers: array[float] | None = None) -> None:
        self.numbers = array("d") if numbers is None else numbers

    def extend(self, numbers: Iterable[float | None]) -> None:
        self.numbers.extend([nan if number is None else number for number in numbers])

    def __mul__(self, count: int) -> _Optional:
        return _Optional(self.numbers * count)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _Optional(self.numbers[index])
        number = self.numbers[index]
        return None if isnan(number) else number

    def __iter__(self) -> Iterator[float | None]:
        return (None if number != number else number for number in self.numbers)  # noqa: PLR0124  (quicker than isnan)


class _Pairs(Sequence[tuple[tuple[str, float], ...]]):
    """Tuples of pairs (name, number). Records with the same names share one column of names."""

    def __init__(self) -> None:
        self._names: list[tuple[str, ...]] = []
        self._numbers = array("d")
        self._ends = array("q", [0])
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def extend(self, records: Iterable[Iterable[tuple[str, float]]]) -> None:
        start = len(self._numbers)
        added = list[float]()
        for pairs in records:
            names: tuple[str, ...] = ()
            if pairs:
                names, numbers = zip(*pairs, strict=True)
                added += numbers
            # One tuple for all records with these names: most reasons of a policy have the same ones.
            self._names.append(self._known.setdefault(names, names))
            self._ends.append(start + len(added))
        # All at once, which is faster than record by record.
        self._numbers.extend(added)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):  # only used for copies
            copy = _Pairs()
            copy._names = self._names[:]
            copy._numbers = self._numbers[:]
            copy._ends = self._ends[:]
            return copy
        index %= len(self)
        return tuple(zip(self._names[index], self._numbers[self._ends[index] : self._ends[index + 1]], strict=True))

    def __iter__(self) -> Iterator[tuple[tuple[str, float], ...]]:
        for names, (start, end) in zip(self._names, pairwise(self._ends), strict=True):
            yield tuple(zip(names, self._numbers[start:end], strict=True))


def _taken(column: Any, indices: Sequence[int]) -> Any:
    """Return a column of the values at some places, in their order."""
    if isinstance(column, _Same):
        return _Same(column.one, len(indices))
    if isinstance(column, _Optional):
        return _Optional(_taken(column.numbers, indices))
    if isinstance(column, array):
        return array(column.typecode, np.asarray(column)[np.asarray(indices, dtype=np.int64)].tobytes())
    return [column[index] for index in indices]


# Storage of a column by the type of its values; a list for other types.
_KINDS: dict[object, Callable[[], Any]] = {
    float: partial(array, "d"),
    int: partial(array, "q"),
    float | None: _Optional,
    tuple[tuple[str, float], ...]: _Pairs,
}
