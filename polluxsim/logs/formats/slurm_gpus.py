"""The GPUs of a job in Slurm's lists of resources: how many, and of which type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.logs.formats.log_rows import MAX_GPUS

if TYPE_CHECKING:
    from collections.abc import Callable

    from polluxsim.logs.formats.log_rows import LogRow

SEVERAL_TYPES = "GPUs of several types, which can be replayed on any one"

GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,7})", re.ASCII)
"""One entry of a TRES list for GPUs, of one type or of all."""

GRES = re.compile(r"(?:gres[:/])?gpu(?::([^:,=()\d][^:,=()]*))?(?:[:=](\d{1,7}))?(?:\([^)]*\))?", re.ASCII)
"""One entry of a GRES list for GPUs, as older versions write them: gpu:4, gpu:a100:4; gpu alone is one."""


class SlurmGpus(NamedTuple):
    """GPUs of a job, of which type where all are of one, and how many types there are."""

    number: int
    type: str | None = None
    types: int = 0


def gpus_of(row: LogRow) -> SlurmGpus:
    """Return the GPUs that the job was given, or asked for where the log does not say what it was given.

    Not every cluster accounts for the types of what it gives; then the type that a job asked for is its type.
    """
    for column, read in (("AllocTRES", _tres), ("AllocGRES", _gres), ("ReqTRES", _tres)):
        if row.has(column):
            found = _gpus_of_list(row, column, read)
            return found if found.types else found._replace(type=_type_asked_for(row))
    return SlurmGpus(0)


def _type_asked_for(row: LogRow) -> str | None:
    asked = {name for name, _ in GPUS.findall(row.values["ReqTRES"]) if name} if row.has("ReqTRES") else set()
    return asked.pop() if len(asked) == 1 else None


def _gpus_of_list(
    row: LogRow, column: str, read: Callable[[LogRow, str, str], tuple[str | None, int] | None]
) -> SlurmGpus:
    entries = [found for text in row.values[column].strip().split(",") if (found := read(row, column, text))]
    typed = {name: count for name, count in entries if name is not None}
    # The untyped entry counts the typed ones too, so that adding both would count them twice.
    total = next((count for name, count in reversed(entries) if name is None), sum(typed.values()))
    return SlurmGpus(total, next(iter(typed)) if len(typed) == 1 else None, len(typed))


def _tres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    if not text.startswith(("gres/gpu=", "gres/gpu:")):
        if "=" not in text:
            raise row.error(column, "a list like cpu=8,gres/gpu=4,node=1")
        return None
    match = GPUS.fullmatch(text)
    if not match or int(match[2]) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gres/gpu=4 or gres/gpu:a100=4")
    return match[1], int(match[2])


def _gres(row: LogRow, column: str, text: str) -> tuple[str | None, int] | None:
    if not text.removeprefix("gres").lstrip(":/").startswith("gpu"):
        return None
    match = GRES.fullmatch(text)
    if not match or int(match[2] or 1) > MAX_GPUS:
        raise row.error(column, "a list with GPUs like gpu:4 or gpu:a100:4")
    return match[1], int(match[2] or 1)
