"""One policy for each GPU type of a cluster, for those that know one pool of GPUs."""

from __future__ import annotations

from copy import deepcopy
from functools import reduce, wraps
from operator import or_
from typing import TYPE_CHECKING, Any, TypeVar

from polluxsim.policies.pools import Pools
from polluxsim.policies.view import Decision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from polluxsim.policies.view import ClusterView, Policy, Reason
    from polluxsim.types import Allocation, JobId, Placement

Given = TypeVar("Given", bound=type[Any])


def together(view: ClusterView, pools: Pools, made: Mapping[str, Decision]) -> Decision:
    """Return one decision for the cluster of those for its pools, by type."""
    allocation: dict[JobId, Placement] = {}
    for name, decision in made.items():
        allocation |= decision.allocation
        if not decision.others_keep:
            held = (job.job_id for job in view.running if pools.of(job.job_id) == name)
            stay = decision.allocation.keys() | decision.shared.keys()
            allocation |= {job_id: () for job_id in held if job_id not in stay}
    rejected = [job_id for decision in made.values() for job_id in decision.rejected]

    def explain(asked: Sequence[JobId]) -> dict[JobId, Reason]:
        reasons: dict[JobId, Reason] = {}
        for name, decision in made.items():
            if decision.explain is not None and (mine := [job_id for job_id in asked if pools.of(job_id) == name]):
                reasons |= decision.explain(mine)
        return reasons

    return Decision(
        allocation,
        others_keep=True,
        shared={job_id: gpus for decision in made.values() for job_id, gpus in decision.shared.items()},
        rejected=rejected,
        valid_until=min(decision.valid_until for decision in made.values()),
        outdated_by=reduce(or_, (decision.outdated_by for decision in made.values())),
        explain=explain,
    )


class PolicyPerType:
    """A policy of one kind for each GPU type of a cluster.

    The policy given was not asked yet. It may have a method `on_type`, which returns the policy for a type, by name, of
    those of a cluster; else each is a copy of it. `may_use` and `jobs_stay` are as of `Pools`, where it has them.
    """

    def __init__(self, policy: Policy, view: ClusterView) -> None:
        on_type = getattr(policy, "on_type", lambda name, types: deepcopy(policy))
        self._policies: dict[str, Policy] = {name: on_type(name, view.types) for name in view.types}
        self._pools = Pools(getattr(policy, "may_use", None), jobs_stay=getattr(policy, "jobs_stay", False))

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Ask each of them about its pool."""
        made = dict[str, Decision]()
        for name, part in self._pools.views(view).items():
            answer = self._policies[name].allocate(part, rng)
            made[name] = answer if isinstance(answer, Decision) else Decision(answer)
        return together(view, self._pools, made)


def pool_per_type(policy: Given) -> Given:
    """Let a class of policies that know one pool of GPUs decide on clusters of several types: for each by itself.

    On a cluster of one type nothing changes. It is for policies whose every decision is about the jobs and GPUs that
    they see; one that counts something over the whole cluster asks `Pools` itself.
    """
    alone = policy.allocate

    @wraps(alone)
    def allocate(self: Any, view: ClusterView, rng: np.random.Generator) -> Allocation | Decision:
        if len(view.types) == 1:
            decision: Allocation | Decision = alone(self, view, rng)
            return decision
        per_type: PolicyPerType | None = self.__dict__.get("_per_type")
        if per_type is None:
            per_type = PolicyPerType(self, view)
            object.__setattr__(self, "_per_type", per_type)  # of frozen policies, too
        return per_type.allocate(view, rng)

    policy.allocate = allocate
    return policy
