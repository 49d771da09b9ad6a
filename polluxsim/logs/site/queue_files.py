"""Recognise a file with the jobs of a cluster that run or wait, and read it."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats.json_rows import is_json
from polluxsim.logs.formats.opening import head_of
from polluxsim.logs.site.kubernetes_queue import read_kubernetes
from polluxsim.logs.site.queue import Queue
from polluxsim.logs.site.squeue import read_squeue


def read_queue(path: Path, zone: tzinfo, time: float | None = None) -> Queue:
    """Return the jobs in the output of `squeue`, `kubectl get pods` or `kubectl get workloads`.

    `zone` is the zone of local times. `time` is that of the state [s since 1970-01-01 UTC]; without it, the file says.
    Raise InvalidInputError if the file is none of these, or a value is invalid.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; check the path")
    if not head_of(path).strip():
        raise InvalidInputError(f"{path}: the file is empty; give the output of squeue")
    if is_json(path) and b'"items"' in head_of(path):
        return read_kubernetes(path, time)
    return read_squeue(path, zone, time)
