"""The state of a cluster with Slurm, from files of `polluxsim twin collect`, one line of JSON, or the queries.

The three sources give the same outputs of queries, which `state_of` reads. Only the queue and a list of nodes are
needed. What is missing or damaged otherwise is a note of the state, and no error.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from polluxsim.common.errors import InvalidInputError, reading
from polluxsim.logs.live.jobs import StateJob, job_of
from polluxsim.logs.live.loose_json import LARGEST, has_errors, objects_in
from polluxsim.logs.live.nodes import StateNode, StatePartition, node_of_line, nodes_of_json, partition_of_line
from polluxsim.logs.live.queries import QUERIES, TAKEN, answers
from polluxsim.logs.live.shares import Shares, fair_shares_of
from polluxsim.logs.live.times import latest_evaluation, time_of_cycle

OPTIONAL = ("partitions.txt", "reservations.txt", "config.txt", "sdiag.txt", "sshare.txt", "sacct.txt")


@dataclass(frozen=True)
class SlurmState:
    """What Slurm's commands tell about a cluster at a time."""

    source: str  # where it was read, for messages
    now: int  # [s since 1970-01-01 UTC]
    jobs: Sequence[StateJob]
    nodes: Sequence[StateNode]  # in the order of slurm.conf
    partitions: Sequence[StatePartition] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # of `scontrol show config`; empty if unknown
    last_cycle: int | None = None  # last cycle of the backfill [s]
    fair_shares: Shares = field(default_factory=dict)  # of sshare; empty without it
    sacct: str = ""  # output of sacct; empty without it
    missing: Sequence[str] = ()  # names of missing inputs
    notes: Sequence[str] = ()  # sentences on what cannot be read, or is not used

    @property
    def waiting(self) -> list[StateJob]:
        """Return the pending jobs that can start without a change by someone."""
        return [job for job in self.jobs if job.is_pending and not job.kept_out]

    @property
    def running(self) -> list[StateJob]:
        """Return the running jobs."""
        return [job for job in self.jobs if job.is_running]

    def with_notes(self, *notes: str) -> SlurmState:
        """Return the state with further notes."""
        return replace(self, notes=[*self.notes, *notes])


def read_state(folder: Path) -> SlurmState:
    """Return the state in a folder of `polluxsim twin collect`.

    Raise InvalidInputError if the queue or the nodes cannot be read.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"{folder}: no such folder; write one with 'polluxsim twin collect -o {folder}'")
    texts: dict[str, str] = {}
    for name in (TAKEN, *QUERIES):
        path = folder / name
        if path.is_file():
            with reading(path):
                texts[name] = path.read_bytes().decode(errors="replace")
    return state_of(str(folder), texts)


def ask_state() -> SlurmState:
    """Return the state that Slurm's queries print now. Raise InvalidInputError if queue or nodes cannot be read."""
    texts = {name: output.decode(errors="replace") for name, output in answers().items()}
    return state_of("Slurm's queries", texts)


def read_line(line: str, now: float | None = None) -> SlurmState:
    """Return the state of one line of JSON with the keys `squeue`, `sinfo`, `nodes` and perhaps other ones.

    `now` is the time of the line [s since 1970-01-01 UTC]; without it, the line says. Raise InvalidInputError if the
    line is no such object, or the queue or the nodes cannot be read.
    """
    try:
        values = json.loads(line)
    except ValueError as error:
        raise InvalidInputError(
            f"standard input is no line of JSON ({error}); give one line, as in 'zcat live.jsonl.gz | sed -n 20p'"
        ) from None
    if not isinstance(values, dict) or "squeue" not in values:
        raise InvalidInputError(
            "standard input: the line has no key squeue; give an object with the keys squeue and sinfo"
        )
    texts: dict[str, str] = {}
    for name in QUERIES:
        key = name.partition(".")[0]
        if key in values:
            # Outputs that are JSON may stand in the line as objects.
            value = values[key]
            texts[name] = value if isinstance(value, str) else json.dumps(value)
    if now is not None:
        texts[TAKEN] = str(int(now))
    return state_of("standard input", texts)


def state_of(source: str, texts: Mapping[str, str]) -> SlurmState:
    """Return the state in the outputs of queries by the names of their files.

    Raise InvalidInputError if the queue or the nodes cannot be read.
    """
    notes: list[str] = []
    jobs = _jobs(source, texts, notes)
    nodes = _nodes(source, texts, notes)
    jobs = _on_listed_nodes(jobs, nodes, notes)
    now, notes_on_time = _now(texts, jobs)
    if texts.get("reservations.txt", "").startswith("ReservationName"):
        count = sum(line.startswith("ReservationName") for line in texts["reservations.txt"].splitlines())
        notes.append(f"{count} reservations are not used")
    partitions = [partition_of_line(line) for line in texts.get("partitions.txt", "").splitlines() if line.strip()]
    num_bad = partitions.count(None)
    if num_bad:
        notes.append(f"partitions.txt: {num_bad} lines cannot be read")
    fair_shares, num_bad = fair_shares_of(texts.get("sshare.txt", ""))
    if num_bad:
        notes.append(f"sshare.txt: {num_bad} lines cannot be read")
    special = Counter(part for job in jobs if job.is_pending for part in job.special)
    notes += [f"{count} pending jobs {part}" for part, count in special.items()]
    return SlurmState(
        source,
        now,
        jobs,
        nodes,
        partitions=[partition for partition in partitions if partition is not None],
        settings=_settings(texts.get("config.txt", "")),
        last_cycle=time_of_cycle(texts.get("sdiag.txt", "")),
        fair_shares=fair_shares,
        sacct=texts.get("sacct.txt", ""),
        missing=[name for name in OPTIONAL if not texts.get(name)],
        notes=[*notes, *notes_on_time],
    )


def _on_listed_nodes(jobs: list[StateJob], nodes: Sequence[StateNode], notes: list[str]) -> list[StateJob]:
    """Return the jobs without those that run on nodes that are not listed, and note these."""
    names = {node.name for node in nodes}
    on_unlisted = [job for job in jobs if job.is_running and not set(job.nodes) <= names]
    if not on_unlisted:
        return jobs
    unlisted = sorted({name for job in on_unlisted for name in job.nodes} - names)
    notes.append(
        f"{len(on_unlisted)} running jobs are left out, like {on_unlisted[0].name}: the list of nodes lacks "
        f"{', '.join(unlisted[:5])}"
    )
    left_out = {job.name for job in on_unlisted}
    return [job for job in jobs if job.name not in left_out]


def _jobs(source: str, texts: Mapping[str, str], notes: list[str]) -> list[StateJob]:
    """Return the jobs of the queue, and note those that cannot be read. Raise InvalidInputError without a queue."""
    if "squeue.json" not in texts:
        raise InvalidInputError(f"{source}: squeue.json is missing; write it with 'squeue --json > squeue.json'")
    if has_errors(texts["squeue.json"]):
        raise InvalidInputError(
            f"{source}: squeue.json states errors and no jobs; check that slurmctld answers, and collect again"
        )
    listed = objects_in(texts["squeue.json"], "jobs")
    if listed is None:
        raise InvalidInputError(f"{source}: squeue.json has no list of jobs; write it with 'squeue --json'")
    jobs = []
    num_bad = 0
    for values in listed.objects:
        job = job_of(values)
        if job is None:
            num_bad += 1
        else:
            jobs.append(job)
    if num_bad:
        notes.append(f"squeue.json: {num_bad} of {len(listed.objects)} jobs cannot be read")
    if not listed.is_complete:
        notes.append(f"squeue.json is cut off or damaged: {len(listed.objects)} jobs before the fault are used")
    return jobs


def _nodes(source: str, texts: Mapping[str, str], notes: list[str]) -> list[StateNode]:
    """Return the nodes in the order of slurm.conf, and note those that cannot be read.

    Nodes that only sinfo lists come last. Raise InvalidInputError without any node.
    """
    nodes: dict[str, StateNode] = {}
    num_bad = 0
    # scontrol states all about a node in one line, so its values come first.
    for line in texts.get("nodes.txt", "").splitlines():
        node = node_of_line(line)
        if node is not None:
            nodes[node.name] = node
        elif line.strip():
            num_bad += 1
    if num_bad:
        notes.append(f"nodes.txt: {num_bad} lines cannot be read")
    listed = objects_in(texts.get("sinfo.json", ""), "nodes", "sinfo")
    if listed is not None:
        for values in listed.objects:
            for node in nodes_of_json(values):
                other = nodes.get(node.name)
                if other is None:
                    nodes[node.name] = node
                elif not set(node.partitions) <= set(other.partitions):
                    # sinfo lists a node of several partitions several times.
                    partitions = dict.fromkeys([*other.partitions, *node.partitions])
                    nodes[node.name] = other._replace(partitions=tuple(partitions))
        if not listed.is_complete:
            notes.append(f"sinfo.json is cut off or damaged: {len(listed.objects)} entries before the fault are used")
    if not nodes:
        raise InvalidInputError(
            f"{source}: no nodes; write them with 'sinfo --json > sinfo.json' or 'scontrol show nodes -o > nodes.txt'"
        )
    return list(nodes.values())


def _now(texts: Mapping[str, str], jobs: Sequence[StateJob]) -> tuple[int, list[str]]:
    """Return the time of the state, and a sentence if it is not the time at which the queries were run.

    It is not if that time is unknown, or if the queue has a later time: then a clock was behind that of Slurm.
    """
    latest = 0
    for job in jobs:
        latest = max(latest, job.submit)
        if job.is_running:
            latest = max(latest, job.start)
        elif not job.is_pending:
            latest = max(latest, job.end)
    taken = texts.get(TAKEN, "").strip()
    if not (taken.isascii() and taken.isdecimal()) or int(taken) > LARGEST:
        # A state without any time can only be of now.
        evaluated = latest_evaluation(texts["squeue.json"], latest) or int(time.time())
        return evaluated, ["the time of the state is unknown; the latest time in the queue is used"]
    if int(taken) < latest:
        skew = latest - int(taken)
        return latest, [
            f"the clock of the queries is {skew} s behind that of Slurm; the latest time in the queue is used"
        ]
    return int(taken), []


def _settings(text: str) -> dict[str, str]:
    """Return the values of `scontrol show config` by key."""
    settings = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            settings[key.strip()] = value.strip()
    return settings
