"""The decision of a policy, and the properties of policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from polluxsim.hardware.hosts import Host
from polluxsim.hardware.placements import Allocation, Gpus, JobId
from polluxsim.models.batch_size import BatchSize
from polluxsim.policies.contract.changes import Change
from polluxsim.policies.contract.reasons import Reason


@dataclass(frozen=True, slots=True)
class Decision:
    """An allocation with its quality and its validity. By default the policy decides again at the next round.

    Attributes
    ----------
    allocation
        GPUs of each job. A job that neither `allocation` nor `shared` contains gets no GPUs, or keeps its GPUs if
        `others_keep`.
    others_keep
        Whether jobs that `allocation` and `shared` leave out keep their GPUs.
    shared
        Numbered GPUs of jobs, which they may share with other jobs as `engine.sharing` allows. The allocation must
        not contain these jobs.
    hosts
        CPUs [cores] and memory [GB] for each GPU of a job, equal on all of its nodes. The cluster must state the CPUs
        and memory of its nodes. A job that is left out gets CPUs and memory in proportion to its GPUs. A change causes
        no restart.
    batch_sizes
        Batch sizes that the policy chooses, by job that holds GPUs after this decision. They hold until the next
        decision. The agents of all other jobs choose their batch sizes. A change causes no restart.
    rejected
        Jobs that the policy rejects. They end, and must not hold GPUs in this decision. Their end does not call
        the policy.
    num_nodes
        Number of nodes after this decision, on a cluster that can change it. None keeps the number. New nodes come up
        after their start-up time. Surplus nodes are released at once, and the allocation must not use them.
    fitness
        Objective of the policy for this allocation, or None.
    upper_bound
        Upper bound of the objective over all allocations, or None.
    valid_until
        Time until which the policy would give the remaining jobs the same GPUs [s]. The policy decides again at the
        first round from this time on, or earlier after an event in `outdated_by`.
    outdated_by
        Events that end the validity before `valid_until`. The loss of GPUs by a failure always ends it.
    explain
        Function that returns the reasons for the allocations of some jobs, or None. The engine calls it before the
        decision is applied, and only if the reasons of a job are due to be recorded. The function must not change the
        policy.
    delays
        Time without training after this change of the GPUs of a job [s], in place of its restart delay. It has no
        effect on a change that the settings of the engine make free. Set it only for starts that are not restarts,
        such as the resumption of a suspended job.
    """

    allocation: Allocation
    others_keep: bool = False
    shared: Mapping[JobId, Gpus] = field(default_factory=dict)
    hosts: Mapping[JobId, Host] = field(default_factory=dict)
    batch_sizes: Mapping[JobId, BatchSize] = field(default_factory=dict)
    rejected: Collection[JobId] = ()
    num_nodes: int | None = None
    fitness: float | None = None
    upper_bound: float | None = None
    # By default the policy decides at every round, which is right for every policy, though slow.
    valid_until: float = -inf
    outdated_by: Change = Change.ANY
    explain: Callable[[Sequence[JobId]], Mapping[JobId, Reason]] | None = None
    delays: Mapping[JobId, float] = field(default_factory=dict)


def decision_of(answer: Allocation | Decision) -> Decision:
    """Return the answer of a policy as a decision; a bare allocation is valid until the next round."""
    return answer if isinstance(answer, Decision) else Decision(answer)


@dataclass(frozen=True)
class Traits:
    """Properties of a policy. A policy without the attribute `traits` has no traits.

    Attributes
    ----------
    adaptive
        Jobs choose their batch sizes, where the policy does not. Otherwise the agents keep the batch sizes of their
        users, and learn nothing.
    known_throughput
        The agents of jobs start with the θ_sys of their application instead of exploring it.
    maximises_throughput
        The agents of jobs maximise throughput instead of goodput.
    needs_profiles
        The policy cannot schedule jobs without a profile.
    scales
        The policy chooses the number of nodes. It also decides when there are no jobs.
    shares_gpus
        The policy puts several jobs on a GPU. The trait requires `engine.sharing`.
    remembers
        What the policy remembers of jobs that have ended, as a clause. Empty for policies whose decisions do not depend
        on jobs that ended before the cluster was last without jobs.
    one_type_as
        Reason, as a clause, why the policy cannot use several GPU types. Empty for policies that can schedule such
        jobs.
    per_type
        The policy knows one GPU type, and only the jobs and GPUs in its view. On a cluster of several types, each type
        has its own copy of it (`polluxsim.policies.tools.pools.PerType`). Other policies see all types.
    follows_clock
        Decisions depend on the hour of the clock, for example on a price by hour. `polluxsim check` then allows other
        decisions when all times are later. Other policies count times from submissions and decisions.
    slices_time
        The policy shares time: jobs take turns on GPUs, or get other GPUs as time passes, also while no event happens.
        The jobs that run, and their GPUs, may then recur.
    keeps_shapes
        Each job that the policy starts gets its requested GPUs in the shape that `view.shape_of` returns. The trait
        makes `engine.placement` have an effect, and jobs that fit on no nodes are then refused.
    obeys_limits
        The policy starts no job that `view.limits` stops. Without the trait, `engine.limits` is refused.
    never_preempts
        The policy never takes GPUs from a running job, gives it further GPUs, or moves it. Only failures and changes
        of nodes do.
    """

    adaptive: bool = False
    known_throughput: bool = False
    maximises_throughput: bool = False
    needs_profiles: bool = False
    scales: bool = False
    shares_gpus: bool = False
    # A fork that changes the traits gives jobs new agents. Traits that mean nothing to an agent are not compared.
    remembers: str = field(default="", compare=False)
    one_type_as: str = ""
    per_type: bool = field(default=False, compare=False)
    follows_clock: bool = field(default=False, compare=False)
    # The following traits are promises that `polluxsim check` tests.
    slices_time: bool = field(default=False, compare=False)
    never_preempts: bool = field(default=False, compare=False)
    keeps_shapes: bool = field(default=False, compare=False)
    obeys_limits: bool = field(default=False, compare=False)
