"""Find the format of a log by its first lines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.extracts.anonymous import is_header
from polluxsim.logs.extracts.known_words import plain
from polluxsim.logs.formats import FORMATS
from polluxsim.logs.formats.column_maps import NEEDED
from polluxsim.logs.formats.log_rows import TableFormat
from polluxsim.logs.formats.opening import PBS_ROW, RECOGNISED, SWF_ROW, head_of
from polluxsim.logs.formats.slurm_jobs import STATES

KINDS = {"Workload": "kueue", "PodGroup": "volcano", "Pod": "pods"}
"""Formats by the kind of a Kubernetes object, in the order in which they are tried."""

LEAST_SHARE = 0.6  # smallest share of the needed columns in a header by which a format is known


def guessed_format(path: Path) -> str:
    """Return the name of the format of a log; raise InvalidInputError if it cannot be told from its first lines."""
    head = head_of(path)
    if re.match(PBS_ROW, head):
        return "pbs"
    if re.match(SWF_ROW, head) or head.startswith(b";"):
        return "swf"
    # The import refuses such a file under the name of any format, with advice on what to do.
    if any(kind.is_it(head) for kind in RECOGNISED if not kind.formats):  # no format reads it
        return "slurm"
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    name = _json_format(text) if text.startswith(("{", "[")) else _table_format(text, path.name)
    if name is None:
        raise InvalidInputError(
            f"{path}: the format is unknown from the first lines; name it with --format, like --format slurm"
        )
    return name


def _json_format(text: str) -> str:
    """Return the format of a log in JSON; `table` if no other format has its keys."""
    keys = set(re.findall(r'"(\w+)"\s*:', text))
    if "jobid" in keys and "attempts" in keys:
        return "philly-raw"
    if "items" in keys:
        # The objects of a list also mention the kinds of other objects, for example of their owners.
        kinds = set(re.findall(r'"kind"\s*:\s*"(\w+)"', text))
        for kind, name in KINDS.items():
            if kind in kinds:
                return name
        return "pods"
    if re.match(r"\{[^\[\]]*\"jobs\"", text) or {"jobs", "meta"} <= keys:
        return "slurm"
    return "table"


def _table_format(text: str, file_name: str) -> str | None:
    """Return the format of a text table; None if its first lines do not tell."""
    first = text.split("\n", 1)[0]
    has_state = any(re.search(rf"[|\t;,]{state}\b", text) for state in STATES)
    if re.search(r"^\s*(?:JOBID\b|JobId=|JobID\b|JobIDRaw\b)", text, re.MULTILINE):  # perhaps below a greeting
        return "slurm"
    if not is_header(first):
        if "|" in first and has_state:
            return "slurm"
        return _without_header(first)
    columns = {plain(word) for word in re.findall(r"[\w.:%]+", first)}
    shares = {"table": _share([(key,) for key in NEEDED], columns)}
    for name, log_format in FORMATS.items():
        if isinstance(log_format, TableFormat) and log_format.layout.has_header:
            layout = log_format.layout
            needed = [(column,) for column in layout.columns]
            shares[name] = _share([*needed, *layout.alternatives], columns)
    # Several formats may have all their columns. The format with the most columns is likely, or the one in the name.
    best = max(shares, key=lambda name: (shares[name], name in file_name))
    if shares[best][0] < LEAST_SHARE:
        return None
    return best


def _share(needed: Sequence[tuple[str, ...]], columns: set[str]) -> tuple[float, int]:
    """Return the share and the number of the needed columns that a header has. One alternative of a group is enough."""
    present = sum(any(plain(column) in columns for column in group) for group in needed)
    return present / len(needed), present


def _without_header(first: str) -> str | None:
    """Return the format of a text without a header, by the number of cells of its first line.

    A line of JSON is a `table`. Return None if no format has such lines.
    """
    for name in ("gavel", "pai2020"):
        layout = FORMATS[name].layout
        widths = {len(layout.columns), *map(len, layout.other_columns)}
        if len(first.split(layout.delimiter)) in widths:
            return name
    try:
        json.loads(first)
    except ValueError:
        return None
    return "table"
