"""A run at a moment of its life, and the futures it has from there."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from polluxsim.api.choices import Choice
from polluxsim.api.parts import cluster_part, policy_part, workload_part
from polluxsim.api.results import Result
from polluxsim.engine.diversion import Diversion
from polluxsim.engine.rounds import first_round
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import driven
from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.metrics.summary import summarise
from polluxsim.run.building import build
from polluxsim.run.composing import composed
from polluxsim.run.execution import Execution
from polluxsim.types import Cluster

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from omegaconf import DictConfig

    from polluxsim.api.parts import ClusterLike, Part, PolicyLike, WorkloadLike
    from polluxsim.storage import Run


class Moment:
    """A finished run at a round of its life, from which it can go on in other ways.

    The run is made again up to there, from the settings that it was made with.

    Parameters
    ----------
    run
        The run, as `polluxsim.read` or `simulate` gives it.
    time
        When things may change: at the first round that is not before this time [s].

    Raises
    ------
    InvalidInputError
        If the run does not last so long, or does not come out as it was.
    """

    def __init__(self, run: Run, time: float) -> None:
        config = run.info.get("config", {})
        if given := [group for group, part in config.items() if isinstance(part, dict) and "object" in part]:
            what = f"its {given[0]} was an object in Python, allowed are choices by name"
            raise InvalidInputError(f"{run.name} cannot be made again: {what}")
        self._origin, self._config = run, OmegaConf.create(config)
        self._execution = Execution(self._config)
        self._run, self._policy = self._execution.start()
        interval = self._run.scenario.settings.round_interval
        self.time = first_round(time, interval) * interval
        if run.result.end_time <= self.time:
            raise InvalidInputError(f"{run.name} ends at {run.result.end_time:g} s, allowed are times before")
        while (view := self._run.advance(before=self.time)) is not None:
            self._run.commit(self._policy.allocate(view, self._run.rng))
        self._check_past()

    def _check_past(self) -> None:
        again = self._run.result().allocation_records
        before = [record for record in self._origin.result.allocation_records if record.time < self.time]
        if before != list(again):
            what = "made again, it is another run: files, polluxsim or its libraries have changed since"
            raise InvalidInputError(f"{self._origin.name}: {what}")

    def fork(
        self,
        *,
        policy: PolicyLike | None = None,
        cluster: ClusterLike | None = None,
        drop_nodes: Collection[int] = (),
        without: Iterable[str] = (),
        add: WorkloadLike | None = None,
        seed: int | None = None,
    ) -> Result:
        """Return the run as it would have gone on otherwise; what is left out stays as it was.

        Parameters
        ----------
        policy
            Who decides from then on; a choice without a name sets something of the run's own policy.
        cluster
            Nodes besides those there are, or fewer: the last ones go.
        drop_nodes
            Numbers of nodes that go down for good.
        without
            Jobs that are cancelled, or do not come.
        add
            Jobs that come besides, at their times since the start of the run [s].
        seed
            Draws the policy's random numbers anew from then on.

        Raises
        ------
        PolluxSimError
            If such a future cannot be.

        Examples
        --------
        >>> import polluxsim
        >>> run = polluxsim.simulate(policy="fifo", progress=False)
        >>> other = run.at("3h").fork(policy="srtf")
        >>> bool(other.metrics.avg_jct < run.metrics.avg_jct)
        True
        """
        run, decider, config = deepcopy((self._run, self._policy, self._config))
        scenario, workload = run.scenario, OmegaConf.create({})
        new_policy = None if policy is None else _put(config, "policy", policy_part(policy))
        new_cluster = None if cluster is None else _put(config, "cluster", cluster_part(cluster))
        nodes, lost = _nodes(scenario.cluster, new_cluster or scenario.cluster, drop_nodes)
        decider = decider if new_policy is None else deepcopy(new_policy)
        if new_policy is not None or nodes != scenario.cluster:
            scenario = Scenario.under(decider, scenario.workload, scenario.profiles, nodes, scenario.settings)
        left_out = tuple(dict.fromkeys(without))
        self._check_jobs(left_out)
        more = () if add is None else _put(workload, "workload", workload_part(add)).load(scenario.profiles).jobs
        diversion = Diversion(self.time, scenario, new_policy is not None, lost, left_out, tuple(more), seed)
        if diversion != Diversion(self.time, run.scenario):
            run.divert(diversion)
        result = driven(run, decider)
        if seed is not None:
            config.seed = seed
        descent = {"run": self._origin.name, "key": self._origin.info.get("key"), "time": self.time}
        descent |= {"lost_nodes": list(lost), "without": list(left_out), "added": [job.job_id for job in more]}
        info = self._execution.info(summarise(result))
        info |= {"config": OmegaConf.to_container(config), "seed": config.seed, "nodes": nodes.groups, "key": None}
        return Result(self._origin.name, info | {"descent": descent}, result)

    def _check_jobs(self, names: Sequence[str]) -> None:
        ends = {job.job: job.end_time for job in self._origin.result.job_records}
        for name in names:
            if name not in ends:
                raise InvalidInputError(f"{self._origin.name} has no job {name!r}")
            if (end := ends[name]) is not None and end < self.time:
                raise InvalidInputError(
                    f"job {name!r} ended at {end:g} s, allowed are jobs that end at {self.time:g} s or later"
                )


def _put(config: DictConfig, group: str, part: Part) -> Any:
    """Put a part into a configuration, and return what it makes; None if it is there already."""
    if not isinstance(part, Choice):
        config[group] = dict(part.description)
        return part.value
    before = config.get(group)
    if part.name is not None or before is None:
        settings = composed({} if part.name is None else {group: part.name}, {group: part.settings}, 0)[group]
    else:
        settings = OmegaConf.merge(before, dict(part.settings))
    if settings == before:
        return None
    config[group] = settings
    return build(config, group)


def _nodes(old: Cluster, new: Cluster, dropped: Collection[int]) -> tuple[Cluster, tuple[int, ...]]:
    """Return the nodes there are or were, and the numbers of those that go; a new node that goes never came."""
    both = min(old.num_nodes, new.num_nodes)
    if (
        new.gpus_per_node[:both] != old.gpus_per_node[:both]
        or None is not old.least_nodes
        or None is not new.least_nodes
    ):
        what = (
            f"cluster has nodes {new.groups}, allowed are those there are, {old.groups}, and more or fewer at the end"
        )
        raise InvalidConfigError(f"{what}; nodes that are rented cannot be changed")
    nodes = max(old, new, key=lambda cluster: cluster.num_nodes)
    if strange := [node for node in dropped if node not in range(nodes.num_nodes)]:
        raise InvalidConfigError(f"node {strange[0]} is not there, allowed are 0 to {nodes.num_nodes - 1}")
    lost = {*dropped, *range(new.num_nodes, old.num_nodes)}
    gpus = nodes.gpus_per_node
    while len(gpus) > old.num_nodes and len(gpus) - 1 in lost:
        lost.remove(len(gpus) - 1)
        gpus = gpus[:-1]
    kept = old if gpus == old.gpus_per_node else Cluster(gpus, failures=old.failures)
    return kept, tuple(sorted(lost))
