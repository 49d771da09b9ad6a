"""Which agent runs beside a job, by what its policy asks of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.agent.agent import FixedBatchAgent, PlanningAgent

if TYPE_CHECKING:
    from polluxsim.agent.agent import Agent
    from polluxsim.engine.truth import Truth
    from polluxsim.models.throughput import ThroughputParams
    from polluxsim.policies.view import Traits
    from polluxsim.workloads.workload import Job


class Agents:
    """Makes the agents of a run.

    Parameters
    ----------
    traits
        What the policy is.
    gpus_per_node
        GPUs of the largest node, on which jobs that taught θ_sys were packed, where it is known from the start.
    """

    def __init__(self, traits: Traits, gpus_per_node: int) -> None:
        self._traits = traits
        self._gpus_per_node = gpus_per_node
        self._known: dict[str, ThroughputParams] = {}

    def new(self, job: Job, truth: Truth) -> Agent:
        """Return a fresh agent for a job."""
        application = truth.profile.application
        if job.plan is not None:
            return PlanningAgent(application, job.batch_size, [size for size, _ in job.plan.stretches])
        if not self._traits.adaptive or application.gang_size is not None:
            return FixedBatchAgent(application, job.batch_size)
        # Compiled code, which takes a while to load, is for those who need it.
        from polluxsim.agent.adaptive import AdaptiveAgent  # noqa: PLC0415

        known = self._throughput(truth) if self._traits.known_throughput else None
        return AdaptiveAgent(application, known, maximises_throughput=self._traits.maximises_throughput)

    def _throughput(self, truth: Truth) -> ThroughputParams:
        from polluxsim.models.known import known_throughput  # noqa: PLC0415

        name = truth.profile.application.name
        if (known := self._known.get(name)) is None:
            known = self._known[name] = known_throughput(truth.profile, self._gpus_per_node)
        return known
