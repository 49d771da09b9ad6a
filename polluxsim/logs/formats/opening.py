"""Open the files of a log as sites keep them, and recognise a file that is something else.

Archives of logs are often compressed, so `open_log` reads gzip, bzip2, xz and Zstandard by the first bytes of a file,
whatever its name is. A wrong file is a common mistake: a pointer of Git LFS in place of the file, the queue in place of
the accounting, or a log of another format. `check_opening` recognises such a file by its first lines, before a reader
complains about its columns, and says what the file is and what to do.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from polluxsim.common.errors import InvalidInputError, reading

HEAD_BYTES = 1 << 13  # bytes at the start of a file by which it is recognised

COMPRESSED_ENDINGS = ("", ".gz", ".bz2", ".xz", ".zst")
"""Endings that a compressed file of a log adds to its name; the empty one is that of a file that is not compressed."""


def _open_gzip(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.GzipFile(path, "rb"))


def _open_bzip2(path: Path) -> BinaryIO:
    return cast("BinaryIO", bz2.BZ2File(path))


def _open_xz(path: Path) -> BinaryIO:
    return cast("BinaryIO", lzma.LZMAFile(path))


def _open_zstandard(path: Path) -> BinaryIO:
    import pyarrow as pa  # noqa: PLC0415  (slow to load, and only needed for this compression)

    stream = pa.CompressedInputStream(pa.OSFile(os.fsencode(path)), "zstd")
    return io.BufferedReader(cast("io.RawIOBase", stream))


OPENERS: tuple[tuple[bytes, Callable[[Path], BinaryIO]], ...] = (
    (b"\x1f\x8b", _open_gzip),
    (b"BZh", _open_bzip2),
    (b"\xfd7zXZ\x00", _open_xz),
    (b"\x28\xb5\x2f\xfd", _open_zstandard),
)
"""First bytes of each compression, and a function that opens such a file."""


@contextmanager
def open_log(path: Path) -> Iterator[BinaryIO]:
    """Yield a file of a log as a stream of bytes, uncompressed.

    Raise InvalidInputError if the file cannot be opened, or if reading it in the block fails.
    """
    with reading(path), path.open("rb") as raw:
        first_bytes = raw.read(8)
        # By its first bytes, because the name of a file may have lost the ending of its compression.
        opener = next((opener for magic, opener in OPENERS if first_bytes.startswith(magic)), None)
        if opener is None:
            raw.seek(0)
            yield raw
            return
        try:
            with opener(path) as stream:
                yield stream
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise _damaged(path, error) from None
        except OSError as error:
            # Arrow and bz2 report damaged data as an OSError without a number.
            if error.errno is not None:
                raise
            raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InvalidInputError:
    """Return the error about a compressed file with damaged data."""
    reason = type(error).__name__
    if str(error):
        reason = str(error).splitlines()[0]
    return InvalidInputError(f"{path}: the compressed data are damaged ({reason}); copy the file again")


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, uncompressed; at most `HEAD_BYTES`."""
    with open_log(path) as file:
        return file.read(HEAD_BYTES)


class Recognised(NamedTuple):
    """A kind of file that is known by its first lines."""

    is_it: Callable[[bytes], bool]  # tells from the first bytes
    description: str  # of the kind of file
    advice: str  # what to do
    formats: tuple[str, ...] = ()  # formats of logs that read it


def _starts_with(*beginnings: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(beginnings)


def _matches(pattern: bytes) -> Callable[[bytes], bool]:
    return lambda head: re.match(pattern, head) is not None


def _is_fixed_width(head: bytes) -> bool:
    """Return whether the second line has only dashes, one group below each name of the first line."""
    lines = head.split(b"\n", 2)
    if len(lines) < 2:
        return False
    groups = lines[1].split()
    return len(groups) == len(lines[0].split()) and bool(groups) and all(set(group) == {ord("-")} for group in groups)


def _is_queue_in_json(head: bytes) -> bool:
    """Return whether a file is the output of `squeue --json`, whose jobs have other keys than those of sacct."""
    return head.lstrip().startswith(b"{") and b'"jobs"' in head and b'"job_state"' in head and b'"submit_time"' in head


def _is_kubernetes(head: bytes) -> bool:
    """Return whether a file is a list of objects as kubectl prints it."""
    return head.lstrip().startswith(b"{") and b'"items"' in head and re.search(rb'"kind"\s*:', head) is not None


SWF_ROW = rb"(?:\s*;[^\n]*\n|\s*\n)*\s*(?:-?\d+(?:\.\d+)?\s+){17}-?\d+(?:\.\d+)?\s*(?:\n|$)"
"""Comments, and then a row of 18 numbers."""


def is_standard_workload_format(path: Path) -> bool:
    """Return whether a file begins like a log in the Standard Workload Format."""
    return re.match(SWF_ROW, head_of(path)) is not None


PBS_ROW = rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Z];"
"""The time and the type of a record of PBS."""

RECOGNISED = (
    Recognised(_starts_with(b"version https://git-lfs.github.com/spec/"), "a Git LFS pointer, not the file itself",
               "run git lfs pull in the repository, and give the file again"),
    Recognised(_starts_with(b"PAR1"), "a Parquet file", "give the log itself; a trace of polluxsim needs no import"),
    Recognised(_starts_with(b"PK\x03\x04"), "a ZIP archive or a workbook",
               "unpack it, or save the sheet as CSV, and give that file"),
    Recognised(lambda head: head[257:262] == b"ustar", "a tar archive",
               "unpack it, and give the file or the folder with the log"),
    Recognised(_starts_with(b"\xff\xfe", b"\xfe\xff"), "text in UTF-16",
               "convert it with iconv -f UTF-16 -t UTF-8, and give that file"),
    Recognised(_matches(rb"(?i)(?:\xef\xbb\xbf)?\s*<(?:!doctype html|html)"), "a web page, not the file behind it",
               "download the file itself"),
    Recognised(_is_queue_in_json, "the queue (squeue --json), not the accounting",
               "give the output of sacct --json --allusers; 'polluxsim when' reads the queue"),
    Recognised(_matches(rb"\s*JOBID(?: +PARTITION +NAME +USER +ST\b|\|[A-Z_|]*\bSTATE\b)"),
               "the queue (squeue), not the accounting",
               "give the output of sacct --allusers --parsable2; 'polluxsim when' reads the queue"),
    Recognised(_matches(rb"\s*JobId=\d+ "), "the output of scontrol show job, not the accounting",
               "give the output of sacct --allusers --parsable2"),
    Recognised(_is_fixed_width, "a table of fixed width, such as sacct prints without --parsable2",
               "run sacct with --parsable2, because columns of fixed width cut values off"),
    Recognised(_matches(PBS_ROW), "an accounting log of PBS", "import it with the format pbs", ("pbs",)),
    Recognised(_matches(SWF_ROW), "a log in the Standard Workload Format", "import it with the format swf",
               ("swf", "table")),
    Recognised(_is_kubernetes, "a list of Kubernetes objects",
               "import it with the format pods, kueue or volcano", ("pods", "kueue", "volcano", "table")),
)  # fmt: skip
"""Kinds of files in the order in which they are tried."""


def check_opening(path: Path, format_name: str) -> None:
    """Raise InvalidInputError if a file is empty, or begins like a file of another kind than the format reads."""
    head = head_of(path)
    if not head.strip():
        raise InvalidInputError(f"{path}: the file is empty; give the log")
    for kind in RECOGNISED:
        if format_name not in kind.formats and kind.is_it(head):
            raise InvalidInputError(f"{path}: this is {kind.description}; {kind.advice}")
