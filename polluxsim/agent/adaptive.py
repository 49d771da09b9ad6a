"""The agent of an adaptive job, which learns throughput and noise scale and chooses the batch size."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from polluxsim.agent.agent import Observation
from polluxsim.agent.rules import RuledAgent
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import BatchChoice
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.efficiency import GradientStatistics
from polluxsim.models.fitting import fit_throughput
from polluxsim.models.goodput import Goodput, GoodputModel, ScaledGoodput
from polluxsim.models.profile import Application, StepTime
from polluxsim.models.throughput import ThroughputParams

NO_NOISE = GradientStatistics(sqr=1.0, var=0.0)  # assumed before the first measurement: a noise scale of 0

ALL_NOISE = GradientStatistics(sqr=0.0, var=1.0)
"""An infinite noise scale: efficiency is 1 at every batch size, so goodput equals throughput."""


class AdaptiveAgent:
    """Pollux's agent.

    It keeps the first measurement of each combination of nodes, GPUs and atomic batch size, and fits θ_sys again at
    each new combination. It chooses the batch size with the highest goodput, by the latest gradient statistics.

    Parameters
    ----------
    application
        Limits of the batch size.
    known
        θ_sys from earlier jobs, or None. With it, the agent fits nothing and need not explore numbers of GPUs. Before
        the first gradient statistics, a larger batch then has no value, unless the agent maximises throughput.
    maximises_throughput
        Whether the agent maximises throughput, as if all batch sizes were equally efficient.

    Source: Pollux (OSDI '21), §4.1, and its artifact; known θ_sys, §5.3.
    """

    learns: ClassVar[bool] = True
    plans = False
    divide: ClassVar[None] = None  # a job has one GPU type at a time

    def __init__(
        self, application: Application, known: ThroughputParams | None = None, *, maximises_throughput: bool = False
    ) -> None:
        self._application = application
        self._observed: dict[tuple[int, int, int], StepTime] = {}
        self._statistics: GradientStatistics | None = None
        self._known = known
        self._maximises_throughput = maximises_throughput
        self._params = known
        self._most_observed = 0
        self._model: GoodputModel | None = None
        if known is not None:
            assumed = ALL_NOISE if maximises_throughput else NO_NOISE
            self._model = GoodputModel(application, known, assumed)

    @property
    def max_replicas(self) -> int:
        """Return the maximum GPUs of the job: twice the most GPUs on which it was observed, and one before that.

        It is at most the application's limit, and with known θ_sys equal to this limit.
        """
        limit = self._application.most_replicas(self._application.largest_batch)
        if self._known is not None:
            return limit
        return min(max(2 * self._most_observed, 1), limit)

    @property
    def application(self) -> Application:
        """Return the limits of the batch size."""
        return self._application

    @property
    def goodput(self) -> GoodputModel | None:
        """Return the model, or None before the first observation if θ_sys is not known."""
        return self._model

    def goodput_on(self, gpu_type: str) -> GoodputModel | None:
        """Return the model, or None, as `goodput` does: it is the same for all types."""
        return self._model

    def observe(self, observation: Observation) -> None:
        """Store the gradient statistics, and fit again if the combination of nodes, GPUs and batch size is new.

        With known θ_sys, nothing is fitted.
        """
        key = (observation.num_nodes, observation.num_replicas, observation.atomic_batch_size)
        # A fit takes long, and later measurements of a combination are equal in a simulation.
        if key not in self._observed:
            self._observed[key] = observation.step_time
            self._most_observed = max(self._most_observed, observation.num_replicas)
            if self._known is None:
                self._params = self._fit()
        elif observation.statistics == self._statistics:
            # The usual case: within an epoch nothing changes. A new model would be computed anew by each policy.
            return
        self.follow(observation.statistics)

    def follow(self, statistics: GradientStatistics) -> None:
        """Store gradient statistics, which may come from other GPUs."""
        self._statistics = statistics
        if self._params is not None:
            assumed = ALL_NOISE if self._maximises_throughput else statistics
            self._model = GoodputModel(self._application, self._params, assumed)

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the choice with the highest goodput; without a model, the fixed or else the smallest valid batch."""
        if self._model is not None:
            _, choice = self._model.best(num_nodes, num_replicas)
            return choice
        application = self._application
        batch_size = application.fixed_batch_size or application.smallest_batch(num_replicas)
        return split_batch_size(application, batch_size, num_replicas)

    def __deepcopy__(self, memo: dict[int, object]) -> AdaptiveAgent:
        new = copy(self)  # models, statistics and θ_sys never change
        new._observed = self._observed.copy()
        return new

    def _fit(self) -> ThroughputParams:
        """Return θ_sys fitted to all observations."""
        nodes, replicas, atomic = zip(*self._observed, strict=True)
        times = self._observed.values()
        grad_times = [time.step_time - time.sync_time for time in times]
        return fit_throughput(nodes, replicas, atomic, grad_times, [time.step_time for time in times])


class ElasticAgent(AdaptiveAgent):
    """An agent that learns the throughput for the policy, as Pollux's agent does. A rule chooses its batch size.

    `ruled` is the agent of the rule; the other parameters are those of `AdaptiveAgent`.
    """

    def __init__(
        self,
        ruled: RuledAgent,
        application: Application,
        known: ThroughputParams | None = None,
        *,
        maximises_throughput: bool = False,
    ) -> None:
        limits = replace(application, fixed_batch_size=ruled.present)
        super().__init__(limits, known, maximises_throughput=maximises_throughput)
        self.plans = ruled.plans
        self._ruled = ruled

    def observe(self, observation: Observation) -> None:
        """Store the observation, and follow a new batch size of the rule."""
        # The rule first, because `follow` reads its batch size.
        self._ruled.observe(observation)
        super().observe(observation)
        # Equal gradient statistics are not followed, but the rule may have another batch size in another epoch.
        if self._application.fixed_batch_size != self._ruled.present:
            self.follow(observation.statistics)

    def follow(self, statistics: GradientStatistics) -> None:
        """Store gradient statistics, and use the present batch size of the rule for the goodput."""
        size = self._ruled.present
        # A new object only for a new size, because tables of goodputs are kept by the identity of the application.
        if size != self._application.fixed_batch_size:
            self._application = replace(self._application, fixed_batch_size=size)
        super().follow(statistics)

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the choice of the rule."""
        return self._ruled.choose(num_nodes, num_replicas, gpu_type, epoch)

    def __deepcopy__(self, memo: dict[int, Any]) -> ElasticAgent:
        new: ElasticAgent = super().__deepcopy__(memo)  # type: ignore[assignment]
        new._ruled = deepcopy(self._ruled, memo)
        return new


class OnType(NamedTuple):
    """The agent of a job on one GPU type, and what the job's user knows of the type."""

    agent: AdaptiveAgent
    speed: float  # throughput on one GPU, known at submission [examples/s]
    gpus_per_node: int  # GPUs of the largest node of the type


class AgentByType:
    """An agent for several GPU types: it learns throughput for each type, and gradient statistics for all types.

    If the job has not run on a type, its goodput there is the goodput on the first type with a model, in the order of
    the cluster, times the ratio of the speeds on one GPU.

    Source: Sia (SOSP '23), §3.3, and its published simulator.
    """

    learns: ClassVar[bool] = True
    divide: ClassVar[None] = None  # a job has one GPU type at a time

    def __init__(self, by_type: Mapping[str, OnType]) -> None:
        self._by_type = by_type
        self.plans = any(on.agent.plans for on in by_type.values())
        self._last: str | None = None
        self._models: dict[str, Goodput | None] = {}  # by type, since the last observation

    @property
    def max_replicas(self) -> int:
        """Return the maximum GPUs of the job: the largest limit over the types."""
        return max(on.agent.max_replicas for on in self._by_type.values())

    @property
    def goodput(self) -> GoodputModel | None:
        """Return the model of the last type on which the job was observed; None before the first observation."""
        if self._last is None:
            return None
        return self._by_type[self._last].agent.goodput

    def goodput_on(self, gpu_type: str) -> Goodput | None:
        """Return the model of a type: its fitted model, or else the scaled model of the first fitted type, or None.

        Raise KeyError for a type that the job cannot use.
        """
        if gpu_type not in self._models:
            self._models[gpu_type] = self._model_on(self._by_type[gpu_type])
        return self._models[gpu_type]

    def observe(self, observation: Observation) -> None:
        """Store the observation for its type, and the gradient statistics for all types."""
        self._last = observation.gpu_type
        self._by_type[self._last].agent.observe(observation)
        # The gradients do not depend on the GPUs that compute them.
        for name, on in self._by_type.items():
            if name != self._last:
                on.agent.follow(observation.statistics)
        self._models = {}

    def choose(self, num_nodes: int, num_replicas: int, gpu_type: str = ANY.name, epoch: int = 0) -> BatchChoice:
        """Return the choice of the agent of a type. Raise KeyError for a type that the job cannot use."""
        return self._by_type[gpu_type].agent.choose(num_nodes, num_replicas, gpu_type, epoch)

    def _model_on(self, here: OnType) -> Goodput | None:
        """Return the fitted model of a type, or the scaled model of the first fitted type; None if none is fitted."""
        if here.agent.goodput is not None:
            return here.agent.goodput
        for on in self._by_type.values():
            model = on.agent.goodput
            if model is not None:
                limits = here.agent.application
                return ScaledGoodput(model, here.speed / on.speed, on.gpus_per_node, limits)
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentByType:
        by_type = {name: on._replace(agent=deepcopy(on.agent, memo)) for name, on in self._by_type.items()}
        new = AgentByType(by_type)
        new._last = self._last
        new._models = self._models.copy()  # models never change, but `observe` may replace them in one of both
        return new
