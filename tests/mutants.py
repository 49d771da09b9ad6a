"""Broken inputs by the thousand, from seeds: files of every kind with some bytes, cells or values exchanged."""

from __future__ import annotations

import random
import shutil
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from polluxsim.common.errors import PolluxSimError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONGEST = 20.0
"""Processor time after which a reader hangs [s]."""

CELLS = (
    "", " ", "0", "-0", "-1", "1", "1.5", "1e9", "1e18", "1e400", "1e-320", "1.7e308", "99999999999999999999", "nan",
    "inf", "-inf", "None", "null", "NA", "<NA>", "true", "True", "0x10", "1_000", "١٢", "½", "é", "\x00", '"', '""',
    "'", ",", ";", "\r", "\n", "\t", "\u2028", "\ufeff", "a" * 300, "[1]", "{}", "*a", "&a 1",
    "!!python/object:os.system x", "1:30", "2017-02-29 00:00:00", "completed", "x x;y", "=1+1",
    "|", "- 1", "#", "~", ".5", "5.", "+3", "0b1",
)  # fmt: skip

ARRAYS: tuple[Callable[[int], pa.Array], ...] = (
    pa.nulls,
    lambda n: pa.nulls(n, pa.string()),
    lambda n: pa.array([float("nan")] * n),
    lambda n: pa.array([float("inf")] * n),
    lambda n: pa.array([-1.0] * n),
    lambda n: pa.array([1e18] * n),
    lambda n: pa.array([2**62] * n),
    lambda n: pa.array([2**64 - 1] * n, pa.uint64()),
    lambda n: pa.array([True] * n),
    lambda n: pa.array(["x"] * n),
    lambda n: pa.array(["7"] * n),
    lambda n: pa.array([b"\xff\xfe"] * n),
    lambda n: pa.array([b"\xff\xfe"] * n, pa.binary()).view(pa.string()),
    lambda n: pa.array([2**62] * n, pa.duration("s")),
    lambda n: pa.array([5] * n, pa.duration("ns")),
    lambda n: pa.array([2**45] * n, pa.timestamp("s")),
    lambda n: pa.array([-(2**30)] * n, pa.date32()),
    lambda n: pa.array([1] * n, pa.decimal128(38, 10)),
    lambda n: pa.array([[1, None]] * n),
    lambda n: pa.array([[]] * n, pa.list_(pa.int64())),
    lambda n: pa.array([["a", "a"]] * n),
    lambda n: pa.array([{"a": 1}] * n),
    lambda n: pa.array([[("gpus", None)]] * n, pa.map_(pa.string(), pa.float64())),
    lambda n: pa.array(["a"] * n).dictionary_encode(),
    lambda n: pa.array([float(row) for row in range(n)]),
    lambda n: pa.array([f"job-{row}" for row in range(n)]),
)


class Kind(NamedTuple):
    """A kind of input.

    Attributes
    ----------
    name
        What it is called.
    write
        Writes a mutant into an empty folder.
    read
        Reads it as a user would, and checks what was read; raises `AssertionError` where it was read wrongly.
    """

    name: str
    write: Callable[[random.Random, Path], None]
    read: Callable[[Path], None]


READ, REFUSED = "read", "refused"


def outcome(kind: Kind, seed: int, folder: Path) -> str:
    """Return whether a mutant was `READ`, `REFUSED` in one clear line, or what went wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind.write(random.Random(f"{kind.name} {seed}"), folder)
    try:
        with no_longer_than(LONGEST):
            kind.read(folder)
    except PolluxSimError as error:
        text = str(error)
        return REFUSED if text and "\n" not in text and len(text) < 2000 else f"not one line: {text!r}"
    except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
        return f"{type(error).__name__}: {error}"
    return READ


class HangsError(Exception):
    """A reader does not come to an end."""


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raise `HangsError` where the block takes more of the processor's time."""

    def stop(number: int, frame: object) -> None:
        raise HangsError(f"{seconds:g} s and no end")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def broken_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return a file's bytes with some flipped, cut out, doubled, inserted or cut off."""
    broken = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(broken) + 1), rng.randint(1, 40)
        way = rng.randrange(5)
        if way == 0 and at < len(broken):
            broken[at] ^= rng.randint(1, 255)
        elif way == 1:
            del broken[at : at + size]
        elif way == 2:
            broken[at:at] = broken[at : at + size]
        elif way == 3:
            broken[at:at] = rng.randbytes(size)
        elif rng.random() < 0.2:
            del broken[at:]
    return bytes(broken)


def broken_cells(text: str, rng: random.Random, delimiter: str) -> str:
    """Return a text's lines with some cells exchanged, and lines doubled, dropped or moved."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        cells = lines[at].split(delimiter)
        way = rng.randrange(10)
        if way < 6:
            cells[rng.randrange(len(cells))] = rng.choice(CELLS)
            lines[at] = delimiter.join(cells)
        elif way == 6:
            lines.insert(rng.randrange(len(lines)), lines[at])
        elif way == 7 and len(lines) > 1:
            del lines[at]
        elif way == 8:
            lines[at] = delimiter.join([*cells, rng.choice(CELLS)][rng.randrange(2) :])
        else:
            rng.shuffle(cells)
            lines[at] = delimiter.join(cells)
    return "\n".join(lines)


def broken_text(data: bytes, rng: random.Random, delimiter: str) -> bytes:
    """Return a text file with broken cells, seldom with broken bytes."""
    if rng.random() < 0.25:
        return broken_bytes(data, rng)
    return broken_cells(data.decode(), rng, delimiter).encode("utf-8", "surrogatepass")


def break_table(path: Path, rng: random.Random) -> None:
    """Exchange, drop or add columns and rows of a Parquet file, or break its bytes."""
    if rng.random() < 0.15:
        path.write_bytes(broken_bytes(path.read_bytes(), rng))
        return
    table = pq.read_table(path)
    for _ in range(rng.randint(1, 2)):
        table = _broken_table(table, rng)
    pq.write_table(table, path)


def _broken_table(table: pa.Table, rng: random.Random) -> pa.Table:
    if not table.num_columns:
        return table
    at = rng.randrange(table.num_columns)
    name, column = table.schema.names[at], table.column(at)
    way = rng.randrange(10)
    if way < 4:
        return table.set_column(at, name, rng.choice(ARRAYS)(table.num_rows))
    if way < 8 and table.num_rows:
        with suppress(ValueError, OverflowError, pa.ArrowException):  # what the first change left cannot be changed so
            return table.set_column(at, name, _one_exchanged(column, rng))
    if way == 8:
        return table.remove_column(at)
    rows = [rng.randrange(table.num_rows) for _ in range(rng.randrange(4))] if table.num_rows else []
    return table.take(pa.array(rows, pa.int64()))


def _one_exchanged(column: pa.ChunkedArray, rng: random.Random) -> pa.ChunkedArray | pa.Array:
    """Return a column with one value that its type allows exchanged, or an empty place."""
    values: list[Any] = column.to_pylist()
    kind = column.type
    choices: list[Any] = [None]
    if pa.types.is_floating(kind):
        choices += [float("nan"), float("inf"), -1.0, 0.0, 1e18, 1.7e308, 1e-320]
    elif pa.types.is_integer(kind):
        choices += [0, -1, 2**62, -(2**63)]
    elif pa.types.is_string(kind):
        choices += [*CELLS, *values]
    elif pa.types.is_list(kind):
        choices += [[], [None], *values]
    values[rng.randrange(len(values))] = rng.choice(choices)
    return pa.array(values, kind)
