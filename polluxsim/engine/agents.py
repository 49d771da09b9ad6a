"""Which agent runs beside a job, by what its policy asks of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.agent.adaptive import AdaptiveAgent
from polluxsim.agent.agent import FixedBatchAgent
from polluxsim.models.known import known_throughput
from polluxsim.policies.view import is_adaptive, knows_throughput, maximises_throughput

if TYPE_CHECKING:
    from polluxsim.agent.agent import Agent
    from polluxsim.engine.oracle import Truth
    from polluxsim.models.throughput import ThroughputParams
    from polluxsim.policies.view import Policy
    from polluxsim.workloads.workload import Job


class Agents:
    """Makes the agents of one run.

    Parameters
    ----------
    policy
        Whose jobs they run beside.
    gpus_per_node
        GPUs of the largest node, on which jobs that taught θ_sys were packed, where it is known from the start.
    """

    def __init__(self, policy: Policy, gpus_per_node: int) -> None:
        self._adaptive = is_adaptive(policy)
        self._knows_throughput = knows_throughput(policy)
        self._maximises_throughput = maximises_throughput(policy)
        self._gpus_per_node = gpus_per_node
        self._known: dict[str, ThroughputParams] = {}

    def new(self, job: Job, truth: Truth) -> Agent:
        """Return a fresh agent for a job."""
        application = truth.profile.application
        if not self._adaptive or job.duration is not None:
            return FixedBatchAgent(application, job.batch_size)
        known = self._throughput(truth) if self._knows_throughput else None
        return AdaptiveAgent(application, known, maximises_throughput=self._maximises_throughput)

    def _throughput(self, truth: Truth) -> ThroughputParams:
        name = truth.profile.application.name
        if (known := self._known.get(name)) is None:
            known = self._known[name] = known_throughput(truth.profile, self._gpus_per_node)
        return known
