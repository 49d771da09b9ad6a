"""Read the rows of `squeue`, as text or JSON, with the same names of columns for all forms of its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from pathlib import Path

from polluxsim.common.errors import bad_line
from polluxsim.logs.formats.base import BadRowError
from polluxsim.logs.formats.json_rows import JsonRow, is_json, json_rows
from polluxsim.logs.formats.log_rows import LogRow, read_lines
from polluxsim.logs.formats.slurm_json import scalar

ADVICE = "give the output of squeue --json, or of squeue -a -o '%i|%j|%u|%a|%P|%q|%Q|%T|%V|%S|%M|%l|%D|%b|%N|%r|%E'"

NOTHING = ("", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "UNLIMITED", "INVALID", "NOT_SET", "Partition_Limit")

SAME = {
    "ST": "STATE", "S": "STATE", "NODELIST(REASON)": "NODELIST", "ACCT": "ACCOUNT", "USERNAME": "USER",
    "JOBNAME": "NAME", "TIMELIMIT": "TIME_LIMIT", "TIMELEFT": "TIME_LEFT", "TRES_PER_SOCKET": "TRES_PER_SOCKET",
    "GRES": "TRES_PER_NODE", "NUM_NODES": "NODES", "NUM_TASKS": "TASKS", "SUBMITTIME": "SUBMIT_TIME",
    "TRES-ALLOC": "TRES_ALLOC", "TRES-PER-NODE": "TRES_PER_NODE", "TRES-PER-JOB": "TRES_PER_JOB",
    "TRES-PER-TASK": "TRES_PER_TASK", "NTASKS": "TASKS", "QOSNAME": "QOS", "ELIGIBLETIME": "ELIGIBLE_TIME",
}  # fmt: skip
"""Other names of columns, for the same values."""

NEEDED = ("JOBID", "STATE", "SUBMIT_TIME")
TRES = ("TRES_ALLOC", "TRES_PER_JOB", "TRES_PER_NODE", "TRES_PER_TASK")
"""Columns with the GPUs of a job."""


def squeue_rows(path: Path, zone: tzinfo) -> Iterator[LogRow]:
    """Yield the jobs of squeue as rows of its text. `zone` is the zone of local times.

    Raise InvalidInputError if the file lacks a needed column, or a row cannot be read.
    """
    if is_json(path):
        yield from _rows_of_json(path)
    else:
        yield from _rows_of_text(path, zone)


def _rows_of_text(path: Path, zone: tzinfo) -> Iterator[LogRow]:
    """Yield the rows of squeue's text. Names of jobs keep their bytes that are not UTF-8."""
    lines = read_lines(path, keep_bytes=True)
    first_line, header = next(lines, (1, ""))
    if isinstance(header, BadRowError):
        raise header
    # In this order, because a comma may also separate the nodes or resources in one cell.
    separator = next((mark for mark in "|\t;," if mark in header), None)
    names = [SAME.get(name, name) for name in _cells(header, separator, 0)]
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise bad_line(path, first_line, f"the queue has no column {missing[0]}; {ADVICE}")
    if not set(TRES) & set(names):
        raise bad_line(path, first_line, f"the queue has no column with the GPUs of a job; {ADVICE}")
    for line, text in lines:
        if isinstance(text, BadRowError):
            raise text
        cells = _cells(text, separator, len(names))
        if cells[:2] == _cells(header, separator, len(names))[:2]:
            continue  # squeue --iterate repeats the header
        # Only the name of a job is chosen freely, so it has the further separators.
        if len(cells) > len(names) and separator is not None and "NAME" in names:
            cells = _joined(cells, names.index("NAME"), len(names), separator)
        if len(cells) != len(names):
            raise bad_line(path, line, f"{len(cells)} cells below {len(names)} names of columns; {ADVICE}")
        values = _without_nothing(zip(names, cells, strict=True))
        # The last column of the usual format has the reason of a waiting job in place of its nodes.
        nodes = values.get("NODELIST", "")
        if nodes.startswith("("):
            values |= {"NODELIST": "", "REASON": values.get("REASON") or nodes.strip("()")}
        yield LogRow(path, line, values, zone)


def _cells(text: str, separator: str | None, number: int) -> list[str]:
    """Return the cells of a line. Without a separator, blanks separate them, and the last cell may have blanks."""
    if separator is not None:
        return [cell.strip() for cell in text.split(separator)]
    most_splits = number - 1
    return text.split(None, most_splits)  # without a limit for the number 0 of unknown columns


def _without_nothing(cells: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return cells by column. A cell with a word for nothing is blank."""
    return {name: "" if cell in NOTHING else cell for name, cell in cells}


def _joined(cells: Sequence[str], name: int, number: int, separator: str) -> list[str]:
    """Return the cells of a row in whose job name the separator occurs.

    `name` is the index of the column with the job name, and `number` is the number of columns.
    """
    end = name + len(cells) - number + 1
    joined = list(cells)
    joined[name:end] = [separator.join(cells[name:end])]
    return joined


class _JsonCells(LogRow):
    """A job of `squeue --json` as a row of squeue's text. Errors name the key."""

    def error(self, column: str, allowed: str) -> BadRowError:
        return BadRowError(self.path, self.line, f"key {KEYS.get(column, column)!r} is not {allowed}",
                           self.values.get(column, ""))  # fmt: skip


KEYS = {
    "NAME": "name", "USER": "user_name", "ACCOUNT": "account", "PARTITION": "partition", "QOS": "qos",
    "PRIORITY": "priority", "SUBMIT_TIME": "submit_time", "START_TIME": "start_time", "ELIGIBLE_TIME": "eligible_time",
    "NODES": "node_count", "TASKS": "tasks", "TRES_PER_NODE": "tres_per_node", "TRES_PER_JOB": "tres_per_job",
    "TRES_PER_TASK": "tres_per_task", "TRES_ALLOC": "tres_alloc_str", "TRES_REQUESTED": "tres_req_str",
    "NODELIST": "nodes", "REASON": "state_reason", "DEPENDENCY": "dependency", "EVALUATED": "last_sched_evaluation",
    "LAST_UPDATE": "last_update",
}  # fmt: skip
"""Keys of `squeue --json` by the columns of squeue's text (slurm.schedmd.com/rest_api.html, v0.0.37 to 0.0.43)."""


def _rows_of_json(path: Path) -> Iterator[LogRow]:
    """Yield the jobs of `squeue --json` as rows of squeue's text."""
    for row in json_rows(path, "jobs", None):
        cells = {column: _scalar_of(row, key) for column, key in KEYS.items()}
        limit = _scalar_of(row, "time_limit")  # in minutes, or a word
        cells |= {
            "JOBID": _id_of(row),
            "STATE": _state_of(row),
            "TIME_LIMIT": "",
            "ARRAY_LIMIT": _scalar_of(row, "array_max_tasks"),
            "GRES_DETAIL": ";".join(_texts(row, "gres_detail")),
        }
        if limit.isdecimal():
            cells["TIME_LIMIT"] = f"{limit}:00"
        yield _JsonCells(path, row.line, _without_nothing(cells.items()))


def _scalar_of(row: JsonRow, key: str) -> str:
    """Return a text or number as text; blank if it is not set."""
    value = row.values.get(key)
    if isinstance(value, dict) and "number" not in value and "set" not in value:
        return ""
    if key == "name" and row.has(key):  # the name of a job may have any characters
        return row.free_text(key)
    return scalar(row, key)


def _texts(row: JsonRow, key: str) -> list[str]:
    """Return the texts of a list; none if the value is no list."""
    value = row.values.get(key)
    if not isinstance(value, list):
        return []
    return [text for text in value if isinstance(text, str)]


def _id_of(row: JsonRow) -> str:
    """Return the id of a job, as squeue's text has it."""
    array = _scalar_of(row, "array_job_id")
    if array in ("", "0"):
        return _scalar_of(row, "job_id")
    task = _scalar_of(row, "array_task_id")
    waiting_tasks = _scalar_of(row, "array_task_string")
    if waiting_tasks:
        return f"{array}_[{waiting_tasks}]"
    return f"{array}_{task}"


def _state_of(row: JsonRow) -> str:
    """Return the state of a job. Since Slurm 23.11 it is a list, the base state first."""
    states = _texts(row, "job_state")
    if "COMPLETING" in states:
        return "COMPLETING"
    if states:
        return states[0]
    return _scalar_of(row, "job_state")
