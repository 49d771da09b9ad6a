"""When a job would start if it were submitted now, and the other requests that would start earliest.

Each request is simulated on its own: its job is added to the state, at the end of the queue or by its priority. Nothing
is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, inf
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError, allowed_among
from polluxsim.logs.live.jobs import UNLIMITED, StateJob
from polluxsim.logs.live.state import SlurmState
from polluxsim.studies.twin.asks import ask_of
from polluxsim.studies.twin.estimates import JobEstimate, TimeDistribution, estimates_of
from polluxsim.studies.twin.futures import FutureSource, outcomes
from polluxsim.studies.twin.later_priorities import BASIC_PRIORITIES, fair_share_of, weights_of
from polluxsim.studies.twin.world import TwinWorld, order_of_id

NEW = "new"  # name of the job that is tried
MOST_ALTERNATIVES = 3
LEAST_LIMIT = 300  # no shorter limit is tried [s]


class TriedJob(NamedTuple):
    """A job that a user may submit."""

    gpus: int
    limit: int  # [s]; `UNLIMITED` for the limit of the partition
    partition: str
    user: str = ""
    account: str = ""


class Tried(NamedTuple):
    """A job that is tried, with its estimate."""

    wish: TriedJob
    change: str  # in words; empty for the job itself
    estimate: JobEstimate | None  # None if the job can never start

    @property
    def start(self) -> TimeDistribution | None:
        """Return the distribution of the start."""
        return None if self.estimate is None else self.estimate.start


def default_partition(state: SlurmState) -> str:
    """Return the partition of a job that names none; empty if the state tells no default.

    Without a list of partitions, the only partition of the nodes is the default.
    """
    names = [partition.name for partition in state.partitions if partition.is_default]
    if names:
        return names[0]
    of_nodes = sorted({name for node in state.nodes for name in node.partitions})
    return of_nodes[0] if len(of_nodes) == 1 else ""


def partitions_of(state: SlurmState) -> list[str]:
    """Return the names of the partitions: of their list, or without one those of the nodes, in order."""
    names = [partition.name for partition in state.partitions]
    return names or sorted({name for node in state.nodes for name in node.partitions})


def check_partition(state: SlurmState, name: str) -> None:
    """Raise InvalidInputError if a partition is not among those of the state; nothing is checked without any."""
    names = partitions_of(state)
    if names and name not in names:
        raise InvalidInputError(f"--partition is {name}, {allowed_among(name, names)}")


def tried(
    world: TwinWorld,
    source: FutureSource,
    wish: TriedJob,
    num_futures: int,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Tried]:
    """Return the job that a user wishes, and at most three other requests, those with the earliest median starts.

    They may start later than the job itself. A request that starts in no more than half of the futures is left out.
    Raise InvalidInputError if the nodes of the partition can never run the job.
    """
    wishes = [("", wish), *alternatives(world.state, wish)]
    results = []
    for number, (change, other) in enumerate(wishes):
        results.append(Tried(other, change, _estimate(world, source, other, num_futures)))
        report(number + 1, len(wishes))
    first, *others = results
    if first.estimate is None:
        where = f"partition {wish.partition}" if wish.partition else "the cluster"
        raise InvalidInputError(f"--gpus is {wish.gpus}, must be at most what the nodes in use of {where} have")
    possible = [other for other in others if other.start is not None and other.start.median < inf]
    # Requests with equal starts keep the order of `alternatives`.
    possible.sort(key=lambda other: other.start.median if other.start else inf)
    return [first, *possible[:MOST_ALTERNATIVES]]


def alternatives(state: SlurmState, wish: TriedJob) -> Iterator[tuple[str, TriedJob]]:
    """Yield other requests, each with its change in words: fewer GPUs, a shorter limit, another partition."""
    # Halving covers all sizes with few requests, each of which takes some seconds.
    gpus = wish.gpus // 2
    while gpus:
        yield f"{gpus} GPUs" if gpus > 1 else "1 GPU", wish._replace(gpus=gpus)
        gpus //= 2
    if wish.limit < UNLIMITED:
        for part in (2, 4, 8):
            limit = ceil(wish.limit / part / 60) * 60  # whole minutes, as Slurm keeps limits
            if limit >= LEAST_LIMIT:
                yield f"limit of {limit // 60} min", wish._replace(limit=limit)
    for name in partitions_of(state):
        if name != wish.partition:
            yield f"partition {name}", wish._replace(partition=name)


def note_on_priority(world: TwinWorld, wish: TriedJob) -> str:
    """Return a sentence on the priority of a job that is tried; empty if no fair share counts."""
    state = world.state
    is_basic = any(job.priority > BASIC_PRIORITIES for job in state.jobs)
    if not state.fair_shares or is_basic or weights_of(state) is None:
        return ""
    if not wish.user:
        return "priority: that of the most similar jobs, because no --user is given, whose fair share would count"
    factor = fair_share_of(state, wish.user, wish.account)
    if factor is None:
        return f"priority: that of the most similar jobs, because sshare.txt does not have the user {wish.user}"
    return f"priority: with the fair-share factor {factor:.3f} of {wish.user} (sshare.txt)"


def _estimate(world: TwinWorld, source: FutureSource, wish: TriedJob, num_futures: int) -> JobEstimate | None:
    """Return the estimate of a job that is submitted now; None if it can never start."""
    job = job_of_wish(world, wish)
    if job is None or not world.can_run(ask_of(job)):
        return None
    # The world is made anew, because the job changes the order of the queue.
    with_job = TwinWorld(replace(world.state, jobs=[*world.state.jobs, job]), world.parameters)
    (estimate,) = estimates_of(with_job, outcomes(with_job, source, [job.name], num_futures))
    return estimate


def job_of_wish(world: TwinWorld, wish: TriedJob) -> StateJob | None:
    """Return the job of a wish as Slurm would have it in the queue; None if no node has GPUs."""
    state = world.state
    partitions = tuple(filter(None, wish.partition.split(",")))
    # A partition whose nodes differ has jobs on as few nodes as possible.
    sizes = [node.gpus for node in state.nodes if not partitions or set(partitions) & set(node.partitions)]
    most = max(sizes, default=0)
    if not most:
        return None
    num_nodes = ceil(wish.gpus / most)
    limit = wish.limit
    for partition in state.partitions:
        if partition.name in partitions and limit >= UNLIMITED:
            limit = partition.default_limit or partition.largest_limit or UNLIMITED
    pending = sorted(world.pending, key=order_of_id)
    job = StateJob(
        name=NEW, state="PENDING", reason="", priority=1.0, submit=state.now, eligible=state.now, start=0, end=0,
        limit=limit, nodes=(), num_nodes=num_nodes, gpus=ceil(wish.gpus / num_nodes), cpus=1, gpu_type="",
        states_tasks=False, features=frozenset(), required=(), excluded=(), partitions=partitions, qos="",
        user=wish.user, account=wish.account, title=NEW, after=(), special=(),
    )  # fmt: skip
    # priority/basic gives each later job a priority below all others.
    priority = world.priority_of()(ask_of(job), wish.account, state.now)
    if not priority or any(other.priority > BASIC_PRIORITIES for other in pending):
        priority = min([other.priority for other in pending], default=2.0) - 1.0
    return job._replace(priority=max(priority, 1.0))
