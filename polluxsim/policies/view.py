"""The contract between engine and policies: a frozen view in, an allocation out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from polluxsim.models.goodput import GoodputModel
    from polluxsim.models.profile import Application
    from polluxsim.types import Allocation, BatchChoice, JobId, Placement


class Oracle(Protocol):
    """What no scheduler of a real cluster can know: a job's true speed and how much it has left."""

    @property
    def application(self) -> Application:
        """Return the properties of the job's application."""
        ...

    def optimiser_step_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice) -> float:
        """Return the true time of one optimiser step on a placement [s]."""
        ...

    def remaining_iterations(self, batch_size: int) -> float:
        """Return the optimiser steps to completion at a fixed batch size, by whole epochs."""
        ...

    def remaining_time(self, gpus_by_node: tuple[int, ...], choice: BatchChoice) -> float:
        """Return the true time to completion if this placement and batch choice were kept [s]."""
        ...


class JobView(NamedTuple):
    """One job that is submitted and not complete.

    Attributes
    ----------
    job_id
        Its name.
    submit_time
        When it was submitted [s].
    num_replicas, batch_size
        GPUs and total batch size its user asked for [1; examples].
    placement
        The GPUs it holds, empty if none.
    attained_service
        Time held × GPUs so far [GPU s].
    num_restarts
        Re-allocations since its first start.
    max_replicas
        Most GPUs it may be given now.
    goodput
        What its agent has learnt of its goodput; None before the first fit, and for jobs that do not adapt.
    oracle
        The truth, for policies that say openly that they use it.
    """

    job_id: JobId
    submit_time: float
    num_replicas: int
    batch_size: int
    placement: Placement
    attained_service: float
    num_restarts: int
    max_replicas: int
    goodput: GoodputModel | None
    oracle: Oracle


class NodeCounts(NamedTuple):
    """The nodes of a cluster whose number a policy may change.

    Attributes
    ----------
    requested
        Nodes that are up or coming, all of them paid for.
    least, most
        How few and how many may be asked for.
    gpus_per_node
        GPUs of each node, of those that are not up too.
    """

    requested: int
    least: int
    most: int
    gpus_per_node: tuple[int, ...]

    def gpus(self, num_nodes: int) -> int:
        """Return the GPUs of so many nodes."""
        return sum(self.gpus_per_node[:num_nodes])


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a policy sees at a scheduling round.

    Attributes
    ----------
    time
        Now [s since the start of the workload].
    gpus_per_node
        GPUs of each node that is up, all of them free to be given anew.
    jobs
        Jobs submitted and not complete, in order of submission.
    restart_delay
        Time a job loses whenever its placement changes [s].
    nodes
        How many nodes are requested and may be, None where their number cannot change.
    """

    time: float
    gpus_per_node: tuple[int, ...]
    jobs: tuple[JobView, ...]
    restart_delay: float
    nodes: NodeCounts | None = None

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs on all nodes."""
        return sum(self.gpus_per_node)


class Change(Flag):
    """What happens between rounds that a policy can see."""

    ARRIVAL = auto()
    EPOCH = auto()
    COMPLETION = auto()
    LEARNING = auto()
    NODES = auto()
    ANY = ARRIVAL | EPOCH | COMPLETION | LEARNING | NODES


class Decision(dict["JobId", "Placement"]):
    """An allocation, and what the policy knows of it.

    Attributes
    ----------
    fitness
        The policy's objective at this allocation, None if it does not say.
    upper_bound
        What the objective cannot exceed at any allocation, None if it does not know.
    num_nodes
        Nodes to have from now on, where their number can change; None leaves it. New ones come up after their start-up
        time; nodes beyond the number are released at once, and the allocation must do without them.
    valid_until
        Time until which the policy, asked again after this allocation was carried out, would answer the same for the
        jobs that are left, unless something in `outdated_by` happens or a node comes up [s]. It is not asked before
        then.
    outdated_by
        What ends that earlier.
    """

    fitness: float | None = None
    upper_bound: float | None = None
    num_nodes: int | None = None
    valid_until: float = -inf
    outdated_by: Change = Change.ANY


class Policy(Protocol):
    """Says at every scheduling round who gets which GPUs.

    A policy may remember things in itself between rounds and changes nothing else; a run gets a fresh one.
    Attributes that it may have, all of them false where they are missing, say what it is for:

    - `adaptive`: jobs choose their own batch sizes; else they keep what their users asked for;
    - `known_throughput`: their agents start with the θ_sys of their application instead of exploring it;
    - `maximises_throughput`: their agents take throughput for goodput;
    - `needs_profiles`: it can do nothing with a job that has no profile but a known duration.
    """

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Allocation:
        """Return the placements to hold until the next round; a job left out holds no GPU.

        A `Decision` is an allocation that also says how good it is, and how long it stands.
        """
        ...


def is_adaptive(policy: Policy) -> bool:
    """Return whether jobs choose their own batch size under this policy."""
    return bool(getattr(policy, "adaptive", False))


def knows_throughput(policy: Policy) -> bool:
    """Return whether agents start with the θ_sys of their application under this policy."""
    return bool(getattr(policy, "known_throughput", False))


def maximises_throughput(policy: Policy) -> bool:
    """Return whether agents choose batch sizes by throughput alone under this policy."""
    return bool(getattr(policy, "maximises_throughput", False))


def needs_profiles(policy: Policy) -> bool:
    """Return whether this policy can do nothing with a job that has no profile."""
    return bool(getattr(policy, "needs_profiles", False))
