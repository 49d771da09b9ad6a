"""Cluster, restart delays and checkpoints of a finished run, from its settings and its records."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from polluxsim.hardware.checkpoints import Checkpoints, failure_rate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import ANY, UNKNOWN_TYPES
from polluxsim.hardware.restarts import RestartDelays
from polluxsim.records.results import CheckpointRecord
from polluxsim.records.storage import Run
from polluxsim.statistics.groups import settings_of

if TYPE_CHECKING:
    from polluxsim.look.occupancy import Stay

Delay = Callable[[str, str, Sequence[int], float], float]
"""Restart delay [s] of a start, by job, application, nodes and time of the start [s]."""


def cluster_of(run: Run) -> Cluster:
    """Return the cluster that run.json states, with the additional nodes and GPUs in the records of the run."""
    stated: Cluster | None = None
    sizes: dict[int, int] = {}  # GPUs by node
    if "nodes" in run.info:
        stated = Cluster.of_groups(run.info["nodes"])
        sizes = dict(enumerate(stated.gpus_per_node))
    # Most allocations of a run occur many times.
    for nodes, gpus_on_nodes in set(map(attrgetter("nodes", "gpus"), run.result.allocation_records)):
        for node, gpus in zip(nodes, gpus_on_nodes, strict=True):
            sizes[node] = max(sizes.get(node, 1), gpus)
    for outage in run.result.outage_records:
        sizes[outage.node] = max(sizes.get(outage.node, 1), outage.gpus)
    # A cluster has at least one node, even if no job ever held a GPU.
    num_nodes = max(sizes, default=0) + 1
    # The types are one for each node, so that those of a cluster with other nodes do not fit.
    node_types = UNKNOWN_TYPES
    if stated is not None and stated.num_nodes == num_nodes:
        node_types = stated.node_types
    # A node without any record has at least one GPU.
    gpus_per_node = tuple(sizes.get(node, 1) for node in range(num_nodes))
    return Cluster(gpus_per_node, node_types=node_types)


def num_gpus(run: Run) -> int | None:
    """Return the GPUs of a run's cluster, or None for an old run whose records and settings do not state them."""
    settings = settings_of(run)
    for groups in (run.info.get("nodes"), settings.get("cluster.groups")):
        if isinstance(groups, list):
            return sum(int(count) * int(gpus) for count, gpus, *_ in groups)
    num_nodes = settings.get("cluster.num_nodes")
    gpus_per_node = settings.get("cluster.gpus_per_node")
    if isinstance(num_nodes, int) and isinstance(gpus_per_node, int):
        return num_nodes * gpus_per_node
    return None


def steady_gpus(run: Run) -> int | None:
    """Return the number of GPUs of a run's cluster, None if the policy rents nodes or the number is unknown."""
    if is_rented(run):
        return None
    return num_gpus(run)


def is_rented(run: Run) -> bool:
    """Return whether a policy rents nodes for a run's cluster when it needs them."""
    return "cluster.least_nodes" in settings_of(run)


def start_delay(run: Run) -> Delay:
    """Return the restart delays of a run, as its policy recorded them, and otherwise from its settings."""
    engine = run.info.get("config", {}).get("engine", {})
    delays = RestartDelays(float(engine.get("restart_delay", 0.0)), engine.get("restart_delays") or {})
    types = UNKNOWN_TYPES
    if delays.known:
        # Only delays by application can differ by GPU type. Other runs need no search of their allocations.
        types = cluster_of(run).node_types
    first_starts: dict[str, float | None] = {}  # of the jobs whose first start is free
    if engine.get("free_starts"):
        first_starts = {job.job: job.start_time for job in run.result.job_records}
    recorded_delays = {(start.job, start.time): start.delay for start in run.result.start_records}

    def delay(job: str, application: str, nodes: Sequence[int], time: float) -> float:
        # A first start is free whatever delay the policy recorded for it.
        if first_starts.get(job) == time:
            return 0.0
        if (job, time) in recorded_delays:
            return recorded_delays[job, time]
        gpu_type = ANY.name
        if types and nodes:
            gpu_type = types[nodes[0]].name
        return delays.of(application, gpu_type)

    return delay


class Pauses:
    """The checkpoints of a run on a number of nodes, and the training that failures undid.

    The interval between checkpoints follows from the settings of the run, and the failure rate from its outages. The
    records of the run contain only the checkpoints that do not follow from an interval.
    """

    def __init__(self, run: Run, num_nodes: int) -> None:
        engine = run.info.get("config", {}).get("engine", {})
        settings = dict(engine.get("checkpoints") or {})
        # The checkpoints of a class of the user do not follow from the settings.
        has_checkpoints = settings.pop("_target_", "").endswith(f".{Checkpoints.__name__}")
        self._rules: Checkpoints | None = None
        if has_checkpoints:
            self._rules = Checkpoints(**settings)
        self._delay = start_delay(run)
        self._start = run.result.start_time
        self._failures: list[float] = []  # rising times
        for outage in run.result.outage_records:
            # The rate of failures counts from the start of the run, as in the engine.
            if outage.time >= self._start:
                self._failures.append(outage.time)
        self._failures.sort()
        self._num_nodes = num_nodes
        self._failed: dict[tuple[str, float], float] = {}  # when failures took the GPUs of jobs, by job and start
        if any(job.lost_time for job in run.result.job_records):
            from polluxsim.statistics.series import failures  # noqa: PLC0415  (other runs do not need it)

            self._failed = dict(failures(run.result, run.round_interval))
        self._recorded: defaultdict[str, list[CheckpointRecord]] = defaultdict(list)
        for record in run.result.checkpoint_records:
            self._recorded[record.job].append(record)

    def of(self, stay: Stay, application: str) -> Iterator[tuple[float, float]]:
        """Yield the start and the end of each stop for a checkpoint during a stay [s]."""
        reached = stay.start  # the end of the last stop so far
        for stop_start, stop_end in sorted(self._stops(stay, application)):
            # Stops can overlap, and reach beyond the stay.
            start = max(stop_start, reached)
            reached = max(min(stop_end, stay.end), reached)
            if reached > start:
                yield start, reached

    def failed_at(self, stay: Stay) -> float | None:
        """Return when a failure took the GPUs that a job has during a stay [s]; None if no node did."""
        return self._failed.get((stay.job, stay.placed))

    def lost(self, stay: Stay, application: str) -> Iterator[tuple[float, float]]:
        """Yield the periods of a stay whose training a failure undid, because it was not saved: start and end [s]."""
        failed_at = self.failed_at(stay)
        if failed_at is None:
            return
        nodes = [slot.node for slot in stay.slots]
        ready = stay.placed + self._delay(stay.job, application, nodes, stay.placed)
        # The job had its GPUs until the failure, in this stay and in others with another batch size.
        tenure = stay._replace(start=ready, end=failed_at)
        saved_until = ready
        trained_until = min(stay.end, failed_at)
        for stop_start, stop_end in self._stops(tenure, application):
            if stop_end <= failed_at:
                saved_until = max(saved_until, stop_end)
            elif stop_start < failed_at:
                # The job did not train during the checkpoint that the failure interrupted.
                trained_until = min(trained_until, stop_start)
        start = max(saved_until, stay.start)
        if trained_until > start:
            yield start, trained_until

    def _stops(self, stay: Stay, application: str) -> Iterator[tuple[float, float]]:
        """Yield the recorded checkpoints since a job got its GPUs, and those by interval until its stay ends."""
        for record in self._recorded.get(stay.job, ()):
            if record.time > stay.placed:
                yield record.time, record.until
        nodes = [slot.node for slot in stay.slots]
        first, cycle, cost = self.rhythm(stay.job, stay.placed, nodes, application)
        if first == inf:  # without an interval
            return
        # The last stop that began before the stay can reach into it.
        number = max(int((stay.start - first) // cycle), 0)
        # The product of number and cycle is exact enough. A sum of cycles would add up rounding errors.
        start = first + number * cycle
        while start < stay.end:
            yield start, start + cost
            number += 1
            start = first + number * cycle

    def rhythm(self, job: str, placed: float, nodes: Sequence[int], application: str) -> tuple[float, float, float]:
        """Return the checkpoints by interval of a job on the GPUs that it got at the time `placed` [s].

        The values are the time of the first checkpoint, the time from one to the next, and the duration of each [s].
        Without checkpoints by interval, the first two are ∞.
        """
        if self._rules is None:
            return inf, inf, 0.0
        # A job sets its interval when it starts, and cannot know later failures.
        num_failures = bisect_right(self._failures, placed)
        rate_of_node = failure_rate(num_failures, self._num_nodes, placed - self._start, self._rules.expected_rate)
        rate = len(set(nodes)) * rate_of_node
        interval = self._rules.interval(application, rate)
        cost = self._rules.cost_of(application)
        ready = placed + self._delay(job, application, nodes, placed)
        return ready + interval, interval + cost, cost
