"""GPUs and other resources in the lists of Slurm, and values of cells that recur in many rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from polluxsim.logs.formats.base import CPU, GPU, ONLY_GPUS, CountedResource, RowReason
from polluxsim.logs.formats.log_rows import MAX_GPUS, LogRow

GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,7})", re.ASCII)
"""One entry of a TRES list for GPUs, of one type or of all."""

GRES = re.compile(r"(?:gres[:/])?gpu(?::([^:,=()\d][^:,=()]*))?(?:[:=](\d{1,7}))?(?:\([^)]*\))?", re.ASCII)
"""One entry of a GRES list for GPUs, as older versions write them: gpu:4, gpu:a100:4; gpu alone is one."""

AMOUNT = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
"""A number of pieces of a resource."""

RESOURCE_COLUMNS = ("AllocTRES", "ReqTRES", "AllocGRES")
"""Columns of sacct with lists of resources."""

CPU_COLUMNS = ("AllocCPUS", "NCPUS", "ReqCPUS")
"""Columns of sacct with the CPUs of a job, for logs without lists of resources."""

SHARES = ("gres/shard", "gres/mps")
"""Resources of Slurm by which jobs share a GPU."""

MOST_VALUES = 1 << 16  # different cells whose values are remembered

_ValueT = TypeVar("_ValueT")


class Recurring(Generic[_ValueT]):
    """Values of cells that recur in many rows: equal cells are read once."""

    def __init__(self, columns: tuple[str, ...], read: Callable[[LogRow], _ValueT]) -> None:
        """`read` reads the value in the cells of the columns of a row, and of no others."""
        self._columns = columns
        self._read = read
        self._values = dict[tuple[str | None, ...], _ValueT]()

    def of(self, row: LogRow) -> _ValueT:
        """Return the value in the cells of a row; raise the error of reading it."""
        cells = tuple(map(row.values.get, self._columns))
        value = self._values.get(cells)
        if value is None:
            value = self._read(row)
            # A log whose cells are all different must not fill the memory.
            if len(self._values) < MOST_VALUES:
                self._values[cells] = value
        return value


class Gpus(NamedTuple):
    """GPUs of a job, their type if all GPUs have one type, and the number of types."""

    number: float  # number of GPUs, or of what counts as GPUs
    type: str | None = None  # None if the GPUs have several types or an unknown type
    types: int = 0  # number of types


def held_gpus(row: LogRow, units: Sequence[CountedResource]) -> Gpus:
    """Return the GPUs of a job, with the other resources that count as GPUs."""
    if units == ONLY_GPUS:
        return _GPUS.of(row)
    gpus = Gpus(0)
    number = 0.0
    for unit in units:
        if unit.resource == GPU:
            gpus = _GPUS.of(row)
            number += unit.gpus * gpus.number
        elif unit.resource == CPU:
            number += unit.gpus * _amount(row, "cpu")
        else:
            number += unit.gpus * _amount(row, unit.resource)
    if number > MAX_GPUS:
        raise row.error("AllocTRES", f"a list with at most {MAX_GPUS:g} of what --unit names")
    return gpus._replace(number=number)


def _amount(row: LogRow, resource: str) -> float:
    """Return the amount of a resource in the allocation, or in the request if the log states no allocation."""
    for column in ("AllocTRES", "ReqTRES"):
        if row.has(column):
            amounts = _amounts(row, column)
            return amounts.get(resource, 0.0)
    if resource == "cpu":
        for column in CPU_COLUMNS:
            if row.has(column):
                return row.count(column)
    return 0.0


def _amounts(row: LogRow, column: str) -> dict[str, float]:
    """Return the amounts of the resources in a TRES list by name.

    The name of a typed entry is that before the type. An untyped entry counts the typed entries of its name as well.
    """
    untyped: dict[str, float] = {}
    typed: dict[str, float] = {}
    for text in row.values[column].strip().split(","):
        name, equals, number = text.partition("=")
        match = AMOUNT.fullmatch(number)
        if not equals:
            raise row.error(column, "a list like cpu=8,gres/gpu=4,node=1")
        if match is None:
            continue  # memory such as mem=16G, which is no number of pieces
        base, colon, _ = name.partition(":")
        if colon:
            typed[base] = typed.get(base, 0.0) + float(number)
        else:
            untyped[base] = float(number)
    return typed | untyped


def why_without_gpu(row: LogRow, units: Sequence[CountedResource]) -> str:
    """Return the reason to drop a job without GPUs, with the names of other accelerators that it holds."""
    if CountedResource(CPU) in units:
        return "no CPU"
    names = set[str]()
    for column in ("AllocTRES", "ReqTRES"):
        if row.has(column):
            for entry in row.values[column].split(","):
                resource = entry.partition("=")[0]
                name = resource.partition(":")[0].strip()  # without its type
                if name.startswith("gres/") and not name.startswith("gres/gpu"):
                    names.add(name)
    accelerators = sorted(names)
    if not accelerators:
        return RowReason.NO_GPU
    words = ", ".join(accelerators)
    if set(accelerators) <= set(SHARES):
        return f"only shares of a GPU: {words}; count them with --unit {GPU},{accelerators[0]}*GPUS_OF_A_SHARE"
    return f"no GPU, but {words}; count them with --unit {GPU},{accelerators[0]}"


def _read_gpus(row: LogRow) -> Gpus:
    """Return the allocated GPUs, or the requested GPUs if the log does not state the allocation.

    If the allocation states no type, the requested type is the type of the job.
    """
    lists = list[tuple[str, _ReadEntry]]()
    if row.has("AllocTRES"):
        lists.append(("AllocTRES", _tres))
    # Slurm before 20.11 may have the GPUs in AllocGRES only.
    if row.has("AllocGRES"):
        lists.append(("AllocGRES", _gres))
    if not lists and row.has("ReqTRES"):
        lists.append(("ReqTRES", _tres))
    gpus = Gpus(0)
    # Only the first list with GPUs counts, because the lists state the same GPUs.
    for column, read in lists:
        gpus = _gpus_of_list(row, column, read)
        if gpus.number:
            break
    if gpus.types:
        return gpus
    requested = row.word("ReqTRES") or ""
    requested_types = {name for name, _ in GPUS.findall(requested) if name}
    # If several types were requested, it is unknown which one the job got.
    if len(requested_types) == 1:
        return gpus._replace(type=requested_types.pop())
    return gpus


_GPUS = Recurring(RESOURCE_COLUMNS, _read_gpus)


_ReadEntry: TypeAlias = Callable[[LogRow, str, str], tuple[str | None, int] | None]


def _gpus_of_list(row: LogRow, column: str, read: _ReadEntry) -> Gpus:
    """Return the GPUs in a list of resources; `read` returns the type and number of one entry."""
    untyped: int | None = None
    typed = dict[str, int]()
    for text in row.values[column].strip().split(","):
        entry = read(row, column, text)
        if entry is None:
            continue
        name, count = entry
        if name is None:
            untyped = count
        else:
            typed[name] = count
    total = untyped
    if total is None:  # otherwise, it also counts the GPUs of the typed entries
        total = sum(typed.values())
    only_type = None
    if len(typed) == 1:
        only_type = next(iter(typed))
    return Gpus(total, only_type, len(typed))


def _tres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    """Return the type and number of GPUs in an entry of a TRES list; None for another resource."""
    # Before the pattern, because most entries name other resources and `startswith` is faster.
    if not text.startswith(("gres/gpu=", "gres/gpu:")):
        if "=" not in text:
            raise row.error(column, "a list like cpu=8,gres/gpu=4,node=1")
        return None
    match = GPUS.fullmatch(text)
    if not match or int(match[2]) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gres/gpu=4 or gres/gpu:a100=4")
    return match[1], int(match[2])


def _gres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    """Return the type and number of GPUs in an entry of a GRES list; None for another resource."""
    if not text.removeprefix("gres").lstrip(":/").startswith("gpu"):
        return None
    match = GRES.fullmatch(text)
    if not match or int(match[2] or 1) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gpu:4 or gpu:a100:4")
    return match[1], int(match[2] or 1)
