"""Part of a log: the jobs of one partition, and the jobs of one user or QOS among them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, did_you_mean, listed
from polluxsim.common.files import atomic_write
from polluxsim.common.parquet import read_parquet
from polluxsim.logs.trace_table import TraceJob
from polluxsim.metrics.outcomes import number_of
from polluxsim.records.results import JobRecord
from polluxsim.studies.causes import Use
from polluxsim.studies.logged_jobs import logged_jobs

MOST_NAMES = 4  # largest number of partitions that a sentence names


class Owner(NamedTuple):
    """The jobs that an answer is about: those of a user, of a QOS, or of both. None for any."""

    user: str | None = None
    qos: str | None = None

    @property
    def is_everybody(self) -> bool:
        """Return whether the answer is about all jobs."""
        return self.user is None and self.qos is None

    def has(self, job: TraceJob | JobRecord) -> bool:
        """Return whether the answer is about a job."""
        return self.user in (None, job.user) and self.qos in (None, job.qos)

    def check(self, jobs: Iterable[TraceJob], partition: str | None) -> None:
        """Raise InvalidConfigError if no job of the log, or of its partition, has the user or the QOS."""
        jobs = list(jobs)
        place = "the log"
        if partition is not None:
            place = f"partition {partition}"
        _check_name("--user", self.user, {job.user for job in jobs if job.user}, place)
        _check_name("--qos", self.qos, {job.qos for job in jobs if job.qos}, place)
        if not any(map(self.has, jobs)):
            raise InvalidConfigError(f"no job of {place} has both --user {self.user} and --qos {self.qos}; give one")

    def __str__(self) -> str:
        words = []
        if self.user is not None:
            words.append(f"user {self.user}")
        if self.qos is not None:
            words.append(f"QOS {self.qos}")
        return " and ".join(words) or "all jobs"


def _check_name(option: str, name: str | None, names: set[str], place: str = "the log") -> None:
    """Raise InvalidConfigError if the name of an option is not among the names of the jobs of a place."""
    if name is None or name in names:
        return
    if not names:
        raise InvalidConfigError(f"{option} is {name!r}, but {place} does not have these names; leave it out")
    choices = listed(sorted(names)[:20])
    hint = did_you_mean(name, names)
    raise InvalidConfigError(f"{option} is {name!r}, which no job of {place} has; {place} has {choices}{hint}")


def partitions_of(jobs: Iterable[TraceJob]) -> list[str]:
    """Return the names of the partitions of jobs, in order of their first job."""
    return list(dict.fromkeys(job.partition for job in jobs if job.partition))


def chosen_partitions(text: str, jobs: Iterable[TraceJob], option: str = "--partition") -> list[str]:
    """Return the partitions of a text, which has commas between several ones.

    Raise InvalidConfigError, with the option that has the text, if no job has one of them.
    """
    partitions = set(partitions_of(jobs))
    if text in partitions:  # the name of one partition may contain commas
        return [text]
    names = text.split(",")
    for name in names:
        _check_name(option, name, partitions)
    return names


def write_partition(log: Path, partitions: Sequence[str], folder: Path) -> Path:
    """Write the jobs of some partitions of a log as a log in a folder, and return its path.

    All other properties of the log, like the instant of second 0, stay as they are.
    """
    table = read_parquet(log)
    chosen = table.filter(pc.is_in(table["partition"], pa.array(partitions, pa.string())))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"partition-{file_name(','.join(partitions))}.parquet"
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        pq.write_table(chosen, file)
    return path


def file_name(partition: str) -> str:
    """Return a file name for a partition; distinct partitions have distinct names.

    >>> file_name("gpu-a100"), file_name("a/b") == file_name("a:b")
    ('gpu-a100', False)
    """
    plain = re.sub(r"[^\w.-]+", "_", partition)
    if plain == partition:
        return plain
    # Several names may have the same plain form, like a/b and a:b.
    digest = hashlib.sha256(partition.encode()).hexdigest()
    return f"{plain}-{digest[:6]}"


def largest_use(jobs: Sequence[TraceJob]) -> int:
    """Return the largest number of GPUs in use at once in a log [GPUs]; 0 if no job has a known start and end."""
    return ceil(Use.of(jobs).peak)


def uses_by_partition(jobs: Sequence[TraceJob]) -> Mapping[str, int]:
    """Return the largest number of GPUs in use at once in each partition of a log [GPUs]."""
    jobs_by_partition: dict[str, list[TraceJob]] = {}  # in order of the first job
    for job in jobs:
        if job.partition:
            jobs_by_partition.setdefault(job.partition, []).append(job)
    return {name: largest_use(jobs_of_partition) for name, jobs_of_partition in jobs_by_partition.items()}


def pooled(jobs: Sequence[TraceJob]) -> Iterator[str]:
    """Yield a sentence on the partitions that a replay pools, if the log has several."""
    uses = uses_by_partition(jobs)
    if len(uses) < 2:
        return
    gpu_types: dict[str, set[str]] = {name: set() for name in uses}
    for job in jobs:
        if job.partition and job.gpu_type:
            gpu_types[job.partition].add(job.gpu_type)
    largest_first = sorted(uses, key=lambda name: -uses[name])
    words = []
    for name in largest_first[:MOST_NAMES]:
        of_type = ""
        if gpu_types[name]:
            of_type = f" of type {'|'.join(sorted(gpu_types[name]))}"
        words.append(f"{name} with at most {uses[name]} GPUs{of_type} in use at once")
    num_others = len(uses) - MOST_NAMES
    if num_others > 0:
        words.append(f"and {num_others} more")
    yield (
        f"pooled: the log has {len(uses)} partitions, and this replay lets every job use the GPUs of all of them: "
        f"{', '.join(words)}; --partition NAME replays one partition"
    )


class Part(NamedTuple):
    """The jobs of a log that are replayed together."""

    log: Path  # with only these jobs
    jobs: Mapping[str, TraceJob]  # by their names in replays
    sentences: Sequence[str]  # on partitions that are pooled

    def nodes(self, gpus_per_node: int) -> tuple[int, str]:
        """Return the nodes for the largest number of GPUs in use at once, and a sentence that says so.

        Raise InvalidInputError if no job has a start and an end.
        """
        gpus = largest_use(list(self.jobs.values()))
        if not gpus:
            problem = "no job has a start and an end, so the nodes cannot be inferred; give their number"
            raise InvalidInputError(f"{self.log}: {problem}")
        # The last node may be full only in part: its GPUs were in use, so the cluster has it.
        nodes = ceil(gpus / gpus_per_node)
        cluster = f"{number_of(nodes, 'node')} of {number_of(gpus_per_node, 'GPU')}"
        return nodes, f"inferred from the log: at most {gpus} GPUs were in use at once, so the cluster has {cluster}"


def part_of(log: Path, partition: str | None, folder: Path) -> Part:
    """Return the jobs of a partition of a log, written as a log into a folder; all jobs of the log without a partition.

    Commas separate several partitions, which are pooled. Raise InvalidConfigError if the log lacks a partition.
    """
    jobs = logged_jobs(log)
    if partition is None:
        return Part(log, jobs, list(pooled(list(jobs.values()))))
    names = chosen_partitions(partition, jobs.values())
    log_of_part = write_partition(log, names, folder)
    return Part(log_of_part, logged_jobs(log_of_part), [])
