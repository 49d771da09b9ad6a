"""Workloads from the job lists of other simulators: Gavel and Shockwave, Muri, ElasticFlow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

from polluxsim.common.errors import InvalidInputError, bad_line
from polluxsim.common.tables import Row, read_rows
from polluxsim.common.written import takes_settings
from polluxsim.models.known_duration import Speeds, speed_at
from polluxsim.models.profile import Profile
from polluxsim.models.stages import Stages
from polluxsim.workloads.gavel_lists import GavelList
from polluxsim.workloads.workload import InvalidJobError, Job, Workload


@takes_settings("workload")
@dataclass(frozen=True)
class GavelJobs(GavelList):
    """Workload of a job list; the parameters are those of `GavelList`."""

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the jobs of the list. Raise InvalidInputError as `read` does."""
        return Workload(*self.read())


MURI_COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "iteration_time")
MILLISECOND = 1e-3  # [s]
STAGES = ("resource_time_0", "resource_time_1", "resource_time_2")
PROFILED_TO_REAL = 1.015  # time of an iteration divided by its profiled time. Source: Muri's simulator


@dataclass(frozen=True)
class MuriJobs:
    """Jobs of a file of Muri's simulator, with the durations of jobs that run alone.

    The columns include those of Tiresias' job lists; times are in milliseconds. The duration of a job is `iterations` ×
    `iteration_time` × 1.015, not `duration`. Guaranteed jobs (`priority` 0) have priority 0, opportunistic jobs have a
    lower priority. Jobs with `resource_time_0` to `resource_time_2`, the stages of an iteration, can share GPUs.

    Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (SIGCOMM '22), and its simulator.
    """

    path: str  # path of the file (.csv)

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the jobs of the file. Raise InvalidInputError if it cannot be read, or a row is invalid."""
        path = Path(self.path)
        return Workload(tuple(_muri_job(row) for row in read_rows(path, MURI_COLUMNS)), source=self.path)


def _muri_job(row: Row) -> Job:
    """Return the job of a row of Muri's list. Raise InvalidInputError if a cell is invalid."""
    iterations = row.integer("iterations", at_least=1)
    seconds = row.number("iteration_time", above=0) * PROFILED_TO_REAL * MILLISECOND
    stages = None
    if all(map(row.has, STAGES)):
        times = [row.number(name, at_least=0) * MILLISECOND for name in STAGES]
        stages = Stages(seconds, *times)
    priority = 0.0
    if row.has("priority"):
        priority = -row.number("priority")  # in the list, smaller values go first
    try:
        return Job.rigid(
            row.text("job_id"),
            row.number("submit_time", at_least=0) * MILLISECOND,
            row.integer("num_gpu", at_least=1),
            iterations * seconds,
            row.line,
            stages=stages,
            priority=priority,
        )
    except InvalidJobError as error:
        raise bad_line(row.path, row.line, str(error)) from None


Table: TypeAlias = "Mapping[tuple[str, int], Speeds]"  # iterations/s by GPUs, for each model and global batch size

BATCH_SIZE = "global_batch_size"  # column of a table of throughputs; the other columns are numbers of GPUs
GPUS = re.compile("[1-9][0-9]{0,8}")


class _Columns(NamedTuple):
    """Names in one file of the columns whose names differ between the published files."""

    submit_time: str
    deadline: str
    iterations: str


@dataclass(frozen=True)
class ElasticFlowJobs:
    """Jobs of a file of ElasticFlow's simulator.

    Source: Gu et al., "ElasticFlow" (ASPLOS '23), and its simulator.
    """

    path: str  # path of the file (.csv)
    # Folder with a table MODEL.csv of every model: iterations/s by global batch size and GPUs. An empty cell, `nan` and
    # 0 mean "not measured". By default the model of a job is the name of its application.
    throughputs: str | None = None

    def load(self, profiles: Mapping[str, Profile]) -> Workload:
        """Read the jobs: with profiles, or with the measured speeds of `throughputs`.

        Raise InvalidInputError if a file cannot be read, a row is invalid, or a speed was not measured.
        """
        build: Callable[[Row, _Columns], Job] = _trained
        if self.throughputs is not None:
            build = partial(_measured, read_throughputs(Path(self.throughputs)))
        rows = list(read_rows(Path(self.path), ("job_id", "model_name", "batch_size", "num_gpu")))
        # All rows have the columns of the first.
        columns = _Columns(
            _either(rows[0], "submit_time", "submission_time"),
            _either(rows[0], "ddl", "deadline"),
            _either(rows[0], "iteration", "num_iteration"),
        )
        jobs = []
        for row in rows:
            try:
                jobs.append(build(row, columns))
            except InvalidJobError as error:
                raise bad_line(row.path, row.line, str(error)) from None
        return Workload(tuple(jobs), source=self.path)


def read_throughputs(folder: Path) -> Table:
    """Read a folder of tables MODEL.csv, with a row for each global batch size and a column for each number of GPUs.

    Raise InvalidInputError if there is no table, or a table is invalid.
    """
    tables = dict[tuple[str, int], Speeds]()
    for path in sorted(folder.glob("*.csv")):
        for row in read_rows(path, (BATCH_SIZE, "1")):
            tables[path.stem, row.integer(BATCH_SIZE, at_least=1)] = _speeds(row)
    if not tables:
        raise InvalidInputError(f"{folder}: the folder has no table of throughputs MODEL.csv")
    return tables


def _speeds(row: Row) -> Speeds:
    """Return the measured speeds of a batch size by number of GPUs [iterations/s]."""
    counts = [name for name in row.values if name != BATCH_SIZE]
    wrong = [name for name in counts if not GPUS.fullmatch(name)]
    if wrong:
        raise bad_line(row.path, 1, f"column {wrong[0]!r} must be {BATCH_SIZE} or a number of GPUs")
    if any(int(fewer) >= int(more) for fewer, more in pairwise(counts)):
        raise bad_line(row.path, 1, f"the numbers of GPUs are {', '.join(counts)}, must be rising")
    measured = []
    for name in counts:
        if not row.has(name) or str(row.value(name)).lower() == "nan":
            continue
        speed = row.number(name, at_least=0)
        if speed:
            measured.append((int(name), speed))
    if not measured:
        raise bad_line(row.path, row.line, "the row must have at least one speed > 0")
    return tuple(measured)


def _either(row: Row, *names: str) -> str:
    """Return the first of the names that is a column of the table. Raise InvalidInputError if none is."""
    name = next((name for name in names if name in row.values), None)
    if name is None:
        raise bad_line(row.path, 1, f"missing column {names[0]!r} or {names[1]!r}")
    return name


def _trained(row: Row, columns: _Columns) -> Job:
    """Return a job with a profile."""
    return Job(
        row.text("job_id"),
        row.number(columns.submit_time),
        row.text("model_name"),
        row.integer("num_gpu", at_least=1),
        row.integer("batch_size", at_least=1),
        row.line,
        deadline=row.number(columns.deadline),
    )


def _measured(table: Table, row: Row, columns: _Columns) -> Job:
    """Return a job with measured speeds. Raise InvalidInputError if it requests what was not measured."""
    model = row.text("model_name")
    batch_size = row.integer("batch_size", at_least=1)
    speeds = table.get((model, batch_size))
    if speeds is None:
        sizes = sorted(str(size) for name, size in table if name == model)
        if sizes:
            raise row.error("batch_size", f"{', '.join(sizes)} for {model}")
        raise row.error("model_name", ", ".join(sorted({name for name, _ in table})))
    num_replicas = row.integer("num_gpu", at_least=1)
    if not speeds[0][0] <= num_replicas <= speeds[-1][0]:
        raise row.error("num_gpu", f"{speeds[0][0]} to {speeds[-1][0]}, as measured for {model} at {batch_size}")
    iterations = row.integer(columns.iterations, at_least=1)
    return Job.rigid(
        row.text("job_id"),
        row.number(columns.submit_time),
        num_replicas,
        iterations / speed_at(speeds, num_replicas),
        row.line,
        deadline=row.number(columns.deadline),
        speeds=speeds,
    )
