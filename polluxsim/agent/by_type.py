"""The agent of a job on a cluster of several GPU types: one agent for each, which share the gradient statistics."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from polluxsim.gpu_types import ANY
from polluxsim.models.goodput import ScaledGoodput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.agent.adaptive import AdaptiveAgent
    from polluxsim.agent.agent import Observation
    from polluxsim.models.goodput import Goodput, GoodputModel
    from polluxsim.types import BatchChoice


class OnType(NamedTuple):
    """A job on one GPU type."""

    agent: AdaptiveAgent
    speed: float  # examples a second on one GPU, which is known at submission
    gpus_per_node: int  # GPUs of the largest node of the type


class AgentByType:
    """Learns the throughput of a job on each type that it can use, and its gradient statistics on all.

    On a type that was not tried yet, goodput is that of the first one that was, in the cluster's order, times the ratio
    of speeds on one GPU.

    Source: Sia (SOSP '23), §3.3, and its published simulator.
    """

    learns: ClassVar[bool] = True
    plans: ClassVar[bool] = False
    divide: ClassVar[None] = None

    def __init__(self, by_type: Mapping[str, OnType]) -> None:
        self._by_type = by_type
        self._last: str | None = None
        self._known: dict[str, Goodput | None] = {}

    @property
    def max_replicas(self) -> int:
        """Return the most GPUs the job may be given now, by what was seen on any type."""
        return max(on.agent.max_replicas for on in self._by_type.values())

    @property
    def goodput(self) -> GoodputModel | None:
        """Return what has been learnt of the type that the job ran on last."""
        return None if self._last is None else self._by_type[self._last].agent.goodput

    def goodput_on(self, gpu_type: str) -> Goodput | None:
        """Return what has been learnt of a type, or what the first one that was tried says of it."""
        if gpu_type not in self._known:
            self._known[gpu_type] = self._goodput_on(self._by_type[gpu_type])
        return self._known[gpu_type]

    def observe(self, observation: Observation) -> None:
        """Take note of how the job runs; what its gradients are like holds for every type."""
        self._last = observation.gpu_type
        self._by_type[self._last].agent.observe(observation)
        for name, on in self._by_type.items():
            if name != self._last:
                on.agent.follow(observation.statistics)
        self._known = {}

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the goodput-optimal choice on a type; before it was tried, the smallest batch that is allowed."""
        return self._by_type[gpu_type].agent.choose(num_nodes, num_replicas, gpu_type, epoch)

    def _goodput_on(self, here: OnType) -> Goodput | None:
        if here.agent.goodput is not None:
            return here.agent.goodput
        for on in self._by_type.values():
            if (model := on.agent.goodput) is not None:
                return ScaledGoodput(model, here.speed / on.speed, on.gpus_per_node)
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentByType:
        new = AgentByType({name: on._replace(agent=deepcopy(on.agent, memo)) for name, on in self._by_type.items()})
        new._last, new._known = self._last, self._known.copy()
        return new
