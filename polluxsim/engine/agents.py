"""Which agent runs beside a job, by what its policy asks of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.agent.agent import FixedBatchAgent, PlanningAgent
from polluxsim.agent.ruled import BalancingAgent, RuledAgent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.agent.adaptive import AdaptiveAgent
    from polluxsim.agent.agent import Agent
    from polluxsim.agent.rules import BatchRule
    from polluxsim.engine.truth import Truth
    from polluxsim.models.throughput import ThroughputParams
    from polluxsim.policies.view import Traits
    from polluxsim.workloads.workload import Job


class Agents:
    """Makes the agents of a run, which go by a rule whatever the policy; None leaves that to the policy's traits.

    Jobs that taught θ_sys, where that is known from the start, were packed on nodes of the largest size of each type.
    """

    def __init__(self, traits: Traits, rule: BatchRule | None, node_sizes: Mapping[str, int]) -> None:
        self._traits = traits
        self._rule = rule
        self._node_sizes = node_sizes
        self._known: dict[tuple[str, str], ThroughputParams] = {}

    def new(self, job: Job, truth: Truth) -> Agent:
        """Return a fresh agent for a job."""
        application = truth.profile.application
        if job.plan is not None:
            return PlanningAgent(application, job.batch_size, job.plan)
        usable = [name for name in self._node_sizes if name in truth.types] if len(self._node_sizes) > 1 else []
        by_type = {name: truth.on(name).application for name in usable}
        rule, adaptive = self._rule, self._traits.adaptive
        if application.gang_size is not None or (rule is None and not adaptive):
            return FixedBatchAgent(application, job.batch_size, by_type)
        ruled = None
        if rule is not None and not rule.by_goodput:
            if usable and not adaptive and (controller := rule.controller) is not None:
                return BalancingAgent(application, job.batch_size, rule, by_type, controller)
            ruled = RuledAgent(application, job.batch_size, rule, by_type)
            if not adaptive:
                return ruled
        if not usable:
            return self._adaptive(truth, ruled)
        # Compiled code, which takes a while to load, is for those who need it.
        from polluxsim.agent.by_type import AgentByType, OnType  # noqa: PLC0415

        truths = [truth.on(name) for name in usable if not job.gpu_types or name in job.gpu_types]
        return AgentByType(
            {each.gpu_type: OnType(self._adaptive(each, ruled), each.speed_alone, self._size(each)) for each in truths}
        )

    def _adaptive(self, truth: Truth, ruled: RuledAgent | None) -> AdaptiveAgent:
        from polluxsim.agent.adaptive import AdaptiveAgent, ElasticAgent  # noqa: PLC0415

        application, maximises_throughput = truth.profile.application, self._traits.maximises_throughput
        known = self._throughput(truth) if self._traits.known_throughput else None
        if ruled is None:
            return AdaptiveAgent(application, known, maximises_throughput=maximises_throughput)
        return ElasticAgent(ruled, application, known, maximises_throughput=maximises_throughput)

    def _throughput(self, truth: Truth) -> ThroughputParams:
        from polluxsim.models.known import known_throughput  # noqa: PLC0415

        key = truth.profile.application.name, truth.gpu_type
        if (known := self._known.get(key)) is None:
            known = self._known[key] = known_throughput(truth.profile, self._size(truth))
        return known

    def _size(self, truth: Truth) -> int:
        return self._node_sizes.get(truth.gpu_type) or max(self._node_sizes.values())
