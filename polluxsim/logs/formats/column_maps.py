"""Maps from the values of a job to the columns of a table, as users write them."""

from __future__ import annotations

import re
from typing import NamedTuple

from polluxsim.common.errors import InvalidConfigError, allowed_among
from polluxsim.common.tables import read_number

KEYS = {
    "job": "name of the job",
    "submit": "submission: seconds, or a date and time",
    "eligible": "time from which it could start",
    "start": "start",
    "end": "end",
    "duration": "time on GPUs [s], or like 1-02:03:04",
    "wait": "time from submission to start [s], or like 02:03:04",
    "gpus": "GPUs",
    "user": "user",
    "tenant": "virtual cluster, account or team",
    "partition": "part of the cluster, or queue",
    "status": "how it ended",
    "application": "application or recurring name of the job",
    "gpu_type": "GPU type",
    "nodes": "nodes",
    "gpus_per_task": "GPUs of each task, which are on one node; 1 for anywhere",
    "cpus": "CPUs on all nodes together",
    "memory": "memory on all nodes together [GB]",
    "time_limit": "time limit [s], or like 1-00:00:00",
    "priority": "priority",
    "qos": "quality of service",
}
"""Keys of a map of columns, with their meanings."""

NEEDED = ("submit", "gpus")

PAIR = re.compile(r"(?P<key>[^=]*)=\s*(?P<column>[^:*\s][^:*]*)(?P<entries>(?::[^:*]+)*)(?:\*(?P<factor>[^:*]+))?")
"""KEY=COLUMN, KEY=COLUMN*FACTOR for a number in another unit, KEY=COLUMN*COLUMN for a product, KEY=COLUMN:ENTRY for an
entry of a list like 1=8,1002=2."""


class ColumnSource(NamedTuple):
    """The source of the values of one key."""

    column: str
    entries: tuple[str, ...] = ()  # names of the entries of a list in the column; empty if the column is no list
    factor: float = 1.0  # from the unit of the column to the unit of the key
    other_column: str = ""  # column whose number is a further factor; empty if there is none


def parse_columns(text: str) -> dict[str, ColumnSource]:
    """Return a map of columns that a user writes as KEY=COLUMN,KEY=COLUMN.

    Raise InvalidConfigError if the text has another form, a key is unknown or given twice, or a factor is not above 0.

    >>> parse_columns("submit=created_at,gpus=tres:1001:1002,time_limit=minutes*60")["gpus"]
    ColumnSource(column='tres', entries=('1001', '1002'), factor=1.0, other_column='')
    """
    sources = dict[str, ColumnSource]()
    for part in text.split(","):
        pair = part.strip()
        # A comma too many is no mistake that matters.
        if not pair:
            continue
        match = PAIR.fullmatch(pair)
        if match is None:
            raise InvalidConfigError(
                f"--columns has {pair!r}, which is not KEY=COLUMN, KEY=COLUMN*FACTOR or KEY=COLUMN:ENTRY; correct it"
            )
        key = match["key"].strip()
        if key not in KEYS:
            raise InvalidConfigError(f"--columns has the unknown key {key!r}; {allowed_among(key, KEYS)}")
        if key in sources:
            raise InvalidConfigError(f"--columns has the key {key!r} twice; give it once")
        factor = read_number(match["factor"] or "1")
        if factor is not None and factor <= 0:
            raise InvalidConfigError(f"--columns has the factor {match['factor']!r} in {pair!r}; give a number above 0")
        column = match["column"].strip()
        entries = tuple(entry.strip() for entry in match["entries"].split(":")[1:])
        if factor is None:  # the factor is the name of a column
            sources[key] = ColumnSource(column, entries, other_column=match["factor"].strip())
        else:
            sources[key] = ColumnSource(column, entries, factor)
    return sources
