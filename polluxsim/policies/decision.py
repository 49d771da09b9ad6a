"""What a policy answers: an allocation, how long it stands, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag, auto
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from polluxsim.hosts import Host
    from polluxsim.types import Allocation, Gpus, JobId


class Change(Flag):
    """What happens between rounds that a policy can see."""

    ARRIVAL = auto()
    EPOCH = auto()
    COMPLETION = auto()
    LEARNING = auto()
    NODES = auto()
    EVICTION = auto()
    ANY = ARRIVAL | EPOCH | COMPLETION | LEARNING | NODES | EVICTION


class Reason(NamedTuple):
    """What decided about one job in a round.

    Attributes
    ----------
    kind
        What it was, in a word that the policy chooses; `look/why/words.py` has sentences for those of ours, and
        says any other as it is.
    numbers
        The figures that it came down to, by name; `REASON_UNITS` in `record_units.py` has the units of ours.
    others
        The jobs it came down to, as `kind` says.
    """

    kind: str
    numbers: Mapping[str, float]
    others: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """An allocation, and what the policy knows of it. By default the policy is asked again at the next round.

    Attributes
    ----------
    allocation
        Who is to hold which GPUs; a job left out holds none, or what it held where `others_keep`.
    others_keep
        Whether jobs that the allocation leaves out keep their GPUs.
    shared
        Jobs that get GPUs by number, as others may have the same ones, where `engine.sharing` says that they fit
        together; the allocation leaves them out.
    hosts
        CPUs and memory for each GPU of a job, on all of its nodes alike, where the cluster says what nodes have. Who is
        left out has as much of its nodes' as it has of their GPUs. To change it is no restart.
    rejected
        Jobs that will never get a GPU, as the policy does not admit them: they end here. None may hold GPUs. The policy
        is not told of their end.
    num_nodes
        Nodes to have from now on, where their number can change; None leaves it. New ones come up after their start-up
        time; nodes beyond the number are released at once, and the allocation must do without them.
    fitness
        The policy's objective at this allocation, None if it does not say.
    upper_bound
        What the objective cannot exceed at any allocation, None if it does not know.
    valid_until
        Time until which the policy, asked again after this allocation was carried out, would answer the same for the
        jobs that are left, unless something in `outdated_by` happens [s]. It is not asked before then.
    outdated_by
        What ends that earlier.
    explain
        Says of some jobs what decided about them, None if the policy gives no reasons. It is called, if at all, before
        the decision is carried out and for few jobs, so reasons cost nothing until then. It may change nothing in the
        policy.
    """

    allocation: Allocation
    others_keep: bool = False
    shared: Mapping[JobId, Gpus] = field(default_factory=dict)
    hosts: Mapping[JobId, Host] = field(default_factory=dict)
    rejected: Collection[JobId] = ()
    num_nodes: int | None = None
    fitness: float | None = None
    upper_bound: float | None = None
    valid_until: float = -inf
    outdated_by: Change = Change.ANY
    explain: Callable[[Sequence[JobId]], Mapping[JobId, Reason]] | None = None
