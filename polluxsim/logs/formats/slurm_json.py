"""Jobs of `sacct --json` as rows of sacct's text."""

from __future__ import annotations

from dataclasses import dataclass

from polluxsim.logs.formats.base import BadRowError
from polluxsim.logs.formats.json_rows import JsonRow
from polluxsim.logs.formats.log_rows import LogRow

ARRAY_LIMIT = "array.limits.max.running.tasks"
"""Key of `sacct --json` for the jobs of an array that may run at once, a column of its rows here."""


@dataclass(frozen=True)
class _JsonCells(LogRow):
    """A job of `sacct --json` as a row of sacct's text. Errors name the key of each column."""

    def error(self, column: str, allowed: str) -> BadRowError:
        reason = f"key {KEYS.get(column, column)!r} is not {allowed}"
        return BadRowError(self.path, self.line, reason, self.values.get(column, ""))


KEYS = {
    "JobID": "job_id",
    "JobName": "name",
    "User": "user",
    "Account": "account",
    "Partition": "partition",
    "QOS": "qos",
    "Priority": "priority",
    "State": "state.current",
    "Submit": "time.submission",
    "Eligible": "time.eligible",
    "Start": "time.start",
    "End": "time.end",
    "ElapsedRaw": "time.elapsed",
    "TimelimitRaw": "time.limit",
    "NNodes": "allocation_nodes",
    "Restarts": "restart_cnt",
    "AllocTRES": "tres.allocated",
    "ReqTRES": "tres.requested",
}
"""Keys of `sacct --json` by the columns of sacct's text (slurm.schedmd.com/rest_api.html, dbv0.0.37 to 0.0.43)."""


def sacct_cells(row: JsonRow) -> _JsonCells:
    """Return a job of `sacct --json` as a row of sacct's text."""
    array = row.child("array")
    time = row.child("time")
    tres = row.child("tres")
    limits = array.child("limits").child("max").child("running")
    # A key with a point is in an inner object, which is read below.
    cells = {column: scalar(row, key) for column, key in KEYS.items() if "." not in key}
    cells |= {
        "JobID": _job_id(row, array, row.child("het")),
        "User": cells["User"] or scalar(row.child("association"), "user"),
        "State": _state(row.child("state")),
        "Submit": _number_or_blank(time, "submission"),
        "Eligible": _number_or_blank(time, "eligible"),
        "Start": _number_or_blank(time, "start"),
        "End": _number_or_blank(time, "end"),
        "ElapsedRaw": scalar(time, "elapsed"),
        "TimelimitRaw": scalar(time, "limit"),
        "AllocTRES": _resources(tres, "allocated"),
        "ReqTRES": _resources(tres, "requested"),
        ARRAY_LIMIT: _number_or_blank(limits, "tasks"),
    }
    return _JsonCells(row.path, row.line, cells, row.zone)


def scalar(row: JsonRow, key: str) -> str:
    """Return a text or number as text, blank if it is not set."""
    value = row.values.get(key)
    if isinstance(value, dict):
        return _set_number(row.child(key))
    if value is None or value == "":
        return ""
    if isinstance(value, str) and key == KEYS["JobName"]:  # a text that a user chooses, with any bytes
        return row.free_text(key)
    if isinstance(value, str):
        return row.text(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise row.error(key, "a text or a number")
    return str(value)


def _set_number(row: JsonRow) -> str:
    """Return the number of an object {"set": …, "infinite": …, "number": …}, which Slurm has since 23.02, as text.

    An infinite number is UNLIMITED, and one that is not set is blank.
    """
    if row.values.get("infinite"):
        return "UNLIMITED"
    if not row.values.get("set"):  # the number is then a placeholder
        return ""
    return scalar(row, "number")


def _number_or_blank(row: JsonRow, key: str) -> str:
    """Return a number as text, blank for 0, which Slurm writes for an unknown time or no limit."""
    text = scalar(row, key)
    if text == "0":
        return ""
    return text


def _job_id(row: JsonRow, array: JsonRow, het: JsonRow) -> str:
    """Return the id of a job in the form of `JOB_ID`."""
    first = _number_or_blank(het, "job_id")
    if first:
        return f"{first}+{scalar(het, 'job_offset') or 0}"
    first = _number_or_blank(array, "job_id")
    if first:
        task = scalar(array, "task_id")
        if task:
            return f"{first}_{task}"
        tasks = scalar(array, "task")
        if tasks:
            return f"{first}_[{tasks}]"
    return scalar(row, "job_id")


def _state(row: JsonRow) -> str:
    """Return the base state of a job. Since Slurm 23.11 the key has a list of states, the base state first."""
    value = row.values.get("current")
    if not isinstance(value, list):
        return scalar(row, "current")
    if not value or not isinstance(value[0], str):
        raise row.error("current", "a list of states")
    return value[0]


def _resources(tres: JsonRow, key: str) -> str:
    """Return a list of resources as sacct's text, like cpu=8,gres/gpu:a100=4."""
    parts = []
    for entry in tres.children(key):
        resource = scalar(entry, "type")
        name = scalar(entry, "name")
        count = scalar(entry, "count")
        if name:
            resource = f"{resource}/{name}"
        if count:
            parts.append(f"{resource}={count}")
    return ",".join(parts)
