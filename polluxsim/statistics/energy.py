"""Energy of the GPUs of a run, by user or queue, from its records and the power of its GPU types."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import known_as
from polluxsim.hardware.power import POWER, Power
from polluxsim.records.results import JobRecord, OutageRecord
from polluxsim.records.storage import Run
from polluxsim.statistics.job_values import UNNAMED

KWH = 3.6e6  # [J]


@dataclass(frozen=True)
class Consumption:
    """How much power GPUs draw. A GPU that is down draws none."""

    power: Mapping[str, Power] = field(default_factory=dict)  # by GPU type, in place of the shipped figures
    gpu_type: str | None = None  # type of all GPUs of a cluster that states no types
    busy_share: float = 1.0  # share of the range from idle to peak power that a GPU with a job draws
    pue: float = 1.0  # power usage effectiveness: energy of the building over that of the GPUs

    def of_type(self, name: str) -> Power:
        """Return the power of a GPU type. Raise InvalidInputError if it is not known."""
        figures = {**POWER, **self.power}
        if name not in figures:
            raise InvalidInputError(
                f"the power of GPU type {name!r} is not known; state it in W with --power {name}=IDLE:PEAK"
            )
        return figures[name]


class EnergyPart(NamedTuple):
    """The energy of the jobs of a user or queue, or of idle GPUs."""

    jobs: int
    gpu_hours: float  # [GPU h]
    kwh: float  # with the PUE [kWh]


class Energy(NamedTuple):
    """The energy of the GPUs of a run."""

    by_name: Mapping[str, EnergyPart]  # the most energy first
    idle: EnergyPart  # of GPUs without a job on nodes that are up
    power: Mapping[str, Power]  # of the GPU types of the cluster

    @property
    def kwh(self) -> float:
        """Return the energy of all GPUs with the PUE [kWh]."""
        busy_kwh = sum(part.kwh for part in self.by_name.values())
        return busy_kwh + self.idle.kwh


def energy_of(run: Run, by: str, consumption: Consumption) -> Energy:
    """Return the energy of a run by user or queue (`by`: "user" or "queue").

    The GPU time of a job counts at one power, with restarts and checkpoints. Jobs from before the start of the run
    count from its start.

    Raise InvalidInputError if the run does not state its nodes and GPU time, its GPU types or their power are not
    known, or no job with GPUs has a user or queue.
    """
    if run.result.gpu_seconds is None or "nodes" not in run.info:
        raise InvalidInputError(f"{run.name} does not state its nodes and their GPU time; make the run again")
    cluster = Cluster.of_groups(run.info["nodes"])
    types = _types_of(run, cluster, consumption)
    power = {name: consumption.of_type(name) for name in dict.fromkeys(types)}
    seconds_of_jobs = _gpu_seconds_by_type(run, types)
    busy_seconds = dict.fromkeys(power, 0.0)  # by GPU type
    num_jobs = Counter[str]()  # by user or queue, like the hours and the energy
    hours = defaultdict[str, float](float)
    kwh = defaultdict[str, float](float)
    for job in run.result.job_records:
        name = getattr(job, by) or UNNAMED
        num_jobs[name] += 1
        for gpu_type, seconds in seconds_of_jobs[job.job].items():
            watts = power[gpu_type].busy(consumption.busy_share)
            busy_seconds[gpu_type] += seconds
            hours[name] += seconds / 3600
            kwh[name] += seconds * watts * consumption.pue / KWH
    parts = {}
    for name in hours:
        # Users whose jobs never had a GPU are no lines of the table.
        if hours[name]:
            parts[name] = EnergyPart(num_jobs[name], hours[name], kwh[name])
    if not parts.keys() - {UNNAMED}:
        raise InvalidInputError(f"no job of {run.name} with GPUs has a {by}; give a run of a workload that names them")
    idle_seconds = {}
    for gpu_type, seconds in _up_by_type(run, cluster, types).items():
        # Rounding must not make the time negative.
        idle_seconds[gpu_type] = max(seconds - busy_seconds[gpu_type], 0.0)
    idle_joules = 0.0
    for gpu_type, seconds in idle_seconds.items():
        idle_joules += seconds * power[gpu_type].idle
    idle = EnergyPart(0, sum(idle_seconds.values()) / 3600, idle_joules * consumption.pue / KWH)
    # By name among equal energies, so that equal runs have equal tables.
    names = sorted(parts, key=lambda name: (-parts[name].kwh, name))
    return Energy({name: parts[name] for name in names}, idle, power)


def _types_of(run: Run, cluster: Cluster, consumption: Consumption) -> list[str]:
    """Return the GPU type of each node.

    Raise InvalidInputError if neither the cluster nor the user states the types, or both do.
    """
    if cluster.node_types:
        if consumption.gpu_type is not None:
            raise InvalidInputError(f"--gpu-type has no effect: the cluster of {run.name} states its GPU types")
        return [gpu.name for gpu in cluster.node_types]
    if consumption.gpu_type is None:
        raise InvalidInputError(
            f"the cluster of {run.name} states no GPU types; name the type of all GPUs with --gpu-type, like h100"
        )
    return [known_as(consumption.gpu_type)] * cluster.num_nodes


def _gpu_seconds_by_type(run: Run, types: list[str]) -> dict[str, dict[str, float]]:
    """Return the GPU time of each job by GPU type, from its allocations [GPU s].

    The sum is the GPU time in the record of the job, in which a GPU with n jobs counts 1/n for each.
    """
    jobs: dict[str, JobRecord] = {job.job: job for job in run.result.job_records}
    if len(set(types)) == 1:
        # The record of the job is enough, and exact.
        return {name: {types[0]: job.gpu_seconds} for name, job in jobs.items()}
    seconds: dict[str, dict[str, float]] = {name: {} for name in jobs}
    placed: dict[str, tuple[float, dict[str, int]]] = {}  # time of the placement [s], and GPUs by type

    def end_placement(name: str, time: float) -> None:
        """Add the GPU time of the last placement of a job, which ends at a time [s]."""
        if name not in placed:
            return
        start, gpus = placed.pop(name)
        for gpu_type, count in gpus.items():
            seconds[name][gpu_type] = seconds[name].get(gpu_type, 0.0) + count * (time - start)

    for record in run.result.allocation_records:
        end_placement(record.job, record.time)
        gpus: dict[str, int] = {}
        for node, count in zip(record.nodes, record.gpus, strict=True):
            gpus[types[node]] = gpus.get(types[node], 0) + count
        placed[record.job] = (record.time, gpus)
    # No record ends the last placement of a job that holds GPUs when the run ends.
    for name in list(placed):
        left_at = jobs[name].left_at
        if left_at is None:
            left_at = run.result.end_time
        end_placement(name, left_at)
    for name, by_type in seconds.items():
        # Shared GPUs make the sum over allocations larger than the GPU time of the job.
        total = sum(by_type.values())
        scale = 0.0
        if total:
            scale = jobs[name].gpu_seconds / total
        for gpu_type in by_type:
            by_type[gpu_type] *= scale
    return seconds


def _up_by_type(run: Run, cluster: Cluster, types: list[str]) -> dict[str, float]:
    """Return the GPU time of the nodes while they were up, by GPU type [GPU s]."""
    result = run.result
    down = dict.fromkeys(types, 0.0)
    for outage in result.outage_records:
        down[types[outage.node]] += outage.gpus * _length(outage, result.start_time, result.end_time)
    if len(down) == 1:
        # The run records the GPU time of all nodes, also of nodes that it rented for a while.
        return {types[0]: (result.gpu_seconds or 0.0) - down[types[0]]}
    up = {name: -seconds for name, seconds in down.items()}
    for name, gpus in zip(types, cluster.gpus_per_node, strict=True):
        up[name] += gpus * (result.end_time - result.start_time)
    return up


def _length(outage: OutageRecord, start: float, end: float) -> float:
    """Return the length of an outage between two times [s]."""
    return max(min(outage.until, end) - max(outage.time, start), 0.0)
