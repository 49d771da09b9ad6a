"""Run the queries of Slurm whose output states a cluster, and keep it in files.

No other command of Slurm is run, and no query changes anything. All times are printed in UTC.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.logs.live.loose_json import has_errors

SACCT_FORMAT = (
    "JobID,JobName,User,Account,Partition,QOS,Priority,State,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NNodes,"
    "ReqTRES,AllocTRES,NodeList"
)

QUERIES: Mapping[str, tuple[str, ...]] = {
    "squeue.json": ("squeue", "--json"),
    "sinfo.json": ("sinfo", "--json"),
    "nodes.txt": ("scontrol", "show", "nodes", "-o"),
    "partitions.txt": ("scontrol", "show", "partitions", "-o"),
    "reservations.txt": ("scontrol", "show", "reservations", "-o"),
    "config.txt": ("scontrol", "show", "config"),
    "sdiag.txt": ("sdiag",),
    "sshare.txt": ("sshare", "--all", "--parsable2"),
    "sacct.txt": (
        "sacct", "--allusers", "--parsable2", "--starttime", "now-14days", "--format", SACCT_FORMAT,
    ),
}  # fmt: skip
"""Queries by the file that keeps their output."""

TAKEN = "taken.txt"
"""File with the time of the queries [s since 1970-01-01 UTC]."""

PATIENCE = 60  # longest time of a query [s]

ZONE = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}  # variables under which Slurm prints local times in UTC


def answers() -> dict[str, bytes]:
    """Return the output of each query by the name of its file, and the time. A query that fails has no output.

    Raise InvalidInputError if Slurm is not on this machine, or the queue cannot be read.
    """
    if shutil.which("squeue") is None:
        raise InvalidInputError(
            "squeue is not on this machine; run the commands of 'polluxsim twin collect --print' where Slurm is, and "
            "give the folder with --state DIR"
        )
    # The time is that before the first query. If the queue then has a later one, the reader of the files uses that.
    outputs = {TAKEN: f"{int(time.time())}\n".encode()}
    for name, query in QUERIES.items():
        output = _output(query)
        # The other queries are not needed, but there is no state without the queue.
        if name == "squeue.json" and (output is None or has_errors(output.decode(errors="replace"))):
            raise InvalidInputError(
                "squeue --json failed; check that slurmctld answers, for example with 'scontrol ping'"
            )
        if output is not None:
            outputs[name] = output
    return outputs


def _output(query: tuple[str, ...]) -> bytes | None:
    """Return what a query prints; None if it fails, takes longer than `PATIENCE`, or prints nothing."""
    try:
        done = subprocess.run(
            query,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
            env={**os.environ, **ZONE},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or not done.stdout.strip():
        return None
    return done.stdout


def collect(folder: Path) -> list[str]:
    """Write the output of each query to a file of a folder, and return the names of the files without output.

    Raise the errors of `answers`.
    """
    outputs = answers()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (TAKEN, *QUERIES):
        if name in outputs:
            with atomic_write(folder / name) as temporary:
                temporary.write_bytes(outputs[name])
        else:
            # A file of an earlier state would be read with this one.
            (folder / name).unlink(missing_ok=True)
    return [name for name in QUERIES if name not in outputs]


def shell_lines(folder: str) -> list[str]:
    """Return the commands of a shell that write the same files to a folder. A query that fails leaves an empty file."""
    target = shlex.quote(folder)
    settings = " ".join(f"{name}={value}" for name, value in ZONE.items())
    lines = [f"mkdir -p {target}", f"date +%s > {target}/{TAKEN}"]
    for name, query in QUERIES.items():
        lines.append(f"{settings} {shlex.join(query)} > {target}/{name}")
    return lines
