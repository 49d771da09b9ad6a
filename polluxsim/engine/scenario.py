"""The input of a simulation as one frozen value, and the agents that run beside its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from polluxsim.agent.agent import Agent, FixedBatchAgent, PlanningAgent
from polluxsim.agent.rules import BalancingAgent, BatchRule, RuledAgent, check_rule
from polluxsim.common.errors import InvalidConfigError, allowed_among, one_of
from polluxsim.engine.clock import check_range
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.progress import CheckpointCycle
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.truth import GroundTruth, SpeedCache
from polluxsim.hardware.checkpoints import failure_rate
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.node_shapes import (
    ANYWHERE,
    ConsolidatedRule,
    NodeRequest,
    ShapeRule,
    fits_empty,
    shape_in_words,
    shape_of,
)
from polluxsim.hardware.placements import partitions_of_queue
from polluxsim.models.known_duration import PlannedProfile, RigidProfile, ScalingProfile, Speeds
from polluxsim.models.profile import Profile, sensitivity_of
from polluxsim.models.sensitivity import Sensitivity
from polluxsim.policies.contract.policy import Allocates, Policy, as_policy, traits_of
from polluxsim.policies.contract.view import Traits
from polluxsim.workloads.feasibility import speeds_of
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from polluxsim.agent.adaptive import AdaptiveAgent
    from polluxsim.models.throughput import ThroughputParams


@dataclass(frozen=True)
class Scenario:
    """The input of a simulation: jobs, profiles, a cluster, the settings of the engine, and the traits of the policy.

    Parameters
    ----------
    profiles
        Profiles by application name.
    policy_name
        Name of the policy in errors.
    batch_rule
        Rule by which jobs choose their batch sizes. With None, the traits of the policy decide.

    Raises
    ------
    InvalidInputError
        If a job cannot run on this cluster, with these profiles or under this policy.
    InvalidConfigError
        If the policy, the cluster and the settings of the engine do not fit together.
    """

    workload: Workload
    profiles: Mapping[str, Profile]
    cluster: Cluster
    settings: EngineSettings = field(default_factory=EngineSettings)
    traits: Traits = field(default_factory=Traits)
    policy_name: str = "policy"
    batch_rule: BatchRule | None = None
    # Values of jobs and applications that are already computed.
    _speeds: dict[object, Mapping[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _truths: dict[str, GroundTruth] = field(default_factory=dict, init=False, repr=False, compare=False)
    _speed_caches: dict[tuple[int, Speeds], SpeedCache] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __repr__(self) -> str:
        return f"Scenario({self.policy_name!r}, {self.workload!r}, {sum(self.cluster.gpus_per_node)} GPUs)"

    @classmethod
    def under(
        cls,
        policy: Allocates,
        workload: Workload,
        profiles: Mapping[str, Profile],
        cluster: Cluster,
        settings: EngineSettings,
        batch_rule: BatchRule | None = None,
    ) -> Scenario:
        """Return the scenario with the traits and the name of a policy."""
        return cls(workload, profiles, cluster, settings, traits_of(policy), as_policy(policy).label, batch_rule)

    def __post_init__(self) -> None:
        if self.batch_rule is not None:
            check_rule(self.batch_rule)
        self.check(self.workload)
        for setting, names in self.settings.named_applications.items():
            applications = sorted({*self.profiles, *(job.application for job in self.workload.jobs)})
            unknown = sorted(set(names) - set(applications))
            if unknown:
                raise InvalidConfigError(
                    f"engine.{setting} names application {unknown[0]!r}, {allowed_among(unknown[0], applications)}"
                )

    def check(self, workload: Workload) -> None:
        """Raise an `InvalidInputError` about a job of a workload that cannot run.

        Raise an `InvalidConfigError` if the policy, the cluster and the settings do not fit together.
        """
        # First, because the other checks look up the nodes of each job's partition.
        self._check_partitions(workload)
        workload.check(self.profiles, self.cluster, shrinks=self.traits.adaptive)
        if self.traits.needs_profiles and (rigid := workload.first_rigid_job) is not None:
            raise workload.error(rigid, f"has no profile, and {self.policy_name} needs one of every job")
        if self.traits.shares_gpus and self.settings.sharing is None:
            raise InvalidConfigError(f"engine.sharing is null, and {self.policy_name} needs it; set engine/sharing")
        if self.settings.use_limits and not self.traits.obeys_limits:
            raise InvalidConfigError(
                f"policy {self.policy_name} does not obey limits by user; leave out engine.limits, or use another "
                "policy, like fifo, easy or las"
            )
        if self.traits.one_type_as and len(self.cluster.types) > 1:
            types = ", ".join(self.cluster.types)
            raise InvalidConfigError(
                f"policy {self.policy_name} knows one GPU type, as {self.traits.one_type_as}; the cluster has {types}"
            )
        self._check_past(workload)
        self._check_shapes(workload)
        self._check_limits(workload)
        if workload.jobs:
            last = workload.jobs[-1]
            check_range(last.submit_time, self.settings.round_interval, "job", last.job_id)

    def _check_past(self, workload: Workload) -> None:
        """Raise an `InvalidInputError` if a job has done all work of its profile before the start of the run."""
        for job in takewhile(lambda job: job.submit_time < 0, workload.jobs):  # the jobs are in order of submission
            # Such a job would have no epoch left to train.
            work = self.truth_of(job).epoch_ends[-1]
            if job.past is not None and job.past.progress >= work:
                raise workload.error(job, f"past_progress is {job.past.progress:g}, must be below its work, {work:g}")

    def _check_shapes(self, workload: Workload) -> None:
        """Raise an `InvalidInputError` if a job fits on the nodes of no GPU type that it can use."""
        if not self.traits.keeps_shapes or self.shape_rule.anywhere:
            return
        # Many jobs have equal requests, which are checked once.
        checked = set[tuple[NodeRequest, tuple[str, ...], str | None]]()
        for job in workload.jobs:
            request = NodeRequest(job.num_replicas, job.num_nodes, job.gpus_per_task)
            cluster = self.cluster.for_queue(job.queue)
            usable = tuple(self.speeds_of(job)) if len(cluster.types) > 1 else tuple(cluster.types)
            partition = job.queue if self.cluster.partitions else None
            if (request, usable, partition) in checked:
                continue
            checked.add((request, usable, partition))
            falling_sizes = {name: sorted(cluster.by_type[name], reverse=True) for name in usable}
            shapes = {name: shape_of(request, falling_sizes[name]) for name in usable}
            if not any(fits_empty(shape, falling_sizes[name]) for name, shape in shapes.items()):
                needed = shape_in_words(next(iter(shapes.values())))
                raise workload.error(
                    job,
                    f"needs {needed}, and the cluster has no such nodes; use larger or more nodes, leave out the job, "
                    "or set engine.placement=anywhere",
                )

    def _check_limits(self, workload: Workload) -> None:
        """Raise an `InvalidInputError` if a job alone exceeds a limit, so that it would never start."""
        for limit in self.settings.use_limits:
            for job in workload.jobs:
                if limit.group_of(job) is not None and limit.amount(job) > limit.most:
                    raise workload.error(
                        job,
                        f"needs {limit.amount(job)} GPUs, and {limit.setting} is {limit.most}, so it would never "
                        "start; raise the limit, or leave out the job",
                    )

    def _check_partitions(self, workload: Workload) -> None:
        """Raise an `InvalidInputError` if the queue of a job does not name partitions with common nodes."""
        partitions = self.cluster.partitions
        if not partitions:
            return
        for job in workload.jobs:
            names = partitions_of_queue(job.queue)
            unknown = [name for name in names if name not in partitions]
            if unknown:
                queue = "has no queue" if job.queue is None else f"has queue {job.queue!r}"
                raise workload.error(
                    job, f"{queue}, and the cluster has partitions: the queue must be {one_of(unknown[0], partitions)}"
                )
            if len({self.cluster.group_of_partition[name] for name in names}) > 1:
                raise workload.error(
                    job, f"has queue {job.queue!r}, and these partitions have no common nodes; name one of them"
                )

    @cached_property
    def shape_rule(self) -> ShapeRule:
        """Return the rule that says how the GPUs of a whole job are spread over nodes."""
        if self.settings.placement == "anywhere":
            return ANYWHERE
        cluster = self.cluster
        types = [gpu.name for gpu in cluster.node_types] or [ANY.name] * cluster.num_nodes
        return ConsolidatedRule(cluster.gpus_per_node, types)

    def profile_of(self, job: Job) -> Profile:
        """Return the profile of the application of a job, or one made from its plan or duration if it has one."""
        if job.duration is None:
            return self.profiles[job.application]
        if job.plan is not None:
            return PlannedProfile(job.application, job.num_replicas, job.plan)
        if job.speeds:
            return ScalingProfile(job.num_replicas, job.duration, job.speeds)
        return RigidProfile(job.num_replicas, job.duration, type_speeds=job.type_speeds)

    def sensitivity_of(self, job: Job) -> Sensitivity | None:
        """Return the speed of a job against CPUs and memory, from its user or its application; None if unknown."""
        said = job.sensitivity
        if said is not None or job.is_rigid:
            return said
        return sensitivity_of(self.profiles[job.application])

    def truth_of(self, job: Job) -> GroundTruth:
        """Return the true behaviour of a job, on the GPU type of a cluster with one type.

        Computed values are shared by the jobs with a profile of the same application, and by jobs with a duration that
        have equal GPUs and speeds. A job with a plan shares none.
        """
        if job.plan is not None:
            return self._here(GroundTruth(self.profile_of(job)))
        if job.duration is not None:
            # Such jobs of equal speed differ in their length only, so they share a cache.
            speeds = self._speed_caches.setdefault((job.num_replicas, job.speeds), {})
            return self._here(GroundTruth(self.profile_of(job), speeds))
        truth = self._truths.get(job.application)
        if truth is None:
            truth = self._here(GroundTruth(self.profile_of(job)))
            self._truths[job.application] = truth
        return truth

    def _here(self, truth: GroundTruth) -> GroundTruth:
        types = self.cluster.types
        return truth.for_gpu_type(next(iter(types))) if len(types) == 1 and self.cluster.node_types else truth

    def speeds_of(self, job: Job) -> Mapping[str, float]:
        """Return the speed of a job with its request, by the GPU types that it can use [steps/s]."""
        # The speed of a job without a profile depends on all of its request.
        key: object = job
        if not job.is_rigid:
            queue = job.queue if self.cluster.partitions else None
            key = (job.application, job.num_replicas, job.batch_size, job.gpu_types, queue)
        speeds = self._speeds.get(key)
        if speeds is None:
            nodes = self.cluster.for_queue(job.queue)
            speeds = speeds_of(job, self.profile_of(job), nodes, shrinks=self.traits.adaptive)
            self._speeds[key] = speeds
        return speeds

    @property
    def can_fail(self) -> bool:
        """Return whether nodes or jobs can fail."""
        return bool(self.cluster.outages or self.settings.job_failures)

    @property
    def work_can_be_lost(self) -> bool:
        """Return whether jobs lose the work since their last checkpoint when they lose their GPUs."""
        return self.can_fail or self.settings.checkpoints is not None

    def checkpoint_cycle(self, job: Job, num_nodes: int, nodes: Nodes, now: float) -> CheckpointCycle | None:
        """Return the cycle of checkpoints of a job on a number of nodes, or None if no work can be lost."""
        if not self.work_can_be_lost:
            return None
        checkpoints = self.settings.checkpoints
        if checkpoints is None:
            # No periodic checkpoints: a failure takes all work since the job got its GPUs.
            return CheckpointCycle()
        failures = nodes.num_failures
        passed = now - nodes.start
        rate = num_nodes * failure_rate(sum(failures), len(failures), passed, checkpoints.expected_rate)
        interval = checkpoints.interval(job.application, rate)
        cost = checkpoints.cost_of(job.application)
        return CheckpointCycle(interval, cost, interval, at_epochs=checkpoints.every == "epoch")

    @cached_property
    def agents(self) -> Agents:
        """Return the factory of the agents of jobs."""
        return Agents(self.traits, self.batch_rule, {name: max(sizes) for name, sizes in self.cluster.by_type.items()})

    def __deepcopy__(self, memo: dict[int, object]) -> Scenario:
        return self


class Agents:
    """Make the agents of the jobs of a run.

    `node_sizes` has the GPUs of the largest node by GPU type. If θ_sys is known from the start, it was learnt on nodes
    of these sizes.
    """

    def __init__(self, traits: Traits, rule: BatchRule | None, node_sizes: Mapping[str, int]) -> None:
        self._traits = traits
        self._rule = rule
        self._node_sizes = node_sizes
        self._known: dict[tuple[str, str], ThroughputParams] = {}

    def new(self, job: Job, truth: GroundTruth) -> Agent:
        """Return a new agent for a job."""
        application = truth.profile.application
        if job.plan is not None:
            return PlanningAgent(application, job.batch_size, job.plan)
        usable: list[str] = []  # GPU types among which the agent can choose; none if the cluster has one
        if len(self._node_sizes) > 1:
            usable = [name for name in self._node_sizes if name in truth.profiles_by_type]
        by_type = {name: truth.for_gpu_type(name).application for name in usable}
        rule = self._rule
        adaptive = self._traits.adaptive
        if application.gang_size is not None or (rule is None and not adaptive):
            return FixedBatchAgent(application, job.batch_size, by_type)
        # A rule by goodput is what an adaptive agent does anyway.
        ruled = None
        if rule is not None and not rule.by_goodput:
            if usable and not adaptive and rule.controller is not None:
                return BalancingAgent(application, job.batch_size, rule, by_type, rule.controller)
            ruled = RuledAgent(application, job.batch_size, rule, by_type)
            if not adaptive:
                return ruled
        if not usable:
            return self._adaptive(truth, ruled)
        # This loads compiled code, which takes a while, so it is imported only if it is needed.
        from polluxsim.agent.adaptive import AgentByType, OnType  # noqa: PLC0415

        agents: dict[str, OnType] = {}
        for name in usable:
            # The user excludes this type, so no agent is needed for it.
            if job.gpu_types and name not in job.gpu_types:
                continue
            truth_on_type = truth.for_gpu_type(name)
            agent = self._adaptive(truth_on_type, ruled)
            agents[name] = OnType(agent, truth_on_type.speed_alone, self._size(truth_on_type))
        return AgentByType(agents)

    def _adaptive(self, truth: GroundTruth, ruled: RuledAgent | None) -> AdaptiveAgent:
        """Return an adaptive agent, by the traits of the policy.

        It learns the throughput of its job, or knows it from the start. It maximises goodput or throughput, unless
        `ruled` chooses the batch size.
        """
        from polluxsim.agent.adaptive import AdaptiveAgent, ElasticAgent  # noqa: PLC0415

        application = truth.profile.application
        maximises_throughput = self._traits.maximises_throughput
        throughput = None
        if self._traits.known_throughput:
            throughput = self._throughput(truth)
        if ruled is None:
            return AdaptiveAgent(application, throughput, maximises_throughput=maximises_throughput)
        return ElasticAgent(ruled, application, throughput, maximises_throughput=maximises_throughput)

    def _throughput(self, truth: GroundTruth) -> ThroughputParams:
        """Return the parameters of the true throughput, fitted once for each application and GPU type."""
        from polluxsim.models.fitting import known_throughput  # noqa: PLC0415

        key = truth.profile.application.name, truth.gpu_type
        throughput = self._known.get(key)
        if throughput is None:
            throughput = self._known[key] = known_throughput(truth.profile, self._size(truth))
        return throughput

    def _size(self, truth: GroundTruth) -> int:
        """Return the GPUs of the largest node of this type; of any type if the cluster does not have this one."""
        return self._node_sizes.get(truth.gpu_type) or max(self._node_sizes.values())


def for_cluster(policy: Allocates, cluster: Cluster) -> Policy:
    """Return the policy that decides about a cluster: one copy for each GPU type or partition, where it needs them.

    A run does this when it is built. Call it for a policy that you ask by yourself.
    """
    if cluster.partitions:
        from polluxsim.policies.tools.partitions import PerPartition  # noqa: PLC0415  (few clusters need it)

        if isinstance(policy, PerPartition):
            return policy
        return PerPartition(policy)
    if len(cluster.types) > 1:
        from polluxsim.policies.tools.pools import prepared_for_types  # noqa: PLC0415  (few clusters need it)

        return prepared_for_types(policy)
    return as_policy(policy)
